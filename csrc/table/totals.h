/* Last step of a build: add nodes to groups, backward, so that every node is complete before its parent. Private to
 * csrc/table. */
#ifndef FS_TABLE_TOTALS_H
#define FS_TABLE_TOTALS_H

#include "table/build.h"

fs_status fs_build_totals(fs_build *build, fs_error *err);

/* The sources (fs_source) from which the work of a node is known: the rule of its op, or the declared work of an
 * enclosing range. FS_SOURCE_NONE: it is unknown. */
typedef struct {
    uint8_t flops, bytes;
} fs_known;

fs_known fs_build_known(fs_build *build, const fs_node *node);

/* Add time to the coverage. */
static inline void fs_known_count(fs_table *table, double ns, fs_known known)
{
    table->modelled_base_ns += ns;
    table->flops_ns[known.flops] += ns;
    table->bytes_ns[known.bytes] += ns;
}

/* Return the peaks of a device, or of the place named by the call if `device` is -1; NULL: unknown. */
const fs_peaks *fs_build_peaks(const fs_build *build, const fs_call *call, int device);

#endif
