/* A map from byte strings to small dense ids: 0, 1, 2, … in order of first use. Equal bytes have equal ids.
 *
 *   slots  [ id+1 | 0 | id+1 | … ]   open addressing, power of two, at most half full
 *   spans  [ {bytes, size, hash} … ] by id; each span's bytes are 8-aligned in a separate arena
 *
 * The hash is keyed, so the names in a file cannot be chosen to collide (base/hash.h).
 * Not thread-safe: the owner locks. Returned pointers stay valid as long as the table exists.
 */
#ifndef FS_BASE_INTERN_H
#define FS_BASE_INTERN_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
    const void *bytes; /* a zero byte follows the last, so that text is a C string */
    uint32_t size;
    uint32_t hash; /* 0: appended, and not found by its bytes */
} fs_span;

typedef struct fs_arena_block fs_arena_block;

typedef struct {
    fs_span *spans;
    uint32_t *slots;
    uint32_t count, span_capacity, slot_count;
    uint32_t interned; /* spans that are found by their bytes */
    fs_arena_block *arena;
    const uint64_t *keys; /* of the hash */
} fs_intern;

void fs_intern_init(fs_intern *table); /* an all-zero struct is an empty table too */
void fs_intern_clear(fs_intern *table);

/* FS_OUT_OF_MEMORY leaves the table unchanged. */
fs_status fs_intern_bytes(fs_intern *table, const void *bytes, size_t size, uint32_t *id, fs_error *err);
fs_status fs_intern_text(fs_intern *table, const char *text, uint32_t *id, fs_error *err);

/* Append bytes under an id of their own: for those that hardly ever repeat. The others do not find them. The same
 * failures. */
fs_status fs_intern_append(fs_intern *table, const void *bytes, size_t size, uint32_t *id, fs_error *err);

/* Return the id of bytes that are in the table, else UINT32_MAX. */
uint32_t fs_intern_find(const fs_intern *table, const void *bytes, size_t size);

static inline fs_span fs_intern_get(const fs_intern *table, uint32_t id)
{
    return table->spans[id];
}

#endif
