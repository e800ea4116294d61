/* A node that was cloned leads to the node that was captured, over at most MOST_CLONES steps; only captured ones have
 * an owner, the innermost op on their thread when they were made. Node ids are unique within a process only, so works
 * are linked by event (captures.node_of), not by id. The result is a new store: it replaces the old one only when it is
 * complete. */
#include "sources/sqlite/graphs.h"

#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/sort.h"
#include "sources/graphs/replays.h"
#include "sources/sqlite/parts.h"
#include "store/event.h"

/* An instruction is kept as bytes, "module", 0, "name", once in each part; few are used by many kernels. The work of
 * graphs has no captures to look for: who knows its instructions knows its ops. */

enum { MOST_BYTES = 512 };

fs_status fs_part_add_tie(fs_part *part, const fs_cell *cells, fs_error *err)
{
    const fs_cell *module = &cells[FS_CELL_MODULE], *name = &cells[FS_CELL_INSTRUCTION];
    char bytes[2 * MOST_BYTES + 1];
    size_t size = module->type == FS_IS_TEXT ? module->size : 0, more = name->size;
    if (size > MOST_BYTES) size = MOST_BYTES;
    if (more > MOST_BYTES) more = MOST_BYTES;
    if (size > 0) memcpy(bytes, module->text, size);
    bytes[size] = 0;
    memcpy(bytes + size + 1, name->text, more);
    fs_tied_work tie = {fs_part_last_record(part), 0};
    FS_TRY(fs_intern_bytes(&part->instructions, bytes, size + 1 + more, &tie.instruction, err));
    return FS_LIST_ADD(&part->ties, &part->tie_count, &part->tie_capacity, 64, err, tie);
}

FS_ORDER_BY(by_event, fs_row_tie, event)

/* Append the ties of a part, with the ids of the list of all. */
static fs_status append(const fs_part *part, fs_row_tie *ties, fs_intern *instructions, fs_error *err)
{
    uint32_t *ids = fs_malloc((part->instructions.count + (size_t)1) * sizeof *ids);
    fs_status status = ids != NULL ? FS_OK : fs_no_memory(err);
    for (uint32_t i = 0; status == FS_OK && i < part->instructions.count; i++) {
        fs_span span = fs_intern_get(&part->instructions, i);
        status = fs_intern_bytes(instructions, span.bytes, span.size, &ids[i], err);
    }
    for (uint32_t i = 0; status == FS_OK && i < part->tie_count; i++)
        ties[i] = (fs_row_tie){part->ties[i].record->index, ids[part->ties[i].instruction]};
    fs_free(ids);
    return status;
}

fs_status fs_rows_ties(const fs_rows *rows, fs_row_tie **ties, uint32_t *count, fs_intern *instructions, fs_error *err)
{
    size_t total = 0;
    uint32_t added = 0;
    fs_status status = FS_OK;
    for (uint32_t i = 0; i < rows->part_count; i++) total += rows->parts[i]->tie_count;
    FS_TRY(FS_NEW(ties, total + 1, err));
    for (uint32_t i = 0; status == FS_OK && i < rows->part_count; i++) {
        status = append(rows->parts[i], *ties + added, instructions, err);
        added += rows->parts[i]->tie_count;
        if (status == FS_OK) status = fs_interrupt_poll(err);
    }
    *count = added;
    if (status == FS_OK && added > 0) qsort(*ties, added, sizeof **ties, by_event);
    if (status == FS_OK) return FS_OK;
    fs_free(*ties);
    *ties = NULL;
    return status;
}

/* Clones of clones are followed this far; a longer chain is a cycle. */
enum { MOST_CLONES = 64 };

/* Rows ------------------------------------------------------------------------------------------------------------- */

fs_status fs_part_add_node(fs_part *part, const fs_cell *cells, fs_error *err)
{
    return FS_LIST_ADD(&part->nodes, &part->node_count, &part->node_capacity, 64, err,
                       (fs_graph_node){
                           .process = fs_cell_number(cells, FS_CELL_PROCESS, 0),
                           .thread = fs_cell_number(cells, FS_CELL_THREAD, 0),
                           .start = fs_cell_number(cells, FS_CELL_START, 0),
                           .end = fs_cell_number(cells, FS_CELL_END, 0),
                           .node = fs_cell_number(cells, FS_CELL_GRAPH_NODE, 0),
                           .original = fs_cell_number(cells, FS_CELL_ORIGINAL, 0),
                       });
}

