/* The timeline of stores built by hand and at random: every event in one place, and no two in the same. */
#include <limits.h>

#include "base/interrupt.h"
#include "base/parallel.h"
#include "base/saturate.h"
#include "tests/c/events.h"
#include "timeline/memory.h"
#include "timeline/timeline.h"

typedef struct {
    fs_table *table;
    fs_accounting accounting;
    fs_timeline timeline;
} drawing;

static drawing draw(uint32_t limit)
{
    drawing result = {0};
    fs_error err = {FS_OK, ""};
    result.table = build(&(fs_table_options){.works = true, .calls = true, .brief = true});
    CHECK(fs_accounting_list(&result.accounting, store, result.table, &err) == FS_OK, "%s", err.message);
    CHECK(fs_timeline_build(&result.timeline, store, result.table, &result.accounting, limit, &err) == FS_OK, "%s",
          err.message);
    return result;
}

static void clear(drawing *of)
{
    fs_timeline_clear(&of->timeline);
    fs_accounting_clear(&of->accounting);
    fs_table_destroy(of->table);
}

static uint32_t on(fs_event_kind kind, const char *name, uint64_t lane, int on_device, int64_t start, int64_t duration,
                   uint32_t correlation)
{
    fs_event event = fs_event_missing;
    event.kind = (uint8_t)kind;
    event.name = name_id(name);
    event.start = start;
    event.duration = duration;
    event.correlation = correlation;
    event.device = (int8_t)on_device;
    if (on_device >= 0) CHECK_OK(fs_store_device_lane(store, on_device, lane, &event.lane, NULL));
    else CHECK_OK(fs_store_thread_lane_of(store, lane, &event.lane, NULL));
    return put(event);
}

/* Check what holds of every timeline. Return the number of events and idle times in its blocks. */
static uint64_t check_lanes(const fs_timeline *timeline)
{
    uint64_t events = 0;
    uint32_t next = 0;
    for (uint32_t i = 0; i < timeline->lane_count; i++) {
        const fs_timeline_lane *lane = &timeline->lanes[i];
        CHECK(lane->first == next && lane->count > 0 && lane->role < FS_LANE_ROLE_COUNT);
        next += lane->count;
        for (uint32_t j = lane->first; j < next; j++) {
            CHECK(timeline->duration[j] >= 0 && timeline->busy[j] >= 0 && timeline->busy[j] <= timeline->duration[j]);
            CHECK(timeline->link[j] == FS_NONE || timeline->link[j] < timeline->block_count);
            CHECK((timeline->label[j] == FS_NONE) == (lane->role == FS_LANE_IDLE));
            events += timeline->count[j];
            if (j > lane->first)
                CHECK(timeline->start[j] >= fs_add_saturated(timeline->start[j - 1], timeline->duration[j - 1]));
        }
    }
    CHECK(next == timeline->block_count && events == timeline->event_count);
    return events;
}

static int64_t busy_of(const fs_timeline *timeline, fs_lane_role role)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < timeline->lane_count; i++) {
        const fs_timeline_lane *lane = &timeline->lanes[i];
        for (uint32_t j = lane->first; lane->role == role && j < lane->first + lane->count; j++)
            sum += timeline->busy[j];
    }
    return sum;
}

static const char *name_of(const fs_timeline *timeline, uint32_t block)
{
    return fs_store_name_text(store, timeline->labels[timeline->label[block]].name);
}

static uint32_t block_named(const fs_timeline *timeline, const char *name)
{
    for (uint32_t i = 0; i < timeline->block_count; i++)
        if (timeline->label[i] != FS_NONE && strcmp(name_of(timeline, i), name) == 0) return i;
    CHECK(false, "no block %s", name);
    return 0;
}

static const fs_timeline_lane *lane_of(const fs_timeline *timeline, uint32_t block)
{
    uint32_t i = 0;
    while (timeline->lanes[i].first + timeline->lanes[i].count <= block) i++;
    return &timeline->lanes[i];
}

