/* Steps, GPU efficiency and launch statistics of stores built by hand. Expected numbers are derived here from the
 * events. Times are small numbers of ns. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "store/signature.h"
#include "store/step_marks.h"
#include "summaries/efficiency.h"
#include "summaries/intervals.h"
#include "summaries/launches.h"
#include "summaries/steps.h"
#include "tests/c/check.h"

static bool near(double value, double expected)
{
    return fabs(value - expected) <= 1e-9 * fabs(expected);
}

/* Building a store ----------------------------------------------------------------------------------------------- */

static fs_store *store;

static uint32_t put(fs_event event, const char *name, int64_t start, int64_t end)
{
    uint32_t index = FS_NONE;
    CHECK(fs_store_name(store, name, &event.name, NULL) == FS_OK);
    event.start = start;
    event.duration = end - start;
    CHECK(fs_store_append(store, &event, &index, NULL) == FS_OK);
    return index;
}

static uint32_t host(fs_event_kind kind, const char *name, uint32_t parent, int64_t start, int64_t end)
{
    fs_event event = fs_event_missing;
    event.kind = (uint8_t)kind;
    event.parent = parent;
    return put(event, name, start, end);
}

static uint32_t call(uint32_t correlation, uint32_t parent, int64_t start, int64_t end)
{
    fs_event event = fs_event_missing;
    event.kind = FS_EVENT_RUNTIME;
    event.parent = parent;
    event.correlation = correlation;
    return put(event, "cudaLaunchKernel", start, end);
}

/* Add work on a stream, with blocks of 64 threads; an SM of the devices below holds two. 0 blocks: unknown launch. */
static void work(fs_event_kind kind, const char *name, int device, uint64_t stream, uint32_t blocks,
                 uint32_t correlation, uint32_t launcher, int64_t start, int64_t end)
{
    uint64_t bytes[FS_LAUNCH_BYTES / 8];
    fs_event event = fs_event_missing;
    fs_launch launch = {.grid = {blocks, 1, 1}, .block = {64, 1, 1}};
    event.kind = (uint8_t)kind;
    event.device = (int8_t)device;
    event.correlation = correlation;
    event.launcher = launcher;
    event.timing = FS_TIMING_CUPTI;
    CHECK(fs_store_device_lane(store, device, stream, &event.lane, NULL) == FS_OK);
    fs_launch_encode(&launch, bytes);
    if (blocks > 0) CHECK(fs_store_signature(store, bytes, sizeof bytes, &event.signature, NULL) == FS_OK);
    put(event, name, start, end);
}

static void kernel(const char *name, int device, uint32_t blocks, int64_t start, int64_t end)
{
    work(FS_EVENT_KERNEL, name, device, 7, blocks, FS_NONE, FS_NONE, start, end);
}

static void launched(uint64_t stream, uint32_t correlation, int64_t start, int64_t end)
{
    work(FS_EVENT_KERNEL, "k", 0, stream, 1, correlation, FS_NONE, start, end);
}

/* Describe a device with 4 SMs of 256 threads, 2 blocks each. */
static void know_device(int device)
{
    fs_device_facts facts = {
        .compute_major = 9,
        .max_threads_per_block = 256,
        .max_threads_per_sm = 256,
        .registers_per_block = 65536,
        .registers_per_sm = 65536,
        .warp_size = 32,
        .shared_memory_per_block_optin = 65536,
        .shared_memory_per_sm = 65536,
        .sm_count = 4,
        .max_blocks_per_sm = 2,
    };
    CHECK(fs_store_set_device(store, device, &facts, NULL) == FS_OK);
}

/* Intervals ------------------------------------------------------------------------------------------------------ */

enum { SPAN = 500 };

