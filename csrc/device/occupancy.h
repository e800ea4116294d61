/* Occupancy: how much of what a streaming multiprocessor (SM) holds of a kernel's warps.
 *
 * The blocks that an SM holds at once follow the rules of NVIDIA's occupancy calculator (CUDA's cuda_occupancy.h). The
 * estimate of what a launch achieved is Kineto's, in its single precision, as torch's traces have it; but where a
 * kernel takes more shared memory than a block may without asking for it (48 KiB; cuBLAS's and cuDNN's fastest do)
 * Kineto says 0, and this says what the SM holds. */
#ifndef FS_DEVICE_OCCUPANCY_H
#define FS_DEVICE_OCCUPANCY_H

#include "store/device_facts.h"
#include "store/signature.h"

/* What bounds the blocks on an SM. X(NAME, name, prose) */
#define FS_OCCUPANCY_LIMIT_LIST(X)                                   \
    X(UNKNOWN, unknown, "a fact of the device or launch is missing") \
    X(WARPS, warps, "the threads of the SM")                         \
    X(BLOCKS, blocks, "the blocks that an SM keeps track of")        \
    X(REGISTERS, registers, "its registers")                         \
    X(SHARED, shared_memory, "its shared memory")

typedef enum {
#define FS_OCCUPANCY_LIMIT_ENUM(NAME, name, prose) FS_OCCUPANCY_##NAME,
    FS_OCCUPANCY_LIMIT_LIST(FS_OCCUPANCY_LIMIT_ENUM)
#undef FS_OCCUPANCY_LIMIT_ENUM
        FS_OCCUPANCY_LIMIT_COUNT
} fs_occupancy_limit;

extern const char *const fs_occupancy_limit_names[FS_OCCUPANCY_LIMIT_COUNT];

typedef struct {
    double blocks;            /* that an SM holds at most; 0: the kernel cannot run there; NaN: not known */
    double pct;               /* of the SM's warps that those blocks are; NaN likewise */
    fs_occupancy_limit limit; /* the tightest; of two the one that comes first in the list */
} fs_occupancy_bound;

fs_occupancy_bound fs_occupancy_theoretical(const fs_launch *launch, const fs_device_facts *facts);

/* Each is NaN where it is not known: the launch is no kernel's, or a fact is missing. */
typedef struct {
    double blocks_per_sm; /* blocks of the grid / SMs, not rounded */
    double warps_per_sm;  /* blocks_per_sm * threads of a block / threads of a warp, not rounded */
    double achieved_pct;  /* min(blocks that an SM holds, blocks_per_sm) * threads of a block / threads of an SM */
} fs_occupancy;

fs_occupancy fs_occupancy_estimate(const fs_launch *launch, const fs_device_facts *facts);

#endif
