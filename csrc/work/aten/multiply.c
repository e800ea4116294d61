/* An argument that the call does not have is `absent`; one that the trace did not record is NaN, and the callers must
 * not confuse the two. */
#include "work/aten/multiply.h"

#include <math.h>

#include "work/aten/sizes.h"

double fs_products_flops_each(unsigned dtype)
{
    return fs_torch_dtypes[dtype].kind == FS_TORCH_COMPLEX ? 8 : 2;
}

double fs_products_number(const fs_torch_call *call, int place, double absent)
{
    if (place < 0 || (unsigned)place >= call->count) return absent;
    return fs_sizes_number(fs_sizes_text(call, (unsigned)place), NAN);
}

double fs_products_flag(const fs_torch_call *call, int place)
{
    if (place < 0 || (unsigned)place >= call->count) return 0;
    const char *text = fs_sizes_text(call, (unsigned)place);
    return *text == 0 ? (double)NAN : fs_sizes_is_true(text) || fs_sizes_number(text, 0) != 0;
}

double fs_products_read(const fs_torch_call *call, unsigned from, unsigned to)
{
    double bytes = 0;
    for (unsigned place = from; place < to && place < call->count; place++) {
        const fs_torch_tensor *tensor = fs_sizes_tensor(call, place);
        if (tensor != NULL && tensor->ndim > 0) bytes += fs_sizes_read(tensor);
    }
    return bytes;
}
