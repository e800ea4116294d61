/* The peaks that work is held against, and which of them bounds which work. */
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
    double launch_ns; /* of an empty kernel seen from outside, by events (CPU: time of an empty call), NaN unknown */
    double kernel_ns; /* of the least kernel (CPU: op) by its own record: one element read and written, NaN unknown */
} fs_peaks;

/* Every field unknown. */
void fs_peaks_unknown(fs_peaks *peaks);
/* The vendor's numbers; launch_ns and kernel_ns are unknown there. */
void fs_peaks_from_datasheet(const fs_datasheet *datasheet, fs_peaks *peaks);

typedef struct {
    fs_unit preferred; /* where the work runs on a device that has the unit */
    fs_unit fallback;  /* where it runs on one that has not; the same where there is no choice */
} fs_unit_choice;

/* Pointwise float16 and bfloat16 compute in float32. Integer work other than int8 matrix products has FS_UNIT_NONE.
 * allow_tf32 matters to float32 matrix products on CUDA only. */
fs_unit_choice fs_unit_choose(fs_dtype dtype, bool is_matmul, bool allow_tf32, fs_device_kind kind);

/* The rate of the preferred unit, or of the fallback where that is unknown, in FLOP/s; NaN where both are. *used (may
 * be NULL) receives the unit that the rate is of, FS_UNIT_NONE for NaN. */
double fs_peaks_flops(const fs_peaks *peaks, fs_unit_choice choice, fs_unit *used);

#endif
