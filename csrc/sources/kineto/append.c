/* The index of an event is known before it is written: it is the number of hosts before it that are not merged, or of
 * records of devices, which follow in the order of the text. So several threads fill the store. */
#include "sources/kineto/append.h"

#include <stdatomic.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "store/event.h"

static fs_event event_of(const fs_record *record)
{
    fs_event event = fs_event_missing;
    event.start = record->start;
    event.duration = record->duration;
    event.bytes = record->kind == FS_EVENT_OP ? 0 : record->bytes;
    event.name = record->name;
    event.signature = record->signature;
    event.correlation = record->correlation;
    event.lane = record->lane;
    event.device = record->device;
    event.kind = record->kind;
    event.timing = FS_TIMING_TRACE;
    event.flags = record->graph;
    if ((record->graph & FS_EVENT_REPLAYED) != 0) event.duration = 0; /* its place only tells what encloses it */
    return event;
}

/* Hosts ------------------------------------------------------------------------------------------------------------ */

typedef struct {
    const fs_join *join;
    uint32_t *ranks; /* by host that is not merged: the number of such hosts before it; NULL: none is merged */
    uint32_t first;  /* index of the first host */
} appending;

static uint32_t index_of(const appending *all, uint32_t host)
{
    return all->first + (all->ranks != NULL ? all->ranks[fs_join_one(all->join, host)] : host);
}

static void append_range(void *context, int64_t begin, int64_t end)
{
    const appending *all = context;
    const fs_join *join = all->join;
    for (uint32_t host = (uint32_t)begin; host < end; host++) {
        fs_record *record = join->hosts[host].record;
        record->index = index_of(all, host);
        if (all->ranks != NULL && fs_join_one(join, host) != host) continue;
        fs_event event = event_of(record);
        uint32_t around = join->parents[host];
        if (join->frames != NULL && join->frames[host] != FS_NONE) around = join->frames[host];
        if (around != FS_NONE) event.parent = index_of(all, around);
        if (record->communication) event.lane = FS_NONE;
        fs_store_put(join->store, record->index, &event);
    }
}

fs_status fs_join_append_hosts(fs_join *join, fs_error *err)
{
    appending all = {.join = join};
    if (join->merged_count > 0) {
        uint32_t rank = 0;
        all.ranks = join->children; /* which have served */
        for (uint32_t host = 0; host < join->host_count; host++) {
            all.ranks[host] = rank;
            rank += fs_join_one(join, host) == host;
        }
    }
    FS_TRY(fs_store_reserve(join->store, join->host_count - join->merged_count, &all.first, err));
    fs_parallel_for(join->host_count, FS_HOST_PART, append_range, &all);
    return fs_interrupt_poll(err);
}

/* Marks ------------------------------------------------------------------------------------------------------------ */

/* The annotations of work of a graph that were appended last, by name. */
typedef struct {
    uint32_t name, correlation, event; /* event FS_NONE: none */
} mark;
enum { MARKS = 64 };

/* Append the annotation that the capture of a graph gave its work, once for each launch and name. From here on the
 * record has the event instead of the name. */
static fs_status append_mark(const fs_owners *owners, mark *marks, fs_record *record, fs_error *err)
{
    const fs_record *call = fs_owners_call(owners, record);
    mark *last = &marks[record->mark % MARKS];
    record->marked = call != NULL;
    if (call == NULL) return FS_OK;
    if (last->name != record->mark || last->correlation != record->correlation || last->event == FS_NONE) {
        fs_event event = fs_event_missing;
        event.kind = FS_EVENT_RANGE;
        event.flags = FS_EVENT_REPLAYED | FS_EVENT_MARK;
        event.timing = FS_TIMING_TRACE;
        event.start = call->start;
        event.duration = 0;
        event.name = record->mark;
        event.lane = call->lane;
        event.parent = FS_EVENT_AT(owners->join->store, call->index, parent);
        *last = (mark){record->mark, record->correlation, FS_NONE};
        FS_TRY(fs_store_append(owners->join->store, &event, &last->event, err));
    }
    record->mark = last->event;
    return FS_OK;
}

/* Before the work, so that the marks of a launch precede all of it. */
static fs_status append_marks(const fs_owners *owners, fs_error *err)
{
    const fs_join *join = owners->join;
    mark marks[MARKS];
    bool any = false;
    uint32_t polled = 0;
    for (uint32_t i = 0; i < join->piece_count; i++) any = any || join->pieces[i].marked;
    if (!any) return FS_OK;
    for (int i = 0; i < MARKS; i++) marks[i].event = FS_NONE;
    FS_EACH_RECORD(join, record)
    {
        if (polled++ % FS_POLL_ROUNDS == 0) FS_TRY(fs_interrupt_poll(err));
        if (record->marked && record->device >= 0) FS_TRY(append_mark(owners, marks, record, err));
    }
    return FS_OK;
}

/* Devices ---------------------------------------------------------------------------------------------------------- */

/* Undo Kineto's widening of device annotations by 1 ns at both ends, which makes viewers show them around the first and
 * last work (libkineto/src/output_json.cpp). */
static void unwiden(fs_event *event)
{
    if (event->duration < 2) return;
    event->start += 1;
    event->duration -= 2;
}

typedef struct {
    const fs_owners *owners;
    uint32_t first; /* index of the first record of a device */
    atomic_llong contradicting;
} devices;

static fs_event device_event(const fs_owners *owners, const fs_record *record, int64_t *contradicting)
{
    fs_event event = event_of(record);
    if (record->kind == FS_EVENT_SYNC) { /* a wait belongs to its API call */
        const fs_record *call = fs_owners_call(owners, record);
        event.parent = call != NULL ? call->index : FS_NONE;
        event.lane = call != NULL ? call->lane : FS_NONE;
    } else {
        if (fs_event_is_annotation(record->kind) && !owners->join->own) unwiden(&event);
        event.launcher = fs_owners_launcher(owners, record, contradicting);
        if (record->marked) event.launcher = record->mark;
    }
    return event;
}

static void append_pieces(void *context, int64_t begin, int64_t end)
{
    devices *all = context;
    const fs_join *join = all->owners->join;
    int64_t contradicting = 0;
    for (int64_t piece = begin; piece < end; piece++) {
        uint32_t next = all->first + join->device_firsts[piece];
        for (fs_record_block *block = join->pieces[piece].first; block != NULL; block = block->next) {
            if (fs_interrupted()) return;
            for (fs_record *record = block->records; record < block->records + block->count; record++) {
                if (!fs_record_is_of_device(record)) continue;
                fs_event event = device_event(all->owners, record, &contradicting);
                fs_store_put(join->store, next, &event);
                record->index = next++;
            }
        }
    }
    atomic_fetch_add(&all->contradicting, contradicting);
}

fs_status fs_join_append_devices(fs_owners *owners, fs_error *err)
{
    fs_join *join = owners->join;
    devices all = {.owners = owners};
    FS_TRY(append_marks(owners, err));
    FS_TRY(fs_store_reserve(join->store, join->device_firsts[join->piece_count], &all.first, err));
    fs_parallel_for(join->piece_count, 1, append_pieces, &all);
    join->contradicting = all.contradicting;
    return fs_interrupt_poll(err);
}