/* Joining ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    const fs_rows *rows;
    const fs_store *store;
    const fs_graph_node **nodes;
    uint32_t *captured; /* by node: index in captures.known of the node that was captured; FS_NONE: cloned */
    uint32_t node_count;
    fs_id_map by_id;  /* (process, node) → index in nodes */
    uint32_t *hosts;  /* host events, as the join ordered them: by lane and start */
    uint32_t *firsts; /* by lane: its first host; one more entry at the end */
    uint32_t *works;  /* by event: index in captures.known, or FS_NONE */
    uint32_t event_count, lane_count;
    int64_t first_process; /* whose threads have lanes with their own numbers (kineto/join.c) */
    fs_captures captures;
} joining;

static fs_status list_nodes(joining *all, fs_error *err)
{
    const fs_rows *rows = all->rows;
    for (uint32_t i = 0; i < rows->part_count; i++) all->node_count += rows->parts[i]->node_count;
    FS_TRY(FS_NEW(&all->nodes, all->node_count + (size_t)1, err));
    FS_TRY(FS_NEW(&all->captured, all->node_count + (size_t)1, err));
    uint32_t count = 0;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        for (uint32_t at = 0; at < rows->parts[i]->node_count; at++) {
            const fs_graph_node *node = &rows->parts[i]->nodes[at];
            all->captured[count] = FS_NONE;
            all->nodes[count] = node;
            FS_TRY(fs_id_map_set(&all->by_id, node->process, node->node, count++, err));
        }
    }
    return FS_OK;
}

static bool is_placed_host(const fs_chunk *chunk, uint32_t at)
{
    uint8_t kind = chunk->kind[at];
    bool host = kind == FS_EVENT_OP || kind == FS_EVENT_RUNTIME || fs_event_is_annotation(kind);
    return host && chunk->device[at] < 0 && chunk->lane[at] != FS_NONE;
}

static fs_status list_hosts(joining *all, fs_error *err)
{
    uint32_t lanes = all->lane_count = fs_store_lane_count(all->store), count = 0;
    all->event_count = fs_store_count(all->store);
    FS_TRY(FS_NEW(&all->hosts, all->event_count + (size_t)1, err));
    FS_TRY(FS_NEW_ZEROED(&all->firsts, lanes + (size_t)2, err));
    FS_TRY(FS_NEW(&all->works, all->event_count + (size_t)1, err));
    memset(all->works, 0xff, all->event_count * sizeof *all->works);
    uint32_t lane = 0;
    FS_EACH_EVENT(all->store, index, chunk, at) {
        FS_POLL(index, err);
        if (!is_placed_host(chunk, at) || chunk->lane[at] < lane) continue;
        while (lane < chunk->lane[at]) all->firsts[++lane] = count;
        all->hosts[count++] = index;
    }
    while (lane < lanes) all->firsts[++lane] = count;
    return FS_OK;
}

/* Return the lane of the thread that made a node, or FS_NONE. */
static uint32_t lane_of(const joining *all, const fs_graph_node *node)
{
    uint64_t thread = (uint64_t)node->thread;
    if (node->process != all->first_process) thread ^= ((uint64_t)node->process + 1) << 32;
    for (uint32_t lane = 0; lane < all->lane_count; lane++) {
        fs_lane found = fs_store_lane(all->store, lane);
        if (!found.on_device && found.id == thread) return lane;
    }
    return FS_NONE;
}

/* Find the innermost op around a time, else the innermost range. */
static uint32_t owner_at(const joining *all, uint32_t lane, int64_t time)
{
    uint32_t first = all->firsts[lane], range = FS_NONE;
    uint32_t low = FS_FIRST_NOT(i, first, all->firsts[lane + 1], FS_EVENT_AT(all->store, all->hosts[i], start) <= time);
    uint32_t event = low > first ? all->hosts[low - 1] : FS_NONE, at;
    while (event != FS_NONE) {
        const fs_chunk *chunk = fs_event_chunk(all->store, event, &at);
        bool around = chunk->duration[at] == FS_MISSING || fs_event_end(chunk, at) >= time;
        if (around && chunk->kind[at] == FS_EVENT_OP) return event;
        if (around && range == FS_NONE && fs_event_is_annotation(chunk->kind[at])) range = event;
        event = chunk->parent[at];
    }
    return range;
}

/* Return when the capture of a node began: the last that began before it, on its thread if one did; else the start of
 * the outermost op around it, as what encloses that is not known to be of the graph. */
