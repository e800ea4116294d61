/* Host events between the pieces and the store. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_HOSTS_H
#define FS_SOURCES_KINETO_HOSTS_H

#include "sources/kineto/records.h"

/* A host event before it is stored. */
typedef struct {
    int64_t start, end; /* end: INT64_MAX without a duration */
    fs_record *record;
} fs_host;

static inline int64_t fs_record_end(const fs_record *record)
{
    return record->duration == FS_MISSING ? INT64_MAX : record->start + record->duration;
}

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
    bool own;                           /* the trace was written by flopscope */
    bool own_memory;                    /* memory belongs to events of its own thread alone */
    bool keeps_alike;                   /* an only child is not merged with a parent of its name */
    int64_t slack;                      /* ns by which rounding may have moved the end of an event */
    int64_t contradicting, overlapping; /* as in fs_kineto_report */
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

/* List the hosts by lane in the order of the text, and the records of memory. FS_OUT_OF_MEMORY. */
fs_status fs_hosts_list(fs_join *join, fs_error *err);
/* List the hosts again, after lanes have changed. FS_OUT_OF_MEMORY. */
fs_status fs_hosts_regroup(fs_join *join, fs_error *err);

/* Sort hosts by (start, -end); the sort is stable. FS_OUT_OF_MEMORY. */
fs_status fs_hosts_sort(fs_host *hosts, uint32_t count, fs_error *err);

#endif
