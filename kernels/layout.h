/* The layout of strided and broadcast elements for kernels: plain data that the host fills in and a kernel receives by
 * value.
 *
 *   iteration space (outermost first, any strides)  ──►  units, innermost dimension first
 *
 * A unit is one element, or a whole vector of elements if each operand's innermost run allows it. A unit's number fits
 * 31 bits (larger spaces are split), so that its coordinates are computed with multiplications instead of divisions. */
#ifndef FS_KERNELS_LAYOUT_H
#define FS_KERNELS_LAYOUT_H

#include "kernels/context.h"

enum { FS_TILE_THREADS = 128, FS_VECTOR_BYTES = 16, FS_OPERANDS = 3 /* out, in[0], in[1] */ };

/* n / divisor for n < 2^31: (high word of n × magic, plus n) >> shift. */
typedef struct {
    uint32_t divisor, magic, shift;
} fs_fast_divisor;

typedef struct {
    int ndim;
    uint32_t units;
    fs_fast_divisor shape[FS_MAX_DIMS];
    int64_t strides[FS_OPERANDS][FS_MAX_DIMS]; /* in elements per step of a unit */
} fs_layout;

static inline fs_fast_divisor fs_fast_divisor_of(uint32_t divisor)
{
    fs_fast_divisor result = {divisor, 0, 0};
    while (((uint64_t)1 << result.shift) < divisor) result.shift++;
    result.magic = (uint32_t)(((uint64_t)1 << 32) * (((uint64_t)1 << result.shift) - divisor) / divisor + 1);
    return result;
}

/* Element i of all operands is at i (an input with in[i] NULL is a scalar). `inputs`: 0 to 2. */
static inline bool fs_space_is_dense(const fs_elementwise *space, int inputs)
{
    if (space->count == 1) return true;
    if (space->ndim != 1 || space->out_strides[0] != 1) return false;
    for (int i = 0; i < inputs; i++)
        if (space->in[i] && space->in_strides[i][0] != 1) return false;
    return true;
}

/* Split the space along its longest dimension: `space` keeps the first part and `rest` receives the other. `out_size`,
 * `in_size`: bytes per element. */
static inline void fs_space_split(fs_elementwise *space, fs_elementwise *rest, size_t out_size, size_t in_size)
{
    int longest = 0;
    for (int d = 1; d < space->ndim; d++)
        if (space->shape[d] > space->shape[longest]) longest = d;
    int64_t first = space->shape[longest] / 2, others = space->count / space->shape[longest];

    *rest = *space;
    rest->shape[longest] -= first;
    rest->count = others * rest->shape[longest];
    rest->out = (char *)rest->out + first * rest->out_strides[longest] * (int64_t)out_size;
    for (int i = 0; i < 2; i++)
        if (rest->in[i])
            rest->in[i] = (const char *)rest->in[i] + first * rest->in_strides[i][longest] * (int64_t)in_size;
    space->shape[longest] = first;
    space->count = others * first;
}

/* Whether `unit` elements can move as one aligned vector: the innermost run of each operand with stride 1 consists of
 * whole, aligned vectors. If `splat`, an input may repeat one element along the run (stride 0). */
static inline bool fs_space_has_vectors(const fs_elementwise *space, int inputs, int64_t unit, size_t size, bool splat)
{
    int inner = space->ndim - 1;

    if (space->out_strides[inner] != 1 || space->shape[inner] % unit != 0) return false;
    if (!fs_is_aligned(space->out, (size_t)unit * size)) return false;
    for (int d = 0; d < inner; d++)
        if (space->out_strides[d] % unit != 0) return false;
    for (int i = 0; i < inputs; i++) {
        if (!space->in[i] || (splat && space->in_strides[i][inner] == 0)) continue;
        if (space->in_strides[i][inner] != 1 || !fs_is_aligned(space->in[i], (size_t)unit * size)) return false;
        for (int d = 0; d < inner; d++)
            if (space->in_strides[i][d] % unit != 0) return false;
    }
    return true;
}

/* The layout of a space of fewer than 2^31 units, each of `unit` elements along the innermost dimension. */
static inline fs_layout fs_layout_of(const fs_elementwise *space, int64_t unit)
{
    fs_layout layout;

    layout.ndim = space->ndim;
    layout.units = (uint32_t)(space->count / unit);
    for (int d = 0; d < space->ndim; d++) {
        int from = space->ndim - 1 - d;
        int64_t step = d == 0 ? unit : 1;
        layout.shape[d] = fs_fast_divisor_of((uint32_t)(space->shape[from] / step));
        layout.strides[0][d] = space->out_strides[from] * step;
        layout.strides[1][d] = space->in[0] ? space->in_strides[0][from] * step : 0;
        layout.strides[2][d] = space->in[1] ? space->in_strides[1][from] * step : 0;
    }
    return layout;
}

#ifdef __cplusplus
/* The position of unit `number`, in elements from each operand's start. */
template <int OPERANDS>
static __device__ __forceinline__ void fs_locate(const fs_layout &layout, uint32_t number, int64_t (&offset)[OPERANDS])
{
    for (int i = 0; i < OPERANDS; i++) offset[i] = 0;
#pragma unroll
    for (int d = 0; d < FS_MAX_DIMS; d++) {
        if (d == layout.ndim) break;
        uint32_t quotient = (__umulhi(number, layout.shape[d].magic) + number) >> layout.shape[d].shift;
        uint32_t coordinate = number - quotient * layout.shape[d].divisor;
        number = quotient;
#pragma unroll
        for (int i = 0; i < OPERANDS; i++) offset[i] += coordinate * layout.strides[i][d];
    }
}
#endif

#endif
