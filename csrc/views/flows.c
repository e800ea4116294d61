/* One arrow for each correlation: from the API call to the work that began first, as Kineto draws it. `works` is by
 * event of the call, so that the arrow's two halves find each other from either end. */
#include "views/flows.h"

#include <string.h>

#include "base/memory.h"
#include "store/event.h"

fs_status fs_flows_build(fs_flows *flows, const fs_store *store, fs_error *err)
{
    uint32_t count = fs_store_count(store);
    FS_TRY(fs_api_calls_create(&flows->calls, store, err));
    if (flows->calls.slots == NULL) return FS_OK;
    FS_TRY(FS_NEW(&flows->works, count, err));
    memset(flows->works, 0xff, count * sizeof *flows->works);
    FS_EACH_EVENT(store, index, chunk, at) {
        if (!fs_event_is_placed_work(chunk, at)) continue;
        uint32_t call = fs_api_calls_find(&flows->calls, chunk->correlation[at]);
        if (call == FS_NONE) continue;
        uint32_t *work = &flows->works[call];
        if (*work == FS_NONE || chunk->start[at] < FS_EVENT_AT(store, *work, start)) *work = index;
    }
    return FS_OK;
}

void fs_flows_clear(fs_flows *flows)
{
    fs_api_calls_clear(&flows->calls);
    fs_free(flows->works);
    *flows = (fs_flows){.works = NULL};
}

fs_flow fs_flows_find(const fs_flows *flows, uint32_t correlation)
{
    uint32_t call = fs_api_calls_find(&flows->calls, correlation);
    return (fs_flow){call, call != FS_NONE ? flows->works[call] : FS_NONE};
}
