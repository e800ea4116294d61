/* The API calls of a store by correlation: which call launched a piece of device work. */
#ifndef FS_STORE_API_CALLS_H
#define FS_STORE_API_CALLS_H

#include "store/store.h"

typedef struct {
    uint64_t *slots; /* correlation, event; all ones: free; a power of two, at most half full */
    uint32_t slot_count;
    const uint64_t *keys; /* of the hash */
    const fs_store *store;
} fs_api_calls;

/* Of the calls whose start is known. All zero is no call at all. FS_OUT_OF_MEMORY. */
fs_status fs_api_calls_create(fs_api_calls *calls, const fs_store *store, fs_error *err);
void fs_api_calls_clear(fs_api_calls *calls);

/* The call of that correlation, FS_NONE where none was recorded. Of a call of the runtime and the driver's call inside
 * it, which may share their correlation, the one that began first. */
uint32_t fs_api_calls_find(const fs_api_calls *calls, uint32_t correlation);

#endif
