#include "table/roofline.h"

#include <math.h>

#define BOUND_NAME(NAME, name, prose) [FS_BOUND_##NAME] = #name,
const char *const fs_bound_names[FS_BOUND_COUNT] = {FS_BOUND_LIST(BOUND_NAME)};

/* More than this share of the peak bandwidth, in percent, is no measuring error: the data sat in cache. */
static const double cache_percent = 105;
/* A call of fewer times an empty one's time than this is the launch and little else. */
static const double launch_factor = 2;

/* A term of no work is 0 whatever the peak. */
static double term_ns(double amount, double rate)
{
    return amount == 0 ? 0 : amount / rate * 1e9;
}

/* The rate of the slowest unit whose rate is known; NaN where none is. */
static double slowest_flops(const fs_peaks *peaks)
{
    double slowest = NAN;
    for (int unit = 0; unit < FS_UNIT_COUNT; unit++) slowest = fmin(slowest, peaks->flops[unit]);
    return slowest;
}

fs_roof fs_roof_of(const fs_work *work, const fs_peaks *peaks)
{
    if (peaks == NULL) return (fs_roof){NAN, NAN, NAN, NAN, NAN};
    fs_roof roof = {
        .compute_ns = term_ns(work->flops, fs_peaks_flops(peaks, work->unit, NULL)),
        .memory_ns = term_ns(work->bytes_moved, peaks->bandwidth),
        .launch_ns = peaks->launch_ns,
        .kernel_ns = peaks->kernel_ns,
    };
    double compute_ns = work->unit.preferred == FS_UNIT_NONE ? 0 : roof.compute_ns;
    if (work->any_unit) {
        double longest_ns = term_ns(work->flops, slowest_flops(peaks));
        compute_ns = longest_ns <= roof.memory_ns ? longest_ns : NAN;
    }
    roof.least_ns = isnan(compute_ns) || isnan(roof.memory_ns) ? NAN : fmax(compute_ns, roof.memory_ns);
    return roof;
}

static fs_bound bound_of(const fs_row *row, const fs_roof *roof, double time_ns)
{
    bool none = row->flops == 0 && row->bytes_total_moved == 0;
    if (none || isnan(roof->least_ns) || isnan(time_ns)) return FS_BOUND_UNKNOWN;
    bool from_outside =
        row->timing == FS_TIMING_EVENT || (row->timing == FS_TIMING_CPU && isnan(roof->kernel_ns));
    if (time_ns <= launch_factor * (from_outside ? roof->launch_ns : roof->kernel_ns)) return FS_BOUND_LAUNCH;
    if (roof->compute_ns > roof->memory_ns) return FS_BOUND_COMPUTE;
    return row->pct_peak_bandwidth > cache_percent ? FS_BOUND_CACHE : FS_BOUND_MEMORY;
}

void fs_roofline_fill(fs_row *row, const fs_roof *roof, double time_ns)
{
    if (!(time_ns > 0)) time_ns = NAN;
    row->tflops_per_s = row->flops / time_ns / 1e3;
    row->gbytes_per_s = row->bytes_total_moved / time_ns;
    row->arithmetic_intensity = row->bytes_total_moved > 0 ? row->flops / row->bytes_total_moved : NAN;
    row->pct_peak_flops = 100 * roof->compute_ns / time_ns;
    row->pct_peak_bandwidth = 100 * roof->memory_ns / time_ns;
    row->pct_roofline = 100 * roof->least_ns / time_ns;
    row->bound = bound_of(row, roof, time_ns);
}
