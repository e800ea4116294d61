/* A roof knows the least time of some work as far as it can be known: a term of which the work or the peak is missing
 * is NaN, and a missing term never counts as 0. Sums add terms, and so become NaN with the first unknown one. A bound
 * is decided by tests in a fixed order, each with its threshold named below: what cannot be true (more than a cache
 * could deliver) and what hides the work (the launch) come before the larger of the two terms. */
#include "roofline/roofline.h"

#include <math.h>

const fs_bound_row fs_bounds[FS_BOUND_COUNT] = {
#define FS_BOUND(NAME, name, part, COLOUR, terminal, meaning) {#name, part, terminal, meaning, FS_COLOUR_##COLOUR},
#include "roofline/bounds.def"
#undef FS_BOUND
};

/* Above this share of the peak bandwidth, in percent, the excess is not a measuring error: the data was in the
 * cache. */
static const double cache_percent = 105;
/* Above this share no cache that all of a GPU reads from explains it, as the largest L2s reach a few times the
 * bandwidth of the memory: the bytes are wrong. */
static const double impossible_percent = 1000;
/* A launch that takes less than this factor times the sum of an empty one and the work is bound by the launch. */
static const double launch_factor = 2;
/* If only the FLOPs or only the bytes are known, they bound the time only above this share of it, in percent. Below,
 * the unknown term may. */
static const double majority_percent = 50;
/* Below this share of the roofline, in percent, the work does not explain the time. Even the worst access pattern of
 * streaming code, one 4-byte element out of each 32-byte sector, reaches an eighth of the bandwidth. Anything below a
 * tenth waits for something else, such as dependent steps, synchronisation or too little parallelism. */
static const double latency_percent = 10;
/* A launch longer than this is not waiting for the fixed costs of a launch and a few dependent accesses to memory, of a
 * microsecond or two each: it uses the device badly throughout. */
static const double long_ns = 50e3;

const fs_roof fs_roof_unknown = {NAN, NAN, NAN, NAN, NAN, FS_UNIT_NONE, 0, false, 1, false, FS_BOUND_UNKNOWN, NAN};

/* The term of no work is 0 for any peak. */
static double term_ns(double amount, double rate)
{
    return amount == 0 ? 0 : amount / rate * 1e9;
}

/* The rate of the slowest unit with a known rate, or NaN. */
static double slowest_flops(const fs_peaks *peaks)
{
    double slowest = NAN;
    for (int unit = 0; unit < FS_UNIT_COUNT; unit++) slowest = fmin(slowest, peaks->flops[unit]);
    return slowest;
}

/* Whether the unit that executes the FLOPs is unknown. */
static bool on_any_unit(const fs_work *work)
{
    return work->stated && work->unit.preferred == FS_UNIT_NONE;
}

static double least_of(const fs_work *work, const fs_roof *roof, const fs_peaks *peaks)
{
    double compute_ns = roof->compute_ns;
    bool unit_unknown = work->flops > 0 && work->unit.preferred == FS_UNIT_NONE && !work->stated;
    if (isnan(work->bytes_moved) && unit_unknown) return NAN;
    if (isnan(work->flops)) return work->bytes_moved > 0 ? roof->memory_ns : (double)NAN;
    if (isnan(work->bytes_moved) && work->flops == 0) return NAN;
    if (on_any_unit(work)) {
        double longest_ns = term_ns(work->flops, slowest_flops(peaks));
        compute_ns = longest_ns <= roof->memory_ns || work->flops == 0 ? longest_ns : (double)NAN;
    } else if (work->unit.preferred == FS_UNIT_NONE) {
        compute_ns = 0; /* integers, data movement: no unit has a peak for them */
    }
    if (isnan(work->bytes_moved)) return compute_ns;
    return isnan(compute_ns) || isnan(roof->memory_ns) ? (double)NAN : fmax(compute_ns, roof->memory_ns);
}

fs_roof fs_roof_of(const fs_work *work, const fs_peaks *peaks)
{
    fs_roof roof = fs_roof_unknown;
    if (work->between) return roof;
    bool computes = work->flops > 0 && work->unit.preferred != FS_UNIT_NONE;
    if (computes) {
        roof.unit = work->unit.preferred;
        roof.unit_flops = work->flops;
    }
    roof.partial = !work->stated && isnan(work->flops) != isnan(work->bytes_moved);
    if (peaks == NULL) return roof;
    fs_unit used;
    roof.compute_ns = term_ns(work->flops, fs_peaks_flops(peaks, work->unit, &used));
    roof.memory_ns = term_ns(work->bytes_moved, peaks->bandwidth);
    roof.least_ns = least_of(work, &roof, peaks);
    roof.launch_ns = peaks->launch_ns;
    roof.kernel_ns = peaks->kernel_ns;
    if (computes && used != FS_UNIT_NONE) roof.unit = used;
    return roof;
}

