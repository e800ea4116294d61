/* A space is brought to a normal form: no axis of size 1, strides of the output not negative and descending,
 * neighbouring axes merged where every operand allows it, and at least one axis. Loops and kernels so meet few cases,
 * and a dense tensor of any shape is one axis. A broadcast axis has stride 0. */
#include "ops/space.h"

#include <string.h>

enum { OPERANDS = 3 }; /* out, in[0], in[1] */

bool fs_broadcast_shape(int a_ndim, const int64_t *a, int b_ndim, const int64_t *b, int *ndim, int64_t *shape)
{
    *ndim = a_ndim > b_ndim ? a_ndim : b_ndim;
    for (int d = 0; d < *ndim; d++) {
        int64_t from_a = d < *ndim - a_ndim ? 1 : a[d - (*ndim - a_ndim)];
        int64_t from_b = d < *ndim - b_ndim ? 1 : b[d - (*ndim - b_ndim)];
        if (from_a != from_b && from_a != 1 && from_b != 1) return false;
        shape[d] = from_a == 1 ? from_b : from_a;
    }
    return true;
}

fs_tensor fs_tensor_broadcast(const fs_tensor *tensor, int ndim, const int64_t *shape)
{
    fs_tensor view = *tensor;
    view.ndim = ndim;
    memcpy(view.shape, shape, (size_t)ndim * sizeof *shape);
    for (int d = 0; d < ndim; d++) {
        int own = d - (ndim - tensor->ndim);
        view.strides[d] = own < 0 || tensor->shape[own] == 1 ? 0 : tensor->strides[own];
    }
    return view;
}

typedef struct {
    int64_t size;
    int64_t strides[OPERANDS];
} dimension;

static bool goes_outside(const dimension *a, const dimension *b)
{
    return a->strides[0] > b->strides[0];
}

static bool merges(const dimension *outer, const dimension *inner)
{
    for (int i = 0; i < OPERANDS; i++) {
        int64_t step;
        if (__builtin_mul_overflow(inner->strides[i], inner->size, &step) || outer->strides[i] != step) return false;
    }
    return true;
}

/* Insertion sort by out's stride: dimensions are few and mostly in order. */
static void sort_dimensions(dimension *dims, int count)
{
    for (int d = 1; d < count; d++) {
        dimension moving = dims[d];
        int at = d;
        for (; at > 0 && goes_outside(&moving, &dims[at - 1]); at--) dims[at] = dims[at - 1];
        dims[at] = moving;
    }
}

void fs_space_make(fs_elementwise *space, const fs_tensor *out, const fs_tensor *const in[2])
{
    dimension dims[FS_MAX_DIMS + 1];
    char *data[OPERANDS] = {out->data, NULL, NULL};
    fs_tensor views[2];
    int count = 0;
    space->count = 1;
    for (int i = 0; i < 2; i++) {
        if (in[i] == NULL) continue;
        views[i] = fs_tensor_broadcast(in[i], out->ndim, out->shape);
        data[1 + i] = in[i]->data;
    }
    for (int d = 0; d < out->ndim; d++) {
        int64_t size = out->shape[d];
        space->count *= size;
        if (size == 1) continue;
        dimension *added = &dims[count++];
        *added = (dimension){size, {out->strides[d], in[0] ? views[0].strides[d] : 0, in[1] ? views[1].strides[d] : 0}};
        if (added->strides[0] >= 0) continue;
        for (int i = 0; i < OPERANDS; i++) {
            if (data[i] == NULL) continue;
            size_t item = fs_dtypes[i == 0 ? out->dtype : in[i - 1]->dtype].size;
            data[i] += (size - 1) * added->strides[i] * (int64_t)item;
            added->strides[i] = -added->strides[i];
        }
    }
    sort_dimensions(dims, count);
    int merged = 0;
    for (int d = 0; d < count; d++) {
        if (merged > 0 && merges(&dims[merged - 1], &dims[d])) {
            dims[merged - 1].size *= dims[d].size;
            memcpy(dims[merged - 1].strides, dims[d].strides, sizeof dims[d].strides);
        } else {
            dims[merged++] = dims[d];
        }
    }
    if (merged == 0) dims[merged++] = (dimension){1, {1, 1, 1}};
    space->ndim = merged;
    for (int d = 0; d < merged; d++) {
        space->shape[d] = dims[d].size;
        space->out_strides[d] = dims[d].strides[0];
        space->in_strides[0][d] = dims[d].strides[1];
        space->in_strides[1][d] = dims[d].strides[2];
    }
    space->out = data[0];
    space->in[0] = data[1];
    space->in[1] = data[2];
    space->dtype = out->dtype;
}

void fs_tensor_extent(const fs_tensor *tensor, const char **low, const char **high)
{
    int64_t first = 0, last = 0, item = (int64_t)fs_dtypes[tensor->dtype].size;
    bool empty = fs_tensor_count(tensor) == 0; /* its strides may have any value */
    for (int d = 0; d < tensor->ndim && !empty; d++) {
        int64_t reach = (tensor->shape[d] - 1) * tensor->strides[d];
        if (reach < 0) first += reach;
        else last += reach;
    }
    *low = (const char *)tensor->data + first * item;
    *high = (const char *)tensor->data + (empty ? 0 : (last + 1) * item);
}

bool fs_tensor_overlaps(const fs_tensor *a, const fs_tensor *b)
{
    const char *a_low, *a_high, *b_low, *b_high;
    if (!fs_device_equal(a->device, b->device) || fs_tensor_count(a) == 0 || fs_tensor_count(b) == 0) return false;
    fs_tensor_extent(a, &a_low, &a_high);
    fs_tensor_extent(b, &b_low, &b_high);
    return a_low < b_high && b_low < a_high;
}

bool fs_tensor_same_memory(const fs_tensor *a, const fs_tensor *b)
{
    const char *a_low, *a_high, *b_low, *b_high;
    if (a->dtype != b->dtype || !fs_device_equal(a->device, b->device)) return false;
    fs_tensor_extent(a, &a_low, &a_high);
    fs_tensor_extent(b, &b_low, &b_high);
    if (a_low != b_low || a_high != b_high) return false;
    if (a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0 &&
        memcmp(a->strides, b->strides, (size_t)a->ndim * sizeof *a->strides) == 0)
        return true;
    int64_t distinct = fs_distinct_count(a->ndim, a->shape, a->strides);
    return distinct != FS_COUNT_UNKNOWN && distinct == fs_distinct_count(b->ndim, b->shape, b->strides);
}
