/* Two hash tables, of nodes and of graphs, with open addressing and no deletion of single entries: destroyed ones are
 * marked, since their replays may still be joined, and the oldest half goes when there are many. A node points to its
 * moment, a moment to its event in `store`; compaction renumbers both, or changes nothing if memory is short. Only a
 * moment that was resolved, of a graph that was not changed, is reported. */
#include "sources/cupti/watched.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/sort.h"
#include "sources/cupti/abi.h"
#include "store/event.h"
#include "store/extend.h"

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
        FS_TRY(fs_store_copy_words(into, from, i, &made, err));
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

/* What was open when nodes of graphs were created, from recordings of torch. */

fs_status fs_watched_copy_chain(fs_watched *watched, const fs_store *from, uint32_t event, int64_t begin,
                                uint32_t parent, uint32_t *copy)
{
    enum { DEEPEST = 256 };
    uint32_t events[DEEPEST];
    int depth = 0;
    for (uint32_t at = event; at != FS_NONE && depth < DEEPEST; at = FS_EVENT_AT(from, at, parent)) {
        if (FS_EVENT_AT(from, at, start) < begin) break;
        events[depth++] = at;
    }
    while (depth-- > 0) {
        uint32_t at = events[depth];
        fs_event made = fs_event_missing;
        made.kind = FS_EVENT_AT(from, at, kind);
        if (made.kind == FS_EVENT_STEP || made.kind == FS_EVENT_RUNTIME)
            continue; /* of the capture, not of its replays */
        made.parent = parent;
        made.start = made.duration = 0;
        FS_TRY(fs_store_copy_words(watched->store, from, at, &made, NULL));
        FS_TRY(fs_store_append(watched->store, &made, &parent, NULL));
    }
    *copy = parent;
    return FS_OK;
}

/* By time -------------------------------------------------------------------------------------------------------- */

static bool may_own(const fs_store *store, uint32_t event)
{
    uint8_t kind = FS_EVENT_AT(store, event, kind);
    if (FS_EVENT_AT(store, event, device) >= 0) return false;
    return kind == FS_EVENT_OP || kind == FS_EVENT_RANGE || kind == FS_EVENT_FRAME;
}

/* Return the innermost op, range or Python call of the thread at a time: the one that began last of those that have not
 * ended; an op or a range before a Python call. */
static uint32_t open_at(const fs_store *store, const uint32_t *events, uint32_t count, int64_t time)
{
    uint32_t frame = FS_NONE;
    uint32_t low = FS_FIRST_NOT(i, 0, count, FS_EVENT_AT(store, events[i], start) <= time);
    if (low == 0) return FS_NONE;
    for (uint32_t at = events[low - 1]; at != FS_NONE; at = FS_EVENT_AT(store, at, parent)) {
        uint32_t index;
        const fs_chunk *chunk = fs_event_chunk(store, at, &index);
        if (chunk->duration[index] == FS_MISSING || fs_event_end(chunk, index) < time) continue;
        if (chunk->kind[index] != FS_EVENT_FRAME) return at;
        if (frame == FS_NONE) frame = at;
    }
    return frame;
}

typedef struct {
    int64_t start;
    uint32_t event;
} started;

FS_ORDER_BY(compare_started, started, start, event)

/* List the owners of a thread by start. */
static uint32_t list_owners(const fs_store *store, uint32_t lane, started *list, uint32_t *events)
{
    uint32_t count = 0, at;
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        const fs_chunk *chunk = fs_event_chunk(store, i, &at);
        if (chunk->lane[at] == lane && chunk->start[at] != FS_MISSING && may_own(store, i))
            list[count++] = (started){chunk->start[at], i};
    }
    if (count > 1) qsort(list, count, sizeof *list, compare_started);
    for (uint32_t i = 0; i < count; i++) events[i] = list[i].event;
    return count;
}

static fs_status resolve_lane(fs_watched *watched, const fs_store *store, uint32_t lane, int64_t begin, int64_t end,
                              int64_t shift, started *list, uint32_t *events, int64_t *found)
{
    uint64_t thread = fs_store_lane(store, lane).id;
    uint32_t count = list_owners(store, lane, list, events), last = FS_NONE, around = FS_NONE, copy = FS_NONE;
    for (uint32_t i = 0; i < watched->moment_count; i++) {
        fs_watched_moment *at = &watched->moments[i];
        if (at->thread != thread || at->time < begin || at->time > end) continue;
        uint32_t owner = open_at(store, events, count, at->time - shift);
        if (owner == FS_NONE) continue;
        if (owner != last || at->owner != around) { /* what the watch saw itself, ranges, encloses it */
            around = at->owner;
            FS_TRY(fs_watched_copy_chain(watched, store, owner, INT64_MIN, around, &copy));
        }
        last = owner;
        at->owner = copy;
        at->resolved = at->placed = true;
        ++*found;
    }
    return FS_OK;
}

