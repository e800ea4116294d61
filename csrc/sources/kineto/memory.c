/* Attribution of memory to events: an event gets all changes while it ran, on any thread (fs_join_options). */
#include "sources/kineto/memory.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "store/event.h"

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
    all.sums = fs_calloc(count, sizeof *all.sums);
    all.own = fs_calloc(join->host_count, sizeof *all.own);
    uint32_t *words = fs_malloc((4 * count + lanes) * sizeof *words);
    fs_status status;
    if (all.sums == NULL || all.own == NULL || words == NULL) {
        status = fs_no_memory(err);
    } else {
        all.lanes = words;
        all.hosts = all.lanes + count;
        all.order = all.hosts + count;
        all.free = all.order + count;
        all.ends = all.free + count;
        status = fill(&all, err);
    }
    fs_free(all.sums);
    fs_free(all.own);
    fs_free(words);
    return status;
}
