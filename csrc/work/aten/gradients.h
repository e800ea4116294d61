/* The forward op's tensors in the call of a gradient. Rows: gradients.def. Private to csrc/work/aten. */
#ifndef FS_WORK_ATEN_GRADIENTS_H
#define FS_WORK_ATEN_GRADIENTS_H

#include "work/work.h"

typedef struct {
    const char *op; /* "": any convolution */
    const fs_torch_tensor *input, *weight /* may be NULL */, *output;
    int transposed; /* as in the row: a place in the gradient's call */
} fs_gradient;

/* Return false if the op is not such a gradient, or one of its tensors is missing. */
bool fs_gradient_find(const char *name, const fs_torch_call *call, fs_gradient *found);

#endif
