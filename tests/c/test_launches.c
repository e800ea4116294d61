/* Tying recorded calls to logged launches of graphs: what is tied is right, whatever is missing on either side. */
#include "sources/cupti/launches.h"
#include "tests/c/events.h"

enum { MOST_CALLS = 4096, SHIFT = 77 };

/* A program: threads that launch graphs, what was recorded of it, and what was logged. */
typedef struct {
    uint32_t threads, launches; /* of each thread */
    int64_t gap, jitter;        /* ns from the end of a call to the next one: the gap and less than the jitter more */
    int64_t drift;              /* what the recording's clock is late, beyond SHIFT, */
    int64_t drift_ppm;          /* and how much more with time */
    uint32_t uncalled_first, uncalled_last, unlogged_last; /* launches without a recorded call, or without log */
    uint32_t uncalled_every;                               /* every how many-th has no call; 0: none */
    bool by_handle;                                        /* the recording knows no ids of the system */
} program;

static fs_launch_log made;
static uint32_t truth[2 * MOST_CALLS + 1]; /* by event of the store: the graph */

static void clear(void)
{
    fs_launch_log_clear(&made);
    end_store();
}

__attribute__((constructor)) static void use_a_log_in_each_test(void)
{
    after_each = clear;
}

static uint32_t record_call(const char *name, uint32_t thread, int64_t start, int64_t duration, uint32_t parent,
                            uint32_t graph)
{
    fs_event event = event_of(FS_EVENT_RUNTIME, name, start, duration);
    event.parent = parent;
    CHECK_OK(fs_store_thread_lane_of(store, thread, &event.lane, NULL));
    uint32_t index = put(event);
    truth[index] = graph;
    return index;
}

static void run_program(const program *of)
{
    static const int64_t origin = 1000000000000;
    clear();
    make_store();
    memset(truth, 0, sizeof truth);
    for (uint32_t thread = 1; thread <= of->threads; thread++) {
        int64_t now = origin + random_below(1000000);
        for (uint32_t i = 0; i < of->launches; i++) {
            int64_t duration = 4000 + random_below(4000), begin = 500 + random_below(2000);
            uint32_t graph = 1 + (uint32_t)random_below(5);
            bool called = i >= of->uncalled_first && i + of->uncalled_last < of->launches;
            if (of->uncalled_every != 0 && i % of->uncalled_every == 1) called = false;
            if (called) {
                int64_t late = SHIFT + of->drift + (now - origin) / 1000000 * of->drift_ppm;
                uint32_t lane = of->by_handle ? thread + 5000000 : thread;
                uint32_t outer = record_call("cudaGraphLaunch", lane, now - late, duration, FS_NONE, graph);
                record_call("cuGraphLaunch", lane, now - late + begin, 1000, outer, 0);
            }
            if (i + of->unlogged_last < of->launches)
                fs_launch_log_add(&made, &(fs_logged_launch){now + begin, thread, thread + 5000000, graph});
            now += duration + of->gap + random_below(of->jitter + 1);
        }
    }
}

/* Check that no call has a wrong graph. Return the number of calls that have one. */
static uint32_t tie(uint32_t *calls)
{
    fs_captures captures = {0};
    fs_error err = {FS_OK, ""};
    uint32_t tied = 0;
    fs_status status = fs_launch_log_tie(&made, store, SHIFT, &captures, &err);
    CHECK(status == FS_OK, "%s", err.message);
    *calls = 0;
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        uint32_t graph = fs_captures_find_tied(&captures, i);
        *calls += truth[i] != 0;
        tied += graph != 0;
        CHECK(graph == 0 || graph == truth[i], "call %u launched %u, not %u", i, truth[i], graph);
    }
    fs_captures_clear(&captures);
    return tied;
}

static void check_all_tied(const program *of)
{
    uint32_t calls, tied;
    run_program(of);
    tied = tie(&calls);
    CHECK(tied == calls && calls > 0, "%u of %u calls", tied, calls);
}

TEST(the_order_of_launches_decides)
{
    for (int64_t drift = -900000; drift <= 900000; drift += 300000) {
        check_all_tied(&(program){.threads = 1, .launches = 1, .drift = drift});
        check_all_tied(&(program){.threads = 3, .launches = 400, .gap = 2000, .drift = drift});
        check_all_tied(&(program){.threads = 3, .launches = 400, .gap = 2000, .jitter = 500000, .drift = drift});
        check_all_tied(&(program){.threads = 2, .launches = 100, .gap = 9000000, .jitter = 500000, .drift = drift});
    }
    check_all_tied(&(program){.threads = 2, .launches = 1000, .gap = 100000, .jitter = 20000, .drift_ppm = 2000});
    check_all_tied(&(program){.threads = 3, .launches = 400, .gap = 2000, .jitter = 500000, .by_handle = true});
}

TEST(pauses_tell_which_calls_are_missing)
{
    for (uint32_t every = 2; every < 6; every++)
        check_all_tied(&(program){
            .threads = 2, .launches = 100, .gap = 3000000, .jitter = 500000, .drift = 800000, .uncalled_every = every});
}

TEST(uneven_launches_tell_which_are_missing_at_the_ends)
{
    for (uint32_t missing = 1; missing < 20; missing += 6) {
        program of = {.threads = 2, .launches = 300, .gap = 3000, .jitter = 400000, .drift = -500000};
        of.uncalled_first = missing;
        check_all_tied(&of);
        of.uncalled_last = 20 - missing;
        check_all_tied(&of);
        of.uncalled_first = 0;
        check_all_tied(&of);
    }
}

