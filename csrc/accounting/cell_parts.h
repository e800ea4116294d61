/* The parts of the accounting to which cells and gaps belong, and the ops of cells. Private to csrc/accounting. */
#ifndef FS_ACCOUNTING_CELL_PARTS_H
#define FS_ACCOUNTING_CELL_PARTS_H

#include "accounting/accounting.h"

/* Fill in `part` and `op` of all cells, and `part` of all gaps. FS_OUT_OF_MEMORY. */
fs_status fs_cell_parts_find(fs_accounting *accounting, const fs_table *table, fs_error *err);

#endif