void fs_roof_sum_add(fs_roof_sum *sum, const fs_roof *roof)
{
    sum->compute_ns += roof->compute_ns;
    sum->memory_ns += roof->memory_ns;
    sum->least_ns += roof->least_ns;
    sum->partial = sum->partial || roof->partial;
    if (roof->unit != FS_UNIT_NONE) sum->unit_flops[roof->unit] += roof->unit_flops;
}

void fs_roof_sum_launch(fs_roof_sum *sum, const fs_roof *roof, double count)
{
    sum->launch_ns += count * roof->launch_ns;
    sum->kernel_ns += count * roof->kernel_ns;
    sum->launches += count * roof->launches;
}

fs_roof fs_roof_sum_total(const fs_roof_sum *sum)
{
    fs_roof total = fs_roof_unknown;
    total.compute_ns = sum->compute_ns;
    total.memory_ns = sum->memory_ns;
    total.least_ns = sum->least_ns;
    total.launch_ns = sum->launch_ns;
    total.kernel_ns = sum->kernel_ns;
    total.partial = sum->partial;
    total.launches = sum->launches;
    for (int unit = 0; unit < FS_UNIT_COUNT; unit++) {
        if (sum->unit_flops[unit] <= total.unit_flops) continue;
        total.unit = (fs_unit)unit;
        total.unit_flops = sum->unit_flops[unit];
    }
    return total;
}

/* The time of that many empty launches, as the timing source measures it, or NaN. */
static double empty_ns(const fs_roof *roof, fs_timing timing)
{
    bool from_outside = timing == FS_TIMING_EVENT || (timing == FS_TIMING_CPU && isnan(roof->kernel_ns));
    return from_outside ? roof->launch_ns : roof->kernel_ns;
}

/* In a sum of calls a term is unknown if it is unknown for one of them. The other term decides if it makes up most of
 * the minimum time. */
static fs_bound larger_term(const fs_roof *roof)
{
    if (roof->busiest != FS_BOUND_UNKNOWN && roof->busiest_ns >= roof->least_ns) return roof->busiest;
    bool whole = !isnan(roof->compute_ns) && !isnan(roof->memory_ns);
    if (!whole && !(2 * fmax(roof->compute_ns, roof->memory_ns) >= roof->least_ns)) return FS_BOUND_UNKNOWN;
    return roof->compute_ns > roof->memory_ns || isnan(roof->memory_ns) ? FS_BOUND_COMPUTE : FS_BOUND_MEMORY;
}

static fs_bound bound_of(const fs_roof *roof, const fs_rating *rating, double time_ns, fs_timing timing)
{
    bool known = roof->least_ns > 0 || (roof->counted && roof->least_ns == 0); /* nothing was counted: that is known */
    if (!known || isnan(time_ns)) return FS_BOUND_UNKNOWN;
    /* Work that takes longer than the launch is never bound by it, however short. Otherwise the bound would alternate
     * with small changes in time. */
    double empty = empty_ns(roof, timing);
    fs_bound bound = larger_term(roof);
    if (bound == FS_BOUND_MEMORY && rating->pct_peak_bandwidth > cache_percent)
        return rating->pct_peak_bandwidth > impossible_percent && timing != FS_TIMING_CPU ? FS_BOUND_UNKNOWN
                                                                                          : FS_BOUND_CACHE;
    if (roof->least_ns <= empty && time_ns <= launch_factor * (empty + roof->least_ns)) return FS_BOUND_LAUNCH;
    bool minor = rating->pct_roofline < majority_percent;
    /* Of what was counted, the larger term bounds nothing that it does not fill. */
    if (roof->counted && minor && (roof->partial || rating->pct_roofline >= latency_percent)) return FS_BOUND_OTHER;
    if (roof->partial && minor) return FS_BOUND_UNKNOWN;
    if (rating->pct_roofline < latency_percent)
        return time_ns > long_ns * fmax(roof->launches, 1) ? FS_BOUND_INEFFICIENT : FS_BOUND_LATENCY;
    return bound;
}

fs_rating fs_roof_rate(const fs_roof *roof, double flops, double bytes, double time_ns, fs_timing timing)
{
    if (!(time_ns > 0)) time_ns = NAN;
    fs_rating rating = {
        .tflops_per_s = flops / time_ns / 1e3,
        .gbytes_per_s = bytes / time_ns,
        .arithmetic_intensity = bytes > 0 ? flops / bytes : (double)NAN,
        .pct_peak_flops = 100 * roof->compute_ns / time_ns,
        .pct_peak_bandwidth = 100 * roof->memory_ns / time_ns,
        .pct_roofline = 100 * roof->least_ns / time_ns,
        .roofline_time = roof->least_ns,
        .headroom = time_ns - roof->least_ns,
    };
    rating.bound = bound_of(roof, &rating, time_ns, timing);
    return rating;
}
