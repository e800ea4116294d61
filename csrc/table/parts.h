/* The parts of a profile that separate rows further than their names: the step, stream, source line, module and stack
 * of each event. Private to csrc/table. */
#ifndef FS_TABLE_PARTS_H
#define FS_TABLE_PARTS_H

#include "table/build.h"

/* Fill in build->parts with the id of each event's part in table->parts, if the options ask for any; else leave it
 * NULL. FS_OUT_OF_MEMORY. */
fs_status fs_build_parts(fs_build *build, fs_error *err);

#endif
