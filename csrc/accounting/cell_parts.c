/* A cell's time beyond its ideal belongs to one part: that of its class if it does not compute, else that of what
 * bounds its row. So cells of a row whose work is known only in some calls have two parts, and are two ops: an op is
 * what has one device, one row and one part. Work of no row is of an op for each kernel, and so is work of a range of
 * which the program states nothing: its kernels may have nothing in common. */
#include "accounting/cell_parts.h"

#include <math.h>
#include <string.h>

#include "base/intern.h"

static const uint8_t class_parts[FS_WORK_CLASS_COUNT] = {
    [FS_WORK_COMPUTATION] = FS_PART_unmodelled,
    [FS_WORK_COMMUNICATION] = FS_PART_communication,
    [FS_WORK_COPY] = FS_PART_copy,
    [FS_WORK_COMPILATION] = FS_PART_compilation,
};

static const uint8_t cause_parts[FS_IDLE_CAUSE_COUNT] = {
#define CAUSE_PART(NAME, name, part, label, prose) [FS_IDLE_##NAME] = FS_PART_##part,
    FS_IDLE_CAUSE_LIST(CAUSE_PART)
#undef CAUSE_PART
};

/* The part of each bound, which bounds.def names; FS_PART_COUNT: that of the larger term of the roofline. */
static void find_bound_parts(uint8_t parts[FS_BOUND_COUNT])
{
    for (int bound = 0; bound < FS_BOUND_COUNT; bound++) {
        parts[bound] = 0;
        while (parts[bound] < FS_PART_COUNT && strcmp(fs_parts[parts[bound]].name, fs_bounds[bound].part) != 0)
            parts[bound]++;
    }
}

static int64_t part_of(const fs_cell *cell, const fs_table *table, const uint8_t bound_parts[FS_BOUND_COUNT])
{
    if (cell->class != FS_WORK_COMPUTATION || cell->ideal < 0) return class_parts[cell->class];
    const fs_row *row = cell->row >= 0 ? &table->rows[cell->row] : NULL;
    const fs_row *kernel = cell->kernel >= 0 ? &table->rows[cell->kernel] : NULL;
    /* What counters know of a kernel, where nothing is known of what launched it. */
    if ((row == NULL || row->bound == FS_BOUND_UNKNOWN) && kernel != NULL && kernel->roof.counted) row = kernel;
    if (row == NULL) return class_parts[cell->class];
    bool computes = row->pct_peak_flops > row->pct_peak_bandwidth || isnan(row->pct_peak_bandwidth);
    if (bound_parts[row->bound] < FS_PART_COUNT) return bound_parts[row->bound];
    return computes ? FS_PART_compute : FS_PART_memory;
}

/* Whether a row is a range whose work, if it is known, is that of its kernels. */
static bool is_bare_range(const fs_row *row)
{
    if (!row->is_user_annotation) return false;
    return row->bytes_source != FS_SOURCE_STATED && row->flops_source != FS_SOURCE_STATED;
}

fs_status fs_cell_parts_find(fs_accounting *accounting, const fs_table *table, fs_error *err)
{
    fs_status status = FS_OK;
    fs_intern ops = {0}; /* ids are in order of first use */
    uint8_t bound_parts[FS_BOUND_COUNT];
    find_bound_parts(bound_parts);
    for (uint32_t i = 0; status == FS_OK && i < accounting->cell_count; i++) {
        fs_cell *cell = &accounting->cells[i];
        uint32_t op;
        if (cell->row >= 0 && cell->kernel >= 0 && is_bare_range(&table->rows[cell->row])) cell->row = -1;
        cell->part = part_of(cell, table, bound_parts);
        const int64_t key[] = {cell->device, cell->row, cell->row < 0 ? cell->kernel : -1, cell->part};
        status = fs_intern_bytes(&ops, key, sizeof key, &op, err);
        cell->op = op;
    }
    for (uint32_t i = 0; i < accounting->gap_count; i++)
        accounting->gaps[i].part = cause_parts[accounting->gaps[i].cause];
    fs_intern_clear(&ops);
    return status;
}
