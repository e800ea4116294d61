/* All ids of the source are mapped first and then its events are appended in order, with their indices moved by the
 * number of events that were there; a parent still precedes its children. Correlations are dropped, as both recordings
 * may use the same ones. A failure leaves the store with a part of the other, so the caller gives up both. */
#include "store/extend.h"

#include "base/saturate.h"
#include "store/event.h"
#include "store/samples.h"
#include "store/stacks.h"

/* The ids of the source's names, signatures and lanes in the target, one after the other. */
typedef struct {
    uint32_t *names, *signatures, *lanes;
} id_map;

static fs_status map_ids(fs_store *store, const fs_store *from, const id_map *map, fs_error *err)
{
    for (uint32_t id = 0; id < fs_store_name_count(from); id++)
        FS_TRY(fs_store_name(store, fs_store_name_text(from, id), &map->names[id], err));
    for (uint32_t id = 0; id < fs_store_signature_count(from); id++) {
        fs_span bytes = fs_store_signature_bytes(from, id);
        FS_TRY(fs_store_signature(store, bytes.bytes, bytes.size, &map->signatures[id], err));
    }
    for (uint32_t id = 0; id < fs_store_lane_count(from); id++) {
        fs_lane lane = fs_store_lane(from, id);
        if (lane.on_device) FS_TRY(fs_store_device_lane(store, lane.device, lane.id, &map->lanes[id], err));
        else FS_TRY(fs_store_thread_lane_of(store, lane.id, &map->lanes[id], err));
    }
    return FS_OK;
}

static uint32_t mapped(const uint32_t *ids, uint32_t id)
{
    return id == FS_NONE ? FS_NONE : ids[id];
}

static uint32_t moved(uint32_t index, uint32_t first)
{
    return index == FS_NONE ? FS_NONE : index + first;
}

static fs_status append_events(fs_store *store, const fs_store *from, const id_map *map, int64_t shift, fs_error *err)
{
    uint32_t first = fs_store_count(store), count = fs_store_count(from);
    for (uint32_t i = 0; i < count; i++) {
        fs_event event;
        fs_store_get(from, i, &event);
        if (event.start != FS_MISSING) event.start = fs_add_saturated(event.start, shift);
        event.name = mapped(map->names, event.name);
        event.signature = mapped(map->signatures, event.signature);
        event.lane = mapped(map->lanes, event.lane);
        event.parent = moved(event.parent, first);
        event.launcher = moved(event.launcher, first);
        event.forward = moved(event.forward, first);
        event.correlation = FS_NONE; /* both recordings may use the same numbers */
        FS_TRY(fs_store_append(store, &event, NULL, err));
    }
    return FS_OK;
}

static fs_status add_devices(fs_store *store, const fs_store *from, fs_error *err)
{
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        fs_device_facts facts = fs_store_device(from, device);
        bool known = facts.name[0] != 0 || facts.accelerator != 0;
        if (!known || fs_store_device(store, device).name[0] != 0) continue;
        FS_TRY(fs_store_set_device(store, device, &facts, err));
    }
    return FS_OK;
}

fs_status fs_store_extend(fs_store *store, const fs_store *from, int64_t shift, fs_error *err)
{
    size_t names = fs_store_name_count(from), signatures = fs_store_signature_count(from);
    uint32_t *ids = fs_calloc(names + signatures + fs_store_lane_count(from) + 1, sizeof *ids);
    if (ids == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the names of %u events", fs_store_count(from));
    const id_map map = {ids, ids + names, ids + names + signatures};
    fs_store_set_window(store, FS_MISSING, FS_MISSING);
    fs_store_expect(store, fs_store_count(from));
    fs_status status = map_ids(store, from, &map, err);
    if (status == FS_OK) status = add_devices(store, from, err);
    if (status == FS_OK) status = append_events(store, from, &map, shift, err);
    if (status == FS_OK) status = fs_store_copy_samples(store, from, shift, err);
    if (status == FS_OK)
        status =
            fs_stacks_append(fs_store_stacks(store), fs_store_stacks(from), NULL, shift, INT64_MIN, INT64_MAX, err);
    fs_free(ids);
    return status;
}
