/* Instructions of XLA that kernels run. Private to the reader of databases; fs_rows_ties is declared in rows.h. */
#ifndef FS_SOURCES_SQLITE_TIES_H
#define FS_SOURCES_SQLITE_TIES_H

#include "sources/sqlite/tables.h"

/* Keep the instruction of a row, whose record was just added to the part. FS_OUT_OF_MEMORY. */
fs_status fs_part_add_tie(fs_part *part, const fs_cell *cells, fs_error *err);

#endif
