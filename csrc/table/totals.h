/* Nodes to groups, backward: what a node encloses is complete when its turn comes. Private to csrc/table. */
#ifndef FS_TABLE_TOTALS_H
#define FS_TABLE_TOTALS_H

#include "table/build.h"

fs_status fs_build_totals(fs_build *build, fs_error *err);

/* What is known of the work of a node: by the rule of its op, or by what is stated of a range around it. */
typedef struct {
    bool flops, bytes;
} fs_known;

fs_known fs_build_known(fs_build *build, const fs_node *node);

/* The peaks of the device, or where that is -1 of the place that the call names; NULL: not known. */
const fs_peaks *fs_build_peaks(const fs_build *build, const fs_call *call, int device);

#endif