TEST(calls_that_fit_no_launch_for_sure_are_left_alone)
{
    static const struct {
        program of;
        uint32_t tied, calls;
    } cases[] = {
        {{.threads = 1, .launches = 300, .gap = 30000, .uncalled_first = 1},
         0,
         299}, /* evenly: any one may be missing */
        {{.threads = 1, .launches = 300, .gap = 3000, .jitter = 400000, .unlogged_last = 100}, 200, 300},
        {{.threads = 1, .launches = 30, .gap = 3000, .unlogged_last = 30}, 0, 30},
        {{.threads = 2, .launches = 100, .gap = 3000, .jitter = 400000, .drift = 3600000000000},
         0,
         200}, /* an hour off */
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint32_t calls, tied;
        run_program(&cases[i].of);
        tied = tie(&calls);
        CHECK(tied == cases[i].tied && calls == cases[i].calls, "case %zu: %u of %u", i, tied, calls);
    }
}

TEST(calls_at_the_ends_of_time_and_graphs_without_an_id_are_ignored)
{
    uint32_t calls;
    run_program(&(program){.threads = 1, .launches = 10, .gap = 5000000});
    record_call("cudaGraphLaunch", 1, INT64_MIN + 1, 5, FS_NONE, 0);
    record_call("cudaGraphLaunch", 1, INT64_MAX - 1, INT64_MAX, FS_NONE, 0);
    record_call("cudaGraphLaunch", 1, 0, INT64_MAX, FS_NONE, 0);
    record_call("cudaGraphLaunch", 1, FS_MISSING, 5, FS_NONE, 0);
    CHECK(tie(&calls) == 10 && calls == 10);
    made.launches[3].graph = 0;
    CHECK(tie(&calls) == 9);
}

TEST(calls_may_block_before_or_after_their_launch)
{
    static const int64_t origin = 1000000000000, length = 50000000;
    uint32_t calls;
    run_program(&(program){0});
    for (uint32_t i = 0; i < 2; i++) {
        int64_t start = origin + 2 * length * i;
        record_call("cudaGraphLaunch", 1, start - SHIFT, length, FS_NONE, 1 + i);
        fs_launch_log_add(&made, &(fs_logged_launch){i == 0 ? start + length - 500 : start + 500, 1, 1, 1 + i});
    }
    CHECK(tie(&calls) == 2 && calls == 2);
}

TEST(a_full_log_counts_what_it_lost)
{
    fs_launch_log log = {0};
    for (uint32_t i = 0; i < FS_MOST_LAUNCHES + 10; i++) fs_launch_log_add(&log, &(fs_logged_launch){i, 1, 1, i + 1});
    CHECK(log.count == FS_MOST_LAUNCHES && log.lost == 10);
    fs_launch_log_begin(&log);
    CHECK(log.count == FS_MOST_LAUNCHES / 2 && log.launches[0].graph == FS_MOST_LAUNCHES / 2 + 1);
    fs_launch_log_begin(&log);
    CHECK(log.count == FS_MOST_LAUNCHES / 2, "half a log is kept for recordings that are not read yet");
    fs_launch_log_clear(&log);
}

TEST(launches_of_the_time_of_a_recording_are_copied)
{
    fs_launch_log log = {0}, copy = {0};
    for (int64_t i = 0; i < 100; i++) fs_launch_log_add(&log, &(fs_logged_launch){i * 1000000, 1, 1, 1 + (uint32_t)i});
    CHECK_OK(fs_launch_log_copy(&log, store, 0, &copy, NULL));
    CHECK(copy.count == 100 && copy.launches[7].graph == 8, "a recording without a window");
    fs_launch_log_clear(&copy);
    fs_store_set_window(store, 10000000, 20000000);
    CHECK_OK(fs_launch_log_copy(&log, store, 5000000, &copy, NULL));
    CHECK(copy.count == 15 && copy.launches[0].graph == 14 && copy.launches[14].graph == 28, "from 13 to 27 ms");
    fs_launch_log_clear(&copy);
    fs_store_set_window(store, INT64_MAX - 1, INT64_MAX);
    CHECK_OK(fs_launch_log_copy(&log, store, 5000000, &copy, NULL));
    CHECK(copy.count == 0 && copy.launches == NULL);
    fs_launch_log_clear(&log);
}

static fs_status copy_and_tie(fs_error *err)
{
    fs_captures captures = {0};
    fs_launch_log copy = {0};
    fs_status status = fs_launch_log_copy(&made, store, SHIFT, &copy, err);
    if (status == FS_OK) status = fs_launch_log_tie(&copy, store, SHIFT, &captures, err);
    fs_captures_clear(&captures);
    fs_launch_log_clear(&copy);
    return status;
}

TEST(every_allocation_may_fail)
{
    run_program(&(program){.threads = 2, .launches = 300, .gap = 3000, .jitter = 400000});
    CHECK(fail_each_allocation(copy_and_tie) > 3);
    fs_launch_log log = {0};
    fs_memory_fail_at(1);
    fs_launch_log_add(&log, &(fs_logged_launch){1, 1, 1, 1});
    fs_memory_fail_at(0);
    CHECK(log.count == 0 && log.lost == 1);
}
