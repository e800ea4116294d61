/* Assigns profiling overhead, which has no thread, to the thread of the shortest event around it.
 *
 * Events are visited from the shortest on; each takes all overheads within it that no shorter one has taken. They are
 * found with a tree over the overheads in order of start that holds the smallest end below each node. The time is O(n
 * log n) for any number of threads, nested events or overheads. */
#include "sources/kineto/overheads.h"

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"

typedef struct {
    fs_join *join;
    fs_host *overheads; /* in order of start */
    int64_t *ends;      /* the tree: nodes 1 …, leaves from `leaves` on; INT64_MAX: taken */
    uint32_t leaves;
    fs_host *around; /* events in which an overhead begins; `start` holds the length, for sorting */
    uint32_t count, capacity;
} placing;

/* An overhead without an end sorts just before taken ones. */
static int64_t end_of(const fs_host *host)
{
    return host->end == INT64_MAX ? INT64_MAX - 1 : host->end;
}

static void set_leaf(placing *all, uint32_t overhead, int64_t end)
{
    uint32_t node = all->leaves + overhead;
    all->ends[node] = end;
    for (node /= 2; node > 0; node /= 2) {
        int64_t left = all->ends[2 * node], right = all->ends[2 * node + 1];
        all->ends[node] = left < right ? left : right;
    }
}

/* Return the first overhead from `from` on that ends no later than `end`; FS_NONE: none. */
static uint32_t first_within(const placing *all, uint32_t from, int64_t end)
{
    uint32_t node = all->leaves + from;
    while (all->ends[node] > end) { /* go up to the next subtree on the right, if any, and into it */
        while ((node & 1) != 0) node /= 2;
        if (node == 0) return FS_NONE;
        node++;
    }
    while (node < all->leaves) node = all->ends[2 * node] <= end ? 2 * node : 2 * node + 1;
    return node - all->leaves;
}

static fs_status list_overheads(placing *all, fs_error *err)
{
    fs_join *join = all->join;
    uint32_t count = 0;
    for (all->leaves = 1; all->leaves < join->overhead_count;) all->leaves *= 2;
    FS_TRY(FS_NEW(&all->overheads, join->overhead_count, err));
    FS_TRY(FS_NEW(&all->ends, 2 * (size_t)all->leaves, err));
    for (uint32_t host = 0; host < join->host_count; host++)
        if (join->hosts[host].record->kind == FS_EVENT_OVERHEAD) all->overheads[count++] = join->hosts[host];
    FS_TRY(fs_hosts_sort(all->overheads, count, err));
    for (size_t node = 0; node < 2 * (size_t)all->leaves; node++) all->ends[node] = INT64_MAX;
    for (uint32_t i = 0; i < count; i++) all->ends[all->leaves + i] = end_of(&all->overheads[i]);
    for (uint32_t node = all->leaves; --node > 0;) {
        int64_t left = all->ends[2 * node], right = all->ends[2 * node + 1];
        all->ends[node] = left < right ? left : right;
    }
    return FS_OK;
}

static fs_status add_around(placing *all, const fs_host *event, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&all->around, all->count, &all->capacity, 64, err));
    int64_t length = event->end == INT64_MAX ? INT64_MAX : event->end - event->start;
    all->around[all->count++] = (fs_host){length, event->end, event->record};
    return FS_OK;
}

/* Return the first overhead that begins at `time` or later. `near`: a search hint at or before it. */
static uint32_t overhead_from(const placing *all, int64_t time, uint32_t near)
{
    uint32_t count = all->join->overhead_count, low = near, step = 1;
    while (low + step <= count && all->overheads[low + step - 1].start < time) {
        low += step;
        step *= 2;
    }
    uint32_t high = low + step <= count ? low + step - 1 : count;
    return FS_FIRST_NOT(i, low, high, all->overheads[i].start < time);
}

static fs_status list_around(placing *all, fs_error *err)
{
    const fs_join *join = all->join;
    uint32_t from = 0;
    for (uint32_t host = 0; host < join->host_count; host++) {
        const fs_host *event = &join->hosts[host];
        const fs_record *record = event->record;
        FS_POLL(host, err);
        if (host > 0 && record->lane != join->hosts[host - 1].record->lane) from = 0;
        if (record->kind == FS_EVENT_FRAME || record->kind == FS_EVENT_OVERHEAD || record->communication) continue;
        from = overhead_from(all, event->start, from);
        if (from == join->overhead_count || all->overheads[from].start > event->end) continue;
        FS_TRY(add_around(all, event, err));
    }
    return fs_hosts_sort(all->around, all->count, err);
}

static fs_status place(placing *all, fs_error *err)
{
    FS_TRY(list_overheads(all, err));
    FS_TRY(list_around(all, err));
    for (uint32_t i = 0; i < all->count && all->ends[1] != INT64_MAX; i++) {
        const fs_host *event = &all->around[i];
        FS_POLL(i, err);
        for (uint32_t found = overhead_from(all, event->record->start, 0);
             found < all->join->overhead_count && (found = first_within(all, found, end_of(event))) != FS_NONE;) {
            all->overheads[found].record->lane = event->record->lane;
            set_leaf(all, found, INT64_MAX);
        }
    }
    return FS_OK;
}

fs_status fs_join_place_overheads(fs_join *join, fs_error *err)
{
    placing all = {.join = join};
    fs_status status = place(&all, err);
    fs_free(all.overheads);
    fs_free(all.ends);
    fs_free(all.around);
    return status;
}
