/* Samples of counters. Private to the reader of databases; fs_rows_metrics is declared in rows.h. */
#ifndef FS_SOURCES_SQLITE_METRICS_H
#define FS_SOURCES_SQLITE_METRICS_H

#include "sources/sqlite/tables.h"

/* Keep a METRIC; a row without an end, a device, a metric or a value is left out. FS_OUT_OF_MEMORY. */
fs_status fs_part_add_sample(fs_part *part, const fs_cell *cells, fs_error *err);

#endif
