/* Copies, conversions and fills: arguments and tables of kernels. */
#ifndef FS_KERNELS_CONVERT_H
#define FS_KERNELS_CONVERT_H

#include "kernels/layout.h"

enum {
    FS_COPY_ITEMS = 4, /* elements (strided) or vectors (fill) per thread */
    FS_SIZES = 4,      /* element sizes: 1, 2, 4 and 8 bytes, by their logarithm */
    FS_TRANSPOSE_ROWS = 64,
    FS_TRANSPOSE_THREADS = 512
};
/* Columns of a tile: 256 bytes for vectors, else as many elements as rows. */
#define FS_TRANSPOSE_COLUMNS(size, vectors) ((vectors) ? 256 / (int)(size) : FS_TRANSPOSE_ROWS)

/* Dense conversions move vectors whose larger side is 16 bytes: one per thread if both sides are equally long, as a
 * copy is then fastest, else at most four. */
#define FS_CONVERT_WIDTH(a, b) (FS_VECTOR_BYTES / (int)((a) > (b) ? (a) : (b)))
#define FS_CONVERT_ITEMS(a, b) \
    ((a) == (b) ? FS_CONVERT_WIDTH(a, b) : FS_CONVERT_WIDTH(a, b) > 4 ? 16 : 4 * FS_CONVERT_WIDTH(a, b))

typedef struct {
    void *out;
    const void *in;
    int64_t count;
    bool vectors; /* both pointers are aligned to 16 bytes */
} fs_convert_dense;

typedef struct {
    void *out;
    const void *in;
    fs_layout layout; /* strides[0] of out, strides[1] of in */
} fs_convert_strided;

/* out[batch, j, i] = in[batch, i, j]: in has unit stride along j, out along i. */
typedef struct {
    void *out;
    const void *in;
    int64_t rows, columns;            /* lengths of i and of j */
    int64_t in_stride, out_stride;    /* of i in `in` and of j in `out`, in elements */
    fs_fast_divisor row_tiles, tiles; /* tiles along i and in total, per matrix */
    fs_layout batch;                  /* a unit is a matrix */
} fs_transpose;

typedef struct {
    char *out;
    int64_t head, nbytes; /* bytes before the first 16-byte boundary, and in total */
    uint32_t pattern[4];  /* the value, repeated */
} fs_fill_dense;

typedef struct {
    void *out;
    uint64_t bits; /* the value, in the low bytes */
    fs_layout layout;
} fs_fill_strided;

/* Kernels that convert to one dtype, by the source dtype. */
typedef struct {
    const void *dense[FS_DTYPE_COUNT], *strided[FS_DTYPE_COUNT];
} fs_convert_kernels;

#ifdef __cplusplus
extern "C" {
#endif
#define FS_CONVERT_TABLE(NAME, name, ...) extern const fs_convert_kernels fs_convert_to_##name;
FS_DTYPE_LIST(FS_CONVERT_TABLE)
#undef FS_CONVERT_TABLE

extern const void *const fs_copy_vectors_kernel;            /* strided, of 16-byte units */
extern const void *const fs_transpose_kernels[2][FS_SIZES]; /* [whether by vectors of 16 bytes] */
extern const void *const fs_fill_dense_kernel;
extern const void *const fs_fill_strided_kernels[FS_SIZES];

/* The bits that store `value`. */
uint64_t fs_fill_bits(double value, fs_dtype dtype);
#ifdef __cplusplus
}
#endif

#endif
