/* The arguments of convolution ops. Private to csrc/work/aten.
 *
 * X(NAME, weight, bias, stride, padding, dilation, transposed, output padding, groups): places, or NOT_THERE if the op
 * has no such argument; transposed: ALWAYS, NOT_THERE or the place of a flag. */
#ifndef FS_WORK_ATEN_CONVOLUTION_H
#define FS_WORK_ATEN_CONVOLUTION_H

#include "work/work.h"

enum { FS_NOT_THERE = -1, FS_ALWAYS = -2 };

#define FS_CONVOLUTION_LIST(X)                                        \
    X(ATEN, 1, 2, 3, 4, 5, 6, 7, 8)                                   \
    X(PLAIN, 1, 2, 3, 4, 5, FS_NOT_THERE, FS_NOT_THERE, 6)            \
    X(TRANSPOSED, 1, 2, 3, 4, 7, FS_ALWAYS, 5, 6)                     \
    X(CUDNN, 1, FS_NOT_THERE, 3, 2, 4, FS_NOT_THERE, FS_NOT_THERE, 5) \
    X(CUDNN_TRANSPOSED, 1, FS_NOT_THERE, 4, 2, 5, FS_ALWAYS, 3, 6)    \
    X(MIOPEN_TRANSPOSED, 1, 2, 5, 3, 6, FS_ALWAYS, 4, 7)              \
    X(PADDING_FIRST, 1, 2, 4, 3, 5, FS_NOT_THERE, FS_NOT_THERE, 6)    \
    X(ADD, 1, 4, 5, 6, 7, FS_NOT_THERE, FS_NOT_THERE, 8)              \
    X(SLOW, 1, 3, 4, 5, 6, FS_NOT_THERE, FS_NOT_THERE, FS_NOT_THERE)  \
    X(SLOW_TRANSPOSED, 1, 3, 4, 5, 7, FS_ALWAYS, 6, FS_NOT_THERE)

enum {
#define FS_CONVOLUTION_ENUM(NAME, ...) FS_CONVOLUTION_##NAME,
    FS_CONVOLUTION_LIST(FS_CONVOLUTION_ENUM)
#undef FS_CONVOLUTION_ENUM
};

/* Gradients. X(NAME, transposed, output mask): places, after the gradient, the input and the weight. */
#define FS_BACKWARD_LIST(X) \
    X(ATEN, 7, 10)          \
    X(OVERRIDEABLE, 6, 9)   \
    X(SLOW, FS_NOT_THERE, 6)

enum {
#define FS_BACKWARD_ENUM(NAME, ...) FS_BACKWARD_##NAME,
    FS_BACKWARD_LIST(FS_BACKWARD_ENUM)
#undef FS_BACKWARD_ENUM
};

/* The gradient computed by a single-gradient op. */
enum { FS_PART_INPUT, FS_PART_WEIGHT, FS_PART_BIAS };

/* The forward op's tensors in the call of a gradient. Rows: gradients.def. Private to csrc/work/aten. */

typedef struct {
    const char *op; /* "": any convolution */
    const fs_torch_tensor *input, *weight /* may be NULL */, *output;
    int transposed; /* as in the row: a place in the gradient's call */
} fs_gradient;

#endif
