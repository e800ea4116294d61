/* The order in which device work is added to a table. Private to csrc/table. */
#ifndef FS_TABLE_DEVICE_ORDER_H
#define FS_TABLE_DEVICE_ORDER_H

#include "table/build.h"

/* Sort the device events by start. FS_OUT_OF_MEMORY, FS_INTERRUPTED. */
fs_status fs_build_sort_works(fs_build *build, fs_error *err);

/* Group the sorted device events by the slice that adds them, and set first_work and end_work of each; those of no
 * slice come last. The same failures. */
fs_status fs_build_share_works(fs_build *build, fs_error *err);

#endif
