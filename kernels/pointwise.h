/* The pointwise kernels' arguments, and the tables of kernels in pointwise_<dtype>.cu for pointwise.c. */
#ifndef FS_KERNELS_POINTWISE_H
#define FS_KERNELS_POINTWISE_H

#include "kernels/layout.h"

/* Elements per thread, by their size. Dense: enough loads in flight to saturate memory, few enough registers to keep
 * all warps resident. An op of many instructions has longer runs, so that its loads overlap with them. Strided: one
 * vector, or as many single elements. */
#define FS_DENSE_ITEMS(size, heavy) ((heavy) && (size) == 4 ? 16 : 32 / (int)(size))
#define FS_BINARY_IS_HEAVY(op) ((op) == FS_BINARY_pow)
#define FS_STRIDED_ITEMS(size) (FS_VECTOR_BYTES / (int)(size))

/* Whether a few instructions compute this power. */
static inline bool fs_is_few_power(double exponent)
{
    return exponent == 2 || exponent == 3 || exponent == -1 || exponent == 0.5;
}

typedef struct {
    void *out;
    const void *in[2]; /* NULL: the scalar */
    double scalar[2];
    float scalar32[2];
    int64_t count;
    bool vectors; /* all pointers are aligned to FS_VECTOR_BYTES */
} fs_dense_arguments;

typedef struct {
    void *out;
    const void *in[2];
    double scalar[2];
    float scalar32[2];
    bool vectors;  /* a unit is a vector of FS_VECTOR_BYTES */
    bool splat[2]; /* if so: the input repeats one element along it */
    fs_layout layout;
} fs_strided_arguments;

typedef struct {
    const void *unary_dense[FS_UNARY_COUNT], *unary_strided[FS_UNARY_COUNT];
    const void *binary_dense[FS_BINARY_COUNT], *binary_strided[FS_BINARY_COUNT];
    const void *few_powers_dense; /* of one input; the exponent is scalar[1] */
} fs_pointwise_kernels;

#ifdef __cplusplus
extern "C" {
#endif
extern const fs_pointwise_kernels fs_pointwise_float64, fs_pointwise_float32, fs_pointwise_float16,
    fs_pointwise_bfloat16;
#ifdef __cplusplus
}
#endif

#endif
