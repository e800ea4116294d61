/* The sums of counted.h are complete once busy times are, before any work is added, so that coverage, rows and pieces
 * of work all see the same. */
#include "table/counted_rows.h"

#include "base/memory.h"
#include "base/saturate.h"
#include "table/totals.h"

/* What is counted of the multiprocessors and bounds their work: each a share of its own peak. Issue comes last. */
static const struct {
    fs_metric metric;
    fs_bound bound;
} units[] = {
    {FS_METRIC_TENSOR_ACTIVE, FS_BOUND_TENSOR}, {FS_METRIC_FMA_ACTIVE, FS_BOUND_FMA},
    {FS_METRIC_FP64_ACTIVE, FS_BOUND_FP64},     {FS_METRIC_ALU_ACTIVE, FS_BOUND_ALU},
    {FS_METRIC_ISSUE_ACTIVE, FS_BOUND_ISSUE},
};

enum { UNITS = sizeof units / sizeof *units };

/* What is read from the memory or written to it passes the caches, which bound the time only if they are busier than it
 * by this share of the time. */
static const double busier = 0.03;

/* A slice of a GH100's L2 takes three sectors a cycle. From x of them in a cycle that come over the fabric between its
 * halves follow the fabric's busy cycles, of which samples have no counter: x (3 - 2 x), and 1 from x = 0.5 on. That is
 * a fit to Nsight Compute's counts: of 77 kernels from 15 µs on, on H100 and H200, 73 are within 7 points. Loads of
 * single sectors have up to 11 more, and writes of parts of sectors, which ask for the rest of them, less. */
static const double sectors_per_cycle = 3, most_sectors = 0.5;

/* A pipe that takes this part of all instructions bounds the work, not their issue: it takes one in each slot. */
static const double most_issued = 0.9;

/* Below this share of active multiprocessors, in percent, no unit of them was busy enough to bound the time, nor was
 * a cache. Neither was the L2 if it served less than this share of its bandwidth or, where that is unknown, of the
 * memory's, which is lower. */
static const double idle_percent = 10;

/* The caches, of which a part may be busier than their bytes say: tags, data, the fabric between the halves of the L2.
 */
static double l2_percent(const fs_counted_sum *total)
{
    return fmax(fs_counted_value(total, FS_METRIC_L2_ACTIVE), fs_counted_fabric(total));
}

/* Whether neither a cache nor a unit of the multiprocessors can have been busier than those that were counted. */
static bool is_whole(const fs_counted_sum *total, double l2_ns)
{
    if (fs_counted_value(total, FS_METRIC_SM_ACTIVE) < idle_percent) return true;
    for (int i = 0; i < UNITS; i++)
        if (isnan(fs_counted_value(total, units[i].metric))) return false;
    if (l2_percent(total) >= idle_percent || fs_counted_value(total, FS_METRIC_L1_ACTIVE) >= idle_percent) return false;
    return 100 * l2_ns < idle_percent * (double)total->ns;
}

double fs_counted_fabric(const fs_counted_sum *total)
{
    double sectors = sectors_per_cycle * fs_counted_value(total, FS_METRIC_L2_FABRIC) / 100;
    return sectors < most_sectors ? 100 * sectors * (3 - 2 * sectors) : isnan(sectors) ? (double)NAN : 100;
}

/* The mean of something of the peaks over the devices of a row: the bytes and the time are divided as its work is. */
typedef struct {
    double memory, l2, kernel_ns; /* ns per byte; time of an empty kernel */
    bool rated;                   /* some device has peaks */
} mean_peaks;

