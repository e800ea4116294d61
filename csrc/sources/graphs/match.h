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
    uint32_t kept_count, kept_capacity;
} fs_matcher; /* zero except for captures: nothing kept yet */

void fs_matcher_clear(fs_matcher *matcher);

/* The works of a launch. */
typedef struct {
    const uint32_t *symbols; /* in order of node, or of start */
    const uint32_t *lanes;   /* their streams; NULL: they are in the order of their nodes */
    uint32_t count;
    bool identified;   /* they have the ids of their nodes: graphs whose nodes are known by id do not match by order */
    const char *label; /* the annotation around the launch, or NULL */
} fs_launched;

/* Find the graph. nodes[i] receives the index of a node in captures, or FS_NONE. FS_OUT_OF_MEMORY. */
fs_status fs_matcher_find(fs_matcher *matcher, const fs_launched *works, uint32_t *nodes, fs_match *match,
                          fs_error *err);

/* Match works, without the ids of their nodes, to the graph that is known to have been launched: by kind and order, if
 * it has as many of each kind. Works of a kind on several streams match only if one op launched all of them. Nodes of
 * which nothing is known match no work. Return the number of works that match; *estimated receives whether their order
 * counts, but need not be that of the nodes: the graph branches, or the kinds of the works are in another order. */
uint32_t fs_match_within(const fs_captures *captures, const fs_captured_graph *graph, const fs_launched *works,
                         uint32_t *nodes, bool *estimated);

#endif
