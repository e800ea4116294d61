/* What the watch on CUDA graphs (watch.h) knows: nodes, graphs, and what was open when nodes were created. Its owner
 * locks. Private to the CUPTI source. */
#ifndef FS_SOURCES_CUPTI_WATCHED_H
#define FS_SOURCES_CUPTI_WATCHED_H

#include "sources/graphs/captures.h"
#include "store/store.h"

enum {
    FS_WATCHED_FARTHEST_NS = 1000000, /* the clocks of a recording and of the watch may have drifted apart by this */
    FS_WATCHED_SLACK_NS = 2000,       /* and a time within a call by this */
};

/* What was open when a node was created. */
typedef struct {
    int64_t time;
    uint64_t thread;
    uint32_t owner; /* event of fs_watched.store; FS_NONE: unknown, or nothing */
    uint32_t graph; /* id */
    uint8_t type;   /* CUgraphNodeType */
    bool resolved;  /* something was open */
    bool placed;    /* found in a recording of torch */
} fs_watched_moment;

/* A node by its id, whose upper half is the id of its graph. */
typedef struct {
    uint64_t id;     /* 0: free */
    uint32_t moment; /* FS_NONE: unknown, as after an update */
    uint8_t type;    /* CUgraphNodeType */
    bool destroyed;
    bool linked; /* it depends on the node whose id is one less */
    bool cloned; /* from a node of another graph */
} fs_watched_node;

/* A graph by its id. Of an executable graph, its own end is reported, not that of its nodes. */
typedef struct {
    uint32_t id; /* 0: free */
    uint32_t nodes;
    uint32_t died; /* how many graphs had been destroyed then; 0: it was not */
    bool changed;  /* it was updated, nobody told how: what was open for its nodes is unknown */
} fs_watched_graph;

typedef struct {
    fs_store *store; /* what was open: copies, each with the chain that encloses it */
    fs_watched_moment *moments;
    uint32_t moment_count, moment_capacity;
    fs_watched_node *slots; /* hash tables: a power of two, at most half full */
    uint32_t slot_count, used;
    fs_watched_graph *graphs;
    uint32_t graph_slots, graphs_used;
    uint32_t died;      /* graphs destroyed so far */
    uint64_t destroyed; /* nodes of destroyed graphs that are still known */
    int64_t lost;       /* as in fs_watch_report */
    bool links_told;    /* CUPTI tells of dependencies */
} fs_watched;

/* An all-zero struct is empty. */
void fs_watched_clear(fs_watched *watched);

/* The node with an id, or NULL. */
fs_watched_node *fs_watched_find(const fs_watched *watched, uint64_t id);
/* The moment of a node, or NULL if it is unknown what was open then. */
const fs_watched_moment *fs_watched_moment_of(const fs_watched *watched, const fs_watched_node *node);
bool fs_watched_exists(const fs_watched *watched, const fs_watched_node *node);

/* Add a node, or replace it, and return it; count it as lost if there is no memory. NULL: it was, or its id is 0. */
fs_watched_node *fs_watched_set(fs_watched *watched, uint64_t id, uint32_t at, int32_t type);
/* Forget the moment of a node that turns out to be a clone, if it is the last one. */
void fs_watched_drop_moment(fs_watched *watched, const fs_watched_node *node);
/* Return whether the dependencies of a graph leave its nodes one order only, that of their ids, or are not told. They
 * are listed by id. */
bool fs_watched_is_chain(const fs_watched *watched, const fs_watched_node *const *nodes, uint32_t count);
void fs_watched_end_graph(fs_watched *watched, uint32_t id);
void fs_watched_change_graph(fs_watched *watched, uint32_t id);

/* Return whether so many nodes were destroyed that the oldest should be forgotten, and forget them: half of them, with
 * what was open for them alone. Nodes, moments and events get other places. */
bool fs_watched_is_large(const fs_watched *watched);
void fs_watched_forget_oldest(fs_watched *watched);

/* Copy an event of a recording and what encloses it, up to what began before `begin`, into the store as part of
 * `parent`. FS_OUT_OF_MEMORY. */
fs_status fs_watched_copy_chain(fs_watched *watched, const fs_store *from, uint32_t event, int64_t begin,
                                uint32_t parent, uint32_t *copy);

/* As fs_watch_resolve. */
fs_status fs_watched_resolve(fs_watched *watched, const fs_store *store, int64_t begin, int64_t end, int64_t shift,
                             int64_t *found, fs_error *err);

/* Find what was open when nodes were created in a recording that went on meanwhile: the calls of a capture created the
 * nodes of its graph, each within the time of the call and on its thread. `shift` may be wrong by the drift of clocks.
 * FS_OUT_OF_MEMORY. */
fs_status fs_watched_resolve_calls(fs_watched *watched, const fs_captures *captures, const fs_store *store,
                                   int64_t shift, fs_error *err);

/* Copy the events of fs_watched.store that are kept, all of them if `kept` is NULL; moved[i] receives the copy of event
 * i, or FS_NONE. FS_OUT_OF_MEMORY. */
fs_status fs_watched_copy(const fs_store *from, const bool *kept, fs_store *into, uint32_t *moved, fs_error *err);

#endif
