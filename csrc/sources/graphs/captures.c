/* The calls of a store are visited in order of start, with the captures that are open at that time; a launch belongs to
 * the capture of its thread, or to the only one that is open. The nodes of a graph are consecutive in `nodes`, so of
 * captures that overlap in time the later launches go nowhere and are counted as unused. A launch that ran at once was
 * not captured, whatever was open. Everything is found by binary search after it was sorted; lists only grow before
 * that. */
#include "sources/graphs/captures.h"

#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/sort.h"
#include "store/event.h"
#include "store/signature.h"

void fs_captures_clear(fs_captures *captures)
{
    fs_free(captures->stores);
    fs_free(captures->graphs);
    fs_free(captures->nodes);
    fs_free(captures->known);
    fs_free(captures->tied);
    fs_intern_clear(&captures->symbols);
    fs_intern_clear(&captures->chains);
    *captures = (fs_captures){0};
}

fs_status fs_captures_add_store(fs_captures *captures, const fs_store *store, uint32_t *index, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&captures->stores, captures->store_count, &captures->store_capacity, 4, err));
    *index = captures->store_count++;
    captures->stores[*index] = store;
    return FS_OK;
}

/* Known nodes ------------------------------------------------------------------------------------------------------ */

fs_status fs_captures_add_node(fs_captures *captures, const fs_known_node *node, fs_error *err)
{
    return FS_LIST_ADD(&captures->known, &captures->known_count, &captures->known_capacity, 64, err, *node);
}

/* Later stores and nodes come first among those with one id. */
static int compare_known(const void *left, const void *right)
{
    const fs_known_node *a = left, *b = right;
    if (a->id != b->id) return a->id < b->id ? -1 : 1;
    return (a->begin < b->begin) - (a->begin > b->begin);
}

void fs_captures_sort(fs_captures *captures)
{
    if (captures->known_count > 1)
        qsort(captures->known, captures->known_count, sizeof *captures->known, compare_known);
}

const fs_known_node *fs_captures_find(const fs_captures *captures, uint64_t id)
{
    uint32_t low = FS_FIRST_NOT(i, 0, captures->known_count, captures->known[i].id < id);
    return low < captures->known_count && captures->known[low].id == id ? &captures->known[low] : NULL;
}

/* Launches --------------------------------------------------------------------------------------------------------- */

FS_ORDER_BY(compare_tied, fs_tied_launch, call)

fs_status fs_captures_add_tied(fs_captures *captures, uint32_t call, uint32_t graph, fs_error *err)
{
    return FS_LIST_ADD(&captures->tied, &captures->tied_count, &captures->tied_capacity, 64, err,
                       (fs_tied_launch){call, graph});
}

void fs_captures_sort_tied(fs_captures *captures)
{
    if (captures->tied_count > 1) qsort(captures->tied, captures->tied_count, sizeof *captures->tied, compare_tied);
}

uint32_t fs_captures_find_tied(const fs_captures *captures, uint32_t call)
{
    fs_tied_launch wanted = {.call = call};
    if (captures->tied_count == 0) return 0;
    const fs_tied_launch *found = bsearch(&wanted, captures->tied, captures->tied_count, sizeof wanted, compare_tied);
    return found != NULL ? found->graph : 0;
}

FS_ORDER_BY(compare_graphs, fs_captured_graph, id)

const fs_captured_graph *fs_captures_find_graph(const fs_captures *captures, uint32_t id)
{
    fs_captured_graph wanted = {.id = id};
    if (captures->graph_count == 0) return NULL;
    return bsearch(&wanted, captures->graphs, captures->graph_count, sizeof wanted, compare_graphs);
}

/* Chains ----------------------------------------------------------------------------------------------------------- */

/* Return whether the event can own device work: an op or an annotation of the host. */
static bool may_own(const fs_store *store, uint32_t event)
{
    uint8_t kind = FS_EVENT_AT(store, event, kind);
    if (FS_EVENT_AT(store, event, device) >= 0) return false;
    return kind == FS_EVENT_OP || kind == FS_EVENT_RANGE;
}

