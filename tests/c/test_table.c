/* Tables of stores built by hand. Expected numbers are derived here from the events. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tests/c/events.h"

/* Tests ---------------------------------------------------------------------------------------------------------- */

static void test_an_empty_store_gives_an_empty_table(void)
{
    fs_table *table = build(NULL);
    CHECK(table->row_count == 0 && table->self_cpu_ns == 0 && !table->has_device && !table->has_memory);
    fs_table_destroy(table);
}

static void test_self_and_total_times_of_nested_events(void)
{
    uint32_t range = host(FS_EVENT_RANGE, "outer", FS_NONE, 0, 1000);
    uint32_t first = op("x::a", FS_NONE, range, 100, 400);
    host(FS_EVENT_RUNTIME, "cudaLaunchKernel", first, 150, 100);
    device(FS_EVENT_KERNEL, "kernel", first, 0, 300, 250);
    uint32_t second = op("x::a", FS_NONE, range, 600, 300);
    op("x::b", FS_NONE, second, 700, 50);
    device(FS_EVENT_MEMSET, "fill", second, 0, 800, 60);
    fs_table *table = build(NULL);
    const fs_row *outer = row_of(table, "outer", false), *a = row_of(table, "x::a", false);
    CHECK(outer->is_user_annotation && outer->self_cpu_time_total == 300 && outer->cpu_time_total == 1000);
    CHECK(outer->self_device_time_total == 0 && outer->device_time_total == 310);
    CHECK(a->count == 2 && a->self_cpu_time_total == 550 && a->cpu_time_total == 700);
    CHECK(a->self_device_time_total == 310 && a->device_time_total == 310 && a->device_busy_time == 310);
    CHECK(outer->top_level && !a->top_level);
    CHECK(isnan(a->flops) && isnan(a->flops_total) && isnan(outer->flops) && a->bound == FS_BOUND_UNKNOWN);
    const fs_row *kernel = row_of(table, "kernel", true);
    CHECK(kernel->self_device_time_total == 250 && kernel->device_time_total == 250 && kernel->cpu_time_total == 0);
    CHECK(kernel->top_level && kernel->timing == FS_TIMING_CUPTI && a->timing == FS_TIMING_CUPTI);
    CHECK(outer->timing == FS_TIMING_CPU);
    CHECK(table->self_cpu_ns == 1000 && table->self_device_ns == 310 && table->has_device);
    CHECK(near(a->time_min, 60) && near(a->time_max, 250) && near(a->time_median, 155) && near(outer->time_max, 1000));
    CHECK(near(a->time_std, 190 / sqrt(2)) && isnan(outer->time_std) && near(a->time_p95, 60 + 0.95 * 190));
    fs_table_destroy(table);
}

static void test_rows_are_in_order_of_first_start_and_steps_share_a_row(void)
{
    op("x::late", FS_NONE, FS_NONE, 500, 10);
    op("x::short", FS_NONE, FS_NONE, 100, 10);
    op("x::long", FS_NONE, FS_NONE, 100, 20);
    host(FS_EVENT_STEP, "ProfilerStep#7", FS_NONE, 90, 5);
    host(FS_EVENT_STEP, "ProfilerStep#8", FS_NONE, 600, 15);
    host(FS_EVENT_RANGE, "x::late", FS_NONE, 700, 1);
    fs_table *table = build(NULL);
    static const char *const expected[] = {"ProfilerStep*", "x::long", "x::short", "x::late", "x::late"};
    CHECK(table->row_count == 5);
    for (uint32_t i = 0; i < table->row_count; i++) CHECK(strcmp(table->rows[i].key, expected[i]) == 0);
    CHECK(table->rows[0].count == 2 && table->rows[0].cpu_time_total == 20 && table->rows[4].is_user_annotation);
    fs_table_destroy(table);
}

