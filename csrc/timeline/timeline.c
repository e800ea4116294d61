/* Blocks of a lane are in order and do not overlap; each is one item, or several short ones of one bucket of time. The
 * bucket doubles until the blocks are at most as many as the limit, or one bucket holds everything. An item that joins
 * the one before it at some bucket joins it at all larger ones, so one pass finds at which doubling each does, its
 * level, and the number of blocks follows for every bucket. A merged block shows the longest of its events, and `busy`
 * is the sum of all: what was merged is not lost, only drawn together. Links are resolved last, when every event has
 * its block. The threads take stretches of the lanes; the blocks that begin in a stretch are its own, to their ends. */
#include "timeline/timeline.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/saturate.h"
#include "base/sort.h"
#include "store/api_calls.h"
#include "store/event.h"
#include "summaries/intervals.h"

/* Lanes ------------------------------------------------------------------------------------------------------------ */

/* The lanes of a timeline: every event in one place. A counting sort: items are counted by track, then listed by track
 * in the order of the store, then each track is sorted by start and stacked into lanes. An item is no more than its
 * source, and its times are read where the store has them, so that memory is 9 bytes an item. In a lane items are
 * ascending and do not overlap, which the drawing relies on; what lies deeper than FS_TIMELINE_DEPTH is counted and
 * left out. The threads count and list pieces of the store, each with a row of counters of its own, so that the order
 * is that of the store for any number of threads. Then each takes whole tracks, the largest first. */

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

enum { LEFT_OUT = 255, MOST_PIECES = 256, LEAST_PIECE = FS_BLOCK(1 << 16, 64) };

/* A piece of the sources. */
typedef struct {
    int64_t begin, end; /* of its events */
    uint32_t memory, unplaced;
} piece;

/* A track with items: places [begin, end) of `order` and of `sources`. */
typedef struct {
    uint32_t id, begin, end;
    uint32_t depths; /* lanes; their sizes replace the first entries of `order` */
} track;

typedef struct {
    fs_lanes *lanes;
    uint32_t tracks, source_count, piece_size, piece_count;
    uint32_t *places; /* by piece and track: how many items, then where the next one goes */
    piece *pieces;
    uint32_t *order; /* sources by track */
    uint8_t *depths; /* of them */
    track *used;     /* the tracks that have items, the largest first, then by id */
    uint32_t used_count;
    atomic_uint next, open, deep; /* next: of `used` that no thread has taken yet */
    _Atomic fs_status status;
    fs_error *err; /* written by the thread that changes `status` from FS_OK */
} laying;

static uint32_t first_idle_track(const fs_lanes *lanes)
{
    return (lanes->lane_count + 1) * FS_LANE_ROLE_COUNT;
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

/* Tracks: one for each role of each lane of the store and of no lane, then one for each device and cause of idleness.
 */
static uint32_t track_of(const fs_lanes *lanes, const fs_chunk *chunk, uint32_t at)
{
    uint32_t lane = chunk->lane[at] < lanes->lane_count ? chunk->lane[at] : lanes->lane_count;
    return lane * FS_LANE_ROLE_COUNT + role_of(chunk, at);
}

static uint32_t track_of_span(const fs_lanes *lanes, const fs_idle_span *span)
{
    uint32_t device = span->device < 0 ? 0 : (uint32_t)span->device;
    return first_idle_track(lanes) + device * FS_IDLE_CAUSE_COUNT + span->cause;
}

/* Note an event's times, or why it is not drawn. */
static void note(piece *in, const fs_chunk *chunk, uint32_t at)
{
    if (chunk->kind[at] == FS_EVENT_MEMORY) {
        in->memory += !fs_event_is_share(chunk->kind[at], chunk->lane[at]);
    } else if (chunk->start[at] == FS_MISSING) {
        in->unplaced++;
    } else {
        int64_t start = chunk->start[at], end = fs_lanes_known_end(chunk, at);
        if (start < in->begin) in->begin = start;
        if (end > in->end) in->end = end;
    }
}

/* Count the items of each track in a piece of the sources, or list them. */
static void go_through(laying *all, uint32_t number, bool lists)
{
    const fs_lanes *lanes = all->lanes;
    uint32_t first = number * all->piece_size, left = all->source_count - first, at;
    uint32_t last = first + (left < all->piece_size ? left : all->piece_size), source = first;
    uint32_t *places = &all->places[(size_t)number * all->tracks];
    for (; source < last && source < lanes->event_count; source++) {
        const fs_chunk *chunk = fs_event_chunk(lanes->store, source, &at);
        if (!lists) note(&all->pieces[number], chunk, at);
        if (chunk->kind[at] == FS_EVENT_MEMORY || chunk->start[at] == FS_MISSING) continue;
        uint32_t *place = &places[track_of(lanes, chunk, at)];
        if (lists) all->order[*place] = source;
        ++*place;
    }
    for (; source < last; source++) {
        uint32_t *place = &places[track_of_span(lanes, &lanes->accounting->spans[source - lanes->event_count])];
        if (lists) all->order[*place] = source;
        ++*place;
    }
}

static void count_pieces(void *context, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) go_through(context, (uint32_t)i, false);
}

