/* Sequence numbers count the forward ops of one thread, so two threads have equal ones. The op that made a node is the
 * last one with its number that began no later, on the lane that is unique for the number, else on the lane that most
 * nodes of the same "Fwd thread id" come from: these ids count threads of the process, and do not name them. Votes are
 * counted over all backward ops before the first is linked. */
#include "sources/kineto/backward.h"

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/sort.h"

enum { THREADS = 1 << FS_NODE_THREAD_BITS };

/* An op of the forward pass. */
typedef struct {
    int64_t sequence, start;
    uint32_t lane, index; /* in the store */
} forward_op;

/* The lane that made most nodes of a "Fwd thread id" (Boyer and Moore's vote). */
typedef struct {
    uint32_t lane, votes;
} elected;

typedef struct {
    const fs_join *join;
    forward_op *ops; /* by (sequence, lane, start) */
    uint32_t count, backward_count;
    elected *threads; /* by "Fwd thread id" */
} linking;

static int64_t sequence_of(const fs_record *record)
{
    return record->node >> FS_NODE_THREAD_BITS;
}

static uint32_t thread_of(const fs_record *record)
{
    return (uint32_t)(record->node & (THREADS - 1));
}

static bool has_node(const fs_record *record)
{
    return record->kind == FS_EVENT_OP && record->node != 0;
}

static int compare(const forward_op *a, const forward_op *b)
{
    if (a->sequence != b->sequence) return a->sequence < b->sequence ? -1 : 1;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    return (a->start > b->start) - (a->start < b->start);
}

static int compare_ops(const void *left, const void *right)
{
    const forward_op *a = left, *b = right;
    int order = compare(a, b);
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

/* Return the number of ops that are not after the key. */
static uint32_t ops_until(const linking *all, forward_op key)
{
    return FS_FIRST_NOT(i, 0, all->count, compare(&all->ops[i], &key) <= 0);
}

/* Return the op on a lane that made the node of a backward op, or FS_NONE. */
static uint32_t maker_on(const linking *all, const fs_record *record, uint32_t lane)
{
    uint32_t end = ops_until(all, (forward_op){sequence_of(record), record->start, lane, 0});
    const forward_op *op = end > 0 ? &all->ops[end - 1] : NULL;
    return op != NULL && op->sequence == sequence_of(record) && op->lane == lane ? op->index : FS_NONE;
}

/* Find the lanes of the forward ops with the number: true if there is one lane only, which is then in *lane. */
static bool find_lane(const linking *all, const fs_record *record, uint32_t *lane)
{
    int64_t sequence = sequence_of(record);
    uint32_t begin = ops_until(all, (forward_op){sequence - 1, INT64_MAX, UINT32_MAX, 0});
    uint32_t end = ops_until(all, (forward_op){sequence, INT64_MAX, UINT32_MAX, 0});
    if (begin == end) return false;
    *lane = all->ops[begin].lane;
    return all->ops[end - 1].lane == *lane;
}

static fs_status list_forward(linking *all, fs_error *err)
{
    const fs_join *join = all->join;
    uint32_t count = 0;
    for (uint32_t host = 0; host < join->host_count; host++) {
        const fs_record *record = join->hosts[host].record;
        FS_POLL(host, err);
        if (!has_node(record)) continue;
        if (thread_of(record) == 0) all->count++;
        else all->backward_count++;
    }
    if (all->count == 0 || all->backward_count == 0) return FS_OK;
    FS_TRY(FS_NEW(&all->ops, all->count, err));
    FS_TRY(FS_NEW_ZEROED(&all->threads, THREADS, err));
    for (uint32_t host = 0; host < join->host_count; host++) {
        const fs_record *record = join->hosts[host].record;
        FS_POLL(host, err);
        if (!has_node(record) || thread_of(record) != 0) continue;
        all->ops[count++] = (forward_op){sequence_of(record), record->start, record->lane, record->index};
    }
    return fs_sort(all->ops, count, sizeof *all->ops, compare_ops, err);
}

static void vote(linking *all, const fs_record *record)
{
    uint32_t lane;
    elected *thread = &all->threads[thread_of(record)];
    if (!find_lane(all, record, &lane)) return;
    if (thread->votes == 0) thread->lane = lane;
    if (thread->lane == lane) thread->votes++;
    else thread->votes--;
}

static void link_op(const linking *all, const fs_record *record)
{
    const elected *thread = &all->threads[thread_of(record)];
    uint32_t lane, forward = FS_NONE;
    if (find_lane(all, record, &lane)) forward = maker_on(all, record, lane);
    else if (thread->votes > 0) forward = maker_on(all, record, thread->lane);
    if (forward != FS_NONE && forward != record->index) fs_store_set_forward(all->join->store, record->index, forward);
}

static fs_status link_all(linking *all, fs_error *err)
{
    const fs_join *join = all->join;
    FS_TRY(list_forward(all, err));
    if (all->threads == NULL) return FS_OK;
    for (int linked = 0; linked < 2; linked++) {
        for (uint32_t host = 0; host < join->host_count; host++) {
            const fs_record *record = join->hosts[host].record;
            FS_POLL(host, err);
            if (!has_node(record) || thread_of(record) == 0) continue;
            if (linked) link_op(all, record);
            else vote(all, record);
        }
    }
    return FS_OK;
}

fs_status fs_join_backward(const fs_join *join, fs_error *err)
{
    linking all = {.join = join};
    if (join->backward_count == 0) return FS_OK;
    fs_status status = link_all(&all, err);
    fs_free(all.ops);
    fs_free(all.threads);
    return status;
}
