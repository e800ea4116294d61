/* Occupancy: the share of the warps of a streaming multiprocessor (SM) that a kernel can use.
 *
 * The number of blocks that an SM holds at once follows the rules of NVIDIA's occupancy calculator (CUDA's
 * cuda_occupancy.h). The estimate of a launch's achieved occupancy is Kineto's, in its single precision, as in torch's
 * traces. The exception is a kernel that uses more shared memory than the default limit of a block (48 KiB; cuBLAS's
 * and cuDNN's fastest do): Kineto reports 0, this the blocks that the SM holds. */
#ifndef FS_DEVICE_OCCUPANCY_H
#define FS_DEVICE_OCCUPANCY_H

#include "store/device_facts.h"
#include "store/signature.h"

/* The limit of the number of blocks on an SM. X(NAME, name, description) */
#define FS_OCCUPANCY_LIMIT_LIST(X)                                       \
    X(UNKNOWN, unknown, "a property of the device or launch is missing") \
    X(WARPS, warps, "the threads of the SM")                             \
    X(BLOCKS, blocks, "the maximum number of blocks of the SM")          \
    X(REGISTERS, registers, "its registers")                             \
    X(SHARED, shared_memory, "its shared memory")

typedef enum {
#define FS_OCCUPANCY_LIMIT_ENUM(NAME, name, prose) FS_OCCUPANCY_##NAME,
    FS_OCCUPANCY_LIMIT_LIST(FS_OCCUPANCY_LIMIT_ENUM)
#undef FS_OCCUPANCY_LIMIT_ENUM
        FS_OCCUPANCY_LIMIT_COUNT
} fs_occupancy_limit;

extern const char *const fs_occupancy_limit_names[FS_OCCUPANCY_LIMIT_COUNT];

typedef struct {
    double blocks;            /* maximum on an SM; 0: the kernel cannot run there; NaN: unknown */
    double pct;               /* share of the SM's warps in those blocks, in percent; NaN: unknown */
    fs_occupancy_limit limit; /* the tightest; if two are equal, the first in the list */
} fs_occupancy_bound;

fs_occupancy_bound fs_occupancy_theoretical(const fs_launch *launch, const fs_device_facts *facts);

/* NaN if unknown: the launch is not a kernel's, or a property is missing. */
typedef struct {
    double blocks_per_sm; /* blocks of the grid / SMs, not rounded */
    double warps_per_sm;  /* blocks_per_sm * threads of a block / threads of a warp, not rounded */
    double achieved_pct;  /* min(blocks that an SM holds, blocks_per_sm) * threads of a block / threads of an SM */
} fs_occupancy;

fs_occupancy fs_occupancy_estimate(const fs_launch *launch, const fs_device_facts *facts);

#endif