static void list_pieces(void *context, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) go_through(context, (uint32_t)i, true);
}

/* Turn the counts into places, and list the tracks that have items. */
static fs_status find_places(laying *all, fs_error *err)
{
    uint32_t next = 0, capacity = 0;
    for (uint32_t id = 0; id < all->tracks; id++) {
        uint32_t begin = next;
        for (uint32_t i = 0; i < all->piece_count; i++) {
            uint32_t *place = &all->places[(size_t)i * all->tracks + id], count = *place;
            *place = next;
            next += count;
        }
        if (next == begin) continue;
        FS_TRY(FS_LIST_ADD(&all->used, &all->used_count, &capacity, 64, err, (track){id, begin, next, 0}));
    }
    all->lanes->item_count = next;
    return FS_OK;
}

static void add_up(laying *all)
{
    fs_lanes *lanes = all->lanes;
    lanes->begin = INT64_MAX;
    lanes->end = INT64_MIN;
    for (uint32_t i = 0; i < all->piece_count; i++) {
        const piece *one = &all->pieces[i];
        if (one->begin < lanes->begin) lanes->begin = one->begin;
        if (one->end > lanes->end) lanes->end = one->end;
        lanes->timeline->memory_count += one->memory;
        lanes->timeline->unplaced_count += one->unplaced;
    }
}

/* One track ----------------------------------------------------------------------------------------------------------
 */

/* Sort the items of a track by start. */
static fs_status sort_track(const laying *all, const track *of, fs_error *err)
{
    fs_intervals list = {0};
    fs_status status = FS_OK;
    for (uint32_t i = of->begin; i < of->end && status == FS_OK; i++) {
        int64_t start = fs_lanes_item(all->lanes, all->order[i]).start;
        status = fs_intervals_add(&list, start, start, all->order[i], err);
    }
    if (status == FS_OK) status = fs_intervals_sort(&list, err);
    for (uint32_t i = 0; i < list.count && status == FS_OK; i++) all->order[of->begin + i] = list.items[i].tag;
    fs_intervals_clear(&list);
    return status;
}

/* The first lane in which nothing lies any more: work of one stream rarely overlaps. */
static uint8_t lane_by_overlap(const int64_t *ends, int64_t start)
{
    for (int depth = 0; depth < FS_TIMELINE_OVERLAP; depth++)
        if (ends[depth] <= start) return (uint8_t)depth;
    return LEFT_OUT;
}

/* Fill the depths of the track's items, and counts[depth] of each lane; both are undefined if `sorted` turns out to be
 * false. */
