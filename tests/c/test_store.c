/* The store: columns, interning, nesting, threads, joining recordings, late ops, and failing allocations. */
#include <pthread.h>

#include "sources/attribute.h"
#include "store/event.h"
#include "store/extend.h"
#include "tests/c/events.h"

TEST(events_come_back_as_they_went_in)
{
    enum { COUNT = 9 * FS_CHUNK_EVENTS + 17 };
    fs_error err;
    for (uint32_t i = 0; i < COUNT; i++) {
        fs_event event = fs_event_missing;
        event.start = (int64_t)i * 1000000007;
        event.duration = i;
        event.bytes = -(int64_t)i;
        event.name = i % 7;
        event.correlation = i ^ 0x5555;
        event.device = (int8_t)(i % 3);
        event.kind = (uint8_t)(i % FS_EVENT_KIND_COUNT);
        uint32_t index;
        CHECK(fs_store_append(store, &event, &index, &err) == FS_OK && index == i);
    }
    CHECK(fs_store_count(store) == COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        fs_event event = event_at(i);
        CHECK(event.start == (int64_t)i * 1000000007 && event.duration == i && event.bytes == -(int64_t)i);
        CHECK(event.name == i % 7 && event.correlation == (i ^ 0x5555) && event.device == (int8_t)(i % 3));
        CHECK(event.parent == FS_NONE && event.launcher == FS_NONE && event.signature == FS_NONE);
    }
    for (uint32_t i = 5; i < 8; i++) CHECK(fs_store_chunk(store, i) == fs_store_chunk(store, i - 1) + 1);
}

TEST(names_are_interned)
{
    char text[32];
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 5000; i++) {
            snprintf(text, sizeof text, "name %u", i);
            CHECK(name_id(text) == i);
        }
    }
    CHECK(fs_store_name_count(store) == 5000);
    CHECK(strcmp(fs_store_name_text(store, 4321), "name 4321") == 0);
    CHECK(strcmp(fs_store_name_text(store, name_id("")), "") == 0);
}

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

