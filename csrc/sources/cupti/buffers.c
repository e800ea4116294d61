/* A buffer is in one of three places: in the free list, in the list of those that CUPTI holds, or in the hands of the
 * thread that takes or returns it. It knows the generation of its pool: one that comes back after its pool was closed
 * is freed, and counts for no other pool. The lock is held for list operations only; allocation and zeroing, which take
 * longer, are outside. */
#include "sources/cupti/buffers.h"

#include <string.h>

#include "base/lock.h"
#include "base/memory.h"

enum { SMALL_BYTES = 64 << 10, HEADER_BYTES = 64 };

/* Header before each buffer's bytes. */
typedef struct buffer {
    struct buffer *next; /* in the free list, or in the list of buffers held by CUPTI */
    uint32_t generation; /* of the pool that allocated it */
    bool keeps;
} buffer;

_Static_assert(sizeof(buffer) <= HEADER_BYTES, "the bytes behind the header stay aligned");

static struct {
    fs_lock lock;
    buffer *free, *out;
    size_t buffer_bytes, most_bytes, bytes;
    uint32_t generation;
    bool open;
} pool;

static uint8_t *bytes_of(buffer *head)
{
    return (uint8_t *)head + HEADER_BYTES;
}

/* Allocate a buffer; the caller adds it to the pool. */
static buffer *make(size_t size, bool keeps)
{
    buffer *created = fs_calloc(1, HEADER_BYTES + size);
    if (created != NULL) *created = (buffer){.generation = pool.generation, .keeps = keeps};
    return created;
}

fs_status fs_cupti_buffers_open(size_t buffer_bytes, size_t most_bytes, fs_error *err)
{
    fs_status status = FS_OK;
    fs_lock_take(&pool.lock);
    pool.buffer_bytes = buffer_bytes > 0 ? buffer_bytes : FS_CUPTI_BUFFER_BYTES;
    pool.most_bytes = most_bytes > 0 ? most_bytes : FS_CUPTI_MOST_BYTES;
    pool.bytes = 0;
    pool.generation++;
    pool.open = true;
    for (int i = 0; i < FS_CUPTI_FIRST_BUFFERS && pool.bytes + pool.buffer_bytes <= pool.most_bytes; i++) {
        buffer *created = make(pool.buffer_bytes, true);
        if (created == NULL) {
            status = fs_no_memory(err);
            break;
        }
        /* Touch the pages now, not while the program is being timed. */
        memset(bytes_of(created), 0, pool.buffer_bytes);
        created->next = pool.free;
        pool.free = created;
        pool.bytes += pool.buffer_bytes;
    }
    fs_lock_give(&pool.lock);
    if (status != FS_OK) fs_cupti_buffers_close();
    return status;
}

uint8_t *fs_cupti_buffer_take(size_t *size)
{
    fs_lock_take(&pool.lock);
    buffer *taken = pool.free;
    *size = pool.buffer_bytes;
    if (taken != NULL) pool.free = taken->next;
    bool may_grow = taken == NULL && pool.bytes + pool.buffer_bytes <= pool.most_bytes;
    if (may_grow) pool.bytes += pool.buffer_bytes;
    fs_lock_give(&pool.lock);

    if (may_grow) taken = make(*size, true); /* outside the lock, because it is slow */
    bool failed = may_grow && taken == NULL;
    if (taken == NULL) taken = make(*size = SMALL_BYTES, false);

    fs_lock_take(&pool.lock);
    if (failed) pool.bytes -= pool.buffer_bytes;
    if (taken != NULL) {
        taken->next = pool.out;
        pool.out = taken;
    }
    fs_lock_give(&pool.lock);
    if (taken == NULL) *size = 0;
    return taken == NULL ? NULL : bytes_of(taken);
}

/* Return the link to a buffer held by CUPTI, of this pool or an earlier one; NULL if it belongs to another client. */
static buffer **find_out(const uint8_t *bytes)
{
    for (buffer **link = &pool.out; *link != NULL; link = &(*link)->next)
        if (bytes_of(*link) == bytes) return link;
    return NULL;
}

fs_cupti_buffer_use fs_cupti_buffer_use_of(const uint8_t *bytes)
{
    fs_lock_take(&pool.lock);
    buffer **link = find_out(bytes);
    fs_cupti_buffer_use use = link == NULL ? FS_CUPTI_FOREIGN : (*link)->keeps ? FS_CUPTI_KEEP : FS_CUPTI_DROP;
    fs_lock_give(&pool.lock);
    return use;
}

void fs_cupti_buffer_give(uint8_t *bytes, size_t valid)
{
    fs_lock_take(&pool.lock);
    buffer **link = find_out(bytes), *returned = link == NULL ? NULL : *link;
    if (returned != NULL) *link = returned->next;
    fs_lock_give(&pool.lock);
    if (returned == NULL) return;
    memset(bytes, 0, valid);
    fs_lock_take(&pool.lock);
    bool stays = returned->generation == pool.generation && pool.open && returned->keeps;
    if (stays) {
        returned->next = pool.free;
        pool.free = returned;
    }
    fs_lock_give(&pool.lock);
    if (!stays) fs_free(returned);
}

int64_t fs_cupti_buffers_close(void)
{
    int64_t out = 0;
    fs_lock_take(&pool.lock);
    buffer *free_ones = pool.free;
    for (const buffer *at = pool.out; at != NULL; at = at->next) out += at->generation == pool.generation;
    pool.free = NULL;
    pool.open = false;
    fs_lock_give(&pool.lock);
    while (free_ones != NULL) {
        buffer *next = free_ones->next;
        fs_free(free_ones);
        free_ones = next;
    }
    return out;
}
