#include "sources/graphs/replays.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/sort.h"
#include "sources/graphs/elsewhere.h"
#include "sources/graphs/match.h"
#include "store/api_calls.h"
#include "store/event.h"
#include "store/samples.h"
#include "store/signature.h"

/* Device work of a graph. */
typedef struct {
    uint64_t order; /* id of the node, or start */
    uint32_t launch, event;
    uint32_t owner, store; /* of the capture; owner FS_NONE: unknown */
    uint32_t call;         /* of the capture: the launch, or FS_NONE */
    int64_t begin;         /* of the capture */
    uint32_t copy;         /* the event that launched it, in the joined store; FS_NONE: as before */
    bool found, estimated; /* its node was found, by names that do not prove it */
    bool done;             /* of the first work of a launch: the launch has its ops */
} replayed;

typedef struct {
    const fs_store *from;
    fs_captures *captures;
    fs_store *into;
    fs_replay_report *report;
    fs_api_calls calls;
    replayed *works;
    uint32_t work_count;
    uint32_t *by_event; /* by event: index in works + 1; 0: none */
    uint32_t **copies;  /* by store of the captures and event: the copy for the current launch */
    uint32_t **epochs;  /* likewise: the launch and the annotation that the copy is for */
    uint32_t *moved;    /* by event of from: its index in into */
    uint32_t epoch;     /* of the last copies */
} joining;

static fs_status no_memory(const joining *all, fs_error *err)
{
    return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to join %u replayed kernels", all->work_count);
}

/* Work of graphs --------------------------------------------------------------------------------------------------- */

static bool launch_of(const fs_store *store, uint32_t signature, fs_launch *launch)
{
    return signature != FS_NONE && fs_launch_decode(fs_store_signature_bytes(store, signature).bytes, launch);
}

static bool launches_graphs(const fs_store *store, uint32_t call)
{
    uint32_t name = FS_EVENT_AT(store, call, name);
    return name != FS_NONE && strstr(fs_store_name_text(store, name), "GraphLaunch") != NULL;
}

static uint32_t flags_of(const fs_store *store, uint32_t event)
{
    return event != FS_NONE ? FS_EVENT_AT(store, event, flags) : 0;
}

/* Return whether device work is of a graph; *node: the id of its node, 0 if unknown. */
static bool is_replayed(const joining *all, const fs_chunk *chunk, uint32_t at, uint64_t *node)
{
    fs_launch launch;
    *node = 0;
    uint32_t launcher = chunk->launcher[at];
    if (chunk->correlation[at] == FS_NONE || !fs_event_is_placed_work(chunk, at)) return false;
    if ((flags_of(all->from, launcher) & (FS_EVENT_REPLAYED | FS_EVENT_MARK)) == FS_EVENT_REPLAYED)
        return false; /* it has its op */
    if (launch_of(all->from, chunk->signature[at], &launch) && launch.graph != 0) {
        *node = launch.graph_node;
        return true;
    }
    uint32_t call = fs_api_calls_find(&all->calls, chunk->correlation[at]);
    return call != FS_NONE && launches_graphs(all->from, call);
}

static int compare_works(const void *left, const void *right)
{
    const replayed *a = left, *b = right;
    if (a->launch != b->launch) return a->launch < b->launch ? -1 : 1;
    if (a->order != b->order) return a->order < b->order ? -1 : 1;
    return (a->event > b->event) - (a->event < b->event);
}

bool fs_replays_exist(const fs_store *store)
{
    fs_launch launch;
    for (uint32_t id = 0; id < fs_store_name_count(store); id++)
        if (strstr(fs_store_name_text(store, id), "GraphLaunch") != NULL) return true;
    for (uint32_t id = 0; id < fs_store_signature_count(store); id++)
        if (launch_of(store, id, &launch) && launch.graph != 0) return true;
    return false;
}

