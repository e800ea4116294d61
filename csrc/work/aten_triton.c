#include "work/aten_triton.h"

#include <math.h>
#include <string.h>

#include "work/aten_sizes.h"

/* Parts that pick elements of a tensor by an index: they touch no more of them than the kernel has points. */
static const char *const picks[] = {"embedding", "gather", "index", "scatter"};

bool fs_triton_is_kernel(const char *name)
{
    return strncmp(name, "triton_", strlen("triton_")) == 0;
}

static bool picks_elements(const char *name)
{
    for (size_t i = 0; i < sizeof picks / sizeof *picks; i++)
        if (strstr(name, picks[i]) != NULL) return true;
    return false;
}

/* The points of the kernel's grid: the product of the sizes that follow the tensors. */
static double points_of(const fs_torch_call *call)
{
    double points = 1;
    for (uint32_t i = 0; i < call->count; i++) {
        if (call->arguments[i].type != FS_TORCH_SCALAR) continue;
        double size = fs_sizes_number(call->arguments[i].text, NAN);
        if (!(size >= 1)) return INFINITY;
        points *= size;
    }
    return points;
}

fs_work fs_triton_count(const char *name, const fs_torch_call *call)
{
    fs_work work = fs_work_unknown;
    double most = picks_elements(name) ? points_of(call) : (double)INFINITY, bytes = 0;
    int tensors = 0;
    for (uint32_t i = 0; i < call->count; i++) {
        const fs_torch_tensor *tensor = fs_sizes_tensor(call, i);
        if (tensor == NULL) continue;
        bytes += fmin(fs_sizes_distinct(tensor), most) * fs_sizes_item(tensor->dtype);
        tensors++;
    }
    if (tensors > 0 && call->whole) work.bytes_moved = bytes;
    return work;
}