static mean_peaks peaks_of(const fs_build *build, const fs_call *call, const fs_counted_sum *sums, int64_t ns)
{
    mean_peaks mean = {.rated = false};
    for (uint32_t i = 0; i < build->counted.devices; i++) {
        if (sums[i].ns == 0) continue;
        const fs_peaks *peaks = fs_build_peaks(build, call, build->counted.numbers[i]);
        double part = (double)sums[i].ns / (double)ns;
        mean.memory += part * (peaks != NULL ? 1e9 / peaks->bandwidth : (double)NAN);
        mean.l2 += part * (peaks != NULL ? 1e9 / peaks->l2_bandwidth : (double)NAN);
        mean.kernel_ns += part * (peaks != NULL ? peaks->kernel_ns : (double)NAN);
        mean.rated = mean.rated || peaks != NULL;
    }
    if (isnan(mean.kernel_ns) && mean.rated && build->shortest_kernel_ns > 0)
        mean.kernel_ns = (double)build->shortest_kernel_ns;
    return mean;
}

static void compare_cache(fs_counted_row *row, fs_bound cache, double busy_ns)
{
    if (isnan(busy_ns) || busy_ns <= row->busiest_ns || busy_ns <= row->memory_ns + busier * (double)row->ns) return;
    row->busiest = cache;
    row->busiest_ns = busy_ns;
}

/* Find the busiest of the units, and of the units and the caches. */
static void find_busiest(const fs_counted_sum *total, fs_counted_row *row)
{
    for (int i = 0; i < UNITS; i++) {
        double share = fs_counted_value(total, units[i].metric) / 100;
        double least = units[i].bound == FS_BOUND_ISSUE ? row->active / most_issued : row->active;
        if (isnan(share) || share <= least) continue;
        row->busiest = units[i].bound;
        row->active = share;
    }
    row->compute_ns = row->busiest_ns = row->active * (double)total->ns;
    compare_cache(row, FS_BOUND_L2, row->l2_ns);
    compare_cache(row, FS_BOUND_L2, l2_percent(total) / 100 * (double)total->ns);
    compare_cache(row, FS_BOUND_L1, fs_counted_value(total, FS_METRIC_L1_ACTIVE) / 100 * (double)total->ns);
}

static fs_counted_row count_row(const fs_build *build, uint32_t index)
{
    fs_counted_sum *sums = &build->counted_sums[(size_t)index * build->counted.devices];
    fs_counted_sum total = fs_counted_total(sums, build->counted.devices);
    fs_counted_row row = {.ns = total.ns, .bytes_moved = NAN, .active = NAN, .l2_ns = NAN};
    row.compute_ns = row.busiest_ns = NAN;
    if (total.ns == 0 || total.apart) return row;
    row.bytes_read = fs_counted_value(&total, FS_METRIC_DRAM_READ);
    row.bytes_written = fs_counted_value(&total, FS_METRIC_DRAM_WRITTEN);
    row.bytes_moved = isnan(row.bytes_written) ? fs_counted_traffic(&total) : row.bytes_read + row.bytes_written;
    mean_peaks peaks = peaks_of(build, fs_build_call(build, build->groups[index].first), sums, row.ns);
    double l2_bytes = fs_counted_value(&total, FS_METRIC_L2);
    row.memory_ns = row.bytes_moved * peaks.memory;
    row.l2_ns = l2_bytes * peaks.l2;
    row.kernel_ns = peaks.kernel_ns;
    find_busiest(&total, &row);
    if (!peaks.rated) {
        row.busiest = FS_BOUND_UNKNOWN;
        row.compute_ns = row.busiest_ns = NAN;
    }
    row.whole = is_whole(&total, isnan(row.l2_ns) ? l2_bytes * peaks.memory : row.l2_ns);
    return row;
}

fs_status fs_counted_rows_find(fs_build *build, fs_error *err)
{
    if (build->counted_sums == NULL) return FS_OK;
    FS_TRY(FS_NEW(&build->counted_rows, build->group_count, err));
    for (uint32_t i = 0; i < build->group_count; i++) build->counted_rows[i] = count_row(build, i);
    for (uint32_t i = 1; i < build->slice_count; i++) build->rest[i - 1].counted_rows = build->counted_rows;
    return FS_OK;
}

