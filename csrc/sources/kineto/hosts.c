/* The order is by start and then longest first, so that a parent precedes its children. The sort is stable, and each of
 * its passes leaves every host in one of the two buffers; an interruption copies back what is there. Traces are nearly
 * sorted, so finding the runs that exist costs a pass, and a merge of k runs log k. */
#include "sources/kineto/hosts.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"

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
    if (room == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to order %u events of a thread", count);
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
