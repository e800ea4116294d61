/* The kind of accelerator whose work a store holds, and what its devices are called. */
#ifndef FS_STORE_ACCELERATOR_H
#define FS_STORE_ACCELERATOR_H

#include "store/store.h"

typedef enum {
#define FS_ACCELERATOR(NAME, name, type, number, prefix, matrix) FS_ACCELERATOR_##NAME,
#include "store/accelerators.def"
#undef FS_ACCELERATOR
    FS_ACCELERATOR_COUNT
} fs_accelerator;

typedef struct {
    const char *name;   /* "hip" */
    const char *type;   /* as torch calls its devices: "cuda" */
    int number;         /* in c10::DeviceType; -1: none of its own */
    const char *prefix; /* of the names of its devices, or "" */
    const char *matrix; /* its units of matrix products: "tensor cores" */
} fs_accelerator_facts;

extern const fs_accelerator_facts fs_accelerators[FS_ACCELERATOR_COUNT];

/* Return bits of accelerators, 1 << fs_accelerator each: those of which a device's name, or a number of
 * c10::DeviceType, is evidence; and the accelerator called so, or none. */
uint32_t fs_accelerators_of_device(const char *name);
uint32_t fs_accelerators_of_type(int64_t number);
uint32_t fs_accelerators_named(const char *name);

/* Return the accelerator that bits of evidence tell: CUDA without any. */
fs_accelerator fs_accelerator_told(uint32_t bits);

/* The accelerator of a store: CUDA unless it was set. Set it when all events are in the store. FS_OUT_OF_MEMORY. */
fs_status fs_store_set_accelerator(fs_store *store, fs_accelerator accelerator, fs_error *err);
fs_accelerator fs_store_accelerator(const fs_store *store);

#endif
