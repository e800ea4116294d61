/* A list is sorted by begin unless `unsorted` says otherwise, and only adding sets that; after uniting, its intervals
 * are also disjoint and not empty. Subtraction and overlap need both lists sorted, and the second one united. Cursors
 * (`at`) move forwards only, so a sweep over two lists takes linear time. All arithmetic on times saturates. */
#include "summaries/intervals.h"

#include "base/memory.h"
#include "base/saturate.h"
#include "base/search.h"

enum { FIRST_CAPACITY = 64, DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

void fs_intervals_clear(fs_intervals *list)
{
    fs_free(list->items);
    *list = (fs_intervals){0};
}

fs_status fs_intervals_add(fs_intervals *list, int64_t begin, int64_t end, uint32_t tag, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&list->items, list->count, &list->capacity, FIRST_CAPACITY, err));
    /* NOLINTBEGIN(clang-analyzer-core.NullDereference): there is room, so there are items */
    if (list->count > 0 && begin < list->items[list->count - 1].begin) list->unsorted = true;
    list->items[list->count++] = (fs_interval){begin, end, tag};
    /* NOLINTEND(clang-analyzer-core.NullDereference) */
    return FS_OK;
}

fs_status fs_intervals_cover(fs_intervals *list, int64_t begin, int64_t end, fs_error *err)
{
    if (end <= begin) return FS_OK;
    fs_interval *last = list->count > 0 ? &list->items[list->count - 1] : NULL;
    if (last == NULL || begin < last->begin || begin > last->end) return fs_intervals_add(list, begin, end, 0, err);
    if (end > last->end) last->end = end;
    return FS_OK;
}

static void sort_digit(const fs_interval *from, fs_interval *to, uint32_t count, uint64_t least, int shift)
{
    uint32_t places[DIGITS] = {0}, next = 0;
    for (uint32_t i = 0; i < count; i++) places[((uint64_t)from[i].begin - least) >> shift & (DIGITS - 1)]++;
    for (int digit = 0; digit < DIGITS; digit++) {
        uint32_t size = places[digit];
        places[digit] = next;
        next += size;
    }
    for (uint32_t i = 0; i < count; i++) {
        to[places[((uint64_t)from[i].begin - least) >> shift & (DIGITS - 1)]++] = from[i];
    }
}

/* A radix sort, because unordered intervals come from many threads or streams at once. */
fs_status fs_intervals_sort(fs_intervals *list, fs_error *err)
{
    if (!list->unsorted) return FS_OK;
    fs_interval *from = list->items, *to = fs_malloc(list->count * sizeof *to);
    if (to == NULL) return fs_no_memory(err);
    int64_t least = from[0].begin, largest = from[0].begin;
    for (uint32_t i = 1; i < list->count; i++) {
        least = from[i].begin < least ? from[i].begin : least;
        largest = from[i].begin > largest ? from[i].begin : largest;
    }
    for (int shift = 0; shift < 64 && ((uint64_t)largest - (uint64_t)least) >> shift != 0; shift += DIGIT_BITS) {
        sort_digit(from, to, list->count, (uint64_t)least, shift);
        fs_interval *swap = from;
        from = to;
        to = swap;
    }
    fs_free(to);
    list->items = from;
    list->capacity = list->count;
    list->unsorted = false;
    return FS_OK;
}

fs_status fs_intervals_unite(fs_intervals *list, fs_error *err)
{
    FS_TRY(fs_intervals_sort(list, err));
    uint32_t count = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        fs_interval item = list->items[i];
        fs_interval *last = count > 0 ? &list->items[count - 1] : NULL;
        if (item.end <= item.begin) continue;
        if (last == NULL || item.begin > last->end) list->items[count++] = item;
        else if (item.end > last->end) last->end = item.end;
    }
    list->count = count;
    return FS_OK;
}

fs_status fs_intervals_subtract(fs_intervals *list, const fs_intervals *taken, int64_t *sums, fs_error *err)
{
    fs_intervals rest = {0};
    fs_status status;
    uint32_t at = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        fs_interval left = list->items[i];
        while (at < taken->count && taken->items[at].end <= left.begin) at++;
        /* The last overlapping interval may also overlap the next one, so `at` stays on it. */
        for (; at < taken->count && taken->items[at].begin < left.end; at++) {
            const fs_interval *cut = &taken->items[at];
            int64_t from = cut->begin > left.begin ? cut->begin : left.begin;
            int64_t to = cut->end < left.end ? cut->end : left.end;
            if (from > left.begin)
                FS_TRY_GOTO(status, fs_intervals_add(&rest, left.begin, from, left.tag, err), failed);
            if (sums != NULL) fs_add_to(&sums[left.tag], fs_sub_saturated(to, from));
            left.begin = to;
            if (cut->end >= left.end) break;
        }
        if (left.begin < left.end)
            FS_TRY_GOTO(status, fs_intervals_add(&rest, left.begin, left.end, left.tag, err), failed);
    }
    fs_free(list->items);
    *list = rest;
    return FS_OK;
failed:
    fs_intervals_clear(&rest);
    return status;
}

int64_t fs_intervals_overlap(const fs_intervals *list, uint32_t *at, int64_t begin, int64_t end)
{
    while (*at < list->count && list->items[*at].end <= begin) ++*at;
    int64_t shared = 0;
    for (uint32_t i = *at; i < list->count && list->items[i].begin < end; i++) {
        int64_t from = list->items[i].begin > begin ? list->items[i].begin : begin;
        int64_t to = list->items[i].end < end ? list->items[i].end : end;
        if (to > from) fs_add_to(&shared, fs_sub_saturated(to, from));
    }
    return shared;
}

uint32_t fs_intervals_first_after(const fs_intervals *list, int64_t time)
{
    return FS_FIRST_NOT(i, 0, list->count, list->items[i].end <= time);
}

int64_t fs_intervals_total(const fs_intervals *list)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        fs_add_to(&total, fs_sub_saturated(list->items[i].end, list->items[i].begin));
    }
    return total;
}
