/* Last step of a build with fs_table_options.calls: which call, and so which row, each event belongs to. Private to
 * csrc/table. */
#ifndef FS_TABLE_EVENT_CALLS_H
#define FS_TABLE_EVENT_CALLS_H

#include "table/build.h"

/* Fill the table's calls: places[group] is the row of a group. FS_OUT_OF_MEMORY. */
fs_status fs_build_event_calls(fs_build *build, const uint32_t *places, fs_error *err);

#endif
