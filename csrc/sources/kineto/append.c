/* The index of an event is known before it is written: it is the number of hosts before it that are not merged, or of
 * records of devices, which follow in the order of the text. So several threads fill the store. */
#include "sources/kineto/append.h"

#include <stdatomic.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/search.h"
#include "base/sort.h"
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
    uint32_t polled = 0;
    if (!FS_ANY(i, join->piece_count, join->pieces[i].marked)) return FS_OK;
    for (int i = 0; i < MARKS; i++) marks[i].event = FS_NONE;
    FS_EACH_RECORD(join, record) {
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
    atomic_llong contradicting, guessed;
} devices;

static fs_event device_event(const fs_owners *owners, const fs_record *record, fs_launcher_counts *counts)
{
    fs_event event = event_of(record);
    if (record->kind == FS_EVENT_SYNC) { /* a wait belongs to its API call */
        const fs_record *call = fs_owners_call(owners, record);
        event.parent = call != NULL ? call->index : FS_NONE;
        event.lane = call != NULL ? call->lane : FS_NONE;
    } else {
        if (fs_event_is_annotation(record->kind) && !owners->join->own) unwiden(&event);
        event.launcher = fs_owners_launcher(owners, record, counts);
        if (record->marked) event.launcher = record->mark;
    }
    return event;
}

static void append_pieces(void *context, int64_t begin, int64_t end)
{
    devices *all = context;
    const fs_join *join = all->owners->join;
    fs_launcher_counts counts = {0, 0};
    for (int64_t piece = begin; piece < end; piece++) {
        uint32_t next = all->first + join->device_firsts[piece];
        for (fs_record_block *block = join->pieces[piece].first; block != NULL; block = block->next) {
            if (fs_interrupted()) return;
            for (fs_record *record = block->records; record < block->records + block->count; record++) {
                if (!fs_record_is_of_device(record)) continue;
                fs_event event = device_event(all->owners, record, &counts);
                fs_store_put(join->store, next, &event);
                record->index = next++;
            }
        }
    }
    atomic_fetch_add(&all->contradicting, counts.contradicting);
    atomic_fetch_add(&all->guessed, counts.guessed);
}

fs_status fs_join_append_devices(fs_owners *owners, fs_error *err)
{
    fs_join *join = owners->join;
    devices all = {.owners = owners};
    FS_TRY(append_marks(owners, err));
    FS_TRY(fs_store_reserve(join->store, join->device_firsts[join->piece_count], &all.first, err));
    fs_parallel_for(join->piece_count, 1, append_pieces, &all);
    join->counts = (fs_launcher_counts){all.contradicting, all.guessed};
    return fs_interrupt_poll(err);
}

/* Sequence numbers count the forward ops of one thread, so two threads have equal ones. The op that made a node is the
 * last one with its number that began no later, on the lane that is unique for the number, else on the lane that most
 * nodes of the same "Fwd thread id" come from: these ids count threads of the process, and do not name them. Votes are
 * counted over all backward ops before the first is linked. */

enum { THREADS = 1 << FS_NODE_THREAD_BITS };

/* An op of the forward pass. */
typedef struct {
    int64_t sequence, start;
    uint32_t lane, index; /* in the store */
} forward_op;

/* The lane that made most nodes of a "Fwd thread id" (Boyer and Moore's vote). */
typedef struct {
    uint32_t lane, votes;
} elected;

typedef struct {
    const fs_join *join;
    forward_op *ops; /* by (sequence, lane, start) */
    uint32_t count, backward_count;
    elected *threads; /* by "Fwd thread id" */
} linking;

static int64_t sequence_of(const fs_record *record)
{
    return record->node >> FS_NODE_THREAD_BITS;
}

static uint32_t thread_of(const fs_record *record)
{
    return (uint32_t)(record->node & (THREADS - 1));
}

static bool has_node(const fs_record *record)
{
    return record->kind == FS_EVENT_OP && record->node != 0;
}

static int compare(const forward_op *a, const forward_op *b)
{
    if (a->sequence != b->sequence) return a->sequence < b->sequence ? -1 : 1;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    return (a->start > b->start) - (a->start < b->start);
}

