/* The peaks of a device, and the compute unit whose peak applies to each kind of work. */
#ifndef FS_DEVICE_PEAKS_H
#define FS_DEVICE_PEAKS_H

#include <stdbool.h>

#include "device/datasheet.h"
#include "device/units.h"
#include "ops/dtype.h"
#include "ops/tensor.h"

typedef struct {
    double flops[FS_UNIT_COUNT]; /* FLOP/s, NaN unknown */
    double bandwidth;            /* bytes/s, NaN unknown */
    double l2_bandwidth;         /* of reads by the multiprocessors, bytes/s, NaN unknown */
    double launch_ns;            /* time of an empty kernel between CUDA events (CPU: of an empty call), NaN unknown */
    double kernel_ns; /* time of a minimal kernel (CPU: op) in the profiler's record: one element read and written, NaN
                       * unknown */
} fs_peaks;

/* All fields unknown. */
void fs_peaks_unknown(fs_peaks *peaks);

typedef struct {
    fs_unit preferred; /* the unit of the work on a device that has it */
    fs_unit fallback;  /* the unit on other devices; equal to preferred if there is no choice */
} fs_unit_choice;

/* The unit of arithmetic on an fs_torch_dtype, and of matrix products: tensor cores if they support it. float32 may run
 * as TF32, which only the executed kernels reveal. */
fs_unit_choice fs_unit_of_plain(unsigned dtype);
fs_unit_choice fs_unit_of_product(unsigned dtype);

/* The unit of a native op on a dtype, of a product that of its factors. Pointwise float16 and bfloat16 compute in
 * float32. Integer work other than int8 matrix products has FS_UNIT_NONE; CPUs have no peak for those. allow_tf32 only
 * affects float32 matrix products on CUDA. */
fs_unit_choice fs_unit_choose(fs_dtype dtype, bool is_matmul, bool allow_tf32, fs_device_kind kind);

/* The rate of the preferred unit, or of the fallback if that is unknown, in FLOP/s; NaN if both are unknown. *used (may
 * be NULL) receives the unit of the rate, FS_UNIT_NONE for NaN. */
double fs_peaks_flops(const fs_peaks *peaks, fs_unit_choice choice, fs_unit *used);

#endif
