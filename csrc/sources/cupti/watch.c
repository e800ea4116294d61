/* From the callbacks of CUPTI to the ops of replayed graphs:
 *
 *   CUDA, any thread ── fs_watch_called ──► ids (CUPTI is asked) ──► lock ──► take: watch.of ─┐
 *                    ── fs_watch_launched ► id of the graph ───────► lock ──► watch.launches ─┤
 *                                                                                             │ copied under the lock
 *   a profile ── fs_watch_join ──► captures: nodes by id, graphs in order ◄───────────────────┘
 *                      └─► fs_replays_join (sources/graphs), without the lock
 *
 * Locks are taken in one order: `changing`, CUPTI's own, watch.lock, the recorder's, the store's. A callback may run
 * with locks of CUPTI held, so it never takes `changing`, and CUPTI is asked before watch.lock is taken; whoever starts
 * or stops callbacks does not hold watch.lock. Without memory a node is counted as lost and its owner is unknown, and
 * the program goes on. The generation is that of the process that started the watch: in a forked child the
 * watch is empty and callbacks return at once. */
#include "sources/cupti/watch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/memory.h"
#include "sources/cupti/cupti.h"
#include "sources/cupti/launches.h"
#include "sources/cupti/library.h"
#include "sources/cupti/watched.h"
#include "sources/native.h"
#include "store/event.h"

