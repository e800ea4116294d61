/* Three steps: the works of graphs, ordered by launch, round of a loop and node (or start); their owners, first by the
 * node's id, then by the id of the graph that the call launched, then by kernel names; the repetition of owners before
 * each launch. The works of a launch are consecutive from order_works on. A work whose node is known keeps
 * that owner, whatever its launch matches. */
#include "sources/graphs/replays.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/sort.h"
#include "sources/graphs/captures.h"
#include "store/api_calls.h"
#include "store/event.h"
#include "store/extend.h"
#include "store/samples.h"
#include "store/signature.h"

/* Device work of a graph. */
typedef struct {
    uint64_t order; /* id of the node, or start */
    int64_t start;
    uint32_t launch, event;
    uint32_t round;        /* how often its node ran before in this launch, in the body of a loop */
    uint32_t owner, store; /* of the capture; owner FS_NONE: unknown */
    uint32_t call;         /* of the capture: the launch, or FS_NONE */
    uint32_t graph;        /* id of the executable graph that its call launched; 0: unknown */
    int64_t begin;         /* of the capture */
    uint32_t copy;         /* the event that launched it, in the joined store; FS_NONE: as before */
    uint32_t mark;         /* the range that names its node in the recording, likewise */
    bool found, estimated; /* its node was found, by names that do not prove it */
    bool done;             /* its launch has its ops */
} fs_replayed;

typedef struct {
    const fs_store *from;
    fs_captures *captures;
    fs_store *into;
    fs_replay_report *report;
    fs_api_calls calls;
    fs_replayed *works;
    uint32_t work_count;
    uint32_t *by_event; /* by event: index in works + 1; 0: none */
    uint32_t **copies;  /* by store of the captures and event: the copy for the current launch */
    uint32_t **epochs;  /* likewise: the launch and the annotation that the copy is for */
    uint32_t *moved;    /* by event of from: its index in into */
    bool *captured;     /* by event of from: FS_EVENT_CAPTURED */
    uint32_t epoch;     /* of the last copies */
} fs_joining;

static inline bool fs_launch_of(const fs_store *store, uint32_t signature, fs_launch *launch)
{
    return signature != FS_NONE && fs_launch_decode(fs_store_signature_bytes(store, signature).bytes, launch);
}

static inline uint32_t fs_flags_of(const fs_store *store, uint32_t event)
{
    return event != FS_NONE ? FS_EVENT_AT(store, event, flags) : 0;
}

