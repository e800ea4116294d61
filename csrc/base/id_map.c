/* A slot is free when its value is UINT32_MAX, so that value is never stored. Nothing is removed, so probing needs no
 * tombstones. A map that cannot grow is unchanged. */
#include "base/id_map.h"

#include "base/hash.h"
#include "base/memory.h"

enum { FIRST_SLOTS = 64 };

void fs_id_map_clear(fs_id_map *map)
{
    fs_free(map->slots);
    *map = (fs_id_map){0};
}

static fs_id_entry *slot_of(const fs_id_map *map, int64_t first, int64_t second)
{
    uint32_t mask = map->slot_count - 1;
    uint32_t slot = (uint32_t)fs_hash_numbers(map->keys, (uint64_t)first, (uint64_t)second) & mask;
    while (map->slots[slot].value != UINT32_MAX &&
           (map->slots[slot].first != first || map->slots[slot].second != second))
        slot = (slot + 1) & mask;
    return &map->slots[slot];
}

static fs_status grow(fs_id_map *map, fs_error *err)
{
    fs_id_map larger = {.slot_count = map->slot_count ? map->slot_count * 2 : FIRST_SLOTS, .keys = fs_hash_keys()};
    larger.slots = larger.slot_count != 0 ? fs_malloc(larger.slot_count * sizeof *larger.slots) : NULL;
    if (larger.slots == NULL) return fs_no_memory(err);
    for (uint32_t slot = 0; slot < larger.slot_count; slot++) larger.slots[slot].value = UINT32_MAX;
    for (uint32_t slot = 0; slot < map->slot_count; slot++) {
        const fs_id_entry *entry = &map->slots[slot];
        if (entry->value != UINT32_MAX) *slot_of(&larger, entry->first, entry->second) = *entry;
    }
    larger.count = map->count;
    fs_free(map->slots);
    *map = larger;
    return FS_OK;
}

fs_status fs_id_map_set(fs_id_map *map, int64_t first, int64_t second, uint32_t value, fs_error *err)
{
    if (map->count >= map->slot_count / 2) FS_TRY(grow(map, err));
    fs_id_entry *entry = slot_of(map, first, second);
    if (entry->value == UINT32_MAX) map->count++;
    *entry = (fs_id_entry){first, second, value};
    return FS_OK;
}

uint32_t fs_id_map_get(const fs_id_map *map, int64_t first, int64_t second)
{
    return map->count > 0 ? slot_of(map, first, second)->value : UINT32_MAX;
}
