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
#include "sources/graphs/match.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "store/event.h"

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

static int compare_kernels(const void *left, const void *right)
{
    const op_kernel *a = left, *b = right;
    if (a->chain != b->chain) return a->chain < b->chain ? -1 : 1;
    if (a->ordinal != b->ordinal) return a->ordinal < b->ordinal ? -1 : 1;
    return (a->symbol > b->symbol) - (a->symbol < b->symbol);
}

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

static int compare_occurrences(const void *left, const void *right)
{
    const occurrence *a = left, *b = right;
    if (a->symbol != b->symbol) return a->symbol < b->symbol ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

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

static bool has_number(const char *label, long number)
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
    return has_number(label, strtol(name + strcspn(name, "0123456789"), NULL, 10));
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
    const fs_capture_node *nodes = captures->nodes + graph->first;
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
