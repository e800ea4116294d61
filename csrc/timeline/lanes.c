/* A counting sort: items are counted by track, then listed by track in the order of the store, then each track is
 * sorted by start and stacked into lanes. An item is no more than its source, and its times are read where the store
 * has them, so that memory is 9 bytes an item. In a lane items are ascending and do not overlap, which the drawing
 * relies on; what lies deeper than FS_TIMELINE_DEPTH is counted and left out.
 *
 * The threads count and list pieces of the store, each with a row of counters of its own, so that the order is that of
 * the store for any number of threads. Then each takes whole tracks, the largest first. */
#include "timeline/lanes.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "summaries/intervals.h"

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

static bool is_drawn(const fs_chunk *chunk, uint32_t at)
{
    return chunk->kind[at] != FS_EVENT_MEMORY && chunk->start[at] != FS_MISSING;
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
        if (!is_drawn(chunk, at)) continue;
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
        FS_TRY(FS_LIST_ROOM(&all->used, all->used_count, &capacity, 64, "tracks of a timeline", err));
        all->used[all->used_count++] = (track){id, begin, next, 0};
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
    laying *all = context;
    (void)begin;
    (void)end;
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

static int by_id(const void *left, const void *right)
{
    const track *a = left, *b = right;
    return (a->id > b->id) - (a->id < b->id);
}

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
            FS_TRY(FS_LIST_ROOM(&timeline->lanes, timeline->lane_count, &capacity, 64, "lanes of a timeline", err));
            timeline->lanes[timeline->lane_count++] = lane;
            lane.first += lane.count;
        }
    }
    timeline->open_count = atomic_load(&all->open);
    timeline->deep_count = atomic_load(&all->deep);
    all->lanes->item_count -= timeline->deep_count;
    return FS_OK;
}

/* Divide the sources into pieces, of which the counters are no more than the sources. */
static fs_status divide(laying *all, fs_error *err)
{
    uint32_t most = all->source_count / all->tracks + 1;
    all->piece_count = all->source_count / LEAST_PIECE + 1;
    if (all->piece_count > MOST_PIECES) all->piece_count = MOST_PIECES;
    if (all->piece_count > most) all->piece_count = most;
    all->piece_size = all->source_count / all->piece_count + 1;
    all->piece_count = (all->source_count + all->piece_size - 1) / all->piece_size;
    size_t counters = (size_t)all->piece_count * all->tracks;
    all->places = fs_calloc(counters, sizeof *all->places);
    all->pieces = fs_malloc(all->piece_count * sizeof *all->pieces);
    if (all->places == NULL || all->pieces == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a timeline of %u tracks", all->tracks);
    for (uint32_t i = 0; i < all->piece_count; i++) all->pieces[i] = (piece){.begin = INT64_MAX, .end = INT64_MIN};
    return FS_OK;
}

static fs_status lay_out_all(laying *all, fs_error *err)
{
    fs_lanes *lanes = all->lanes;
    FS_TRY(divide(all, err));
    fs_parallel_for(all->piece_count, 1, count_pieces, all);
    FS_TRY(fs_interrupt_poll(err));
    add_up(all);
    FS_TRY(find_places(all, err));
    size_t count = lanes->item_count + (size_t)1;
    all->order = fs_malloc(count * sizeof *all->order);
    all->depths = fs_malloc(count);
    lanes->sources = fs_malloc(count * sizeof *lanes->sources);
    if (all->order == NULL || all->depths == NULL || lanes->sources == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a timeline of %u events", lanes->item_count);
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

fs_status fs_lanes_fill(fs_lanes *lanes, fs_error *err)
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

void fs_lanes_clear(fs_lanes *lanes)
{
    fs_free(lanes->sources);
}
