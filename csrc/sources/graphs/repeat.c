/* Copies a store, with the ops of captured graphs before the work of each launch. */
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "sources/graphs/joining.h"
#include "store/extend.h"
#include "store/event.h"
#include "store/samples.h"

/* Captured --------------------------------------------------------------------------------------------------------- */

static void mark_captured(fs_joining *all, uint32_t event)
{
    for (; event != FS_NONE && !all->captured[event]; event = FS_EVENT_AT(all->from, event, parent))
        all->captured[event] = true;
}

/* Find the ops and ranges of the joined store in which nodes were captured. */
static void find_captured(fs_joining *all)
{
    const fs_captures *captures = all->captures;
    for (uint32_t i = 0; i < captures->graph_count; i++) {
        const fs_captured_graph *graph = &captures->graphs[i];
        if (captures->stores[graph->store] != all->from) continue;
        for (uint32_t node = graph->first; node < graph->first + graph->count; node++)
            mark_captured(all, captures->nodes[node].owner);
    }
    for (uint32_t i = 0; i < captures->known_count; i++)
        if (captures->stores[captures->known[i].store] == all->from) mark_captured(all, captures->known[i].owner);
}

static bool may_be_captured(const fs_event *event)
{
    return (event->kind == FS_EVENT_OP || event->kind == FS_EVENT_RANGE) && (event->flags & FS_EVENT_REPLAYED) == 0;
}

/* Copying ---------------------------------------------------------------------------------------------------------- */

static fs_status allocate(fs_joining *all, fs_error *err)
{
    uint32_t count = fs_store_count(all->from), stores = all->captures->store_count;
    all->by_event = fs_calloc((size_t)count + 1, sizeof *all->by_event);
    all->moved = fs_malloc(((size_t)count + 1) * sizeof *all->moved);
    all->captured = fs_calloc((size_t)count + 1, sizeof *all->captured);
    all->copies = fs_calloc((size_t)stores + 1, sizeof *all->copies);
    all->epochs = fs_calloc((size_t)stores + 1, sizeof *all->epochs);
    all->marks = fs_calloc((size_t)all->captures->mark_names.count + 1, sizeof *all->marks);
    all->marked = fs_calloc((size_t)all->captures->mark_names.count + 1, sizeof *all->marked);
    if (all->by_event == NULL || all->moved == NULL || all->captured == NULL || all->copies == NULL ||
        all->epochs == NULL || all->marks == NULL || all->marked == NULL)
        return fs_no_memory(err);
    for (uint32_t i = 0; i < stores; i++) {
        size_t events = fs_store_count(all->captures->stores[i]);
        all->copies[i] = fs_malloc((events + 1) * sizeof **all->copies);
        all->epochs[i] = fs_calloc(events + 1, sizeof **all->epochs);
        if (all->copies[i] == NULL || all->epochs[i] == NULL) return fs_no_memory(err);
    }
    for (uint32_t i = 0; i < all->work_count; i++) all->by_event[all->works[i].event] = i + 1;
    return FS_OK;
}

/* What the copies of a launch have in common. */
typedef struct {
    int64_t start;
    uint32_t parent, lane;
    uint32_t epoch; /* of the copies of ops, which each round of a loop has of its own */
    uint32_t first; /* the first epoch of the launch and annotation, whose ranges all rounds share */
} place;

static fs_status copy_signature(fs_joining *all, const fs_store *store, uint32_t id, uint32_t *copy, fs_error *err)
{
    *copy = FS_NONE;
    if (id == FS_NONE) return FS_OK;
    fs_span bytes = fs_store_signature_bytes(store, id);
    return fs_store_signature(all->into, bytes.bytes, bytes.size, copy, err);
}

