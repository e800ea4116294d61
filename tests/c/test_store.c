/* The store below what profiles and joined traces show in Python: signatures, threads, late ops, failing allocations.
 */
#include <pthread.h>

#include "sources/attribute.h"
#include "store/event.h"
#include "store/extend.h"
#include "store/samples.h"
#include "tests/c/events.h"

TEST(appended_signatures_have_ids_of_their_own)
{
    fs_error err;
    uint32_t id;
    for (uint32_t i = 0; i < 3000; i++) {
        uint64_t bytes[] = {i / 2, 7};
        if (i % 3 == 0) CHECK(signature_of(&i, sizeof i) == i);
        else CHECK(fs_store_append_signature(store, bytes, sizeof bytes, &id, &err) == FS_OK && id == i);
    }
    for (uint32_t i = 0; i < 3000; i++) {
        fs_span span = fs_store_signature_bytes(store, i);
        uint64_t first = 0;
        memcpy(&first, span.bytes, span.size < sizeof first ? span.size : sizeof first);
        CHECK(first == (i % 3 == 0 ? i : i / 2) && span.size == (i % 3 == 0 ? sizeof i : 16));
        if (i % 3 == 0) CHECK(signature_of(&i, sizeof i) == i);
    }
    uint64_t appended[] = {1, 7};
    CHECK(signature_of(appended, sizeof appended) == 3000, "found an appended one");
    CHECK(fs_store_signature_count(store) == 3001);
    fs_memory_fail_at(1);
    uint32_t before = fs_store_signature_count(store);
    while (fs_store_append_signature(store, appended, sizeof appended, &id, &err) == FS_OK) before++;
    fs_memory_fail_at(0);
    CHECK(err.status == FS_OUT_OF_MEMORY && fs_store_signature_count(store) == before);
}

/* Nesting ---------------------------------------------------------------------------------------------------------- */

static uint32_t open_event(fs_store *in, fs_event_kind kind, int64_t start)
{
    uint32_t name, index = FS_NONE;
    fs_error err;
    CHECK_OK(fs_store_name(in, "event", &name, &err));
    CHECK_OK(fs_store_begin(in, kind, name, FS_NONE, start, &index, &err));
    return index;
}

enum { THREADS = 8, ROUNDS = 2000 };

static void *nest(void *unused)
{
    (void)unused;
    for (int64_t i = 0; i < ROUNDS; i++) {
        uint32_t outer = open_event(store, FS_EVENT_RANGE, i), inner = open_event(store, FS_EVENT_OP, i);
        fs_store_end(store, inner, i + 1);
        fs_store_end(store, outer, i + 2);
    }
    return NULL;
}

TEST(threads_nest_apart)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, nest, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK(fs_store_count(store) == 2 * THREADS * ROUNDS && fs_store_lane_count(store) == THREADS);
    for (uint32_t i = 0; i < fs_store_count(store) && failures == 0; i++) {
        fs_event event = event_at(i);
        bool is_inner = event.kind == FS_EVENT_OP;
        CHECK(is_inner == (event.parent != FS_NONE));
        if (is_inner) CHECK(event_at(event.parent).lane == event.lane && event.parent < i);
    }
}

/* Joining recordings ----------------------------------------------------------------------------------------------- */

/* Append pairs of an op and of the kernel that it launched, whose names, streams and correlations depend on `first`. */
static fs_status record(fs_store *in, uint32_t first, uint32_t pairs, fs_error *err)
{
    for (uint32_t i = 0; i < pairs; i++) {
        char text[16];
        fs_event op = fs_event_missing, kernel = fs_event_missing;
        uint32_t index;
        snprintf(text, sizeof text, "op %u", (first + i) % 300);
        FS_TRY(fs_store_name(in, text, &op.name, err));
        FS_TRY(fs_store_name(in, "kernel", &kernel.name, err));
        FS_TRY(fs_store_signature(in, &i, 1, &op.signature, err));
        FS_TRY(fs_store_thread_lane_of(in, first + i % 3, &op.lane, err));
        FS_TRY(fs_store_device_lane(in, 1, (first + i) % 5, &kernel.lane, err));
        op.start = 10 * (int64_t)i;
        kernel.start = i % 7 == 0 ? FS_MISSING : op.start + 5;
        op.duration = kernel.duration = 4;
        op.correlation = kernel.correlation = i;
        kernel.kind = FS_EVENT_KERNEL;
        kernel.device = 1;
        if (i > 0) op.forward = 2 * (i - 1);
        FS_TRY(fs_store_append(in, &op, &index, err));
        kernel.launcher = index;
        FS_TRY(fs_store_append(in, &kernel, NULL, err));
    }
    fs_store_set_window(in, 0, 10 * (int64_t)pairs);
    return fs_store_add_samples(in, 1, "dram_bytes_read", &(fs_sample){0, 100, 1}, 1, NULL, err);
}

/* Late ops: where they stand in a store, what is within them, and whose work they have ----------------------------- */

static fs_late_op late[3];

static uint32_t add(fs_event_kind kind, const char *name, uint32_t lane, int64_t start, int64_t end, uint32_t parent,
                    uint32_t correlation)
{
    fs_event event = event_of(kind, name, start, end - start);
    event.lane = lane;
    event.parent = parent;
    event.correlation = correlation;
    if (kind == FS_EVENT_KERNEL) event.device = 0;
    return put(event);
}

