/* Properties of events inferred from their names, cached per name of a store. */
#ifndef FS_WORK_NAMES_H
#define FS_WORK_NAMES_H

#include "store/store.h"
#include "work/kernel_class.h"

typedef struct {
    const fs_store *store;
    uint8_t *kernel_classes; /* by name: class + 1; 0: not classified yet */
    uint8_t *loading;        /* by name: 1 no, 2 yes; 0: not classified yet */
    uint8_t *waiting;        /* by name: likewise */
} fs_names;

/* FS_OUT_OF_MEMORY. fs_names_clear also accepts a zeroed struct. */
fs_status fs_names_create(fs_names *names, const fs_store *store, fs_error *err);
void fs_names_clear(fs_names *names);

/* Return the class of a kernel name; FS_KERNEL_OTHER for FS_NONE. */
fs_kernel_class fs_names_kernel_class(fs_names *names, uint32_t name);

/* Return whether a kernel's class is COMMUNICATION. */
bool fs_names_communicate(fs_names *names, uint32_t name);

/* Return whether an API call of that name may wait for a device: cudaStreamSynchronize, hipDeviceSynchronize,
 * cudaMemcpy, cudaMemcpyAsync, … */
bool fs_names_wait(fs_names *names, uint32_t name);

/* Return whether an op or range of that name, as torch and its DataLoader use them, waits for the next batch of
 * data. */
bool fs_names_load_data(fs_names *names, uint32_t name);

/* Return whether an op of that name is an autograd node or its evaluation, whose work is that of the ops inside. */
bool fs_name_wraps_autograd(const char *text);

/* Return whether an API call of that name launches device work. */
bool fs_name_launches(const char *text);

/* Return whether only programs that use a GPU have an op or range of that name. */
bool fs_name_needs_gpu(const char *text);

#endif
