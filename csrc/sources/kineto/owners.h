/* The owner of device work: the API call that launched it, and the op around that call. Private to the trace source.
 *
 *   device work ── correlation ──► API call ── its own thread ──► the innermost op around it
 *
 * Without an op around the call, the innermost annotation is the owner; without that, there is none. Python frames are
 * never owners.
 *
 * "External id" names an op too, but Kineto wrote wrong values: from August 2022 to June 2024 it repeated the
 * correlation. It is used only
 *
 *   - for work whose call is not in the file, unless it repeats the work's correlation;
 *   - for calls on a thread without any op or annotation, if the op that it names encloses the call in time;
 *   - for annotations of a device, which have no call;
 *   - in a trace written by flopscope, for all device work.
 *
 * If a file contains several processes, their correlations and "External id"s may collide: see owners.c. */
#ifndef FS_SOURCES_KINETO_OWNERS_H
#define FS_SOURCES_KINETO_OWNERS_H

#include "base/memory.h"
#include "sources/kineto/records.h"
#include "store/event.h"

/* Host events between the pieces and the store. Private to the trace source. */

/* A host event before it is stored. */
typedef struct {
    int64_t start, end; /* end: INT64_MAX without a duration */
    fs_record *record;
} fs_host;

static inline int64_t fs_record_end(const fs_record *record)
{
    return record->duration == FS_MISSING ? INT64_MAX : record->start + record->duration;
}

/* As in fs_kineto_report. */
typedef struct {
    int64_t contradicting, guessed;
} fs_launcher_counts;

typedef struct {
    fs_store *store;
    fs_host *hosts;     /* by lane, each lane in order of (start, -end) */
    uint32_t *firsts;   /* by lane of the store: index of its first host; one more entry at the end */
    uint32_t *parents;  /* by host: the innermost enclosing event that is not a frame, or FS_NONE */
    uint32_t *frames;   /* by host: the innermost frame within that parent, or FS_NONE; NULL without frames */
    uint32_t *children; /* by host: number of direct children that are not frames; NULL if none is merged */
    uint32_t *ones;     /* by host: the event that it is merged with, or itself; NULL if none is merged */
    uint32_t host_count, overhead_count, frame_count, backward_count;
    uint32_t merged_count;   /* hosts that are merged with another one */
    uint32_t *device_firsts; /* by piece: the number of records of devices in the pieces before; one more entry */
    fs_host *memory;         /* memory records in order of time */
    uint32_t memory_count;
    fs_piece *pieces;
    uint32_t piece_count;
    int64_t *processes; /* by lane of the store: the process of the thread or of the stream's work, -1: unknown */
    uint32_t process_count, process_capacity;
    bool own;         /* the trace was written by flopscope */
    bool own_memory;  /* memory belongs to events of its own thread alone */
    bool keeps_alike; /* an only child is not merged with a parent of its name */
    int64_t slack;    /* ns by which rounding may have moved the end of an event */
    fs_launcher_counts counts;
    int64_t overlapping; /* as in fs_kineto_report */
} fs_join;

/* Return the host that a host is merged with, or itself. */
static inline uint32_t fs_join_one(const fs_join *join, uint32_t host)
{
    return join->ones != NULL ? join->ones[host] : host;
}

/* Iterate over the records of all pieces, in order. */
#define FS_EACH_RECORD(join, record)                                                                        \
    for (uint32_t piece_ = 0; piece_ < (join)->piece_count; piece_++)                                       \
        for (fs_record_block *block_ = (join)->pieces[piece_].first; block_ != NULL; block_ = block_->next) \
            for (fs_record *record = block_->records; record < block_->records + block_->count; record++)

/* Return whether a record is a host event. */
static inline bool fs_record_is_host(const fs_record *record)
{
    return record->device < 0 && record->kind != FS_EVENT_MEMORY && record->kind != FS_EVENT_SYNC;
}

/* Return whether a record is of a device, or of the host waiting for one: neither a host event nor of memory. */
static inline bool fs_record_is_of_device(const fs_record *record)
{
    return record->kind != FS_EVENT_MEMORY && !fs_record_is_host(record);
}

/* Hosts are worked on by several threads in parts of this many. */
enum { FS_HOST_PART = FS_BLOCK(1 << 14, 1 << 2) };

/* Return whether an event is nested in one that precedes it in order. */
static inline bool fs_host_lies_in(const fs_host *host, const fs_host *around, int64_t slack)
{
    if (host->start >= around->end) return false;
    if (host->end <= around->end) return true;
    return host->end - slack <= around->end && host->start + slack < around->end;
}

