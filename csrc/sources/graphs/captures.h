/* CUDA and HIP graphs as they were captured: which op launched each of their nodes.
 *
 *   a trace of the capture ── fs_captures_add ───► graphs: the launches between the calls that begin and end a capture,
 *                                                  in order, each with the kernel's name where the trace has it
 *   the watched process ──── fs_captures_add_node ► the op of a node, by the id that its replays carry
 *
 * Owners are events of the store that recorded the capture: the innermost op, range or frame around the launch. That
 * store must not change or go away meanwhile. */
#ifndef FS_SOURCES_GRAPHS_CAPTURES_H
#define FS_SOURCES_GRAPHS_CAPTURES_H

#include "store/store.h"

/* What a node does: the id of its kernel's name in fs_captures.symbols, or one of these. */
enum { FS_SYMBOL_KERNEL = FS_NONE, FS_SYMBOL_COPY = FS_NONE - 1, FS_SYMBOL_FILL = FS_NONE - 2 };

typedef struct {
    uint32_t symbol; /* FS_SYMBOL_KERNEL: a kernel whose name the capture does not record */
    uint32_t call;   /* event of the capture: the launch */
    uint32_t owner;  /* likewise, or FS_NONE: nothing was open */
    uint32_t chain;  /* equal for nodes whose owners and all they lie in have equal names and signatures */
    bool unknown;    /* nothing is known but what it does, as after an update */
} fs_capture_node;

typedef struct {
    uint32_t store;        /* index in fs_captures.stores */
    uint32_t first, count; /* nodes */
    uint32_t label;        /* an annotation around the capture whose name contains a number, or FS_NONE */
    uint32_t lane;         /* of the call that began the capture, or FS_NONE */
    int64_t begin;         /* start of the capture: owners that began earlier enclose all of it */
    uint32_t id;           /* of a graph whose nodes are known by their ids: the upper half of these; else 0 */
    bool branches;         /* its nodes may run in another order than they are listed in */
} fs_captured_graph;

/* The owner of the node with an id. */
typedef struct {
    uint64_t id; /* as in fs_launch.graph_node */
    uint32_t store, owner;
    int64_t begin; /* as in fs_captured_graph */
} fs_known_node;

/* A call of the joined store of which it is known what executable graph it launched. */
typedef struct {
    uint32_t call;  /* event */
    uint32_t graph; /* as fs_captured_graph.id */
} fs_tied_launch;

typedef struct {
    const fs_store **stores;
    uint32_t store_count, store_capacity;
    fs_captured_graph *graphs;
    uint32_t graph_count, graph_capacity;
    fs_capture_node *nodes;
    uint32_t node_count, node_capacity;
    fs_known_node *known; /* ascending by id, after fs_captures_sort */
    uint32_t known_count, known_capacity;
    fs_tied_launch *tied; /* ascending by call, after fs_captures_sort_tied */
    uint32_t tied_count, tied_capacity;
    fs_intern symbols; /* names of kernels */
    fs_intern chains;
    uint32_t unused;         /* launches of captures that overlap others, whose graph is unknown */
    const uint32_t *node_of; /* by event of the joined store: index in `known`, or FS_NONE; NULL: found by id */
} fs_captures;

/* An all-zero struct is empty. */
void fs_captures_clear(fs_captures *captures);

/* Add the graphs that the calls of a store captured. FS_OUT_OF_MEMORY. */
fs_status fs_captures_add(fs_captures *captures, const fs_store *store, fs_error *err);

/* Add a store without looking for graphs in it; *index is for fs_known_node.store. */
fs_status fs_captures_add_store(fs_captures *captures, const fs_store *store, uint32_t *index, fs_error *err);
fs_status fs_captures_add_node(fs_captures *captures, const fs_known_node *node, fs_error *err);

/* Add a graph without nodes, and nodes to the last graph; call and owner are events of its store, or FS_NONE. */
fs_status fs_captures_begin(fs_captures *captures, uint32_t store, int64_t begin, uint32_t label, fs_error *err);
fs_status fs_captures_append(fs_captures *captures, uint32_t symbol, uint32_t call, uint32_t owner, fs_error *err);

fs_status fs_captures_add_tied(fs_captures *captures, uint32_t call, uint32_t graph, fs_error *err);
void fs_captures_sort_tied(fs_captures *captures);
/* Return the id of the executable graph that a call launched; 0: unknown. */
uint32_t fs_captures_find_tied(const fs_captures *captures, uint32_t call);
/* Return the graph with an id, which is not 0, or NULL. Graphs with ids were added after all others, in their order. */
const fs_captured_graph *fs_captures_find_graph(const fs_captures *captures, uint32_t id);

/* Order the known nodes, of which the last one added with an id counts. */
void fs_captures_sort(fs_captures *captures);
const fs_known_node *fs_captures_find(const fs_captures *captures, uint64_t id);

/* Return the innermost annotation around a call whose name contains a number, such as a batch size; FS_NONE: none. */
uint32_t fs_captures_label_of(const fs_store *store, uint32_t event);

/* Return whether a call lies within another one, as that of the driver within the runtime's. */
bool fs_captures_is_inner_call(const fs_store *store, uint32_t event);

/* Finds the captured graph that a launch replayed, by the names of its kernels. Private to csrc/sources/graphs. */

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
