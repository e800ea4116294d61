/* The ops of kernels that were launched outside of graphs, for kernels of graphs without a capture. Private to
 * csrc/sources/graphs. */
#ifndef FS_SOURCES_GRAPHS_ELSEWHERE_H
#define FS_SOURCES_GRAPHS_ELSEWHERE_H

#include "store/store.h"

typedef struct {
    const fs_store *store;
    fs_intern kernels; /* name, grid and block */
    uint32_t *ops;     /* by id of kernels: the op of each of them, or FS_NONE: several, or an op of several works */
    uint32_t capacity;
} fs_elsewhere;

/* replayed: by event, not 0 for work of graphs. FS_OUT_OF_MEMORY. */
fs_status fs_elsewhere_create(fs_elsewhere *elsewhere, const fs_store *store, const uint32_t *replayed, fs_error *err);
void fs_elsewhere_clear(fs_elsewhere *elsewhere);

/* Return an op that launched the same kernel with the same grid and nothing else, if all that did are alike; else
 * FS_NONE. */
uint32_t fs_elsewhere_find(const fs_elsewhere *elsewhere, uint32_t kernel);

#endif
