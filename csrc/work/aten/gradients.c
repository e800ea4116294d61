/* A table of the places at which a gradient's call has its forward op's input, weight and result. A gradient has the
 * shape of a result only if the forward op's own tensors have the same shapes, so a call of other sizes is never
 * mistaken for it. */
#include "work/aten/gradients.h"

#include <string.h>

#include "work/aten/convolution.h"
#include "work/aten/sizes.h"
#include "work/libraries/libraries.h"

static const struct {
    const char *name, *op;
    int transposed, input, gradient, weight;
} rows[] = {
#define FS_GRADIENT(name, ...) {#name, __VA_ARGS__},
#include "work/aten/gradients.def"
#undef FS_GRADIENT
};

static const char aten[] = "aten::";

/* Return whether the op is aten's op of that name, in any overload. */
static bool is_op(const char *name, const char *op)
{
    size_t prefix = sizeof aten - 1, size = strlen(op);
    if (strncmp(name, aten, prefix) != 0 || strncmp(name + prefix, op, size) != 0) return false;
    char end = name[prefix + size];
    return end == 0 || end == '.';
}

bool fs_gradient_find(const char *name, const fs_torch_call *call, fs_gradient *found)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!is_op(name, rows[i].name)) continue;
        bool weighted = rows[i].weight != FS_NOT_THERE;
        *found = (fs_gradient){
            .op = rows[i].op,
            .input = fs_sizes_tensor(call, (unsigned)rows[i].input),
            .weight = weighted ? fs_sizes_tensor(call, (unsigned)rows[i].weight) : NULL,
            .output = fs_sizes_tensor(call, (unsigned)rows[i].gradient),
            .transposed = rows[i].transposed,
        };
        return found->input != NULL && found->output != NULL && (!weighted || found->weight != NULL);
    }
    return false;
}

static bool same_shape(const fs_torch_tensor *a, const fs_torch_tensor *b)
{
    return a != NULL && a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
}

bool fs_work_is_gradient(const char *name, const fs_torch_call *call)
{
    fs_gradient found;
    return fs_bags_is_gradient(name) || fs_gradient_find(name, call, &found);
}

const fs_torch_tensor *fs_work_result_told(const char *gradient_name, const fs_torch_call *gradient, const char *name,
                                           const fs_torch_call *call)
{
    fs_gradient of;
    if (fs_bags_is_gradient(gradient_name)) {
        const fs_torch_tensor *result = fs_sizes_tensor(gradient, 0);
        bool fits = fs_bags_is_gradient_of(gradient_name, name) && fs_bags_fit(name, call, result);
        return fits ? result : NULL;
    }
    if (!fs_gradient_find(gradient_name, gradient, &of)) return NULL;
    if (*of.op != 0 && !is_op(name, of.op)) return NULL;
    if (*of.op == 0 && strstr(name, "conv") == NULL) return NULL;
    if (!same_shape(fs_sizes_tensor(call, 0), of.input)) return NULL;
    if (of.weight != NULL && !same_shape(fs_sizes_tensor(call, 1), of.weight)) return NULL;
    return of.output;
}