static fs_status stack_track(laying *all, const track *of, uint32_t counts[FS_TIMELINE_DEPTH], bool *sorted,
                             fs_error *err)
{
    bool nests = of->id >= first_idle_track(all->lanes) || of->id % FS_LANE_ROLE_COUNT != FS_LANE_WORK;
    int64_t ends[FS_TIMELINE_DEPTH], last = INT64_MIN;
    uint32_t open = 0; /* lanes 0 … open - 1 hold an event that encloses the next one or overlaps it */
    memset(counts, 0, FS_TIMELINE_DEPTH * sizeof *counts);
    for (int i = 0; i < FS_TIMELINE_DEPTH; i++) ends[i] = INT64_MIN;
    for (uint32_t i = of->begin; i < of->end; i++) {
        fs_lane_item item = fs_lanes_item(all->lanes, all->order[i]);
        uint8_t depth;
        FS_POLL(i, err);
        *sorted = item.start >= last;
        if (!*sorted) return FS_OK;
        last = item.start;
        if (nests) {
            while (open > 0 && ends[open - 1] <= item.start) open--;
            depth = open < FS_TIMELINE_DEPTH ? (uint8_t)open++ : (uint8_t)LEFT_OUT;
        } else {
            depth = lane_by_overlap(ends, item.start);
        }
        all->depths[i] = depth;
        if (depth == LEFT_OUT) continue;
        ends[depth] = fs_add_saturated(item.start, item.duration);
        counts[depth]++;
    }
    return FS_OK;
}

static uint32_t count_open(const laying *all, const track *of)
{
    uint32_t count = 0, at;
    for (uint32_t i = of->begin; i < of->end && all->order[i] < all->lanes->event_count; i++) {
        const fs_chunk *chunk = fs_event_chunk(all->lanes->store, all->order[i], &at);
        count += chunk->duration[at] == FS_MISSING;
    }
    return count;
}

/* Lay out a track: put its items into its lanes, and leave the lanes' sizes in `order`. */
static fs_status lay_out(laying *all, track *of, fs_error *err)
{
    uint32_t counts[FS_TIMELINE_DEPTH], places[FS_TIMELINE_DEPTH], next = of->begin;
    bool sorted;
    FS_TRY(stack_track(all, of, counts, &sorted, err));
    if (!sorted) {
        FS_TRY(sort_track(all, of, err));
        FS_TRY(stack_track(all, of, counts, &sorted, err));
    }
    for (; of->depths < FS_TIMELINE_DEPTH && counts[of->depths] > 0; of->depths++) {
        places[of->depths] = next;
        next += counts[of->depths];
    }
    atomic_fetch_add(&all->deep, of->end - next);
    atomic_fetch_add(&all->open, count_open(all, of));
    for (uint32_t i = of->begin; i < of->end; i++)
        if (all->depths[i] != LEFT_OUT) all->lanes->sources[places[all->depths[i]]++] = all->order[i];
    memcpy(&all->order[of->begin], counts, of->depths * sizeof *counts);
    return FS_OK;
}

/* Each thread takes the next track until there is none. */
static void lay_out_tracks(void *context, int64_t begin, int64_t end)
{
    (void)begin, (void)end;
    laying *all = context;
    while (atomic_load(&all->status) == FS_OK) {
        fs_error err;
        fs_status expected = FS_OK;
        uint32_t i = atomic_fetch_add(&all->next, 1);
        if (i >= all->used_count) return;
        fs_status status = lay_out(all, &all->used[i], &err);
        if (status != FS_OK && atomic_compare_exchange_strong(&all->status, &expected, status)) *all->err = err;
    }
}

static int largest_first(const void *left, const void *right)
{
    const track *a = left, *b = right;
    uint32_t x = a->end - a->begin, y = b->end - b->begin;
    return x != y ? (x < y) - (x > y) : (a->id > b->id) - (a->id < b->id);
}

FS_ORDER_BY(by_id, track, id)

/* The lanes ----------------------------------------------------------------------------------------------------------
 */

