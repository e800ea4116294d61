/* All ids of the source are mapped first and then its events are appended in order, with their indices moved by the
 * number of events that were there; a parent still precedes its children. Correlations are dropped, as both recordings
 * may use the same ones. A failure leaves the store with a part of the other, so the caller gives up both. */
#include "store/extend.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "base/search.h"
#include "base/sort.h"
#include "store/event.h"
#include "store/samples.h"
#include "store/stacks.h"

/* The ids of the source's names, signatures and lanes in the target, one after the other. */
typedef struct {
    uint32_t *names, *signatures, *lanes;
} id_map;

static fs_status map_ids(fs_store *store, const fs_store *from, const id_map *map, fs_error *err)
{
    for (uint32_t id = 0; id < fs_store_name_count(from); id++)
        FS_TRY(fs_store_name(store, fs_store_name_text(from, id), &map->names[id], err));
    for (uint32_t id = 0; id < fs_store_signature_count(from); id++) {
        fs_span bytes = fs_store_signature_bytes(from, id);
        FS_TRY(fs_store_signature(store, bytes.bytes, bytes.size, &map->signatures[id], err));
    }
    for (uint32_t id = 0; id < fs_store_lane_count(from); id++) {
        fs_lane lane = fs_store_lane(from, id);
        if (lane.on_device) FS_TRY(fs_store_device_lane(store, lane.device, lane.id, &map->lanes[id], err));
        else FS_TRY(fs_store_thread_lane_of(store, lane.id, &map->lanes[id], err));
    }
    return FS_OK;
}

static uint32_t mapped(const uint32_t *ids, uint32_t id)
{
    return id == FS_NONE ? FS_NONE : ids[id];
}

static uint32_t moved(uint32_t index, uint32_t first)
{
    return index == FS_NONE ? FS_NONE : index + first;
}

static fs_status append_events(fs_store *store, const fs_store *from, const id_map *map, int64_t shift, fs_error *err)
{
    uint32_t first = fs_store_count(store), count = fs_store_count(from);
    for (uint32_t i = 0; i < count; i++) {
        fs_event event;
        fs_store_get(from, i, &event);
        if (event.start != FS_MISSING) event.start = fs_add_saturated(event.start, shift);
        event.name = mapped(map->names, event.name);
        event.signature = mapped(map->signatures, event.signature);
        event.lane = mapped(map->lanes, event.lane);
        event.parent = moved(event.parent, first);
        event.launcher = moved(event.launcher, first);
        event.forward = moved(event.forward, first);
        event.correlation = FS_NONE; /* both recordings may use the same numbers */
        FS_TRY(fs_store_append(store, &event, NULL, err));
    }
    return FS_OK;
}

static fs_status add_devices(fs_store *store, const fs_store *from, fs_error *err)
{
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        fs_device_facts facts = fs_store_device(from, device);
        bool known = facts.name[0] != 0 || facts.accelerator != 0;
        if (!known || fs_store_device(store, device).name[0] != 0) continue;
        FS_TRY(fs_store_set_device(store, device, &facts, err));
    }
    return FS_OK;
}

fs_status fs_store_extend(fs_store *store, const fs_store *from, int64_t shift, fs_error *err)
{
    size_t names = fs_store_name_count(from), signatures = fs_store_signature_count(from);
    uint32_t *ids = fs_calloc(names + signatures + fs_store_lane_count(from) + 1, sizeof *ids);
    if (ids == NULL) return fs_no_memory(err);
    const id_map map = {ids, ids + names, ids + names + signatures};
    fs_store_set_window(store, FS_MISSING, FS_MISSING);
    fs_store_expect(store, fs_store_count(from));
    fs_status status = map_ids(store, from, &map, err);
    if (status == FS_OK) status = add_devices(store, from, err);
    if (status == FS_OK) status = append_events(store, from, &map, shift, err);
    if (status == FS_OK) status = fs_store_copy_samples(store, from, shift, err);
    if (status == FS_OK)
        status =
            fs_stacks_append(fs_store_stacks(store), fs_store_stacks(from), NULL, shift, INT64_MIN, INT64_MAX, err);
    fs_free(ids);
    return status;
}

/* Insertion -------------------------------------------------------------------------------------------------------- */

/* Ops are sorted by lane and start, so that the innermost one around a time is the last that began before it, or one
 * around that. Events keep their order. An event was appended after all that began before it on its lane, and records
 * of calls and kernels come later still: an op that is inserted before the first event that began after it precedes
 * whatever is within it. */

typedef struct {
    int64_t start;
    uint32_t op;
} place;

typedef struct {
    const fs_store *from;
    fs_store *into;
    const fs_late_op *ops;
    uint32_t count;
    uint32_t *around; /* by op: the op around it on its lane, or FS_NONE */
    uint32_t *events; /* by op: its event in `into` */
    place *order;     /* by start */
    uint32_t *moved;  /* by event of `from`: its index in `into` */
} inserting;

static int compare_ops(const void *left, const void *right)
{
    const fs_late_op *a = left, *b = right;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return (a->end < b->end) - (a->end > b->end);
}

FS_ORDER_BY(compare_places, place, start, op)

static fs_status prepare(inserting *all, fs_error *err)
{
    size_t count = all->count + (size_t)1;
    FS_TRY(FS_NEW(&all->around, count, err));
    FS_TRY(FS_NEW(&all->events, count, err));
    FS_TRY(FS_NEW(&all->order, count, err));
    FS_TRY(FS_NEW(&all->moved, fs_store_count(all->from) + (size_t)1, err));
    for (uint32_t i = 0; i < all->count; i++) {
        const fs_late_op *op = &all->ops[i];
        uint32_t outer = i > 0 && all->ops[i - 1].lane == op->lane ? i - 1 : FS_NONE;
        while (outer != FS_NONE && all->ops[outer].end < op->end) outer = all->around[outer];
        all->around[i] = outer;
        all->order[i] = (place){op->start, i};
    }
    return fs_sort(all->order, all->count, sizeof *all->order, compare_places, err);
}