/* The rules know the work of some calls of such a row, or a part of its time is that of other work. */
static bool is_mixed(const fs_group *group)
{
    if (group->row.on_device) return false;
    return group->owned_by_others || group->untimed || group->unrecorded || group->host_ns > 0 || group->unrated_ns > 0;
}

void fs_counted_row_fill(const fs_build *build, fs_group *group)
{
    fs_row *row = &group->row;
    const fs_counted_row *counted = fs_counted_row_of(build, (uint32_t)(group - build->groups));
    if (counted == NULL || is_mixed(group)) return;
    bool open = isnan(row->bytes_total_moved) || group->limited, flops = isnan(row->flops);
    bool bytes = open && !isnan(counted->bytes_moved);
    if (!bytes && !flops) return;
    fs_roof *roof = &row->roof;
    if (bytes) {
        row->bytes_read = counted->bytes_read;
        row->bytes_written = counted->bytes_written;
        row->bytes_total_moved = counted->bytes_moved;
        row->bytes_source = FS_SOURCE_COUNTED;
        roof->memory_ns = counted->memory_ns;
    }
    if (flops) roof->compute_ns = counted->compute_ns;
    roof->busiest = counted->busiest;
    roof->busiest_ns = counted->busiest_ns;
    roof->least_ns = fmax(fmax(roof->compute_ns, roof->memory_ns), roof->busiest_ns);
    roof->partial = isnan(roof->compute_ns) || isnan(roof->memory_ns) || (flops && !counted->whole);
    roof->counted = !isnan(roof->memory_ns) && (bytes || !isnan(roof->compute_ns));
    if (!row->on_device) return;
    group->untimed = false; /* the work of some of its kernels is that of their ops, but the counters saw all of it */
    roof->launches = (double)row->count;
    roof->kernel_ns = (double)row->count * counted->kernel_ns;
}

/* From this share of its peak on, what was busiest bounds a row, in percent. */
static const double busy_percent = 50;

void fs_counted_row_judge(const fs_build *build, fs_group *group)
{
    fs_row *row = &group->row;
    const fs_counted_row *counted = fs_counted_row_of(build, (uint32_t)(group - build->groups));
    if (counted == NULL || is_mixed(group)) return;
    bool cached = row->bound == FS_BOUND_CACHE;
    bool open = row->bound == FS_BOUND_LATENCY || row->bound == FS_BOUND_INEFFICIENT || cached ||
                (row->bound == FS_BOUND_MEMORY && row->pct_roofline < busy_percent);
    bool memory = counted->memory_ns >= counted->busiest_ns || isnan(counted->busiest_ns);
    double busy_ns = memory ? counted->memory_ns : counted->busiest_ns;
    if (!open || (cached && memory) || !(100 * busy_ns >= busy_percent * (double)row->device_busy_time)) return;
    row->bound = memory ? FS_BOUND_MEMORY : counted->busiest;
}

void fs_counted_work_fill(const fs_build *build, fs_table_work *work)
{
    const fs_call *owner = work->owner != FS_NONE ? fs_build_call(build, work->owner) : NULL;
    bool limited = owner != NULL && owner->launch && owner->work.at_most;
    if (!limited && !isnan(work->least_ns) && !isnan(work->memory_ns)) return;
    const fs_counted_row *counted = work->own_row != FS_NONE ? fs_counted_row_of(build, work->own_row) : NULL;
    if (counted == NULL) return;
    if (limited && !isnan(counted->memory_ns)) work->memory_ns = NAN;
    double share = (double)fs_sub_saturated(work->end, work->start) / (double)counted->ns;
    if (isnan(work->memory_ns)) work->memory_ns = counted->memory_ns * share;
    work->active = isnan(work->compute_ns);
    if (work->active) work->compute_ns = fmax(counted->compute_ns, counted->busiest_ns) * share;
    work->least_ns = fmax(fmax(work->compute_ns, work->memory_ns), counted->busiest_ns * share);
    work->counted = true;
}
