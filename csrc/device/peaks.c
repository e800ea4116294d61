/* A choice is a unit and the one that takes over where the device has no rate for the first: tensor cores fall back to
 * plain arithmetic. Integers have no peak, but for products of int8. Unknown rates are NaN, and so a rate of NaN is
 * passed over and never used. */
#include "device/peaks.h"

#include <math.h>

#include "store/torch_signature.h"

static const struct {
    fs_unit plain;
    fs_unit_choice product;
} units_of[FS_TORCH_DTYPE_COUNT + 1] = {
#define OWN(NAME, name, bytes, ctype, dlpack, format, kind, kineto, c10, number, plain, product, fallback) \
    TORCH(NAME, name, bytes, kind, kineto, c10, number, plain, product, fallback)
#define TORCH(NAME, name, bytes, kind, kineto, c10, number, plain, product, fallback) \
    {FS_UNIT_##plain, {FS_UNIT_##product, FS_UNIT_##fallback}},
    FS_DTYPES(OWN, TORCH)
#undef OWN
#undef TORCH
        {FS_UNIT_NONE, {FS_UNIT_NONE, FS_UNIT_NONE}},
};

void fs_peaks_unknown(fs_peaks *peaks)
{
    for (int unit = 0; unit < FS_UNIT_COUNT; unit++) peaks->flops[unit] = NAN;
    peaks->bandwidth = peaks->l2_bandwidth = NAN;
    peaks->launch_ns = peaks->kernel_ns = NAN;
}

fs_unit_choice fs_unit_of_plain(unsigned dtype)
{
    return (fs_unit_choice){units_of[dtype].plain, units_of[dtype].plain};
}

fs_unit_choice fs_unit_of_product(unsigned dtype)
{
    return units_of[dtype].product;
}

fs_unit_choice fs_unit_choose(fs_dtype dtype, bool is_matmul, bool allow_tf32, fs_device_kind kind)
{
    fs_unit_choice plain = fs_unit_of_plain(fs_dtypes[dtype].torch);
    if (!is_matmul || (kind != FS_CUDA && plain.preferred != FS_UNIT_NONE)) return plain;
    fs_unit_choice choice = fs_unit_of_product(fs_dtypes[dtype].torch);
    if (allow_tf32 && dtype == FS_FLOAT32) choice.preferred = FS_UNIT_TF32_TENSOR;
    return choice;
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
