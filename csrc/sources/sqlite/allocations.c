/* A free finds the latest allocation at its address before it, in order of time and of the process, whatever part of
 * the database either came from. Sizes are not negative for allocations and negative for frees; a free that matches
 * nothing has 0 bytes and is counted. Nothing is done if every free has its size. */
#include "sources/sqlite/allocations.h"

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/sort.h"

fs_status fs_part_add_allocation(fs_part *part, int64_t process, int64_t address, fs_record *record, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&part->allocations, part->allocation_count, &part->allocation_capacity, 64, err));
    part->allocations[part->allocation_count++] = (fs_allocation){process, address, record};
    part->frees_unsized = part->frees_unsized || record->bytes == FS_MISSING;
    return FS_OK;
}

/* Allocations before frees of the same time. */
static int compare_allocations(const void *left, const void *right)
{
    const fs_record *a = ((const fs_allocation *)left)->record, *b = ((const fs_allocation *)right)->record;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return (a->bytes < 0) - (b->bytes < 0);
}

/* Follow the allocations in order of time; `last` maps (process, address) to the latest allocation there. */
static fs_status match(const fs_allocation *all, uint32_t count, fs_id_map *last, fs_rows_report *report, fs_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        fs_record *record = all[i].record;
        FS_POLL(i, err);
        if (record->bytes >= 0) {
            FS_TRY(fs_id_map_set(last, all[i].process, all[i].address, i, err));
            continue;
        }
        if (record->bytes != FS_MISSING) continue;
        uint32_t found = fs_id_map_get(last, all[i].process, all[i].address);
        record->bytes = found != FS_NONE ? -all[found].record->bytes : 0;
        if (found != FS_NONE) record->device = all[found].record->device;
        else report->unmatched_frees++;
    }
    return FS_OK;
}

fs_status fs_rows_match_frees(const fs_rows *rows, fs_rows_report *report, fs_error *err)
{
    size_t total = 0;
    bool unsized = false;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        total += rows->parts[i]->allocation_count;
        unsized = unsized || rows->parts[i]->frees_unsized;
    }
    if (!unsized) return FS_OK;
    fs_allocation *all = total < UINT32_MAX ? fs_malloc(total * sizeof *all) : NULL;
    if (all == NULL) return fs_no_memory(err);
    uint32_t count = 0;
    for (uint32_t i = 0; i < rows->part_count; i++)
        for (uint32_t at = 0; at < rows->parts[i]->allocation_count; at++)
            all[count++] = rows->parts[i]->allocations[at];
    fs_id_map last = {.slots = NULL};
    fs_status status = fs_sort(all, count, sizeof *all, compare_allocations, err);
    if (status == FS_OK) status = match(all, count, &last, report, err);
    fs_id_map_clear(&last);
    fs_free(all);
    return status;
}
