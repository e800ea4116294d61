/* A group's sum is that of its rows, each once. Work counts once as well: what a program states for a range is the work
 * of the ops in it, so ranges have work only if no op of any group has. Unknown values are left out of sums, and a
 * mean or a rate is of the rows that have it; of none, it is unknown.
 *
 *   rows        op  op  range  op  kernel
 *   groups       0   1      0   2     -1
 *   parents      -   0          1             sums[1] adds its totals to sums[0], after sums[2] added its own to it
 *
 * A parent precedes its groups, so from the last group to the first each has the totals of all within it when it is
 * added to its parent. */
#include "table/group_sums.h"

#include <math.h>

#include "base/memory.h"
#include "base/saturate.h"

static const double us_per_tera = 1e6, us_per_giga = 1e3; /* 1e12 FLOP/s are 1e6 FLOP/µs */
static const double rounding = 0.001;                     /* µs: times are whole ns */

/* A sum of the values that are known, and what its additions rounded off (Neumaier). */
typedef struct {
    double sum, lost;
    bool known;
} exact;

/* Values that are weighted, and their weights. */
typedef struct {
    exact weighted, weights;
} mean;

/* What a group's sum is made of. */
typedef struct {
    exact sums[FS_SUMMED_NUMBER_COUNT];
    mean tflops, gbytes, peak_flops, peak_bandwidth, roofline;
} partial;

static void add_to(exact *to, double value)
{
    if (isnan(value)) return;
    double sum = to->sum + value;
    if (isfinite(sum)) to->lost += fabs(to->sum) >= fabs(value) ? to->sum - sum + value : value - sum + to->sum;
    to->sum = sum;
    to->known = true;
}

static double value_of(const exact *of)
{
    return of->sum + of->lost;
}

static double known_or_nan(const exact *of)
{
    return of->known ? value_of(of) : (double)NAN;
}

static double mean_of(const mean *of)
{
    double weights = value_of(&of->weights);
    return weights > 0 ? value_of(&of->weighted) / weights : (double)NAN;
}

static double add_known(double a, double b)
{
    if (isnan(a)) return b;
    return isnan(b) ? a : a + b;
}

#define INTEGER(request, name, row) ((request)->integers[(size_t)FS_SUMMED_##name * (request)->row_count + (row)])
#define NUMBER(request, name, row) ((request)->numbers[(size_t)FS_SUMMED_##name * (request)->row_count + (row)])

static void add_share(mean *to, double share, double time)
{
    if (isnan(share) || isnan(time)) return;
    add_to(&to->weighted, share * time);
    add_to(&to->weights, time);
}

static void add_rated(mean *to, double rate, double work, double time)
{
    if (isnan(rate) || !(time > 0)) return;
    add_to(&to->weighted, work);
    add_to(&to->weights, time);
}

/* The µs that a row's rates refer to: of a range with stated work, its whole duration. */
static double rated_time(const fs_group_request *request, uint32_t row)
{
    if (request->on_device) return NUMBER(request, device_busy_time, row);
    if (INTEGER(request, is_user_annotation, row) != 0) return NUMBER(request, cpu_time_total, row);
    return NUMBER(request, self_cpu_time_total, row);
}

static void add_times(const fs_group_request *request, uint32_t row, partial *to, fs_group_sum *sum)
{
#define ADD_INTEGER(name) fs_add_to(&sum->name, INTEGER(request, name, row));
    ADD_INTEGER(count)
    ADD_INTEGER(self_cpu_memory_usage)
    ADD_INTEGER(cpu_memory_usage)
    ADD_INTEGER(self_device_memory_usage)
    ADD_INTEGER(device_memory_usage)
#undef ADD_INTEGER
    for (int column = FS_SUMMED_self_cpu_time_total; column <= FS_SUMMED_device_time_total; column++)
        add_to(&to->sums[column], request->numbers[(size_t)column * request->row_count + row]);
    sum->rows++;
}

static void add_work(const fs_group_request *request, uint32_t row, partial *to, fs_group_sum *sum)
{
    double limit = NUMBER(request, roofline_time, row) + NUMBER(request, headroom, row);
    double time = rated_time(request, row);
    for (int column = FS_SUMMED_device_busy_time; column <= FS_SUMMED_headroom; column++)
        add_to(&to->sums[column], request->numbers[(size_t)column * request->row_count + row]);
    add_rated(&to->tflops, NUMBER(request, tflops_per_s, row), NUMBER(request, flops, row), time);
    add_rated(&to->gbytes, NUMBER(request, gbytes_per_s, row), NUMBER(request, bytes_total_moved, row), time);
    add_share(&to->peak_flops, NUMBER(request, pct_peak_flops, row), limit);
    add_share(&to->peak_bandwidth, NUMBER(request, pct_peak_bandwidth, row), limit);
    add_share(&to->roofline, NUMBER(request, pct_roofline, row), limit);
    if (sum->first < 0) sum->first = row;
}

/* Whether no op's work is known, so that the work stated for ranges counts. */
static bool only_ranges_have_work(const fs_group_request *request)
{
    for (uint32_t row = 0; row < request->row_count; row++) {
        if (request->groups[row] < 0 || INTEGER(request, is_user_annotation, row) != 0) continue;
        if (!isnan(NUMBER(request, flops, row)) || !isnan(NUMBER(request, bytes_total_moved, row))) return false;
    }
    return true;
}

