/* A copy casts or reorders only if both tensors are known, have one shape and more than one element. Reordering is an
 * inversion between two axes of more than one element: strides of broadcast axes (0) say nothing, and dense copies of
 * one order are plain. */
#include "work/copying.h"

#include <stdbool.h>
#include <stdint.h>

#include "store/torch_signature.h"

enum { MOST_DIMS = 64 }; /* torch's own limit; each pair of them is compared */

/* Return whether two tensors have one shape and more than one element. */
static bool have_one_shape(const fs_torch_tensor *a, const fs_torch_tensor *b)
{
    bool several = false;
    if (a->ndim != b->ndim || a->ndim > MOST_DIMS) return false;
    for (uint32_t i = 0; i < a->ndim; i++) {
        if (a->shape[i] != b->shape[i] || a->shape[i] < 1) return false;
        several = several || a->shape[i] > 1;
    }
    return several;
}

static bool is_float(const fs_torch_tensor *tensor)
{
    return tensor->dtype != FS_TORCH_DTYPE_NONE && fs_torch_dtypes[tensor->dtype].kind == FS_TORCH_FLOAT;
}

static bool is_reordered(const fs_torch_tensor *a, const fs_torch_tensor *b)
{
    bool reordered = false;
    if (a->strides == NULL || b->strides == NULL) return false;
    for (uint32_t i = 0; i < a->ndim; i++) {
        if (a->shape[i] == 1) continue;
        if (a->strides[i] == 0 || b->strides[i] == 0) return false;
        for (uint32_t j = 0; j < i; j++) {
            if (a->shape[j] == 1) continue;
            reordered = reordered || (a->strides[i] < a->strides[j]) != (b->strides[i] < b->strides[j]);
        }
    }
    return reordered;
}

fs_copying fs_work_copying(const void *bytes, size_t size)
{
    fs_torch_call call;
    if (!fs_torch_decode(bytes, size, &call) || call.count < 2) return FS_COPY_PLAIN;
    if (call.arguments[0].type != FS_TORCH_TENSOR || call.arguments[1].type != FS_TORCH_TENSOR) return FS_COPY_PLAIN;
    const fs_torch_tensor *a = &call.arguments[0].tensor, *b = &call.arguments[1].tensor;
    if (!have_one_shape(a, b)) return FS_COPY_PLAIN;
    if (a->dtype != b->dtype) return is_float(a) && is_float(b) ? FS_COPY_CASTS : FS_COPY_PLAIN;
    return is_reordered(a, b) ? FS_COPY_REORDERS : FS_COPY_PLAIN;
}