static struct {
    pthread_mutex_t lock;
    bool on, logs;
    uint32_t generation;
    fs_watched of;
    fs_launch_log launches;
    uint32_t last_from, last_copy; /* the chain copied last, of the running recorder */
    const fs_store *last_store;
    int64_t last_start;
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Held while the watch starts or stops. It is taken before the lock of the watch, and by no callback. */
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

/* What is open ----------------------------------------------------------------------------------------------------- */

/* Copy what is open on this thread in the running recorder, if any. Several nodes of one op share a copy. */
static uint32_t copy_open(bool *open)
{
    uint32_t copy = FS_NONE;
    fs_store *store = fs_recording_hold();
    *open = false;
    if (store != NULL && watch.of.store != NULL) {
        uint32_t event = fs_store_innermost(store);
        fs_store_hold(store);
        int64_t start = event != FS_NONE ? FS_EVENT_AT(store, event, start) : 0;
        bool same = store == watch.last_store && event == watch.last_from && start == watch.last_start;
        if (event != FS_NONE && same) copy = watch.last_copy;
        else if (event != FS_NONE && fs_watched_copy_chain(&watch.of, store, event, INT64_MIN, FS_NONE, &copy) != FS_OK)
            watch.of.lost++;
        *open = event != FS_NONE;
        fs_store_release(store);
        watch.last_store = store;
        watch.last_from = event;
        watch.last_start = start;
        watch.last_copy = copy;
    }
    fs_recording_release();
    return copy;
}

static uint32_t add_moment(uint64_t node, int32_t type)
{
    fs_watched *of = &watch.of;
    if (FS_LIST_ROOM(&of->moments, of->moment_count, &of->moment_capacity, 1024, NULL) != FS_OK) {
        of->lost++;
        return FS_NONE;
    }
    fs_watched_moment *made = &of->moments[of->moment_count];
    made->time = fs_clock_now();
    made->thread = (uint64_t)syscall(SYS_gettid);
    made->graph = (uint32_t)(node >> 32);
    made->type = (uint8_t)type;
    made->placed = false;
    made->owner = copy_open(&made->resolved);
    return of->moment_count++;
}

/* Callbacks -------------------------------------------------------------------------------------------------------- */

static uint64_t id_of(void *node)
{
    uint64_t id = 0;
    if (node == NULL || fs_cupti->graph_node_id == NULL) return 0;
    return fs_cupti->graph_node_id(node, &id) == FS_CUPTI_SUCCESS ? id : 0;
}

static uint32_t graph_id_of(int (*get)(void *, uint32_t *), void *graph)
{
    uint32_t id = 0;
    return get != NULL && graph != NULL && get(graph, &id) == FS_CUPTI_SUCCESS ? id : 0;
}

/* The node that this thread created last, or is creating. CUPTI of CUDA 13.0 tells the type of a node as its creation
 * starts, and not again. */
static _Thread_local struct {
    void *node;
    int32_t type;
    bool created;
} starting;

static int32_t type_of(const fs_cupti_graph *graph)
{
    return starting.node == graph->node ? starting.type : graph->node_type;
}

/* Keep track of the node that this thread creates. Return whether the callback says more than that: CUPTI is not asked
 * for the id of a node that does not exist yet, as while a stream is captured. */
static bool follow_creation(uint32_t function, const fs_cupti_graph *graph)
{
    if (function == FS_CUPTI_NODE_STARTS) {
        starting.node = graph->node;
        starting.type = graph->node_type;
        starting.created = false;
        return false;
    }
    bool creation = function == FS_CUPTI_NODE_CREATED || function == FS_CUPTI_NODE_LINKED;
    if (!creation || starting.node != graph->node) return true;
    if (function == FS_CUPTI_NODE_CREATED) starting.created = true;
    return function != FS_CUPTI_NODE_LINKED || starting.created;
}

/* What a callback is about, as ids: 0 where there is none, or CUPTI does not know it. */
typedef struct {
    uint64_t node, other; /* other: what it was cloned or updated from, or depends on */
    uint32_t ended;       /* the graph, executable or not, that was destroyed */
    int32_t type;         /* of the node */
} subject;

/* Ask CUPTI for the ids. Only members that a callback has are read: others may be undefined. */
static subject subject_of(uint32_t function, const fs_cupti_graph *graph)
{
    switch (function) {
    case FS_CUPTI_EXEC_DESTROYED:
        return (subject){.ended = graph_id_of(fs_cupti->graph_exec_id, graph->executable)};
    case FS_CUPTI_GRAPH_DESTROYED:
        return (subject){.ended = graph_id_of(fs_cupti->graph_id, graph->graph)};
    case FS_CUPTI_NODE_CREATED:
        return (subject){.node = id_of(graph->node), .type = type_of(graph)};
    case FS_CUPTI_NODE_CLONED:
        return (subject){.node = id_of(graph->node), .other = id_of(graph->original_node), .type = type_of(graph)};
    case FS_CUPTI_NODE_UPDATED:
        return (subject){.node = id_of(graph->node), .other = id_of(graph->original_node)};
    case FS_CUPTI_NODE_LINKED:
        return (subject){.node = id_of(graph->node), .other = id_of(graph->dependency)};
    default:
        return (subject){.node = id_of(graph->node)};
    }
}

/* It may come after the node's creation: that was at the clone, not at the capture. */
static void clone_node(const subject *of, fs_watched_node *node, const fs_watched_node *from)
{
    fs_watched_drop_moment(&watch.of, node);
    if (from == NULL && node == NULL) return;
    uint32_t moment = from != NULL ? from->moment : FS_NONE;
    node = fs_watched_set(&watch.of, of->node, moment, node != NULL ? node->type : of->type);
    if (node != NULL) node->cloned = true;
}

/* Change what is known, under the lock. */
static void take(uint32_t function, const subject *of)
{
    fs_watched_node *node = fs_watched_find(&watch.of, of->node), *from = fs_watched_find(&watch.of, of->other);
    switch (function) {
    case FS_CUPTI_NODE_CREATED:
        fs_watched_set(&watch.of, of->node, add_moment(of->node, of->type), of->type);
        break;
    case FS_CUPTI_NODE_CLONED:
        clone_node(of, node, from);
        break;
    case FS_CUPTI_NODE_LINKED:
        watch.of.links_told = true;
        if (node != NULL && of->other + 1 == of->node) node->linked = true;
        break;
    case FS_CUPTI_NODE_UPDATED:
        if (node != NULL) node->moment = from != NULL ? from->moment : FS_NONE;
        break;
    case FS_CUPTI_NODE_SET:
        if (node != NULL) node->moment = FS_NONE;
        break;
    case FS_CUPTI_NODE_DESTROYED:
        if (node != NULL) node->destroyed = true;
        break;
    default:
        fs_watched_end_graph(&watch.of, of->ended);
        break;
    }
}

/* CUPTI is asked before the lock is taken. */
void fs_watch_called(uint32_t function, const void *data)
{
    const fs_cupti_resource *resource = data;
    const fs_cupti_graph *graph = resource != NULL ? resource->descriptor : NULL;
    if (graph == NULL || watch.generation != fs_fork_generation() || !follow_creation(function, graph)) return;
    subject of = subject_of(function, graph);
    pthread_mutex_lock(&watch.lock);
    if (fs_watched_is_large(&watch.of) && !fs_cupti_is_capturing()) {
        fs_watched_forget_oldest(&watch.of);
        watch.last_store = NULL; /* its copy may have gone */
    }
    take(function, &of);
    pthread_mutex_unlock(&watch.lock);
}

void fs_watch_changed(void *executable)
{
    if (watch.generation != fs_fork_generation()) return;
    uint32_t id = graph_id_of(fs_cupti->graph_exec_id, executable);
    pthread_mutex_lock(&watch.lock);
    fs_watched_change_graph(&watch.of, id);
    pthread_mutex_unlock(&watch.lock);
}

void fs_watch_launched(void *executable)
{
    if (watch.generation != fs_fork_generation()) return;
    fs_logged_launch launch = {.time = fs_clock_now(),
                               .thread = (uint32_t)syscall(SYS_gettid),
                               .handle = fs_thread_handle(),
                               .graph = graph_id_of(fs_cupti->graph_exec_id, executable)};
    pthread_mutex_lock(&watch.lock);
    if (watch.logs) fs_launch_log_add(&watch.launches, &launch);
    pthread_mutex_unlock(&watch.lock);
}

/* Control ---------------------------------------------------------------------------------------------------------- */

/* In a forked child, other threads may have held the lock or left the tables half changed, and CUPTI is unavailable. */
static void leave_to_parent(void)
{
    memset(&watch, 0, sizeof watch);
    changing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    watch.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    watch.generation = FS_NONE;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, leave_to_parent);
}

