/* What kind of work a kernel does, as far as its name tells. The patterns are rows of kernel_class.def. */
#ifndef FS_WORK_KERNEL_CLASS_H
#define FS_WORK_KERNEL_CLASS_H

#include <stdbool.h>

#include "store/signature.h"
#include "store/torch_signature.h"

/* X(NAME, name, prose) */
#define FS_KERNEL_CLASS_LIST(X)                                                               \
    X(OTHER, other, "none of the below, as far as the name tells")                            \
    X(COMMUNICATION, communication, "moves data between devices: no work of any one of them") \
    X(TENSOR, tensor, "multiplies matrices on the tensor cores")                              \
    X(MATRIX, matrix, "multiplies matrices on the CUDA cores, where the tensor cores stand unused")

typedef enum {
#define FS_KERNEL_CLASS_ENUM(NAME, name, prose) FS_KERNEL_##NAME,
    FS_KERNEL_CLASS_LIST(FS_KERNEL_CLASS_ENUM)
#undef FS_KERNEL_CLASS_ENUM
        FS_KERNEL_CLASS_COUNT
} fs_kernel_class;

/* Of a demangled or mangled name. A kernel whose name says nothing (most that Triton makes) is OTHER, whatever it does.
 */
fs_kernel_class fs_kernel_class_of(const char *name);

/* The first class alone, which takes a tenth of the time. */
bool fs_kernel_is_communication(const char *name);

/* Whether it convolves by an algorithm of fewer multiplications than the one that work counts: Winograd's, or a Fourier
 * transform. Peaks say nothing of how long that takes at least. */
bool fs_kernel_saves_flops(const char *name);

/* The dtype of what a kernel reads and writes, as its name tells (kernel_dtype.def), or FS_TORCH_DTYPE_NONE. */
fs_torch_dtype fs_kernel_dtype(const char *name);

/* What a kernel goes over, as far as its name and its launch tell. */
typedef struct {
    double elements; /* at most; NaN: not told */
    int size;        /* bytes of an element; 0: not told */
} fs_kernel_extent;

/* launch may be NULL. */
fs_kernel_extent fs_kernel_extent_of(const char *name, const fs_launch *launch);

#endif
