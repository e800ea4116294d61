/* A counting sort: items are counted by track, then listed by track in the order of the store, then each track is
 * sorted by start and stacked. So memory is one entry an item, and no track needs a list of its own. In a lane items
 * are ascending and do not overlap, which the drawing relies on; what lies deeper than FS_TIMELINE_DEPTH is counted and
 * left out. */
#include "timeline/lanes.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "store/event.h"

enum { LEFT_OUT = 255 };

/* Tracks: one for each role of each lane of the store and of no lane, then one for each device and cause of idleness.
 */
static uint32_t track_count(const fs_lanes *lanes)
{
    return (lanes->lane_count + 1) * FS_LANE_ROLE_COUNT + FS_DEVICE_LIMIT * FS_IDLE_CAUSE_COUNT;
}

static fs_lane_role role_of(const fs_chunk *chunk, uint32_t at)
{
    uint8_t kind = chunk->kind[at];
    if (fs_event_kind_on_device[kind]) return FS_LANE_WORK;
    if (kind == FS_EVENT_SYNC) return FS_LANE_WAIT;
    if (kind == FS_EVENT_OVERHEAD) return FS_LANE_OVERHEAD;
    bool apart = fs_event_is_annotation(kind) && (chunk->device[at] >= 0 || chunk->lane[at] == FS_NONE);
    return apart ? FS_LANE_ANNOTATION : FS_LANE_HOST;
}

static uint32_t track_of(const fs_lanes *lanes, const fs_chunk *chunk, uint32_t at)
{
    uint32_t lane = chunk->lane[at] < lanes->lane_count ? chunk->lane[at] : lanes->lane_count;
    return lane * FS_LANE_ROLE_COUNT + role_of(chunk, at);
}

static uint32_t track_of_span(const fs_lanes *lanes, const fs_idle_span *span)
{
    uint32_t device = span->device < 0 ? 0 : (uint32_t)span->device;
    return (lanes->lane_count + 1) * FS_LANE_ROLE_COUNT + device * FS_IDLE_CAUSE_COUNT + span->cause;
}

static bool is_drawn(fs_timeline *timeline, const fs_chunk *chunk, uint32_t at)
{
    bool is_memory = chunk->kind[at] == FS_EVENT_MEMORY, is_placed = chunk->start[at] != FS_MISSING;
    timeline->memory_count += is_memory && !fs_event_is_share(chunk->kind[at], chunk->lane[at]);
    timeline->unplaced_count += !is_memory && !is_placed;
    return !is_memory && is_placed;
}

/* The end of an event, if it is known. */
static int64_t known_end(const fs_chunk *chunk, uint32_t at)
{
    int64_t end = fs_event_end(chunk, at);
    return end > chunk->start[at] ? end : chunk->start[at];
}

/* Count the items of each track, and find the first and the last time. */
static fs_status count_items(fs_lanes *lanes, fs_error *err)
{
    const fs_chunk *chunk = NULL;
    uint32_t at;
    lanes->begin = INT64_MAX;
    lanes->end = INT64_MIN;
    for (uint32_t index = 0; index < lanes->event_count; index++) {
        FS_POLL(index, err);
        chunk = fs_event_next_chunk(lanes->store, index, chunk, &at);
        if (!is_drawn(lanes->timeline, chunk, at)) continue;
        int64_t start = chunk->start[at], end = known_end(chunk, at);
        if (start < lanes->begin) lanes->begin = start;
        if (end > lanes->end) lanes->end = end;
        lanes->places[track_of(lanes, chunk, at)]++;
        lanes->item_count++;
    }
    for (uint32_t i = 0; i < lanes->accounting->span_count; i++)
        lanes->places[track_of_span(lanes, &lanes->accounting->spans[i])]++;
    lanes->item_count += lanes->accounting->span_count;
    return FS_OK;
}

