/* Iteration spaces: the common dimensions and strides of several tensors. */
#ifndef FS_OPS_SPACE_H
#define FS_OPS_SPACE_H

#include "ops/backend.h"

/* Broadcast two shapes by NumPy's rule; false if they do not broadcast. `shape` has room for FS_MAX_DIMS. */
bool fs_broadcast_shape(int a_ndim, const int64_t *a, int b_ndim, const int64_t *b, int *ndim, int64_t *shape);

/* Lay out elementwise work: dimensions are ordered by out's strides, made positive, and merged where every operand
 * allows it. in[i] NULL: a scalar. Inputs must broadcast to out's shape, which must not be empty. Sets all of `space`
 * except scalar[]. */
void fs_space_make(fs_elementwise *space, const fs_tensor *out, const fs_tensor *const in[2]);

/* View the tensor in a shape that it broadcasts to. The view borrows the memory. */
fs_tensor fs_tensor_broadcast(const fs_tensor *tensor, int ndim, const int64_t *shape);

/* The range of bytes [*low, *high) that holds the tensor's elements. */
void fs_tensor_extent(const fs_tensor *tensor, const char **low, const char **high);
/* Whether both tensors have the same elements in memory, in any order of dimensions; and whether they share any
 * memory. */
bool fs_tensor_same_memory(const fs_tensor *a, const fs_tensor *b);
bool fs_tensor_overlaps(const fs_tensor *a, const fs_tensor *b);

#endif