static void test_shapes_separate_rows_on_request_only(void)
{
    uint32_t small = signature_id(FS_CPU, 2, 3), large = signature_id(FS_CPU, 20, 30);
    for (int i = 0; i < 3; i++) op("x::a", i == 1 ? large : small, FS_NONE, i * 100, 10 + i);
    op("x::a", signature_id(FS_CUDA, 2, 3), FS_NONE, 400, 1); /* on another device, with the same shapes */
    fs_table *table = build(NULL);
    CHECK(table->row_count == 1 && table->rows[0].count == 4 && table->rows[0].signature == small);
    fs_table_destroy(table);
    table = build(&(fs_table_options){.by_shape = true});
    CHECK(table->row_count == 2 && table->rows[0].count == 3 && table->rows[1].count == 1);
    CHECK(table->rows[1].signature == large && table->rows[1].cpu_time_total == 11);
    fs_table_destroy(table);
}

static void test_memory_counts_for_the_event_and_its_ancestors(void)
{
    uint32_t outer = host(FS_EVENT_RANGE, "outer", FS_NONE, 0, 100);
    uint32_t inner = op("x::a", FS_NONE, outer, 10, 20);
    memory(inner, 0, 1024);
    memory(inner, -1, 64);
    memory(outer, 0, -1000);
    memory(FS_NONE, 0, -24);
    memory(FS_NONE, 0, -1);
    fs_table *table = build(NULL);
    const fs_row *a = row_of(table, "x::a", false), *range = row_of(table, "outer", false);
    const fs_row *loose = row_of(table, "[memory]", false);
    CHECK(a->self_device_memory_usage == 1024 && a->device_memory_usage == 1024 && a->self_cpu_memory_usage == 64);
    CHECK(range->self_device_memory_usage == -1000 && range->device_memory_usage == 24);
    CHECK(range->cpu_memory_usage == 64);
    CHECK(loose->count == 2 && loose->self_device_memory_usage == -25 && loose->device_memory_usage == -25);
    CHECK(table->has_memory && table->open_events == 0);
    fs_table_destroy(table);
}

static void test_overlaps_are_busy_once_per_device(void)
{
    uint32_t a = op("x::a", FS_NONE, FS_NONE, 0, 10), b = op("x::a", FS_NONE, FS_NONE, 20, 10);
    /* Out of order: [100, 300) and [250, 400) overlap, [150, 200) lies inside, device 1 is counted separately. */
    device(FS_EVENT_KERNEL, "k", b, 0, 250, 150);
    device(FS_EVENT_KERNEL, "k", a, 0, 100, 200);
    device(FS_EVENT_KERNEL, "l", a, 0, 150, 50);
    device(FS_EVENT_KERNEL, "k", a, 1, 120, 70);
    device(FS_EVENT_INTERVAL, "k", a, 0, (int64_t)1 << 40, 5);
    fs_table *table = build(NULL);
    const fs_row *row = row_of(table, "x::a", false), *k = row_of(table, "k", true);
    CHECK(row->device_busy_time == 300 + 70 + 5 && row->self_device_time_total == 150 + 200 + 50 + 70 + 5);
    CHECK(k->device_busy_time == 300 + 70 && k->count == 3 && table->self_device_ns == 475);
    CHECK(row->timing == FS_TIMING_EVENT && k->timing == FS_TIMING_CUPTI);
    fs_table_destroy(table);
}

