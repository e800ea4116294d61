/* Times in which any device work of a row ran, and what counters counted in it. Private to csrc/table. */
#ifndef FS_TABLE_BUSY_H
#define FS_TABLE_BUSY_H

#include "table/build.h"

/* Add the busy times of all rows, their device_timing and, if there are counters, counted_sums; and fill in `places`,
 * unless it is NULL. `works` is in order of start. FS_OUT_OF_MEMORY, FS_INTERRUPTED. */
fs_status fs_build_busy(fs_build *build, fs_error *err);

#endif
