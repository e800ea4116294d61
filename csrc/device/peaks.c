/* A choice is a unit and the one that takes over where the device has no rate for the first: tensor cores fall back to
 * plain arithmetic. Integers have no peak, but for products of int8. Unknown rates are NaN, and so a rate of NaN is
 * passed over and never used. */
#include "device/peaks.h"

#include <math.h>

/* One row per dtype, with a column per case. */
typedef struct {
    fs_unit pointwise;
    fs_unit_choice matmul, matmul_tf32; /* on CUDA */
} unit_row;

#define UNIT(name) FS_UNIT_##name
#define ROW(pointwise, matmul, matmul_fallback)                 \
    {                                                           \
        UNIT(pointwise), {UNIT(matmul), UNIT(matmul_fallback)}, \
        {                                                       \
            UNIT(matmul), UNIT(matmul_fallback)                 \
        }                                                       \
    }

static const unit_row unit_rows[FS_DTYPE_COUNT + 1] = {
    [FS_FLOAT64] = ROW(FP64, FP64_TENSOR, FP64),
    [FS_FLOAT32] = {UNIT(FP32), {UNIT(FP32), UNIT(FP32)}, {UNIT(TF32_TENSOR), UNIT(FP32)}},
    [FS_FLOAT16] = ROW(FP32, FP16_TENSOR, FP32),
    [FS_BFLOAT16] = ROW(FP32, BF16_TENSOR, FP32),
    [FS_INT64] = ROW(NONE, NONE, NONE),
    [FS_INT32] = ROW(NONE, NONE, NONE),
    [FS_INT8] = ROW(NONE, INT8_TENSOR, NONE),
    [FS_UINT8] = ROW(NONE, NONE, NONE),
    [FS_BOOL] = ROW(NONE, NONE, NONE),
    [FS_DTYPE_NONE] = ROW(NONE, NONE, NONE),
};

void fs_peaks_unknown(fs_peaks *peaks)
{
    for (int unit = 0; unit < FS_UNIT_COUNT; unit++) peaks->flops[unit] = NAN;
    peaks->bandwidth = NAN;
    peaks->launch_ns = peaks->kernel_ns = NAN;
}

fs_unit_choice fs_unit_choose(fs_dtype dtype, bool is_matmul, bool allow_tf32, fs_device_kind kind)
{
    const unit_row *row = &unit_rows[dtype];
    if (is_matmul && kind == FS_CUDA) return allow_tf32 ? row->matmul_tf32 : row->matmul;
    return (fs_unit_choice){row->pointwise, row->pointwise};
}

double fs_peaks_flops(const fs_peaks *peaks, fs_unit_choice choice, fs_unit *used)
{
    const fs_unit units[] = {choice.preferred, choice.fallback};
    for (int i = 0; i < 2; i++) {
        if (units[i] == FS_UNIT_NONE || isnan(peaks->flops[units[i]])) continue;
        if (used != NULL) *used = units[i];
        return peaks->flops[units[i]];
    }
    if (used != NULL) *used = FS_UNIT_NONE;
    return NAN;
}
