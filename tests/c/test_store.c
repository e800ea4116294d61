/* The store: columns, interning, nesting, threads, and failing allocations. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "store/signature.h"
#include "store/store.h"
#include "tests/c/check.h"

static fs_store *new_store(void)
{
    fs_store *store = NULL;
    fs_error err;
    if (fs_store_create(&store, &err) != FS_OK) fprintf(stderr, "%s\n", err.message);
    return store;
}

static void test_events_come_back_as_they_went_in(void)
{
    enum { COUNT = 9 * FS_CHUNK_EVENTS + 17 };
    fs_store *store = new_store();
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
    for (uint32_t i = 0; i < COUNT; i += 997) {
        fs_event event;
        fs_store_get(store, i, &event);
        CHECK(event.start == (int64_t)i * 1000000007 && event.duration == i && event.bytes == -(int64_t)i);
        CHECK(event.name == i % 7 && event.correlation == (i ^ 0x5555) && event.device == (int8_t)(i % 3));
        CHECK(event.parent == FS_NONE && event.launcher == FS_NONE && event.signature == FS_NONE);
    }
    CHECK(fs_store_nbytes(store) < (int64_t)COUNT * 100 + (int64_t)sizeof(fs_chunk));
    for (uint32_t i = 5; i < 8; i++) CHECK(fs_store_chunk(store, i) == fs_store_chunk(store, i - 1) + 1);
    fs_store_destroy(store);
}

static void test_names_are_interned(void)
{
    fs_store *store = new_store();
    fs_error err;
    char text[32];
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 5000; i++) {
            uint32_t id;
            snprintf(text, sizeof text, "name %u", i);
            CHECK(fs_store_name(store, text, &id, &err) == FS_OK && id == i);
        }
    }
    CHECK(fs_store_name_count(store) == 5000);
    CHECK(strcmp(fs_store_name_text(store, 4321), "name 4321") == 0);
    uint32_t empty;
    CHECK(fs_store_name(store, "", &empty, &err) == FS_OK && strcmp(fs_store_name_text(store, empty), "") == 0);
    fs_store_destroy(store);
}

static void test_appended_signatures_have_ids_of_their_own(void)
{
    fs_store *store = new_store();
    fs_error err;
    uint32_t id;
    for (uint32_t i = 0; i < 3000; i++) {
        uint64_t bytes[] = {i / 2, 7};
        bool looked_up = i % 3 == 0;
        if (looked_up) CHECK(fs_store_signature(store, &i, sizeof i, &id, &err) == FS_OK && id == i);
        else CHECK(fs_store_append_signature(store, bytes, sizeof bytes, &id, &err) == FS_OK && id == i);
    }
    for (uint32_t i = 0; i < 3000; i++) {
        fs_span span = fs_store_signature_bytes(store, i);
        uint64_t first = 0;
        memcpy(&first, span.bytes, span.size < sizeof first ? span.size : sizeof first);
        CHECK(first == (i % 3 == 0 ? i : i / 2) && span.size == (i % 3 == 0 ? sizeof i : 16));
        if (i % 3 == 0) CHECK(fs_store_signature(store, &i, sizeof i, &id, &err) == FS_OK && id == i);
    }
    uint64_t appended[] = {1, 7};
    CHECK(fs_store_signature(store, appended, sizeof appended, &id, &err) == FS_OK && id == 3000,
          "found an appended one");
    CHECK(fs_store_signature_count(store) == 3001);
    fs_memory_fail_at(1);
    uint32_t before = fs_store_signature_count(store);
    while (fs_store_append_signature(store, appended, sizeof appended, &id, &err) == FS_OK) before++;
    fs_memory_fail_at(0);
    CHECK(err.status == FS_OUT_OF_MEMORY && fs_store_signature_count(store) == before);
    fs_store_destroy(store);
}

static void test_signatures_survive_coding(void)
{
    int64_t shape[3] = {2, 0, INT64_MAX}, strides[3] = {-1, 0, 1 << 20};
    fs_signature signature = {.flags = FS_SIGNATURE_TF32, .device_kind = 1, .device_index = 7, .argument_count = 3};
    signature.arguments[0] = (fs_argument){FS_ARGUMENT_IN, 2, 3, FS_SAME_AS_NONE, 0, shape, strides};
    signature.arguments[1] = (fs_argument){FS_ARGUMENT_SCALAR, 9, 0, FS_SAME_AS_NONE, 1, shape, NULL};
    signature.arguments[2] = (fs_argument){FS_ARGUMENT_OUT, 3, 2, 0, 1, shape, NULL};
    _Alignas(8) char bytes[FS_SIGNATURE_MAX_BYTES];
    size_t size = fs_signature_encode(&signature, bytes);
    CHECK(size == 8 * (1 + 1 + 6 + 1 + 1 + 2));
    fs_store *store = new_store();
    fs_error err;
    uint32_t id, again;
    CHECK(fs_store_signature(store, bytes, size, &id, &err) == FS_OK);
    CHECK(fs_store_signature(store, bytes, size, &again, &err) == FS_OK && id == again);
    fs_span span = fs_store_signature_bytes(store, id);
    fs_signature got;
    fs_signature_decode(span.bytes, span.size, &got);
    CHECK(got.flags == signature.flags && got.device_kind == 1 && got.device_index == 7 && got.argument_count == 3);
    for (int i = 0; i < 3; i++) {
        const fs_argument *a = &signature.arguments[i], *b = &got.arguments[i];
        CHECK(a->role == b->role && a->dtype == b->dtype && a->ndim == b->ndim && a->same_as == b->same_as);
        CHECK(a->dense == b->dense && memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
        CHECK((a->strides == NULL) == (b->strides == NULL));
        if (a->strides) CHECK(memcmp(a->strides, b->strides, a->ndim * sizeof *a->strides) == 0);
    }
    fs_store_destroy(store);
}

static uint32_t open_event(fs_store *store, fs_event_kind kind, int64_t start)
{
    uint32_t name, index = FS_NONE;
    fs_error err;
    CHECK(fs_store_name(store, "event", &name, &err) == FS_OK);
    CHECK(fs_store_begin(store, kind, name, FS_NONE, start, &index, &err) == FS_OK);
    return index;
}

static fs_event get(const fs_store *store, uint32_t index)
{
    fs_event event;
    fs_store_get(store, index, &event);
    return event;
}

static void test_nesting_follows_begin_and_end(void)
{
    fs_store *store = new_store();
    uint32_t outer = open_event(store, FS_EVENT_RANGE, 10), first = open_event(store, FS_EVENT_OP, 20);
    CHECK(fs_store_innermost(store) == first);
    fs_store_end(store, first, 30);
    uint32_t second = open_event(store, FS_EVENT_OP, 40), inner = open_event(store, FS_EVENT_OP, 50);
    fs_store_end(store, outer, 100); /* ends second and inner, which are open */
    CHECK(fs_store_innermost(store) == FS_NONE);
    CHECK(get(store, outer).duration == 90 && get(store, first).duration == 10);
    CHECK(get(store, second).duration == 60 && get(store, inner).duration == 50);
    CHECK(get(store, outer).parent == FS_NONE && get(store, first).parent == outer);
    CHECK(get(store, second).parent == outer && get(store, inner).parent == second);
    fs_store_end(store, first, 500); /* already ended: nothing changes */
    CHECK(get(store, first).duration == 10);
    uint32_t left = open_event(store, FS_EVENT_OP, 200);
    CHECK(get(store, left).duration == FS_MISSING && get(store, left).parent == FS_NONE);
    CHECK(fs_store_end_all(store, 250) == 1 && get(store, left).duration == 50);
    CHECK(fs_store_end_all(store, 300) == 0);
    fs_store_destroy(store);
}