static fs_status list_works(joining *all, fs_error *err)
{
    uint32_t count = fs_store_count(all->from), capacity = 0, at;
    const fs_chunk *chunk = NULL;
    uint64_t node;
    for (uint32_t i = 0; i < count; i++) {
        FS_POLL(i, err);
        chunk = fs_event_next_chunk(all->from, i, chunk, &at);
        if (!is_replayed(all, chunk, at, &node)) continue;
        if (all->work_count == capacity) {
            capacity = capacity ? 2 * capacity : 1024;
            replayed *works = fs_realloc(all->works, capacity * sizeof *works);
            if (works == NULL) return no_memory(all, err);
            all->works = works;
        }
        all->works[all->work_count++] = (replayed){
            .order = node,
            .launch = chunk->correlation[at],
            .event = i,
            .owner = FS_NONE,
            .copy = FS_NONE,
            .call = FS_NONE,
        };
    }
    return FS_OK;
}

/* Order the works of a launch by node if all have one, else by start. */
static fs_status order_works(joining *all, fs_error *err)
{
    FS_TRY(fs_sort(all->works, all->work_count, sizeof *all->works, compare_works, "replayed kernels", err));
    bool changed = false;
    for (uint32_t first = 0, next; first < all->work_count; first = next) {
        for (next = first; next < all->work_count && all->works[next].launch == all->works[first].launch;) next++;
        if (all->works[first].order != 0) continue; /* the smallest id */
        for (uint32_t i = first; i < next; i++)
            all->works[i].order = (uint64_t)FS_EVENT_AT(all->from, all->works[i].event, start) ^ (UINT64_C(1) << 63);
        changed = true;
    }
    if (!changed) return FS_OK;
    return fs_sort(all->works, all->work_count, sizeof *all->works, compare_works, "replayed kernels", err);
}

/* Finding owners --------------------------------------------------------------------------------------------------- */

/* Find the owners of nodes by their ids. Return whether all works of the launch had one. */
static bool find_known(joining *all, replayed *works, uint32_t count)
{
    uint32_t found = 0;
    fs_launch launch;
    for (uint32_t i = 0; i < count && all->captures->known_count > 0; i++) {
        if (!launch_of(all->from, FS_EVENT_AT(all->from, works[i].event, signature), &launch)) continue;
        const fs_known_node *node = fs_captures_find(all->captures, launch.graph_node);
        if (launch.graph_node == 0 || node == NULL) continue;
        works[i].owner = node->owner;
        works[i].store = node->store;
        works[i].begin = node->begin;
        works[i].found = true;
        found++;
    }
    return found == count;
}

static fs_status symbols_of(joining *all, const replayed *works, uint32_t count, uint32_t *symbols, uint32_t *lanes,
                            fs_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at;
        const fs_chunk *chunk = fs_event_chunk(all->from, works[i].event, &at);
        lanes[i] = chunk->lane[at];
        symbols[i] = chunk->kind[at] == FS_EVENT_MEMCPY ? FS_SYMBOL_COPY : FS_SYMBOL_FILL;
        if (chunk->kind[at] != FS_EVENT_KERNEL) continue;
        FS_TRY(
            fs_intern_text(&all->captures->symbols, fs_store_name_text(all->from, chunk->name[at]), &symbols[i], err));
    }
    return FS_OK;
}

/* Return the text of the innermost annotation with a number around the launch; else of one that another thread has open
 * then. NULL: none. */
static const char *label_of(const joining *all, uint32_t call)
{
    for (uint32_t at = call; at != FS_NONE; at = FS_EVENT_AT(all->from, at, parent)) {
        uint32_t name = FS_EVENT_AT(all->from, at, name);
        if (FS_EVENT_AT(all->from, at, kind) != FS_EVENT_RANGE || name == FS_NONE) continue;
        const char *text = fs_store_name_text(all->from, name);
        if (text[strcspn(text, "0123456789")] != 0) return text;
    }
    return NULL;
}

static fs_status match_launch(joining *all, fs_matcher *matcher, replayed *works, uint32_t count, fs_error *err)
{
    uint32_t *symbols = fs_malloc((size_t)count * 3 * sizeof *symbols);
    if (symbols == NULL) return no_memory(all, err);
    uint32_t *lanes = symbols + count, *nodes = lanes + count;
    fs_match match = {0};
    uint32_t call = fs_api_calls_find(&all->calls, works[0].launch);
    fs_status status = symbols_of(all, works, count, symbols, lanes, err);
    bool by_node = (works[0].order >> 63) == 0;
    const char *label = call != FS_NONE ? label_of(all, call) : NULL;
    if (status == FS_OK)
        status = fs_matcher_find(matcher, symbols, by_node ? NULL : lanes, count, label, nodes, &match, err);
    for (uint32_t i = 0; status == FS_OK && match.found && i < count; i++) {
        if (nodes[i] == FS_NONE) continue;
        const fs_captured_graph *graph = &all->captures->graphs[match.graph];
        works[i].owner = all->captures->nodes[nodes[i]].owner;
        works[i].call = all->captures->nodes[nodes[i]].call;
        works[i].store = graph->store;
        works[i].begin = graph->begin;
        works[i].estimated = match.estimated;
        works[i].found = true;
    }
    all->report->ambiguous += match.ambiguous;
    all->report->unseen += !match.found && !match.ambiguous;
    fs_free(symbols);
    return status;
}