/* List the sources by track, in the order of the store; places[track] becomes the end of the track. */
static fs_status order_items(fs_lanes *lanes, fs_error *err)
{
    uint32_t tracks = track_count(lanes), next = 0, at;
    for (uint32_t track = 0; track < tracks; track++) {
        uint32_t count = lanes->places[track];
        lanes->places[track] = next;
        next += count;
    }
    const fs_chunk *chunk = NULL;
    fs_timeline unused = {0};
    for (uint32_t index = 0; index < lanes->event_count; index++) {
        FS_POLL(index, err);
        chunk = fs_event_next_chunk(lanes->store, index, chunk, &at);
        if (is_drawn(&unused, chunk, at)) lanes->order[lanes->places[track_of(lanes, chunk, at)]++] = index;
    }
    for (uint32_t i = 0; i < lanes->accounting->span_count; i++)
        lanes->order[lanes->places[track_of_span(lanes, &lanes->accounting->spans[i])]++] = lanes->event_count + i;
    return FS_OK;
}

/* One track ----------------------------------------------------------------------------------------------------------
 */

static fs_status add_item(fs_lanes *lanes, uint32_t source, fs_error *err)
{
    uint32_t at;
    if (source >= lanes->event_count) {
        const fs_idle_span *span = &lanes->accounting->spans[source - lanes->event_count];
        return fs_intervals_add(&lanes->track, span->begin, span->end, source, err);
    }
    const fs_chunk *chunk = fs_event_chunk(lanes->store, source, &at);
    bool open = chunk->duration[at] == FS_MISSING;
    lanes->timeline->open_count += open;
    return fs_intervals_add(&lanes->track, chunk->start[at], open ? lanes->end : known_end(chunk, at), source, err);
}

/* The first lane in which nothing lies any more: work of one stream rarely overlaps. */
static uint8_t lane_by_overlap(const int64_t *ends, const fs_interval *item)
{
    for (int depth = 0; depth < FS_TIMELINE_OVERLAP; depth++)
        if (ends[depth] <= item->begin) return (uint8_t)depth;
    return LEFT_OUT;
}

/* Fill the depths of the track's items, and return in counts[depth] how many each lane has. */
static fs_status stack_track(fs_lanes *lanes, fs_lane_role role, uint32_t counts[FS_TIMELINE_DEPTH], fs_error *err)
{
    int64_t ends[FS_TIMELINE_DEPTH];
    uint32_t open = 0; /* lanes 0 … open - 1 hold an event that encloses the next one or overlaps it */
    memset(counts, 0, FS_TIMELINE_DEPTH * sizeof *counts);
    for (int i = 0; i < FS_TIMELINE_DEPTH; i++) ends[i] = INT64_MIN;
    for (uint32_t i = 0; i < lanes->track.count; i++) {
        FS_POLL(i, err);
        const fs_interval *item = &lanes->track.items[i];
        uint8_t depth;
        if (role == FS_LANE_WORK) {
            depth = lane_by_overlap(ends, item);
        } else {
            while (open > 0 && ends[open - 1] <= item->begin) open--;
            depth = open < FS_TIMELINE_DEPTH ? (uint8_t)open++ : (uint8_t)LEFT_OUT;
        }
        lanes->depths[i] = depth;
        if (depth == LEFT_OUT) {
            lanes->timeline->deep_count++;
            continue;
        }
        ends[depth] = item->end;
        counts[depth]++;
    }
    return FS_OK;
}

static fs_status add_lane(fs_lanes *lanes, const fs_timeline_lane *lane, fs_error *err)
{
    fs_timeline *timeline = lanes->timeline;
    FS_TRY(FS_LIST_ROOM(&timeline->lanes, timeline->lane_count, &lanes->lane_capacity, 64, "lanes of a timeline", err));
    timeline->lanes[timeline->lane_count++] = *lane;
    return FS_OK;
}

