/* CUDA graphs: the work of a replayed node belongs to the op that captured the node. Private to the reader of
 * databases.
 *
 *   kernel ── its node ── cloned from ──► … ──► the node that was captured ── thread, time ──► the op around it
 *
 * The nodes are those of the database; the ops of replays are events of their own (sources/graphs/replays.h). */
#ifndef FS_SOURCES_SQLITE_GRAPHS_H
#define FS_SOURCES_SQLITE_GRAPHS_H

#include "sources/sqlite/tables.h"

/* Keep a NODE. FS_OUT_OF_MEMORY. */
fs_status fs_part_add_node(fs_part *part, const fs_cell *cells, fs_error *err);

/* After the join: give the work of graphs its ops, in a store in the place of *store. Counts report->captured and
 * estimated. FS_OUT_OF_MEMORY; FS_INTERRUPTED. */
fs_status fs_rows_join_graphs(const fs_rows *rows, fs_store **store, fs_rows_report *report, fs_error *err);

/* Instructions of XLA that kernels run. Private to the reader of databases; fs_rows_ties is declared in rows.h. */

/* Keep the instruction of a row, whose record was just added to the part. FS_OUT_OF_MEMORY. */
fs_status fs_part_add_tie(fs_part *part, const fs_cell *cells, fs_error *err);

#endif