static fs_status find_owners(joining *all, fs_error *err)
{
    fs_matcher matcher = {.captures = all->captures};
    fs_status status = FS_OK;
    for (uint32_t first = 0, next; status == FS_OK && first < all->work_count; first = next) {
        for (next = first; next < all->work_count && all->works[next].launch == all->works[first].launch;) next++;
        all->report->launches++;
        if (find_known(all, all->works + first, next - first)) continue;
        status = match_launch(all, &matcher, all->works + first, next - first, err);
        if (status == FS_OK) status = fs_interrupt_poll(err);
    }
    for (uint32_t i = 0; i < all->work_count; i++) all->report->matched += all->works[i].found;
    fs_matcher_clear(&matcher);
    return status;
}

/* Copying ---------------------------------------------------------------------------------------------------------- */

static fs_status copy_ids(const fs_store *from, fs_store *into, fs_error *err)
{
    uint32_t id;
    int64_t begin, end;
    for (uint32_t i = 0; i < fs_store_name_count(from); i++)
        FS_TRY(fs_store_name(into, fs_store_name_text(from, i), &id, err));
    for (uint32_t i = 0; i < fs_store_signature_count(from); i++) {
        fs_span bytes = fs_store_signature_bytes(from, i);
        FS_TRY(fs_store_signature(into, bytes.bytes, bytes.size, &id, err));
    }
    for (uint32_t i = 0; i < fs_store_lane_count(from); i++) {
        fs_lane lane = fs_store_lane(from, i);
        if (lane.on_device) FS_TRY(fs_store_device_lane(into, lane.device, lane.id, &id, err));
        else FS_TRY(fs_store_thread_lane_of(into, lane.id, &id, err));
    }
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        fs_device_facts facts = fs_store_device(from, device);
        if (memcmp(&facts, &fs_device_facts_missing, sizeof facts) != 0)
            FS_TRY(fs_store_set_device(into, device, &facts, err));
    }
    fs_store_window(from, &begin, &end);
    fs_store_set_window(into, begin, end);
    return FS_OK;
}

static fs_status allocate(joining *all, fs_error *err)
{
    uint32_t count = fs_store_count(all->from), stores = all->captures->store_count;
    all->by_event = fs_calloc((size_t)count + 1, sizeof *all->by_event);
    all->moved = fs_malloc(((size_t)count + 1) * sizeof *all->moved);
    all->copies = fs_calloc((size_t)stores + 1, sizeof *all->copies);
    all->epochs = fs_calloc((size_t)stores + 1, sizeof *all->epochs);
    if (all->by_event == NULL || all->moved == NULL || all->copies == NULL || all->epochs == NULL)
        return no_memory(all, err);
    for (uint32_t i = 0; i < stores; i++) {
        size_t events = fs_store_count(all->captures->stores[i]);
        all->copies[i] = fs_malloc((events + 1) * sizeof **all->copies);
        all->epochs[i] = fs_calloc(events + 1, sizeof **all->epochs);
        if (all->copies[i] == NULL || all->epochs[i] == NULL) return no_memory(all, err);
    }
    for (uint32_t i = 0; i < all->work_count; i++) all->by_event[all->works[i].event] = i + 1;
    return FS_OK;
}

/* What the copies of a launch have in common. */
typedef struct {
    int64_t start;
    uint32_t parent, lane, epoch;
} place;

static fs_status copy_signature(joining *all, const fs_store *store, uint32_t id, uint32_t *copy, fs_error *err)
{
    *copy = FS_NONE;
    if (id == FS_NONE) return FS_OK;
    fs_span bytes = fs_store_signature_bytes(store, id);
    return fs_store_signature(all->into, bytes.bytes, bytes.size, copy, err);
}

