/* Built once and read often: an array by correlation if these are dense, otherwise a hash table that is at most half
 * full. Of calls with one correlation (a runtime call and the driver call inside it) the earliest is kept. UINT64_MAX
 * marks a free slot, and its lower half is FS_NONE, so a miss needs no test. */
#include "store/api_calls.h"

#include <string.h>

#include "base/hash.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "store/event.h"

/* Correlations are nearly consecutive: if they fill at least a fourth of their range, they index the slots. In a hash
 * table, this many neighbours share a cache line of slots. */
enum { FIRST_SLOTS = 16, LARGEST_RANGE = 4, NEIGHBOURS = 8 };

static bool is_call(const fs_chunk *chunk, uint32_t at)
{
    return chunk->kind[at] == FS_EVENT_RUNTIME && chunk->correlation[at] != FS_NONE && chunk->start[at] != FS_MISSING;
}

/* The slot of the correlation, or the free slot where it would be inserted. */
static uint64_t *slot_of(const fs_api_calls *calls, uint32_t correlation)
{
    if (calls->consecutive) return &calls->slots[correlation - calls->least];
    uint32_t line = (uint32_t)fs_hash_numbers(calls->keys, correlation / NEIGHBOURS, 0) * NEIGHBOURS;
    uint32_t slot = (line | correlation % NEIGHBOURS) & (calls->slot_count - 1);
    while (calls->slots[slot] != UINT64_MAX && calls->slots[slot] >> 32 != correlation) {
        slot = (slot + 1) & (calls->slot_count - 1);
    }
    return &calls->slots[slot];
}

/* Count the calls, and choose the kind and the number of the slots. */
static fs_status measure(fs_api_calls *calls, uint32_t *call_count, fs_error *err)
{
    uint32_t largest = 0;
    calls->least = UINT32_MAX;
    FS_EACH_EVENT(calls->store, index, chunk, at) {
        FS_POLL(index, err);
        if (!is_call(chunk, at)) continue;
        ++*call_count;
        if (chunk->correlation[at] < calls->least) calls->least = chunk->correlation[at];
        if (chunk->correlation[at] > largest) largest = chunk->correlation[at];
    }
    if (*call_count == 0) return FS_OK;
    calls->consecutive = (largest - calls->least) / LARGEST_RANGE < *call_count;
    calls->slot_count = calls->consecutive ? largest - calls->least + 1 : FIRST_SLOTS;
    while (!calls->consecutive && calls->slot_count / 2 < *call_count && calls->slot_count < UINT32_C(1) << 31) {
        calls->slot_count *= 2;
    }
    return FS_OK;
}

fs_status fs_api_calls_create(fs_api_calls *calls, const fs_store *store, fs_error *err)
{
    uint32_t call_count = 0;
    *calls = (fs_api_calls){.store = store};
    FS_TRY(measure(calls, &call_count, err));
    if (call_count == 0) return FS_OK;
    FS_TRY(FS_NEW(&calls->slots, calls->slot_count, err));
    calls->keys = fs_hash_keys();
    memset(calls->slots, 0xff, calls->slot_count * sizeof *calls->slots);
    FS_EACH_EVENT(store, index, chunk, at) {
        FS_POLL(index, err);
        if (!is_call(chunk, at)) continue;
        uint64_t *slot = slot_of(calls, chunk->correlation[at]);
        if (*slot != UINT64_MAX && chunk->start[at] >= FS_EVENT_AT(store, (uint32_t)*slot, start)) continue;
        *slot = (uint64_t)chunk->correlation[at] << 32 | index;
    }
    return FS_OK;
}

void fs_api_calls_clear(fs_api_calls *calls)
{
    fs_free(calls->slots);
}

uint32_t fs_api_calls_find(const fs_api_calls *calls, uint32_t correlation)
{
    if (calls->slots == NULL || correlation == FS_NONE) return FS_NONE;
    if (calls->consecutive && correlation - calls->least >= calls->slot_count) return FS_NONE;
    return (uint32_t)*slot_of(calls, correlation);
}
