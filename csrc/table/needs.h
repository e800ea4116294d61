/* Calls whose work depends on another event: the op around them, an annotation, the op of the forward pass. Private to
 * csrc/table. */
#ifndef FS_TABLE_NEEDS_H
#define FS_TABLE_NEEDS_H

#include "table/survey.h"

/* Return whether what the work needs may be found in another event. The other needs are those of inferred.c and
 * devices.c. */
static inline bool fs_build_seeks(fs_work_needs needs)
{
    return needs == FS_NEEDS_OP || needs == FS_NEEDS_CALLER || needs == FS_NEEDS_FORWARD ||
           needs == FS_NEEDS_ANNOTATION;
}

/* Replace the calls of such events, in the order of the store, by the calls together with what they need.
 * FS_OUT_OF_MEMORY, FS_INTERRUPTED. */
fs_status fs_build_needs(fs_build *build, const fs_piece *pieces, fs_error *err);

#endif
