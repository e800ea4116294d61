/* The roofline: how long work must take at least, and what limits a row. Private to csrc/table. */
#ifndef FS_TABLE_ROOFLINE_H
#define FS_TABLE_ROOFLINE_H

#include "device/peaks.h"
#include "table/table.h"
#include "work/work.h"

/* The least times that peaks allow, in ns; NaN where the work or the peak is unknown. Those of calls add up. */
typedef struct {
    double compute_ns, memory_ns;
    double least_ns; /* the larger of the two; of the memory alone where no unit's peak bounds the work. Where any unit
                        may do the FLOPs it is known if the bytes take longer even than the slowest unit would */
    double launch_ns, kernel_ns; /* of a call that does next to nothing: from outside, and by its kernel's own record */
} fs_roof;

/* Of one call; peaks may be NULL. */
fs_roof fs_roof_of(const fs_work *work, const fs_peaks *peaks);

/* Fill the row's rates, shares and bound from its flops and bytes, the sum of its calls' roofs and the time in ns that
 * the work took (NaN or 0: not known), which row->timing told. */
void fs_roofline_fill(fs_row *row, const fs_roof *roof, double time_ns);

#endif
