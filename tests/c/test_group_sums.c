/* Sums of random rows by random nested groups against sums in long double, one group at a time; hostile numbers; failed
 * allocations. */
#include "table/group_sums.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "check.h"

enum { ROWS = 400, GROUPS = 12 };

static int64_t integers[FS_SUMMED_INTEGER_COUNT][ROWS], groups[ROWS], parents[GROUPS];
static double numbers[FS_SUMMED_NUMBER_COUNT][ROWS];
static fs_group_sum sums[GROUPS + 1];

static const fs_group_request request = {.row_count = ROWS,
                                         .group_count = GROUPS,
                                         .integers = integers[0],
                                         .numbers = numbers[0],
                                         .groups = groups,
                                         .parents = parents,
                                         .device_time = NAN};

static void make_rows(bool ops_have_work)
{
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < FS_SUMMED_INTEGER_COUNT; i++) integers[i][row] = rand() % 1000 - 300;
        for (int i = 0; i < FS_SUMMED_NUMBER_COUNT; i++) numbers[i][row] = rand() % 7 == 0 ? (double)NAN : rand() / 3e3;
        integers[FS_SUMMED_count][row] = rand() % 9;
        integers[FS_SUMMED_is_user_annotation][row] = rand() % 4 == 0;
        groups[row] = rand() % (GROUPS + 1) - 1;
        if (ops_have_work || integers[FS_SUMMED_is_user_annotation][row]) continue;
        for (int i = FS_SUMMED_flops; i <= FS_SUMMED_bytes_total_moved; i++) numbers[i][row] = (double)NAN;
    }
    for (int group = 0; group < GROUPS; group++) parents[group] = group > 2 ? rand() % group : -1;
}

static bool lies_within(int64_t group, int64_t outer, bool nested)
{
    while (nested && group > outer) group = parents[group];
    return group == outer;
}

/* The sum of a column of a group; nested: with the groups within. NaN: nothing is known. */
static double sum_of(int column, int group, bool nested, bool ranges)
{
    long double sum = 0;
    bool known = false;
    for (int row = 0; row < ROWS; row++) {
        if (!lies_within(groups[row], group, nested) || isnan(numbers[column][row])) continue;
        if (!ranges && integers[FS_SUMMED_is_user_annotation][row]) continue;
        sum += numbers[column][row];
        known = true;
    }
    return known ? (double)sum : (double)NAN;
}

static double share_of(int column, int group, bool nested, bool ranges)
{
    long double sum = 0, weights = 0;
    for (int row = 0; row < ROWS; row++) {
        double share = numbers[column][row];
        double time = numbers[FS_SUMMED_roofline_time][row] + numbers[FS_SUMMED_headroom][row];
        if (!lies_within(groups[row], group, nested) || isnan(share + time)) continue;
        if (!ranges && integers[FS_SUMMED_is_user_annotation][row]) continue;
        sum += (long double)share * time;
        weights += time;
    }
    return weights > 0 ? (double)(sum / weights) : (double)NAN;
}

static double rate_of(int work, int rate, int group, bool ranges, bool on_device)
{
    long double done = 0, times = 0;
    for (int row = 0; row < ROWS; row++) {
        bool range = integers[FS_SUMMED_is_user_annotation][row] != 0;
        int from = on_device ? FS_SUMMED_device_busy_time
                   : range   ? FS_SUMMED_cpu_time_total
                             : FS_SUMMED_self_cpu_time_total;
        if (groups[row] != group || (range && !ranges) || isnan(numbers[rate][row]) || !(numbers[from][row] > 0))
            continue;
        done += isnan(numbers[work][row]) ? 0 : numbers[work][row];
        times += numbers[from][row];
    }
    return times > 0 ? (double)(done / times) : (double)NAN;
}