static void test_roofline_of_device_work(void)
{
    /* 256 × 1024 float32: 262 144 FLOPs, 2 MiB read, 1 MiB written; two calls of 1 000 and 3 000 ns. */
    const double flops = 262144, bytes = 3 * 1048576;
    uint32_t signature = signature_id(FS_CUDA, 256, 1024);
    uint32_t range = host(FS_EVENT_RANGE, "outer", FS_NONE, 0, 100);
    for (int i = 0; i < 2; i++) {
        uint32_t call = op("flopscope::add", signature, range, i * 50, 20);
        device(FS_EVENT_KERNEL, "k", call, 0, 1000 + i * 10000, 1000 + i * 2000);
    }
    fs_peaks gpu = peaks(1e13, 4e12, 400);
    fs_table *table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
    const fs_row *add = row_of(table, "flopscope::add", false), *outer = row_of(table, "outer", false);
    CHECK(add->flops == 2 * flops && add->bytes_read == 2 * 2097152 && add->bytes_written == 2 * 1048576);
    CHECK(isnan(outer->flops) && outer->flops_total == 2 * flops && add->flops_total == 2 * flops);
    CHECK(near(add->gbytes_per_s, 2 * bytes / 4000) && near(add->tflops_per_s, 2 * flops / 4000 / 1e3));
    CHECK(near(add->arithmetic_intensity, flops / bytes));
    CHECK(near(add->pct_peak_bandwidth, 100 * 2 * bytes / 4e12 / 4000e-9));
    CHECK(near(add->pct_peak_flops, 100 * 2 * flops / 1e13 / 4000e-9));
    CHECK(near(add->pct_roofline, add->pct_peak_bandwidth) && add->bound == FS_BOUND_MEMORY);
    const fs_row *k = row_of(table, "k", true);
    CHECK(isnan(k->flops) && isnan(k->pct_roofline) && k->bound == FS_BOUND_UNKNOWN);
    fs_table_destroy(table);

    static const struct {
        double flops, bandwidth, least_ns;
        fs_bound bound;
    } cases[] = {
        /* 3 MiB at 4e12 bytes/s take 786.4 ns: an op is launch-bound if the launch takes longer. */
        {1e11, 4e12, 400, FS_BOUND_COMPUTE}, {1e13, 1e12, 400, FS_BOUND_CACHE},  {1e13, 4e12, 787, FS_BOUND_LAUNCH},
        {1e13, 4e12, 786, FS_BOUND_MEMORY},  {1e13, NAN, 400, FS_BOUND_UNKNOWN}, {1e13, 4e12, NAN, FS_BOUND_MEMORY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gpu = peaks(cases[i].flops, cases[i].bandwidth, cases[i].least_ns);
        table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
        CHECK(row_of(table, "flopscope::add", false)->bound == cases[i].bound);
        fs_table_destroy(table);
    }
    /* A kernel's own record is compared with the shortest kernel, not with the time of a launch measured by events. */
    gpu = peaks(1e13, 4e12, 786);
    gpu.launch_ns = 1e9;
    table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
    CHECK(row_of(table, "flopscope::add", false)->bound == FS_BOUND_MEMORY);
    fs_table_destroy(table);
    table = build(NULL);
    add = row_of(table, "flopscope::add", false);
    CHECK(isnan(add->pct_roofline) && isnan(add->pct_peak_bandwidth) && add->bound == FS_BOUND_UNKNOWN);
    fs_table_destroy(table);
}

static void test_time_between_events_is_compared_with_the_launch_time(void)
{
    uint32_t call = op("flopscope::add", signature_id(FS_CUDA, 256, 1024), FS_NONE, 0, 20);
    device(FS_EVENT_INTERVAL, "flopscope::add", call, 0, 1000, 3000);
    fs_peaks gpu = peaks(1e13, 4e12, 400);
    gpu.launch_ns = 2000;
    fs_table *table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
    CHECK(row_of(table, "flopscope::add", false)->bound == FS_BOUND_LAUNCH);
    fs_table_destroy(table);
    gpu.launch_ns = 400;
    gpu.kernel_ns = 2000;
    table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
    CHECK(row_of(table, "flopscope::add", false)->bound == FS_BOUND_MEMORY);
    fs_table_destroy(table);
}

static void test_rates_on_the_host_and_without_device_times(void)
{
    uint32_t on_host = signature_id(FS_CPU, 10, 10);
    op("flopscope::add", on_host, FS_NONE, 0, 600);
    op("flopscope::add", on_host, FS_NONE, 700, 200);
    op("flopscope::sin", signature_id(FS_CUDA, 10, 10), FS_NONE, 1000, 50); /* without a recorded kernel */
    fs_peaks cpu = peaks(1e12, 1e10, 100);
    fs_table *table = build(&(fs_table_options){.cpu_peaks = &cpu});
    const fs_row *add = row_of(table, "flopscope::add", false), *sin_row = row_of(table, "flopscope::sin", false);
    CHECK(near(add->gbytes_per_s, 2400.0 / 800) && near(add->pct_roofline, 100 * 240.0 / 800));
    CHECK(add->device_busy_time == 0 && add->bound == FS_BOUND_MEMORY && near(add->time_median, 400));
    CHECK(sin_row->flops == 100 && isnan(sin_row->gbytes_per_s) && sin_row->bound == FS_BOUND_UNKNOWN);
    CHECK(table->modelled_base_ns == 850 && table->bytes_known_ns == 850 && table->unmodelled_count == 0);
    fs_table_destroy(table);
}

static void test_work_counts_once_and_one_unknown_call_makes_the_row_unknown(void)
{
    uint32_t signature = signature_id(FS_CUDA, 4, 4);
    uint32_t outer = op("flopscope::sin", signature, FS_NONE, 0, 100);
    uint32_t inner = op("flopscope::add", signature, outer, 10, 50);
    uint32_t helper = op("x::helper", FS_NONE, inner, 20, 20);
    device(FS_EVENT_KERNEL, "k", helper, 0, 30, 500);
    op("flopscope::add", FS_NONE, FS_NONE, 200, 10);
    fs_table *table = build(NULL);
    /* The kernel counts as add's work, though a helper launched it; sin has none of its own. */
    const fs_row *sin_row = row_of(table, "flopscope::sin", false), *add = row_of(table, "flopscope::add", false);
    CHECK(sin_row->flops == 0 && sin_row->flops_total == 16 && sin_row->bytes_total_moved == 0);
    CHECK(isnan(add->flops) && add->flops_total == 16 && add->device_busy_time == 500);
    CHECK(add->self_device_time_total == 0 && add->time_max == 500);
    CHECK(row_of(table, "x::helper", false)->self_device_time_total == 500);
    CHECK(table->bytes_known_ns == 500 && table->modelled_base_ns == 500 && table->unmodelled_count == 0);
    fs_table_destroy(table);
}

static void test_coverage_names_ops_without_a_rule(void)
{
    uint32_t range = host(FS_EVENT_RANGE, "outer", FS_NONE, 0, 1000);
    uint32_t known = op("flopscope::add", signature_id(FS_CUDA, 4, 4), range, 0, 10);
    uint32_t unknown = op("x::a", signature_id(FS_CUDA, 4, 4), range, 20, 10);
    uint32_t other = op("x::a", signature_id(FS_CUDA, 5, 5), range, 40, 10);
    uint32_t call = host(FS_EVENT_RUNTIME, "cudaLaunchKernel", other, 42, 2);
    device(FS_EVENT_KERNEL, "k", known, 0, 100, 10);
    device(FS_EVENT_KERNEL, "k", unknown, 0, 200, 20);
    device(FS_EVENT_KERNEL, "k", call, 0, 300, 30);
    device(FS_EVENT_KERNEL, "mine", range, 0, 400, 70);
    device(FS_EVENT_MEMCPY, "copy", FS_NONE, 0, 500, 5);
    device(FS_EVENT_KERNEL, "ncclDevKernel_AllReduce", FS_NONE, 0, 600, 1000);
    fs_table *table = build(&(fs_table_options){.by_shape = true});
    /* A copy records its own bytes, whatever launched it. */
    CHECK(table->modelled_base_ns == 135 && table->bytes_known_ns == 15 && table->flops_known_ns == 15);
    static const fs_unmodelled expected[] = {{"mine", 70}, {"x::a", 50}};
    CHECK(table->unmodelled_count == 2);
    for (uint32_t i = 0; i < table->unmodelled_count && i < 2; i++) {
        CHECK(strcmp(table->unmodelled[i].key, expected[i].key) == 0 && table->unmodelled[i].ns == expected[i].ns);
    }
    fs_table_destroy(table);
}

static void test_open_events_count_and_have_no_time(void)
{
    uint32_t open = op("x::a", FS_NONE, FS_NONE, 0, FS_MISSING);
    op("x::b", FS_NONE, open, 10, 30);
    op("x::a", FS_NONE, FS_NONE, 50, 20);
    device(FS_EVENT_KERNEL, "k", open, 0, 60, FS_MISSING);
    fs_table *table = build(NULL);
    const fs_row *a = row_of(table, "x::a", false), *k = row_of(table, "k", true);
    CHECK(table->open_events == 2 && a->count == 2 && a->cpu_time_total == 20 && a->self_cpu_time_total == 20);
    CHECK(k->count == 1 && k->device_busy_time == 0 && isnan(k->time_min));
    fs_table_destroy(table);
}

static void test_an_annotation_on_a_device_is_a_row_without_work(void)
{
    fs_event event = fs_event_missing;
    event.kind = FS_EVENT_RANGE;
    event.name = name_id("forward");
    event.device = 0;
    event.start = 10;
    event.duration = 90;
    put(event);
    host(FS_EVENT_RANGE, "forward", FS_NONE, 0, 20);
    fs_table *table = build(NULL);
    const fs_row *row = row_of(table, "forward", true);
    CHECK(row->is_user_annotation && row->self_device_time_total == 90 && row->cpu_time_total == 0);
    CHECK(row_of(table, "forward", false)->cpu_time_total == 20 && table->self_device_ns == 0);
    fs_table_destroy(table);
}

/* Random trees, compared with naive sums ------------------------------------------------------------------- */

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double quantile(const double *sorted, int count, double share)
{
    double place = share * (count - 1);
    int rank = (int)place;
    return rank + 1 == count ? sorted[rank] : sorted[rank] + (place - rank) * (sorted[rank + 1] - sorted[rank]);
}

enum { OPS = 3000 };

static void test_random_trees(void)
{
    static const char *const names[] = {"x::a", "x::b", "x::c"};
    static uint32_t index[OPS], parent[OPS];
    static int64_t duration[OPS], device_ns[OPS], total[OPS];
    for (int i = 0; i < OPS; i++) {
        int up = i > 0 && rand() % 4 != 0 ? rand() % i : -1;
        parent[i] = up < 0 ? FS_NONE : index[up];
        duration[i] = rand() % 50;
        index[i] = op(names[i % 3], FS_NONE, parent[i], i, duration[i]);
        total[i] = device_ns[i] = rand() % 3 == 0 ? 1 + rand() % 1000 : 0;
        if (device_ns[i] > 0) device(FS_EVENT_KERNEL, "k", index[i], 0, rand(), device_ns[i]);
    }
    for (int i = OPS; i-- > 0;) {
        for (int up = i; up-- > 0 && parent[i] != FS_NONE;) {
            if (index[up] == parent[i]) {
                total[up] += total[i];
                break;
            }
        }
    }
    fs_table *table = build(NULL);
    for (int n = 0; n < 3; n++) {
        const fs_row *row = row_of(table, names[n], false);
        int64_t self_cpu = 0, device_total = 0;
        static double samples[OPS];
        int count = 0;
        double mean = 0, squares = 0;
        for (int i = n; i < OPS; i += 3) {
            self_cpu += duration[i];
            for (int j = i + 1; j < OPS; j++) self_cpu -= parent[j] == index[i] ? duration[j] : 0;
            device_total += total[i];
            if (device_ns[i] > 0) samples[count++] = (double)device_ns[i];
        }
        for (int i = 0; i < count; i++) mean += samples[i] / count;
        for (int i = 0; i < count; i++) squares += (samples[i] - mean) * (samples[i] - mean);
        qsort(samples, (size_t)count, sizeof *samples, compare_doubles);
        CHECK(row->self_cpu_time_total == self_cpu && row->device_time_total == device_total);
        CHECK(near(row->time_median, quantile(samples, count, 0.5)));
        CHECK(near(row->time_p95, quantile(samples, count, 0.95)));
        CHECK(row->time_min == samples[0] && row->time_max == samples[count - 1]);
        CHECK(near(row->time_std, sqrt(squares / (count - 1))));
    }
    fs_table_destroy(table);
}

static void test_every_failed_allocation_is_reported_and_leaks_nothing(void)
{
    uint32_t signature = signature_id(FS_CUDA, 4, 4);
    for (int i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "x::%d", i);
        uint32_t call = op(name, signature, FS_NONE, 1000 - i, 5);
        device(FS_EVENT_KERNEL, "k", call, 0, 2000 - i, 5);
        memory(call, 0, 8);
    }
    build_with_failing_memory(&(fs_table_options){.by_shape = true}, 201);
}

