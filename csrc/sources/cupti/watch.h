/* Watches the process capture CUDA graphs: which op, range and Python call was open when each node was created, and
 * which nodes its clones are, in executable graphs and child graphs too. Costs nothing when a graph is launched, unless
 * its launches are logged.
 *
 *   node created   ► what was open on the thread in the running recorder, copied to a store of the watch;
 *                    else the time and the thread, until fs_watch_resolve finds what was open in another recording
 *   node cloned    ► the same for the clone: an executable graph is a clone, and its nodes' ids are in the records
 *   node updated   ► what the node it was updated from has; of new parameters alone, unknown
 *   destroyed      ► kept, as records of the last launches may be still to come; of many, the oldest are forgotten
 *   launched       ► while a recording wants it: which executable graph, for records without the ids of nodes
 *
 * The callbacks come from CUPTI, within the calls that capture, clone and instantiate. */
#ifndef FS_SOURCES_CUPTI_WATCH_H
#define FS_SOURCES_CUPTI_WATCH_H

#include "sources/graphs/replays.h"
#include "store/store.h"

typedef struct {
    int64_t kept;                    /* nodes that were created or cloned while watching, */
    int64_t nodes;                   /* and not destroyed */
    int64_t resolved;                /* of them: what was open is known */
    int64_t lost;                    /* events or nodes for which memory was missing */
    int64_t launches, launches_lost; /* launches of graphs that are logged, and for which there was no room */
} fs_watch_report;

/* Begin to watch, or do nothing if it does. fs_cupti_load must have succeeded. evict: if a client without a name holds
 * CUPTI's subscription, end it, as torch.profiler keeps one that it does not need. FS_RUNTIME_ERROR: another client
 * holds the subscription, or CUPTI is too old. */
fs_status fs_watch_start(bool evict, fs_error *err);

/* End watching. What is known stays. */
void fs_watch_stop(void);
bool fs_watch_is_on(void);
fs_watch_report fs_watch_state(void);

/* Log the launches of graphs whenever graphs are watched, until `on` is false: for a recording that fs_watch_join gets.
 * CUPTI calls back at launches in between, and at no others. */
void fs_watch_log(bool on);

/* Forget all nodes and launches. */
void fs_watch_forget(void);

/* A callback of CUPTI's resource domain: private to cupti.c, as the next one. */
void fs_watch_called(uint32_t function, const void *data);

/* A call has updated an executable graph, of which CUPTI before CUDA 13.0 tells nothing else: its nodes are unknown. */
void fs_watch_changed(void *executable);

/* A call of the driver that launches an executable graph has begun. */
void fs_watch_launched(void *executable);

/* Find what was open on the threads when nodes were created between begin and end (fs_clock_now), from a recording of
 * the same process whose times are `shift` ns less, and copy it. Return the number of nodes found in *found.
 * FS_OUT_OF_MEMORY. */
fs_status fs_watch_resolve(const fs_store *store, int64_t begin, int64_t end, int64_t shift, int64_t *found,
                           fs_error *err);

/* Learn what was open when nodes were created from the captures that a recording of this process has of itself, whose
 * times are `shift` ns less; FS_MISSING: unknown. */
fs_status fs_watch_learn(const fs_store *from, int64_t shift, const fs_captures *captures, fs_error *err);

/* Give the kernels of replays in a recording of this process their ops: fs_replays_join with the watched nodes, and
 * with the captures so far in `captures`, which is cleared, after fs_watch_learn. Launches that were logged tell
 * which graph its calls launched. */
fs_status fs_watch_join(const fs_store *from, int64_t shift, fs_captures *captures, fs_store *into,
                        fs_replay_report *report, fs_error *err);

#endif
