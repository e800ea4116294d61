/* The table is indexed by fs_dtype and ends with a row for "no dtype", so that a look-up needs no test. */
#include "ops/dtype.h"

#include <string.h>

#include "store/torch_signature.h"

#define FS_DTYPE_CHECK(NAME, name, bytes, ctype, ...) _Static_assert(bytes == sizeof(ctype), "the size of " #name);
FS_DTYPE_LIST(FS_DTYPE_CHECK)
#undef FS_DTYPE_CHECK

const fs_dtype_row fs_dtypes[FS_DTYPE_COUNT + 1] = {
#define FS_DTYPE_ROW(NAME, name, bytes, ctype, dlpack, format, ...) \
    [FS_##NAME] = {#name, bytes, FS_DL_##dlpack, format, FS_TORCH_##NAME},
    FS_DTYPE_LIST(FS_DTYPE_ROW)
#undef FS_DTYPE_ROW
        [FS_DTYPE_NONE] = {"scalar", 0, 0, NULL, FS_TORCH_DTYPE_NONE},
};

#define FS_DTYPE_NAME(NAME, name, ...) ", " #name
const char *const fs_dtype_names = &(FS_DTYPE_LIST(FS_DTYPE_NAME))[2];
#undef FS_DTYPE_NAME

fs_dtype fs_dtype_of_product(fs_dtype a, fs_dtype b)
{
    if (fs_dtype_is_float8(a) && fs_dtype_is_float8(b)) return FS_BFLOAT16;
    if (a != b) return FS_DTYPE_NONE;
    if (a == FS_INT8) return FS_INT32;
    return fs_dtype_is_float(a) ? a : FS_DTYPE_NONE;
}

fs_dtype fs_dtype_find(const char *name)
{
    for (fs_dtype dtype = 0; dtype < FS_DTYPE_COUNT; dtype++) {
        if (strcmp(fs_dtypes[dtype].name, name) == 0) return dtype;
    }
    return FS_DTYPE_NONE;
}
