/* Properties of events inferred from their names, cached per name of a store. */
#ifndef FS_WORK_NAMES_H
#define FS_WORK_NAMES_H

#include "store/store.h"
#include "work/kernel_class.h"

/* What the host does in an event, where its name tells. */
typedef enum {
    FS_HOST_OTHER,
    FS_HOST_WAITS,          /* the API call may wait for a device: cudaStreamSynchronize, cudaMemcpyAsync, … */
    FS_HOST_LAUNCHES,       /* the API call launches kernels or fills: cudaLaunchKernel, cudaMemsetAsync, … */
    FS_HOST_ORDERS_STREAMS, /* the API call makes a stream wait for an event: cudaStreamWaitEvent */
    FS_HOST_LOADS_CODE,     /* the API call or overhead loads the code of kernels: cuModuleLoadData, … */
    FS_HOST_LOADS_DATA,     /* the op or range, of torch or its DataLoader, waits for the next batch of data */
    FS_HOST_COMPILES,       /* the op or range is a part of a compilation by torch.compile or XLA */
} fs_host_kind;

typedef struct {
    const fs_store *store;
    uint8_t *kernel_classes; /* by name: class + 1; 0: not classified yet */
    uint8_t *host_kinds;     /* by name: likewise */
} fs_names;

/* FS_OUT_OF_MEMORY. fs_names_clear also accepts a zeroed struct. */
fs_status fs_names_create(fs_names *names, const fs_store *store, fs_error *err);
void fs_names_clear(fs_names *names);

/* Return the class of a kernel name; FS_KERNEL_OTHER for FS_NONE. */
fs_kernel_class fs_names_kernel_class(fs_names *names, uint32_t name);

/* Return whether a kernel's class is COMMUNICATION. */
bool fs_names_communicate(fs_names *names, uint32_t name);

/* Return what an event of that name does on the host; FS_HOST_OTHER for FS_NONE. */
fs_host_kind fs_names_host_kind(fs_names *names, uint32_t name);

/* Return whether an op of that name is an autograd node or its evaluation, whose work is that of the ops inside. */
bool fs_name_wraps_autograd(const char *text);

/* Return what an event of that name does on the host. */
fs_host_kind fs_name_host_kind(const char *text);

/* Return whether an API call of that name launches device work. */
bool fs_name_launches(const char *text);

/* Return whether only programs that use a GPU have an op or range of that name. */
bool fs_name_needs_gpu(const char *text);

#endif
