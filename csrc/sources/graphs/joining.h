/* What the steps of fs_replays_join share. Private to csrc/sources/graphs.
 *
 *   replays   lists the work of graphs, orders it, and finds the owners of its nodes
 *   repeat    copies the store, with the ops of the owners before the work of each launch */
#ifndef FS_SOURCES_GRAPHS_JOINING_H
#define FS_SOURCES_GRAPHS_JOINING_H

#include "sources/graphs/replays.h"
#include "store/api_calls.h"
#include "store/event.h"
#include "store/signature.h"

/* Device work of a graph. */
typedef struct {
    uint64_t order; /* id of the node, or start */
    int64_t start;
    uint32_t launch, event;
    uint32_t round;        /* how often its node ran before in this launch, in the body of a loop */
    uint32_t owner, store; /* of the capture; owner FS_NONE: unknown */
    uint32_t call;         /* of the capture: the launch, or FS_NONE */
    uint32_t graph;        /* id of the executable graph that its call launched; 0: unknown */
    int64_t begin;         /* of the capture */
    uint32_t copy;         /* the event that launched it, in the joined store; FS_NONE: as before */
    uint32_t mark;         /* the range of its name, likewise */
    bool found, estimated; /* its node was found, by names that do not prove it */
    bool done;             /* its launch has its ops */
} fs_replayed;

typedef struct {
    const fs_store *from;
    fs_captures *captures;
    fs_store *into;
    fs_replay_report *report;
    fs_api_calls calls;
    fs_replayed *works;
    uint32_t work_count;
    uint32_t *by_event; /* by event: index in works + 1; 0: none */
    uint32_t **copies;  /* by store of the captures and event: the copy for the current launch */
    uint32_t **epochs;  /* likewise: the launch and the annotation that the copy is for */
    uint32_t *moved;    /* by event of from: its index in into */
    bool *captured;     /* by event of from: FS_EVENT_CAPTURED */
    uint32_t epoch;     /* of the last copies */
    uint32_t *marks;    /* by name of a mark: its range in the launch of */
    uint32_t *marked;   /* the work of this index + 1 */
} fs_joining;

static inline bool fs_launch_of(const fs_store *store, uint32_t signature, fs_launch *launch)
{
    return signature != FS_NONE && fs_launch_decode(fs_store_signature_bytes(store, signature).bytes, launch);
}

static inline uint32_t fs_flags_of(const fs_store *store, uint32_t event)
{
    return event != FS_NONE ? FS_EVENT_AT(store, event, flags) : 0;
}

/* Fill all->into, once the owners of all works are known. FS_OUT_OF_MEMORY; FS_INTERRUPTED. */
fs_status fs_joining_repeat(fs_joining *all, fs_error *err);

#endif
