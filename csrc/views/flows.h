/* Which API call launched which device work, by their correlation: the arrows of a trace. */
#ifndef FS_VIEWS_FLOWS_H
#define FS_VIEWS_FLOWS_H

#include "store/api_calls.h"

/* Both are events, FS_NONE: none. Of several with one correlation the earliest: the outermost call, and of what a CUDA
 * graph launched at once what ran first. */
typedef struct {
    uint32_t call, work;
} fs_flow;

typedef struct {
    fs_api_calls calls;
    uint32_t *works; /* by event, of an API call: the work; NULL where there is no call */
} fs_flows;

/* Of the events whose start is known. All zero is a set of none. FS_OUT_OF_MEMORY leaves something to clear. */
fs_status fs_flows_build(fs_flows *flows, const fs_store *store, fs_error *err);
void fs_flows_clear(fs_flows *flows);

/* The flow of a correlation; without a call it has no work either. */
fs_flow fs_flows_find(const fs_flows *flows, uint32_t correlation);

#endif