fs_status fs_watched_resolve(fs_watched *watched, const fs_store *store, int64_t begin, int64_t end, int64_t shift,
                             int64_t *found, fs_error *err)
{
    uint32_t count = fs_store_count(store);
    started *list = fs_malloc(((size_t)count + 1) * sizeof *list);
    uint32_t *events = fs_malloc(((size_t)count + 1) * sizeof *events);
    fs_status status = list != NULL && events != NULL ? FS_OK : FS_OUT_OF_MEMORY;
    *found = 0;
    for (uint32_t lane = 0; status == FS_OK && watched->store != NULL && lane < fs_store_lane_count(store); lane++)
        if (!fs_store_lane(store, lane).on_device)
            status = resolve_lane(watched, store, lane, begin, end, shift, list, events, found);
    fs_free(list);
    fs_free(events);
    return status == FS_OK ? FS_OK : fs_no_memory(err);
}

/* By call ---------------------------------------------------------------------------------------------------------- */

/* A node that was created, for sorting by graph and order of creation. */
typedef struct {
    uint32_t graph, moment;
} created;

FS_ORDER_BY(compare_created, created, graph, moment)

static uint32_t list_created(const fs_watched *watched, created *list)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < watched->moment_count; i++) {
        const fs_watched_moment *at = &watched->moments[i];
        if (!at->placed && at->type <= FS_CUPTI_NODE_FILL) list[count++] = (created){at->graph, i};
    }
    if (count > 1) qsort(list, count, sizeof *list, compare_created);
    return count;
}

static bool is_of_type(uint32_t symbol, uint8_t type)
{
    if (symbol == FS_SYMBOL_COPY) return type == FS_CUPTI_NODE_COPY;
    if (symbol == FS_SYMBOL_FILL) return type == FS_CUPTI_NODE_FILL;
    return type == FS_CUPTI_NODE_KERNEL;
}

/* Return whether the calls of a capture can have created these nodes: as many, of the same types, on the same threads,
 * and with one difference of the clocks each within its call. */
static bool may_have_created(const fs_watched *watched, const fs_captures *captures, const fs_captured_graph *graph,
                             const created *list, int64_t shift)
{
    const fs_store *store = captures->stores[graph->store];
    int64_t least = shift - FS_WATCHED_FARTHEST_NS, most = shift + FS_WATCHED_FARTHEST_NS;
    for (uint32_t i = 0; i < graph->count; i++) {
        const fs_capture_node *node = &captures->nodes[graph->first + i];
        const fs_watched_moment *at = &watched->moments[list[i].moment];
        uint32_t index;
        if (node->call == FS_NONE || !is_of_type(node->symbol, at->type)) return false;
        const fs_chunk *chunk = fs_event_chunk(store, node->call, &index);
        if (chunk->lane[index] == FS_NONE || fs_store_lane(store, chunk->lane[index]).id != at->thread) return false;
        int64_t low = at->time - fs_event_end(chunk, index) - FS_WATCHED_SLACK_NS,
                high = at->time - chunk->start[index] + FS_WATCHED_SLACK_NS;
        if (low > least) least = low;
        if (high < most) most = high;
        if (least > most) return false;
    }
    return true;
}

static fs_status take_owners(fs_watched *watched, const fs_captures *captures, const fs_captured_graph *graph,
                             const created *list)
{
    uint32_t last = FS_NONE, around = FS_NONE, copy = FS_NONE;
    for (uint32_t i = 0; i < graph->count; i++) {
        uint32_t owner = captures->nodes[graph->first + i].owner;
        fs_watched_moment *at = &watched->moments[list[i].moment];
        at->placed = true;
        if (owner == FS_NONE) continue;
        if (owner != last || at->owner != around) {
            around = at->owner;
            FS_TRY(fs_watched_copy_chain(watched, captures->stores[graph->store], owner, graph->begin, around, &copy));
        }
        last = owner;
        at->owner = copy;
        at->resolved = true;
    }
    return FS_OK;
}

/* Find the only graph of those watched that the calls can have created. */
static uint32_t find_created(const fs_watched *watched, const fs_captures *captures, const fs_captured_graph *graph,
                             const created *list, uint32_t count, int64_t shift)
{
    uint32_t found = FS_NONE;
    for (uint32_t first = 0, next; first < count; first = next) {
        for (next = first; next < count && list[next].graph == list[first].graph;) next++;
        if (next - first != graph->count) continue;
        if (!may_have_created(watched, captures, graph, list + first, shift)) continue;
        if (found != FS_NONE) return FS_NONE;
        found = first;
    }
    return found;
}

fs_status fs_watched_resolve_calls(fs_watched *watched, const fs_captures *captures, const fs_store *store,
                                   int64_t shift, fs_error *err)
{
    created *list = fs_malloc((watched->moment_count + (size_t)1) * sizeof *list);
    fs_status status = list != NULL ? FS_OK : FS_OUT_OF_MEMORY;
    uint32_t count = list != NULL ? list_created(watched, list) : 0;
    for (uint32_t i = 0; status == FS_OK && count > 0 && i < captures->graph_count; i++) {
        const fs_captured_graph *graph = &captures->graphs[i];
        if (captures->stores[graph->store] != store || graph->count == 0) continue;
        uint32_t found = find_created(watched, captures, graph, list, count, shift);
        if (found != FS_NONE) status = take_owners(watched, captures, graph, list + found);
    }
    fs_free(list);
    return status == FS_OK ? FS_OK : fs_no_memory(err);
}