static bool near(double a, double b)
{
    return (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-12 * fabs(b);
}

#define CHECK_NEAR(a, b) CHECK(near(a, b), "group %d: %.17g is not %.17g", group, a, b)

static void check_group(int group, bool ranges, bool on_device)
{
    const fs_group_sum *sum = &sums[group];
    int64_t count = 0, memory = 0, rows = 0;
    for (int row = 0; row < ROWS; row++) {
        count += groups[row] == group ? integers[FS_SUMMED_count][row] : 0;
        rows += lies_within(groups[row], group, true);
        memory += lies_within(groups[row], group, true) ? integers[FS_SUMMED_self_cpu_memory_usage][row] : 0;
    }
    CHECK(sum->count == count && sum->rows == rows && sum->cpu_memory_usage == memory);
    CHECK_NEAR(sum->self_cpu_time_total, sum_of(FS_SUMMED_self_cpu_time_total, group, false, true));
    CHECK_NEAR(sum->device_time_total, sum_of(FS_SUMMED_self_device_time_total, group, true, true));
    CHECK_NEAR(sum->device_busy_time, sum_of(FS_SUMMED_device_busy_time, group, false, ranges));
    CHECK_NEAR(sum->flops, sum_of(FS_SUMMED_flops, group, false, ranges));
    CHECK_NEAR(sum->flops_total, sum_of(FS_SUMMED_flops, group, true, ranges));
    CHECK_NEAR(sum->headroom, sum_of(FS_SUMMED_headroom, group, false, ranges));
    CHECK_NEAR(sum->pct_peak_flops, share_of(FS_SUMMED_pct_peak_flops, group, false, ranges));
    CHECK_NEAR(sum->pct_roofline_total, share_of(FS_SUMMED_pct_roofline, group, true, ranges));
    CHECK_NEAR(sum->tflops_per_s * 1e6, rate_of(FS_SUMMED_flops, FS_SUMMED_tflops_per_s, group, ranges, on_device));
    CHECK_NEAR(sum->gbytes_per_s * 1e3,
               rate_of(FS_SUMMED_bytes_total_moved, FS_SUMMED_gbytes_per_s, group, ranges, on_device));
}

static void test_groups_add_up_what_is_known_of_their_rows(void)
{
    for (int round = 0; round < 40; round++) {
        bool ops_have_work = round % 2 != 0, on_device = round % 4 > 1, has_left;
        fs_group_request one = request;
        fs_error err;
        make_rows(ops_have_work);
        one.on_device = on_device;
        CHECK_OK(fs_group_sums(&one, sums, &has_left, &err));
        CHECK(!has_left);
        for (int group = 0; group < GROUPS; group++) check_group(group, !ops_have_work, on_device);
    }
}

static void test_device_time_of_no_group_is_one_more_sum(void)
{
    fs_error err;
    bool has_left;
    fs_group_request one = request;
    make_rows(true);
    double all = 0;
    for (int group = 0; group < GROUPS; group++) {
        double time = sum_of(FS_SUMMED_self_device_time_total, group, false, true);
        all += isnan(time) ? 0 : time;
    }
    one.device_time = 2 * all;
    CHECK_OK(fs_group_sums(&one, sums, &has_left, &err));
    CHECK(has_left && near(sums[GROUPS].device_busy_time, all) && isnan(sums[GROUPS].flops));
    one.device_time = all + 0.5; /* 0.001 µs for each of more than a thousand calls */
    CHECK_OK(fs_group_sums(&one, sums, &has_left, &err));
    CHECK(!has_left);
}

static void test_without_parents_total_times_are_those_of_the_rows(void)
{
    fs_error err;
    bool has_left;
    fs_group_request one = request;
    make_rows(true);
    for (int row = 0; row < ROWS; row++) groups[row] = 0;
    one.parents = NULL;
    one.group_count = 1;
    integers[FS_SUMMED_cpu_memory_usage][0] = integers[FS_SUMMED_cpu_memory_usage][1] = INT64_MAX;
    for (int row = 2; row < ROWS; row++) integers[FS_SUMMED_cpu_memory_usage][row] = 0;
    CHECK_OK(fs_group_sums(&one, sums, &has_left, &err));
    CHECK(near(sums[0].cpu_time_total, sum_of(FS_SUMMED_cpu_time_total, 0, false, true)));
    CHECK(sums[0].cpu_memory_usage == INT64_MAX); /* saturated */
}

static void test_wrong_groups_and_failed_allocations_are_reported(void)
{
    fs_error err;
    bool has_left;
    make_rows(true);
    groups[3] = GROUPS;
    CHECK(fs_group_sums(&request, sums, &has_left, &err) == FS_VALUE_ERROR);
    groups[3] = -2;
    CHECK(fs_group_sums(&request, sums, &has_left, &err) == FS_VALUE_ERROR);
    groups[3] = -1;
    parents[4] = 4;
    CHECK(fs_group_sums(&request, sums, &has_left, &err) == FS_VALUE_ERROR);
    parents[4] = 3;
    fs_memory_fail_at(1);
    CHECK(fs_group_sums(&request, sums, &has_left, &err) == FS_OUT_OF_MEMORY);
    fs_memory_fail_at(0);
    CHECK_OK(fs_group_sums(&request, sums, &has_left, &err));
    CHECK(fs_memory_live() == 0);
}

int main(void)
{
    test_groups_add_up_what_is_known_of_their_rows();
    test_device_time_of_no_group_is_one_more_sum();
    test_without_parents_total_times_are_those_of_the_rows();
    test_wrong_groups_and_failed_allocations_are_reported();
    if (failures == 0) printf("group sums: passed\n");
    return failures != 0;
}