static fs_status signature_symbol(fs_captures *captures, const fs_store *store, uint32_t id, uint32_t *symbol,
                                  fs_error *err)
{
    *symbol = FS_NONE;
    if (id == FS_NONE) return FS_OK;
    fs_span bytes = fs_store_signature_bytes(store, id);
    return fs_intern_bytes(&captures->chains, bytes.bytes, bytes.size, symbol, err);
}

/* Return the id of a chain: of an event of a store and of all that encloses it, up to what began before `begin`. */
static fs_status captures_chain(fs_captures *captures, const fs_store *store, uint32_t event, int64_t begin,
                                uint32_t *chain, fs_error *err)
{
    enum { DEEPEST = 256 };
    uint32_t events[DEEPEST];
    int depth = 0;
    for (uint32_t at = event; at != FS_NONE && depth < DEEPEST; at = FS_EVENT_AT(store, at, parent)) {
        if (FS_EVENT_AT(store, at, start) < begin) break;
        if (may_own(store, at)) events[depth++] = at;
    }
    *chain = FS_NONE;
    while (depth-- > 0) {
        uint32_t link[4] = {*chain, FS_EVENT_AT(store, events[depth], kind), FS_NONE, FS_NONE};
        uint32_t name = FS_EVENT_AT(store, events[depth], name);
        if (name != FS_NONE) FS_TRY(fs_intern_text(&captures->symbols, fs_store_name_text(store, name), &link[2], err));
        FS_TRY(signature_symbol(captures, store, FS_EVENT_AT(store, events[depth], signature), &link[3], err));
        FS_TRY(fs_intern_bytes(&captures->chains, link, sizeof link, chain, err));
    }
    return FS_OK;
}

/* Captures in a trace ---------------------------------------------------------------------------------------------- */

typedef enum { NOT_A_CALL, BEGINS, ENDS, LAUNCHES, COPIES, FILLS } call_role;

static call_role role_of(const char *name)
{
    if (strstr(name, "StreamBeginCapture") != NULL) return BEGINS;
    if (strstr(name, "StreamEndCapture") != NULL) return ENDS;
    if (strstr(name, "GraphLaunch") != NULL) return NOT_A_CALL;
    if (strstr(name, "LaunchKernel") != NULL || strstr(name, "LaunchCooperativeKernel") != NULL) return LAUNCHES;
    if (strstr(name, "LaunchHostFunc") != NULL) return NOT_A_CALL;
    if (strstr(name, "Memcpy") != NULL) return COPIES;
    if (strstr(name, "Memset") != NULL) return FILLS;
    return NOT_A_CALL;
}

typedef struct {
    int64_t start;
    uint32_t event, lane;
    call_role role;
} graph_call;

/* A graph whose capture has begun. */
typedef struct {
    uint32_t lane, graph;
} open_capture;

typedef struct {
    fs_captures *captures;
    const fs_store *store;
    uint32_t store_index;
    graph_call *calls;
    uint32_t call_count;
    uint32_t *ran_sorted; /* correlations of device work, ascending */
    uint32_t ran_count;
    open_capture *open;
    uint32_t open_count, open_capacity;
} reading;

FS_ORDER_BY(compare_calls, graph_call, start, event)

