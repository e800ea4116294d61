/* The work of each device of a store, in order of start. Private to csrc/table. */
#ifndef FS_TABLE_DEVICE_WORK_H
#define FS_TABLE_DEVICE_WORK_H

#include "store/store.h"
#include "table/intervals.h"

enum { FS_DEVICE_LIMIT = INT8_MAX + 1 };

/* Kernels, copies, fills and intervals between CUDA events; what has no start is nowhere. The tags are the events. */
typedef struct {
    fs_intervals of_device[FS_DEVICE_LIMIT];
} fs_device_work;

/* FS_OUT_OF_MEMORY leaves something to clear, as success does. */
fs_status fs_device_work_find(fs_device_work *work, const fs_store *store, fs_error *err);
void fs_device_work_clear(fs_device_work *work);

/* The chunk of an event, and its place there. */
static inline const fs_chunk *fs_event_chunk(const fs_store *store, uint32_t index, uint32_t *at)
{
    *at = index & (FS_CHUNK_EVENTS - 1);
    return fs_store_chunk(store, index >> FS_CHUNK_BITS);
}

static inline bool fs_event_is_placed_work(const fs_chunk *chunk, uint32_t at)
{
    return fs_event_kind_on_device[chunk->kind[at]] && chunk->start[at] != FS_MISSING;
}

static inline int fs_event_device(const fs_chunk *chunk, uint32_t at)
{
    return chunk->device[at] < 0 ? 0 : chunk->device[at];
}

/* The end of an event whose start is known; that start where the duration is missing. */
static inline int64_t fs_event_end(const fs_chunk *chunk, uint32_t at)
{
    return chunk->start[at] + (chunk->duration[at] == FS_MISSING ? 0 : chunk->duration[at]);
}

#endif
