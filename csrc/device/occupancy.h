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

/* Return the maximum number of blocks on an SM; 0: the kernel cannot run there; NaN: unknown. */
double fs_occupancy_blocks(const fs_launch *launch, const fs_device_facts *facts);

/* NaN if unknown: the launch is not a kernel's, or a property is missing. */
typedef struct {
    double blocks_per_sm; /* blocks of the grid / SMs, not rounded */
    double warps_per_sm;  /* blocks_per_sm * threads of a block / threads of a warp, not rounded */
    double achieved_pct;  /* min(blocks that an SM holds, blocks_per_sm) * threads of a block / threads of an SM */
} fs_occupancy;

fs_occupancy fs_occupancy_estimate(const fs_launch *launch, const fs_device_facts *facts);

#endif
