/* What kind of work a kernel does, as far as its name tells. The patterns are rows of kernel_class.def. */
#ifndef FS_WORK_KERNEL_CLASS_H
#define FS_WORK_KERNEL_CLASS_H

#include <stdbool.h>

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

/* Elements that a block of PyTorch's multi_tensor_apply covers at most (ATen/native/cuda/MultiTensorApply.cuh,
 * kChunkSize). */
enum { FS_MULTI_TENSOR_ELEMENTS = 65536 };

/* The bytes of an element of the lists of tensors that a kernel goes over, by the type that its functor names (of those
 * above), or by the size that it copies (of cat); 0 of other kernels, and where the name does not tell. */
int fs_kernel_list_size(const char *name);
bool fs_kernel_is_multi_tensor(const char *name);

#endif