static void test_nesting_makes_the_depth_and_calls_are_linked_to_their_work(void)
{
    uint32_t outer = on(FS_EVENT_OP, "outer", 1, -1, 0, 100, FS_NONE);
    on(FS_EVENT_OP, "inner", 1, -1, 10, 50, FS_NONE);
    on(FS_EVENT_RUNTIME, "cudaLaunchKernel", 1, -1, 20, 10, 5);
    on(FS_EVENT_OP, "next", 1, -1, 60, 40, FS_NONE);
    on(FS_EVENT_FRAME, "frame", 1, -1, 100, 5, FS_NONE);
    on(FS_EVENT_KERNEL, "kernel", 7, 0, 40, 30, 5);
    on(FS_EVENT_KERNEL, "beside", 7, 0, 50, 5, FS_NONE);
    on(FS_EVENT_KERNEL, "after", 7, 0, 70, 5, FS_NONE);
    on(FS_EVENT_RANGE, "range", 7, 0, 35, 60, FS_NONE);
    CHECK(outer == 0);
    drawing of = draw(1000);
    const fs_timeline *timeline = &of.timeline;
    CHECK(check_lanes(timeline) == 9 + timeline->idle_count && timeline->merged_ns == 0);
    static const struct {
        const char *name;
        uint8_t role, depth;
    } expected[] = {{"outer", FS_LANE_HOST, 0},  {"inner", FS_LANE_HOST, 1}, {"cudaLaunchKernel", FS_LANE_HOST, 2},
                    {"next", FS_LANE_HOST, 1},   {"frame", FS_LANE_HOST, 0}, {"kernel", FS_LANE_WORK, 0},
                    {"beside", FS_LANE_WORK, 1}, {"after", FS_LANE_WORK, 0}, {"range", FS_LANE_ANNOTATION, 0}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const fs_timeline_lane *lane = lane_of(timeline, block_named(timeline, expected[i].name));
        CHECK(lane->role == expected[i].role && lane->depth == expected[i].depth, "%s", expected[i].name);
        CHECK(lane->has_id && lane->id == (lane->role == FS_LANE_HOST ? 1u : 7u));
    }
    uint32_t kernel = block_named(timeline, "kernel"), call = block_named(timeline, "cudaLaunchKernel");
    CHECK(timeline->link[kernel] == call && timeline->link[call] == FS_NONE);
    CHECK(timeline->link[block_named(timeline, "beside")] == FS_NONE);
    CHECK(timeline->labels[timeline->label[block_named(timeline, "frame")]].row == FS_NONE);
    const char *row = of.table->rows[timeline->labels[timeline->label[kernel]].row].key;
    CHECK(strcmp(row, "kernel") == 0);
    clear(&of);
}

static void test_the_row_of_work_is_that_of_its_op(void)
{
    uint32_t owner = op("flopscope::add", signature_id(FS_CUDA, 4, 1024), FS_NONE, 10, 100);
    device(FS_EVENT_KERNEL, "add", owner, 0, 50, 10);
    drawing of = draw(1000);
    uint32_t kernel = block_named(&of.timeline, "add");
    CHECK(strcmp(of.table->rows[of.timeline.row[kernel]].key, "flopscope::add") == 0);
    CHECK(of.timeline.link[kernel] == block_named(&of.timeline, "flopscope::add"));
    clear(&of);
}

static void test_what_is_left_out_is_counted(void)
{
    on(FS_EVENT_OP, "no start", 1, -1, FS_MISSING, 5, FS_NONE);
    on(FS_EVENT_OP, "open", 1, -1, 5, FS_MISSING, FS_NONE);
    on(FS_EVENT_OP, "last", 2, -1, 50, 25, FS_NONE);
    for (int i = 0; i < FS_TIMELINE_DEPTH + 3; i++) on(FS_EVENT_OP, "deep", 3, -1, i, 100, FS_NONE);
    for (int i = 0; i < FS_TIMELINE_OVERLAP + 2; i++) on(FS_EVENT_KERNEL, "beside", 7, 0, 20, 100, FS_NONE);
    memory(FS_NONE, -1, 64);
    drawing of = draw(1000);
    const fs_timeline *timeline = &of.timeline;
    CHECK(timeline->unplaced_count == 1 && timeline->open_count == 1 && timeline->deep_count == 5);
    uint64_t drawn = check_lanes(timeline) - timeline->idle_count;
    CHECK(drawn == 2 + FS_TIMELINE_DEPTH + FS_TIMELINE_OVERLAP);
    uint32_t open = block_named(timeline, "open");
    CHECK(timeline->start[open] + timeline->duration[open] == FS_TIMELINE_DEPTH + 102);
    clear(&of);
}

static int64_t random_below(uint64_t *state, int64_t limit)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((*state >> 33) % (uint64_t)limit);
}

