/* The interface of a device: one table of functions per device kind. The op layer (op.c) checks arguments, broadcasts,
 * allocates the output and reduces every op to one of the structs below. A backend only computes.
 *
 * The structs hold raw pointers to memory of the backend's device, valid until the call's work is done. A CUDA backend
 * returns once the work is queued on the device's current stream, and released memory is reused only in that stream's
 * order. Counts are never 0: the op layer handles empty tensors itself (including a matrix product with k == 0). All
 * functions are thread-safe and need no GIL.
 */
#ifndef FS_OPS_BACKEND_H
#define FS_OPS_BACKEND_H

#include "ops/tensor.h"

typedef enum {
#define FS_UNARY(name, value, prose) FS_UNARY_##name,
#include "ops/pointwise.def"
#undef FS_UNARY
    FS_UNARY_COUNT
} fs_unary_id;

typedef enum {
#define FS_BINARY(name, value, prose) FS_BINARY_##name,
#include "ops/pointwise.def"
#undef FS_BINARY
    FS_BINARY_COUNT
} fs_binary_id;

typedef enum { FS_SUM, FS_MEAN, FS_AMAX, FS_AMIN, FS_NORM, FS_VAR, FS_ARGMAX, FS_REDUCTION_COUNT } fs_reduction_id;
typedef enum { FS_SOFTMAX, FS_LOG_SOFTMAX, FS_LAYER_NORM, FS_RMS_NORM, FS_ROWWISE_COUNT } fs_rowwise_id;
typedef enum { FS_UNIFORM, FS_NORMAL, FS_RANDOM_COUNT } fs_random_id;

/* Element i of out from element i of the inputs, over one iteration space whose dimensions have been coalesced: shape
 * and strides are outermost first, 1 <= ndim <= FS_MAX_DIMS, and a fully dense op has ndim 1 and strides 1. Strides
 * count elements; 0 repeats. An input that is a Python scalar has in[i] NULL and its value in scalar[i] (at most one of
 * two). out may be exactly the memory of an input (in-place), and must not overlap it otherwise. dtype: of the tensors.
 * Floats below 32 bits are computed in float and rounded to nearest even. */
typedef struct {
    int ndim;
    int64_t shape[FS_MAX_DIMS];
    int64_t out_strides[FS_MAX_DIMS];
    int64_t in_strides[2][FS_MAX_DIMS];
    void *out;
    const void *in[2];
    double scalar[2];
    fs_dtype dtype;
    int64_t count; /* product of shape */
} fs_elementwise;

/* Strided copy with a conversion of dtype (in_dtype may equal dtype), in the layout above: in[0] to out. Any dtype to
 * any dtype with C's conversions; to bool: x != 0; float to a narrower float rounds to nearest even and overflows to
 * inf. Float to integer outside its range is undefined, as in C. A 2-D transposed copy (one side's unit stride outer)
 * deserves a tiled path. */
typedef struct {
    fs_elementwise space; /* space.dtype: of out; in[1], scalar: unused */
    fs_dtype in_dtype;
} fs_conversion;

/* out[r] = reduction of in[r, 0 .. length) for r < rows. Both dense; length > 0. Accumulates in double for float64,
 * in float (pairwise, blocked or wider: error grows no faster than log of the length) for the rest. NaN wins.
 * norm: the root of the sum of squares, without scaling, so squares may overflow or vanish. var: the sum of squares
 * about the mean (not about 0) / max(0, length - correction). argmax: out is int64, the place in the row of the first
 * NaN or, without one, of the first maximum; -0 equals 0. */
typedef struct {
    const void *in;
    void *out; /* of `dtype`, of argmax int64 */
    int64_t rows, length;
    fs_dtype dtype;
    double correction; /* of var */
} fs_reduction;

/* out[r, i] = the sum of in[r, 0 .. i] for r < rows, dense; length > 0. Accumulates in double for float64, in float or
 * wider for the rest, where the carry of long rows must not lose what is added to it. The sums before a NaN or an
 * infinity are finite. out does not overlap in. */
typedef struct {
    const void *in;
    void *out;
    int64_t rows, length;
    fs_dtype dtype;
} fs_cumsum;

/* out[r, :] from in[r, :] for r < rows, dense. weight, bias: `length` elements or NULL (norms only). out may be in.
 * layer_norm: (x - mean) / sqrt(var + eps) * weight + bias, var over n; rms_norm: x / sqrt(mean(x²) + eps) * weight. */
typedef struct {
    const void *in;
    void *out;
    const void *weight, *bias;
    int64_t rows, length;
    double eps;
    fs_dtype dtype;
} fs_rowwise;