/* Return the only event of a name, but for copies of ranges on devices. */
static uint32_t named(const fs_store *in, const char *name)
{
    uint32_t found = FS_NONE;
    for (uint32_t i = 0; i < fs_store_count(in); i++) {
        if (strcmp(fs_store_name_text(in, FS_EVENT_AT(in, i, name)), name) != 0) continue;
        if (FS_EVENT_AT(in, i, device) >= 0 && FS_EVENT_AT(in, i, kind) == FS_EVENT_RANGE) continue;
        CHECK(found == FS_NONE, "%s", name);
        found = i;
    }
    CHECK(found != FS_NONE, "%s", name);
    return found;
}

/* thread 0   |step         |a|  |compile    |trace|  |b| |         |c|  |
 * thread 1                          |call| of a library               the call launches a kernel */
static void fill(void)
{
    uint32_t threads[2], stream;
    CHECK_OK(fs_store_thread_lane_of(store, 1, &threads[0], NULL));
    CHECK_OK(fs_store_thread_lane_of(store, 2, &threads[1], NULL));
    CHECK_OK(fs_store_device_lane(store, 0, 7, &stream, NULL));
    uint32_t step = add(FS_EVENT_RANGE, "step", threads[0], 100, 900, FS_NONE, FS_NONE);
    add(FS_EVENT_OP, "a", threads[0], 110, 120, step, FS_NONE);
    add(FS_EVENT_OP, "b", threads[0], 320, 330, step, FS_NONE);
    add(FS_EVENT_RUNTIME, "call", threads[1], 400, 403, FS_NONE, 1);
    add(FS_EVENT_KERNEL, "kernel", stream, 405, 450, FS_NONE, 1);
    add(FS_EVENT_OP, "c", threads[0], 700, 710, step, FS_NONE);
    add(FS_EVENT_RUNTIME, "later", threads[1], 800, 803, FS_NONE, 2);
    add(FS_EVENT_KERNEL, "other", stream, 805, 850, FS_NONE, 2);
    late[0] = (fs_late_op){.start = 300, .end = 350, .lane = threads[0], .open = step, .name = name_id("trace")};
    late[1] = (fs_late_op){.start = 200, .end = 600, .lane = threads[0], .open = step, .name = name_id("compile")};
    late[2] = (fs_late_op){.start = 50, .end = 90, .lane = threads[0], .open = step, .name = name_id("early")};
}

TEST(ops_stand_where_they_began)
{
    static const char *const order[] = {"early", "step",   "a", "compile", "trace", "b",
                                        "call",  "kernel", "c", "later",   "other"};
    static const char *const parents[][2] = {
        {"compile", "step"}, {"trace", "compile"}, {"a", "step"},  {"b", "trace"},
        {"c", "step"},       {"step", NULL},       {"early", NULL}}; /* the step began after it */
    fs_error err;
    fs_store *into;
    fill();
    CHECK_OK(fs_store_create(&into, &err));
    CHECK_OK(fs_store_insert(store, late, 3, into, &err));
    for (uint32_t i = 0; i < COUNT_OF(order); i++) CHECK(named(into, order[i]) == i, "%s", order[i]);
    for (size_t i = 0; i < COUNT_OF(parents); i++) {
        uint32_t expected = parents[i][1] != NULL ? named(into, parents[i][1]) : FS_NONE;
        CHECK(FS_EVENT_AT(into, named(into, parents[i][0]), parent) == expected, "%s", parents[i][0]);
    }
    CHECK_OK(fs_attribute(into, &err));
    CHECK(FS_EVENT_AT(into, named(into, "kernel"), launcher) == named(into, "compile"));
    CHECK(FS_EVENT_AT(into, named(into, "other"), launcher) == named(into, "step"));
    fs_store_destroy(into);
}

/* Failures --------------------------------------------------------------------------------------------------------- */

static fs_status begin_and_end(fs_error *err)
{
    fs_store *own = NULL;
    FS_TRY(fs_store_create(&own, err));
    fs_status status = FS_OK;
    uint32_t id, lane, index, before = 0;
    for (uint32_t i = 0; i < FS_CHUNK_EVENTS + 10 && status == FS_OK; i++) {
        char text[16];
        snprintf(text, sizeof text, "%u", i);
        before = fs_store_count(own);
        status = fs_store_name(own, text, &id, err);
        if (status == FS_OK) status = fs_store_device_lane(own, 0, i % 40, &lane, err);
        if (status == FS_OK) status = fs_store_begin(own, FS_EVENT_OP, id, FS_NONE, i, &index, err);
        if (status == FS_OK) fs_store_end(own, index, i + 1);
    }
    if (status != FS_OK) CHECK(fs_store_count(own) == before); /* unchanged */
    fs_store_destroy(own);
    return status;
}

static fs_status join_two(fs_error *err)
{
    fs_store *a = NULL, *b = NULL;
    fs_status status = fs_store_create(&a, err);
    if (status == FS_OK) status = fs_store_create(&b, err);
    if (status == FS_OK) status = record(a, 0, 40, err);
    if (status == FS_OK) status = record(b, 20, 40, err);
    if (status == FS_OK) status = fs_store_extend(a, b, 7, err);
    fs_store_destroy(a);
    fs_store_destroy(b);
    return status;
}

static fs_status insert_late(fs_error *err)
{
    fs_store *into;
    FS_TRY(fs_store_create(&into, err));
    fs_status status = fs_store_insert(store, late, 3, into, err);
    fs_store_destroy(into);
    CHECK(fs_store_count(store) == 8);
    return status;
}

TEST(every_allocation_may_fail)
{
    fill();
    CHECK(fail_each_allocation(begin_and_end) > 10);
    CHECK(fail_each_allocation(join_two) > 10);
    CHECK(fail_each_allocation(insert_late) > 4);
}
