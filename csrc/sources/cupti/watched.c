/* Two hash tables, of nodes and of graphs, with open addressing and no deletion of single entries: destroyed ones are
 * marked, since their replays may still be joined, and the oldest half goes when there are many. A node points to its
 * moment, a moment to its event in `store`; compaction renumbers both, or changes nothing if memory is short. Only a
 * moment that was resolved, of a graph that was not changed, is reported. */
#include "sources/cupti/watched.h"

#include <string.h>

#include "base/hash.h"
#include "store/event.h"

void fs_watched_clear(fs_watched *watched)
{
    fs_free(watched->moments);
    fs_free(watched->slots);
    fs_free(watched->graphs);
    fs_store_destroy(watched->store);
    *watched = (fs_watched){0};
}

static uint32_t place_of(uint64_t id, uint32_t count)
{
    return (uint32_t)fs_hash_numbers(fs_hash_keys(), id, 0) & (count - 1);
}

static fs_watched_node *slot_of(fs_watched_node *slots, uint32_t count, uint64_t id)
{
    uint32_t at = place_of(id, count);
    while (slots[at].id != 0 && slots[at].id != id) at = (at + 1) & (count - 1);
    return &slots[at];
}

static fs_watched_graph *graph_of(fs_watched_graph *graphs, uint32_t count, uint32_t id)
{
    uint32_t at = place_of(id, count);
    while (graphs[at].id != 0 && graphs[at].id != id) at = (at + 1) & (count - 1);
    return &graphs[at];
}

/* Make room for one more in each table, both at most half full. */
static bool grow_slots(fs_watched *watched)
{
    enum { FEWEST = 1024 };
    if (2 * watched->used >= watched->slot_count) {
        uint32_t count = watched->slot_count ? watched->slot_count * 2 : FEWEST;
        fs_watched_node *slots = fs_calloc(count, sizeof *slots);
        if (slots == NULL) return false;
        for (uint32_t i = 0; i < watched->slot_count; i++)
            if (watched->slots[i].id != 0) *slot_of(slots, count, watched->slots[i].id) = watched->slots[i];
        fs_free(watched->slots);
        watched->slots = slots;
        watched->slot_count = count;
    }
    if (2 * watched->graphs_used >= watched->graph_slots) {
        uint32_t count = watched->graph_slots ? watched->graph_slots * 2 : FEWEST;
        fs_watched_graph *graphs = fs_calloc(count, sizeof *graphs);
        if (graphs == NULL) return false;
        for (uint32_t i = 0; i < watched->graph_slots; i++)
            if (watched->graphs[i].id != 0) *graph_of(graphs, count, watched->graphs[i].id) = watched->graphs[i];
        fs_free(watched->graphs);
        watched->graphs = graphs;
        watched->graph_slots = count;
    }
    return true;
}

fs_watched_node *fs_watched_find(const fs_watched *watched, uint64_t id)
{
    if (watched->slot_count == 0 || id == 0) return NULL;
    fs_watched_node *slot = slot_of(watched->slots, watched->slot_count, id);
    return slot->id == id ? slot : NULL;
}

static fs_watched_graph *find_graph(const fs_watched *watched, uint64_t node)
{
    if (watched->graph_slots == 0 || node >> 32 == 0) return NULL;
    fs_watched_graph *slot = graph_of(watched->graphs, watched->graph_slots, (uint32_t)(node >> 32));
    return slot->id != 0 ? slot : NULL;
}

const fs_watched_moment *fs_watched_moment_of(const fs_watched *watched, const fs_watched_node *node)
{
    if (node->moment == FS_NONE || !watched->moments[node->moment].resolved) return NULL;
    const fs_watched_graph *graph = find_graph(watched, node->id);
    return graph != NULL && graph->changed ? NULL : &watched->moments[node->moment];
}

bool fs_watched_exists(const fs_watched *watched, const fs_watched_node *slot)
{
    const fs_watched_graph *graph = find_graph(watched, slot->id);
    return slot->id != 0 && !slot->destroyed && (graph == NULL || graph->died == 0);
}

fs_status fs_watched_copy(const fs_store *from, const bool *kept, fs_store *into, uint32_t *moved, fs_error *err)
{
    for (uint32_t i = 0; i < fs_store_count(from); i++) {
        fs_event event, made = fs_event_missing;
        moved[i] = FS_NONE;
        if (kept != NULL && !kept[i]) continue;
        fs_store_get(from, i, &event);
        made.kind = event.kind;
        made.start = made.duration = 0;
        if (event.parent != FS_NONE) made.parent = moved[event.parent];
        if (event.name != FS_NONE) FS_TRY(fs_store_name(into, fs_store_name_text(from, event.name), &made.name, err));
        if (event.signature != FS_NONE) {
            fs_span bytes = fs_store_signature_bytes(from, event.signature);
            FS_TRY(fs_store_signature(into, bytes.bytes, bytes.size, &made.signature, err));
        }
        FS_TRY(fs_store_append(into, &made, &moved[i], err));
    }
    return FS_OK;
}