static fs_timeline_lane lane_of_track(const fs_lanes *lanes, uint32_t id)
{
    if (id >= first_idle_track(lanes)) {
        uint32_t place = id - first_idle_track(lanes);
        bool on_device = lanes->accounting->spans[0].device >= 0; /* the CPU's are of device 0 */
        return (fs_timeline_lane){.device = (int8_t)(on_device ? place / FS_IDLE_CAUSE_COUNT : (uint32_t)-1),
                                  .role = FS_LANE_IDLE,
                                  .depth = (uint8_t)(place % FS_IDLE_CAUSE_COUNT)};
    }
    fs_timeline_lane lane = {.device = -1, .role = (uint8_t)(id % FS_LANE_ROLE_COUNT)};
    if (id / FS_LANE_ROLE_COUNT == lanes->lane_count) return lane;
    fs_lane of = fs_store_lane(lanes->store, id / FS_LANE_ROLE_COUNT);
    lane.id = of.id;
    lane.has_id = true;
    if (of.on_device) lane.device = (int8_t)of.device;
    return lane;
}

/* Make the lanes of the tracks, in the order of their ids. */
static fs_status add_lanes(laying *all, fs_error *err)
{
    fs_timeline *timeline = all->lanes->timeline;
    uint32_t capacity = 0;
    for (uint32_t i = 0; i < all->used_count; i++) {
        const track *of = &all->used[i];
        fs_timeline_lane lane = lane_of_track(all->lanes, of->id);
        lane.first = of->begin;
        for (uint32_t depth = 0; depth < of->depths; depth++) {
            if (lane.role != FS_LANE_IDLE) lane.depth = (uint8_t)depth;
            lane.count = all->order[of->begin + depth];
            FS_TRY(FS_LIST_ADD(&timeline->lanes, &timeline->lane_count, &capacity, 64, err, lane));
            lane.first += lane.count;
        }
    }
    timeline->open_count = atomic_load(&all->open);
    timeline->deep_count = atomic_load(&all->deep);
    all->lanes->item_count -= timeline->deep_count;
    return FS_OK;
}

/* Divide the sources into pieces, of which the counters are no more than the sources. */
static fs_status divide_lanes(laying *all, fs_error *err)
{
    uint32_t most = all->source_count / all->tracks + 1;
    all->piece_count = all->source_count / LEAST_PIECE + 1;
    if (all->piece_count > MOST_PIECES) all->piece_count = MOST_PIECES;
    if (all->piece_count > most) all->piece_count = most;
    all->piece_size = all->source_count / all->piece_count + 1;
    all->piece_count = (all->source_count + all->piece_size - 1) / all->piece_size;
    size_t counters = (size_t)all->piece_count * all->tracks;
    FS_TRY(FS_NEW_ZEROED(&all->places, counters, err));
    FS_TRY(FS_NEW(&all->pieces, all->piece_count, err));
    for (uint32_t i = 0; i < all->piece_count; i++) all->pieces[i] = (piece){.begin = INT64_MAX, .end = INT64_MIN};
    return FS_OK;
}

static fs_status lay_out_all(laying *all, fs_error *err)
{
    fs_lanes *lanes = all->lanes;
    FS_TRY(divide_lanes(all, err));
    fs_parallel_for(all->piece_count, 1, count_pieces, all);
    FS_TRY(fs_interrupt_poll(err));
    add_up(all);
    FS_TRY(find_places(all, err));
    size_t count = lanes->item_count + (size_t)1;
    FS_TRY(FS_NEW(&all->order, count, err));
    FS_TRY(FS_NEW(&all->depths, count, err));
    FS_TRY(FS_NEW(&lanes->sources, count, err));
    fs_parallel_for(all->piece_count, 1, list_pieces, all);
    FS_TRY(fs_interrupt_poll(err));
    if (all->used_count > 1) qsort(all->used, all->used_count, sizeof *all->used, largest_first);
    all->err = err;
    fs_parallel_for(fs_parallel_threads(), 1, lay_out_tracks, all);
    FS_TRY(atomic_load(&all->status));
    FS_TRY(fs_interrupt_poll(err));
    if (all->used_count > 1) qsort(all->used, all->used_count, sizeof *all->used, by_id);
    return add_lanes(all, err);
}

