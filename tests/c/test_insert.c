/* Late ops: where they stand in a store, what is within them, and whose work they have. */
#include <string.h>

#include "base/memory.h"
#include "sources/attribute.h"
#include "store/event.h"
#include "store/insert.h"
#include "tests/c/check.h"

static fs_store *from;

static uint32_t add(fs_event_kind kind, const char *name, uint32_t lane, int64_t start, int64_t end, uint32_t parent)
{
    fs_error err;
    fs_event event = fs_event_missing;
    uint32_t index;
    event.kind = (uint8_t)kind;
    CHECK_OK(fs_store_name(from, name, &event.name, &err));
    event.start = start;
    event.duration = end - start;
    event.lane = lane;
    event.parent = parent;
    event.correlation = kind == FS_EVENT_RUNTIME || kind == FS_EVENT_KERNEL ? (uint32_t)start : FS_NONE;
    if (kind == FS_EVENT_KERNEL) event.device = 0, event.correlation = (uint32_t)start - 5;
    CHECK_OK(fs_store_append(from, &event, &index, &err));
    return index;
}

static fs_late_op op(const char *name, uint32_t lane, int64_t start, int64_t end, uint32_t open)
{
    fs_error err;
    fs_late_op made = {.start = start, .end = end, .lane = lane, .open = open};
    CHECK_OK(fs_store_name(from, name, &made.name, &err));
    return made;
}

/* Return the only event of a name. */
static uint32_t named(const fs_store *store, const char *name)
{
    uint32_t found = FS_NONE;
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        if (strcmp(fs_store_name_text(store, FS_EVENT_AT(store, i, name)), name) != 0) continue;
        if (FS_EVENT_AT(store, i, device) >= 0 && FS_EVENT_AT(store, i, kind) == FS_EVENT_RANGE) continue;
        CHECK(found == FS_NONE, "%s", name);
        found = i;
    }
    CHECK(found != FS_NONE, "%s", name);
    return found;
}

static uint32_t parent_of(const fs_store *store, const char *name)
{
    return FS_EVENT_AT(store, named(store, name), parent);
}

/* thread 0   |step         |a|  |compile    |trace|  |b| |         |c|  |
 * thread 1                          |call| of a library               the call launches a kernel */
static void build(fs_late_op ops[3])
{
    fs_error err;
    uint32_t threads[2], stream;
    CHECK_OK(fs_store_create(&from, &err));
    CHECK_OK(fs_store_thread_lane_of(from, 1, &threads[0], &err));
    CHECK_OK(fs_store_thread_lane_of(from, 2, &threads[1], &err));
    CHECK_OK(fs_store_device_lane(from, 0, 7, &stream, &err));
    uint32_t step = add(FS_EVENT_RANGE, "step", threads[0], 100, 900, FS_NONE);
    add(FS_EVENT_OP, "a", threads[0], 110, 120, step);
    add(FS_EVENT_OP, "b", threads[0], 320, 330, step);
    add(FS_EVENT_RUNTIME, "call", threads[1], 400, 403, FS_NONE);
    add(FS_EVENT_KERNEL, "kernel", stream, 405, 450, FS_NONE);
    add(FS_EVENT_OP, "c", threads[0], 700, 710, step);
    add(FS_EVENT_RUNTIME, "later", threads[1], 800, 803, FS_NONE);
    add(FS_EVENT_KERNEL, "other", stream, 805, 850, FS_NONE);
    ops[0] = op("trace", threads[0], 300, 350, step);
    ops[1] = op("compile", threads[0], 200, 600, step);
    ops[2] = op("early", threads[0], 50, 90, step); /* the step began after it */
}

static fs_store *inserted(fs_late_op ops[3])
{
    fs_error err;
    fs_store *into;
    CHECK_OK(fs_store_create(&into, &err));
    CHECK_OK(fs_store_insert(from, ops, 3, into, &err));
    return into;
}

static void test_ops_stand_where_they_began(void)
{
    fs_error err;
    fs_late_op ops[3];
    build(ops);
    fs_store *into = inserted(ops);
    static const char *const order[] = {"early", "step",   "a", "compile", "trace", "b",
                                        "call",  "kernel", "c", "later",   "other"};
    for (uint32_t i = 0; i < sizeof order / sizeof *order; i++) CHECK(named(into, order[i]) == i, "%s", order[i]);
    CHECK(parent_of(into, "early") == FS_NONE);
    CHECK(parent_of(into, "step") == FS_NONE);
    CHECK(parent_of(into, "compile") == named(into, "step"));
    CHECK(parent_of(into, "trace") == named(into, "compile"));
    CHECK(parent_of(into, "a") == named(into, "step"));
    CHECK(parent_of(into, "b") == named(into, "trace"));
    CHECK(parent_of(into, "c") == named(into, "step"));
    CHECK_OK(fs_attribute(into, &err));
    CHECK(FS_EVENT_AT(into, named(into, "kernel"), launcher) == named(into, "compile"));
    CHECK(FS_EVENT_AT(into, named(into, "other"), launcher) == named(into, "step"));
    fs_store_destroy(into);
    fs_store_destroy(from);
}

static void test_without_memory_nothing_is_lost(void)
{
    fs_error err;
    fs_late_op ops[3];
    build(ops);
    int refused = 0;
    for (int64_t nth = 1;; nth++) {
        fs_store *into;
        CHECK_OK(fs_store_create(&into, &err));
        fs_memory_fail_at(nth);
        fs_status status = fs_store_insert(from, ops, 3, into, &err);
        fs_memory_fail_at(0);
        fs_store_destroy(into);
        if (status == FS_OK) break;
        CHECK(status == FS_OUT_OF_MEMORY);
        refused++;
    }
    CHECK(refused > 4, "%d", refused);
    CHECK(fs_store_count(from) == 8);
    fs_store_destroy(from);
}

int main(void)
{
    test_ops_stand_where_they_began();
    test_without_memory_nothing_is_lost();
    return failures > 0;
}