/* Drop moments that no node has, and events that no moment has. */
static fs_status compact(fs_watched *watched, uint32_t *ids, bool *kept, uint32_t *moved, fs_store *into)
{
    memset(ids, 0xff, watched->moment_count * sizeof *ids);
    for (uint32_t i = 0; i < watched->slot_count; i++)
        if (watched->slots[i].id != 0 && watched->slots[i].moment != FS_NONE) ids[watched->slots[i].moment] = 0;
    for (uint32_t i = 0; i < watched->moment_count; i++) {
        if (ids[i] == FS_NONE) continue;
        for (uint32_t at = watched->moments[i].owner; at != FS_NONE && !kept[at];
             at = FS_EVENT_AT(watched->store, at, parent))
            kept[at] = true;
    }
    FS_TRY(fs_watched_copy(watched->store, kept, into, moved, NULL));
    uint32_t count = 0;
    for (uint32_t i = 0; i < watched->moment_count; i++) {
        if (ids[i] == FS_NONE) continue;
        fs_watched_moment found = watched->moments[i];
        if (found.owner != FS_NONE) found.owner = moved[found.owner];
        ids[i] = count;
        watched->moments[count++] = found;
    }
    for (uint32_t i = 0; i < watched->slot_count; i++)
        if (watched->slots[i].moment != FS_NONE && watched->slots[i].id != 0)
            watched->slots[i].moment = ids[watched->slots[i].moment];
    watched->moment_count = count;
    return FS_OK;
}

static void compact_events(fs_watched *watched)
{
    size_t events = fs_store_count(watched->store);
    uint32_t *ids = fs_malloc((watched->moment_count + (size_t)1) * sizeof *ids);
    uint32_t *moved = fs_malloc((events + 1) * sizeof *moved);
    bool *kept = fs_calloc(events + 1, sizeof *kept);
    fs_store *into = NULL;
    bool ready = ids != NULL && moved != NULL && kept != NULL && fs_store_create(&into, NULL) == FS_OK;
    if (ready && compact(watched, ids, kept, moved, into) == FS_OK) {
        fs_store_destroy(watched->store);
        watched->store = into;
        into = NULL;
    }
    fs_store_destroy(into);
    fs_free(ids);
    fs_free(moved);
    fs_free(kept);
}

bool fs_watched_is_large(const fs_watched *watched)
{
    enum { MOST_DESTROYED = 1 << 18 };
    return watched->destroyed > MOST_DESTROYED;
}

void fs_watched_forget_oldest(fs_watched *watched)
{
    uint32_t *nodes = fs_calloc(watched->died + (size_t)1, sizeof *nodes), from = watched->died + 1, left = 0;
    fs_watched_node *slots = fs_calloc(watched->slot_count, sizeof *slots);
    fs_watched_graph *graphs = fs_calloc(watched->graph_slots, sizeof *graphs);
    if (nodes == NULL || slots == NULL || graphs == NULL) {
        fs_free(nodes);
        fs_free(slots);
        fs_free(graphs);
        return;
    }
    for (uint32_t i = 0; i < watched->graph_slots; i++) nodes[watched->graphs[i].died] += watched->graphs[i].nodes;
    while (from > 1 && left + (uint64_t)nodes[from - 1] <= watched->destroyed / 2) left += nodes[--from];
    watched->used = watched->graphs_used = 0;
    for (uint32_t i = 0; i < watched->slot_count; i++) {
        const fs_watched_graph *graph = find_graph(watched, watched->slots[i].id);
        if (watched->slots[i].id == 0 || (graph != NULL && graph->died > 0 && graph->died < from)) continue;
        *slot_of(slots, watched->slot_count, watched->slots[i].id) = watched->slots[i];
        watched->used++;
    }
    for (uint32_t i = 0; i < watched->graph_slots; i++) {
        fs_watched_graph *graph = &watched->graphs[i];
        if (graph->id == 0 || (graph->died > 0 && graph->died < from)) continue;
        if (graph->died > 0) graph->died -= from - 1;
        *graph_of(graphs, watched->graph_slots, graph->id) = *graph;
        watched->graphs_used++;
    }
    watched->died -= from - 1;
    watched->destroyed = left;
    fs_free(nodes);
    fs_free(watched->slots);
    fs_free(watched->graphs);
    watched->slots = slots;
    watched->graphs = graphs;
    compact_events(watched);
}

fs_watched_node *fs_watched_set(fs_watched *watched, uint64_t id, uint32_t at, int32_t type)
{
    if (id == 0) return NULL;
    if (!grow_slots(watched)) {
        watched->lost++;
        return NULL;
    }
    fs_watched_node *slot = slot_of(watched->slots, watched->slot_count, id);
    if (slot->id == 0) {
        fs_watched_graph *graph = graph_of(watched->graphs, watched->graph_slots, (uint32_t)(id >> 32));
        watched->used++;
        if (id >> 32 != 0 && graph->id == 0) {
            *graph = (fs_watched_graph){.id = (uint32_t)(id >> 32)};
            watched->graphs_used++;
        }
        if (graph->id != 0) graph->nodes++;
    }
    *slot = (fs_watched_node){id, at, (uint8_t)type, false, slot->linked, slot->cloned};
    return slot;
}

void fs_watched_drop_moment(fs_watched *watched, const fs_watched_node *node)
{
    if (node == NULL || node->moment == FS_NONE || node->moment + 1 != watched->moment_count) return;
    if (watched->moments[node->moment].graph == node->id >> 32) watched->moment_count--;
}

bool fs_watched_is_chain(const fs_watched *watched, const fs_watched_node *const *nodes, uint32_t count)
{
    for (uint32_t i = 1; watched->links_told && i < count; i++)
        if (!nodes[i]->linked || nodes[i]->id != nodes[i - 1]->id + 1) return false;
    return true;
}

void fs_watched_end_graph(fs_watched *watched, uint32_t id)
{
    fs_watched_graph *graph = find_graph(watched, (uint64_t)id << 32);
    if (graph == NULL || graph->died != 0) return;
    graph->died = ++watched->died;
    watched->destroyed += graph->nodes;
}

void fs_watched_change_graph(fs_watched *watched, uint32_t id)
{
    fs_watched_graph *graph = find_graph(watched, (uint64_t)id << 32);
    if (graph != NULL) graph->changed = true;
}
