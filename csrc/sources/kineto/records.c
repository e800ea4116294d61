/* Slabs of blocks. The first ones are small, for small traces; the others are huge pages, so that many threads neither
 * wait for each other's page faults nor keep what they freed. */
#include "sources/kineto/records.h"

#include "base/memory.h"

enum { FIRST_BLOCKS = 2, MOST_BLOCKS = FS_BLOCK(64, 4) };

struct fs_record_slab {
    fs_record_slab *next;
    uint32_t used, capacity; /* blocks */
    fs_record_block blocks[];
};

_Static_assert(sizeof(fs_record_slab) + MOST_BLOCKS * sizeof(fs_record_block) <= FS_HUGE_PAGE,
               "the largest slab is a huge page");

static fs_record_slab *create_slab(uint32_t capacity)
{
    size_t size = sizeof(fs_record_slab) + capacity * sizeof(fs_record_block);
    fs_record_slab *slab = capacity < MOST_BLOCKS ? fs_malloc(size) : fs_map(FS_HUGE_PAGE);
    if (slab == NULL) return NULL;
    slab->used = 0;
    slab->capacity = capacity;
    return slab;
}

void fs_record_pool_clear(fs_record_pool *pool)
{
    while (pool->slabs != NULL) {
        fs_record_slab *next = pool->slabs->next;
        if (pool->slabs->capacity < MOST_BLOCKS) fs_free(pool->slabs);
        else fs_unmap(pool->slabs, FS_HUGE_PAGE);
        pool->slabs = next;
    }
    pool->free = NULL;
}

static fs_record_block *take_block(fs_record_pool *pool)
{
    fs_record_block *block = pool->free;
    if (block != NULL) {
        pool->free = block->next;
        return block;
    }
    fs_record_slab *slab = pool->slabs;
    if (slab == NULL || slab->used == slab->capacity) {
        uint32_t capacity = slab == NULL ? FIRST_BLOCKS : 2 * slab->capacity;
        slab = create_slab(capacity < MOST_BLOCKS ? capacity : MOST_BLOCKS);
        if (slab == NULL) return NULL;
        slab->next = pool->slabs;
        pool->slabs = slab;
    }
    return &slab->blocks[slab->used++];
}

fs_status fs_piece_add_record(fs_piece *piece, fs_record **record, fs_error *err)
{
    if (piece->last == NULL || piece->last->count == FS_RECORD_BLOCK) {
        fs_lock_take(&piece->pool->lock);
        fs_record_block *block = take_block(piece->pool);
        fs_lock_give(&piece->pool->lock);
        if (block == NULL) return fs_no_memory(err);
        block->next = NULL;
        block->count = 0;
        if (piece->last != NULL) piece->last->next = block;
        else piece->first = block;
        piece->last = block;
    }
    *record = &piece->last->records[piece->last->count++];
    return FS_OK;
}

void fs_piece_drop_records(fs_piece *piece)
{
    if (piece->first == NULL) return;
    fs_lock_take(&piece->pool->lock);
    piece->last->next = piece->pool->free;
    piece->pool->free = piece->first;
    fs_lock_give(&piece->pool->lock);
    piece->first = piece->last = NULL;
}
