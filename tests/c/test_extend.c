/* Joining recordings: ids, links, times, devices, and failing allocations. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "store/extend.h"
#include "tests/c/check.h"

enum { COUNT = FS_CHUNK_EVENTS / 2 + 11 };

/* Append pairs of an op and of the kernel that it launched, whose names, streams and correlations depend on `first`. */
static fs_status record(fs_store *store, uint32_t first, uint32_t pairs, fs_error *err)
{
    for (uint32_t i = 0; i < pairs; i++) {
        char text[16];
        fs_event op = fs_event_missing, kernel = fs_event_missing;
        uint32_t index;
        snprintf(text, sizeof text, "op %u", (first + i) % 300);
        FS_TRY(fs_store_name(store, text, &op.name, err));
        FS_TRY(fs_store_name(store, "kernel", &kernel.name, err));
        FS_TRY(fs_store_signature(store, &i, 1, &op.signature, err));
        FS_TRY(fs_store_thread_lane_of(store, first + i % 3, &op.lane, err));
        FS_TRY(fs_store_device_lane(store, 1, (first + i) % 5, &kernel.lane, err));
        op.start = 10 * (int64_t)i;
        kernel.start = i % 7 == 0 ? FS_MISSING : op.start + 5;
        op.duration = kernel.duration = 4;
        op.correlation = kernel.correlation = i;
        kernel.kind = FS_EVENT_KERNEL;
        kernel.device = 1;
        if (i > 0) op.forward = 2 * (i - 1);
        FS_TRY(fs_store_append(store, &op, &index, err));
        kernel.launcher = index;
        FS_TRY(fs_store_append(store, &kernel, NULL, err));
    }
    fs_store_set_window(store, 0, 10 * (int64_t)pairs);
    return FS_OK;
}

static void check_same(const fs_store *joined, uint32_t first, const fs_store *from, int64_t shift)
{
    for (uint32_t i = 0; i < fs_store_count(from); i++) {
        fs_event old, new;
        fs_store_get(from, i, &old);
        fs_store_get(joined, first + i, &new);
        CHECK(new.start == (old.start == FS_MISSING ? FS_MISSING : old.start + shift) && new.duration == old.duration);
        CHECK(strcmp(fs_store_name_text(joined, new.name), fs_store_name_text(from, old.name)) == 0);
        CHECK(new.launcher == (old.launcher == FS_NONE ? FS_NONE : old.launcher + first) && new.parent == FS_NONE);
        CHECK(new.forward == (old.forward == FS_NONE ? FS_NONE : old.forward + first));
        CHECK(new.correlation == FS_NONE && new.kind == old.kind && new.device == old.device);
        fs_lane a = fs_store_lane(joined, new.lane), b = fs_store_lane(from, old.lane);
        CHECK(a.on_device == b.on_device && a.device == b.device && a.id == b.id);
        CHECK((old.signature == FS_NONE) == (new.signature == FS_NONE));
        if (old.signature == FS_NONE) continue;
        fs_span one = fs_store_signature_bytes(joined, new.signature),
                two = fs_store_signature_bytes(from, old.signature);
        CHECK(one.size == two.size && memcmp(one.bytes, two.bytes, one.size) == 0);
    }
}

static void test_events_follow_with_their_links(void)
{
    fs_store *a = NULL, *b = NULL, *joined = NULL;
    fs_error err;
    CHECK(fs_store_create(&a, &err) == FS_OK && fs_store_create(&b, &err) == FS_OK);
    CHECK(fs_store_create(&joined, &err) == FS_OK);
    CHECK(record(a, 0, COUNT, &err) == FS_OK && record(b, 2, COUNT, &err) == FS_OK);
    fs_device_facts facts = fs_device_facts_missing;
    strcpy(facts.name, "device of the second recording");
    CHECK(fs_store_set_device(b, 1, &facts, &err) == FS_OK);
    CHECK(fs_store_extend(joined, a, 0, &err) == FS_OK && fs_store_extend(joined, b, 1000000, &err) == FS_OK);
    CHECK(fs_store_count(joined) == 4 * COUNT && fs_store_name_count(joined) == 301);
    CHECK(fs_store_lane_count(joined) == 5 + 5); /* threads 0 … 4, five streams */
    check_same(joined, 0, a, 0);
    check_same(joined, 2 * COUNT, b, 1000000);
    int64_t begin, end;
    fs_store_window(joined, &begin, &end);
    CHECK(begin == FS_MISSING && end == FS_MISSING);
    CHECK(strcmp(fs_store_device(joined, 1).name, facts.name) == 0 && fs_store_device(joined, 0).name[0] == 0);
    fs_store_destroy(a);
    fs_store_destroy(b);
    fs_store_destroy(joined);
}

static fs_status join_two(fs_error *err)
{
    fs_store *a = NULL, *b = NULL;
    fs_status status = FS_OK;
    FS_TRY_GOTO(status, fs_store_create(&a, err), done);
    FS_TRY_GOTO(status, fs_store_create(&b, err), done);
    FS_TRY_GOTO(status, record(a, 0, 40, err), done);
    FS_TRY_GOTO(status, record(b, 20, 40, err), done);
    FS_TRY_GOTO(status, fs_store_extend(a, b, 7, err), done);
done:
    fs_store_destroy(a);
    fs_store_destroy(b);
    return status;
}

static void test_every_allocation_may_fail(void)
{
    int64_t live = fs_memory_live();
    for (int64_t n = 1;; n++) {
        fs_error err = {FS_OK, ""};
        fs_memory_fail_at(n);
        fs_status status = join_two(&err);
        fs_memory_fail_at(0);
        CHECK(fs_memory_live() == live);
        if (status == FS_OK) {
            CHECK(n > 10);
            return;
        }
        CHECK(status == FS_OUT_OF_MEMORY && err.status == status);
        if (failures) return;
    }
}

int main(void)
{
    test_events_follow_with_their_links();
    test_every_allocation_may_fail();
    if (failures == 0) printf("extend: passed\n");
    return failures != 0;
}