fs_status fs_watch_start(bool evict, fs_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    fs_status status = FS_OK;
    pthread_once(&once, watch_forks);
    if (fs_cupti == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is not loaded");
    if (fs_cupti->graph_node_id == NULL)
        return fs_fail(err, FS_RUNTIME_ERROR,
                       "this CUPTI has no cuptiGetGraphNodeId; install CUPTI of CUDA 12 or later");
    pthread_mutex_lock(&changing);
    pthread_mutex_lock(&watch.lock);
    bool on = watch.on;
    if (watch.of.store == NULL) status = fs_store_create(&watch.of.store, err);
    watch.generation = fs_fork_generation();
    pthread_mutex_unlock(&watch.lock);
    /* Not under the lock: a callback of another thread may wait for it within CUPTI. */
    if (!on && status == FS_OK) status = fs_cupti_watch(true, evict, err);
    pthread_mutex_lock(&watch.lock);
    watch.on = status == FS_OK;
    bool logs = watch.on && watch.logs;
    pthread_mutex_unlock(&watch.lock);
    if (logs && !on) fs_cupti_watch_launches(true);
    pthread_mutex_unlock(&changing);
    return status;
}

void fs_watch_log(bool on)
{
    pthread_mutex_lock(&changing);
    pthread_mutex_lock(&watch.lock);
    bool turns = on != watch.logs, watching = watch.on;
    watch.logs = on;
    if (turns && on) fs_launch_log_begin(&watch.launches);
    pthread_mutex_unlock(&watch.lock);
    if (turns && watching) fs_cupti_watch_launches(on);
    pthread_mutex_unlock(&changing);
}

void fs_watch_stop(void)
{
    pthread_mutex_lock(&changing);
    pthread_mutex_lock(&watch.lock);
    bool on = watch.on;
    watch.on = false;
    pthread_mutex_unlock(&watch.lock);
    if (on) FS_IGNORE(fs_cupti_watch(false, false, NULL));
    pthread_mutex_unlock(&changing);
}

bool fs_watch_is_on(void)
{
    return watch.on;
}

fs_watch_report fs_watch_state(void)
{
    pthread_mutex_lock(&watch.lock);
    fs_watch_report report = {.kept = watch.of.used,
                              .lost = watch.of.lost,
                              .launches = watch.launches.count,
                              .launches_lost = watch.launches.lost};
    for (uint32_t i = 0; i < watch.of.slot_count; i++) {
        const fs_watched_node *slot = &watch.of.slots[i];
        if (!fs_watched_exists(&watch.of, slot)) continue;
        report.nodes++;
        report.resolved += fs_watched_moment_of(&watch.of, slot) != NULL;
    }
    pthread_mutex_unlock(&watch.lock);
    return report;
}

void fs_watch_forget(void)
{
    fs_store *empty = NULL;
    pthread_mutex_lock(&watch.lock);
    if (watch.on) FS_IGNORE(fs_store_create(&empty, NULL)); /* without memory, nodes are unknown */
    fs_watched_clear(&watch.of);
    fs_launch_log_clear(&watch.launches);
    watch.of.store = empty;
    watch.last_store = NULL;
    pthread_mutex_unlock(&watch.lock);
}

/* Joining ---------------------------------------------------------------------------------------------------------- */

fs_status fs_watch_resolve(const fs_store *store, int64_t begin, int64_t end, int64_t shift, int64_t *found,
                           fs_error *err)
{
    pthread_mutex_lock(&watch.lock);
    fs_status status = fs_watched_resolve(&watch.of, store, begin, end, shift, found, err);
    pthread_mutex_unlock(&watch.lock);
    return status;
}

static int compare_nodes(const void *left, const void *right)
{
    uint64_t a = (*(const fs_watched_node *const *)left)->id, b = (*(const fs_watched_node *const *)right)->id;
    return (a > b) - (a < b);
}

static uint32_t symbol_of(uint8_t type)
{
    return type == FS_CUPTI_NODE_KERNEL ? FS_SYMBOL_KERNEL
           : type == FS_CUPTI_NODE_COPY ? FS_SYMBOL_COPY
                                        : FS_SYMBOL_FILL;
}

/* Of the nodes of a graph that was cloned, keep the clones: the driver adds a node of its own, without work, to an
 * executable graph. Return their number. */
static uint32_t keep_clones(const fs_watched_node **nodes, uint32_t count)
{
    uint32_t clones = 0;
    for (uint32_t i = 0; i < count; i++)
        if (nodes[i]->cloned) nodes[clones++] = nodes[i];
    return clones > 0 ? clones : count;
}

/* Add the graphs for records without the ids of nodes, as torch.profiler wrote them up to torch 2.11: their kernels are
 * matched in the order of the nodes. The upper half of a node's id is that of its graph, of an executable graph too. */
static fs_status add_graphs(fs_captures *captures, uint32_t index, const uint32_t *moved, const fs_watched_node **nodes,
                            uint32_t count, fs_error *err)
{
    qsort(nodes, count, sizeof *nodes, compare_nodes);
    for (uint32_t first = 0, next; first < count; first = next) {
        for (next = first; next < count && nodes[next]->id >> 32 == nodes[first]->id >> 32;) next++;
        if (nodes[first]->id >> 32 == 0) continue;
        FS_TRY(fs_captures_begin(captures, index, INT64_MIN, FS_NONE, err));
        fs_captured_graph *graph = &captures->graphs[captures->graph_count - 1];
        graph->id = (uint32_t)(nodes[first]->id >> 32);
        uint32_t end = first + keep_clones(nodes + first, next - first);
        graph->branches = !fs_watched_is_chain(&watch.of, nodes + first, end - first);
        for (uint32_t i = first; i < end; i++) {
            if (nodes[i]->type > FS_CUPTI_NODE_FILL) continue; /* no work of the device */
            const fs_watched_moment *at = fs_watched_moment_of(&watch.of, nodes[i]);
            uint32_t owner = at != NULL ? at->owner : FS_NONE;
            if (owner != FS_NONE) owner = moved[owner];
            FS_TRY(fs_captures_append(captures, symbol_of(nodes[i]->type), FS_NONE, owner, err));
            captures->nodes[captures->node_count - 1].unknown = at == NULL;
        }
    }
    return FS_OK;
}

static fs_status add_nodes(fs_captures *captures, uint32_t index, const uint32_t *moved, const fs_watched_node **nodes,
                           fs_error *err)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < watch.of.slot_count; i++) {
        const fs_watched_node *slot = &watch.of.slots[i];
        if (slot->id == 0) continue;
        bool works = slot->type <= FS_CUPTI_NODE_FILL;
        if (works || slot->linked) nodes[count++] = slot; /* instantiating drops empty nodes without links */
        const fs_watched_moment *at = fs_watched_moment_of(&watch.of, slot);
        if (at == NULL) continue;
        uint32_t owner = at->owner;
        fs_known_node node = {slot->id, index, owner != FS_NONE ? moved[owner] : FS_NONE, INT64_MIN};
        FS_TRY(fs_captures_add_node(captures, &node, err));
    }
    fs_captures_sort(captures);
    return add_graphs(captures, index, moved, nodes, count, err);
}

