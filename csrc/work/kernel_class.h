/* Classification of kernels by name. The patterns are listed in kernel_class.def. */
#ifndef FS_WORK_KERNEL_CLASS_H
#define FS_WORK_KERNEL_CLASS_H

#include <stdbool.h>

#include "store/signature.h"
#include "store/torch_signature.h"

/* X(NAME, name, prose) */
#define FS_KERNEL_CLASS_LIST(X)                                                               \
    X(OTHER, other, "unrecognized name")                                                      \
    X(COMMUNICATION, communication, "moves data between devices; not the work of one device") \
    X(TENSOR, tensor, "multiplies matrices on the tensor cores")                              \
    X(MATRIX, matrix, "multiplies matrices on the CUDA cores, without tensor cores")          \
    X(MFMA, mfma, "multiplies matrices on AMD's matrix cores, perhaps in float32 or float64") \
    X(UNKNOWN, unknown, "multiplies matrices; its name does not tell on which unit")

typedef enum {
#define FS_KERNEL_CLASS_ENUM(NAME, name, prose) FS_KERNEL_##NAME,
    FS_KERNEL_CLASS_LIST(FS_KERNEL_CLASS_ENUM)
#undef FS_KERNEL_CLASS_ENUM
        FS_KERNEL_CLASS_COUNT
} fs_kernel_class;

/* Return the class of a kernel by its demangled or mangled name. A kernel whose name is not descriptive is OTHER. */
fs_kernel_class fs_kernel_class_of(const char *name);

/* Return whether the kernel convolves with fewer multiplications than its op's work counts: Winograd's algorithm or a
 * Fourier transform. The peaks give no lower bound for its time. */
bool fs_kernel_saves_flops(const char *name);

/* Return the dtype that a kernel reads and writes, by its name (kernel_dtype.def), or FS_TORCH_DTYPE_NONE. */
fs_torch_dtype fs_kernel_dtype(const char *name);

/* The elements that a kernel covers, inferred from its name and launch. */
typedef struct {
    double elements; /* upper bound; NaN: unknown */
    int size;        /* bytes of an element; 0: unknown */
} fs_kernel_extent;

/* Return the extent of a kernel. `launch` may be NULL. */
fs_kernel_extent fs_kernel_extent_of(const char *name, const fs_launch *launch);

#endif
