/* Joins the records of a trace's pieces, links and nests them in a store. Private to the trace source.
 *
 * The rules are those by which torch builds its tables from the same events (torch/autograd/profiler.py,
 * _parse_kineto_results, and profiler_util.py, EventList._build_tree), so that the rows are the same:
 *
 *   - Device work belongs to the op around the API call that launched it (owners.h).
 *   - On each thread, in order of (start, -end), an event is nested in the last earlier one that is still open when it
 *   starts and does not end before it does. Annotations of collectives are not nested.
 *   - An only child with its parent's name is merged with the parent. So is flopscope's call with the arguments of its
 *   parent, which torch would list.
 *   - An event gets the memory of all records within [start, end], of any thread.
 *   - Overhead, which has no thread, is nested in the shortest event around it.
 *
 * Rounded times, as in old traces with whole µs, may move the end of an event past its parent's. It is still nested if
 * it ends later by no more than the rounding and began before the parent's end by more than that.
 *
 * Contradictions are counted: device work whose "External id" names another op than the one around its call, and events
 * of a thread that overlap without being nested. */
#ifndef FS_SOURCES_KINETO_JOIN_H
#define FS_SOURCES_KINETO_JOIN_H

#include "sources/kineto/piece.h"

typedef struct {
    bool own;         /* the trace was written by flopscope */
    bool keeps_alike; /* an only child is not merged with a parent of its name */
    bool own_memory;  /* memory belongs to events of its own thread alone */
} fs_join_options;

/* Put the pieces' records into an empty store. Fills in part of the report. FS_OUT_OF_MEMORY. */
fs_status fs_join_pieces(fs_piece *pieces, uint32_t count, fs_join_options options, fs_store *store,
                         fs_kineto_report *report, fs_error *err);

#endif
