/* The roofline: the minimum time of some work, how close a measured time comes to it, and what bounds the time.
 *
 *   work, peaks ──► fs_roof      minimum times of one call; those of several calls add up
 *   roof, time  ──► fs_rating    rates, shares of the peaks, bound
 *
 * The only place that combines work and peaks: tables, measurements, categories and pictures all use it.
 * S. Williams, A. Waterman, D. Patterson: Roofline, CACM 52 (2009), https://doi.org/10.1145/1498765.1498785
 */
#ifndef FS_ROOFLINE_ROOFLINE_H
#define FS_ROOFLINE_ROOFLINE_H

#include "base/colours.h"
#include "device/peaks.h"
#include "store/store.h"
#include "work/work.h"

typedef enum {
#define FS_BOUND(NAME, ...) FS_BOUND_##NAME,
#include "roofline/bounds.def"
#undef FS_BOUND
    FS_BOUND_COUNT
} fs_bound;

/* What bounds a time: the columns of bounds.def. */
typedef struct {
    const char *name, *part, *terminal, *meaning;
    fs_colour colour;
} fs_bound_row;

extern const fs_bound_row fs_bounds[FS_BOUND_COUNT];

/* The minimum times of some work at the peaks, in ns. NaN if the work or the peak is unknown. */
typedef struct {
    double compute_ns, memory_ns;
    /* The larger of the two. If only the FLOPs or only the bytes are known, their term, unless it is 0, which would
     * reveal nothing about the other. If the unit is unknown, the FLOPs could run on any: then this is known only if
     * the bytes take longer than the FLOPs would on the slowest unit. */
    double least_ns;
    /* Of an empty launch measured between CUDA events, and of a minimal kernel in the profiler's record (CPU: of a
     * minimal op). */
    double launch_ns, kernel_ns;
    fs_unit unit;      /* executes the FLOPs; FS_UNIT_NONE if there are none or the unit is unknown */
    double unit_flops; /* executed by the unit */
    bool partial;      /* only the FLOPs or only the bytes are known: the other may take longer */
    double launches;   /* of the work, 1 if it is one call */
    bool counted;      /* counters gave a term, which is also known where the work of some unit is not */
    /* Counters: what was busy most of the time, and how long it would have been at its peak. FS_BOUND_UNKNOWN: nothing
     * is known of it. */
    fs_bound busiest;
    double busiest_ns;
} fs_roof;

/* All fields unknown. */
extern const fs_roof fs_roof_unknown;

/* The roof of one call with one launch. peaks may be NULL. */
fs_roof fs_roof_of(const fs_work *work, const fs_peaks *peaks);

/* The sum of several calls' roofs. An all-zero struct is an empty sum. */
typedef struct {
    double compute_ns, memory_ns, least_ns, launch_ns, kernel_ns, launches;
    double unit_flops[FS_UNIT_COUNT];
    bool partial;
} fs_roof_sum;

/* Add the terms of a roof except its launch; add that many times the roof's launch. */
void fs_roof_sum_add(fs_roof_sum *sum, const fs_roof *roof);
void fs_roof_sum_launch(fs_roof_sum *sum, const fs_roof *roof, double count);

/* The sum as a roof. Its unit is the one that executes the most FLOPs. */
fs_roof fs_roof_sum_total(const fs_roof_sum *sum);

typedef struct {
    double tflops_per_s, gbytes_per_s;
    double arithmetic_intensity;                             /* FLOP/byte */
    double pct_peak_flops, pct_peak_bandwidth, pct_roofline; /* % */
    double roofline_time, headroom;                          /* ns; they add up to the time */
    fs_bound bound;
} fs_rating;

/* Rate work of that many FLOPs and bytes by its time in ns (NaN or 0: unknown), measured by `timing`. */
fs_rating fs_roof_rate(const fs_roof *roof, double flops, double bytes, double time_ns, fs_timing timing);

#endif
