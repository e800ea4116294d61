/* What programs do by NVTX. Private to sources/nvtx. */
#ifndef FS_SOURCES_NVTX_RANGES_H
#define FS_SOURCES_NVTX_RANGES_H

#include <stddef.h>
#include <stdint.h>

#include "sources/nvtx/abi.h"

/* The lock of all of this folder's state. */
void fs_nvtx_hold(void);
void fs_nvtx_release(void);

/* Keep forked children from waiting for a lock of the parent, and from recording. */
void fs_nvtx_watch_forks(void);

/* Push a range on the calling thread, and pop the innermost of the domain (NULL: none), perhaps with payloads at its
 * end. Return its depth, or FS_NVTX_NO_DEPTH. */
int fs_nvtx_push(fs_nvtx_handle domain, const fs_nvtx_attributes *attributes);
int fs_nvtx_push_text(const char *text);
int fs_nvtx_pop(fs_nvtx_handle domain, const fs_nvtx_data *data, size_t count);

/* Start a range, and end it on any thread. 0 is the id of no range. */
uint64_t fs_nvtx_start(fs_nvtx_handle domain, const fs_nvtx_attributes *attributes);
void fs_nvtx_stop(uint64_t id);

void fs_nvtx_mark(void);

#endif