/* Copies a store, with the ops of captured graphs before the work of each launch. */

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
    size_t events = (size_t)count + 1;
    FS_TRY(FS_NEW_ZEROED(&all->by_event, events, err));
    FS_TRY(FS_NEW(&all->moved, events, err));
    FS_TRY(FS_NEW_ZEROED(&all->captured, events, err));
    FS_TRY(FS_NEW_ZEROED(&all->copies, (size_t)stores + 1, err));
    FS_TRY(FS_NEW_ZEROED(&all->epochs, (size_t)stores + 1, err));
    for (uint32_t i = 0; i < stores; i++) {
        size_t captured = (size_t)fs_store_count(all->captures->stores[i]) + 1;
        FS_TRY(FS_NEW(&all->copies[i], captured, err));
        FS_TRY(FS_NEW_ZEROED(&all->epochs[i], captured, err));
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

/* Append a copy of a work's owner in the capture and, before it, of all that encloses it there. *copy: FS_NONE if
 * nothing of that is copied, as steps are not; the call around the launch owns no work. */
static fs_status copy_chain(fs_joining *all, const fs_replayed *work, const place *at_launch, uint32_t *copy,
                            fs_error *err)
{
    enum { DEEPEST = 256 };
    const fs_store *store = all->captures->stores[work->store];
    uint32_t *copies = all->copies[work->store], *epochs = all->epochs[work->store];
    uint32_t events[DEEPEST], parent = at_launch->parent;
    int depth = 0;
    *copy = FS_NONE;
    for (uint32_t at = work->owner; at != FS_NONE && depth < DEEPEST; at = FS_EVENT_AT(store, at, parent)) {
        if (FS_EVENT_AT(store, at, start) < work->begin) break;
        bool is_op = FS_EVENT_AT(store, at, kind) == FS_EVENT_OP;
        if (epochs[at] >= (is_op ? at_launch->epoch : at_launch->first)) {
            *copy = parent = copies[at];
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
        FS_TRY(fs_store_copy_words(all->into, store, events[depth], &copied, err));
        FS_TRY(fs_store_append(all->into, &copied, &parent, err));
        *copy = copies[events[depth]] = parent;
        epochs[events[depth]] = at_launch->epoch;
    }
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
        uint32_t launcher = FS_EVENT_AT(all->from, work->event, launcher);
        if ((fs_flags_of(all->from, launcher) & FS_EVENT_MARK) != 0) work->mark = moved(all, launcher, before);
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
            all->report->owned += work->copy != FS_NONE;
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
}

/* Fill all->into, once the owners of all works are known. FS_OUT_OF_MEMORY; FS_INTERRUPTED. */
static fs_status joining_repeat(fs_joining *all, fs_error *err)
{
    fs_status status = allocate(all, err);
    if (status == FS_OK) status = fs_store_copy_ids(all->into, all->from, err);
    if (status == FS_OK) find_captured(all);
    if (status == FS_OK) status = copy_events(all, err);
    if (status == FS_OK) status = fs_store_copy_samples(all->into, all->from, 0, err);
    clear(all);
    return status;
}

/* Work of graphs --------------------------------------------------------------------------------------------------- */

static bool launches_graphs(const fs_store *store, uint32_t call)
{
    uint32_t name = FS_EVENT_AT(store, call, name);
    return name != FS_NONE && strstr(fs_store_name_text(store, name), "GraphLaunch") != NULL;
}

/* Return whether device work is of a graph; *node: the id of its node, 0 if unknown. */
static bool is_replayed(const fs_joining *all, const fs_chunk *chunk, uint32_t at, uint64_t *node)
{
    fs_launch launch;
    *node = 0;
    uint32_t launcher = chunk->launcher[at];
    if (chunk->correlation[at] == FS_NONE || !fs_event_is_placed_work(chunk, at)) return false;
    if ((fs_flags_of(all->from, launcher) & (FS_EVENT_REPLAYED | FS_EVENT_MARK)) == FS_EVENT_REPLAYED)
        return false; /* it has its op */
    if (fs_launch_of(all->from, chunk->signature[at], &launch) && (launch.graph != 0 || launch.graph_node != 0)) {
        *node = launch.graph_node;
        return true;
    }
    uint32_t call = fs_api_calls_find(&all->calls, chunk->correlation[at]);
    return call != FS_NONE && launches_graphs(all->from, call);
}

FS_ORDER_BY(compare_works, fs_replayed, launch, round, order, start, event)

bool fs_replays_exist(const fs_store *store)
{
    fs_launch launch;
    for (uint32_t id = 0; id < fs_store_name_count(store); id++)
        if (strstr(fs_store_name_text(store, id), "GraphLaunch") != NULL) return true;
    for (uint32_t id = 0; id < fs_store_signature_count(store); id++)
        if (fs_launch_of(store, id, &launch) && (launch.graph != 0 || launch.graph_node != 0)) return true;
    return false;
}

static fs_status list_works(fs_joining *all, fs_error *err)
{
    uint32_t capacity = 0;
    uint64_t node;
    FS_EACH_EVENT(all->from, i, chunk, at) {
        FS_POLL(i, err);
        if (!is_replayed(all, chunk, at, &node)) continue;
        FS_TRY(FS_LIST_ADD(&all->works, &all->work_count, &capacity, 1024, err,
                           (fs_replayed){
                               .order = node,
                               .start = chunk->start[at],
                               .launch = chunk->correlation[at],
                               .event = i,
                               .owner = FS_NONE,
                               .copy = FS_NONE,
                               .mark = FS_NONE,
                               .call = FS_NONE,
                           }));
    }
    return FS_OK;
}

/* A node in the body of a loop runs several times in a launch: count its rounds. A copy alone may have several records
 * of one run. Return whether there are any. */
static bool count_rounds(fs_joining *all, uint32_t first, uint32_t end)
{
    bool any = false;
    for (uint32_t i = first + 1; i < end; i++) {
        fs_replayed *work = &all->works[i];
        if (work->order != work[-1].order) continue;
        work->round = work[-1].round + 1;
        any = any || FS_EVENT_AT(all->from, work->event, kind) == FS_EVENT_KERNEL;
    }
    for (uint32_t i = first; i < end && !any; i++) all->works[i].round = 0;
    return any;
}

/* Order the works of a launch by node if all have one, else by start; in loops by round first. */
static fs_status order_works(fs_joining *all, fs_error *err)
{
    FS_TRY(fs_sort(all->works, all->work_count, sizeof *all->works, compare_works, err));
    bool changed = false;
    for (uint32_t first = 0, next; first < all->work_count; first = next) {
        for (next = first; next < all->work_count && all->works[next].launch == all->works[first].launch;) next++;
        if (all->works[first].order != 0) { /* the smallest id */
            changed = count_rounds(all, first, next) || changed;
            continue;
        }
        for (uint32_t i = first; i < next; i++)
            all->works[i].order = (uint64_t)all->works[i].start ^ (UINT64_C(1) << 63);
        changed = true;
    }
    if (!changed) return FS_OK;
    return fs_sort(all->works, all->work_count, sizeof *all->works, compare_works, err);
}

/* Finding owners --------------------------------------------------------------------------------------------------- */

/* Return the node of a graph that did the work, or NULL. */
static const fs_known_node *node_of(const fs_joining *all, uint32_t work)
{
    const fs_captures *captures = all->captures;
    fs_launch launch;
    if (captures->node_of != NULL)
        return captures->node_of[work] != FS_NONE ? &captures->known[captures->node_of[work]] : NULL;
    if (captures->known_count == 0 || !fs_launch_of(all->from, FS_EVENT_AT(all->from, work, signature), &launch))
        return NULL;
    return launch.graph_node != 0 ? fs_captures_find(captures, launch.graph_node) : NULL;
}

/* Find the owners of nodes that are known. Return the number of works of the launch that have such a node. */
static uint32_t find_known(fs_joining *all, fs_replayed *works, uint32_t count)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        const fs_known_node *node = node_of(all, works[i].event);
        if (node == NULL) continue;
        works[i].owner = node->owner;
        works[i].store = node->store;
        works[i].begin = node->begin;
        works[i].found = true;
        found++;
    }
    return found;
}