/* Return the innermost op around a time on a lane, or FS_NONE. */
static uint32_t op_at(const inserting *all, uint32_t lane, int64_t time)
{
    const fs_late_op *ops = all->ops;
    uint32_t end = FS_FIRST_NOT(i, 0, all->count, ops[i].lane < lane || (ops[i].lane == lane && ops[i].start <= time));
    uint32_t op = end > 0 && ops[end - 1].lane == lane ? end - 1 : FS_NONE;
    while (op != FS_NONE && ops[op].end <= time) op = all->around[op];
    return op;
}

/* Return the parent of what began at `start`: an event of `from`, or an op around it that began later. */
static uint32_t inner_of(const inserting *all, uint32_t event, uint32_t op, uint32_t before)
{
    if (event >= before) event = FS_NONE;
    if (op == FS_NONE) return event == FS_NONE ? FS_NONE : all->moved[event];
    bool inside = event != FS_NONE && FS_EVENT_AT(all->from, event, start) >= all->ops[op].start;
    return inside ? all->moved[event] : all->events[op];
}

static fs_status insert(inserting *all, uint32_t op, uint32_t before, fs_error *err)
{
    const fs_late_op *of = &all->ops[op];
    fs_event event = fs_event_missing;
    uint32_t open = of->open;
    while (open != FS_NONE && (open >= before || FS_EVENT_AT(all->from, open, start) > of->start))
        open = FS_EVENT_AT(all->from, open, parent);
    event.kind = FS_EVENT_OP;
    event.flags = FS_EVENT_ADOPTS;
    event.name = of->name;
    event.start = of->start;
    event.duration = of->end - of->start;
    event.lane = of->lane;
    event.timing = FS_TIMING_CPU;
    event.parent = inner_of(all, open, all->around[op], before);
    return fs_store_append(all->into, &event, &all->events[op], err);
}

static fs_status copy_events(inserting *all, fs_error *err)
{
    uint32_t count = fs_store_count(all->from), next = 0;
    fs_store_expect(all->into, count + all->count);
    for (uint32_t i = 0; i < count; i++) {
        FS_POLL(i, err);
        fs_event event;
        fs_store_get(all->from, i, &event);
        while (next < all->count && event.start != FS_MISSING && event.start >= all->order[next].start)
            FS_TRY(insert(all, all->order[next++].op, i, err));
        bool on_host = event.start != FS_MISSING && !fs_event_lies_on_device(event.kind, event.device);
        event.parent = inner_of(all, event.parent, on_host ? op_at(all, event.lane, event.start) : FS_NONE, i);
        event.launcher = inner_of(all, event.launcher, FS_NONE, i);
        FS_TRY(fs_store_append(all->into, &event, &all->moved[i], err));
    }
    for (; next < all->count; next++) FS_TRY(insert(all, all->order[next].op, count, err));
    return FS_OK;
}

fs_status fs_store_insert(const fs_store *from, fs_late_op *ops, uint32_t count, fs_store *into, fs_error *err)
{
    inserting all = {.from = from, .into = into, .ops = ops, .count = count};
    fs_status status;
    FS_TRY_GOTO(status, fs_sort(ops, count, sizeof *ops, compare_ops, err), done);
    FS_TRY_GOTO(status, prepare(&all, err), done);
    FS_TRY_GOTO(status, fs_store_copy_ids(into, from, err), done);
    status = copy_events(&all, err);
done:
    fs_free(all.around);
    fs_free(all.events);
    fs_free(all.order);
    fs_free(all.moved);
    return status;
}

/* Copies ----------------------------------------------------------------------------------------------------------- */

/* Names, signatures and lanes have the ids of the other store, so that events can be copied as they are. */

/* Ids stay the same: what was appended, such as the states of memory, may be there several times. */
static fs_status copy_signatures(const fs_store *from, fs_store *into, fs_error *err)
{
    uint32_t copy;
    for (uint32_t id = 0; id < fs_store_signature_count(from); id++) {
        fs_span bytes = fs_store_signature_bytes(from, id);
        bool appended = bytes.hash == 0;
        FS_TRY((appended ? fs_store_append_signature : fs_store_signature)(into, bytes.bytes, bytes.size, &copy, err));
    }
    return FS_OK;
}

fs_status fs_store_copy_ids(fs_store *into, const fs_store *from, fs_error *err)
{
    uint32_t id;
    int64_t begin, end;
    for (uint32_t i = 0; i < fs_store_name_count(from); i++)
        FS_TRY(fs_store_name(into, fs_store_name_text(from, i), &id, err));
    FS_TRY(copy_signatures(from, into, err));
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

fs_status fs_store_copy_words(fs_store *into, const fs_store *from, uint32_t index, fs_event *event, fs_error *err)
{
    uint32_t name = FS_EVENT_AT(from, index, name), signature = FS_EVENT_AT(from, index, signature);
    if (name != FS_NONE) FS_TRY(fs_store_name(into, fs_store_name_text(from, name), &event->name, err));
    if (signature == FS_NONE) return FS_OK;
    fs_span bytes = fs_store_signature_bytes(from, signature);
    return fs_store_signature(into, bytes.bytes, bytes.size, &event->signature, err);
}

void fs_store_copy_forwards(fs_store *into, const fs_store *from, const uint32_t *moved)
{
    FS_EACH_EVENT(from, i, chunk, at) {
        uint32_t forward = chunk->forward[at];
        if (forward != FS_NONE) fs_store_set_forward(into, moved[i], moved[forward]);
    }
}