enum { THREADS = 8, ROUNDS = 20000 };

static void *nest(void *context)
{
    fs_store *store = context;
    for (int64_t i = 0; i < ROUNDS; i++) {
        uint32_t outer = open_event(store, FS_EVENT_RANGE, i), inner = open_event(store, FS_EVENT_OP, i);
        fs_store_end(store, inner, i + 1);
        fs_store_end(store, outer, i + 2);
    }
    return NULL;
}

static void test_threads_nest_apart(void)
{
    fs_store *store = new_store();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, nest, store);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK(fs_store_count(store) == 2 * THREADS * ROUNDS && fs_store_lane_count(store) == THREADS);
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        fs_event event = get(store, i);
        bool is_inner = event.kind == FS_EVENT_OP;
        CHECK(is_inner == (event.parent != FS_NONE));
        if (is_inner) CHECK(get(store, event.parent).lane == event.lane && event.parent < i);
        if (failures) break;
    }
    fs_store_destroy(store);
}

static void test_two_stores_in_one_thread(void)
{
    fs_store *a = new_store(), *b = new_store();
    uint32_t in_a = open_event(a, FS_EVENT_OP, 1), in_b = open_event(b, FS_EVENT_OP, 1);
    uint32_t inner = open_event(a, FS_EVENT_OP, 2);
    CHECK(get(a, inner).parent == in_a && get(b, in_b).parent == FS_NONE);
    fs_store_destroy(a);
    CHECK(fs_store_innermost(b) == in_b);
    fs_store_destroy(b);
}

/* Use every function of the store. Return the first failure. */
static fs_status use_everything(fs_error *err)
{
    fs_store *store = NULL;
    FS_TRY(fs_store_create(&store, err));
    fs_status status = FS_OK;
    uint32_t id, lane, index, before = 0;
    for (uint32_t i = 0; i < FS_CHUNK_EVENTS + 10; i++) {
        char text[16];
        snprintf(text, sizeof text, "%u", i % 500);
        before = fs_store_count(store);
        FS_TRY_GOTO(status, fs_store_name(store, text, &id, err), done);
        FS_TRY_GOTO(status, fs_store_device_lane(store, 0, i % 40, &lane, err), done);
        FS_TRY_GOTO(status, fs_store_begin(store, FS_EVENT_OP, id, FS_NONE, i, &index, err), done);
        fs_store_end(store, index, i + 1);
    }
done:
    if (status != FS_OK) CHECK(fs_store_count(store) == before); /* unchanged */
    fs_store_destroy(store);
    return status;
}

static void test_every_allocation_may_fail(void)
{
    int64_t live = fs_memory_live();
    for (int64_t n = 1;; n++) {
        fs_error err = {FS_OK, ""};
        fs_memory_fail_at(n);
        fs_status status = use_everything(&err);
        fs_memory_fail_at(0);
        CHECK(fs_memory_live() == live);
        if (status == FS_OK) {
            CHECK(n > 10);
            return;
        }
        CHECK(status == FS_OUT_OF_MEMORY && err.status == status && strstr(err.message, "memory") != NULL);
        if (failures) return;
    }
}

int main(void)
{
    test_events_come_back_as_they_went_in();
    test_names_are_interned();
    test_appended_signatures_have_ids_of_their_own();
    test_signatures_survive_coding();
    test_nesting_follows_begin_and_end();
    test_threads_nest_apart();
    test_two_stores_in_one_thread();
    test_every_allocation_may_fail();
    if (failures == 0) printf("store: passed\n");
    return failures != 0;
}
