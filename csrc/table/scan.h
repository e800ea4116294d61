/* Second step of a build: the nodes of events that have children or launched work. Private to csrc/table. */
#ifndef FS_TABLE_SCAN_H
#define FS_TABLE_SCAN_H

#include "table/build.h"

fs_status fs_build_scan(fs_build *build, fs_error *err);

/* Return the initial node of a host event, before its children are known. */
static inline fs_node fs_build_leaf(const fs_build *build, uint32_t index, uint32_t call)
{
    uint32_t at;
    const fs_chunk *chunk = fs_build_chunk(build, index, &at);
    uint32_t parent = fs_build_parent(build, chunk, at, index);
    fs_node node = {.call = call, .owner = FS_NONE, .stated = FS_NONE, .op = FS_NONE, .device = -1};
    bool own_time = chunk->duration[at] != FS_MISSING && !fs_event_is_asynchronous(chunk, at);
    if (own_time) node.self_cpu_ns = chunk->duration[at];
    node.covered_until = chunk->start[at];
    if (parent != FS_NONE) {
        const fs_node *above = fs_build_node(build, parent);
        node.owner = above->owner;
        node.stated = above->stated;
        node.stated_depth = above->stated_depth;
        node.op = above->op;
    }
    if (chunk->kind[at] == FS_EVENT_OP) node.op = index;
    bool yields = build->calls.calls[call].launch && node.owner != FS_NONE; /* to a rule for an op around it */
    if (yields) node.flags |= FS_NODE_YIELDS;
    else if (build->calls.calls[call].known) node.owner = index;
    if (!build->calls.calls[call].stated) return node;
    node.buried = node.stated_depth == FS_MOST_STATED;
    if (node.buried) return node;
    node.stated = index;
    node.stated_depth++;
    return node;
}

/* Return the next enclosing range with declared work, or FS_NONE. */
static inline uint32_t fs_build_outer_stated(fs_build *build, uint32_t range)
{
    uint32_t at, above;
    const fs_chunk *chunk = fs_build_chunk(build, range, &at);
    above = fs_build_parent(build, chunk, at, range);
    return above != FS_NONE ? fs_build_node(build, above)->stated : FS_NONE;
}

#endif
