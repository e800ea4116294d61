/* Element types. One row each. */
#ifndef FS_OPS_DTYPE_H
#define FS_OPS_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* DLPack's type codes (dlpack.h, DLDataTypeCode). */
enum { FS_DL_INT = 0, FS_DL_UINT = 1, FS_DL_FLOAT = 2, FS_DL_BFLOAT = 4, FS_DL_BOOL = 6 };

/* X(NAME, name, bytes, C type of the stored bits, DLPack code). Floats, the dtypes of arithmetic ops, come first. */
#define FS_DTYPE_LIST(X)                             \
    X(FLOAT64, float64, 8, double, FS_DL_FLOAT)      \
    X(FLOAT32, float32, 4, float, FS_DL_FLOAT)       \
    X(FLOAT16, float16, 2, uint16_t, FS_DL_FLOAT)    \
    X(BFLOAT16, bfloat16, 2, uint16_t, FS_DL_BFLOAT) \
    X(INT64, int64, 8, int64_t, FS_DL_INT)           \
    X(INT32, int32, 4, int32_t, FS_DL_INT)           \
    X(INT8, int8, 1, int8_t, FS_DL_INT)              \
    X(UINT8, uint8, 1, uint8_t, FS_DL_UINT)          \
    X(BOOL, bool, 1, uint8_t, FS_DL_BOOL)

typedef enum {
#define FS_DTYPE_ENUM(NAME, name, bytes, ctype, dl) FS_##NAME,
    FS_DTYPE_LIST(FS_DTYPE_ENUM)
#undef FS_DTYPE_ENUM
        FS_DTYPE_COUNT,
    FS_DTYPE_NONE = FS_DTYPE_COUNT /* of an argument without a dtype: a Python scalar */
} fs_dtype;

typedef struct {
    const char *name;
    size_t size;
    int dl_code;
} fs_dtype_row;

extern const fs_dtype_row fs_dtypes[FS_DTYPE_COUNT + 1];

static inline bool fs_dtype_is_float(fs_dtype dtype)
{
    return dtype <= FS_BFLOAT16;
}

/* The dtype with that name, or FS_DTYPE_NONE. */
fs_dtype fs_dtype_find(const char *name);

#endif
