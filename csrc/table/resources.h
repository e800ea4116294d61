/* What the launches of a row's kernels ask of a multiprocessor, and how many of their blocks it holds: facts of the
 * compiled kernel, its block and its grid, which a trace has of each launch. Private to csrc/table. */
#ifndef FS_TABLE_RESOURCES_H
#define FS_TABLE_RESOURCES_H

#include "device/occupancy.h"
#include "store/store.h"

/* Of the launches of one signature on one device. */
typedef struct {
    int known_for; /* that device + 1; 0: nothing is known yet */
    uint32_t registers;
    int64_t shared;
    fs_residency residency;
    double waves; /* blocks of the grid / blocks that the device holds at once */
} fs_launch_resources;

/* Sums over the launches of a row, weighted by their times. Zero: there are none. */
typedef struct {
    uint32_t registers; /* the most, as is `shared`, bytes; 0: unknown */
    int64_t shared;
    double ns, occupancy, waves; /* ns: of launches whose residency is known */
    double limited_ns[FS_OCCUPANCY_LIMIT_COUNT];
} fs_resources;

/* Add a launch of this signature. `known`: of the signature, kept from launch to launch. */
void fs_resources_add(fs_resources *sums, fs_launch_resources *known, const fs_store *store, int device,
                      uint32_t signature, int64_t ns);
void fs_resources_join(fs_resources *to, const fs_resources *from);

/* The mean over the launches of a number that was summed; NaN: unknown. */
double fs_resources_mean(const fs_resources *sums, double sum);

/* What limits the occupancy for the most of the time. */
fs_occupancy_limit fs_resources_limit(const fs_resources *sums);

#endif