/* out = a · b (+ out when accumulate), for each of `batch` matrices. out is m × n, row-major, ld `out_ld` >= n.
 * a is m × k: element (i, j) at a[i * a_ld + j], or with a_transposed at a[i + j * a_ld]. b is k × n, alike.
 * Batch strides count elements; 0 repeats an input. allow_tf32: float32 inputs may be rounded to TF32.
 * float16 and bfloat16 accumulate in float32. */
typedef struct {
    const void *a, *b;
    void *out;
    int64_t m, n, k, batch;
    int64_t a_ld, b_ld, out_ld;
    int64_t a_batch, b_batch, out_batch;
    bool a_transposed, b_transposed, accumulate, allow_tf32;
    fs_dtype dtype;
} fs_matmul;

/* out[i] = draw `offset + i` of the stream `seed`, dense, float dtypes: Philox4x32-10, the same draws on every
 * device (one counter value per 4 draws; a normal pair by Box-Muller). Uniform on [low, high), normal mean low and
 * standard deviation high. For float64 a draw uses 53 bits. */
typedef struct {
    void *out;
    int64_t count;
    uint64_t seed, offset;
    double low, high;
    fs_dtype dtype;
} fs_random;

/* An opaque marker in the device's current stream. Two of them measure the device time of the work between them. */
typedef struct fs_mark fs_mark;

typedef struct {
    /* Allocate from and release to the device's cache of free blocks. Sizes are as requested; 0 gives a valid
     * pointer. */
    fs_status (*allocate)(fs_device device, size_t nbytes, void **data, fs_error *err);
    void (*release)(fs_device device, void *data, size_t nbytes);
    int64_t (*allocated)(fs_device device); /* bytes in tensors now */
    int64_t (*reserved)(fs_device device);  /* in tensors, the cache and scratch blocks */
    void (*empty_cache)(fs_device device);

    fs_status (*unary)(fs_device device, fs_unary_id op, const fs_elementwise *space, fs_error *err);
    fs_status (*binary)(fs_device device, fs_binary_id op, const fs_elementwise *space, fs_error *err);
    fs_status (*convert)(fs_device device, const fs_conversion *conversion, fs_error *err);
    /* Set every element of the space's out to scalar[0], converted to its dtype. in[] is unused. */
    fs_status (*fill)(fs_device device, const fs_elementwise *space, fs_error *err);
    fs_status (*reduce)(fs_device device, fs_reduction_id op, const fs_reduction *reduction, fs_error *err);
    fs_status (*cumsum)(fs_device device, const fs_cumsum *scan, fs_error *err);
    fs_status (*rowwise)(fs_device device, fs_rowwise_id op, const fs_rowwise *rowwise, fs_error *err);
    fs_status (*matmul)(fs_device device, const fs_matmul *matmul, fs_error *err);
    fs_status (*random)(fs_device device, fs_random_id op, const fs_random *random, fs_error *err);

    /* Copy dense bytes between this device and the host, or another device of the kind (peer). Returns when host memory
     * may be accessed again. */
    fs_status (*from_host)(fs_device device, void *to, const void *from, size_t nbytes, fs_error *err);
    fs_status (*to_host)(fs_device device, void *to, const void *from, size_t nbytes, fs_error *err);
    fs_status (*peer_copy)(fs_device to_device, void *to, fs_device from_device, const void *from, size_t nbytes,
                           fs_error *err);
    fs_status (*synchronize)(fs_device device, fs_error *err);

    /* Marks measure the time of the work queued between two of them. NULL on the CPU. mark_take records a mark from a
     * pool. mark_elapsed waits for both (same device) and returns the ns from the first to the second. mark_give
     * returns a mark to the pool. */
    fs_status (*mark_take)(fs_device device, fs_mark **mark, fs_error *err);
    fs_status (*mark_elapsed)(fs_device device, fs_mark *from, fs_mark *to, int64_t *ns, fs_error *err);
    void (*mark_give)(fs_device device, fs_mark *mark);
} fs_backend;

extern const fs_backend fs_cpu_backend;  /* csrc/ops/cpu/ */
extern const fs_backend fs_cuda_backend; /* kernels/; in a build without CUDA every call fails with the reason */

static inline const fs_backend *fs_backend_of(fs_device device)
{
    return device.kind == FS_CUDA ? &fs_cuda_backend : &fs_cpu_backend;
}

/* Dense C = A · B of one pair of float or double matrices for the CPU backend, by a BLAS that the binding registers
 * (layouts as in fs_matmul; batch 1, no accumulate). NULL: the CPU backend's own loops. */
typedef fs_status (*fs_blas_matmul)(const fs_matmul *matmul, fs_error *err);
void fs_cpu_set_blas(fs_blas_matmul blas);

#endif
