/* The part of cuBLASLt that matrix products use, declared here so that its header is needed neither to build nor to
 * run. Names and numbers are those of NVIDIA's cublasLt.h and cublas_api.h (CUDA 12 and 13). If that header is
 * available, cublaslt.c checks that they agree.
 */
#ifndef FS_KERNELS_CUBLASLT_H
#define FS_KERNELS_CUBLASLT_H

#include <library_types.h> /* cudaDataType, from the CUDA runtime */

#include "kernels/context.h"

/* X(flopscope's name, NVIDIA's name, number) */
#define FS_CUBLASLT_NUMBERS(X)                                                   \
    X(FS_LT_SUCCESS, CUBLAS_STATUS_SUCCESS, 0)                                   \
    X(FS_LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED, 15)                      \
    X(FS_LT_OP_N, CUBLAS_OP_N, 0)                                                \
    X(FS_LT_OP_T, CUBLAS_OP_T, 1)                                                \
    X(FS_LT_COMPUTE_32F, CUBLAS_COMPUTE_32F, 68)                                 \
    X(FS_LT_COMPUTE_32I, CUBLAS_COMPUTE_32I, 72)                                 \
    X(FS_LT_COMPUTE_64F, CUBLAS_COMPUTE_64F, 70)                                 \
    X(FS_LT_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32F_FAST_TF32, 77)             \
    X(FS_LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA, 3)                         \
    X(FS_LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB, 4)                         \
    X(FS_LT_DESC_FAST_ACCUMULATION, CUBLASLT_MATMUL_DESC_FAST_ACCUM, 25)         \
    X(FS_LT_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)           \
    X(FS_LT_LAYOUT_BATCH_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6) \
    X(FS_LT_PREF_MAX_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)     \
    X(FS_LT_PREF_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)     \
    X(FS_LT_PREF_ALIGNMENT_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)     \
    X(FS_LT_PREF_ALIGNMENT_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)     \
    X(FS_LT_PREF_ALIGNMENT_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)

enum {
#define FS_LT_ENUM(ours, theirs, number) ours = number,
    FS_CUBLASLT_NUMBERS(FS_LT_ENUM)
#undef FS_LT_ENUM
};

/* Handles point to structs that are private to cuBLASLt. */
typedef struct fs_lt_handle *fs_lt_handle;
typedef struct fs_lt_desc *fs_lt_desc;
typedef struct fs_lt_layout *fs_lt_layout;
typedef struct fs_lt_preference *fs_lt_preference;

typedef struct {
    uint64_t data[8];
} fs_lt_algorithm;

typedef struct {
    fs_lt_algorithm algorithm;
    size_t workspace;
    int state; /* the other fields are valid only if it is FS_LT_SUCCESS */
    float waves;
    int reserved[4];
} fs_lt_heuristic;

/* X(field, symbol, result, parameters): the functions to load. */
#define FS_CUBLASLT_SYMBOLS(X)                                                                                         \
    X(create, cublasLtCreate, int, (fs_lt_handle *))                                                                   \
    X(status_name, cublasLtGetStatusName, const char *, (int))                                                         \
    X(desc_create, cublasLtMatmulDescCreate, int, (fs_lt_desc *, int compute, cudaDataType scale))                     \
    X(desc_destroy, cublasLtMatmulDescDestroy, int, (fs_lt_desc))                                                      \
    X(desc_set, cublasLtMatmulDescSetAttribute, int, (fs_lt_desc, int name, const void *, size_t))                     \
    X(layout_create, cublasLtMatrixLayoutCreate, int,                                                                  \
      (fs_lt_layout *, cudaDataType, uint64_t rows, uint64_t columns, int64_t ld))                                     \
    X(layout_destroy, cublasLtMatrixLayoutDestroy, int, (fs_lt_layout))                                                \
    X(layout_set, cublasLtMatrixLayoutSetAttribute, int, (fs_lt_layout, int name, const void *, size_t))               \
    X(preference_create, cublasLtMatmulPreferenceCreate, int, (fs_lt_preference *))                                    \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy, int, (fs_lt_preference))                                    \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute, int, (fs_lt_preference, int name, const void *, size_t))   \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic, int,                                                                  \
      (fs_lt_handle, fs_lt_desc, fs_lt_layout a, fs_lt_layout b, fs_lt_layout c, fs_lt_layout d, fs_lt_preference,     \
       int requested, fs_lt_heuristic *, int *returned))                                                               \
    X(matmul, cublasLtMatmul, int,                                                                                     \
      (fs_lt_handle, fs_lt_desc, const void *alpha, const void *a, fs_lt_layout, const void *b, fs_lt_layout,          \
       const void *beta, const void *c, fs_lt_layout, void *d, fs_lt_layout, const fs_lt_algorithm *, void *workspace, \
       size_t workspace_size, cudaStream_t))

typedef struct {
#define FS_LT_FIELD(field, symbol, result, parameters) result(*field) parameters;
    FS_CUBLASLT_SYMBOLS(FS_LT_FIELD)
#undef FS_LT_FIELD
} fs_cublaslt;

/* The library's functions, loaded on the first call. FS_RUNTIME_ERROR names what to install. */
fs_status fs_cublaslt_get(const fs_cublaslt **library, fs_error *err);

#endif