/* Fill the store, and return the sum of the durations of device work. */
static int64_t fill_at_random(uint64_t seed, int count)
{
    int64_t sum = 0;
    for (int i = 0; i < count; i++) {
        int64_t start = random_below(&seed, 1000000), duration = random_below(&seed, 50) * random_below(&seed, 50);
        uint64_t lane = (uint64_t)random_below(&seed, 3);
        if (random_below(&seed, 2) == 0) {
            on(FS_EVENT_KERNEL, "kernel", lane, (int)lane % 2, start, duration, (uint32_t)i);
            sum += duration;
        } else {
            on(FS_EVENT_RUNTIME, "cudaLaunchKernel", lane, -1, start, duration, (uint32_t)(i + 1));
        }
    }
    return sum;
}

static void test_random_events_are_all_there_and_idle_times_are_those_of_the_accounting(void)
{
    int64_t work = fill_at_random(7, 3000), causes[FS_IDLE_CAUSE_COUNT] = {0};
    drawing of = draw(100000);
    const fs_timeline *timeline = &of.timeline;
    CHECK(timeline->deep_count == 0 && check_lanes(timeline) == 3000 + timeline->idle_count);
    CHECK(busy_of(timeline, FS_LANE_WORK) == work && timeline->merged_ns == 0);
    for (uint32_t i = 0; i < of.accounting.gap_count; i++) {
        const fs_gap *gap = &of.accounting.gaps[i];
        causes[gap->cause] += gap->time;
    }
    int64_t total = 0;
    for (uint32_t i = 0; i < timeline->lane_count; i++) {
        const fs_timeline_lane *lane = &timeline->lanes[i];
        for (uint32_t j = lane->first; lane->role == FS_LANE_IDLE && j < lane->first + lane->count; j++)
            causes[lane->depth] -= timeline->busy[j];
    }
    for (int i = 0; i < FS_IDLE_CAUSE_COUNT; i++) CHECK(causes[i] == 0, "%d", i);
    total = busy_of(timeline, FS_LANE_IDLE);
    CHECK(total > 0 && timeline->idle_count == of.accounting.span_count);
    clear(&of);
}

static void test_short_neighbours_are_merged_below_the_limit(void)
{
    int64_t work = fill_at_random(9, 3000);
    drawing whole = draw(100000);
    for (uint32_t limit = 3000; limit > 10; limit /= 3) {
        drawing of = draw(limit);
        const fs_timeline *timeline = &of.timeline;
        uint32_t lanes = timeline->lane_count;
        CHECK(timeline->merged_ns > 0 && timeline->block_count <= (limit > 4 * lanes ? limit : 4 * lanes));
        CHECK(check_lanes(timeline) == whole.timeline.event_count && lanes == whole.timeline.lane_count);
        CHECK(busy_of(timeline, FS_LANE_WORK) == work);
        CHECK(busy_of(timeline, FS_LANE_IDLE) == busy_of(&whole.timeline, FS_LANE_IDLE));
        for (uint32_t i = 0; i < timeline->block_count; i++)
            CHECK(timeline->count[i] == 1 || timeline->duration[i] < 2 * timeline->merged_ns);
        clear(&of);
    }
    clear(&whole);
}

/* The number of blocks of which a lane consists if events within a time are merged, counted one by one. */
static uint32_t blocks_within(const fs_timeline *whole, const fs_timeline_lane *lane, int64_t begin, int64_t within)
{
    uint32_t count = 0;
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
        bool joins = i > lane->first && whole->duration[i] < within && whole->duration[i - 1] < within &&
                     (whole->start[i] - begin) / within == (whole->start[i - 1] - begin) / within;
        count += !joins;
    }
    return count;
}

/* Enough events for several pieces of each loop, in and out of order. */
static void test_any_number_of_threads_draws_the_same(void)
{
    static const int threads[] = {1, 2, 3, 16};
    fill_at_random(11, 200000);
    int usual = fs_parallel_threads();
    drawing whole = draw(1000000);
    int64_t begin = INT64_MAX;
    for (uint32_t i = 0; i < whole.timeline.block_count; i++)
        if (whole.timeline.start[i] < begin) begin = whole.timeline.start[i];
    for (uint32_t limit = 1000000; limit > 1000; limit /= 20) {
        drawing first = draw(limit);
        for (uint32_t i = 0; i < first.timeline.lane_count && first.timeline.merged_ns > 0; i++)
            CHECK(first.timeline.lanes[i].count ==
                  blocks_within(&whole.timeline, &whole.timeline.lanes[i], begin, first.timeline.merged_ns));
        for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
            CHECK_OK(fs_parallel_set_threads(threads[i], NULL));
            drawing of = draw(limit);
            const fs_timeline *a = &first.timeline, *b = &of.timeline;
            check_lanes(b);
            CHECK(a->block_count == b->block_count && a->lane_count == b->lane_count && a->merged_ns == b->merged_ns);
            CHECK(a->deep_count == b->deep_count && a->event_count == b->event_count);
#define SAME(type, name, prose) CHECK(memcmp(a->name, b->name, a->block_count * sizeof(type)) == 0, #name);
            FS_TIMELINE_COLUMN_LIST(SAME)
#undef SAME
            clear(&of);
        }
        clear(&first);
    }
    CHECK_OK(fs_parallel_set_threads(usual, NULL));
    clear(&whole);
}

