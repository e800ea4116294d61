/* Three steps: the works of graphs, ordered by launch, round of a loop and node (or start); their owners, first by the
 * node's id, then by the id of the graph that the call launched, then by kernel names; the repetition of owners before
 * each launch (repeat.c). The works of a launch are consecutive from order_works on. A work whose node is known keeps
 * that owner, whatever its launch matches. */
#include "sources/graphs/replays.h"

#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/sort.h"
#include "sources/graphs/joining.h"
#include "sources/graphs/match.h"
#include "store/event.h"

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

static int compare_works(const void *left, const void *right)
{
    const fs_replayed *a = left, *b = right;
    if (a->launch != b->launch) return a->launch < b->launch ? -1 : 1;
    if (a->round != b->round) return a->round < b->round ? -1 : 1;
    if (a->order != b->order) return a->order < b->order ? -1 : 1;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return (a->event > b->event) - (a->event < b->event);
}

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
    uint32_t count = fs_store_count(all->from), capacity = 0, at;
    const fs_chunk *chunk = NULL;
    uint64_t node;
    for (uint32_t i = 0; i < count; i++) {
        FS_POLL(i, err);
        chunk = fs_event_next_chunk(all->from, i, chunk, &at);
        if (!is_replayed(all, chunk, at, &node)) continue;
        FS_TRY(FS_LIST_ROOM(&all->works, all->work_count, &capacity, 1024, err));
        all->works[all->work_count++] = (fs_replayed){
            .order = node,
            .start = chunk->start[at],
            .launch = chunk->correlation[at],
            .event = i,
            .owner = FS_NONE,
            .copy = FS_NONE,
            .mark = FS_NONE,
            .call = FS_NONE,
        };
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

/* Return the text of the innermost annotation with a number around the launch; else of one that another thread has open
 * then. NULL: none. */
static const char *label_of(const fs_joining *all, uint32_t call)
{
    for (uint32_t at = call; at != FS_NONE; at = FS_EVENT_AT(all->from, at, parent)) {
        uint32_t name = FS_EVENT_AT(all->from, at, name);
        if (FS_EVENT_AT(all->from, at, kind) != FS_EVENT_RANGE || name == FS_NONE) continue;
        const char *text = fs_store_name_text(all->from, name);
        if (text[strcspn(text, "0123456789")] != 0) return text;
    }
    return NULL;
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
    fs_status status = symbols_of(all, works, count, symbols, lanes, err);
    bool by_node = (works[0].order >> 63) == 0;
    fs_launched launched = {.symbols = symbols,
                            .lanes = by_node ? NULL : lanes,
                            .count = count,
                            .identified = are_identified(all, works, count),
                            .label = call != FS_NONE ? label_of(all, call) : NULL};
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
    FS_TRY_GOTO(status, fs_joining_repeat(&all, err), done);
done:
    fs_free(all.works);
    fs_api_calls_clear(&all.calls);
    return status;
}