/* Fill the sources and the timeline's lanes and counts. A source is an event of the store, or, from `event_count` on,
 * an idle time of the accounting. `first` of a lane is a place in `sources`, in which there may be gaps between tracks.
 * FS_OUT_OF_MEMORY. lanes_clear accepts a zeroed struct. */
static fs_status lanes_fill(fs_lanes *lanes, fs_error *err)
{
    lanes->event_count = fs_store_count(lanes->store);
    lanes->lane_count = fs_store_lane_count(lanes->store);
    laying all = {.lanes = lanes, .source_count = lanes->event_count + lanes->accounting->span_count};
    all.tracks = first_idle_track(lanes) + FS_DEVICE_LIMIT * FS_IDLE_CAUSE_COUNT;
    fs_status status = all.source_count > 0 ? lay_out_all(&all, err) : FS_OK;
    fs_free(all.places);
    fs_free(all.pieces);
    fs_free(all.order);
    fs_free(all.depths);
    fs_free(all.used);
    return status;
}

static void lanes_clear(fs_lanes *lanes)
{
    fs_free(lanes->sources);
}

/* Timeline --------------------------------------------------------------------------------------------------------- */

#define NAME_OF(NAME, name, prose) #name,
const char *const fs_lane_role_names[] = {FS_LANE_ROLE_LIST(NAME_OF)};

/* Times within which events are merged: FIRST_MERGED_NS << level. */
enum { FIRST_MERGED_NS = 1000, MOST_LEVEL = 53, NEVER = 255 };

enum { STRETCH = FS_BLOCK(1 << 15, 32), LINK_GRAIN = 1 << 12 };

/* Places [begin, end) of the sources, in one lane that ends at `limit`; and the first of its blocks. */
typedef struct {
    uint32_t begin, end, limit, block;
} stretch;

typedef struct {
    fs_lanes lanes;
    const fs_store *store;
    const fs_table *table;
    fs_timeline *timeline;
    fs_api_calls calls;
    uint32_t *blocks; /* by source: its block, or FS_NONE */
    uint32_t *rows;   /* by event: the row of the op to which the work belongs, or FS_NONE */
    fs_intern others; /* (kind, name) of events without a call; ids follow those of the calls */
    uint8_t *levels;  /* by place in the sources: from which on it joins the item before it; NULL: none does */
    int merged;       /* the level within which events are merged; -1: none */
    stretch *stretches;
    uint32_t stretch_count, stretch_capacity;
    _Atomic uint32_t by_level[NEVER + 1];
} drawing;

/* Merging ------------------------------------------------------------------------------------------------------------
 */

static fs_status divide(drawing *all, fs_error *err)
{
    const fs_timeline *timeline = all->timeline;
    for (uint32_t i = 0; i < timeline->lane_count; i++) {
        const fs_timeline_lane *lane = &timeline->lanes[i];
        uint32_t limit = lane->first + lane->count;
        for (uint32_t begin = lane->first; begin < limit;) {
            uint32_t end = limit - begin > STRETCH ? begin + STRETCH : limit;
            FS_TRY(FS_LIST_ADD(&all->stretches, &all->stretch_count, &all->stretch_capacity, 64, err,
                               (stretch){begin, end, limit, 0}));
            begin = end;
        }
    }
    return FS_OK;
}

static bool begins_lane(const drawing *all, uint32_t i)
{
    return i == 0 || all->stretches[i].limit != all->stretches[i - 1].limit;
}

/* Times in units of the first bucket: the bits of what they differ in tell the level. */
typedef struct {
    uint64_t start, duration;
} in_buckets;

