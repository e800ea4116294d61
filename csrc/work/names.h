/* What the names of a store say of the events that bear them, each looked at once. */
#ifndef FS_WORK_NAMES_H
#define FS_WORK_NAMES_H

#include "store/store.h"
#include "work/kernel_class.h"

typedef struct {
    const fs_store *store;
    uint8_t *kernel_classes; /* by name, + 1; 0: not looked at */
    uint8_t *loading;        /* by name: 1 no, 2 yes; 0: not looked at */
} fs_names;

/* FS_OUT_OF_MEMORY. fs_names_clear takes all zero too. */
fs_status fs_names_create(fs_names *names, const fs_store *store, fs_error *err);
void fs_names_clear(fs_names *names);

/* FS_KERNEL_OTHER of what has no name. */
fs_kernel_class fs_names_kernel_class(fs_names *names, uint32_t name);

/* Whether an op or range of that name waits for the next batch of data, as torch and its DataLoader name it. */
bool fs_names_load_data(fs_names *names, uint32_t name);

/* Whether an op of that name is a node of autograd's graph or its evaluation, whose work is that of the ops inside. */
bool fs_name_wraps_autograd(const char *text);

/* Whether an API call of that name puts work onto a device. */
bool fs_name_launches(const char *text);

/* Whether only a program that uses a GPU has an op or range of that name. */
bool fs_name_needs_gpu(const char *text);

#endif
