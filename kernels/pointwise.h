/* The pointwise kernels' arguments, and the tables of kernels that pointwise_<dtype>.cu give to pointwise.c. */
#ifndef FS_KERNELS_POINTWISE_H
#define FS_KERNELS_POINTWISE_H

#include "kernels/layout.h"

/* Elements that one thread computes, by their size. Dense: enough loads under way to keep memory busy, few enough
 * registers to keep all warps resident. Strided: one vector, or as many single elements. */
#ifndef FS_DENSE_ITEMS
#define FS_DENSE_ITEMS(size) ((size) == 8 ? 4 : 8)
#endif
#define FS_STRIDED_ITEMS(size) (FS_VECTOR_BYTES / (int)(size))

/* What a dense kernel marks as used once, the first to leave the caches: FS_STREAM_LOADS, FS_STREAM_STORES, or both. */
#ifndef FS_DENSE_STREAMS
#define FS_DENSE_STREAMS 0
#endif

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
    bool splat[2]; /* then: the input repeats one element along it */
    fs_layout layout;
} fs_strided_arguments;

typedef struct {
    const void *unary_dense[FS_UNARY_COUNT], *unary_strided[FS_UNARY_COUNT];
    const void *binary_dense[FS_BINARY_COUNT], *binary_strided[FS_BINARY_COUNT];
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
