/* The units of multiply-adds by dtype, preferred and fallback. An argument that the call does not have is `absent`; one
 * that the trace did not record is NaN, and the callers must not confuse the two. */
#include "work/aten/multiply.h"

#include <math.h>

#include "work/aten/sizes.h"

fs_unit_choice fs_products_unit(unsigned dtype)
{
    static const struct {
        bool here;
        fs_unit_choice choice;
    } units[FS_TORCH_DTYPE_COUNT + 1] = {
        [FS_TORCH_FLOAT64] = {true, {FS_UNIT_FP64_TENSOR, FS_UNIT_FP64}},
        [FS_TORCH_COMPLEX128] = {true, {FS_UNIT_FP64_TENSOR, FS_UNIT_FP64}},
        [FS_TORCH_FLOAT32] = {true, {FS_UNIT_FP32, FS_UNIT_FP32}},
        [FS_TORCH_COMPLEX64] = {true, {FS_UNIT_FP32, FS_UNIT_FP32}},
        [FS_TORCH_FLOAT16] = {true, {FS_UNIT_FP16_TENSOR, FS_UNIT_FP32}},
        [FS_TORCH_BFLOAT16] = {true, {FS_UNIT_BF16_TENSOR, FS_UNIT_FP32}},
        [FS_TORCH_FLOAT8_E4M3FN] = {true, {FS_UNIT_FP8_TENSOR, FS_UNIT_FP8_TENSOR}},
        [FS_TORCH_FLOAT8_E5M2] = {true, {FS_UNIT_FP8_TENSOR, FS_UNIT_FP8_TENSOR}},
        [FS_TORCH_FLOAT8_E4M3FNUZ] = {true, {FS_UNIT_FP8_TENSOR, FS_UNIT_FP8_TENSOR}},
        [FS_TORCH_FLOAT8_E5M2FNUZ] = {true, {FS_UNIT_FP8_TENSOR, FS_UNIT_FP8_TENSOR}},
        [FS_TORCH_INT8] = {true, {FS_UNIT_INT8_TENSOR, FS_UNIT_INT8_TENSOR}},
        [FS_TORCH_UINT8] = {true, {FS_UNIT_INT8_TENSOR, FS_UNIT_INT8_TENSOR}},
    };
    return units[dtype].here ? units[dtype].choice : (fs_unit_choice){FS_UNIT_NONE, FS_UNIT_NONE};
}

double fs_products_flops_each(unsigned dtype)
{
    return fs_torch_dtypes[dtype].kind == FS_TORCH_COMPLEX ? 8 : 2;
}

double fs_products_number(const fs_torch_call *call, int place, double absent)
{
    if (place < 0 || (unsigned)place >= call->count) return absent;
    return fs_sizes_number(fs_sizes_text(call, (unsigned)place), NAN);
}

double fs_products_flag(const fs_torch_call *call, int place)
{
    if (place < 0 || (unsigned)place >= call->count) return 0;
    const char *text = fs_sizes_text(call, (unsigned)place);
    return *text == 0 ? (double)NAN : fs_sizes_is_true(text) || fs_sizes_number(text, 0) != 0;
}

double fs_products_read(const fs_torch_call *call, unsigned from, unsigned to)
{
    double bytes = 0;
    for (unsigned place = from; place < to && place < call->count; place++) {
        const fs_torch_tensor *tensor = fs_sizes_tensor(call, place);
        if (tensor != NULL && tensor->ndim > 0) bytes += fs_sizes_read(tensor);
    }
    return bytes;
}