static int compare_ids(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static bool ran_at_once(const reading *all, uint32_t event)
{
    uint32_t correlation = FS_EVENT_AT(all->store, event, correlation);
    if (correlation == FS_NONE || all->ran_count == 0) return false;
    return bsearch(&correlation, all->ran_sorted, all->ran_count, sizeof correlation, compare_ids) != NULL;
}

bool fs_captures_is_inner_call(const fs_store *store, uint32_t event)
{
    uint32_t parent = FS_EVENT_AT(store, event, parent);
    return parent != FS_NONE && FS_EVENT_AT(store, parent, kind) == FS_EVENT_RUNTIME;
}

static fs_status list_calls(reading *all, fs_error *err)
{
    const fs_store *store = all->store;
    uint32_t names = fs_store_name_count(store), calls = 0, works = 0;
    uint8_t *roles;
    fs_status status;
    FS_TRY(FS_NEW(&roles, (size_t)names + 1, err));
    for (uint32_t i = 0; i < names; i++) roles[i] = (uint8_t)role_of(fs_store_name_text(store, i));
    FS_EACH_EVENT(store, i, chunk, at) {
        if (fs_event_kind_on_device[chunk->kind[at]] && chunk->correlation[at] != FS_NONE)
            FS_TRY_GOTO(status, FS_LIST_ADD(&all->ran_sorted, &all->ran_count, &works, 64, err, chunk->correlation[at]),
                        done);
        if (chunk->kind[at] != FS_EVENT_RUNTIME || chunk->start[at] == FS_MISSING || chunk->name[at] == FS_NONE)
            continue;
        call_role role = (call_role)roles[chunk->name[at]];
        if (role == NOT_A_CALL || fs_captures_is_inner_call(store, i)) continue;
        const graph_call call = {chunk->start[at], i, chunk->lane[at], role};
        FS_TRY_GOTO(status, FS_LIST_ADD(&all->calls, &all->call_count, &calls, 64, err, call), done);
    }
    status = FS_OK;
done:
    fs_free(roles);
    FS_TRY(status);
    FS_TRY(fs_sort(all->ran_sorted, all->ran_count, sizeof *all->ran_sorted, compare_ids, err));
    return fs_sort(all->calls, all->call_count, sizeof *all->calls, compare_calls, err);
}

uint32_t fs_captures_label_of(const fs_store *store, uint32_t event)
{
    for (uint32_t at = event; at != FS_NONE; at = FS_EVENT_AT(store, at, parent)) {
        uint32_t name = FS_EVENT_AT(store, at, name);
        if (FS_EVENT_AT(store, at, kind) != FS_EVENT_RANGE || name == FS_NONE) continue;
        const char *text = fs_store_name_text(store, name);
        if (text[strcspn(text, "0123456789")] != 0) return at;
    }
    return FS_NONE;
}

fs_status fs_captures_begin(fs_captures *captures, uint32_t store, int64_t begin, uint32_t label, fs_error *err)
{
    return FS_LIST_ADD(
        &captures->graphs, &captures->graph_count, &captures->graph_capacity, 64, err,
        (fs_captured_graph){
            .store = store, .first = captures->node_count, .label = label, .lane = FS_NONE, .begin = begin});
}

static fs_status append_node(fs_captures *captures, fs_captured_graph *graph, const fs_capture_node *node,
                             fs_error *err)
{
    fs_capture_node made = *node;
    FS_TRY(captures_chain(captures, captures->stores[graph->store], node->owner, graph->begin, &made.chain, err));
    FS_TRY(FS_LIST_ADD(&captures->nodes, &captures->node_count, &captures->node_capacity, 64, err, made));
    graph->count++;
    return FS_OK;
}

fs_status fs_captures_append(fs_captures *captures, uint32_t symbol, uint32_t call, uint32_t owner, fs_error *err)
{
    fs_capture_node node = {.symbol = symbol, .call = call, .owner = owner};
    return append_node(captures, &captures->graphs[captures->graph_count - 1], &node, err);
}

static fs_status begin_graph(reading *all, const graph_call *call, fs_error *err)
{
    FS_TRY(FS_LIST_ADD(&all->open, &all->open_count, &all->open_capacity, 64, err,
                       (open_capture){call->lane, all->captures->graph_count}));
    FS_TRY(fs_captures_begin(all->captures, all->store_index, call->start,
                             fs_captures_label_of(all->store, call->event), err));
    all->captures->graphs[all->captures->graph_count - 1].lane = call->lane;
    return FS_OK;
}

/* Return the graph that a call of the thread is part of: the thread's own, or the only one; FS_NONE: unknown. */
static uint32_t graph_of(const reading *all, uint32_t lane)
{
    for (uint32_t i = 0; i < all->open_count; i++)
        if (all->open[i].lane == lane) return all->open[i].graph;
    return all->open_count == 1 ? all->open[0].graph : FS_NONE;
}

static uint32_t owner_of(const fs_store *store, uint32_t call, int64_t begin)
{
    uint32_t range = FS_NONE;
    for (uint32_t at = FS_EVENT_AT(store, call, parent); at != FS_NONE; at = FS_EVENT_AT(store, at, parent)) {
        if (FS_EVENT_AT(store, at, start) < begin) break;
        if (!may_own(store, at)) continue;
        if (FS_EVENT_AT(store, at, kind) == FS_EVENT_OP) return at;
        if (range == FS_NONE) range = at;
    }
    return range;
}

static fs_status symbol_of(reading *all, const graph_call *call, uint32_t *symbol, fs_error *err)
{
    uint32_t signature = FS_EVENT_AT(all->store, call->event, signature);
    *symbol = call->role == COPIES ? FS_SYMBOL_COPY : call->role == FILLS ? FS_SYMBOL_FILL : FS_SYMBOL_KERNEL;
    if (call->role != LAUNCHES || signature == FS_NONE) return FS_OK;
    fs_launch launch;
    const char *name = fs_kernel_decode(fs_store_signature_bytes(all->store, signature).bytes, &launch);
    return name != NULL ? fs_intern_text(&all->captures->symbols, name, symbol, err) : FS_OK;
}

static fs_status add_node(reading *all, const graph_call *call, fs_error *err)
{
    fs_captures *captures = all->captures;
    uint32_t index = graph_of(all, call->lane);
    if (all->open_count == 0 || ran_at_once(all, call->event)) return FS_OK;
    if (index == FS_NONE || captures->graphs[index].first + captures->graphs[index].count != captures->node_count) {
        /* The nodes of a graph are consecutive: of captures that overlap in time, none is used. */
        if (index != FS_NONE && captures->graphs[index].count == 0)
            captures->graphs[index].first = captures->node_count;
        else {
            captures->unused++;
            return FS_OK;
        }
    }
    fs_captured_graph *graph = &captures->graphs[index];
    fs_capture_node node = {.owner = owner_of(all->store, call->event, graph->begin), .call = call->event};
    FS_TRY(symbol_of(all, call, &node.symbol, err));
    return append_node(captures, graph, &node, err);
}

static fs_status read_calls(reading *all, fs_error *err)
{
    for (uint32_t i = 0; i < all->call_count; i++) {
        const graph_call *call = &all->calls[i];
        FS_POLL(i, err);
        if (call->role == BEGINS) FS_TRY(begin_graph(all, call, err));
        else if (call->role == ENDS) {
            for (uint32_t open = all->open_count; open-- > 0;) {
                if (all->open[open].lane != call->lane) continue;
                all->open[open] = all->open[--all->open_count];
                break;
            }
        } else FS_TRY(add_node(all, call, err));
    }
    return FS_OK;
}

fs_status fs_captures_add(fs_captures *captures, const fs_store *store, fs_error *err)
{
    reading all = {.captures = captures, .store = store};
    FS_TRY(fs_captures_add_store(captures, store, &all.store_index, err));
    fs_status status = list_calls(&all, err);
    if (status == FS_OK) status = read_calls(&all, err);
    fs_free(all.calls);
    fs_free(all.ran_sorted);
    fs_free(all.open);
    return status;
}

/* The ways to find the graph of a launch:
 *
 *   works of a launch    k1 k2 k1 c        by node, or by start if no ids are recorded
 *   nodes of a graph     k1 k2 k1 c        in the order of the capture
 *
 *   in order     k1 k2 k1 c   = k1 k2 k1 c         all works are all nodes, one by one
 *   streams      k1 k1 c | k2 = k1 k2 k1 c         each name in its own order, if one stream ran all of that name
 *   in part         k2    c   ⊂ k1 k2 k1 c         from the front and from the back; only where both agree
 *
 * The ways are tried in this order, each for all graphs, and the first that finds anything decides. Graphs that give
 * the works the same ops are as good as one; graphs that differ make the launch ambiguous, and then a number in the
 * annotations around capture and launch, such as a batch size, may decide. A match without proof by names is marked as
 * an estimate, and no match is better than a wrong one. Equal launches have equal matches, so each is matched once and
 * kept under its id. */

/* A launch that was matched before. */
typedef struct fs_match_kept {
    fs_match match;
    uint32_t *nodes;
} fs_match_kept;

typedef struct {
    const fs_captures *captures;
    const uint32_t *symbols, *lanes;
    uint32_t count;
    bool identified;
    uint32_t *nodes; /* of the best graph */
    uint32_t *trial;
    bool nameless; /* the trial rests on a kernel without a name */
} matching;

void fs_matcher_clear(fs_matcher *matcher)
{
    for (uint32_t i = 0; i < matcher->kept_count; i++) fs_free(matcher->kept[i].nodes);
    fs_free(matcher->kept);
    fs_intern_clear(&matcher->launches);
}

static bool is_kernel(uint32_t symbol)
{
    return symbol != FS_SYMBOL_COPY && symbol != FS_SYMBOL_FILL;
}

/* Return whether work can be that of a node; *nameless is set if only its kind shows it. */
static bool fits(uint32_t node, uint32_t work, bool *nameless)
{
    if (node == work) return true;
    if (node != FS_SYMBOL_KERNEL || !is_kernel(work)) return false;
    *nameless = true;
    return true;
}

/* A kernel of an op: the same op with the same arguments launches the same kernels. */
typedef struct {
    uint32_t chain, ordinal, symbol;
} op_kernel;

FS_ORDER_BY(compare_kernels, op_kernel, chain, ordinal, symbol)

/* Where the capture has no names of kernels: return whether equal ops got equal kernels, but for one in twenty, as a
 * library may choose by more than the arguments. */
static fs_status is_consistent(const matching *all, const fs_captured_graph *graph, bool *consistent, fs_error *err)
{
    enum { MOST_CONFLICTS = 20 };
    const fs_capture_node *nodes = all->captures->nodes + graph->first;
    uint32_t conflicts = 0, ordinal = 0;
    op_kernel *kernels = fs_malloc((size_t)all->count * sizeof *kernels);
    if (kernels == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < all->count; i++) {
        ordinal = i > 0 && nodes[i].owner == nodes[i - 1].owner ? ordinal + 1 : 0;
        kernels[i] = (op_kernel){nodes[i].chain, ordinal, all->symbols[i]};
    }
    qsort(kernels, all->count, sizeof *kernels, compare_kernels);
    for (uint32_t i = 1; i < all->count; i++)
        conflicts += kernels[i].chain == kernels[i - 1].chain && kernels[i].ordinal == kernels[i - 1].ordinal &&
                     kernels[i].symbol != kernels[i - 1].symbol;
    fs_free(kernels);
    *consistent = conflicts * MOST_CONFLICTS <= all->count;
    return FS_OK;
}

/* Return whether all works are on one stream: their starts are then in the order of the nodes. */
static bool is_one_stream(const matching *all)
{
    for (uint32_t i = 1; all->lanes != NULL && i < all->count; i++)
        if (all->lanes[i] != all->lanes[0]) return false;
    return true;
}

/* All works in the order of all nodes. */
static fs_status match_in_order(matching *all, const fs_captured_graph *graph, bool *matches, fs_error *err)
{
    *matches = false;
    if (graph->count != all->count) return FS_OK;
    for (uint32_t i = 0; i < all->count; i++) {
        if (!fits(all->captures->nodes[graph->first + i].symbol, all->symbols[i], &all->nameless)) return FS_OK;
        all->trial[i] = graph->first + i;
    }
    *matches = !all->nameless || is_one_stream(all);
    return all->nameless && *matches ? is_consistent(all, graph, matches, err) : FS_OK;
}

typedef struct {
    uint32_t symbol, place;
} occurrence;

FS_ORDER_BY(compare_occurrences, occurrence, symbol, place)

/* Streams run beside each other: match the works of each name in order, if they are on one stream. */
static fs_status match_streams(matching *all, const fs_captured_graph *graph, bool *matches, fs_error *err)
{
    *matches = false;
    if (graph->count != all->count || all->lanes == NULL) return FS_OK;
    occurrence *nodes = fs_malloc((size_t)all->count * 2 * sizeof *nodes), *works = nodes + all->count;
    if (nodes == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < all->count; i++) {
        nodes[i] = (occurrence){all->captures->nodes[graph->first + i].symbol, i};
        works[i] = (occurrence){all->symbols[i], i};
    }
    qsort(nodes, all->count, sizeof *nodes, compare_occurrences);
    qsort(works, all->count, sizeof *works, compare_occurrences);
    *matches = true;
    for (uint32_t first = 0, next; *matches && first < all->count; first = next) {
        bool one = true;
        for (next = first; next < all->count && works[next].symbol == works[first].symbol; next++) {
            if (nodes[next].symbol != works[next].symbol) *matches = false;
            if (all->lanes[works[next].place] != all->lanes[works[first].place]) one = false;
        }
        for (uint32_t i = first; i < next; i++)
            all->trial[works[i].place] = one ? graph->first + nodes[i].place : FS_NONE;
    }
    fs_free(nodes);
    return FS_OK;
}

/* If work of the launch was not recorded: fit the works into the nodes from the front, as early as possible, and from
 * the back, as late as possible. Where both agree there is no other way. Return the number of works that match. */
static uint32_t match_part(matching *all, const fs_captured_graph *graph)
{
    const fs_capture_node *nodes = all->captures->nodes + graph->first;
    uint32_t next = 0, end = graph->count, matched = 0;
    bool nameless = false;
    for (uint32_t i = 0; i < all->count; i++) {
        while (next < graph->count && !fits(nodes[next].symbol, all->symbols[i], &nameless)) next++;
        if (next == graph->count || nameless) return 0;
        all->trial[i] = next++;
    }
    for (uint32_t i = all->count; i-- > 0;) {
        while (end > 0 && !fits(nodes[end - 1].symbol, all->symbols[i], &nameless)) end--;
        if (end == 0) return 0;
        end--;
        bool agreed = all->trial[i] == end;
        all->trial[i] = agreed ? graph->first + end : FS_NONE;
        matched += agreed;
    }
    return matched;
}

/* Return whether the trial gives the works the same ops as the best graph so far. */
static bool is_like_best(const matching *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        if ((all->trial[i] == FS_NONE) != (all->nodes[i] == FS_NONE)) return false;
        if (all->trial[i] == FS_NONE) continue;
        if (all->captures->nodes[all->trial[i]].chain != all->captures->nodes[all->nodes[i]].chain) return false;
    }
    return true;
}

