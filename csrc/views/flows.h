/* Which API call launched which device work, by their correlation: the arrows of a trace. */
#ifndef FS_VIEWS_FLOWS_H
#define FS_VIEWS_FLOWS_H

#include "store/store.h"

/* Both are events, FS_NONE: none. Of several with one correlation the earliest: the outermost call, and of what a CUDA
 * graph launched at once what ran first. */
typedef struct {
    uint32_t correlation; /* FS_NONE: a free slot */
    uint32_t call, work;
} fs_flow;

typedef struct {
    fs_flow *slots; /* open addressing, at most half full */
    uint32_t slot_count;
} fs_flows;

/* Of the events whose start is known. All zero is a set of none. FS_OUT_OF_MEMORY. */
fs_status fs_flows_build(fs_flows *flows, const fs_store *store, fs_error *err);
void fs_flows_clear(fs_flows *flows);

/* The flow of a correlation that some API call has, or NULL. */
const fs_flow *fs_flows_find(const fs_flows *flows, uint32_t correlation);

#endif
