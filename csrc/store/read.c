/* Reading takes no lock: a store is read once nothing is appended to it any more. */
#include "store/store_parts.h"

uint32_t fs_store_count(const fs_store *store)
{
    return store->count;
}

void fs_store_get(const fs_store *store, uint32_t index, fs_event *event)
{
#define LOAD_FIELD(type, name, missing, prose) event->name = FS_STORE_AT(store, index, name);
    FS_EVENT_COLUMN_LIST(LOAD_FIELD)
}

const fs_chunk *fs_store_chunk(const fs_store *store, uint32_t chunk)
{
    return store->chunks.at[chunk];
}

fs_chunk *const *fs_store_chunks(const fs_store *store)
{
    return store->chunks.at;
}

uint32_t fs_store_name_count(const fs_store *store)
{
    return store->names.count;
}

const char *fs_store_name_text(const fs_store *store, uint32_t id)
{
    return fs_intern_get(&store->names, id).bytes;
}

uint32_t fs_store_signature_count(const fs_store *store)
{
    return store->signatures.count;
}

fs_span fs_store_signature_bytes(const fs_store *store, uint32_t id)
{
    return fs_intern_get(&store->signatures, id);
}

uint32_t fs_store_lane_count(const fs_store *store)
{
    return store->lane_count;
}

fs_device_facts fs_store_device(const fs_store *store, int device)
{
    return device >= 0 && device < store->device_count ? store->devices[device] : fs_device_facts_missing;
}

fs_counter_tracks *fs_store_tracks(const fs_store *store)
{
    return &store->samples->tracks;
}

fs_stacks *fs_store_stacks(const fs_store *store)
{
    return &store->samples->stacks;
}

fs_lane fs_store_lane(const fs_store *store, uint32_t id)
{
    return store->lanes[id];
}

int64_t fs_store_nbytes(const fs_store *store)
{
    return (int64_t)store->chunks.count * (int64_t)sizeof(fs_chunk);
}
