/* qsort() cannot be interrupted, so it sorts runs of 16,384 items, and a merge that polls does the rest. The merge goes
 * back and forth between two buffers: at every moment `from` holds each item exactly once, and what it holds goes back
 * to the caller's array, sorted or interrupted. Equal items keep their order in the merge; qsort() does not promise
 * that. */
#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"

enum { RUN = 1 << 14 }; /* items per call of qsort() */

typedef struct {
    size_t size;
    int (*compare)(const void *, const void *);
    size_t moved;
} sorting;

/* Merge two neighbouring runs into `out`. */
static fs_status merge(sorting *sort, const char *left, size_t left_count, const char *right, size_t right_count,
                       char *out, fs_error *err)
{
    size_t size = sort->size;
    while (left_count > 0 && right_count > 0) {
        FS_POLL(sort->moved++, err);
        bool first = sort->compare(left, right) <= 0;
        memcpy(out, first ? left : right, size);
        out += size;
        if (first) left += size, left_count--;
        else right += size, right_count--;
    }
    memcpy(out, left, left_count * size);
    memcpy(out + left_count * size, right, right_count * size);
    return FS_OK;
}

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Merge pairs of runs of `length` items. */
static fs_status merge_runs(sorting *sort, const char *from, char *to, size_t count, size_t length, fs_error *err)
{
    size_t size = sort->size;
    for (size_t at = 0; at < count; at += 2 * length) {
        size_t middle = least_of(at + length, count), end = least_of(at + 2 * length, count);
        FS_TRY(merge(sort, from + at * size, middle - at, from + middle * size, end - middle, to + at * size, err));
    }
    return FS_OK;
}

fs_status fs_sort(void *items, size_t count, size_t size, int (*compare)(const void *, const void *), fs_error *err)
{
    if (count < 2) return FS_OK;
    for (size_t at = 0; at < count; at += RUN) {
        FS_TRY(fs_interrupt_poll(err));
        qsort((char *)items + at * size, least_of(RUN, count - at), size, compare);
    }
    if (count <= RUN) return FS_OK;
    char *room = fs_malloc(count * size), *from = items, *to = room;
    if (room == NULL) return fs_no_memory(err);
    sorting sort = {size, compare, 0};
    fs_status status = FS_OK;
    for (size_t length = RUN; length < count; length *= 2) {
        status = merge_runs(&sort, from, to, count, length, err);
        if (status != FS_OK) break; /* `from` still has every item exactly once */
        char *swap = from;
        from = to;
        to = swap;
    }
    if (from != items) memcpy(items, from, count * size);
    fs_free(room);
    return status;
}