/* Append a copy of a work's owner in the capture and, before it, of all that encloses it there. */
static fs_status copy_chain(fs_joining *all, const fs_replayed *work, const place *at_launch, uint32_t *copy,
                            fs_error *err)
{
    enum { DEEPEST = 256 };
    const fs_store *store = all->captures->stores[work->store];
    uint32_t *copies = all->copies[work->store], *epochs = all->epochs[work->store];
    uint32_t events[DEEPEST], parent = at_launch->parent;
    int depth = 0;
    for (uint32_t at = work->owner; at != FS_NONE && depth < DEEPEST; at = FS_EVENT_AT(store, at, parent)) {
        if (FS_EVENT_AT(store, at, start) < work->begin) break;
        bool is_op = FS_EVENT_AT(store, at, kind) == FS_EVENT_OP;
        if (epochs[at] >= (is_op ? at_launch->epoch : at_launch->first)) {
            parent = copies[at];
            break;
        }
        events[depth++] = at;
    }
    while (depth-- > 0) {
        fs_event event, copied = fs_event_missing;
        fs_store_get(store, events[depth], &event);
        if (event.kind == FS_EVENT_RUNTIME || event.kind == FS_EVENT_STEP) continue; /* of the capture alone */
        copied.kind = event.kind;
        copied.flags = FS_EVENT_REPLAYED;
        copied.start = at_launch->start;
        copied.duration = 0;
        copied.parent = parent;
        copied.lane = at_launch->lane;
        copied.timing =
            FS_EVENT_AT(all->from, work->event, timing) == FS_TIMING_TRACE ? FS_TIMING_TRACE : FS_TIMING_CPU;
        if (event.name != FS_NONE)
            FS_TRY(fs_store_name(all->into, fs_store_name_text(store, event.name), &copied.name, err));
        FS_TRY(copy_signature(all, store, event.signature, &copied.signature, err));
        FS_TRY(fs_store_append(all->into, &copied, &parent, err));
        copies[events[depth]] = parent;
        epochs[events[depth]] = at_launch->epoch;
    }
    *copy = parent;
    return FS_OK;
}

static uint32_t moved(const fs_joining *all, uint32_t event, uint32_t before)
{
    return event < before ? all->moved[event] : FS_NONE;
}

/* Where the ops of a launch belong: in what encloses the call. Events before `before` are in the joined store. */
static place place_of(const fs_joining *all, const fs_replayed *work, uint32_t before)
{
    uint32_t call = fs_api_calls_find(&all->calls, work->launch);
    place found = {work->start, FS_NONE, FS_NONE, 0, 0};
    if (call == FS_NONE) {
        found.parent = moved(all, FS_EVENT_AT(all->from, work->event, launcher), before);
        return found;
    }
    found.start = FS_EVENT_AT(all->from, call, start);
    found.parent = moved(all, FS_EVENT_AT(all->from, call, parent), before);
    found.lane = FS_EVENT_AT(all->from, call, lane);
    return found;
}

/* Find the range that names the node of a work, and append it if it is the first with the name in its launch. */
static fs_status find_mark(fs_joining *all, fs_replayed *work, const place *at_launch, uint32_t around, uint32_t first,
                           uint32_t before, fs_error *err)
{
    fs_launch launch;
    uint32_t launcher = FS_EVENT_AT(all->from, work->event, launcher), name = FS_NONE;
    if (all->captures->mark_count > 0 &&
        fs_launch_of(all->from, FS_EVENT_AT(all->from, work->event, signature), &launch))
        name = fs_captures_find_mark(all->captures, launch.graph_node);
    all->report->annotated += name != FS_NONE;
    if ((fs_flags_of(all->from, launcher) & FS_EVENT_MARK) != 0) {
        work->mark = moved(all, launcher, before);
        return FS_OK;
    }
    if (name == FS_NONE) return FS_OK;
    if (all->marked[name] != first + 1) {
        fs_event event = fs_event_missing;
        event.kind = FS_EVENT_RANGE;
        event.flags = FS_EVENT_REPLAYED | FS_EVENT_MARK;
        event.timing = FS_TIMING_TRACE;
        event.start = at_launch->start;
        event.duration = 0;
        event.parent = around;
        event.lane = at_launch->lane;
        FS_TRY(fs_store_name(all->into, fs_intern_get(&all->captures->mark_names, name).bytes, &event.name, err));
        FS_TRY(fs_store_append(all->into, &event, &all->marks[name], err));
        all->marked[name] = first + 1;
    }
    work->mark = all->marks[name];
    return FS_OK;
}

/* Append the ops of the launch to which a work belongs, before its first work. */
static fs_status give_ops(fs_joining *all, uint32_t index, uint32_t before, fs_error *err)
{
    uint32_t first = index, launch = all->works[index].launch;
    if (all->works[index].done) return FS_OK;
    while (first > 0 && all->works[first - 1].launch == launch) first--;
    place at_launch = place_of(all, &all->works[first], before);
    uint32_t around = at_launch.parent, mark = FS_NONE, round = 0;
    at_launch.epoch = at_launch.first = ++all->epoch;
    for (uint32_t i = first; i < all->work_count && all->works[i].launch == launch; i++) {
        fs_replayed *work = &all->works[i];
        FS_TRY(find_mark(all, work, &at_launch, around, first, before, err));
        if (work->mark != mark) { /* ops that enclose the work of several annotations are copied for each */
            mark = work->mark;
            at_launch.parent = mark != FS_NONE ? mark : around;
            at_launch.epoch = at_launch.first = ++all->epoch;
        } else if (work->round != round) {
            at_launch.epoch = ++all->epoch;
        }
        round = work->round;
        work->done = true;
        if (work->owner != FS_NONE) {
            FS_TRY(copy_chain(all, work, &at_launch, &work->copy, err));
            all->report->owned++;
        }
    }
    return FS_OK;
}

