/* Device work in order of start, then grouped by slice. */
#include "table/device_order.h"

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

typedef struct {
    uint64_t key; /* time since the first start; a missing start sorts first */
    uint32_t event;
} sort_entry;

static void sort_digit(const sort_entry *from, sort_entry *to, uint32_t count, int shift)
{
    uint32_t places[DIGITS] = {0}, next = 0;
    for (uint32_t i = 0; i < count; i++) places[from[i].key >> shift & (DIGITS - 1)]++;
    for (int digit = 0; digit < DIGITS; digit++) {
        uint32_t size = places[digit];
        places[digit] = next;
        next += size;
    }
    for (uint32_t i = 0; i < count; i++) to[places[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
}

/* A radix sort, because unordered events come from many streams at once; fs_intervals_sort has larger entries and makes
 * the whole table half as slow again. */
fs_status fs_build_sort_works(fs_build *build, fs_error *err)
{
    uint32_t count = build->work_count;
    sort_entry *entries = fs_malloc(2 * (size_t)count * sizeof *entries), *from = entries, *to = entries + count;
    if (entries == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to sum %u device events", count);
    uint64_t least = UINT64_MAX, largest = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = (uint64_t)FS_BUILD_AT(build, build->works[i], start) - (uint64_t)INT64_MIN;
        from[i] = (sort_entry){key, build->works[i]};
        if (key < least) least = key;
        if (key > largest) largest = key;
    }
    for (uint32_t i = 0; i < count; i++) from[i].key -= least;
    for (int shift = 0; shift < 64 && (largest - least) >> shift != 0; shift += DIGIT_BITS) {
        sort_digit(from, to, count, shift);
        sort_entry *swap = from;
        from = to;
        to = swap;
    }
    for (uint32_t i = 0; i < count; i++) build->works[i] = from[i].event;
    fs_free(entries);
    return fs_interrupt_poll(err);
}

/* Device events by the slice that adds them, each in order of start. Those of no slice come last. */
typedef struct {
    fs_build *build;
    uint32_t *works;
    uint32_t (*begins)[FS_MOST_SLICES + 2]; /* by run of works and slice: the first of its works */
} sharing;

enum { RUN_WORKS = FS_BLOCK(1 << 14, 1 << 3) };

static uint32_t run_end(const fs_build *build, uint32_t run)
{
    uint64_t end = ((uint64_t)run + 1) * RUN_WORKS;
    return end < build->work_count ? (uint32_t)end : build->work_count;
}

static void count_shares(void *context, int64_t first, int64_t last)
{
    const sharing *all = context;
    for (uint32_t run = (uint32_t)first; run < last; run++) {
        for (uint32_t i = run * RUN_WORKS; i < run_end(all->build, run); i++) all->begins[run][all->build->places[i]]++;
    }
}

static void fill_shares(void *context, int64_t first, int64_t last)
{
    const sharing *all = context;
    for (uint32_t run = (uint32_t)first; run < last; run++)
        for (uint32_t i = run * RUN_WORKS; i < run_end(all->build, run); i++)
            all->works[all->begins[run][all->build->places[i]]++] = all->build->works[i];
}

/* Group the device events by slice. */
static fs_status share(sharing *all, uint32_t runs, fs_error *err)
{
    fs_build *build = all->build;
    uint32_t next = 0;
    fs_parallel_for(runs, 1, count_shares, all);
    FS_TRY(fs_interrupt_poll(err));
    for (uint32_t slice = 0; slice <= build->slice_count; slice++) {
        if (slice < build->slice_count) fs_build_slice(build, slice)->first_work = next;
        for (uint32_t run = 0; run < runs; run++) {
            uint32_t count = all->begins[run][slice];
            all->begins[run][slice] = next;
            next += count;
        }
        if (slice < build->slice_count) fs_build_slice(build, slice)->end_work = next;
    }
    fs_parallel_for(runs, 1, fill_shares, all);
    FS_TRY(fs_interrupt_poll(err));
    uint32_t *swap = build->works;
    build->works = all->works;
    all->works = swap;
    for (uint32_t i = 1; i < build->slice_count; i++) fs_build_slice(build, i)->works = build->works;
    return FS_OK;
}

fs_status fs_build_share_works(fs_build *build, fs_error *err)
{
    build->end_work = build->slice_count == 1 ? build->work_count : 0;
    if (build->slice_count == 1) return FS_OK;
    uint32_t runs = (build->work_count + RUN_WORKS - 1) / RUN_WORKS;
    sharing all = {.build = build};
    all.works = fs_malloc(build->work_count * sizeof *all.works);
    all.begins = fs_calloc(runs, sizeof *all.begins);
    fs_status status;
    if (all.works == NULL || all.begins == NULL)
        status = fs_fail(err, FS_OUT_OF_MEMORY, "no memory to sum %u device events", build->work_count);
    else status = share(&all, runs, err);
    fs_free(all.works);
    fs_free(all.begins);
    return status;
}
