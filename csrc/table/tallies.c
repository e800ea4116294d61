/* A hash table that only grows. Calls repeat, so hardly any event adds one. */
#include "table/tallies.h"

#include "base/memory.h"

enum { FIRST_SLOTS = 128 };

void fs_tallies_clear(fs_tallies *tallies)
{
    fs_free(tallies->list);
    fs_free(tallies->slots);
    *tallies = (fs_tallies){0};
}

static void put(fs_tallies *tallies, uint32_t index)
{
    const fs_tally *tally = &tallies->list[index];
    uint32_t slot = fs_tallies_slot(tallies, tally->key, tally->class);
    while (tallies->slots[slot] != 0) slot = (slot + 1) & (tallies->slot_count - 1);
    tallies->slots[slot] = index + 1;
}

static fs_status grow(fs_tallies *tallies, fs_error *err)
{
    uint32_t capacity = tallies->capacity;
    FS_TRY(FS_LIST_ROOM(&tallies->list, capacity, &capacity, FIRST_SLOTS / 2, err));
    uint32_t *slots = fs_calloc(2 * (size_t)capacity, sizeof *slots);
    if (slots == NULL) return fs_no_memory(err);
    fs_free(tallies->slots);
    tallies->keys = fs_hash_keys();
    tallies->slots = slots;
    tallies->slot_count = 2 * capacity;
    tallies->capacity = capacity;
    for (uint32_t i = 0; i < tallies->count; i++) put(tallies, i);
    return FS_OK;
}

fs_status fs_tallies_add(fs_tallies *tallies, uint64_t key, uint64_t class, uint32_t *index, fs_error *err)
{
    if (tallies->count == tallies->capacity) FS_TRY(grow(tallies, err));
    *index = tallies->count++;
    tallies->list[*index] = (fs_tally){.key = key, .class = class, .timing = UINT8_MAX};
    put(tallies, *index);
    return FS_OK;
}