static bool label_has_number(const char *label, long number)
{
    while (label != NULL && *label != 0) {
        label += strcspn(label, "0123456789");
        if (*label == 0) break;
        char *end;
        if (strtol(label, &end, 10) == number) return true;
        label = end;
    }
    return false;
}

/* Return whether the first number in the annotation around the capture is in that around the launch. */
static bool is_labelled(const fs_captures *captures, const fs_captured_graph *graph, const char *label)
{
    if (graph->label == FS_NONE || label == NULL) return false;
    const fs_store *store = captures->stores[graph->store];
    const char *name = fs_store_name_text(store, FS_EVENT_AT(store, graph->label, name));
    return label_has_number(label, strtol(name + strcspn(name, "0123456789"), NULL, 10));
}

typedef fs_status (*matching_way)(matching *all, const fs_captured_graph *graph, bool *matches, fs_error *err);

/* Some works only; at least half of the launch, so that a few common kernels do not decide. */
static fs_status in_part(matching *all, const fs_captured_graph *graph, bool *matches, fs_error *err)
{
    (void)err;
    *matches = all->count < graph->count && 2 * match_part(all, graph) >= all->count && 2 * all->count >= graph->count;
    return FS_OK;
}

/* Try all graphs, or only those that the label names. */
static fs_status try_graphs(matching *all, matching_way way, const char *label, bool labelled, fs_match *match,
                            fs_error *err)
{
    const fs_captures *captures = all->captures;
    *match = (fs_match){false, false, labelled, 0};
    for (uint32_t i = 0; i < captures->graph_count; i++) {
        const fs_captured_graph *graph = &captures->graphs[i];
        bool matches;
        if (graph->count == 0 || (labelled && !is_labelled(captures, graph, label))) continue;
        if (graph->id != 0 && all->identified) continue;
        all->nameless = false;
        FS_TRY(way(all, graph, &matches, err));
        if (!matches) continue;
        if (match->found && !is_like_best(all)) {
            match->ambiguous = true;
            match->found = false;
            return FS_OK;
        }
        if (match->found) continue;
        match->found = true;
        match->graph = i;
        match->estimated = labelled || all->nameless;
        memcpy(all->nodes, all->trial, all->count * sizeof *all->nodes);
    }
    return FS_OK;
}

