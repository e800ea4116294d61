/* Stores built event by event, and tables of them. Each test of a program that includes this begins with an empty
 * store. Times are small numbers of ns. */
#ifndef FS_TESTS_C_EVENTS_H
#define FS_TESTS_C_EVENTS_H

#include "ops/tensor.h"
#include "store/signature.h"
#include "table/table.h"
#include "tests/c/check.h"

static fs_store *store;

static inline void make_store(void)
{
    CHECK_OK(fs_store_create(&store, NULL));
}

static inline void end_store(void)
{
    fs_store_destroy(store);
    store = NULL;
}

__attribute__((constructor)) static void use_a_store_in_each_test(void)
{
    before_each = make_store;
    after_each = end_store;
}

/* Events ----------------------------------------------------------------------------------------------------------- */

static inline uint32_t name_id(const char *text)
{
    uint32_t id = FS_NONE;
    CHECK_OK(fs_store_name(store, text, &id, NULL));
    return id;
}

static inline uint32_t signature_of(const void *bytes, size_t size)
{
    uint32_t id = FS_NONE;
    CHECK_OK(fs_store_signature(store, bytes, size, &id, NULL));
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
    return signature_of(bytes, fs_signature_encode(&signature, bytes));
}

static inline fs_event event_of(fs_event_kind kind, const char *name, int64_t start, int64_t duration)
{
    fs_event event = fs_event_missing;
    event.kind = (uint8_t)kind;
    event.name = name_id(name);
    event.start = start;
    event.duration = duration;
    return event;
}

/* Append an event. Host events go to this thread's lane. */
static inline uint32_t put(fs_event event)
{
    uint32_t index = FS_NONE;
    if (event.lane == FS_NONE && event.device < 0 && event.kind != FS_EVENT_MEMORY)
        CHECK_OK(fs_store_thread_lane(store, &event.lane, NULL));
    CHECK_OK(fs_store_append(store, &event, &index, NULL));
    return index;
}

static inline uint32_t host(fs_event_kind kind, const char *name, uint32_t parent, int64_t start, int64_t duration)
{
    fs_event event = event_of(kind, name, start, duration);
    event.parent = parent;
    return put(event);
}

static inline uint32_t op(const char *name, uint32_t signature, uint32_t parent, int64_t start, int64_t duration)
{
    fs_event event = event_of(FS_EVENT_OP, name, start, duration);
    event.signature = signature;
    event.parent = parent;
    return put(event);
}

static inline uint32_t call(const char *name, uint32_t correlation, uint32_t parent, int64_t start, int64_t end)
{
    fs_event event = event_of(FS_EVENT_RUNTIME, name, start, end - start);
    event.parent = parent;
    event.correlation = correlation;
    return put(event);
}

/* Work on a stream of a device; 0: on an unknown one. */
static inline fs_event work_of(fs_event_kind kind, const char *name, int on, uint64_t stream, int64_t start,
                               int64_t end)
{
    fs_event event = event_of(kind, name, start, end - start);
    event.device = (int8_t)on;
    event.timing = kind == FS_EVENT_INTERVAL ? FS_TIMING_EVENT : FS_TIMING_CUPTI;
    if (stream > 0) CHECK_OK(fs_store_device_lane(store, on, stream, &event.lane, NULL));
    return event;
}

static inline void work(fs_event_kind kind, const char *name, int on, uint64_t stream, uint32_t correlation,
                        uint32_t launcher, int64_t start, int64_t end)
{
    fs_event event = work_of(kind, name, on, stream, start, end);
    event.correlation = correlation;
    event.launcher = launcher;
    put(event);
}

static inline void kernel(const char *name, uint32_t launcher, int64_t start, int64_t end)
{
    work(FS_EVENT_KERNEL, name, 0, 7, FS_NONE, launcher, start, end);
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

static inline fs_event event_at(uint32_t index)
{
    fs_event event = fs_event_missing;
    CHECK(index < fs_store_count(store), "no event %u of %u", index, fs_store_count(store));
    if (index < fs_store_count(store)) fs_store_get(store, index, &event);
    return event;
}

static inline const char *name_at(uint32_t index)
{
    uint32_t name = event_at(index).name;
    return name == FS_NONE ? "" : fs_store_name_text(store, name);
}

/* Tables ----------------------------------------------------------------------------------------------------------- */

/* Return peaks with the same FLOP/s for every unit. `shortest_ns` is that of a launch and of a kernel. */
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
    CHECK(fs_table_build(store, options != NULL ? options : &none, &table, &err) == FS_OK, "%s", err.message);
    return table;
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
    CHECK(match != &missing, "no row \"%s\"", key);
    return match;
}

#endif