static void test_a_merged_block_is_labelled_by_its_longest_event(void)
{
    on(FS_EVENT_KERNEL, "short", 7, 0, 0, 10, FS_NONE);
    on(FS_EVENT_KERNEL, "long", 7, 0, 20, 100, FS_NONE);
    on(FS_EVENT_KERNEL, "short", 7, 0, 130, 10, FS_NONE);
    on(FS_EVENT_KERNEL, "huge", 7, 0, 2000, 50000, FS_NONE);
    drawing of = draw(4);
    uint32_t block = block_named(&of.timeline, "long");
    CHECK(of.timeline.count[block] == 3 && of.timeline.busy[block] == 120 && of.timeline.duration[block] == 140);
    CHECK(of.timeline.count[block_named(&of.timeline, "huge")] == 1);
    clear(&of);
}

static void test_an_empty_store_has_no_lane(void)
{
    drawing of = draw(1000);
    CHECK(of.timeline.block_count == 0 && of.timeline.lane_count == 0 && of.timeline.event_count == 0);
    clear(&of);
}

static void test_times_at_the_limits_of_their_type(void)
{
    on(FS_EVENT_OP, "first", 1, -1, INT64_MIN + 1, 5, FS_NONE);
    on(FS_EVENT_OP, "whole", 1, -1, INT64_MIN + 1, INT64_MAX, FS_NONE);
    on(FS_EVENT_KERNEL, "last", 7, 0, INT64_MAX - 1, INT64_MAX, FS_NONE);
    on(FS_EVENT_KERNEL, "backwards", 7, 0, 0, -5, FS_NONE);
    for (uint32_t limit = 1000; limit > 0; limit /= 10) {
        drawing of = draw(limit);
        CHECK(check_lanes(&of.timeline) == 4 + of.timeline.idle_count);
        clear(&of);
    }
}

static void test_changes_of_memory_are_listed_with_their_op(void)
{
    uint32_t outer = op("outer", FS_NONE, FS_NONE, 0, 100), range = host(FS_EVENT_RANGE, "range", outer, 10, 50);
    uint32_t frame = host(FS_EVENT_FRAME, "frame", FS_NONE, 0, 10);
    memory(range, 0, 4096);
    memory(frame, -1, -64);
    fs_event event = fs_event_missing;
    uint64_t bytes[FS_MEMORY_STATE_BYTES / 8];
    fs_memory_state_encode(&(fs_memory_state){.allocated = 10, .reserved = 20, .address = 30}, bytes);
    CHECK_OK(fs_store_signature(store, bytes, sizeof bytes, &event.signature, NULL));
    CHECK_OK(fs_store_thread_lane(store, &event.lane, NULL));
    event.kind = FS_EVENT_MEMORY;
    event.start = 5;
    put(event);
    event.start = FS_MISSING;
    put(event);
    memory(FS_NONE, -1, 8); /* without a lane: a share */
    fs_table *table = build(&(fs_table_options){.calls = true});
    fs_memory_changes found;
    fs_error err = {FS_OK, ""};
    CHECK_OK(fs_memory_list(&found, store, table, &err));
    CHECK(found.count == 1 && found.unplaced == 1);
    CHECK(found.allocated[0] == 10 && found.reserved[0] == 20 && found.address[0] == 30 && found.device[0] == -1);
    fs_memory_clear(&found);
    fs_table_destroy(table);
}

