/* The parts of a profile that separate rows further than their names: the step, stream, source line, module and stack
 * of each event. Private to csrc/table. */
#ifndef FS_TABLE_PARTS_H
#define FS_TABLE_PARTS_H

#include "table/build.h"

/* Fill in build->parts with the id of each event's part in table->parts, if the options ask for any; else leave it
 * NULL. FS_OUT_OF_MEMORY. */
fs_status fs_build_parts(fs_build *build, fs_error *err);

/* Return the innermost frame that encloses the event. Frames that ended before the event began are skipped: a generator
 * that holds a range open has left its frame inside the range. `frames`, by event: the result for each earlier one. */
uint32_t fs_build_innermost_frame(const fs_build *build, uint32_t index, const uint32_t *frames);

#endif
