/* The memory of a store's events: chunks that never move.
 *
 * Later chunks are allocated several at a time, as a number of huge pages: a fork copies the page tables, 0.1 ms for
 * each MB of small pages. */
#ifndef FS_STORE_CHUNKS_H
#define FS_STORE_CHUNKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct fs_chunk;

typedef struct {
    struct fs_chunk **at;
    uint32_t count, capacity;
    uint32_t single; /* of the first, how many are not in a block of several */
    bool many;       /* many are expected */
} fs_chunks;

/* Append a chunk. FS_OUT_OF_MEMORY. */
fs_status fs_chunks_add(fs_chunks *chunks, fs_error *err);
void fs_chunks_clear(fs_chunks *chunks);

#endif
