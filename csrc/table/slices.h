/* Slices of a build: ranges of events that threads work on at once. Private to csrc/table.
 *
 *   a slice adds what its events do to its own groups and to nodes of its own events. What it adds to nodes of earlier
 *   slices goes to stand-ins, which are added to these nodes afterwards, in the order of slices. Nodes that have such
 *   children, directly or not, are the last to be complete: `spanning`. */
#ifndef FS_TABLE_SLICES_H
#define FS_TABLE_SLICES_H

#include "table/survey.h"

/* Divide the build into slices, and allocate its nodes and theirs. FS_OUT_OF_MEMORY, FS_INTERRUPTED. */
fs_status fs_build_divide(fs_build *build, fs_piece *pieces, fs_error *err);
void fs_build_free_slices(fs_build *build);

/* Run `body` for each slice: several at once. FS_INTERRUPTED. */
fs_status fs_build_each_slice(fs_build *build, void (*body)(fs_build *slice), fs_error *err);

/* Add the memory that a stand-in has summed up to its node, and empty the stand-in. */
void fs_build_join_memory(const fs_build *build, fs_node *node, fs_node *stand_in);

/* Add what the slices have summed up to the build. FS_INTERRUPTED. */
fs_status fs_build_join(fs_build *build, fs_error *err);

/* The slice of an event. */
static inline fs_build *fs_build_slice_of(fs_build *build, uint32_t index)
{
    return fs_build_slice(build, index / build->slice_events);
}

#endif
