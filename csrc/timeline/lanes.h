/* The lanes of a timeline: every event in one place. Private to csrc/timeline. */
#ifndef FS_TIMELINE_LANES_H
#define FS_TIMELINE_LANES_H

#include "base/saturate.h"
#include "store/event.h"
#include "timeline/timeline.h"

typedef struct {
    int64_t start, duration; /* ns */
} fs_lane_item;

typedef struct {
    const fs_store *store;
    const fs_accounting *accounting;
    fs_timeline *timeline;
    uint32_t event_count, lane_count; /* of the store */
    uint32_t *sources;                /* of the items, lane after lane, ascending by start in each */
    uint32_t item_count;              /* in all lanes */
    int64_t begin, end;               /* of all items */
} fs_lanes;

/* Fill the sources and the timeline's lanes and counts. A source is an event of the store, or, from `event_count` on,
 * an idle time of the accounting. `first` of a lane is a place in `sources`, in which there may be gaps between tracks.
 * FS_OUT_OF_MEMORY. fs_lanes_clear accepts a zeroed struct. */
fs_status fs_lanes_fill(fs_lanes *lanes, fs_error *err);
void fs_lanes_clear(fs_lanes *lanes);

/* The end of an event, if it is known. */
static inline int64_t fs_lanes_known_end(const fs_chunk *chunk, uint32_t at)
{
    int64_t end = fs_event_end(chunk, at);
    return end > chunk->start[at] ? end : chunk->start[at];
}

/* When a source begins and how long it lasts; an event without an end lasts until the end of all. */
static inline fs_lane_item fs_lanes_item(const fs_lanes *lanes, uint32_t source)
{
    uint32_t at;
    if (source >= lanes->event_count) {
        const fs_idle_span *span = &lanes->accounting->spans[source - lanes->event_count];
        return (fs_lane_item){span->begin, fs_sub_saturated(span->end, span->begin)};
    }
    const fs_chunk *chunk = fs_event_chunk(lanes->store, source, &at);
    int64_t start = chunk->start[at], duration = chunk->duration[at];
    if (duration == FS_MISSING) return (fs_lane_item){start, fs_sub_saturated(lanes->end, start)};
    return (fs_lane_item){start, fs_sub_saturated(fs_lanes_known_end(chunk, at), start)};
}

#endif
