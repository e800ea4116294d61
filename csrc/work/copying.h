/* What a copy changes besides the place of its elements. */
#ifndef FS_WORK_COPYING_H
#define FS_WORK_COPYING_H

#include <stddef.h>

typedef enum {
    FS_COPY_PLAIN,    /* nothing, or it is unknown */
    FS_COPY_CASTS,    /* from one dtype of floating point to another */
    FS_COPY_REORDERS, /* the order in memory of dimensions of more than one element, and no dtype */
} fs_copying;

/* Compare the first two arguments of a torch op, which must be tensors of one shape and of more than one element. A
 * copy reorders if the strides of both are known, none is 0, as those of a broadcast are, and they order the dimensions
 * differently. `bytes` is a signature of any kind. */
fs_copying fs_work_copying(const void *bytes, size_t size);

#endif
