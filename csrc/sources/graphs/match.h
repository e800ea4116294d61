/* Finds the captured graph that a launch replayed, by the names of its kernels. Private to csrc/sources/graphs. */
#ifndef FS_SOURCES_GRAPHS_MATCH_H
#define FS_SOURCES_GRAPHS_MATCH_H

#include "sources/graphs/captures.h"

typedef struct {
    bool found;
    bool ambiguous; /* several graphs match that differ in their ops */
    bool estimated; /* the names of the kernels do not prove the match */
    uint32_t graph;
} fs_match;

typedef struct {
    fs_captures *captures;
    fs_intern launches;         /* the works of launches, and their labels' numbers */
    struct fs_match_kept *kept; /* by id of launches */
    uint32_t kept_count;
} fs_matcher; /* zero except for captures: nothing kept yet */

void fs_matcher_clear(fs_matcher *matcher);

/* Match `count` works: symbols in order of node, or of start. lanes: their streams; NULL: they are in the order of
 * their nodes. label: the annotation around the launch, or NULL. nodes[i] receives the index of a node in captures, or
 * FS_NONE. FS_OUT_OF_MEMORY. */
fs_status fs_matcher_find(fs_matcher *matcher, const uint32_t *symbols, const uint32_t *lanes, uint32_t count,
                          const char *label, uint32_t *nodes, fs_match *match, fs_error *err);

#endif
