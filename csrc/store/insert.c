/* Ops are sorted by lane and start, so that the innermost one around a time is the last that began before it, or one
 * around that. Events keep their order. An event was appended after all that began before it on its lane, and records
 * of calls and kernels come later still: an op that is inserted before the first event that began after it precedes
 * whatever is within it. */
#include "store/insert.h"

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/sort.h"
#include "store/copy.h"
#include "store/event.h"

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

static int compare_places(const void *left, const void *right)
{
    const place *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return (a->op > b->op) - (a->op < b->op);
}

static fs_status prepare(inserting *all, fs_error *err)
{
    size_t count = all->count + (size_t)1;
    all->around = fs_malloc(count * sizeof *all->around);
    all->events = fs_malloc(count * sizeof *all->events);
    all->order = fs_malloc(count * sizeof *all->order);
    all->moved = fs_malloc((fs_store_count(all->from) + (size_t)1) * sizeof *all->moved);
    if (all->around == NULL || all->events == NULL || all->order == NULL || all->moved == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to insert %u ops", all->count);
    for (uint32_t i = 0; i < all->count; i++) {
        const fs_late_op *op = &all->ops[i];
        uint32_t outer = i > 0 && all->ops[i - 1].lane == op->lane ? i - 1 : FS_NONE;
        while (outer != FS_NONE && all->ops[outer].end < op->end) outer = all->around[outer];
        all->around[i] = outer;
        all->order[i] = (place){op->start, i};
    }
    return fs_sort(all->order, all->count, sizeof *all->order, compare_places, "late ops", err);
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
    FS_TRY_GOTO(status, fs_sort(ops, count, sizeof *ops, compare_ops, "late ops", err), done);
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
