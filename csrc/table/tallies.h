/* Distinct calls of a piece of the events, counted on one thread. Private to csrc/table. */
#ifndef FS_TABLE_TALLIES_H
#define FS_TABLE_TALLIES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"

/* The events of one call: key and class as in fs_call. */
typedef struct {
    uint64_t key, class;
    int64_t first_start, first_end; /* of the first event: earliest start, then latest end, then lowest index */
    uint32_t first, count;
    uint32_t call; /* id in fs_calls, once all pieces are counted */
    uint8_t timing;
    bool top_level; /* some event has no parent, or is on a device */
} fs_tally;

typedef struct {
    fs_tally *list; /* in order of first events */
    uint32_t count, capacity;
    uint32_t *slots; /* index + 1, 0: free; the size is a power of two, at most half full */
    uint32_t slot_count;
    const uint64_t *keys; /* of the hash */
} fs_tallies;

void fs_tallies_clear(fs_tallies *tallies);

/* For fs_tallies_find: add a call. */
fs_status fs_tallies_add(fs_tallies *tallies, uint64_t key, uint64_t class, uint32_t *index, fs_error *err);

static inline uint32_t fs_tallies_slot(const fs_tallies *tallies, uint64_t key, uint64_t class)
{
    return (uint32_t)fs_hash_numbers(tallies->keys, key, class) & (tallies->slot_count - 1);
}

/* Find or add the tally of a call. An all-zero struct is empty. */
static inline fs_status fs_tallies_find(fs_tallies *tallies, uint64_t key, uint64_t class, uint32_t *index,
                                        fs_error *err)
{
    if (tallies->count > 0) {
        uint32_t slot = fs_tallies_slot(tallies, key, class);
        for (; tallies->slots[slot] != 0; slot = (slot + 1) & (tallies->slot_count - 1)) {
            *index = tallies->slots[slot] - 1;
            if (tallies->list[*index].key == key && tallies->list[*index].class == class) return FS_OK;
        }
    }
    return fs_tallies_add(tallies, key, class, index, err);
}

#endif