/* Compare with an array of single ns, each covered or not. */
static void test_random_intervals_against_moments(void)
{
    srand(7);
    for (int round = 0; round < 300; round++) {
        fs_intervals lists[2] = {0};
        int taken[2][SPAN] = {0}, count = rand() % 30;
        for (int i = 0; i < 2 * count; i++) {
            int begin = rand() % SPAN, length = rand() % 40, end = begin + length < SPAN ? begin + length : SPAN;
            bool joined = rand() % 2;
            for (int t = begin; t < end; t++) taken[i % 2][t] = 1;
            if (joined) CHECK(fs_intervals_cover(&lists[i % 2], begin - 250, end - 250, NULL) == FS_OK);
            else CHECK(fs_intervals_add(&lists[i % 2], begin - 250, end - 250, 0, NULL) == FS_OK);
        }
        int64_t sums[2] = {0}, shared = 0, expected[2] = {0};
        for (int i = 0; i < 2; i++) CHECK(fs_intervals_unite(&lists[i], NULL) == FS_OK);
        for (uint32_t i = 0; i < lists[0].count; i++) {
            CHECK(i == 0 || lists[0].items[i - 1].end < lists[0].items[i].begin);
            lists[0].items[i].tag = lists[0].items[i].begin >= 0;
        }
        uint32_t at = 0;
        for (uint32_t i = 0; i < lists[0].count; i++) {
            shared += fs_intervals_overlap(&lists[1], &at, lists[0].items[i].begin, lists[0].items[i].end);
        }
        for (uint32_t i = 0; i < lists[0].count; i++) {
            for (int64_t t = lists[0].items[i].begin; t < lists[0].items[i].end; t++) {
                expected[lists[0].items[i].tag] += taken[1][t + 250];
            }
        }
        CHECK(fs_intervals_subtract(&lists[0], &lists[1], sums, NULL) == FS_OK);
        CHECK(sums[0] == expected[0] && sums[1] == expected[1] && shared == sums[0] + sums[1]);
        for (uint32_t i = 0; i < lists[0].count; i++) {
            for (int64_t t = lists[0].items[i].begin; t < lists[0].items[i].end; t++) {
                CHECK(taken[0][t + 250] == 1 && taken[1][t + 250] == 0);
                taken[0][t + 250] = 2;
            }
        }
        for (int t = 0; t < SPAN; t++) CHECK(taken[0][t] != 1 || taken[1][t] == 1);
        for (int i = 0; i < 2; i++) fs_intervals_clear(&lists[i]);
    }
}

static void test_sorting_is_stable_over_the_whole_range_of_times(void)
{
    static const int64_t begins[] = {5, INT64_MAX - 1, -3, 5, FS_MISSING + 1, 0, 5};
    static const uint32_t expected[] = {4, 2, 5, 0, 3, 6, 1};
    fs_intervals list = {0};
    for (uint32_t i = 0; i < 7; i++) CHECK(fs_intervals_add(&list, begins[i], begins[i], i, NULL) == FS_OK);
    CHECK(fs_intervals_sort(&list, NULL) == FS_OK && list.count == 7);
    for (uint32_t i = 0; i < 7; i++) CHECK(list.items[i].tag == expected[i]);
    fs_intervals_clear(&list);
}

/* Steps ---------------------------------------------------------------------------------------------------------- */

static fs_steps break_down(void)
{
    fs_steps steps = {0};
    CHECK(fs_steps_break_down(&steps, store, NULL) == FS_OK);
    for (uint32_t i = 0; i < steps.count; i++) {
        int64_t sum = 0;
        for (int part = 0; part < FS_STEP_PART_COUNT; part++) sum += steps.steps[i].parts[part];
        CHECK(sum == steps.steps[i].end - steps.steps[i].begin);
        CHECK(i == 0 || steps.steps[i].begin >= steps.steps[i - 1].end);
    }
    return steps;
}

static bool is_step(const fs_step *step, const char *name, int64_t begin, int64_t end)
{
    bool named = name == NULL ? step->name == FS_NONE : strcmp(fs_store_name_text(store, step->name), name) == 0;
    return named && step->begin == begin && step->end == end;
}