static in_buckets buckets_of(const drawing *all, uint32_t place)
{
    fs_lane_item item = fs_lanes_item(&all->lanes, all->lanes.sources[place]);
    uint64_t since = (uint64_t)item.start - (uint64_t)all->lanes.begin;
    return (in_buckets){since / FIRST_MERGED_NS, (uint64_t)item.duration / FIRST_MERGED_NS};
}

/* Two items join if both are shorter than a bucket, and begin in the same one. */
static uint8_t level_of(in_buckets before, in_buckets item)
{
    uint64_t bits = before.duration | item.duration | (before.start ^ item.start);
    return bits == 0 ? 0 : (uint8_t)(64 - __builtin_clzll(bits));
}

static void find_levels(void *context, int64_t begin, int64_t end)
{
    drawing *all = context;
    uint32_t by_level[NEVER + 1] = {0};
    for (int64_t i = begin; i < end; i++) {
        const stretch *of = &all->stretches[i];
        uint32_t place = of->begin;
        in_buckets before;
        if (begins_lane(all, (uint32_t)i)) {
            all->levels[place] = NEVER;
            before = buckets_of(all, place++);
        } else {
            before = buckets_of(all, place - 1);
        }
        for (; place < of->end; place++) {
            in_buckets item = buckets_of(all, place);
            all->levels[place] = level_of(before, item);
            by_level[all->levels[place]]++;
            before = item;
        }
    }
    for (int level = 0; level <= NEVER; level++)
        if (by_level[level] > 0) atomic_fetch_add(&all->by_level[level], by_level[level]);
}

/* Find the time within which events are merged, 0: none are; and the number of blocks. */
static fs_status find_merged(drawing *all, uint32_t limit, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    timeline->block_count = all->lanes.item_count;
    all->merged = -1;
    if (timeline->block_count <= limit) return FS_OK;
    uint32_t places = all->stretches[all->stretch_count - 1].end;
    FS_TRY(FS_NEW(&all->levels, places, err));
    fs_parallel_for(all->stretch_count, 1, find_levels, all);
    FS_TRY(fs_interrupt_poll(err));
    int64_t span = fs_sub_saturated(all->lanes.end, all->lanes.begin);
    for (int level = 0; timeline->block_count > limit && level <= MOST_LEVEL; level++) {
        all->merged = level;
        timeline->merged_ns = (int64_t)FIRST_MERGED_NS << level;
        timeline->block_count -= atomic_load(&all->by_level[level]);
        if (timeline->merged_ns > span) break;
    }
    return FS_OK;
}

static bool joins(const drawing *all, uint32_t place)
{
    return all->levels != NULL && all->levels[place] <= all->merged;
}

/* Blocks -------------------------------------------------------------------------------------------------------------
 */

static void count_blocks(void *context, int64_t begin, int64_t end)
{
    drawing *all = context;
    for (int64_t i = begin; i < end; i++) {
        stretch *of = &all->stretches[i];
        of->block = 0;
        for (uint32_t place = of->begin; place < of->end; place++) of->block += !joins(all, place);
    }
}

/* Number the blocks, and let the lanes consist of them. */
static fs_status number_blocks(drawing *all, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    uint32_t next = 0, lane = 0;
    fs_parallel_for(all->stretch_count, 1, count_blocks, all);
    FS_TRY(fs_interrupt_poll(err));
    for (uint32_t i = 0; i < all->stretch_count; i++) {
        stretch *of = &all->stretches[i];
        uint32_t count = of->block;
        of->block = next;
        next += count;
        if (begins_lane(all, i)) {
            fs_timeline_lane *begun = &timeline->lanes[lane++];
            timeline->event_count += begun->count;
            if (begun->role == FS_LANE_IDLE) timeline->idle_count += begun->count;
            begun->first = of->block;
            begun->count = 0;
        }
        timeline->lanes[lane - 1].count += count;
    }
    return FS_OK;
}

