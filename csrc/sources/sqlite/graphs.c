#include "sources/sqlite/graphs.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "store/event.h"
#include "store/torch_signature.h"

/* Clones of clones are followed this far; a longer chain is a cycle. */
enum { MOST_CLONES = 64 };

/* Rows ------------------------------------------------------------------------------------------------------------- */

static int64_t number(const fs_cell *cells, fs_row_column column)
{
    return cells[column].type == FS_IS_INTEGER ? cells[column].integer : 0;
}

/* Make room for one more item. */
static fs_status extend(void **items, size_t size, uint32_t count, uint32_t *capacity, fs_error *err)
{
    if (count < *capacity) return FS_OK;
    uint32_t larger = *capacity ? *capacity * 2 : 64;
    void *grown = fs_realloc(*items, larger * size);
    if (grown == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %u nodes of CUDA graphs", larger);
    *items = grown;
    *capacity = larger;
    return FS_OK;
}

fs_status fs_part_add_node(fs_part *part, const fs_cell *cells, fs_error *err)
{
    void *nodes = part->nodes;
    fs_status status = extend(&nodes, sizeof *part->nodes, part->node_count, &part->node_capacity, err);
    part->nodes = nodes;
    if (status != FS_OK) return status;
    part->nodes[part->node_count++] = (fs_graph_node){
        .process = number(cells, FS_CELL_PROCESS),
        .thread = number(cells, FS_CELL_THREAD),
        .start = number(cells, FS_CELL_START),
        .end = number(cells, FS_CELL_END),
        .node = number(cells, FS_CELL_GRAPH_NODE),
        .original = number(cells, FS_CELL_ORIGINAL),
    };
    return FS_OK;
}

fs_status fs_part_add_graph_work(fs_part *part, int64_t process, int64_t node, fs_record *record, fs_error *err)
{
    void *work = part->work;
    fs_status status = extend(&work, sizeof *part->work, part->work_count, &part->work_capacity, err);
    part->work = work;
    if (status != FS_OK) return status;
    part->work[part->work_count++] = (fs_graph_work){process, node, record};
    return FS_OK;
}

/* Joining ---------------------------------------------------------------------------------------------------------- */

/* A captured node: the event that owns it, and how often it ran. */
typedef struct {
    uint32_t owner, runs;
} captured_node;

typedef struct {
    const fs_rows *rows;
    fs_store *store;
    const fs_graph_node **nodes;
    captured_node *captured; /* by node */
    uint32_t node_count;
    fs_id_map by_id;  /* (process, node) → index in nodes */
    uint32_t *hosts;  /* host events, as the join ordered them: by lane and start */
    uint32_t *firsts; /* by lane: its first host; one more entry at the end */
    uint32_t *runs;   /* by event: how often its work ran, plus 1; 0: not captured */
    uint32_t event_count, lane_count;
    int64_t first_process; /* whose threads have lanes with their own numbers (kineto/join.c) */
} joining;

static fs_status list_nodes(joining *all, fs_error *err)
{
    const fs_rows *rows = all->rows;
    for (uint32_t i = 0; i < rows->part_count; i++) all->node_count += rows->parts[i]->node_count;
    all->nodes = fs_malloc((all->node_count + (size_t)1) * sizeof *all->nodes);
    all->captured = fs_malloc((all->node_count + (size_t)1) * sizeof *all->captured);
    if (all->nodes == NULL || all->captured == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %u nodes of CUDA graphs", all->node_count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        for (uint32_t at = 0; at < rows->parts[i]->node_count; at++) {
            const fs_graph_node *node = &rows->parts[i]->nodes[at];
            all->captured[count] = (captured_node){FS_NONE, 0};
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
    uint32_t lanes = all->lane_count = fs_store_lane_count(all->store), count = 0, at;
    all->event_count = fs_store_count(all->store);
    all->hosts = fs_malloc((all->event_count + (size_t)1) * sizeof *all->hosts);
    all->firsts = fs_calloc(lanes + (size_t)2, sizeof *all->firsts);
    all->runs = fs_calloc(all->event_count + (size_t)1, sizeof *all->runs);
    if (all->hosts == NULL || all->firsts == NULL || all->runs == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to find the ops of CUDA graphs");
    uint32_t lane = 0;
    const fs_chunk *chunk = NULL;
    for (uint32_t index = 0; index < all->event_count; index++) {
        FS_POLL(index, err);
        chunk = fs_event_next_chunk(all->store, index, chunk, &at);
        if (!is_placed_host(chunk, at) || chunk->lane[at] < lane) continue;
        while (lane < chunk->lane[at]) all->firsts[++lane] = count;
        all->hosts[count++] = index;
    }
    while (lane < lanes) all->firsts[++lane] = count;
    return FS_OK;
}

/* The process whose threads the join numbers first. */
static int64_t first_process(const fs_rows *rows)
{
    int64_t process = -1;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        const fs_intern *lanes = &rows->parts[i]->piece.lanes;
        for (uint32_t id = 0; id < lanes->count && process < 0; id++) {
            const fs_record_lane *lane = fs_intern_get(lanes, id).bytes;
            if (lane->device < 0) process = lane->process;
        }
    }
    return process;
}

static fs_status lane_of(const joining *all, const fs_graph_node *node, uint32_t *lane, fs_error *err)
{
    uint64_t thread = (uint64_t)node->thread;
    if (node->process != all->first_process) thread ^= ((uint64_t)node->process + 1) << 32;
    return fs_store_thread_lane_of(all->store, thread, lane, err);
}

/* Find the innermost op around a time, else the innermost range. */
static uint32_t owner_at(const joining *all, uint32_t lane, int64_t time)
{
    uint32_t low = all->firsts[lane], high = all->firsts[lane + 1], first = low, range = FS_NONE;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (FS_EVENT_AT(all->store, all->hosts[middle], start) <= time) low = middle + 1;
        else high = middle;
    }
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

/* Find the owners of the nodes that were captured, as opposed to cloned. */
static fs_status find_owners(joining *all, fs_error *err)
{
    for (uint32_t i = 0; i < all->node_count; i++) {
        const fs_graph_node *node = all->nodes[i];
        uint32_t lane;
        FS_POLL(i, err);
        if (node->original != 0 && node->original != node->node) continue;
        FS_TRY(lane_of(all, node, &lane, err));
        if (lane < all->lane_count) all->captured[i].owner = owner_at(all, lane, node->start);
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

static fs_status link_work(joining *all, fs_rows_report *report, fs_error *err)
{
    for (uint32_t i = 0; i < all->rows->part_count; i++) {
        const fs_part *part = all->rows->parts[i];
        for (uint32_t at = 0; at < part->work_count; at++) {
            const fs_graph_work *work = &part->work[at];
            fs_event event;
            FS_POLL(at, err);
            uint32_t node = captured_of(all, work->process, work->node);
            if (node == FS_NONE || all->captured[node].owner == FS_NONE) continue;
            all->captured[node].runs++;
            fs_store_get(all->store, work->record->index, &event);
            event.launcher = all->captured[node].owner;
            fs_store_set(all->store, work->record->index, &event);
            report->captured++;
        }
    }
    return FS_OK;
}

/* The work of an op ran as often as its node that ran most; so did that of the ops around it. */
static void count_runs(const joining *all)
{
    for (uint32_t i = 0; i < all->node_count; i++) {
        const captured_node *node = &all->captured[i];
        for (uint32_t event = node->owner; event != FS_NONE; event = FS_EVENT_AT(all->store, event, parent)) {
            if (all->runs[event] >= node->runs + 1) break;
            all->runs[event] = node->runs + 1;
        }
    }
}

static fs_status set_runs(const joining *all, fs_error *err)
{
    for (uint32_t index = 0; index < all->event_count; index++) {
        fs_event event;
        FS_POLL(index, err);
        if (all->runs[index] == 0 || all->runs[index] == 2) continue; /* not captured, or run once */
        fs_store_get(all->store, index, &event);
        if (event.kind != FS_EVENT_OP || event.signature == FS_NONE) continue;
        fs_span bytes = fs_store_signature_bytes(all->store, event.signature);
        void *copy = fs_malloc(bytes.size);
        if (copy == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for arguments of %u bytes", bytes.size);
        memcpy(copy, bytes.bytes, bytes.size);
        fs_torch_set_runs(copy, all->runs[index] - 1);
        fs_status status = fs_store_signature(all->store, copy, bytes.size, &event.signature, err);
        fs_free(copy);
        if (status != FS_OK) return status;
        fs_store_set(all->store, index, &event);
    }
    return FS_OK;
}

static fs_status join_all(joining *all, fs_rows_report *report, fs_error *err)
{
    FS_TRY(list_nodes(all, err));
    if (all->node_count == 0) return FS_OK;
    all->first_process = first_process(all->rows);
    FS_TRY(list_hosts(all, err));
    FS_TRY(find_owners(all, err));
    FS_TRY(link_work(all, report, err));
    count_runs(all);
    return set_runs(all, err);
}

fs_status fs_rows_join_graphs(const fs_rows *rows, fs_store *store, fs_rows_report *report, fs_error *err)
{
    joining all = {.rows = rows, .store = store};
    fs_status status = join_all(&all, report, err);
    void *blocks[] = {all.nodes, all.captured, all.hosts, all.firsts, all.runs};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fs_free(blocks[i]);
    fs_id_map_clear(&all.by_id);
    return status;
}
