/* Events to calls, nodes and groups, in the order of the store. Private to csrc/table. */
#ifndef FS_TABLE_SCAN_H
#define FS_TABLE_SCAN_H

#include "table/build.h"

fs_status fs_build_scan(fs_build *build, fs_error *err);

/* The node of a host event, as it is while nothing is known of what it encloses. */
fs_node fs_build_leaf(const fs_build *build, uint32_t index);
/* The node of a host event, made where it has none. */
fs_node *fs_build_node(fs_build *build, uint32_t index);

/* The next range outward from `range` whose work is stated, or FS_NONE. */
static inline uint32_t fs_build_outer_stated(fs_build *build, uint32_t range)
{
    uint32_t at, above;
    const fs_chunk *chunk = fs_event_chunk(build->store, range, &at);
    above = fs_build_parent(build, chunk, at, range);
    return above != FS_NONE ? fs_build_node(build, above)->stated : FS_NONE;
}

#endif