static fs_status allocate(drawing *all, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    size_t blocks = timeline->block_count + (size_t)1, sources = all->lanes.event_count + (size_t)1;
#define ALLOCATE(type, name, prose) FS_TRY(FS_NEW(&timeline->name, blocks, err));
    FS_TIMELINE_COLUMN_LIST(ALLOCATE)
#undef ALLOCATE
    FS_TRY(FS_NEW(&all->blocks, sources, err));
    memset(all->blocks, 0xff, sources * sizeof *all->blocks);
    return FS_OK;
}

/* Note the rows of the works, and free these, which take more memory than all else. */
static fs_status take_works(drawing *all, fs_table *table, fs_error *err)
{
    size_t events = fs_store_count(all->store) + (size_t)1;
    FS_TRY(FS_NEW(&all->rows, events, err));
    memset(all->rows, 0xff, events * sizeof *all->rows);
    for (uint32_t i = 0; i < table->work_count; i++) {
        FS_POLL(i, err);
        all->rows[table->works[i].event] = table->works[i].row;
    }
    fs_free(table->works);
    table->works = NULL;
    table->work_count = 0;
    return FS_OK;
}

/* Fill in a block that shows `source`. Its link is found when all blocks are known; until then it is the source. */
static void show(const drawing *all, uint32_t block, uint32_t source)
{
    fs_timeline *timeline = all->timeline;
    uint32_t at;
    timeline->link[block] = source;
    timeline->label[block] = timeline->row[block] = FS_NONE;
    timeline->bytes[block] = 0;
    if (source >= all->lanes.event_count) return;
    const fs_chunk *chunk = fs_event_chunk(all->store, source, &at);
    timeline->label[block] = all->table->event_calls[source];
    if (!fs_event_kind_on_device[chunk->kind[at]]) return;
    timeline->row[block] = all->rows[source];
    timeline->bytes[block] = chunk->bytes[at];
}

/* Draw the block that begins at a place. Return the place after it. */
static uint32_t draw_block(const drawing *all, uint32_t block, uint32_t place, uint32_t limit)
{
    fs_timeline *timeline = all->timeline;
    uint32_t first = place, shown = all->lanes.sources[place];
    fs_lane_item item = fs_lanes_item(&all->lanes, shown);
    int64_t start = item.start, busy = 0, longest = item.duration;
    do {
        uint32_t source = all->lanes.sources[place];
        if (place > first) item = fs_lanes_item(&all->lanes, source);
        if (item.duration > longest) {
            longest = item.duration;
            shown = source;
        }
        busy = fs_add_saturated(busy, item.duration);
        if (source < all->lanes.event_count) all->blocks[source] = block;
        place++;
    } while (place < limit && joins(all, place));
    timeline->start[block] = start;
    timeline->duration[block] = fs_sub_saturated(fs_add_saturated(item.start, item.duration), start);
    timeline->busy[block] = busy;
    timeline->count[block] = place - first;
    show(all, block, shown);
    return place;
}

static void draw_blocks(void *context, int64_t begin, int64_t end)
{
    const drawing *all = context;
    for (int64_t i = begin; i < end; i++) {
        const stretch *of = &all->stretches[i];
        uint32_t place = of->begin, block = of->block;
        while (place < of->end && joins(all, place)) place++; /* into a block of the stretch before */
        while (place < of->end) place = draw_block(all, block++, place, of->limit);
    }
}

/* Label the blocks of events without a call. */
static fs_status label_others(drawing *all, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    for (uint32_t block = 0; block < timeline->block_count; block++) {
        uint32_t source = timeline->link[block], at, id;
        FS_POLL(block, err);
        if (timeline->label[block] != FS_NONE || source >= all->lanes.event_count) continue;
        const fs_chunk *chunk = fs_event_chunk(all->store, source, &at);
        uint32_t key[2] = {chunk->kind[at], chunk->name[at]};
        FS_TRY(fs_intern_bytes(&all->others, key, sizeof key, &id, err));
        timeline->label[block] = all->table->call_count + id;
    }
    return FS_OK;
}