/* Make the lanes of the stacked track, and put its items into them. */
static fs_status emit_track(fs_lanes *lanes, fs_timeline_lane lane, const uint32_t counts[FS_TIMELINE_DEPTH],
                            fs_error *err)
{
    uint32_t places[FS_TIMELINE_DEPTH], next = lanes->item_count;
    for (int depth = 0; depth < FS_TIMELINE_DEPTH && counts[depth] > 0; depth++) {
        if (lane.role != FS_LANE_IDLE) lane.depth = (uint8_t)depth;
        lane.first = places[depth] = next;
        lane.count = counts[depth];
        next += counts[depth];
        FS_TRY(add_lane(lanes, &lane, err));
    }
    lanes->item_count = next;
    for (uint32_t i = 0; i < lanes->track.count; i++) {
        const fs_interval *item = &lanes->track.items[i];
        if (lanes->depths[i] == LEFT_OUT) continue;
        lanes->items[places[lanes->depths[i]]++] =
            (fs_lane_item){item->begin, fs_sub_saturated(item->end, item->begin), item->tag};
    }
    return FS_OK;
}

static fs_timeline_lane lane_of_track(const fs_lanes *lanes, uint32_t track)
{
    uint32_t first_idle = (lanes->lane_count + 1) * FS_LANE_ROLE_COUNT;
    if (track >= first_idle) {
        uint32_t place = track - first_idle;
        bool on_device = lanes->accounting->spans[0].device >= 0; /* the CPU's are of device 0 */
        return (fs_timeline_lane){.device = (int8_t)(on_device ? place / FS_IDLE_CAUSE_COUNT : (uint32_t)-1),
                                  .role = FS_LANE_IDLE,
                                  .depth = (uint8_t)(place % FS_IDLE_CAUSE_COUNT)};
    }
    fs_timeline_lane lane = {.device = -1, .role = (uint8_t)(track % FS_LANE_ROLE_COUNT)};
    uint32_t id = track / FS_LANE_ROLE_COUNT;
    if (id == lanes->lane_count) return lane;
    fs_lane of = fs_store_lane(lanes->store, id);
    lane.id = of.id;
    lane.has_id = true;
    if (of.on_device) lane.device = (int8_t)of.device;
    return lane;
}

/* Lay out order[begin … end - 1]. */
static fs_status lay_out(fs_lanes *lanes, uint32_t track, uint32_t begin, uint32_t end, fs_error *err)
{
    uint32_t counts[FS_TIMELINE_DEPTH];
    fs_timeline_lane lane = lane_of_track(lanes, track);
    lanes->track.count = 0;
    lanes->track.unsorted = false;
    for (uint32_t i = begin; i < end; i++) {
        FS_POLL(i, err);
        FS_TRY(add_item(lanes, lanes->order[i], err));
    }
    FS_TRY(fs_intervals_sort(&lanes->track, err));
    FS_TRY(stack_track(lanes, (fs_lane_role)lane.role, counts, err));
    return emit_track(lanes, lane, counts, err);
}

fs_status fs_lanes_fill(fs_lanes *lanes, fs_error *err)
{
    uint32_t tracks, count;
    lanes->event_count = fs_store_count(lanes->store);
    lanes->lane_count = fs_store_lane_count(lanes->store);
    tracks = track_count(lanes);
    lanes->places = fs_calloc(tracks, sizeof *lanes->places);
    if (lanes->places == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a timeline of %u tracks", tracks);
    FS_TRY(count_items(lanes, err));
    count = lanes->item_count;
    lanes->order = fs_malloc((count + (size_t)1) * sizeof *lanes->order);
    lanes->items = fs_malloc_huge((count + (size_t)1) * sizeof *lanes->items);
    lanes->depths = fs_malloc(count + (size_t)1);
    if (lanes->order == NULL || lanes->items == NULL || lanes->depths == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a timeline of %u events", count);
    FS_TRY(order_items(lanes, err));
    lanes->item_count = 0;
    for (uint32_t track = 0; track < tracks; track++) {
        uint32_t begin = track > 0 ? lanes->places[track - 1] : 0, end = lanes->places[track];
        if (end > begin) FS_TRY(lay_out(lanes, track, begin, end, err));
    }
    return FS_OK;
}

void fs_lanes_clear(fs_lanes *lanes)
{
    fs_free(lanes->places);
    fs_free(lanes->order);
    fs_free(lanes->items);
    fs_free(lanes->depths);
    fs_intervals_clear(&lanes->track);
}
