/* Which API call launched which device work, by correlation: the arrows of a trace. */
#ifndef FS_VIEWS_FLOWS_H
#define FS_VIEWS_FLOWS_H

#include "store/api_calls.h"

/* Event ids, FS_NONE: none. If several events share a correlation, the earliest: the outermost call, and the first work
 * of a CUDA graph. */
typedef struct {
    uint32_t call, work;
} fs_flow;

typedef struct {
    fs_api_calls calls;
    uint32_t *works; /* by event id of an API call: the work; NULL if there are no calls */
} fs_flows;

/* Index the events with a known start. A zeroed index is empty. After FS_OUT_OF_MEMORY it must still be cleared. */
fs_status fs_flows_build(fs_flows *flows, const fs_store *store, fs_error *err);
void fs_flows_clear(fs_flows *flows);

/* Return the flow of a correlation. Without a call it has no work either. */
fs_flow fs_flows_find(const fs_flows *flows, uint32_t correlation);

#endif
