#include "views/flows.h"

#include "base/memory.h"

static uint32_t slot_of(const fs_flows *flows, uint32_t correlation)
{
    uint32_t at = (uint32_t)((correlation * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (flows->slot_count - 1);
    while (flows->slots[at].correlation != correlation && flows->slots[at].correlation != FS_NONE) {
        at = (at + 1) & (flows->slot_count - 1);
    }
    return at;
}

static int64_t start_of(const fs_store *store, uint32_t index)
{
    return fs_store_chunk(store, index >> FS_CHUNK_BITS)->start[index & (FS_CHUNK_EVENTS - 1)];
}

static void keep_earlier(const fs_store *store, uint32_t *kept, uint32_t index)
{
    if (*kept == FS_NONE || start_of(store, index) < start_of(store, *kept)) *kept = index;
}

/* Visit the API calls (calls true) or the device work that have a correlation and a start; how many. */
static uint32_t visit(fs_flows *flows, const fs_store *store, bool calls)
{
    uint32_t seen = 0, count = fs_store_count(store);
    for (uint32_t index = 0; index < count; index++) {
        const fs_chunk *chunk = fs_store_chunk(store, index >> FS_CHUNK_BITS);
        uint32_t at = index & (FS_CHUNK_EVENTS - 1), correlation = chunk->correlation[at];
        bool wanted = calls ? chunk->kind[at] == FS_EVENT_RUNTIME : fs_event_kind_on_device[chunk->kind[at]];
        if (!wanted || correlation == FS_NONE || chunk->start[at] == FS_MISSING) continue;
        seen++;
        if (flows->slots == NULL) continue;
        fs_flow *flow = &flows->slots[slot_of(flows, correlation)];
        if (calls) flow->correlation = correlation;
        if (flow->correlation != FS_NONE) keep_earlier(store, calls ? &flow->call : &flow->work, index);
    }
    return seen;
}

fs_status fs_flows_build(fs_flows *flows, const fs_store *store, fs_error *err)
{
    uint32_t calls = visit(flows, store, true);
    if (calls == 0) return FS_OK;
    uint32_t slot_count = 16;
    while (slot_count / 2 < calls && slot_count < UINT32_C(1) << 31) slot_count *= 2;
    flows->slots = fs_malloc(slot_count * sizeof *flows->slots);
    if (flows->slots == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to tie %u API calls to device work", calls);
    flows->slot_count = slot_count;
    for (uint32_t i = 0; i < slot_count; i++) flows->slots[i] = (fs_flow){FS_NONE, FS_NONE, FS_NONE};
    visit(flows, store, true);
    visit(flows, store, false);
    return FS_OK;
}

void fs_flows_clear(fs_flows *flows)
{
    fs_free(flows->slots);
    *flows = (fs_flows){.slots = NULL};
}

const fs_flow *fs_flows_find(const fs_flows *flows, uint32_t correlation)
{
    if (correlation == FS_NONE || flows->slots == NULL) return NULL;
    const fs_flow *flow = &flows->slots[slot_of(flows, correlation)];
    return flow->correlation == FS_NONE ? NULL : flow;
}
