/* Python calls (frames) around events, which make no rows. Private to csrc/table. */
#ifndef FS_TABLE_FRAMES_H
#define FS_TABLE_FRAMES_H

#include "table/build.h"

/* Fill in build->has_frames, and in each frame's slot the nearest enclosing event that is not a frame, or FS_NONE.
 * FS_INTERRUPTED. */
fs_status fs_build_frames(fs_build *build, fs_error *err);

#endif
