/* Gives the kernels of replayed graphs the ops that launched them when the graph was captured, in recordings of every
 * source.
 *
 *   replays: device work by the call that launched the graph ──┐
 *                                                              ├─► events of the replay, with the ops of the capture
 *   captures: by the id of the node; else by kernel names ─────┘   repeated before the work of each launch
 *
 * An op that the joined store itself recorded at the capture is FS_EVENT_CAPTURED, as is what encloses it.
 *
 * A launch matches a captured graph if its kernels have the names of the nodes in their order, or, on several streams,
 * if the names agree and each runs on one stream only. If work of the launch was not recorded, only those kernels match
 * for which all ways of fitting the names into the graph agree. Of several graphs that match, those must not differ in
 * their ops, or the numbers in the names of the annotations around capture and launch decide. If it is known which
 * graph a call launched (fs_captures_add_tied), no other matches. Whatever is left is counted, and its kernels have no
 * op. */
#ifndef FS_SOURCES_GRAPHS_REPLAYS_H
#define FS_SOURCES_GRAPHS_REPLAYS_H

#include "sources/graphs/captures.h"

typedef struct {
    int64_t graphs;    /* captured */
    int64_t launches;  /* of graphs, with work that was recorded */
    int64_t works;     /* kernels, copies and fills of these launches */
    int64_t matched;   /* of the works: their node was found; some nodes have no op */
    int64_t owned;     /* of the works: they got an op or a range */
    int64_t unseen;    /* launches whose kernels are those of no captured graph */
    int64_t ambiguous; /* launches that match several graphs of different ops */
    int64_t tied;      /* launches of which it is known, by the call, what executable graph they launched */
} fs_replay_report;

/* Copy the events of a store into an empty one, with the ops of replays. `captures` may be empty. Sets the report.
 * FS_OUT_OF_MEMORY. */
fs_status fs_replays_join(const fs_store *from, fs_captures *captures, fs_store *into, fs_replay_report *report,
                          fs_error *err);

/* Return whether a store has device work of graphs, so that joining may change it. */
bool fs_replays_exist(const fs_store *store);

#endif
