/* A map from pairs of numbers to a number. Once filled it may be read by several threads. */
#ifndef FS_BASE_ID_MAP_H
#define FS_BASE_ID_MAP_H

#include <stdint.h>

#include "base/status.h"

typedef struct {
    int64_t first, second;
    uint32_t value;
} fs_id_entry;

/* An all-zero struct is an empty map. Open addressing, a power of two, at most half full; value UINT32_MAX: free. */
typedef struct {
    fs_id_entry *slots;
    uint32_t slot_count, count;
    const uint64_t *keys; /* of the hash */
} fs_id_map;

void fs_id_map_clear(fs_id_map *map);

/* Set the value of a pair, which is not UINT32_MAX. FS_OUT_OF_MEMORY leaves the map unchanged. */
fs_status fs_id_map_set(fs_id_map *map, int64_t first, int64_t second, uint32_t value, fs_error *err);

/* Return the value of a pair, UINT32_MAX if it has none. */
uint32_t fs_id_map_get(const fs_id_map *map, int64_t first, int64_t second);

#endif
