/* Access to the columns of a store's events, and properties that events of several kinds share. */
#ifndef FS_STORE_EVENT_H
#define FS_STORE_EVENT_H

#include <stddef.h>
#include <string.h>

#include "base/saturate.h"
#include "store/store.h"

/* Devices are numbered 0 … FS_DEVICE_LIMIT - 1. */
enum { FS_DEVICE_LIMIT = INT8_MAX + 1 };

/* The most events around another that are looked at. Programs nest less deeply; a hostile trace may not make every look
 * a walk over all of its events. */
enum { FS_MOST_ENCLOSING = 512 };

/* The chunk of an event, and the event's index in it. */
static inline const fs_chunk *fs_event_chunk(const fs_store *store, uint32_t index, uint32_t *at)
{
    *at = index & (FS_CHUNK_EVENTS - 1);
    return fs_store_chunk(store, index >> FS_CHUNK_BITS);
}

/* The same for a loop over all events from the first: `chunk` is that of the event before. */
static inline const fs_chunk *fs_event_next_chunk(const fs_store *store, uint32_t index, const fs_chunk *chunk,
                                                  uint32_t *at)
{
    *at = index & (FS_CHUNK_EVENTS - 1);
    return *at == 0 ? fs_store_chunk(store, index >> FS_CHUNK_BITS) : chunk;
}

/* Loop over all events from the first: `event` is the index of each, `at` its place in `chunk`. Left by return or goto,
 * not by break, which would leave the loop over a chunk. */
#define FS_EACH_EVENT(store, event, chunk, at)                                                                         \
    for (uint32_t event = 0, at = 0, event##_count = fs_store_count(store); event < event##_count;)                    \
        for (const fs_chunk *chunk = fs_event_chunk(store, event, &at); at < FS_CHUNK_EVENTS && event < event##_count; \
             at++, event++)

/* Copy an event from its chunk, as fs_store_get does. */
static inline void fs_event_load(const fs_chunk *chunk, uint32_t at, fs_event *event)
{
#define FS_EVENT_LOAD(type, name, missing, prose) event->name = chunk->name[at];
    FS_EVENT_COLUMN_LIST(FS_EVENT_LOAD)
#undef FS_EVENT_LOAD
}

/* One field of an event. */
#define FS_EVENT_AT(store, index, field) \
    (fs_store_chunk(store, (index) >> FS_CHUNK_BITS)->field[(index) & (FS_CHUNK_EVENTS - 1)])

/* Whether the kind marks a part of a program by name. */
static inline bool fs_event_is_annotation(uint8_t kind)
{
    return kind == FS_EVENT_RANGE || kind == FS_EVENT_STEP;
}

/* Whether an event is on a device's timeline: device work, or a range or step with a device, which annotates it. */
static inline bool fs_event_lies_on_device(uint8_t kind, int device)
{
    return fs_event_kind_on_device[kind] || (fs_event_is_annotation(kind) && device >= 0);
}

/* Whether the event is device work (not an annotation) whose start is known. */
static inline bool fs_event_is_placed_work(const fs_chunk *chunk, uint32_t at)
{
    return fs_event_kind_on_device[chunk->kind[at]] && chunk->start[at] != FS_MISSING;
}

/* Whether device work of a kind and a name is a fill, or a copy that does not stay within the device. */
static inline bool fs_event_is_transfer(uint8_t kind, const char *name)
{
    if (kind == FS_EVENT_MEMCPY) return name == NULL || strstr(name, "DtoD") == NULL;
    return kind == FS_EVENT_MEMSET;
}

/* Whether the event is an annotation that does not nest in time: one that ended on another thread, as those of
 * collectives do, or one of a task that was suspended meanwhile. It may enclose events (by their parents), has no host
 * time of its own and does not reduce the self time of its parent. */
static inline bool fs_event_is_asynchronous(const fs_chunk *chunk, uint32_t at)
{
    return fs_event_is_annotation(chunk->kind[at]) && chunk->device[at] < 0 && chunk->lane[at] == FS_NONE;
}

/* Whether the event is its parent's share of memory that other threads allocated and freed, not an event of its own. */
static inline bool fs_event_is_share(uint8_t kind, uint32_t lane)
{
    return kind == FS_EVENT_MEMORY && lane == FS_NONE;
}

/* The device of device work; 0 if it is missing. */
static inline int fs_event_device(const fs_chunk *chunk, uint32_t at)
{
    return chunk->device[at] < 0 ? 0 : chunk->device[at];
}

/* What an event is in: of device work the event that launched it, of others the one that encloses it; FS_NONE if there
 * is none. A hostile trace cannot make it a circle. */
static inline uint32_t fs_event_around(const fs_chunk *chunk, uint32_t at, uint32_t event)
{
    uint32_t around = fs_event_kind_on_device[chunk->kind[at]] ? chunk->launcher[at] : chunk->parent[at];
    return around < event ? around : FS_NONE;
}

/* Whether the start and the duration of an event are known. */
static inline bool fs_event_is_timed(const fs_chunk *chunk, uint32_t at)
{
    return chunk->start[at] != FS_MISSING && chunk->duration[at] != FS_MISSING;
}

/* The end of an event whose start is known. It equals the start if the duration is missing. */
static inline int64_t fs_event_end(const fs_chunk *chunk, uint32_t at)
{
    return fs_add_saturated(chunk->start[at], chunk->duration[at] == FS_MISSING ? 0 : chunk->duration[at]);
}

/* The same, or the start if a hostile trace has a duration below 0. */
static inline int64_t fs_event_later_end(const fs_chunk *chunk, uint32_t at)
{
    int64_t end = fs_event_end(chunk, at);
    return end > chunk->start[at] ? end : chunk->start[at];
}

/* Names of ops ----------------------------------------------------------------------------------------------------- */

/* Names of ops with their overload: "aten::add.Tensor", as torch records them with capture_overload_names. */

/* Return the length of an op's name without its overload, of "aten::add" with and without one; 0 for names of another
 * form. */
size_t fs_name_without_overload(const char *text);

#endif
