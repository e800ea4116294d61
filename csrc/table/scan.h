/* Second step of a build: the nodes of events that have children or launched work. Private to csrc/table. */
#ifndef FS_TABLE_SCAN_H
#define FS_TABLE_SCAN_H

#include "table/build.h"

fs_status fs_build_scan(fs_build *build, fs_error *err);

/* Return the initial node of a host event, before its children are known. */
fs_node fs_build_leaf(const fs_build *build, uint32_t index, uint32_t call);

/* Return the next enclosing range with declared work, or FS_NONE. */
static inline uint32_t fs_build_outer_stated(fs_build *build, uint32_t range)
{
    uint32_t at, above;
    const fs_chunk *chunk = fs_build_chunk(build, range, &at);
    above = fs_build_parent(build, chunk, at, range);
    return above != FS_NONE ? fs_build_node(build, above)->stated : FS_NONE;
}

#endif