static void test_a_step_ends_with_its_last_work_on_a_device(void)
{
    uint32_t first = host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 100);
    uint32_t op = host(FS_EVENT_OP, "op", first, 10, 60);
    call(1, op, 20, 30);
    work(FS_EVENT_KERNEL, "k", 0, 7, 1, 1, op, 40, 130);
    host(FS_EVENT_STEP, "ProfilerStep#1", FS_NONE, 100, 120); /* ends before the work of the first */
    host(FS_EVENT_STEP, "ProfilerStep#2", FS_NONE, 120, 200);
    host(FS_EVENT_OP, "backward", FS_NONE, 125, 140); /* on another thread, during #2 */
    work(FS_EVENT_KERNEL, "k", 0, 7, 1, FS_NONE, fs_store_count(store) - 1, 150, 260);
    call(2, FS_NONE, 150, 160); /* outside any op, during #2 */
    work(FS_EVENT_MEMCPY, "copy", 1, 7, 0, 2, FS_NONE, 270, 280);
    work(FS_EVENT_KERNEL, "k", 0, 7, 1, FS_NONE, FS_NONE, 900, 910); /* of an unknown launch */
    fs_event copy = fs_event_missing; /* the copy of a step on the device is no step itself */
    copy.kind = FS_EVENT_STEP;
    copy.device = 0;
    put(copy, "ProfilerStep#0", 40, 130);
    fs_steps steps = break_down();
    CHECK(steps.count == 3);
    CHECK(is_step(&steps.steps[0], "ProfilerStep#0", 0, 130));
    CHECK(is_step(&steps.steps[1], "ProfilerStep#1", 130, 130));
    CHECK(is_step(&steps.steps[2], "ProfilerStep#2", 130, 280));
    const int64_t *parts = steps.steps[0].parts;
    CHECK(parts[FS_PART_KERNEL] == 90 && parts[FS_PART_RUNTIME] == 10 && parts[FS_PART_OTHER_CPU] == 20);
    CHECK(parts[FS_PART_OTHER] == 10); /* the first 10, before the op */
    parts = steps.steps[2].parts;
    CHECK(parts[FS_PART_KERNEL] == 110 && parts[FS_PART_MEMCPY] == 10 && parts[FS_PART_OTHER_CPU] == 10);
    CHECK(parts[FS_PART_OTHER] == 20 && parts[FS_PART_RUNTIME] == 0);
    fs_steps_clear(&steps);
}

static void test_a_first_and_a_last_mark_without_work_are_no_steps(void)
{
    uint32_t empty = host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 10);
    host(FS_EVENT_RANGE, "range", empty, 1, 9);
    host(FS_EVENT_STEP, "ProfilerStep#1", FS_NONE, 10, 100);
    host(FS_EVENT_OP, "op", FS_NONE, 10, 20);                 /* on any thread */
    host(FS_EVENT_STEP, "ProfilerStep#2", FS_NONE, 100, 150); /* between others it counts */
    uint32_t step = host(FS_EVENT_STEP, "ProfilerStep#3", FS_NONE, 150, 200);
    call(1, step, 160, 170);
    work(FS_EVENT_KERNEL, "k", 0, 7, 1, 1, FS_NONE, 210, 230);
    uint32_t last = host(FS_EVENT_STEP, "ProfilerStep#4", FS_NONE, 200, 300);
    call(2, last, 220, 280); /* it launches nothing */
    fs_steps steps = break_down();
    CHECK(steps.count == 3);
    CHECK(is_step(&steps.steps[0], "ProfilerStep#1", 10, 100));
    CHECK(is_step(&steps.steps[2], "ProfilerStep#3", 150, 230));
    fs_steps_clear(&steps);
    fs_step_marks_undo(store, "ProfilerStep#1");
    steps = break_down();
    CHECK(steps.count == 2 && is_step(&steps.steps[0], "ProfilerStep#2", 100, 150));
    fs_steps_clear(&steps);
}