static fs_status symbols_of(fs_joining *all, const fs_replayed *works, uint32_t count, uint32_t *symbols,
                            uint32_t *lanes, fs_error *err)
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

static bool are_identified(const fs_joining *all, const fs_replayed *works, uint32_t count)
{
    fs_launch launch;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t signature = FS_EVENT_AT(all->from, works[i].event, signature);
        if (fs_launch_of(all->from, signature, &launch) && launch.graph_node != 0) return true;
    }
    return false;
}

/* Return the id of the graph that a call launched, or the call around it. */
static uint32_t tied_graph_of(const fs_joining *all, uint32_t call)
{
    if (call == FS_NONE || all->captures->tied_count == 0) return 0;
    if (fs_captures_is_inner_call(all->from, call)) call = FS_EVENT_AT(all->from, call, parent);
    return fs_captures_find_tied(all->captures, call);
}

/* Match the works of a launch of an executable graph by its id: to that graph or, if it was not captured, to none. */
static void match_tied(fs_joining *all, uint32_t id, const fs_launched *launched, uint32_t *nodes, fs_match *match)
{
    const fs_captured_graph *graph = fs_captures_find_graph(all->captures, id);
    all->report->tied++;
    if (graph == NULL || fs_match_within(all->captures, graph, launched, nodes, &match->estimated) == 0) return;
    match->found = true;
    match->graph = (uint32_t)(graph - all->captures->graphs);
}

