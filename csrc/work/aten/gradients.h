/* What the call of a gradient tells of the op whose gradient it is. Rows: gradients.def. Private to csrc/work/aten. */
#ifndef FS_WORK_ATEN_GRADIENTS_H
#define FS_WORK_ATEN_GRADIENTS_H

#include "work/work.h"

typedef struct {
    const char *op; /* "" : any convolution */
    const fs_torch_tensor *input, *weight /* or NULL */, *output;
    int transposed; /* as in the row: a place in the gradient's call */
} fs_gradient;

/* False where the op is no such gradient, or was called without one of its tensors. */
bool fs_gradient_find(const char *name, const fs_torch_call *call, fs_gradient *found);

#endif