static int64_t begin_of(const joining *all, uint32_t lane, int64_t time, uint32_t owner)
{
    int64_t here = INT64_MIN, anywhere = INT64_MIN, begin;
    for (uint32_t i = 0; i < all->captures.graph_count; i++) {
        const fs_captured_graph *graph = &all->captures.graphs[i];
        if (graph->begin > time) break; /* they are in order */
        anywhere = graph->begin;
        if (graph->lane == lane) here = graph->begin;
    }
    if (here != INT64_MIN || anywhere != INT64_MIN) return here != INT64_MIN ? here : anywhere;
    begin = owner != FS_NONE ? FS_EVENT_AT(all->store, owner, start) : time;
    for (uint32_t at = owner; at != FS_NONE; at = FS_EVENT_AT(all->store, at, parent))
        if (FS_EVENT_AT(all->store, at, kind) == FS_EVENT_OP) begin = FS_EVENT_AT(all->store, at, start);
    return begin;
}

/* Find the owners of the nodes that were captured, as opposed to cloned. */
static fs_status find_owners(joining *all, uint32_t store, fs_error *err)
{
    const fs_graph_node *last = NULL;
    uint32_t lane = FS_NONE;
    for (uint32_t i = 0; i < all->node_count; i++) {
        const fs_graph_node *node = all->nodes[i];
        FS_POLL(i, err);
        if (node->original != 0 && node->original != node->node) continue;
        if (last == NULL || node->thread != last->thread || node->process != last->process) lane = lane_of(all, node);
        last = node;
        fs_known_node known = {(uint64_t)node->node, store, FS_NONE, 0};
        if (lane != FS_NONE) known.owner = owner_at(all, lane, node->start);
        known.begin = begin_of(all, lane, node->start, known.owner);
        if (known.owner != FS_NONE && FS_EVENT_AT(all->store, known.owner, start) < known.begin)
            known.owner = FS_NONE; /* it encloses the capture */
        all->captured[i] = all->captures.known_count;
        FS_TRY(fs_captures_add_node(&all->captures, &known, err));
    }
    return FS_OK;
}

/* Return the index of the captured node that a node goes back to, or FS_NONE. */
static uint32_t captured_of(const joining *all, int64_t process, int64_t node)
{
    uint32_t index = FS_NONE;
    for (int step = 0; step < MOST_CLONES; step++) {
        index = fs_id_map_get(&all->by_id, process, node);
        if (index == FS_NONE) return FS_NONE;
        const fs_graph_node *found = all->nodes[index];
        if (found->original == 0 || found->original == node) return index;
        node = found->original;
    }
    return FS_NONE;
}

static fs_status link_work(joining *all, fs_error *err)
{
    for (uint32_t i = 0; i < all->rows->part_count; i++) {
        const fs_part *part = all->rows->parts[i];
        for (uint32_t at = 0; at < part->work_count; at++) {
            const fs_graph_work *work = &part->work[at];
            FS_POLL(at, err);
            uint32_t node = captured_of(all, work->process, work->node);
            if (node != FS_NONE) all->works[work->record->index] = all->captured[node];
        }
    }
    all->captures.node_of = all->works;
    return FS_OK;
}

static fs_status join_all(joining *all, fs_store *into, fs_rows_report *report, fs_error *err)
{
    fs_replay_report joined;
    FS_TRY(fs_captures_add(&all->captures, all->store, err));
    FS_TRY(list_nodes(all, err));
    all->first_process = report->process;
    FS_TRY(list_hosts(all, err));
    FS_TRY(find_owners(all, 0, err));
    FS_TRY(link_work(all, err));
    FS_TRY(fs_replays_join(all->store, &all->captures, into, &joined, err));
    report->captured = joined.owned;
    return FS_OK;
}

fs_status fs_rows_join_graphs(const fs_rows *rows, fs_store **store, fs_rows_report *report, fs_error *err)
{
    joining all = {.rows = rows, .store = *store};
    fs_store *into = NULL;
    if (!fs_replays_exist(*store)) return FS_OK;
    FS_TRY(fs_store_create(&into, err));
    fs_status status = join_all(&all, into, report, err);
    void *blocks[] = {all.nodes, all.captured, all.hosts, all.firsts, all.works};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fs_free(blocks[i]);
    fs_id_map_clear(&all.by_id);
    fs_captures_clear(&all.captures);
    fs_store *old = status == FS_OK ? *store : into;
    if (status == FS_OK) *store = into;
    fs_store_destroy(old);
    return status;
}
