/* A cell's time beyond its ideal belongs to one part: that of its class if it does not compute, else that of what
 * bounds its row. So cells of a row whose work is known only in some calls have two parts, and are two ops: an op is
 * what has one device, one row and one part. Work of no row is of an op for each kernel. */
#include "accounting/cell_parts.h"

#include <math.h>

#include "base/intern.h"

static const uint8_t class_parts[FS_WORK_CLASS_COUNT] = {
    [FS_WORK_COMPUTATION] = FS_PART_unmodelled,
    [FS_WORK_COMMUNICATION] = FS_PART_communication,
    [FS_WORK_COPY] = FS_PART_copy,
};

static const uint8_t bound_parts[FS_BOUND_COUNT] = {
    [FS_BOUND_UNKNOWN] = FS_PART_unmodelled, [FS_BOUND_COMPUTE] = FS_PART_compute,
    [FS_BOUND_MEMORY] = FS_PART_memory,      [FS_BOUND_LAUNCH] = FS_PART_launch,
    [FS_BOUND_LATENCY] = FS_PART_latency,    [FS_BOUND_INEFFICIENT] = FS_PART_memory, /* or compute */
    [FS_BOUND_CACHE] = FS_PART_memory,
};

static const uint8_t cause_parts[FS_IDLE_CAUSE_COUNT] = {
#define CAUSE_PART(NAME, name, part, label, prose) [FS_IDLE_##NAME] = FS_PART_##part,
    FS_IDLE_CAUSE_LIST(CAUSE_PART)
#undef CAUSE_PART
};

/* What is inefficient belongs to the larger term of its roofline. */
static int64_t part_of(const fs_cell *cell, const fs_table *table)
{
    if (cell->class != FS_WORK_COMPUTATION || cell->ideal < 0 || cell->row < 0) return class_parts[cell->class];
    const fs_row *row = &table->rows[cell->row];
    bool computes = row->pct_peak_flops > row->pct_peak_bandwidth || isnan(row->pct_peak_bandwidth);
    return row->bound == FS_BOUND_INEFFICIENT && computes ? FS_PART_compute : bound_parts[row->bound];
}

fs_status fs_cell_parts_find(fs_accounting *accounting, const fs_table *table, fs_error *err)
{
    fs_status status = FS_OK;
    fs_intern ops = {0}; /* ids are in order of first use */
    for (uint32_t i = 0; status == FS_OK && i < accounting->cell_count; i++) {
        fs_cell *cell = &accounting->cells[i];
        uint32_t op;
        cell->part = part_of(cell, table);
        const int64_t key[] = {cell->device, cell->row, cell->row < 0 ? cell->kernel : -1, cell->part};
        status = fs_intern_bytes(&ops, key, sizeof key, &op, err);
        cell->op = op;
    }
    for (uint32_t i = 0; i < accounting->gap_count; i++)
        accounting->gaps[i].part = cause_parts[accounting->gaps[i].cause];
    fs_intern_clear(&ops);
    return status;
}
