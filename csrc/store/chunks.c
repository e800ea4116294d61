/* A chunk never moves once it was added, so a pointer to it stays good while others are appended. Chunks of large
 * stores are allocated four at a time, which fills huge pages; such a block is freed by its first chunk. The first four
 * chunks may be blocks of their own: allocators may put them side by side, so their addresses do not tell. */
#include "store/chunks.h"

#include "base/list.h"
#include "base/memory.h"
#include "store/store.h"

/* More events than ids: the last id means "none". */
enum { MAX_CHUNKS = (1 << (32 - FS_CHUNK_BITS)) - 1 };

/* Chunks of a block: 14 MB, seven huge pages. */
enum { BLOCK_CHUNKS = 4 };

static fs_chunk *next_chunk(fs_chunks *chunks)
{
    uint32_t place = chunks->count % BLOCK_CHUNKS;
    if (chunks->count == 0) chunks->single = chunks->many ? 0 : BLOCK_CHUNKS;
    if (chunks->count < chunks->single) return fs_malloc(sizeof(fs_chunk));
    return place == 0 ? fs_malloc(BLOCK_CHUNKS * sizeof(fs_chunk)) : chunks->at[chunks->count - 1] + 1;
}

fs_status fs_chunks_add(fs_chunks *chunks, fs_error *err)
{
    if (chunks->count == MAX_CHUNKS) {
        return fs_fail(err, FS_OUT_OF_MEMORY, "a store holds at most %lld events: profile a shorter part",
                       (long long)MAX_CHUNKS << FS_CHUNK_BITS);
    }
    FS_TRY(FS_LIST_ROOM(&chunks->at, chunks->count, &chunks->capacity, 16, "chunks of events", err));
    fs_chunk *chunk = next_chunk(chunks);
    if (chunk == NULL) {
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %lld events",
                       ((long long)chunks->count << FS_CHUNK_BITS) + 1);
    }
    chunks->at[chunks->count++] = chunk;
    return FS_OK;
}

void fs_chunks_clear(fs_chunks *chunks)
{
    for (uint32_t i = chunks->count; i-- > 0;)
        if (i < chunks->single || i % BLOCK_CHUNKS == 0) fs_free(chunks->at[i]);
    fs_free(chunks->at);
    *chunks = (fs_chunks){0};
}
