/* What counters say of the work of rows: it stands where no rule knows the work. Private to csrc/table.
 *
 * Counted bytes are those that moved, with what caches missed and without what they held: the memory was as busy as
 * they say, which bounds the time, but less might have had to move. So counters fill in only what is unknown, term by
 * term: bytes of the memory, and the share of the cycles in which a compute unit worked, of which no FLOPs follow, as
 * its dtype and clock are unknown. Of the kernels of a row, each has the row's rates: single kernels are resolved less
 * well than their sum.
 *
 * What memory and units did not do to kernels of the device tells nothing about work that they did not do: copies
 * between host and device wait for a link, and collectives for other devices. A row with such work is not resolved. */
#ifndef FS_TABLE_COUNTED_ROWS_H
#define FS_TABLE_COUNTED_ROWS_H

#include <math.h>

#include "table/build.h"

/* Fill build->counted_rows from the sums of all device work; there are none without counters. FS_OUT_OF_MEMORY. */
fs_status fs_counted_rows_find(fs_build *build, fs_error *err);

/* Percent of the cycles in which the fabric between the halves of the L2 worked, an estimate; NaN: unknown. */
double fs_counted_fabric(const fs_counted_sum *total);

/* What was counted of a row: its bytes, the activity of units, or both; NULL if neither is resolved. */
static inline const fs_counted_row *fs_counted_row_of(const fs_build *build, uint32_t row)
{
    const fs_counted_row *counted = build->counted_rows != NULL ? &build->counted_rows[row] : NULL;
    return counted != NULL && !(isnan(counted->bytes_moved) && isnan(counted->active)) ? counted : NULL;
}

/* Let a row of unknown work have the work that was counted. */
void fs_counted_row_fill(const fs_build *build, fs_group *group);

/* Let what was busiest, if it was at half of its peak or more, bound a row whose known work does not explain its time,
 * or was served by a cache. */
void fs_counted_row_judge(const fs_build *build, fs_group *group);

/* Let device work of unknown roofs have its share of what was counted of its kernel's row. */
void fs_counted_work_fill(const fs_build *build, fs_table_work *work);

#endif