static const uint32_t every_grouping = (1u << FS_GROUPING_COUNT) - 1;

static void test_groupings_separate_rows_and_keep_their_sums(void)
{
    for (int step = 0; step < 2; step++) {
        int at = 1000 * step;
        uint32_t steps = host(FS_EVENT_STEP, step ? "ProfilerStep#1" : "ProfilerStep#0", FS_NONE, at, 900);
        uint32_t line = host(FS_EVENT_FRAME, "train.py(3): train", steps, at + 10, 800);
        uint32_t library = host(FS_EVENT_FRAME, "torch/nn/modules/module.py(1): _call_impl", line, at + 20, 700);
        uint32_t net = host(FS_EVENT_FRAME, "nn.Module: Net_0", library, at + 30, 600);
        uint32_t call = op("x::a", FS_NONE, net, at + 40, 100);
        device(FS_EVENT_KERNEL, "k", call, step, at + 2000, 50);
        uint32_t backward = op("x::a", FS_NONE, steps, at + 850, 10);
        fs_store_set_forward(store, backward, call);
    }
    fs_table *table = build(&(fs_table_options){.groupings = 1u << FS_GROUPING_MODULE});
    const fs_row *row = row_of(table, "x::a", false);
    CHECK(table->module_count == 1 && table->modules[0].calls == 2 && table->modules[0].parent == FS_NONE);
    CHECK(row->count == 4 && row->cpu_time_total == 220 && fs_table_part_of(table, row).module == 0);
    fs_table_destroy(table);
    table = build(&(fs_table_options){.groupings = every_grouping});
    int64_t count = 0, device_time = 0;
    for (uint32_t i = 0; i < table->row_count; i++) {
        fs_table_part part = fs_table_part_of(table, &table->rows[i]);
        CHECK(part.stack == FS_NONE && part.step != FS_NONE);
        if (strcmp(table->rows[i].key, "x::a") != 0) continue;
        CHECK(table->rows[i].count == 1 && part.module == 0 && part.lane == FS_NONE);
        CHECK((part.line == FS_NONE) == (table->rows[i].self_cpu_time_total == 10));
        count += table->rows[i].count;
        device_time += table->rows[i].self_device_time_total;
    }
    CHECK(count == 4 && device_time == 100);
    fs_table_destroy(table);
    build_with_failing_memory(&(fs_table_options){.groupings = every_grouping, .stack_depth = 3}, 8);
}

int main(void)
{
    static void (*const tests[])(void) = {
        test_an_empty_store_gives_an_empty_table,
        test_self_and_total_times_of_nested_events,
        test_rows_are_in_order_of_first_start_and_steps_share_a_row,
        test_shapes_separate_rows_on_request_only,
        test_memory_counts_for_the_event_and_its_ancestors,
        test_overlaps_are_busy_once_per_device,
        test_roofline_of_device_work,
        test_time_between_events_is_compared_with_the_launch_time,
        test_rates_on_the_host_and_without_device_times,
        test_work_counts_once_and_one_unknown_call_makes_the_row_unknown,
        test_coverage_names_ops_without_a_rule,
        test_open_events_count_and_have_no_time,
        test_an_annotation_on_a_device_is_a_row_without_work,
        test_random_trees,
        test_groupings_separate_rows_and_keep_their_sums,
        test_every_failed_allocation_is_reported_and_leaks_nothing,
    };
    return run_tests(tests, sizeof tests / sizeof *tests);
}