/* Add what is known now, as a copy: graphs are captured while a recording is joined. */
static fs_status add_known(fs_captures *captures, fs_store *copy, fs_error *err)
{
    uint32_t index, *moved = fs_malloc((fs_store_count(watch.of.store) + (size_t)1) * sizeof *moved);
    const fs_watched_node **nodes = fs_malloc((watch.of.used + (size_t)1) * sizeof *nodes);
    fs_status status = FS_OK;
    if (nodes == NULL || moved == NULL) status = fs_no_memory(err);
    if (status == FS_OK) status = fs_watched_copy(watch.of.store, NULL, copy, moved, err);
    if (status == FS_OK) status = fs_captures_add_store(captures, copy, &index, err);
    if (status == FS_OK) status = add_nodes(captures, index, moved, nodes, err);
    fs_free(moved);
    fs_free(nodes);
    return status;
}

fs_status fs_watch_learn(const fs_store *from, int64_t shift, const fs_captures *captures, fs_error *err)
{
    fs_status status = FS_OK;
    pthread_mutex_lock(&watch.lock);
    if (watch.of.store != NULL && shift != FS_MISSING)
        status = fs_watched_resolve_calls(&watch.of, captures, from, shift, err);
    pthread_mutex_unlock(&watch.lock);
    return status;
}

fs_status fs_watch_join(const fs_store *from, int64_t shift, fs_captures *captures, fs_store *into,
                        fs_replay_report *report, fs_error *err)
{
    fs_store *copy = NULL;
    fs_launch_log launches = {0};
    FS_TRY(fs_watch_learn(from, shift, captures, err));
    FS_TRY(fs_store_create(&copy, err));
    pthread_mutex_lock(&watch.lock);
    fs_status status = shift != FS_MISSING ? fs_launch_log_copy(&watch.launches, from, shift, &launches, err) : FS_OK;
    if (status == FS_OK && watch.of.store != NULL) status = add_known(captures, copy, err);
    pthread_mutex_unlock(&watch.lock);
    if (status == FS_OK) status = fs_launch_log_tie(&launches, from, shift, captures, err);
    if (status == FS_OK) status = fs_replays_join(from, captures, into, report, err);
    fs_launch_log_clear(&launches);
    fs_captures_clear(captures); /* it refers to the copy */
    fs_store_destroy(copy);
    return status;
}
