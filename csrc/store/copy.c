/* Names, signatures and lanes have the ids of the other store, so that events can be copied as they are. */
#include "store/copy.h"

#include <string.h>

#include "store/event.h"

/* Ids stay the same: what was appended, such as the states of memory, may be there several times. */
static fs_status copy_signatures(const fs_store *from, fs_store *into, fs_error *err)
{
    uint32_t copy;
    for (uint32_t id = 0; id < fs_store_signature_count(from); id++) {
        fs_span bytes = fs_store_signature_bytes(from, id);
        bool appended = bytes.hash == 0;
        FS_TRY((appended ? fs_store_append_signature : fs_store_signature)(into, bytes.bytes, bytes.size, &copy, err));
    }
    return FS_OK;
}

fs_status fs_store_copy_ids(fs_store *into, const fs_store *from, fs_error *err)
{
    uint32_t id;
    int64_t begin, end;
    for (uint32_t i = 0; i < fs_store_name_count(from); i++)
        FS_TRY(fs_store_name(into, fs_store_name_text(from, i), &id, err));
    FS_TRY(copy_signatures(from, into, err));
    for (uint32_t i = 0; i < fs_store_lane_count(from); i++) {
        fs_lane lane = fs_store_lane(from, i);
        if (lane.on_device) FS_TRY(fs_store_device_lane(into, lane.device, lane.id, &id, err));
        else FS_TRY(fs_store_thread_lane_of(into, lane.id, &id, err));
    }
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        fs_device_facts facts = fs_store_device(from, device);
        if (memcmp(&facts, &fs_device_facts_missing, sizeof facts) != 0)
            FS_TRY(fs_store_set_device(into, device, &facts, err));
    }
    fs_store_window(from, &begin, &end);
    fs_store_set_window(into, begin, end);
    return FS_OK;
}

void fs_store_copy_forwards(fs_store *into, const fs_store *from, const uint32_t *moved)
{
    uint32_t at, count = fs_store_count(from);
    const fs_chunk *chunk = NULL;
    for (uint32_t i = 0; i < count; i++) {
        chunk = fs_event_next_chunk(from, i, chunk, &at);
        uint32_t forward = chunk->forward[at];
        if (forward != FS_NONE) fs_store_set_forward(into, moved[i], moved[forward]);
    }
}
