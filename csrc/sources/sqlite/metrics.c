/* Values are taken as they come, checked one by one: what is not finite, has no end or no device is left out, and a
 * begin after the end is missing. Parts were filled by threads of their own; sorted by device, metric and end, their
 * order does not matter. */
#include "sources/sqlite/metrics.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/sort.h"

static bool is_index(const fs_cell *cell)
{
    return cell->type == FS_IS_INTEGER && cell->integer >= 0 && cell->integer <= INT32_MAX;
}

fs_status fs_part_add_sample(fs_part *part, const fs_cell *cells, fs_error *err)
{
    const fs_cell *start = &cells[FS_CELL_START], *end = &cells[FS_CELL_END], *value = &cells[FS_CELL_VALUE];
    bool timed = end->type == FS_IS_INTEGER && end->integer >= 0 && end->integer < INT64_MAX / 4;
    bool begun = start->type == FS_IS_INTEGER && start->integer >= 0 && start->integer <= end->integer;
    bool known = value->type == FS_IS_INTEGER && isfinite(value->real);
    if (!timed || !known || !is_index(&cells[FS_CELL_DEVICE]) || !is_index(&cells[FS_CELL_ID])) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&part->samples, part->sample_count, &part->sample_capacity, 1024, err));
    part->samples[part->sample_count++] = (fs_metric_sample){
        .start = begun ? start->integer : FS_MISSING,
        .end = end->integer,
        .device = (int32_t)cells[FS_CELL_DEVICE].integer,
        .metric = (int32_t)cells[FS_CELL_ID].integer,
        .value = value->real,
    };
    return FS_OK;
}

static int compare_samples(const void *left, const void *right)
{
    const fs_metric_sample *a = left, *b = right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (a->metric != b->metric) return a->metric < b->metric ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end);
}

fs_status fs_rows_metrics(const fs_rows *rows, fs_metric_sample **samples, uint32_t *count, fs_error *err)
{
    size_t total = 0;
    for (uint32_t i = 0; i < rows->part_count; i++) total += rows->parts[i]->sample_count;
    *samples = NULL;
    *count = 0;
    if (total > UINT32_MAX) return fs_no_memory(err);
    fs_metric_sample *all = fs_malloc((total + 1) * sizeof *all);
    if (all == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < rows->part_count; i++) {
        const fs_part *part = rows->parts[i];
        if (part->sample_count > 0) memcpy(all + *count, part->samples, part->sample_count * sizeof *all);
        *count += part->sample_count;
    }
    fs_status status = fs_sort(all, *count, sizeof *all, compare_samples, err);
    if (status == FS_OK) *samples = all;
    else fs_free(all);
    return status;
}
