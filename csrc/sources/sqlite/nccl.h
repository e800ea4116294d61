/* Messages of NCCL in databases: its payloads, read by their schemas, for sources/nccl.h. Private to the reader of
 * databases. */
#ifndef FS_SOURCES_SQLITE_NCCL_H
#define FS_SOURCES_SQLITE_NCCL_H

#include "sources/sqlite/tables.h"

/* Keep a field of a payload's schema: a FIELD row. FS_OUT_OF_MEMORY. */
fs_status fs_rows_keep_field(fs_rows *rows, const fs_cell *cells, fs_error *err);

/* Keep what a range tells about NCCL: its record, which was just added to the part. FS_OUT_OF_MEMORY. */
fs_status fs_part_add_nccl(const fs_rows *rows, fs_part *part, const fs_cell *cells, fs_span text, fs_record *record,
                           fs_error *err);

/* Give the kernels in the store their messages, once the records have indices. FS_OUT_OF_MEMORY; FS_INTERRUPTED. */
fs_status fs_rows_join_nccl(const fs_rows *rows, fs_store *store, fs_rows_report *report, fs_error *err);

#endif