static fs_status find(matching *all, const char *label, fs_match *match, fs_error *err)
{
    static const matching_way ways[] = {match_in_order, match_streams, in_part};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        FS_TRY(try_graphs(all, ways[i], label, false, match, err));
        if (match->ambiguous && label != NULL) {
            FS_TRY(try_graphs(all, ways[i], label, true, match, err));
            if (!match->found) match->ambiguous = true;
        }
        if (match->found || match->ambiguous) return FS_OK;
    }
    return FS_OK;
}

/* The id of a launch: equal launches have equal matches. */
static fs_status launch_id(fs_matcher *matcher, const matching *all, const char *label, uint32_t *id, fs_error *err)
{
    size_t length = label != NULL ? strlen(label) + 1 : 1, size = (size_t)all->count * sizeof *all->symbols;
    char *bytes = fs_malloc(2 * size + length + 1);
    if (bytes == NULL) return fs_no_memory(err);
    memcpy(bytes, all->symbols, size);
    if (all->lanes != NULL) memcpy(bytes + size, all->lanes, size);
    else memset(bytes + size, 0xff, size);
    memcpy(bytes + 2 * size, label != NULL ? label : "", length);
    bytes[2 * size + length] = (char)all->identified;
    fs_status status = fs_intern_bytes(&matcher->launches, bytes, 2 * size + length + 1, id, err);
    fs_free(bytes);
    return status;
}

