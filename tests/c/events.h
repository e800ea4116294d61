/* Helpers to build stores event by event, and tables from them. */
#ifndef FS_TESTS_C_EVENTS_H
#define FS_TESTS_C_EVENTS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/tensor.h"
#include "store/signature.h"
#include "table/table.h"
#include "tests/c/check.h"

static inline bool near(double value, double expected)
{
    return fabs(value - expected) <= 1e-9 * fabs(expected);
}

/* Building a store ----------------------------------------------------------------------------------------------- */

static fs_store *store;

static inline uint32_t name_id(const char *text)
{
    uint32_t id = FS_NONE;
    CHECK(fs_store_name(store, text, &id, NULL) == FS_OK);
    return id;
}

/* Return the signature of a pointwise float32 op with two inputs of shape [rows, columns]. */
static inline uint32_t signature_id(fs_device_kind kind, int64_t rows, int64_t columns)
{
    int64_t shape[] = {rows, columns};
    uint64_t bytes[FS_SIGNATURE_MAX_BYTES / 8];
    fs_signature signature = {.device_kind = (uint8_t)kind, .argument_count = 3};
    for (int i = 0; i < 3; i++) {
        signature.arguments[i] = (fs_argument){
            .role = i == 2 ? FS_ARGUMENT_OUT : FS_ARGUMENT_IN,
            .dtype = FS_FLOAT32,
            .ndim = 2,
            .same_as = FS_SAME_AS_NONE,
            .dense = 1,
            .shape = shape,
        };
    }
    uint32_t id = FS_NONE;
    CHECK(fs_store_signature(store, bytes, fs_signature_encode(&signature, bytes), &id, NULL) == FS_OK);
    return id;
}

/* Append an event. Host events go to this thread's lane. */
static inline uint32_t put(fs_event event)
{
    uint32_t index = FS_NONE;
    if (event.lane == FS_NONE && event.device < 0 && event.kind != FS_EVENT_MEMORY)
        CHECK(fs_store_thread_lane(store, &event.lane, NULL) == FS_OK);
    CHECK(fs_store_append(store, &event, &index, NULL) == FS_OK);
    return index;
}

static inline uint32_t host(fs_event_kind kind, const char *name, uint32_t parent, int64_t start, int64_t duration)
{
    fs_event event = fs_event_missing;
    event.kind = (uint8_t)kind;
    event.name = name_id(name);
    event.parent = parent;
    event.start = start;
    event.duration = duration;
    return put(event);
}

static inline uint32_t op(const char *name, uint32_t signature, uint32_t parent, int64_t start, int64_t duration)
{
    fs_event event = fs_event_missing;
    event.name = name_id(name);
    event.signature = signature;
    event.parent = parent;
    event.start = start;
    event.duration = duration;
    return put(event);
}

static inline void device(fs_event_kind kind, const char *name, uint32_t launcher, int on, int64_t start,
                          int64_t duration)
{
    fs_event event = fs_event_missing;
    event.kind = (uint8_t)kind;
    event.name = name_id(name);
    event.launcher = launcher;
    event.device = (int8_t)on;
    event.start = start;
    event.duration = duration;
    event.timing = kind == FS_EVENT_INTERVAL ? FS_TIMING_EVENT : FS_TIMING_CUPTI;
    put(event);
}

static inline void memory(uint32_t parent, int on, int64_t bytes)
{
    fs_event event = fs_event_missing;
    event.kind = FS_EVENT_MEMORY;
    event.parent = parent;
    event.device = (int8_t)on;
    event.start = 1;
    event.bytes = bytes;
    put(event);
}

/* Return peaks with the same FLOP/s for every unit. `shortest_ns` is both the shortest launch and the shortest kernel.
 */
static inline fs_peaks peaks(double flops, double bandwidth, double shortest_ns)
{
    fs_peaks result;
    fs_peaks_unknown(&result);
    for (int unit = 0; unit < FS_UNIT_COUNT; unit++) result.flops[unit] = flops;
    result.bandwidth = bandwidth;
    result.launch_ns = result.kernel_ns = shortest_ns;
    return result;
}

static inline fs_table *build(const fs_table_options *options)
{
    static const fs_table_options none;
    fs_table *table = NULL;
    fs_error err = {FS_OK, ""};
    CHECK(fs_table_build(store, options != NULL ? options : &none, &table, &err) == FS_OK);
    return table;
}

/* Build a table with each of its allocations failing in turn, until it succeeds with `rows` rows. */
static inline void build_with_failing_memory(const fs_table_options *options, uint32_t rows)
{
    int64_t live = fs_memory_live();
    for (int64_t n = 1;; n++) {
        fs_table *table = NULL;
        fs_error err = {FS_OK, ""};
        fs_memory_fail_at(n);
        fs_status status = fs_table_build(store, options, &table, &err);
        fs_memory_fail_at(0);
        if (status == FS_OK) {
            CHECK(n > 10 && table->row_count == rows);
            fs_table_destroy(table);
            break;
        }
        CHECK(status == FS_OUT_OF_MEMORY && err.status == status && err.message[0] != 0);
        CHECK(fs_memory_live() == live);
    }
    CHECK(fs_memory_live() == live);
}

static inline const fs_row *row_of(const fs_table *table, const char *key, bool on_device)
{
    static const fs_row missing = {.key = "", .count = -1};
    const fs_row *match = &missing;
    for (uint32_t i = 0; i < table->row_count; i++) {
        const fs_row *row = &table->rows[i];
        if (strcmp(row->key, key) != 0 || row->on_device != on_device) continue;
        CHECK(match == &missing);
        match = row;
    }
    if (match == &missing) fprintf(stderr, "no row \"%s\"\n", key);
    CHECK(match != &missing);
    return match;
}

/* Run each test on an empty store. */
static inline int run_tests(void (*const *tests)(void), size_t count)
{
    int64_t live = fs_memory_live();
    for (size_t i = 0; i < count; i++) {
        CHECK(fs_store_create(&store, NULL) == FS_OK);
        tests[i]();
        fs_store_destroy(store);
        CHECK(fs_memory_live() == live);
    }
    return failures != 0;
}

#endif
