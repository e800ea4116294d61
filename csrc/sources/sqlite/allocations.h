/* Memory that a program allocates and frees. A free may name only the address: its size and device are those of the
 * allocation. Private to the reader of databases. */
#ifndef FS_SOURCES_SQLITE_ALLOCATIONS_H
#define FS_SOURCES_SQLITE_ALLOCATIONS_H

#include "sources/sqlite/tables.h"

/* Keep the address of a change of memory: its record, which was just added to the part; its bytes are negative for a
 * free, and FS_MISSING for one of unknown size. FS_OUT_OF_MEMORY. */
fs_status fs_part_add_allocation(fs_part *part, int64_t process, int64_t address, fs_record *record, fs_error *err);

/* Fill in the frees, before the records are joined. Those of unknown allocations get 0 bytes, and are counted.
 * FS_OUT_OF_MEMORY; FS_INTERRUPTED. */
fs_status fs_rows_match_frees(const fs_rows *rows, fs_rows_report *report, fs_error *err);

#endif