static fs_status keep(fs_matcher *matcher, const matching *all, const fs_match *match, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&matcher->kept, matcher->kept_count, &matcher->kept_capacity, 8, err));
    uint32_t *nodes = fs_malloc(all->count * sizeof *nodes);
    if (nodes == NULL) return fs_no_memory(err);
    memcpy(nodes, all->nodes, all->count * sizeof *nodes);
    matcher->kept[matcher->kept_count++] = (fs_match_kept){*match, nodes};
    return FS_OK;
}

fs_status fs_matcher_find(fs_matcher *matcher, const fs_launched *works, uint32_t *nodes, fs_match *match,
                          fs_error *err)
{
    matching all = {.captures = matcher->captures,
                    .symbols = works->symbols,
                    .lanes = works->lanes,
                    .count = works->count,
                    .identified = works->identified,
                    .nodes = nodes};
    uint32_t id, count = works->count;
    memset(nodes, 0xff, count * sizeof *nodes);
    *match = (fs_match){0};
    if (matcher->captures->graph_count == 0) return FS_OK;
    FS_TRY(launch_id(matcher, &all, works->label, &id, err));
    if (id < matcher->kept_count) {
        *match = matcher->kept[id].match;
        memcpy(nodes, matcher->kept[id].nodes, count * sizeof *nodes);
        return FS_OK;
    }
    FS_TRY(FS_NEW(&all.trial, count, err));
    fs_status status = find(&all, works->label, match, err);
    fs_free(all.trial);
    return status == FS_OK ? keep(matcher, &all, match, err) : status;
}

