/* The order is by start and then longest first, so that a parent precedes its children. The sort is stable, and each of
 * its passes leaves every host in one of the two buffers; an interruption copies back what is there. Traces are nearly
 * sorted, so finding the runs that exist costs a pass, and a merge of k runs log k. */
#include "sources/kineto/hosts.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"

static inline bool comes_before(const fs_host *a, const fs_host *b)
{
    return a->start < b->start || (a->start == b->start && a->end > b->end);
}

/* Return the end of the ordered run that begins at `from`. */
static uint32_t run_end(const fs_host *hosts, uint32_t from, uint32_t count)
{
    uint32_t at = from + 1;
    while (at < count && !comes_before(&hosts[at], &hosts[at - 1])) at++;
    return at < count ? at : count;
}

static void merge(const fs_host *left, uint32_t left_count, const fs_host *right, uint32_t right_count, fs_host *out)
{
    while (left_count > 0 && right_count > 0) {
        if (comes_before(right, left)) *out++ = *right++, right_count--;
        else *out++ = *left++, left_count--;
    }
    memcpy(out, left, left_count * sizeof *left);
    memcpy(out + left_count, right, right_count * sizeof *right);
}

/* A merge sort of natural runs: a trace consists of a few long runs of ops, API calls and frames. */
fs_status fs_hosts_sort(fs_host *hosts, uint32_t count, fs_error *err)
{
    if (count == 0 || run_end(hosts, 0, count) == count) return FS_OK;
    fs_host *room = fs_malloc(count * sizeof *room), *from = hosts, *to = room;
    if (room == NULL) return fs_no_memory(err);
    fs_status status = FS_OK;
    for (uint32_t runs = 2; runs > 1 && status == FS_OK;) {
        runs = 0;
        status = fs_interrupt_poll(err);
        for (uint32_t first = 0; first < count; runs++) {
            uint32_t second = run_end(from, first, count);
            uint32_t end = second < count ? run_end(from, second, count) : second;
            merge(from + first, second - first, from + second, end - second, to + first);
            first = end;
        }
        fs_host *swap = from;
        from = to;
        to = swap;
    }
    if (from != hosts) memcpy(hosts, from, count * sizeof *hosts);
    fs_free(room);
    return status;
}

/* Listing ---------------------------------------------------------------------------------------------------------- */

/* Each thread counts, and then places, the hosts of a group of pieces. */
typedef struct {
    fs_join *join;
    uint32_t *places; /* by group and lane, memory last: the number of hosts, and then the place of the next one */
    uint32_t lanes, groups;
} listing;

static void list_group(const listing *all, uint32_t group, bool placing)
{
    const fs_join *join = all->join;
    uint32_t *places = all->places + group * (size_t)(all->lanes + 1), *memory = places + all->lanes;
    uint32_t piece = (uint32_t)((uint64_t)join->piece_count * group / all->groups);
    uint32_t end = (uint32_t)((uint64_t)join->piece_count * (group + 1) / all->groups);
    for (; piece < end; piece++) {
        for (fs_record_block *block = join->pieces[piece].first; block != NULL; block = block->next) {
            if (fs_interrupted()) return;
            for (fs_record *record = block->records; record < block->records + block->count; record++) {
                bool host = fs_record_is_host(record);
                if (!host && record->kind != FS_EVENT_MEMORY) continue;
                uint32_t place = host ? places[record->lane]++ : (*memory)++;
                if (!placing) continue;
                if (host) join->hosts[place] = (fs_host){record->start, fs_record_end(record), record};
                else join->memory[place] = (fs_host){record->start, record->start, record};
            }
        }
    }
}

static void count_groups(void *context, int64_t begin, int64_t end)
{
    for (int64_t group = begin; group < end; group++) list_group(context, (uint32_t)group, false);
}

static void place_groups(void *context, int64_t begin, int64_t end)
{
    for (int64_t group = begin; group < end; group++) list_group(context, (uint32_t)group, true);
}

/* Turn the counts into places: by lane, and within a lane by group. */
static void set_places(const listing *all)
{
    uint32_t next = 0;
    for (uint32_t lane = 0; lane <= all->lanes; lane++) {
        all->join->firsts[lane] = next;
        if (lane == all->lanes) next = 0; /* memory has an array of its own */
        for (uint32_t group = 0; group < all->groups; group++) {
            uint32_t *place = &all->places[group * (size_t)(all->lanes + 1) + lane], count = *place;
            *place = next;
            next += count;
        }
    }
}

fs_status fs_hosts_list(fs_join *join, fs_error *err)
{
    listing all = {.join = join, .lanes = fs_store_lane_count(join->store), .groups = join->piece_count};
    /* A table of many lanes and groups would take longer than the hosts. */
    if ((all.lanes + UINT64_C(1)) * all.groups > join->host_count / 4 + UINT64_C(64)) all.groups = 1;
    FS_TRY(FS_NEW_ZEROED(&all.places, all.groups * (size_t)(all.lanes + 1), err));
    fs_parallel_for(all.groups, 1, count_groups, &all);
    fs_status status = fs_interrupt_poll(err);
    if (status == FS_OK) {
        set_places(&all);
        fs_parallel_for(all.groups, 1, place_groups, &all);
        status = fs_interrupt_poll(err);
    }
    fs_free(all.places);
    return status;
}

fs_status fs_hosts_regroup(fs_join *join, fs_error *err)
{
    uint32_t lanes = fs_store_lane_count(join->store);
    fs_host *sorted = fs_malloc(join->host_count * sizeof *sorted);
    uint32_t *next = fs_malloc((lanes + (size_t)1) * sizeof *next);
    if (sorted == NULL || next == NULL) {
        fs_free(sorted);
        fs_free(next);
        return fs_no_memory(err);
    }
    memset(join->firsts, 0, (lanes + (size_t)2) * sizeof *join->firsts);
    for (uint32_t i = 0; i < join->host_count; i++) join->firsts[join->hosts[i].record->lane + 1]++;
    for (uint32_t lane = 0; lane < lanes; lane++) join->firsts[lane + 1] += join->firsts[lane];
    memcpy(next, join->firsts, (lanes + (size_t)1) * sizeof *next);
    for (uint32_t i = 0; i < join->host_count; i++) sorted[next[join->hosts[i].record->lane]++] = join->hosts[i];
    fs_free(join->hosts);
    fs_free(next);
    join->hosts = sorted;
    return FS_OK;
}
