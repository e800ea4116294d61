/* What was open when nodes of graphs were created, from recordings of torch. */
#include <stdlib.h>

#include "sources/cupti/abi.h"
#include "base/memory.h"
#include "base/search.h"
#include "sources/cupti/watched.h"
#include "store/event.h"

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
        uint32_t at = events[depth], name = FS_EVENT_AT(from, at, name), signature = FS_EVENT_AT(from, at, signature);
        fs_event made = fs_event_missing;
        made.kind = FS_EVENT_AT(from, at, kind);
        if (made.kind == FS_EVENT_STEP || made.kind == FS_EVENT_RUNTIME)
            continue; /* of the capture, not of its replays */
        made.parent = parent;
        made.start = made.duration = 0;
        if (name != FS_NONE) FS_TRY(fs_store_name(watched->store, fs_store_name_text(from, name), &made.name, NULL));
        if (signature != FS_NONE) {
            fs_span bytes = fs_store_signature_bytes(from, signature);
            FS_TRY(fs_store_signature(watched->store, bytes.bytes, bytes.size, &made.signature, NULL));
        }
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

static int compare_started(const void *left, const void *right)
{
    const started *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return (a->event > b->event) - (a->event < b->event);
}

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

static int compare_created(const void *left, const void *right)
{
    const created *a = left, *b = right;
    if (a->graph != b->graph) return a->graph < b->graph ? -1 : 1;
    return (a->moment > b->moment) - (a->moment < b->moment);
}

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
