/* The time that belongs to each op on the CPU. Private to csrc/accounting. */
#ifndef FS_ACCOUNTING_PIECES_H
#define FS_ACCOUNTING_PIECES_H

#include "summaries/intervals.h"
#include "table/table.h"

/* Fill `pieces` with the disjoint times, ascending, at which each work (the tag) is the innermost one on its thread; of
 * several threads, the work whose piece began first. `works` is sorted by begin, ties as in the store. */
fs_status fs_pieces_of_threads(fs_intervals *pieces, const fs_store *store, const fs_table *table,
                               const fs_intervals *works, fs_error *err);

#endif