/* Within a known graph --------------------------------------------------------------------------------------------- */

static uint32_t kind_of(uint32_t symbol)
{
    return is_kernel(symbol) ? FS_SYMBOL_KERNEL : symbol;
}

/* Return the number of works of a kind; *one_lane receives whether they are on one stream, or in the order of nodes. */
static uint32_t count_works(const fs_launched *works, uint32_t kind, bool *one_lane)
{
    uint32_t count = 0, first = 0;
    *one_lane = true;
    for (uint32_t i = 0; i < works->count; i++) {
        if (kind_of(works->symbols[i]) != kind) continue;
        if (count++ == 0) first = i;
        else if (works->lanes != NULL && works->lanes[i] != works->lanes[first]) *one_lane = false;
    }
    return count;
}

/* Return the number of nodes of a kind; *one_owner receives whether one op or range launched all of them. */
static uint32_t count_nodes(const fs_captures *captures, const fs_captured_graph *graph, uint32_t kind, bool *one_owner)
{
    const fs_capture_node *nodes = graph->count > 0 ? captures->nodes + graph->first : NULL;
    uint32_t count = 0, first = 0;
    *one_owner = true;
    for (uint32_t i = 0; i < graph->count; i++) {
        if (kind_of(nodes[i].symbol) != kind) continue;
        if (count++ == 0) first = i;
        else if (nodes[i].owner != nodes[first].owner || nodes[i].unknown != nodes[first].unknown) *one_owner = false;
    }
    return count;
}