/* Two threads have their own steps at the same time: the chain of parents distinguishes them. */
static void test_work_belongs_to_the_step_around_its_launcher(void)
{
    uint32_t first = host(FS_EVENT_STEP, "a", FS_NONE, 0, 100);
    host(FS_EVENT_STEP, "b", FS_NONE, 50, 100);
    uint32_t op = host(FS_EVENT_OP, "op", first, 60, 70);
    work(FS_EVENT_KERNEL, "k", 0, 7, 1, FS_NONE, op, 80, 140);
    fs_steps steps = break_down();
    CHECK(steps.count == 2 && is_step(&steps.steps[0], "a", 0, 140));
    CHECK(is_step(&steps.steps[1], "b", 140, 140));
    fs_steps_clear(&steps);
}

static void test_each_moment_counts_for_the_first_active_part(void)
{
    host(FS_EVENT_STEP, "step", FS_NONE, 0, 1000);
    kernel("k", 0, 1, 100, 200);
    kernel("k", 1, 1, 150, 250); /* on another device: counted once */
    work(FS_EVENT_MEMCPY, "copy", 0, 8, 0, FS_NONE, FS_NONE, 240, 300);
    work(FS_EVENT_MEMSET, "fill", 0, 8, 0, FS_NONE, FS_NONE, 290, 320);
    kernel("ncclDevKernel_AllReduce", 0, 1, 190, 400); /* alone from 320 */
    host(FS_EVENT_RUNTIME, "cudaLaunchKernel", FS_NONE, 390, 420);
    host(FS_EVENT_OVERHEAD, "flush", FS_NONE, 415, 430);
    host(FS_EVENT_SYNC, "wait", FS_NONE, 440, 450);
    host(FS_EVENT_RANGE, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", FS_NONE, 445, 500);
    host(FS_EVENT_OP, "op", FS_NONE, 480, 600);
    host(FS_EVENT_OP, "inner", FS_NONE, 490, 550);
    host(FS_EVENT_FRAME, "file.py(1): f", FS_NONE, 0, 1000); /* not counted */
    host(FS_EVENT_RANGE, "forward", FS_NONE, 950, 1200);     /* beyond the step's end */
    fs_steps steps = break_down();
    const int64_t expected[FS_STEP_PART_COUNT] = {
        [FS_PART_KERNEL] = 150, [FS_PART_MEMCPY] = 50,       [FS_PART_MEMSET] = 20,     [FS_PART_COMMUNICATION] = 80,
        [FS_PART_RUNTIME] = 40, [FS_PART_DATA_LOADING] = 50, [FS_PART_OTHER_CPU] = 150, [FS_PART_OTHER] = 460,
    };
    for (int part = 0; part < FS_STEP_PART_COUNT; part++) {
        CHECK(steps.steps[0].parts[part] == expected[part], "%s: %lld", fs_step_part_names[part],
              (long long)steps.steps[0].parts[part]);
    }
    fs_steps_clear(&steps);
}

static void test_without_steps_the_profile_is_one_step(void)
{
    fs_steps steps = break_down();
    CHECK(steps.count == 0);
    fs_steps_clear(&steps);

    fs_store_set_window(store, 50, 300);
    steps = break_down();
    CHECK(steps.count == 0); /* the profile is empty */
    fs_steps_clear(&steps);

    fs_store_set_window(store, FS_MISSING, FS_MISSING);
    host(FS_EVENT_OP, "op", FS_NONE, 100, 250);
    fs_event unplaced = fs_event_missing;
    unplaced.kind = FS_EVENT_INTERVAL;
    unplaced.device = 0;
    put(unplaced, "op", FS_MISSING, FS_MISSING + 70);
    steps = break_down();
    CHECK(steps.count == 1 && is_step(&steps.steps[0], NULL, 100, 250));
    CHECK(steps.steps[0].parts[FS_PART_OTHER_CPU] == 150);
    fs_steps_clear(&steps);

    fs_store_set_window(store, 50, 300);
    kernel("k", 0, 1, 280, 340); /* still running when recording ended */
    steps = break_down();
    CHECK(is_step(&steps.steps[0], NULL, 50, 340) && steps.steps[0].parts[FS_PART_KERNEL] == 60);
    CHECK(steps.steps[0].parts[FS_PART_OTHER] == 50 + 30);
    fs_steps_clear(&steps);
}

/* Efficiency ----------------------------------------------------------------------------------------------------- */

static fs_efficiency *efficiency(const char *step, uint32_t expected)
{
    fs_efficiency *rows = NULL;
    uint32_t count = 0;
    fs_error err = {FS_OK, ""};
    CHECK(fs_efficiency_of(store, step, &rows, &count, &err) == FS_OK, "%s", err.message);
    CHECK(count == expected);
    return rows;
}

static void test_efficiency_of_overlapping_kernels_on_two_devices(void)
{
    know_device(0);
    know_device(1);
    fs_store_set_window(store, 0, 1000);
    /* Device 0: 2 of 4 SMs have a block in [0, 100), 5 blocks fill them in [100, 200), 3 of 4 in [200, 250). */
    kernel("k", 0, 2, 0, 200);
    work(FS_EVENT_KERNEL, "nvjet_sm90_tst_64x64", 0, 8, 3, FS_NONE, FS_NONE, 100, 250);
    kernel("volta_sgemm_128x64_nn", 0, 1, 400, 410);
    work(FS_EVENT_MEMCPY, "copy", 0, 8, 0, FS_NONE, FS_NONE, 240, 300);
    /* Device 1: a kernel of 16 blocks that was running when recording began: an SM holds 2. */
    kernel("k", 1, 16, -100, 500);
    fs_efficiency *rows = efficiency(NULL, 2);
    CHECK(rows[0].device == 0 && near(rows[0].gpu_utilization, 26) && near(rows[0].idle, 100 - 31));
    CHECK(near(rows[0].sm_efficiency, 100 * (0.5 * 100 + 1 * 100 + 0.75 * 50 + 0.25 * 10) / 1000));
    /* 64 threads of 256: one block per SM is 25 %; the grids are 2, 3 and 1 of 4. */
    CHECK(near(rows[0].achieved_occupancy, 25 * (0.5 * 200 + 0.75 * 150 + 0.25 * 10) / 360));
    CHECK(near(rows[0].tensor_core_time, 100 * 150 / 360.0) && near(rows[0].matrix_time, 100 * 10 / 360.0));
    CHECK(rows[1].device == 1 && near(rows[1].gpu_utilization, 50) && near(rows[1].sm_efficiency, 50));
    CHECK(near(rows[1].achieved_occupancy, 50) && rows[1].tensor_core_time == 0 && near(rows[1].idle, 50));
    fs_free(rows);
}

static void test_efficiency_of_one_step_and_of_all(void)
{
    know_device(0);
    host(FS_EVENT_STEP, "s#0", FS_NONE, 0, 100);
    host(FS_EVENT_STEP, "s#1", FS_NONE, 100, 300);
    kernel("k", 0, 4, 50, 150);
    kernel("k", 0, 4, 290, 400); /* continues after the steps, none of which launched it */
    kernel("k", 0, 4, 500, 600);
    fs_efficiency *rows = efficiency("s#0", 1);
    CHECK(near(rows[0].gpu_utilization, 50) && near(rows[0].sm_efficiency, 50) && near(rows[0].idle, 50));
    fs_free(rows);
    rows = efficiency("s#1", 1);
    CHECK(near(rows[0].gpu_utilization, 30) && near(rows[0].achieved_occupancy, 25));
    fs_free(rows);
    rows = efficiency(NULL, 1);
    CHECK(near(rows[0].gpu_utilization, 100 * 110 / 300.0) && near(rows[0].sm_efficiency, 100 * 110 / 300.0));
    fs_free(rows);

    uint32_t count = 0;
    fs_error err = {FS_OK, ""};
    CHECK(fs_efficiency_of(store, "s#2", &rows, &count, &err) == FS_VALUE_ERROR);
    CHECK(strstr(err.message, "s#2") && strstr(err.message, "s#0") && strstr(err.message, "s#1"), "%s", err.message);
}

static void test_missing_facts_are_not_zero(void)
{
    fs_store_set_window(store, 0, 100);
    kernel("k", 0, 2, 0, 50); /* of an unknown device */
    work(FS_EVENT_MEMCPY, "copy", 1, 7, 0, FS_NONE, FS_NONE, 0, 50);
    know_device(2);
    kernel("k", 2, 2, 0, 50);
    kernel("k", 2, 0, 60, 70);            /* with an unknown launch */
    fs_event interval = fs_event_missing; /* between two CUDA events: the kernels of an op */
    interval.kind = FS_EVENT_INTERVAL;
    interval.device = 3;
    put(interval, "op", 0, 20);
    fs_efficiency *rows = efficiency(NULL, 4);
    CHECK(near(rows[0].gpu_utilization, 50) && isnan(rows[0].sm_efficiency) && isnan(rows[0].achieved_occupancy));
    CHECK(rows[0].tensor_core_time == 0 && near(rows[0].idle, 50));
    CHECK(rows[1].gpu_utilization == 0 && isnan(rows[1].sm_efficiency) && near(rows[1].idle, 50));
    CHECK(isnan(rows[1].achieved_occupancy) && isnan(rows[1].tensor_core_time) && isnan(rows[1].matrix_time));
    CHECK(near(rows[2].gpu_utilization, 60) && isnan(rows[2].sm_efficiency) && isnan(rows[2].achieved_occupancy));
    CHECK(near(rows[3].gpu_utilization, 20) && isnan(rows[3].sm_efficiency) && isnan(rows[3].achieved_occupancy));
    CHECK(isnan(rows[3].tensor_core_time) && isnan(rows[3].matrix_time) && near(rows[3].idle, 80));
    fs_free(rows);
}

/* Launches ------------------------------------------------------------------------------------------------------- */

static void test_launch_statistics(void)
{
    call(1, FS_NONE, 0, 10);
    call(2, FS_NONE, 10, 20);
    call(3, FS_NONE, 20, 50);
    call(4, FS_NONE, 140, 210);
    call(5, FS_NONE, 300, 306);
    call(4, FS_NONE, 202, 208); /* a driver call inside the runtime's */
    launched(7, 1, 30, 100);
    launched(7, 2, 100, 150);
    launched(8, 3, 60, 205);  /* the first on its stream */
    launched(7, 4, 220, 240); /* stream 7 ended at 150, the device at 205, the call from 140 to 210 */
    launched(7, 5, 320, 330); /* a graph of three kernels; stream 7 ended at 240 */
    launched(7, 5, 335, 340);
    launched(9, 5, 335, 345);
    launched(7, FS_NONE, 400, 410); /* without a recorded call */
    work(FS_EVENT_MEMCPY, "copy", 0, 7, 0, 5, FS_NONE, 250, 260);
    work(FS_EVENT_MEMCPY, "copy", 1, 7, 0, FS_NONE, FS_NONE, 250, 260);
    fs_launch_statistics *rows = NULL;
    uint32_t count = 0;
    CHECK(fs_launches_of(store, &rows, &count, NULL) == FS_OK && count == 2);
    const fs_launch_statistics *row = &rows[0];
    CHECK(row->device == 0 && row->kernels == 7 && row->launches == 5);
    /* Delays 30, 90, 40, 80, 20. */
    CHECK(row->delay_min == 20 && row->delay_median == 40 && row->delay_max == 90 && near(row->delay_p95, 88));
    CHECK(row->call_time_median == 10); /* 10, 10, 30, 70, 6 */
    /* Queued at the calls of 0, 10, 20, 140, 300: none; 1; 1 and 2; none; none. */
    CHECK(near(row->queue_mean, 3 / 5.0) && row->queue_max == 2);
    /* With earlier work on their stream: 2 (busy until 100), 4 and 5 (idle). Idle device: 205 to 220, 240 to 250, 260
     * to 320; the calls returned at 210, 306 and 306, so launches take 10 to arrive, the median of 10, 0 and 14. */
    CHECK(near(row->launch_bound_pct, 200 / 3.0) && row->idle_lost == 15 + 10 + (306 + 10 - 260));
    CHECK(rows[1].device == 1 && rows[1].kernels == 0 && rows[1].launches == 0 && isnan(rows[1].delay_median));
    CHECK(isnan(rows[1].queue_mean) && isnan(rows[1].launch_bound_pct) && isnan(rows[1].idle_lost));
    fs_free(rows);
}

/* Memory that runs out ------------------------------------------------------------------------------------------- */

static fs_status steps_once(fs_error *err)
{
    fs_steps steps;
    fs_status status = fs_steps_break_down(&steps, store, err);
    if (status == FS_OK) fs_steps_clear(&steps);
    return status;
}

static fs_status efficiency_once(fs_error *err)
{
    fs_efficiency *rows = NULL;
    uint32_t count;
    fs_status status = fs_efficiency_of(store, NULL, &rows, &count, err);
    fs_free(rows);
    return status;
}

static fs_status launches_once(fs_error *err)
{
    fs_launch_statistics *rows = NULL;
    uint32_t count;
    fs_status status = fs_launches_of(store, &rows, &count, err);
    fs_free(rows);
    return status;
}

static void test_every_failed_allocation_is_reported_and_leaks_nothing(void)
{
    static fs_status (*const all[])(fs_error *) = {steps_once, efficiency_once, launches_once};
    know_device(0);
    for (int i = 0; i < 300; i++) { /* newest first, so that lists grow and are sorted */
        int64_t start = 1000 * (300 - i);
        uint32_t step = host(FS_EVENT_STEP, "step", FS_NONE, start, start + 900);
        uint32_t op = host(FS_EVENT_OP, "op", step, start, start + 500);
        call((uint32_t)i, op, start + 10, start + 20);
        work(FS_EVENT_KERNEL, "k", 0, 7, 1, (uint32_t)i, op, start + 30, start + 400);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int64_t live = fs_memory_live();
        fs_status status = FS_OUT_OF_MEMORY;
        int64_t n = 0;
        while (status != FS_OK && n < 1000) {
            fs_error err = {FS_OK, ""};
            fs_memory_fail_at(++n);
            status = all[i](&err);
            fs_memory_fail_at(0);
            CHECK(status == FS_OK || (status == FS_OUT_OF_MEMORY && err.status == status && err.message[0] != 0));
            CHECK(fs_memory_live() == live);
        }
        CHECK(status == FS_OK && n > 5, "%zu: %lld", i, (long long)n);
    }
}

int main(void)
{
    static void (*const tests[])(void) = {
        test_random_intervals_against_moments,
        test_sorting_is_stable_over_the_whole_range_of_times,
        test_a_step_ends_with_its_last_work_on_a_device,
        test_a_first_and_a_last_mark_without_work_are_no_steps,
        test_work_belongs_to_the_step_around_its_launcher,
        test_each_moment_counts_for_the_first_active_part,
        test_without_steps_the_profile_is_one_step,
        test_efficiency_of_overlapping_kernels_on_two_devices,
        test_efficiency_of_one_step_and_of_all,
        test_missing_facts_are_not_zero,
        test_launch_statistics,
        test_every_failed_allocation_is_reported_and_leaks_nothing,
    };
    int64_t live = fs_memory_live();
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        CHECK(fs_store_create(&store, NULL) == FS_OK);
        tests[i]();
        fs_store_destroy(store);
        CHECK(fs_memory_live() == live);
    }
    return failures != 0;
}
