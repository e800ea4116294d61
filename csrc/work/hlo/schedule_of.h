/* The schedule of a module, to which works are tied. Private to csrc/work/hlo. */
#ifndef FS_WORK_HLO_SCHEDULE_OF_H
#define FS_WORK_HLO_SCHEDULE_OF_H

#include "work/hlo/align.h"
#include "work/hlo/hlo.h"

/* Add a module. runs, by instruction: fs_hlo_run_of. FS_OUT_OF_MEMORY; FS_VALUE_ERROR if calls of calls make it longer
 * than any program's. */
fs_status fs_schedules_add_module(fs_schedules *all, const fs_hlo_module *module, const uint8_t *runs, fs_error *err);

#endif
