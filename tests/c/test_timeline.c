/* The timeline of stores built by hand and at random, beside what Python's tests compare with the events of traces:
 * limits, threads, merging, changes of memory, failures. */
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

/* Add an event on a thread, or on a stream of a device. */
static void on(fs_event_kind kind, const char *name, uint64_t lane, int on_device, int64_t start, int64_t duration,
               uint32_t correlation)
{
    fs_event event = event_of(kind, name, start, duration);
    event.correlation = correlation;
    event.device = (int8_t)on_device;
    if (on_device >= 0) CHECK_OK(fs_store_device_lane(store, on_device, lane, &event.lane, NULL));
    else CHECK_OK(fs_store_thread_lane_of(store, lane, &event.lane, NULL));
    put(event);
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

static uint32_t block_named(const fs_timeline *timeline, const char *name)
{
    for (uint32_t i = 0; i < timeline->block_count; i++) {
        uint32_t label = timeline->label[i];
        if (label == FS_NONE) continue;
        if (strcmp(fs_store_name_text(store, timeline->labels[label].name), name) == 0) return i;
    }
    CHECK(false, "no block %s", name);
    return 0;
}

TEST(what_is_left_out_is_counted)
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
    CHECK(check_lanes(timeline) == timeline->idle_count + 2 + FS_TIMELINE_DEPTH + FS_TIMELINE_OVERLAP);
    uint32_t open = block_named(timeline, "open");
    CHECK(timeline->start[open] + timeline->duration[open] == FS_TIMELINE_DEPTH + 102);
    clear(&of);
}

static void fill_at_random(int count)
{
    for (int i = 0; i < count; i++) {
        int64_t start = random_below(1000000), duration = random_below(50) * random_below(50);
        uint64_t lane = (uint64_t)random_below(3);
        if (random_below(2) == 0) on(FS_EVENT_KERNEL, "kernel", lane, (int)lane % 2, start, duration, (uint32_t)i);
        else on(FS_EVENT_RUNTIME, "cudaLaunchKernel", lane, -1, start, duration, (uint32_t)(i + 1));
    }
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

/* Check that merging leaves out no event and no busy time, and joins neither too few blocks nor too many. */
static void check_merged(const fs_timeline *merged, const fs_timeline *whole, uint32_t limit)
{
    int64_t begin = INT64_MAX, busy = 0;
    uint32_t lanes = whole->lane_count;
    for (uint32_t i = 0; i < whole->block_count; i++) {
        if (whole->start[i] < begin) begin = whole->start[i];
        busy += whole->busy[i];
    }
    for (uint32_t i = 0; i < merged->block_count; i++) {
        busy -= merged->busy[i];
        CHECK(merged->count[i] == 1 || merged->duration[i] < 2 * merged->merged_ns);
    }
    CHECK(busy == 0 && check_lanes(merged) == whole->event_count && merged->lane_count == lanes);
    CHECK(merged->block_count <= (limit > 4 * lanes ? limit : 4 * lanes));
    for (uint32_t i = 0; i < lanes && merged->merged_ns > 0; i++)
        CHECK(merged->lanes[i].count == blocks_within(whole, &whole->lanes[i], begin, merged->merged_ns));
}

TEST(any_number_of_threads_draws_the_same)
{
    static const int threads[] = {1, 2, 3, 16};
    fill_at_random(4000);
    drawing whole = draw(100000);
    CHECK(whole.timeline.deep_count == 0 && check_lanes(&whole.timeline) == 4000 + whole.timeline.idle_count);
    CHECK(whole.timeline.merged_ns == 0 && whole.timeline.idle_count == whole.accounting.span_count);
    for (uint32_t limit = 100000; limit > 10; limit /= 6) {
        drawing first = draw(limit);
        check_merged(&first.timeline, &whole.timeline, limit);
        for (size_t i = 0; i < COUNT_OF(threads); i++) {
            CHECK_OK(fs_parallel_set_threads(threads[i], NULL));
            drawing of = draw(limit);
            const fs_timeline *a = &first.timeline, *b = &of.timeline;
            CHECK(a->block_count == b->block_count && a->lane_count == b->lane_count && a->merged_ns == b->merged_ns);
            CHECK(a->deep_count == b->deep_count && a->event_count == b->event_count);
#define SAME(type, name, prose) CHECK(memcmp(a->name, b->name, a->block_count * sizeof(type)) == 0, #name);
            FS_TIMELINE_COLUMN_LIST(SAME)
#undef SAME
            clear(&of);
        }
        clear(&first);
    }
    clear(&whole);
}

TEST(a_merged_block_is_labelled_by_its_longest_event)
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

TEST(times_at_the_limits_of_their_type)
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

/* Interrupts ------------------------------------------------------------------------------------------------------- */

static bool ask_to_stop(void *unused)
{
    (void)unused;
    return true;
}

TEST(an_interrupt_stops_all_and_leaks_nothing)
{
    fs_interrupt section;
    fs_accounting accounting;
    fs_error err = {FS_OK, ""};
    fill_at_random(400);
    drawing of = draw(1000);
    fs_timeline timeline;
    fs_memory_changes changes;
    fs_table_destroy(of.table);
    of.table = build(&(fs_table_options){.works = true, .calls = true});
    int64_t live = fs_memory_live();
    fs_interrupt_open(&section, ask_to_stop, NULL);
    fs_interrupt_stop();
    CHECK(fs_accounting_build(&accounting, store, of.table, &err) == FS_INTERRUPTED);
    CHECK(fs_memory_list(&changes, store, of.table, &err) == FS_INTERRUPTED);
    CHECK(fs_memory_live() == live);
    CHECK(fs_timeline_build(&timeline, store, of.table, &of.accounting, 100, &err) == FS_INTERRUPTED);
    fs_interrupt_close(&section);
    CHECK(fs_memory_live() <= live); /* less the works of the table */
    clear(&of);
}