static int compare_ops(const void *left, const void *right)
{
    const forward_op *a = left, *b = right;
    int order = compare(a, b);
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

/* Return the number of ops that are not after the key. */
static uint32_t ops_until(const linking *all, forward_op key)
{
    return FS_FIRST_NOT(i, 0, all->count, compare(&all->ops[i], &key) <= 0);
}

/* Return the op on a lane that made the node of a backward op, or FS_NONE. */
static uint32_t maker_on(const linking *all, const fs_record *record, uint32_t lane)
{
    uint32_t end = ops_until(all, (forward_op){sequence_of(record), record->start, lane, 0});
    const forward_op *op = end > 0 ? &all->ops[end - 1] : NULL;
    return op != NULL && op->sequence == sequence_of(record) && op->lane == lane ? op->index : FS_NONE;
}

/* Find the lanes of the forward ops with the number: true if there is one lane only, which is then in *lane. */
static bool find_lane(const linking *all, const fs_record *record, uint32_t *lane)
{
    int64_t sequence = sequence_of(record);
    uint32_t begin = ops_until(all, (forward_op){sequence - 1, INT64_MAX, UINT32_MAX, 0});
    uint32_t end = ops_until(all, (forward_op){sequence, INT64_MAX, UINT32_MAX, 0});
    if (begin == end) return false;
    *lane = all->ops[begin].lane;
    return all->ops[end - 1].lane == *lane;
}

static fs_status list_forward(linking *all, fs_error *err)
{
    const fs_join *join = all->join;
    uint32_t count = 0;
    for (uint32_t host = 0; host < join->host_count; host++) {
        const fs_record *record = join->hosts[host].record;
        FS_POLL(host, err);
        if (!has_node(record)) continue;
        if (thread_of(record) == 0) all->count++;
        else all->backward_count++;
    }
    if (all->count == 0 || all->backward_count == 0) return FS_OK;
    FS_TRY(FS_NEW(&all->ops, all->count, err));
    FS_TRY(FS_NEW_ZEROED(&all->threads, THREADS, err));
    for (uint32_t host = 0; host < join->host_count; host++) {
        const fs_record *record = join->hosts[host].record;
        FS_POLL(host, err);
        if (!has_node(record) || thread_of(record) != 0) continue;
        all->ops[count++] = (forward_op){sequence_of(record), record->start, record->lane, record->index};
    }
    return fs_sort(all->ops, count, sizeof *all->ops, compare_ops, err);
}

static void vote(linking *all, const fs_record *record)
{
    uint32_t lane;
    elected *thread = &all->threads[thread_of(record)];
    if (!find_lane(all, record, &lane)) return;
    if (thread->votes == 0) thread->lane = lane;
    if (thread->lane == lane) thread->votes++;
    else thread->votes--;
}

static void link_op(const linking *all, const fs_record *record)
{
    const elected *thread = &all->threads[thread_of(record)];
    uint32_t lane, forward = FS_NONE;
    if (find_lane(all, record, &lane)) forward = maker_on(all, record, lane);
    else if (thread->votes > 0) forward = maker_on(all, record, thread->lane);
    if (forward != FS_NONE && forward != record->index) fs_store_set_forward(all->join->store, record->index, forward);
}

static fs_status link_all(linking *all, fs_error *err)
{
    const fs_join *join = all->join;
    FS_TRY(list_forward(all, err));
    if (all->threads == NULL) return FS_OK;
    for (int linked = 0; linked < 2; linked++) {
        for (uint32_t host = 0; host < join->host_count; host++) {
            const fs_record *record = join->hosts[host].record;
            FS_POLL(host, err);
            if (!has_node(record) || thread_of(record) == 0) continue;
            if (linked) link_op(all, record);
            else vote(all, record);
        }
    }
    return FS_OK;
}

fs_status fs_join_backward(const fs_join *join, fs_error *err)
{
    linking all = {.join = join};
    if (join->backward_count == 0) return FS_OK;
    fs_status status = link_all(&all, err);
    fs_free(all.ops);
    fs_free(all.threads);
    return status;
}

/* Attribution of memory to events: an event gets all changes while it ran, on any thread (fs_join_options). */

/* Place 0 is the CPU, place 1 all devices, as in tables. */
enum { PLACES = 2 };

/* Bytes, modulo 2^64: a sum that fits is right even if partial sums overflow. */
typedef struct {
    uint64_t bytes[PLACES];
} change;

typedef struct {
    const fs_join *join;
    change *sums;    /* by record, in order of time: sum over all earlier ones */
    change *own;     /* by host: the required sum of its own records */
    uint32_t *lanes; /* by record: the thread on which its host is searched, or FS_NONE */
    uint32_t *hosts; /* by record: the innermost host around it, or FS_NONE */
    uint32_t *order; /* records by lane, each lane in order of time */
    uint32_t *ends;  /* by lane: the end of its records in `order` */
    uint32_t *free;  /* by record: itself or a later one (union-find); a record that leads to itself has no lane yet */
} memory;

static int place_of(const fs_record *record)
{
    return record->device >= 0;
}

/* Return the number of records before `time`, or up to and including it. */
static uint32_t records_until(const fs_join *join, int64_t time, bool and_at)
{
    return FS_FIRST_NOT(i, 0, join->memory_count,
                        join->memory[i].start < time || (and_at && join->memory[i].start == time));
}

/* Compute what changed while the host ran; false if nothing did. */
static bool total_of(const memory *all, uint32_t host, change *total)
{
    const fs_host *event = &all->join->hosts[host];
    uint32_t from = records_until(all->join, event->start, false), to = records_until(all->join, event->end, true);
    for (int place = 0; place < PLACES; place++)
        total->bytes[place] = all->sums[to].bytes[place] - all->sums[from].bytes[place];
    return to > from;
}

/* Hosts of the records --------------------------------------------------------------------------------------------- */

/* List the records that have a lane but no host, by lane, with a counting sort. */
static void order_by_lane(memory *all)
{
    const fs_join *join = all->join;
    uint32_t lanes = fs_store_lane_count(join->store), next = 0;
    memset(all->ends, 0, (lanes + (size_t)1) * sizeof *all->ends);
    for (uint32_t i = 0; i < join->memory_count; i++)
        if (all->hosts[i] == FS_NONE && all->lanes[i] != FS_NONE) all->ends[all->lanes[i]]++;
    for (uint32_t lane = 0; lane < lanes; lane++) {
        uint32_t count = all->ends[lane];
        all->ends[lane] = next;
        next += count;
    }
    for (uint32_t i = 0; i < join->memory_count; i++)
        if (all->hosts[i] == FS_NONE && all->lanes[i] != FS_NONE) all->order[all->ends[all->lanes[i]]++] = i;
}

/* Find the innermost host around each of a lane's records. Records are in order of time, so a host that has been left
 * does not return. */
static void sweep_lane(memory *all, uint32_t lane, const uint32_t *records, uint32_t count)
{
    const fs_join *join = all->join;
    uint32_t next = join->firsts[lane], end = join->firsts[lane + 1], inner = FS_NONE;
    for (uint32_t i = 0; i < count; i++) {
        int64_t time = join->memory[records[i]].start;
        for (; next < end && join->hosts[next].start <= time; next++)
            if (!join->hosts[next].record->communication) inner = next;
        while (inner != FS_NONE && (join->hosts[inner].end < time || join->hosts[inner].record->kind == FS_EVENT_FRAME))
            inner = join->parents[inner];
        all->hosts[records[i]] = inner;
    }
}

static void sweep_lanes(memory *all)
{
    uint32_t begin = 0;
    order_by_lane(all);
    for (uint32_t lane = 0; lane < fs_store_lane_count(all->join->store); lane++) {
        sweep_lane(all, lane, all->order + begin, all->ends[lane] - begin);
        begin = all->ends[lane];
    }
}

/* Return the first record from `record` on that has no lane yet. */
static uint32_t next_free(memory *all, uint32_t record)
{
    uint32_t found = record;
    while (all->free[found] != found) found = all->free[found];
    while (all->free[record] != found) { /* path compression */
        uint32_t next = all->free[record];
        all->free[record] = found;
        record = next;
    }
    return found;
}

/* Assign records outside all events of their own thread to the first thread that has an event running then. */
static fs_status find_other_lanes(memory *all, fs_error *err)
{
    const fs_join *join = all->join;
    uint32_t orphans = 0;
    for (uint32_t i = 0; i < join->memory_count; i++) {
        bool orphan = all->hosts[i] == FS_NONE;
        all->lanes[i] = FS_NONE;
        all->free[i] = orphan ? i : i + 1;
        orphans += orphan;
    }
    all->free[join->memory_count] = join->memory_count;
    for (uint32_t host = 0; host < join->host_count && orphans > 0; host++) {
        const fs_host *event = &join->hosts[host];
        const fs_record *record = event->record;
        FS_POLL(host, err);
        if (join->parents[host] != FS_NONE || record->kind == FS_EVENT_FRAME || record->communication) continue;
        uint32_t at = next_free(all, records_until(join, event->start, false));
        for (; at < join->memory_count && join->memory[at].start <= event->end; at = next_free(all, at)) {
            all->lanes[at] = record->lane;
            all->free[at] = at + 1;
            orphans--;
        }
    }
    return FS_OK;
}

static fs_status find_hosts(memory *all, fs_error *err)
{
    const fs_join *join = all->join;
    for (uint32_t i = 0; i < join->memory_count; i++) {
        all->lanes[i] = join->memory[i].record->lane;
        all->hosts[i] = FS_NONE;
    }
    sweep_lanes(all);
    if (join->own_memory) return FS_OK;
    FS_TRY(find_other_lanes(all, err));
    sweep_lanes(all);
    return FS_OK;
}

/* Appending -------------------------------------------------------------------------------------------------------- */

static fs_status append_record(memory *all, uint32_t at, fs_error *err)
{
    const fs_record *record = all->join->memory[at].record;
    fs_event event = fs_event_missing;
    if (all->hosts[at] != FS_NONE) {
        uint32_t host = fs_join_one(all->join, all->hosts[at]);
        event.parent = all->join->hosts[host].record->index;
        all->own[host].bytes[place_of(record)] -= (uint64_t)record->bytes;
    }
    event.start = record->start;
    event.bytes = record->bytes;
    event.signature = record->signature;
    event.lane = record->lane;
    event.device = record->device;
    event.kind = FS_EVENT_MEMORY;
    event.timing = FS_TIMING_TRACE;
    return fs_store_append(all->join->store, &event, NULL, err);
}

/* Append the difference between a host's total and the records on its thread: the share of other threads
 * (store/event.h). */
static fs_status append_share(memory *all, uint32_t host, fs_error *err)
{
    for (int place = 0; place < PLACES; place++) {
        if (all->own[host].bytes[place] == 0) continue;
        fs_event event = fs_event_missing;
        event.start = all->join->hosts[host].start;
        event.bytes = (int64_t)all->own[host].bytes[place];
        event.parent = all->join->hosts[host].record->index;
        event.device = (int8_t)(place == 0 ? -1 : 0);
        event.kind = FS_EVENT_MEMORY;
        event.timing = FS_TIMING_TRACE;
        FS_TRY(fs_store_append(all->join->store, &event, NULL, err));
    }
    return FS_OK;
}

static bool is_counted(const fs_join *join, uint32_t host)
{
    return fs_join_one(join, host) == host && join->hosts[host].record->kind != FS_EVENT_FRAME;
}

static fs_status fill(memory *all, fs_error *err)
{
    const fs_join *join = all->join;
    for (uint32_t i = 0; i < join->memory_count; i++) {
        const fs_record *record = join->memory[i].record;
        all->sums[i + 1] = all->sums[i];
        all->sums[i + 1].bytes[place_of(record)] += (uint64_t)record->bytes;
    }
    for (uint32_t host = 0; host < join->host_count && !join->own_memory; host++) {
        change total;
        uint32_t parent = join->parents[host];
        FS_POLL(host, err);
        if (!is_counted(join, host) || !total_of(all, host, &total)) continue;
        for (int place = 0; place < PLACES; place++) {
            all->own[host].bytes[place] += total.bytes[place];
            if (parent != FS_NONE) all->own[parent].bytes[place] -= total.bytes[place];
        }
    }
    FS_TRY(find_hosts(all, err));
    for (uint32_t i = 0; i < join->memory_count; i++) {
        FS_POLL(i, err);
        FS_TRY(append_record(all, i, err));
    }
    for (uint32_t host = 0; host < join->host_count && !join->own_memory; host++) {
        FS_POLL(host, err);
        if (is_counted(join, host)) FS_TRY(append_share(all, host, err));
    }
    return FS_OK;
}

fs_status fs_join_memory(fs_join *join, fs_error *err)
{
    if (join->memory_count == 0) return FS_OK;
    size_t count = (size_t)join->memory_count + 1, lanes = fs_store_lane_count(join->store) + (size_t)1;
    memory all = {.join = join};
    fs_status status;
    FS_TRY(FS_NEW_ZEROED(&all.sums, count, err));
    FS_TRY_GOTO(status, FS_NEW_ZEROED(&all.own, join->host_count, err), done);
    FS_TRY_GOTO(status, FS_NEW(&all.lanes, 4 * count + lanes, err), done);
    all.hosts = all.lanes + count;
    all.order = all.hosts + count;
    all.free = all.order + count;
    all.ends = all.free + count;
    status = fill(&all, err);
done:
    fs_free(all.sums);
    fs_free(all.own);
    fs_free(all.lanes);
    return status;
}
