/* Finds rows for slices that overlap others of their track without nesting. */
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "base/sort.h"
#include "views/trace.h"

typedef struct {
    int64_t start, end;
    uint32_t event;
    uint32_t track;
} slice;

typedef struct {
    fs_track track;
    uint32_t begin, count; /* of its slices */
    bool sorted;
} track_slices;

typedef struct {
    fs_trace *trace;
    fs_intern keys; /* (process, thread) of each track */
    track_slices *tracks;
    uint32_t track_capacity;
    uint32_t *track_of_lane; /* 1 + index, 0: unknown; of host events and of device events */
    slice *found, *slices;   /* in the order of the store; by track */
    uint32_t count;
} layout;

/* Tracks ----------------------------------------------------------------------------------------------------------- */

static fs_status intern_track(layout *all, const fs_track *track, uint32_t *id, fs_error *err)
{
    uint64_t key[] = {(uint64_t)track->process, track->thread};
    uint32_t known = all->keys.count;
    FS_TRY(fs_intern_bytes(&all->keys, key, sizeof key, id, err));
    if (*id < known) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&all->tracks, *id, &all->track_capacity, 64, err));
    all->tracks[*id] = (track_slices){*track, 0, 0, true};
    return FS_OK;
}

static fs_status find_track(layout *all, const fs_chunk *chunk, uint32_t at, uint32_t index, uint32_t *id,
                            fs_error *err)
{
    bool of_lane = chunk->lane[at] != FS_NONE && chunk->kind[at] != FS_EVENT_OVERHEAD;
    uint32_t *known = NULL;
    /* The track of a device event on a thread, which a hostile trace can hold, depends on its device. */
    if (of_lane &&
        (!fs_event_lies_on_device(chunk->kind[at], chunk->device[at]) || all->trace->tracks[chunk->lane[at]].on_device))
        known = &all->track_of_lane[chunk->lane[at]];
    if (known != NULL && *known != 0) {
        *id = *known - 1;
        return FS_OK;
    }
    fs_event event;
    fs_store_get(all->trace->store, index, &event);
    fs_track track = fs_trace_track(all->trace, &event);
    FS_TRY(intern_track(all, &track, id, err));
    if (known != NULL) *known = *id + 1;
    return FS_OK;
}

static fs_status find_slices(layout *all, fs_error *err)
{
    const fs_trace *trace = all->trace;
    uint32_t id;
    FS_EACH_EVENT(trace->store, index, chunk, at) {
        FS_POLL(index, err);
        if (chunk->kind[at] == FS_EVENT_MEMORY || chunk->start[at] == FS_MISSING) continue;
        FS_TRY(find_track(all, chunk, at, index, &id, err));
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): there is room for every id that find_track() returns */
        all->tracks[id].count++;
        fs_event event = {.start = chunk->start[at], .duration = chunk->duration[at], .flags = chunk->flags[at]};
        fs_replayed_place(&trace->replayed, index, &event);
        int64_t end = fs_add_saturated(event.start, fs_trace_duration(trace, event.start, event.duration));
        all->found[all->count++] = (slice){event.start, end, index, id};
    }
    return FS_OK;
}

static fs_status collect(layout *all, fs_error *err)
{
    size_t room = all->trace->count + (size_t)1;
    FS_TRY(FS_NEW_ZEROED(&all->track_of_lane, all->trace->lane_count + (size_t)1, err));
    FS_TRY(FS_NEW(&all->found, room, err));
    FS_TRY(FS_NEW(&all->slices, room, err));
    FS_TRY(find_slices(all, err));
    uint32_t begin = 0;
    for (uint32_t id = 0; id < all->keys.count; id++) {
        all->tracks[id].begin = begin;
        begin += all->tracks[id].count;
        all->tracks[id].count = 0;
    }
    for (uint32_t i = 0; i < all->count; i++) {
        track_slices *track = &all->tracks[all->found[i].track];
        slice *to = &all->slices[track->begin + track->count++];
        *to = all->found[i];
        track->sorted = track->sorted && (track->count == 1 || to[-1].start < to->start ||
                                          (to[-1].start == to->start && !all->trace->annotated));
    }
    return FS_OK;
}

/* Rows ------------------------------------------------------------------------------------------------------------- */

/* The rows of a track at one time. A row is a stack of open slices, each within the one below. `ends` is a binary tree
 * over the rows: a leaf holds the end of the top slice, INT64_MAX if there is none; a node the least and the largest of
 * its leaves. The first row in which a slice nests, and any row whose top slice has ended, is found from the root. */
typedef struct {
    int64_t least, most;
} ends;

typedef struct {
    ends *tree;          /* 1: the root; capacity + row: a leaf */
    uint32_t *tops;      /* by row: index of a slice, or FS_NONE */
    uint32_t *below;     /* by slice */
    const slice *slices; /* of the track */
    uint32_t count, capacity;
} rows;

static void set_end(rows *all, uint32_t row)
{
    uint32_t at = all->capacity + row;
    int64_t end = all->tops[row] == FS_NONE ? INT64_MAX : all->slices[all->tops[row]].end;
    all->tree[at] = (ends){end, end};
    for (at /= 2; at > 0; at /= 2) {
        const ends *left = &all->tree[2 * at], *right = left + 1;
        all->tree[at].least = left->least < right->least ? left->least : right->least;
        all->tree[at].most = left->most > right->most ? left->most : right->most;
    }
}

