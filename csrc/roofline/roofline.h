/* The roofline: how long work must take at least, how close a time comes to that, and what bounds it.
 *
 *   work, peaks ──► fs_roof      least times of one call; those of calls add up
 *   roof, time  ──► fs_rating    rates, shares of the peaks, bound
 *
 * The only place where work and peaks meet: tables, measurements, categories and pictures all ask it.
 * S. Williams, A. Waterman, D. Patterson: Roofline, CACM 52 (2009), https://doi.org/10.1145/1498765.1498785
 */
#ifndef FS_ROOFLINE_ROOFLINE_H
#define FS_ROOFLINE_ROOFLINE_H

#include "device/peaks.h"
#include "store/store.h"
#include "work/work.h"

/* What bounds a time. X(NAME, name, prose) */
#define FS_BOUND_LIST(X)                                                                                        \
    X(UNKNOWN, unknown, "the work, or the peaks of what did it, are unknown")                                   \
    X(COMPUTE, compute, "the FLOPs at the peak rate of their unit take longest")                                \
    X(MEMORY, memory, "the bytes at the peak bandwidth take longest")                                           \
    X(LAUNCH, launch, "each launch takes little longer than an empty kernel, or on a CPU than an empty call")   \
    X(LATENCY, latency, "neither the FLOPs, nor the bytes, nor the launches come near to explaining the time") \
    X(CACHE, cache, "more bandwidth than memory has: the data sat in cache")

typedef enum {
#define FS_BOUND_ENUM(NAME, name, prose) FS_BOUND_##NAME,
    FS_BOUND_LIST(FS_BOUND_ENUM)
#undef FS_BOUND_ENUM
        FS_BOUND_COUNT
} fs_bound;

extern const char *const fs_bound_names[FS_BOUND_COUNT];

/* The least times that peaks allow some work, in ns. NaN where the work or the peak is unknown. */
typedef struct {
    double compute_ns, memory_ns;
    /* The larger of the two. Where only the FLOPs or only the bytes are known, the term of those, unless they are 0:
     * that there is none of one says nothing of the other. Without a known unit the FLOPs could run on any: it is known
     * only if the bytes take longer than the FLOPs would on the slowest one. */
    double least_ns;
    /* Of an empty launch seen from outside, and of the least kernel by its own record (CPU: of the least op). */
    double launch_ns, kernel_ns;
    fs_unit unit; /* that does the FLOPs; FS_UNIT_NONE where nothing computes or nothing tells what does */
    double unit_flops; /* that the unit does */
    bool partial; /* a rule knows only the FLOPs or only the bytes: the rest may be what takes the time */
} fs_roof;

/* Nothing known. */
extern const fs_roof fs_roof_unknown;

/* Of one call that launches once. peaks may be NULL. */
fs_roof fs_roof_of(const fs_work *work, const fs_peaks *peaks);

/* The roofs of several calls. All zero is a sum of none. */
typedef struct {
    double compute_ns, memory_ns, least_ns, launch_ns, kernel_ns;
    double unit_flops[FS_UNIT_COUNT];
    bool partial;
} fs_roof_sum;

/* Add the terms of a roof but for its launch; add so many launches as it has one of. */
void fs_roof_sum_add(fs_roof_sum *sum, const fs_roof *roof);
void fs_roof_sum_launch(fs_roof_sum *sum, const fs_roof *roof, double count);

/* As one roof. Its unit is the one that does the most FLOPs. */
fs_roof fs_roof_sum_total(const fs_roof_sum *sum);

typedef struct {
    double tflops_per_s, gbytes_per_s;
    double arithmetic_intensity;                              /* FLOP/byte */
    double pct_peak_flops, pct_peak_bandwidth, pct_roofline; /* % */
    double roofline_time, headroom;                           /* ns; their sum is the time */
    fs_bound bound;
} fs_rating;

/* Hold work of so many FLOPs and bytes against the time in ns that it took (NaN or 0: unknown), which `timing` told. */
fs_rating fs_roof_rate(const fs_roof *roof, double flops, double bytes, double time_ns, fs_timing timing);

#endif
