/* A map from pairs of numbers to a number. Once filled it may be read by several threads. Private to
 * sources. */
#ifndef FS_SOURCES_SQLITE_ID_MAP_H
#define FS_SOURCES_SQLITE_ID_MAP_H

#include <stdint.h>

#include "base/status.h"
#include "store/store.h"

typedef struct {
    int64_t first, second;
    uint32_t value;
} fs_id_entry;

/* An all-zero struct is an empty map. Open addressing, a power of two, at most half full; value FS_NONE: free. */
typedef struct {
    fs_id_entry *slots;
    uint32_t slot_count, count;
    const uint64_t *keys; /* of the hash */
} fs_id_map;

void fs_id_map_clear(fs_id_map *map);

/* Set the value of a pair, which is not FS_NONE. FS_OUT_OF_MEMORY leaves the map unchanged. */
fs_status fs_id_map_set(fs_id_map *map, int64_t first, int64_t second, uint32_t value, fs_error *err);

/* Return the value of a pair, FS_NONE if it has none. */
uint32_t fs_id_map_get(const fs_id_map *map, int64_t first, int64_t second);

#endif