static fs_status add_row(rows *all, fs_error *err)
{
    if (all->count == all->capacity) {
        uint32_t capacity = all->capacity, nodes = 2 * capacity;
        FS_TRY(FS_LIST_ROOM(&all->tops, all->count, &capacity, 1, err));
        FS_TRY(FS_LIST_ROOM(&all->tree, nodes, &nodes, 2, err));
        for (uint32_t i = 0; i < nodes; i++) all->tree[i] = (ends){INT64_MAX, INT64_MIN};
        all->capacity = capacity;
        for (uint32_t row = 0; row < all->count; row++) set_end(all, row);
    }
    all->tops[all->count] = FS_NONE;
    set_end(all, all->count++);
    return FS_OK;
}

/* Close the slices that have ended. */
static void close_until(rows *all, int64_t time)
{
    while (all->tree[1].least <= time && all->tree[1].least != INT64_MAX) {
        uint32_t at = 1;
        while (at < all->capacity) at = all->tree[2 * at].least == all->tree[at].least ? 2 * at : 2 * at + 1;
        uint32_t row = at - all->capacity;
        all->tops[row] = all->below[all->tops[row]];
        set_end(all, row);
    }
}

/* Open the slice in the first row in which it nests. */
static fs_status open_slice(rows *all, uint32_t index, uint32_t *row, fs_error *err)
{
    int64_t end = all->slices[index].end;
    if (all->count == 0 || all->tree[1].most < end) {
        FS_TRY(add_row(all, err));
        *row = all->count - 1;
    } else {
        uint32_t at = 1;
        while (at < all->capacity) at = all->tree[2 * at].most >= end ? 2 * at : 2 * at + 1;
        *row = at - all->capacity;
    }
    all->below[index] = all->tops[*row];
    all->tops[*row] = index;
    set_end(all, *row);
    return FS_OK;
}

static fs_status add_extra(fs_trace *trace, const fs_track *track, uint32_t number, fs_error *err)
{
    return FS_LIST_ADD(&trace->extra, &trace->extra_count, &trace->extra_capacity, 8, err,
                       (fs_extra_row){*track, track->thread, number});
}

static fs_status move(fs_trace *trace, uint32_t event, uint32_t extra, fs_error *err)
{
    if (trace->moved == NULL) FS_TRY(FS_NEW_ZEROED(&trace->moved, trace->count, err));
    trace->moved[event] = extra + 1;
    return FS_OK;
}

static fs_status place_slices(fs_trace *trace, rows *all, const track_slices *track, fs_error *err)
{
    uint32_t first_extra = trace->extra_count, row;
    for (uint32_t i = 0; i < track->count; i++) {
        FS_POLL(i, err);
        if (all->count > 0) close_until(all, all->slices[i].start);
        FS_TRY(open_slice(all, i, &row, err));
        if (row == 0) continue;
        if (row > trace->extra_count - first_extra) FS_TRY(add_extra(trace, &track->track, row + 1, err));
        FS_TRY(move(trace, all->slices[i].event, first_extra + row - 1, err));
    }
    return FS_OK;
}

/* Annotations are written before other events, and events in the order of the store. `track` is then 1 for others. */
FS_ORDER_BY(compare_slices, slice, start, track, event)

static fs_status sort_slices(const fs_trace *trace, slice *slices, uint32_t count, fs_error *err)
{
    fs_event event;
    for (uint32_t i = 0; i < count; i++) {
        fs_store_get(trace->store, slices[i].event, &event);
        slices[i].track = !fs_trace_is_device_annotation(&event);
    }
    return fs_sort(slices, count, sizeof *slices, compare_slices, err);
}

static fs_status place_track(layout *all, const track_slices *track, fs_error *err)
{
    slice *slices = all->slices + track->begin;
    if (!track->sorted) FS_TRY(sort_slices(all->trace, slices, track->count, err));
    rows found = {.slices = slices, .below = fs_malloc((track->count + (size_t)1) * sizeof *found.below)};
    fs_status status = found.below != NULL ? place_slices(all->trace, &found, track, err) : fs_no_memory(err);
    fs_free(found.below);
    fs_free(found.tops);
    fs_free(found.tree);
    return status;
}

/* Give the extra rows the first thread ids above all others that fit into 31 bits. */
static void number_rows(const layout *all)
{
    uint64_t next = 1;
    for (uint32_t id = 0; id < all->keys.count; id++) {
        uint64_t thread = all->tracks[id].track.thread;
        if (thread <= INT32_MAX && thread >= next) next = thread + 1;
    }
    for (uint32_t i = 0; i < all->trace->extra_count; i++) all->trace->extra[i].track.thread = next++;
}

fs_status fs_trace_rows(fs_trace *trace, fs_error *err)
{
    layout all = {.trace = trace};
    fs_status status = collect(&all, err);
    for (uint32_t id = 0; status == FS_OK && id < all.keys.count; id++)
        status = place_track(&all, &all.tracks[id], err);
    if (status == FS_OK) number_rows(&all);
    fs_intern_clear(&all.keys);
    fs_free(all.tracks);
    fs_free(all.track_of_lane);
    fs_free(all.found);
    fs_free(all.slices);
    return status;
}