static void add_rows(const fs_group_request *request, partial *parts, fs_group_sum *sums)
{
    bool ranges = only_ranges_have_work(request);
    for (uint32_t row = 0; row < request->row_count; row++) {
        int64_t group = request->groups[row];
        if (group < 0) continue;
        add_times(request, row, &parts[group], &sums[group]);
        if (ranges || INTEGER(request, is_user_annotation, row) == 0)
            add_work(request, row, &parts[group], &sums[group]);
    }
}

/* What follows from the parts of a group alone. */
static void finish(const partial *of, fs_group_sum *sum)
{
#define SUM(name) sum->name = value_of(&of->sums[FS_SUMMED_##name]);
#define KNOWN(name) sum->name = known_or_nan(&of->sums[FS_SUMMED_##name]);
    SUM(self_cpu_time_total)
    SUM(cpu_time_total)
    SUM(self_device_time_total)
    SUM(device_time_total)
    SUM(device_busy_time)
    KNOWN(flops)
    KNOWN(bytes_read)
    KNOWN(bytes_written)
    KNOWN(bytes_total_moved)
    KNOWN(roofline_time)
    KNOWN(headroom)
#undef SUM
#undef KNOWN
    sum->flops_total = sum->flops;
    sum->tflops_per_s = mean_of(&of->tflops) / us_per_tera;
    sum->gbytes_per_s = mean_of(&of->gbytes) / us_per_giga;
    bool moved = sum->bytes_total_moved > 0 || sum->bytes_total_moved < 0;
    sum->arithmetic_intensity = moved ? sum->flops / sum->bytes_total_moved : (double)NAN;
    sum->pct_peak_flops = mean_of(&of->peak_flops);
    sum->pct_peak_bandwidth = mean_of(&of->peak_bandwidth);
    sum->pct_roofline = sum->pct_roofline_total = mean_of(&of->roofline);
}

/* Add the totals of a group to those of the group around it. */
static void add_group(const partial *from, const fs_group_sum *inner, partial *to, fs_group_sum *outer)
{
    outer->rows += inner->rows;
    outer->cpu_time_total += inner->cpu_time_total;
    outer->device_time_total += inner->device_time_total;
    fs_add_to(&outer->cpu_memory_usage, inner->cpu_memory_usage);
    fs_add_to(&outer->device_memory_usage, inner->device_memory_usage);
    outer->flops_total = add_known(outer->flops_total, inner->flops_total);
    if (isnan(inner->pct_roofline_total)) return;
    add_to(&to->roofline.weighted, value_of(&from->roofline.weighted));
    add_to(&to->roofline.weights, value_of(&from->roofline.weights));
}

static void nest(const fs_group_request *request, partial *parts, fs_group_sum *sums)
{
    for (uint32_t group = 0; group < request->group_count; group++) {
        sums[group].cpu_time_total = sums[group].self_cpu_time_total;
        sums[group].device_time_total = sums[group].self_device_time_total;
        sums[group].cpu_memory_usage = sums[group].self_cpu_memory_usage;
        sums[group].device_memory_usage = sums[group].self_device_memory_usage;
    }
    for (uint32_t group = request->group_count; group-- > 0;) {
        int64_t parent = request->parents[group];
        sums[group].pct_roofline_total = mean_of(&parts[group].roofline);
        if (parent >= 0) add_group(&parts[group], &sums[group], &parts[parent], &sums[parent]);
    }
}

/* Put the device time that belongs to no group into one more sum. Return whether it is more than rounding loses. */
static bool take_left(const fs_group_request *request, fs_group_sum *sums)
{
    exact times = {0};
    int64_t count = 0;
    for (uint32_t group = 0; group < request->group_count; group++) {
        add_to(&times, sums[group].self_device_time_total);
        fs_add_to(&count, sums[group].count);
    }
    double time = request->device_time - value_of(&times);
    fs_group_sum *left = &sums[request->group_count];
    left->self_device_time_total = left->device_time_total = left->device_busy_time = time;
    return time > rounding * (double)(count > 1 ? count : 1);
}

static fs_status check(const fs_group_request *request, fs_error *err)
{
    for (uint32_t row = 0; row < request->row_count; row++) {
        if (request->groups[row] < -1 || request->groups[row] >= request->group_count)
            return fs_fail(err, FS_VALUE_ERROR, "row %u is in group %lld of %u", row, (long long)request->groups[row],
                           request->group_count);
    }
    for (uint32_t group = 0; request->parents != NULL && group < request->group_count; group++) {
        if (request->parents[group] < -1 || request->parents[group] >= group)
            return fs_fail(err, FS_VALUE_ERROR, "group %u is in group %lld, which must precede it", group,
                           (long long)request->parents[group]);
    }
    return FS_OK;
}

fs_status fs_group_sums(const fs_group_request *request, fs_group_sum *sums, bool *has_left, fs_error *err)
{
    FS_TRY(check(request, err));
    size_t count = (size_t)request->group_count + 1;
    partial *parts = fs_calloc(count, sizeof *parts);
    if (parts == NULL) return fs_no_memory(err);
    for (size_t group = 0; group < count; group++) sums[group] = (fs_group_sum){.first = -1};
    add_rows(request, parts, sums);
    for (size_t group = 0; group < count; group++) finish(&parts[group], &sums[group]);
    if (request->parents != NULL) nest(request, parts, sums);
    *has_left = take_left(request, sums);
    fs_free(parts);
    return FS_OK;
}
