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

/* What keeps an SM from holding as many warps as it can; of two, the first. X(NAME, "name") */
#define FS_OCCUPANCY_LIMIT_LIST(X) \
    X(BLOCK_SIZE, "block size")    \
    X(BLOCKS, "blocks")            \
    X(REGISTERS, "registers")      \
    X(SHARED_MEMORY, "shared memory")

typedef enum {
    FS_OCCUPANCY_LIMIT_NONE,
#define FS_OCCUPANCY_LIMIT_ENUM(NAME, name) FS_OCCUPANCY_LIMIT_##NAME,
    FS_OCCUPANCY_LIMIT_LIST(FS_OCCUPANCY_LIMIT_ENUM)
#undef FS_OCCUPANCY_LIMIT_ENUM
        FS_OCCUPANCY_LIMIT_COUNT
} fs_occupancy_limit;

extern const char *const fs_occupancy_limit_names[FS_OCCUPANCY_LIMIT_COUNT]; /* NULL: of none */

/* What an SM can hold at once of a kernel, whatever its grid. More warps hide more latency, but a kernel with few may
 * be at its limit: those that feed tensor cores hold their operands in most of the registers. */
typedef struct {
    double blocks;  /* 0: the kernel cannot run there; NaN: unknown */
    double percent; /* of the SM's warps */
    fs_occupancy_limit limit;
} fs_residency;

extern const fs_residency fs_residency_unknown;

fs_residency fs_occupancy_residency(const fs_launch *launch, const fs_device_facts *facts);

/* NaN if unknown: the launch is not a kernel's, or a property is missing. */
typedef struct {
    double blocks_per_sm; /* blocks of the grid / SMs, not rounded */
    double warps_per_sm;  /* blocks_per_sm * threads of a block / threads of a warp, not rounded */
    double achieved_pct;  /* min(blocks that an SM holds, blocks_per_sm) * threads of a block / threads of an SM */
} fs_occupancy;

fs_occupancy fs_occupancy_estimate(const fs_launch *launch, const fs_device_facts *facts);

#endif
