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

/* Put the pieces' records into an empty store. `own`: flopscope wrote the trace. Fills in what of the report is known
 * then. */
fs_status fs_join_pieces(fs_piece *pieces, uint32_t count, bool own, fs_store *store, fs_kineto_report *report,
                         fs_error *err);

#endif
