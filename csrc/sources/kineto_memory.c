/* Memory to the events that had it: an event has all that changed while it ran, on whatever thread. */
#include <string.h>

#include "base/memory.h"
#include "sources/kineto_join.h"
#include "store/event.h"

/* Place 0 is the CPU, 1 all devices: so tables count. */
enum { PLACES = 2 };

typedef struct {
    int64_t bytes[PLACES];
} change;

typedef struct {
    const fs_join *join;
    change *sums; /* by record, in order of time: of all before it */
    change *own;  /* by host: what its own events must come to */
} memory;

static int place_of(const fs_record *record)
{
    return record->device >= 0;
}

/* How many records began before `time`, or at it too. */
static uint32_t records_until(const fs_join *join, int64_t time, bool and_at)
{
    uint32_t low = 0, high = join->memory_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int64_t start = join->memory[middle]->start;
        if (start < time || (and_at && start == time)) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* What changed while the host ran; false where nothing did. */
static bool total_of(const memory *all, uint32_t host, change *total)
{
    const fs_host *event = &all->join->hosts[host];
    uint32_t from = records_until(all->join, event->start, false), to = records_until(all->join, event->end, true);
    for (int place = 0; place < PLACES; place++)
        total->bytes[place] = all->sums[to].bytes[place] - all->sums[from].bytes[place];
    return to > from;
}

/* A host that the record lies in: the innermost on its own thread, or on another; FS_NONE. */
static uint32_t host_of(const fs_join *join, const fs_record *record)
{
    uint32_t found = fs_join_around(join, record->lane, record->start, record->start);
    for (uint32_t lane = 0; found == FS_NONE && lane < fs_store_lane_count(join->store); lane++)
        found = fs_join_around(join, lane, record->start, record->start);
    return found != FS_NONE ? join->ones[found] : FS_NONE;
}

static fs_status append_record(memory *all, const fs_record *record, fs_error *err)
{
    fs_event event = fs_event_missing;
    uint32_t host = host_of(all->join, record);
    if (host != FS_NONE) {
        event.parent = all->join->hosts[host].record->index;
        all->own[host].bytes[place_of(record)] -= record->bytes;
    }
    event.start = record->start;
    event.bytes = record->bytes;
    event.lane = record->lane;
    event.device = record->device;
    event.kind = FS_EVENT_MEMORY;
    event.timing = FS_TIMING_TRACE;
    return fs_store_append(all->join->store, &event, NULL, err);
}

/* What the records of the host's own thread do not account for: those of others, as a share (store/event.h). */
static fs_status append_share(memory *all, uint32_t host, fs_error *err)
{
    for (int place = 0; place < PLACES; place++) {
        if (all->own[host].bytes[place] == 0) continue;
        fs_event event = fs_event_missing;
        event.start = all->join->hosts[host].start;
        event.bytes = all->own[host].bytes[place];
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
    return join->ones[host] == host && join->hosts[host].record->kind != FS_EVENT_FRAME;
}

static fs_status fill(memory *all, fs_error *err)
{
    const fs_join *join = all->join;
    for (uint32_t i = 0; i < join->memory_count; i++) {
        all->sums[i + 1] = all->sums[i];
        all->sums[i + 1].bytes[place_of(join->memory[i])] += join->memory[i]->bytes;
    }
    for (uint32_t host = 0; host < join->host_count; host++) {
        change total;
        uint32_t parent = join->parents[host];
        if (!is_counted(join, host) || !total_of(all, host, &total)) continue;
        for (int place = 0; place < PLACES; place++) {
            all->own[host].bytes[place] += total.bytes[place];
            if (parent != FS_NONE) all->own[parent].bytes[place] -= total.bytes[place];
        }
    }
    for (uint32_t i = 0; i < join->memory_count; i++) FS_TRY(append_record(all, join->memory[i], err));
    for (uint32_t host = 0; host < join->host_count; host++)
        if (is_counted(join, host)) FS_TRY(append_share(all, host, err));
    return FS_OK;
}

fs_status fs_join_memory(fs_join *join, fs_error *err)
{
    if (join->memory_count == 0) return FS_OK;
    memory all = {.join = join};
    all.sums = fs_calloc((size_t)join->memory_count + 1, sizeof *all.sums);
    all.own = fs_calloc(join->host_count, sizeof *all.own);
    bool room = all.sums != NULL && all.own != NULL;
    fs_status status = room ? fill(&all, err) : fs_fail(err, FS_OUT_OF_MEMORY, "no memory to tell whose memory it was");
    fs_free(all.sums);
    fs_free(all.own);
    return status;
}
