/* Ids are never reused and texts never move: spans and slots are reallocated as they grow, the arena's blocks are not.
 * The hash of an interned text is kept in its span and is not 0, which marks what was appended without a look-up: such
 * texts have ids but no slot, and growing skips them. A failure leaves the table as it was, but for room that is not
 * yet used. */
#include "base/intern.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

enum { FIRST_BLOCK = FS_BLOCK(1 << 12, 1 << 9), ARENA_BLOCK = FS_BLOCK(1 << 16, 1 << 9), FIRST_SLOTS = 64 };

struct fs_arena_block {
    fs_arena_block *next;
    size_t used, capacity;
    _Alignas(16) char bytes[];
};

void fs_intern_init(fs_intern *table)
{
    memset(table, 0, sizeof *table);
}

void fs_intern_clear(fs_intern *table)
{
    while (table->arena != NULL) {
        fs_arena_block *next = table->arena->next;
        fs_free(table->arena);
        table->arena = next;
    }
    fs_free(table->spans);
    fs_free(table->slots);
    fs_intern_init(table);
}

static void *arena_take(fs_intern *table, size_t size)
{
    size = (size + 7) & ~(size_t)7;
    fs_arena_block *block = table->arena;
    if (block == NULL || block->capacity - block->used < size) {
        size_t least = block == NULL ? FIRST_BLOCK : ARENA_BLOCK, capacity = size > least ? size : least;
        fs_arena_block *fresh = fs_malloc(sizeof *fresh + capacity);
        if (fresh == NULL) return NULL;
        *fresh = (fs_arena_block){.next = block, .used = 0, .capacity = capacity};
        table->arena = block = fresh;
    }
    void *taken = block->bytes + block->used;
    block->used += size;
    return taken;
}

static fs_status grow_slots(fs_intern *table, fs_error *err)
{
    uint32_t slot_count = table->slot_count ? table->slot_count * 2 : FIRST_SLOTS;
    uint32_t *slots = slot_count > 0 ? fs_calloc(slot_count, sizeof *slots) : NULL;
    if (slots == NULL) return fs_no_memory(err);
    for (uint32_t id = 0; id < table->count; id++) {
        if (table->spans[id].hash == 0) continue;
        uint32_t slot = table->spans[id].hash & (slot_count - 1);
        while (slots[slot] != 0) slot = (slot + 1) & (slot_count - 1);
        slots[slot] = id + 1;
    }
    fs_free(table->slots);
    table->keys = fs_hash_keys();
    table->slots = slots;
    table->slot_count = slot_count;
    return FS_OK;
}

static uint32_t hash_of(const fs_intern *table, const void *bytes, size_t size)
{
    uint32_t hash = (uint32_t)fs_hash_bytes(table->keys, bytes, size);
    return hash != 0 ? hash : 1;
}

static fs_status append(fs_intern *table, const void *bytes, size_t size, uint32_t hash, uint32_t *id, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&table->spans, table->count, &table->span_capacity, FIRST_SLOTS / 2, err));
    char *copy = arena_take(table, size + 1);
    if (copy == NULL) return fs_no_memory(err);
    memcpy(copy, bytes, size);
    copy[size] = 0;
    table->spans[table->count] = (fs_span){.bytes = copy, .size = (uint32_t)size, .hash = hash};
    *id = table->count++;
    return FS_OK;
}

static fs_status check_size(size_t size, fs_error *err)
{
    if (size < UINT32_MAX) return FS_OK;
    return fs_fail(err, FS_VALUE_ERROR, "a string of %zu bytes is too long to intern", size);
}

fs_status fs_intern_append(fs_intern *table, const void *bytes, size_t size, uint32_t *id, fs_error *err)
{
    FS_TRY(check_size(size, err));
    return append(table, bytes, size, 0, id, err);
}

fs_status fs_intern_bytes(fs_intern *table, const void *bytes, size_t size, uint32_t *id, fs_error *err)
{
    FS_TRY(check_size(size, err));
    if (table->interned >= table->slot_count / 2) FS_TRY(grow_slots(table, err));
    uint32_t hash = hash_of(table, bytes, size);
    uint32_t slot = hash & (table->slot_count - 1);
    for (; table->slots[slot] != 0; slot = (slot + 1) & (table->slot_count - 1)) {
        const fs_span *span = &table->spans[table->slots[slot] - 1];
        if (span->hash == hash && span->size == size && memcmp(span->bytes, bytes, size) == 0) {
            *id = table->slots[slot] - 1;
            return FS_OK;
        }
    }
    FS_TRY(append(table, bytes, size, hash, id, err));
    table->slots[slot] = *id + 1;
    table->interned++;
    return FS_OK;
}

fs_status fs_intern_text(fs_intern *table, const char *text, uint32_t *id, fs_error *err)
{
    return fs_intern_bytes(table, text, strlen(text), id, err);
}

uint32_t fs_intern_find(const fs_intern *table, const void *bytes, size_t size)
{
    if (table->interned == 0) return UINT32_MAX;
    uint32_t hash = hash_of(table, bytes, size);
    for (uint32_t slot = hash & (table->slot_count - 1); table->slots[slot] != 0;
         slot = (slot + 1) & (table->slot_count - 1)) {
        const fs_span *span = &table->spans[table->slots[slot] - 1];
        if (span->hash == hash && span->size == size && memcmp(span->bytes, bytes, size) == 0)
            return table->slots[slot] - 1;
    }
    return UINT32_MAX;
}
