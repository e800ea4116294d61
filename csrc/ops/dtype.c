#include "ops/dtype.h"

#include <string.h>

const fs_dtype_row fs_dtypes[FS_DTYPE_COUNT + 1] = {
#define FS_DTYPE_ROW(NAME, name, bytes, ctype, dl) [FS_##NAME] = {#name, bytes, dl},
    FS_DTYPE_LIST(FS_DTYPE_ROW)
#undef FS_DTYPE_ROW
        [FS_DTYPE_NONE] = {"scalar", 0, 0},
};

fs_dtype fs_dtype_find(const char *name)
{
    for (fs_dtype dtype = 0; dtype < FS_DTYPE_COUNT; dtype++) {
        if (strcmp(fs_dtypes[dtype].name, name) == 0) return dtype;
    }
    return FS_DTYPE_NONE;
}
