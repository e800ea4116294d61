#include "table/device_work.h"

fs_status fs_device_work_find(fs_device_work *work, const fs_store *store, fs_error *err)
{
    uint32_t count = fs_store_count(store), at;
    *work = (fs_device_work){0};
    for (uint32_t index = 0; index < count; index++) {
        const fs_chunk *chunk = fs_event_chunk(store, index, &at);
        if (!fs_event_is_placed_work(chunk, at)) continue;
        fs_intervals *list = &work->of_device[fs_event_device(chunk, at)];
        FS_TRY(fs_intervals_add(list, chunk->start[at], fs_event_end(chunk, at), index, err));
    }
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) FS_TRY(fs_intervals_sort(&work->of_device[device], err));
    return FS_OK;
}

void fs_device_work_clear(fs_device_work *work)
{
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) fs_intervals_clear(&work->of_device[device]);
}