TEST(signatures_survive_coding)
{
    int64_t shape[3] = {2, 0, INT64_MAX}, strides[3] = {-1, 0, 1 << 20};
    fs_signature signature = {.flags = FS_SIGNATURE_TF32, .device_kind = 1, .device_index = 7, .argument_count = 3},
                 got;
    signature.arguments[0] = (fs_argument){FS_ARGUMENT_IN, 2, 3, FS_SAME_AS_NONE, 0, shape, strides};
    signature.arguments[1] = (fs_argument){FS_ARGUMENT_SCALAR, 9, 0, FS_SAME_AS_NONE, 1, shape, NULL};
    signature.arguments[2] = (fs_argument){FS_ARGUMENT_OUT, 3, 2, 0, 1, shape, NULL};
    _Alignas(8) char bytes[FS_SIGNATURE_MAX_BYTES];
    size_t size = fs_signature_encode(&signature, bytes);
    CHECK(size == 8 * (1 + 1 + 6 + 1 + 1 + 2));
    uint32_t id = signature_of(bytes, size);
    CHECK(signature_of(bytes, size) == id);
    fs_span span = fs_store_signature_bytes(store, id);
    fs_signature_decode(span.bytes, span.size, &got);
    CHECK(got.flags == signature.flags && got.device_kind == 1 && got.device_index == 7 && got.argument_count == 3);
    for (int i = 0; i < 3; i++) {
        const fs_argument *a = &signature.arguments[i], *b = &got.arguments[i];
        CHECK(a->role == b->role && a->dtype == b->dtype && a->ndim == b->ndim && a->same_as == b->same_as);
        CHECK(a->dense == b->dense && memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
        CHECK((a->strides == NULL) == (b->strides == NULL));
        if (a->strides) CHECK(memcmp(a->strides, b->strides, a->ndim * sizeof *a->strides) == 0);
    }
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

TEST(nesting_follows_begin_and_end)
{
    uint32_t outer = open_event(store, FS_EVENT_RANGE, 10), first = open_event(store, FS_EVENT_OP, 20);
    CHECK(fs_store_innermost(store) == first);
    fs_store_end(store, first, 30);
    uint32_t second = open_event(store, FS_EVENT_OP, 40), inner = open_event(store, FS_EVENT_OP, 50);
    fs_store_end(store, outer, 100); /* ends second and inner, which are open */
    CHECK(fs_store_innermost(store) == FS_NONE);
    CHECK(event_at(outer).duration == 90 && event_at(first).duration == 10);
    CHECK(event_at(second).duration == 60 && event_at(inner).duration == 50);
    CHECK(event_at(outer).parent == FS_NONE && event_at(first).parent == outer);
    CHECK(event_at(second).parent == outer && event_at(inner).parent == second);
    fs_store_end(store, first, 500); /* already ended: nothing changes */
    CHECK(event_at(first).duration == 10);
    uint32_t left = open_event(store, FS_EVENT_OP, 200);
    CHECK(event_at(left).duration == FS_MISSING && event_at(left).parent == FS_NONE);
    CHECK(fs_store_end_all(store, 250) == 1 && event_at(left).duration == 50);
    CHECK(fs_store_end_all(store, 300) == 0);
}

/* The end of a frame only ends frames. */
TEST(a_range_outlasts_the_generator_that_began_it)
{
    uint32_t caller, generator, held, later, lane;
    CHECK_OK(fs_store_thread_lane(store, &lane, NULL));
    CHECK_OK(fs_store_begin_on(store, lane, FS_EVENT_FRAME, name_id("caller"), 0, &caller, NULL));
    CHECK_OK(fs_store_begin_on(store, lane, FS_EVENT_FRAME, name_id("generator"), 10, &generator, NULL));
    held = open_event(store, FS_EVENT_RANGE, 20);
    fs_store_end(store, generator, 30);
    CHECK(fs_store_innermost(store) == held);
    CHECK_OK(fs_store_begin_on(store, lane, FS_EVENT_FRAME, name_id("generator"), 40, &later, NULL));
    fs_store_end(store, held, 50);
    CHECK(fs_store_innermost(store) == caller);
    fs_store_end(store, later, 60); /* already ended with the range */
    CHECK(fs_store_innermost(store) == caller);
    fs_store_end(store, caller, 70);
    CHECK(fs_store_innermost(store) == FS_NONE);
    static const int64_t durations[] = {70, 20, 30, 10};
    for (uint32_t i = 0; i < 4; i++) CHECK(event_at(i).duration == durations[i], "event %u", i);
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

TEST(two_stores_in_one_thread)
{
    fs_store *other = NULL;
    CHECK_OK(fs_store_create(&other, NULL));
    uint32_t outer = open_event(other, FS_EVENT_OP, 1), here = open_event(store, FS_EVENT_OP, 1);
    uint32_t inner = open_event(other, FS_EVENT_OP, 2);
    CHECK(FS_EVENT_AT(other, inner, parent) == outer && event_at(here).parent == FS_NONE);
    fs_store_destroy(other);
    CHECK(fs_store_innermost(store) == here);
}

/* Joining recordings ----------------------------------------------------------------------------------------------- */

enum { PAIRS = FS_CHUNK_EVENTS / 2 + 311 };

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
    return FS_OK;
}

static uint32_t moved(uint32_t index, uint32_t by)
{
    return index == FS_NONE ? FS_NONE : index + by;
}

static void check_same(uint32_t first, const fs_store *from, int64_t shift)
{
    for (uint32_t i = 0; i < fs_store_count(from); i++) {
        fs_event old, new = event_at(first + i);
        fs_store_get(from, i, &old);
        CHECK(new.start == (old.start == FS_MISSING ? FS_MISSING : old.start + shift) && new.duration == old.duration);
        CHECK(strcmp(fs_store_name_text(store, new.name), fs_store_name_text(from, old.name)) == 0);
        CHECK(new.launcher == moved(old.launcher, first) && new.parent == FS_NONE);
        CHECK(new.forward == moved(old.forward, first));
        CHECK(new.correlation == FS_NONE && new.kind == old.kind && new.device == old.device);
        fs_lane a = fs_store_lane(store, new.lane), b = fs_store_lane(from, old.lane);
        CHECK(a.on_device == b.on_device && a.device == b.device && a.id == b.id);
        CHECK((old.signature == FS_NONE) == (new.signature == FS_NONE));
        if (old.signature == FS_NONE) continue;
        fs_span one = fs_store_signature_bytes(store, new.signature);
        fs_span two = fs_store_signature_bytes(from, old.signature);
        CHECK(one.size == two.size && memcmp(one.bytes, two.bytes, one.size) == 0);
    }
}

TEST(events_follow_with_their_links)
{
    fs_store *a = NULL, *b = NULL;
    fs_error err;
    CHECK(fs_store_create(&a, &err) == FS_OK && fs_store_create(&b, &err) == FS_OK);
    CHECK(record(a, 0, PAIRS, &err) == FS_OK && record(b, 2, PAIRS, &err) == FS_OK);
    fs_device_facts facts = fs_device_facts_missing;
    strcpy(facts.name, "device of the second recording");
    CHECK_OK(fs_store_set_device(b, 1, &facts, &err));
    CHECK(fs_store_extend(store, a, 0, &err) == FS_OK && fs_store_extend(store, b, 1000000, &err) == FS_OK);
    CHECK(fs_store_count(store) == 4 * PAIRS && fs_store_name_count(store) == 301);
    CHECK(fs_store_lane_count(store) == 5 + 5); /* threads 0 … 4, five streams */
    check_same(0, a, 0);
    check_same(2 * PAIRS, b, 1000000);
    int64_t begin, end;
    fs_store_window(store, &begin, &end);
    CHECK(begin == FS_MISSING && end == FS_MISSING);
    CHECK(strcmp(fs_store_device(store, 1).name, facts.name) == 0 && fs_store_device(store, 0).name[0] == 0);
    fs_store_destroy(a);
    fs_store_destroy(b);
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
