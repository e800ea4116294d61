/* Iteration spaces: which elements of several tensors belong together. */
#ifndef FS_OPS_SPACE_H
#define FS_OPS_SPACE_H

#include "ops/backend.h"

/* The shape that two shapes broadcast to by NumPy's rule; false if they do not. `shape` holds FS_MAX_DIMS. */
bool fs_broadcast_shape(int a_ndim, const int64_t *a, int b_ndim, const int64_t *b, int *ndim, int64_t *shape);

/* Lay out element-by-element work: dimensions ordered by out's strides, made positive there, and merged where every
 * operand allows. in[i] NULL: a scalar. Inputs must broadcast to out's shape, which must have elements. Sets all of
 * `space` but scalar[]. */
void fs_space_make(fs_elementwise *space, const fs_tensor *out, const fs_tensor *const in[2]);

/* The tensor seen with another shape that it broadcasts to (no memory of its own is taken: a borrowed view). */
fs_tensor fs_tensor_broadcast(const fs_tensor *tensor, int ndim, const int64_t *shape);

/* Bytes [*low, *high) that hold the tensor's elements. */
void fs_tensor_extent(const fs_tensor *tensor, const char **low, const char **high);
/* The same elements of the same memory (whatever the order of dimensions); and memory in common at all. */
bool fs_tensor_same_memory(const fs_tensor *a, const fs_tensor *b);
bool fs_tensor_overlaps(const fs_tensor *a, const fs_tensor *b);

#endif
