/* The lanes of a timeline: every event in one place. Private to csrc/timeline. */
#ifndef FS_TIMELINE_LANES_H
#define FS_TIMELINE_LANES_H

#include "summaries/intervals.h"
#include "timeline/timeline.h"

/* An event of the store, or, from `event_count` on, an idle time of the accounting. */
typedef struct {
    int64_t start, duration; /* ns */
    uint32_t source;
} fs_lane_item;

typedef struct {
    const fs_store *store;
    const fs_accounting *accounting;
    fs_timeline *timeline;
    uint32_t event_count, lane_count; /* of the store */
    fs_lane_item *items;              /* lane after lane, ascending in each */
    uint32_t item_count;
    int64_t begin, end; /* of all items */
    uint32_t *places;   /* by track: where its items begin in `order` */
    uint32_t *order;    /* sources by track */
    uint32_t lane_capacity;
    fs_intervals track; /* the items of one track; tags are sources */
    uint8_t *depths;    /* of them */
} fs_lanes;

/* Fill the items and the timeline's lanes and counts. FS_OUT_OF_MEMORY. fs_lanes_clear accepts a zeroed struct. */
fs_status fs_lanes_fill(fs_lanes *lanes, fs_error *err);
void fs_lanes_clear(fs_lanes *lanes);

#endif