/* Return the event that a source is linked to: the launch of work, the op of the forward pass, the work after a gap. */
static uint32_t linked_event(const drawing *all, uint32_t source)
{
    uint32_t at;
    if (source >= all->lanes.event_count) return all->lanes.accounting->spans[source - all->lanes.event_count].event;
    const fs_chunk *chunk = fs_event_chunk(all->store, source, &at);
    if (!fs_event_kind_on_device[chunk->kind[at]]) return chunk->forward[at];
    uint32_t call = fs_api_calls_find(&all->calls, chunk->correlation[at]);
    return call != FS_NONE ? call : chunk->launcher[at];
}

static void link_blocks(void *context, int64_t begin, int64_t end)
{
    const drawing *all = context;
    fs_timeline *timeline = all->timeline;
    for (int64_t i = begin; i < end; i++) {
        uint32_t event = timeline->count[i] == 1 ? linked_event(all, timeline->link[i]) : FS_NONE;
        timeline->link[i] = event < all->lanes.event_count ? all->blocks[event] : FS_NONE;
    }
}

static fs_status list_labels(drawing *all, fs_error *err)
{
    fs_timeline *timeline = all->timeline;
    uint32_t calls = all->table->call_count;
    timeline->label_count = calls + all->others.count;
    FS_TRY(FS_NEW(&timeline->labels, timeline->label_count + (size_t)1, err));
    if (calls > 0) memcpy(timeline->labels, all->table->calls, calls * sizeof *timeline->labels);
    for (uint32_t i = 0; i < all->others.count; i++) {
        const uint32_t *key = fs_intern_get(&all->others, i).bytes;
        timeline->labels[calls + i] = (fs_timeline_label){key[1], FS_NONE, FS_NONE, (uint8_t)key[0]};
    }
    return FS_OK;
}

static fs_status draw(drawing *all, fs_table *table, uint32_t limit, fs_error *err)
{
    FS_TRY(take_works(all, table, err));
    FS_TRY(lanes_fill(&all->lanes, err));
    FS_TRY(divide(all, err));
    FS_TRY(find_merged(all, limit, err));
    FS_TRY(allocate(all, err));
    FS_TRY(number_blocks(all, err));
    fs_parallel_for(all->stretch_count, 1, draw_blocks, all);
    FS_TRY(fs_interrupt_poll(err));
    FS_TRY(label_others(all, err));
    FS_TRY(fs_api_calls_create(&all->calls, all->store, err));
    fs_parallel_for(all->timeline->block_count, LINK_GRAIN, link_blocks, all);
    FS_TRY(fs_interrupt_poll(err));
    return list_labels(all, err);
}

fs_status fs_timeline_build(fs_timeline *timeline, const fs_store *store, fs_table *table,
                            const fs_accounting *accounting, uint32_t limit, fs_error *err)
{
    *timeline = (fs_timeline){0};
    drawing all = {
        .lanes = {.store = store, .accounting = accounting, .timeline = timeline},
        .store = store,
        .table = table,
        .timeline = timeline,
    };
    fs_status status = draw(&all, table, limit, err);
    lanes_clear(&all.lanes);
    fs_api_calls_clear(&all.calls);
    fs_intern_clear(&all.others);
    fs_free(all.blocks);
    fs_free(all.rows);
    fs_free(all.levels);
    fs_free(all.stretches);
    if (status != FS_OK) fs_timeline_clear(timeline);
    return status;
}

void fs_timeline_clear(fs_timeline *timeline)
{
#define FREE(type, name, prose) fs_free(timeline->name);
    FS_TIMELINE_COLUMN_LIST(FREE)
#undef FREE
    fs_free(timeline->lanes);
    fs_free(timeline->labels);
    *timeline = (fs_timeline){0};
}