/* hipExtModuleLaunchKernel counts its grid in threads, all others in blocks. */
static void count_blocks(const fs_store *store, uint32_t call, fs_launch *launch)
{
    uint32_t name = FS_EVENT_AT(store, call, name);
    if (name == FS_NONE || strstr(fs_store_name_text(store, name), "ExtModuleLaunch") == NULL) return;
    for (int d = 0; d < 3; d++)
        if (launch->block[d] > 0) launch->grid[d] = (launch->grid[d] + launch->block[d] - 1) / launch->block[d];
}

static fs_status set_launch(fs_joining *all, const fs_launch *launch, fs_event *event, fs_error *err)
{
    _Alignas(8) char bytes[FS_LAUNCH_BYTES];
    fs_launch_encode(launch, bytes);
    return fs_store_signature(all->into, bytes, sizeof bytes, &event->signature, err);
}

/* If the graph of a work was not recorded with the replay, take that which its call launched. */
static fs_status give_graph(fs_joining *all, const fs_replayed *work, fs_event *event, fs_error *err)
{
    fs_launch launch;
    if (work->graph == 0 || !fs_launch_of(all->into, event->signature, &launch) || launch.graph != 0) return FS_OK;
    launch.graph = work->graph;
    return set_launch(all, &launch, event, err);
}

/* If a kernel's grid was not recorded with the replay, take that of the capture. */
static fs_status give_grid(fs_joining *all, const fs_replayed *work, fs_event *event, fs_error *err)
{
    fs_launch launch, captured;
    if (work->call == FS_NONE || event->kind != FS_EVENT_KERNEL) return FS_OK;
    const fs_store *store = all->captures->stores[work->store];
    uint32_t signature = FS_EVENT_AT(store, work->call, signature);
    if (signature == FS_NONE || fs_kernel_decode(fs_store_signature_bytes(store, signature).bytes, &captured) == NULL)
        return FS_OK;
    if (!fs_launch_of(all->from, event->signature, &launch) || launch.grid[0] != 0) return FS_OK;
    count_blocks(store, work->call, &captured);
    memcpy(launch.grid, captured.grid, sizeof launch.grid);
    memcpy(launch.block, captured.block, sizeof launch.block);
    return set_launch(all, &launch, event, err);
}

static fs_status copy_events(fs_joining *all, fs_error *err)
{
    uint32_t count = fs_store_count(all->from);
    fs_store_expect(all->into, count + all->work_count);
    for (uint32_t i = 0; i < count; i++) {
        FS_POLL(i, err);
        fs_event event;
        fs_store_get(all->from, i, &event);
        event.parent = moved(all, event.parent, i);
        event.launcher = moved(all, event.launcher, i);
        if (all->captured[i] && may_be_captured(&event)) event.flags |= FS_EVENT_CAPTURED;
        if (all->by_event[i] != 0) {
            const fs_replayed *work = &all->works[all->by_event[i] - 1];
            FS_TRY(give_ops(all, all->by_event[i] - 1, i, err));
            if (work->copy != FS_NONE) event.launcher = work->copy;
            else if (work->mark != FS_NONE) event.launcher = work->mark;
            FS_TRY(give_grid(all, work, &event, err));
            FS_TRY(give_graph(all, work, &event, err));
            if (work->copy != FS_NONE && work->estimated) event.flags |= FS_EVENT_ESTIMATED;
        }
        FS_TRY(fs_store_append(all->into, &event, &all->moved[i], err));
    }
    fs_store_copy_forwards(all->into, all->from, all->moved);
    return FS_OK;
}

static void clear(fs_joining *all)
{
    for (uint32_t i = 0; all->copies != NULL && i < all->captures->store_count; i++) fs_free(all->copies[i]);
    for (uint32_t i = 0; all->epochs != NULL && i < all->captures->store_count; i++) fs_free(all->epochs[i]);
    fs_free(all->copies);
    fs_free(all->epochs);
    fs_free(all->by_event);
    fs_free(all->moved);
    fs_free(all->captured);
    fs_free(all->marks);
    fs_free(all->marked);
}

fs_status fs_joining_repeat(fs_joining *all, fs_error *err)
{
    fs_status status = allocate(all, err);
    if (status == FS_OK) status = fs_store_copy_ids(all->into, all->from, err);
    if (status == FS_OK) find_captured(all);
    if (status == FS_OK) status = copy_events(all, err);
    if (status == FS_OK) status = fs_store_copy_samples(all->into, all->from, 0, err);
    clear(all);
    return status;
}
