/* An index of the API calls of a store by correlation: it finds the call that launched a piece of device work. */
#ifndef FS_STORE_API_CALLS_H
#define FS_STORE_API_CALLS_H

#include "store/store.h"

typedef struct {
    uint64_t *slots; /* pairs of correlation and event; all ones: free */
    uint32_t slot_count;
    bool consecutive; /* slots by correlation, from `least`; else a hash table: a power of two, at most half full */
    uint32_t least;
    const uint64_t *keys; /* of the hash */
    const fs_store *store;
} fs_api_calls;

/* Index the calls whose start is known. An all-zero struct is an empty index. FS_OUT_OF_MEMORY. */
fs_status fs_api_calls_create(fs_api_calls *calls, const fs_store *store, fs_error *err);
void fs_api_calls_clear(fs_api_calls *calls);

/* Return the call with that correlation, or FS_NONE. A runtime call and the driver call inside it may share a
 * correlation: the one that began first is returned. */
uint32_t fs_api_calls_find(const fs_api_calls *calls, uint32_t correlation);

#endif
