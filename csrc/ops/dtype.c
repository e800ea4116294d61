/* The table is indexed by fs_dtype and ends with a row for "no dtype", so that a look-up needs no test. Sizes are
 * stated in three places (here, for torch's traces, by the C type); the assertions hold them to each other at compile
 * time. */
#include "ops/dtype.h"

#include <string.h>

#include "store/torch_signature.h"

/* The sizes are those of torch's dtypes of the same names. */
enum {
#define FS_TORCH_DTYPE(NAME, kineto, name, bytes, kind) TORCH_BYTES_##NAME = bytes,
#include "store/torch_dtypes.def"
#undef FS_TORCH_DTYPE
};
#define FS_DTYPE_CHECK(NAME, name, bytes, ctype, dl) \
    _Static_assert(bytes == TORCH_BYTES_##NAME && bytes == sizeof(ctype), "the size of " #name);
FS_DTYPE_LIST(FS_DTYPE_CHECK)
#undef FS_DTYPE_CHECK

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