/* Return whether the kinds of works on one stream are in the order of the nodes; of several streams, none is known. */
static bool is_in_order(const fs_captures *captures, const fs_captured_graph *graph, const fs_launched *works)
{
    const fs_capture_node *nodes = captures->nodes + graph->first;
    bool in_order = true;
    for (uint32_t i = 0; i < works->count; i++) {
        if (works->lanes != NULL && works->lanes[i] != works->lanes[0]) return true;
        in_order = in_order && kind_of(works->symbols[i]) == kind_of(nodes[i].symbol);
    }
    return in_order;
}

uint32_t fs_match_within(const fs_captures *captures, const fs_captured_graph *graph, const fs_launched *works,
                         uint32_t *nodes, bool *estimated)
{
    static const uint32_t kinds[] = {FS_SYMBOL_KERNEL, FS_SYMBOL_COPY, FS_SYMBOL_FILL};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    bool proven[KINDS];
    uint32_t matched = 0;
    bool ordered = false;
    memset(nodes, 0xff, works->count * sizeof *nodes);
    for (size_t k = 0; k < KINDS; k++) {
        bool one_lane, one_owner;
        if (count_works(works, kinds[k], &one_lane) != count_nodes(captures, graph, kinds[k], &one_owner)) return 0;
        proven[k] = one_lane || one_owner;
        ordered = ordered || (one_lane && !one_owner);
    }
    *estimated = ordered && (graph->branches || !is_in_order(captures, graph, works));
    for (size_t k = 0; k < KINDS; k++) {
        uint32_t next = graph->first;
        for (uint32_t i = 0; proven[k] && i < works->count; i++) {
            if (kind_of(works->symbols[i]) != kinds[k]) continue;
            while (kind_of(captures->nodes[next].symbol) != kinds[k]) next++;
            if (!captures->nodes[next].unknown) nodes[i] = next;
            matched += !captures->nodes[next++].unknown;
        }
    }
    return matched;
}