static void test_a_change_belongs_to_the_innermost_op(void)
{
    uint32_t outer = op("outer", FS_NONE, FS_NONE, 0, 100);
    uint32_t range = host(FS_EVENT_RANGE, "range", op("aten::empty_like", FS_NONE, outer, 5, 60), 10, 50);
    uint32_t alone = host(FS_EVENT_RANGE, "alone", FS_NONE, 200, 50);
    static const char *const rows[] = {"outer", "alone", "[memory]"};
    const uint32_t parents[] = {range, alone, FS_NONE};
    for (int i = 0; i < 3; i++) {
        fs_event event = fs_event_missing;
        event.kind = FS_EVENT_MEMORY;
        event.parent = parents[i];
        event.start = 20;
        event.bytes = 64 << i;
        event.device = 0;
        CHECK_OK(fs_store_thread_lane(store, &event.lane, NULL));
        put(event);
    }
    fs_table *table = build(&(fs_table_options){.calls = true});
    fs_memory_changes found;
    CHECK_OK(fs_memory_list(&found, store, table, NULL));
    CHECK(found.count == 3);
    for (uint32_t i = 0; i < found.count; i++) {
        CHECK(found.bytes[i] == 64 << i && found.allocated[i] == -1 && found.address[i] == 0);
        if (i < 2) CHECK(strcmp(table->rows[found.row[i]].key, rows[i]) == 0, "%s", rows[i]);
        else CHECK(found.row[i] == FS_NONE);
    }
    fs_memory_clear(&found);
    fs_table_destroy(table);
}

/* Draw with each allocation failing in turn. */
static void test_every_failed_allocation_is_reported_and_leaks_nothing(void)
{
    fill_at_random(3, 400);
    memory(FS_NONE, -1, 8);
    int64_t live = fs_memory_live(), n = 0;
    fs_status status = FS_OUT_OF_MEMORY;
    while (status != FS_OK && n < 1000) {
        fs_table *table = build(&(fs_table_options){.works = true, .calls = true});
        fs_accounting accounting = {0};
        fs_timeline timeline = {0};
        fs_memory_changes changes = {0};
        fs_error err = {FS_OK, ""};
        fs_memory_fail_at(++n);
        status = fs_accounting_list(&accounting, store, table, &err);
        if (status == FS_OK) status = fs_timeline_build(&timeline, store, table, &accounting, 100, &err);
        if (status == FS_OK) status = fs_memory_list(&changes, store, table, &err);
        fs_memory_fail_at(0);
        CHECK(status == FS_OK || (status == FS_OUT_OF_MEMORY && err.status == status && err.message[0] != 0));
        fs_memory_clear(&changes);
        fs_timeline_clear(&timeline);
        fs_accounting_clear(&accounting);
        fs_table_destroy(table);
        CHECK(fs_memory_live() == live);
    }
    CHECK(status == FS_OK && n > 30, "%lld", (long long)n);
    build_with_failing_memory(&(fs_table_options){.works = true, .calls = true}, 3);
}

static bool ask_to_stop(void *unused)
{
    (void)unused;
    return true;
}

static void test_an_interrupt_stops_it_and_leaks_nothing(void)
{
    fs_interrupt section;
    fs_error err = {FS_OK, ""};
    fill_at_random(3, 400);
    drawing of = draw(1000);
    fs_timeline timeline;
    fs_memory_changes changes;
    fs_table_destroy(of.table);
    of.table = build(&(fs_table_options){.works = true, .calls = true});
    int64_t live = fs_memory_live();
    fs_interrupt_open(&section, ask_to_stop, NULL);
    fs_interrupt_stop();
    CHECK(fs_memory_list(&changes, store, of.table, &err) == FS_INTERRUPTED);
    CHECK(fs_memory_live() == live);
    CHECK(fs_timeline_build(&timeline, store, of.table, &of.accounting, 100, &err) == FS_INTERRUPTED);
    fs_interrupt_close(&section);
    CHECK(fs_memory_live() <= live); /* less the works of the table */
    clear(&of);
}

int main(void)
{
    static void (*const tests[])(void) = {
        test_nesting_makes_the_depth_and_calls_are_linked_to_their_work,
        test_the_row_of_work_is_that_of_its_op,
        test_what_is_left_out_is_counted,
        test_random_events_are_all_there_and_idle_times_are_those_of_the_accounting,
        test_short_neighbours_are_merged_below_the_limit,
        test_any_number_of_threads_draws_the_same,
        test_a_merged_block_is_labelled_by_its_longest_event,
        test_an_empty_store_has_no_lane,
        test_times_at_the_limits_of_their_type,
        test_changes_of_memory_are_listed_with_their_op,
        test_a_change_belongs_to_the_innermost_op,
        test_every_failed_allocation_is_reported_and_leaks_nothing,
        test_an_interrupt_stops_it_and_leaks_nothing,
    };
    return run_tests(tests, sizeof tests / sizeof *tests);
}
