/* The accelerator is a property of the devices, so that stores that are made of others have it too. All devices of a
 * store are of one kind: no profiler writes a trace of two. */
#include "store/accelerator.h"

#include <string.h>

#include "store/event.h"

const fs_accelerator_facts fs_accelerators[FS_ACCELERATOR_COUNT] = {
#define FS_ACCELERATOR(NAME, name, type, number, prefix, matrix) \
    [FS_ACCELERATOR_##NAME] = {#name, type, number, prefix, matrix},
#include "store/accelerators.def"
#undef FS_ACCELERATOR
};

uint32_t fs_accelerators_of_device(const char *name)
{
    uint32_t bits = 0;
    for (int i = 0; i < FS_ACCELERATOR_COUNT; i++) {
        const char *prefix = fs_accelerators[i].prefix;
        if (prefix[0] != 0 && strncmp(name, prefix, strlen(prefix)) == 0) bits |= 1U << i;
    }
    return bits;
}

uint32_t fs_accelerators_of_type(int64_t number)
{
    uint32_t bits = 0;
    for (int i = 0; i < FS_ACCELERATOR_COUNT; i++)
        if (number > 0 && fs_accelerators[i].number == number) bits |= 1U << i;
    return bits;
}

uint32_t fs_accelerators_named(const char *name)
{
    uint32_t bits = 0;
    for (int i = 0; i < FS_ACCELERATOR_COUNT; i++)
        if (strcmp(name, fs_accelerators[i].name) == 0) bits |= 1U << i;
    return bits;
}

fs_accelerator fs_accelerator_told(uint32_t bits)
{
    for (int i = FS_ACCELERATOR_CUDA + 1; i < FS_ACCELERATOR_COUNT; i++)
        if (bits >> i & 1) return (fs_accelerator)i;
    return FS_ACCELERATOR_CUDA;
}

static fs_status set(fs_store *store, int device, fs_accelerator accelerator, fs_error *err)
{
    fs_device_facts facts = fs_store_device(store, device);
    facts.accelerator = accelerator;
    return fs_store_set_device(store, device, &facts, err);
}

fs_status fs_store_set_accelerator(fs_store *store, fs_accelerator accelerator, fs_error *err)
{
    bool any = false;
    if (accelerator == fs_store_accelerator(store)) return FS_OK;
    for (uint32_t id = 0; id < fs_store_lane_count(store); id++) {
        fs_lane lane = fs_store_lane(store, id);
        if (!lane.on_device) continue;
        FS_TRY(set(store, lane.device, accelerator, err));
        any = true;
    }
    return any ? FS_OK : set(store, 0, accelerator, err);
}

fs_accelerator fs_store_accelerator(const fs_store *store)
{
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        int64_t accelerator = fs_store_device(store, device).accelerator;
        if (accelerator != FS_ACCELERATOR_CUDA) return (fs_accelerator)accelerator;
    }
    return FS_ACCELERATOR_CUDA;
}