/* Append a copy of a work's owner in the capture and, before it, of all that encloses it there. */
static fs_status copy_chain(joining *all, const replayed *work, const place *at_launch, uint32_t *copy, fs_error *err)
{
    enum { DEEPEST = 256 };
    const fs_store *store = all->captures->stores[work->store];
    uint32_t *copies = all->copies[work->store], *epochs = all->epochs[work->store];
    uint32_t events[DEEPEST], parent = at_launch->parent;
    int depth = 0;
    for (uint32_t at = work->owner; at != FS_NONE && depth < DEEPEST; at = FS_EVENT_AT(store, at, parent)) {
        if (FS_EVENT_AT(store, at, start) < work->begin) break;
        if (epochs[at] == at_launch->epoch) {
            parent = copies[at];
            break;
        }
        events[depth++] = at;
    }
    while (depth-- > 0) {
        fs_event event, copied = fs_event_missing;
        fs_store_get(store, events[depth], &event);
        if (event.kind == FS_EVENT_RUNTIME) continue;
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

static uint32_t moved(const joining *all, uint32_t event, uint32_t before)
{
    return event < before ? all->moved[event] : FS_NONE;
}

/* Where the ops of a launch belong: in what encloses the call. Events before `before` are in the joined store. */
static place place_of(const joining *all, const replayed *work, uint32_t before)
{
    uint32_t call = fs_api_calls_find(&all->calls, work->launch);
    place found = {FS_EVENT_AT(all->from, work->event, start), FS_NONE, FS_NONE, 0};
    if (call == FS_NONE) {
        found.parent = moved(all, FS_EVENT_AT(all->from, work->event, launcher), before);
        return found;
    }
    found.start = FS_EVENT_AT(all->from, call, start);
    found.parent = moved(all, FS_EVENT_AT(all->from, call, parent), before);
    found.lane = FS_EVENT_AT(all->from, call, lane);
    return found;
}

/* A kernel that no capture knows gets the op of the same kernel elsewhere. */
static fs_status guess_op(joining *all, const fs_elsewhere *elsewhere, const place *at_launch, replayed *work,
                          fs_error *err)
{
    uint32_t op = fs_elsewhere_find(elsewhere, work->event);
    if (op == FS_NONE) return FS_OK;
    fs_event copied = fs_event_missing;
    copied.kind = FS_EVENT_OP;
    copied.flags = FS_EVENT_REPLAYED;
    copied.start = at_launch->start;
    copied.duration = 0;
    copied.parent = at_launch->parent;
    copied.lane = at_launch->lane;
    copied.timing = FS_EVENT_AT(all->from, op, timing);
    copied.name = FS_EVENT_AT(all->from, op, name);
    copied.signature = FS_EVENT_AT(all->from, op, signature);
    FS_TRY(fs_store_append(all->into, &copied, &work->copy, err));
    work->estimated = true;
    all->report->estimated++;
    return FS_OK;
}

/* Append the ops of the launch to which a work belongs, before its first work. */
static fs_status give_ops(joining *all, const fs_elsewhere *elsewhere, uint32_t index, uint32_t before, fs_error *err)
{
    uint32_t first = index, launch = all->works[index].launch;
    while (first > 0 && all->works[first - 1].launch == launch) first--;
    if (all->works[first].done) return FS_OK;
    all->works[first].done = true;
    place at_launch = place_of(all, &all->works[first], before);
    uint32_t around = at_launch.parent, mark = FS_NONE;
    at_launch.epoch = ++all->epoch;
    for (uint32_t i = first; i < all->work_count && all->works[i].launch == launch; i++) {
        replayed *work = &all->works[i];
        uint32_t marked = FS_EVENT_AT(all->from, work->event, launcher);
        if ((flags_of(all->from, marked) & FS_EVENT_MARK) == 0) marked = FS_NONE;
        if (marked != mark) { /* ops that enclose the work of several annotations are copied for each */
            mark = marked;
            at_launch.parent = mark != FS_NONE ? moved(all, mark, before) : around;
            at_launch.epoch = ++all->epoch;
        }
        if (work->owner != FS_NONE) {
            FS_TRY(copy_chain(all, work, &at_launch, &work->copy, err));
            all->report->owned++;
        } else if (!work->found) {
            FS_TRY(guess_op(all, elsewhere, &at_launch, work, err));
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

/* If a kernel's grid was not recorded with the replay, take that of the capture. */
static fs_status give_grid(joining *all, const replayed *work, fs_event *event, fs_error *err)
{
    fs_launch launch, captured;
    _Alignas(8) char bytes[FS_LAUNCH_BYTES];
    if (work->call == FS_NONE || event->kind != FS_EVENT_KERNEL) return FS_OK;
    const fs_store *store = all->captures->stores[work->store];
    uint32_t signature = FS_EVENT_AT(store, work->call, signature);
    if (signature == FS_NONE || fs_kernel_decode(fs_store_signature_bytes(store, signature).bytes, &captured) == NULL)
        return FS_OK;
    if (!launch_of(all->from, event->signature, &launch) || launch.grid[0] != 0) return FS_OK;
    count_blocks(store, work->call, &captured);
    memcpy(launch.grid, captured.grid, sizeof launch.grid);
    memcpy(launch.block, captured.block, sizeof launch.block);
    fs_launch_encode(&launch, bytes);
    return fs_store_signature(all->into, bytes, sizeof bytes, &event->signature, err);
}

static fs_status copy_events(joining *all, const fs_elsewhere *elsewhere, fs_error *err)
{
    uint32_t count = fs_store_count(all->from);
    bool forwards = false;
    fs_store_expect(all->into, count + all->work_count);
    for (uint32_t i = 0; i < count; i++) {
        FS_POLL(i, err);
        fs_event event;
        fs_store_get(all->from, i, &event);
        event.parent = moved(all, event.parent, i);
        event.launcher = moved(all, event.launcher, i);
        forwards = forwards || event.forward != FS_NONE;
        if (all->by_event[i] != 0) {
            const replayed *work = &all->works[all->by_event[i] - 1];
            FS_TRY(give_ops(all, elsewhere, all->by_event[i] - 1, i, err));
            if (work->copy != FS_NONE) event.launcher = work->copy;
            FS_TRY(give_grid(all, work, &event, err));
            if (work->copy != FS_NONE && work->estimated) event.flags |= FS_EVENT_ESTIMATED;
        }
        FS_TRY(fs_store_append(all->into, &event, &all->moved[i], err));
    }
    for (uint32_t i = 0; forwards && i < count; i++) {
        uint32_t forward = FS_EVENT_AT(all->from, i, forward);
        if (forward != FS_NONE) fs_store_set_forward(all->into, all->moved[i], all->moved[forward]);
    }
    return FS_OK;
}

static void clear(joining *all)
{
    for (uint32_t i = 0; all->copies != NULL && i < all->captures->store_count; i++) fs_free(all->copies[i]);
    for (uint32_t i = 0; all->epochs != NULL && i < all->captures->store_count; i++) fs_free(all->epochs[i]);
    fs_free(all->copies);
    fs_free(all->epochs);
    fs_free(all->works);
    fs_free(all->by_event);
    fs_free(all->moved);
    fs_api_calls_clear(&all->calls);
}

fs_status fs_replays_join(const fs_store *from, fs_captures *captures, fs_store *into, fs_replay_report *report,
                          fs_error *err)
{
    joining all = {.from = from, .captures = captures, .into = into, .report = report};
    fs_elsewhere elsewhere = {0};
    fs_status status;
    *report = (fs_replay_report){.graphs = captures->graph_count};
    FS_TRY_GOTO(status, fs_api_calls_create(&all.calls, from, err), done);
    FS_TRY_GOTO(status, list_works(&all, err), done);
    FS_TRY_GOTO(status, order_works(&all, err), done);
    report->works = all.work_count;
    FS_TRY_GOTO(status, find_owners(&all, err), done);
    FS_TRY_GOTO(status, allocate(&all, err), done);
    FS_TRY_GOTO(status, fs_elsewhere_create(&elsewhere, from, all.by_event, err), done);
    FS_TRY_GOTO(status, copy_ids(from, into, err), done);
    FS_TRY_GOTO(status, copy_events(&all, &elsewhere, err), done);
    FS_TRY_GOTO(status, fs_store_copy_samples(into, from, 0, err), done);
done:
    fs_elsewhere_clear(&elsewhere);
    clear(&all);
    return status;
}
