/* The records of a trace's pieces, into a store: joined, linked and nested. Private to the trace source.
 *
 * The rules are those by which torch makes its tables of the same events (torch/autograd/profiler.py,
 * _parse_kineto_results, and profiler_util.py, EventList._build_tree), so that the rows are the same:
 *
 *   - Device work belongs to the op around the API call that launched it (owners.h).
 *   - On each thread, in order of (start, -end), an event lies in the last one before it that has not ended when it
 *     starts and does not end before it does. Annotations of collectives take no part.
 *   - The only child of an event of the same name is one with it.
 *   - An event has the memory of all records within [start, end], whatever thread they are of.
 *   - Overhead, which has no thread, lies in the shortest event around it.
 *
 * Rounded times, as in old traces with whole µs, may put the end of an event after that of the one around it. It still
 * lies in that one if it ends later by no more than the rounding, and began earlier than that before the other's end.
 *
 * Contradictions are counted: device work whose "External id" names another op than the one around its call, and events
 * of a thread that overlap without one lying in the other.
 */
#ifndef FS_SOURCES_KINETO_JOIN_H
#define FS_SOURCES_KINETO_JOIN_H

#include "sources/kineto/piece.h"

/* A host event on its way into the store. */
typedef struct {
    int64_t start, end; /* of what has no duration, INT64_MAX */
    fs_record *record;
} fs_host;

static inline int64_t fs_record_end(const fs_record *record)
{
    return record->duration == FS_MISSING ? INT64_MAX : record->start + record->duration;
}

typedef struct {
    fs_store *store;
    fs_host *hosts;     /* by lane; each lane in order of (start, -end) */
    uint32_t *firsts;   /* by lane of the store: where its hosts begin; one more at the end */
    uint32_t *parents;  /* by host: the event around it that is no frame, or FS_NONE */
    uint32_t *frames;   /* by host: the innermost frame around it within that, or FS_NONE; NULL without frames */
    uint32_t *children; /* by host: how many events that are no frames lie directly in it */
    uint32_t *ones;     /* by host: what it is one with, or itself */
    uint32_t host_count, overhead_count, frame_count;
    fs_host *memory;    /* records of memory in order of time */
    uint32_t memory_count;
    fs_piece *pieces;
    uint32_t piece_count;
    int64_t *processes; /* by lane of the store: the process of its threads or its stream's work, -1: not known */
    uint32_t process_count, process_capacity;
    bool own;                           /* flopscope wrote the trace */
    int64_t slack;                      /* ns by which rounding may have moved the end of an event */
    int64_t contradicting, overlapping; /* as fs_kineto_report counts them */
} fs_join;

/* For each record of all pieces, in order. */
#define FS_EACH_RECORD(join, record)                                                                        \
    for (uint32_t piece_ = 0; piece_ < (join)->piece_count; piece_++)                                       \
        for (fs_record_block *block_ = (join)->pieces[piece_].first; block_ != NULL; block_ = block_->next) \
            for (fs_record *record = block_->records; record < block_->records + block_->count; record++)

/* Whether an event lies in one that does not come after it. */
static inline bool fs_host_lies_in(const fs_host *host, const fs_host *around, int64_t slack)
{
    if (host->start >= around->end) return false;
    if (host->end <= around->end) return true;
    return host->end - slack <= around->end && host->start + slack < around->end;
}

/* nest.c: fill in parents, frames, children and ones. */
fs_status fs_join_nest(fs_join *join, fs_error *err);
/* Put hosts in order of (start, -end), equal ones as they came. FS_OUT_OF_MEMORY. */
fs_status fs_hosts_sort(fs_host *hosts, uint32_t count, fs_error *err);

/* overheads.c: put each overhead on the thread of the shortest event around it. Once nested; then nest again. */
fs_status fs_join_place_overheads(fs_join *join, fs_error *err);

/* memory.c: append the records of memory, once the hosts are in the store. */
fs_status fs_join_memory(fs_join *join, fs_error *err);

typedef struct {
    int64_t base; /* "baseTimeNanoseconds", 0 where there is none */
    bool own;     /* flopscope wrote the trace */
} fs_kineto_head_facts;

/* head.c: tell the store what the head's "deviceProperties" say, and what the reading needs of it. */
fs_status fs_kineto_read_head(const char *head, size_t size, fs_store *store, fs_kineto_head_facts *facts,
                              fs_error *err);

/* Put the pieces' records into an empty store. `own`: flopscope wrote the trace. Fills in what of the report is known
 * then. */
fs_status fs_join_pieces(fs_piece *pieces, uint32_t count, bool own, fs_store *store, fs_kineto_report *report,
                         fs_error *err);

#endif