/* Match the works of a launch of which not all are known. */
static fs_status match_launch(fs_joining *all, fs_matcher *matcher, fs_replayed *works, uint32_t count, uint32_t known,
                              fs_error *err)
{
    uint32_t *symbols = fs_malloc((size_t)count * 3 * sizeof *symbols);
    if (symbols == NULL) return fs_no_memory(err);
    uint32_t *lanes = symbols + count, *nodes = lanes + count;
    fs_match match = {0};
    uint32_t call = fs_api_calls_find(&all->calls, works[0].launch);
    uint32_t label = fs_captures_label_of(all->from, call);
    fs_status status = symbols_of(all, works, count, symbols, lanes, err);
    bool by_node = (works[0].order >> 63) == 0;
    fs_launched launched = {
        .symbols = symbols,
        .lanes = by_node ? NULL : lanes,
        .count = count,
        .identified = are_identified(all, works, count),
        .label = label != FS_NONE ? fs_store_name_text(all->from, FS_EVENT_AT(all->from, label, name)) : NULL};
    uint32_t tied = launched.identified ? 0 : tied_graph_of(all, call);
    if (status == FS_OK && tied != 0) match_tied(all, tied, &launched, nodes, &match);
    else if (status == FS_OK) status = fs_matcher_find(matcher, &launched, nodes, &match, err);
    for (uint32_t i = 0; i < count; i++) works[i].graph = tied;
    for (uint32_t i = 0; status == FS_OK && match.found && i < count; i++) {
        if (nodes[i] == FS_NONE || works[i].found) continue;
        const fs_captured_graph *graph = &all->captures->graphs[match.graph];
        works[i].owner = all->captures->nodes[nodes[i]].owner;
        works[i].call = all->captures->nodes[nodes[i]].call;
        works[i].store = graph->store;
        works[i].begin = graph->begin;
        works[i].estimated = match.estimated;
        works[i].found = true;
    }
    all->report->ambiguous += match.ambiguous;
    all->report->unseen += !match.found && !match.ambiguous && known == 0;
    fs_free(symbols);
    return status;
}

static fs_status find_owners(fs_joining *all, fs_error *err)
{
    fs_matcher matcher = {.captures = all->captures};
    fs_status status = FS_OK;
    for (uint32_t first = 0, next; status == FS_OK && first < all->work_count; first = next) {
        for (next = first; next < all->work_count && all->works[next].launch == all->works[first].launch;) next++;
        all->report->launches++;
        uint32_t known = find_known(all, all->works + first, next - first);
        if (known == next - first) continue;
        status = match_launch(all, &matcher, all->works + first, next - first, known, err);
        if (status == FS_OK) status = fs_interrupt_poll(err);
    }
    for (uint32_t i = 0; i < all->work_count; i++) all->report->matched += all->works[i].found;
    fs_matcher_clear(&matcher);
    return status;
}

fs_status fs_replays_join(const fs_store *from, fs_captures *captures, fs_store *into, fs_replay_report *report,
                          fs_error *err)
{
    fs_joining all = {.from = from, .captures = captures, .into = into, .report = report};
    fs_status status;
    *report = (fs_replay_report){.graphs = captures->graph_count};
    FS_TRY_GOTO(status, fs_api_calls_create(&all.calls, from, err), done);
    FS_TRY_GOTO(status, list_works(&all, err), done);
    FS_TRY_GOTO(status, order_works(&all, err), done);
    report->works = all.work_count;
    FS_TRY_GOTO(status, find_owners(&all, err), done);
    FS_TRY_GOTO(status, joining_repeat(&all, err), done);
done:
    fs_free(all.works);
    fs_api_calls_clear(&all.calls);
    return status;
}