/* Open hosts during a sweep along a lane, outermost first. A host that ends no later than a later one is omitted:
 * anything nested in it is also nested in the later one. So ends decrease. */
typedef struct {
    uint32_t *open;
    uint32_t depth, capacity;
} fs_nest;

static inline void fs_nest_close_shorter(const fs_join *join, fs_nest *nest, uint32_t host)
{
    while (nest->depth > 0 && join->hosts[nest->open[nest->depth - 1]].end <= join->hosts[host].end) nest->depth--;
}

static inline fs_status fs_nest_push(const fs_join *join, fs_nest *nest, uint32_t host, fs_error *err)
{
    fs_nest_close_shorter(join, nest, host);
    return FS_LIST_ADD(&nest->open, &nest->depth, &nest->capacity, 64, err, host);
}

/* List the hosts by lane in the order of the text, and the records of memory. FS_OUT_OF_MEMORY. */
fs_status fs_hosts_list(fs_join *join, fs_error *err);
/* List the hosts again, after lanes have changed. FS_OUT_OF_MEMORY. */
fs_status fs_hosts_regroup(fs_join *join, fs_error *err);

/* Sort hosts by (start, -end); the sort is stable. FS_OUT_OF_MEMORY. */
fs_status fs_hosts_sort(fs_host *hosts, uint32_t count, fs_error *err);

/* An index of records by id. Ids are usually consecutive: then it is an array from the smallest to the largest. For
 * scattered ids it is a hash table whose size is a power of two, at most half full. */
typedef struct {
    int64_t least, largest; /* range of the announced ids */
    uint32_t count;         /* number of announced ids */
    uint32_t slot_count;
    int64_t *ids;         /* by slot; NULL for an array */
    const uint64_t *keys; /* of the hash */
    fs_record **records;  /* by slot; NULL: free */
} fs_record_index;

typedef struct {
    fs_join *join;
    fs_record_index ops;   /* ops and annotations by "External id" */
    fs_record_index calls; /* API calls by correlation; if several share one, the first */
    fs_record **others;    /* calls with shared correlations, by correlation and start */
    uint32_t other_count, other_capacity;
    uint8_t *lanes; /* by lane of the store: private */
    /* By device: the process that launched most of its work, by unique correlations. */
    struct {
        int64_t process;
        int64_t votes;
    } devices[FS_DEVICE_LIMIT];
} fs_owners;

/* Return whether a host event can own device work. */
static inline bool fs_record_is_owner(const fs_record *record)
{
    return record->kind == FS_EVENT_OP || (fs_event_is_annotation(record->kind) && record->device < 0);
}

static inline bool fs_record_is_call(const fs_record *record)
{
    return record->kind == FS_EVENT_RUNTIME && record->correlation != FS_NONE;
}

static inline void fs_record_index_announce(fs_record_index *index, int64_t id)
{
    if (index->count++ == 0) index->least = index->largest = id;
    if (id < index->least) index->least = id;
    if (id > index->largest) index->largest = id;
}

/* Count a host event for the indexes, before fs_owners_create. */
static inline void fs_owners_announce(fs_record_index *ops, fs_record_index *calls, const fs_record *record)
{
    if (fs_record_is_call(record)) fs_record_index_announce(calls, record->correlation);
    else if (fs_record_is_owner(record) && record->external >= 0) fs_record_index_announce(ops, record->external);
}

/* Add the announcements of another index. */
static inline void fs_record_index_merge(fs_record_index *index, const fs_record_index *other)
{
    if (other->count == 0) return;
    uint32_t count = index->count + other->count;
    fs_record_index_announce(index, other->least);
    fs_record_index_announce(index, other->largest);
    index->count = count;
}

/* Index the records of the pieces. FS_OUT_OF_MEMORY. */
fs_status fs_owners_create(fs_owners *owners, fs_error *err);
void fs_owners_clear(fs_owners *owners);

/* Move calls from threads without ops to the threads of their ops, before the hosts are listed. */
void fs_owners_move_calls(const fs_owners *owners);
/* Find the launcher of what each call launched, after the hosts are ordered and stored. FS_OUT_OF_MEMORY. */
fs_status fs_owners_find_launchers(fs_owners *owners, fs_error *err);

/* Return the API call that launched device work, or that waited; NULL: none. */
const fs_record *fs_owners_call(const fs_owners *owners, const fs_record *work);
/* Return the owner of device work or of a device annotation: an event of the store or FS_NONE. On any thread, as
 * fs_owners_call. */
uint32_t fs_owners_launcher(const fs_owners *owners, const fs_record *work, fs_launcher_counts *counts);

#endif
