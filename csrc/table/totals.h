/* Last step of a build: add nodes to groups, backward, so that every node is complete before its parent. Private to
 * csrc/table. */
#ifndef FS_TABLE_TOTALS_H
#define FS_TABLE_TOTALS_H

#include "table/build.h"

fs_status fs_build_totals(fs_build *build, fs_error *err);

/* Whether the work of a node is known, from the rule of its op or the declared work of an enclosing range. */
typedef struct {
    bool flops, bytes;
} fs_known;

fs_known fs_build_known(fs_build *build, const fs_node *node);

/* Return the peaks of a device, or of the place named by the call if `device` is -1; NULL: unknown. */
const fs_peaks *fs_build_peaks(const fs_build *build, const fs_call *call, int device);

#endif
