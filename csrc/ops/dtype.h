/* The element types of tensors. */
#ifndef FS_OPS_DTYPE_H
#define FS_OPS_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/dtypes.h"

/* DLPack's type codes (dlpack.h, DLDataTypeCode). */
enum {
    FS_DL_INT = 0,
    FS_DL_UINT = 1,
    FS_DL_FLOAT = 2,
    FS_DL_BFLOAT = 4,
    FS_DL_BOOL = 6,
    FS_DL_FLOAT8_E4M3FN = 10,
    FS_DL_FLOAT8_E5M2 = 12
};

/* X(NAME, name, bytes, C type, …): the dtypes of tensors, with all columns of store/dtypes.h. */
#define FS_DTYPE_LIST(X) FS_DTYPES(X, FS_NO_DTYPE)
#define FS_NO_DTYPE(...)

typedef enum {
#define FS_DTYPE_ENUM(NAME, ...) FS_##NAME,
    FS_DTYPE_LIST(FS_DTYPE_ENUM)
#undef FS_DTYPE_ENUM
        FS_DTYPE_COUNT,
    FS_DTYPE_NONE = FS_DTYPE_COUNT /* of an argument without a dtype: a Python scalar */
} fs_dtype;

typedef struct {
    const char *name;
    size_t size;
    int dl_code;
    const char *format; /* of the buffer protocol; NULL: it lacks the dtype */
    uint8_t torch;      /* fs_torch_dtype */
} fs_dtype_row;

extern const fs_dtype_row fs_dtypes[FS_DTYPE_COUNT + 1];

/* A dtype of arithmetic ops. */
static inline bool fs_dtype_is_float(fs_dtype dtype)
{
    return dtype <= FS_BFLOAT16;
}

static inline bool fs_dtype_is_float8(fs_dtype dtype)
{
    return dtype == FS_FLOAT8_E4M3FN || dtype == FS_FLOAT8_E5M2;
}

/* The dtype of a matrix product: that of its factors if they are floats, int32 of int8, and of float8, of which the
 * two may differ, bfloat16. FS_DTYPE_NONE: there is no such product. */
fs_dtype fs_dtype_of_product(fs_dtype a, fs_dtype b);

/* For messages. */
#define FS_FLOATS_TEXT "float64, float32, float16 or bfloat16"
#define FS_PRODUCTS_TEXT                                                                                            \
    "Supports float64, float32, float16 and bfloat16; int8, which gives int32; and float8_e4m3fn and float8_e5m2, " \
    "also mixed, which give bfloat16, or float32 or float16 if the bias or else `out` has it. All tensors must be " \
    "on one device, and otherwise have one dtype."
extern const char *const fs_dtype_names; /* "float64, float32, …" */

/* The dtype with that name, or FS_DTYPE_NONE. */
fs_dtype fs_dtype_find(const char *name);

#endif
