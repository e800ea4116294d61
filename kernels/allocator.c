/* The cache of free device memory, per device.
 *
 *   up to 1 MiB   rounded up to 512 B, one stack of free blocks per size: no search, no record of blocks in use
 *   above         rounded up to 2 MiB; free blocks sorted by size, best fit if at most a quarter too large;
 *                 blocks in use are in a hash table, as the requested size does not determine the block's size
 *
 * A released block is reused at once: all work is on one stream, so the next user's work runs after the previous
 * user's. Scratch blocks are beside the cache, and are freed with it while nobody uses them. Nothing here is freed at
 * process exit, which is left to the driver.
 */
#include <pthread.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/context.h"

enum {
    SMALL_UNIT = 512,
    SMALL_LIMIT = 1 << 20,
    SMALL_BINS = SMALL_LIMIT / SMALL_UNIT + 1, /* by size / SMALL_UNIT */
    LARGE_UNIT = 2 << 20,
    LARGE_WASTE = 4 /* a large block may exceed the request by 1 / LARGE_WASTE */
};

typedef struct {
    void *data;
    size_t size;
} block;

typedef struct {
    void **blocks;
    size_t count, capacity;
} small_bin;

typedef struct {
    pthread_mutex_t lock;
    small_bin bins[SMALL_BINS];
    block *large; /* free, sorted by size */
    size_t large_count, large_capacity;
    block *in_use; /* large blocks: open addressing, at most half full; data NULL is an empty slot */
    size_t in_use_count, in_use_slots;
    struct {
        void *data; /* NULL before the first use */
        size_t size;
        int users;
    } scratch[FS_CUDA_SCRATCH_COUNT];
    int64_t allocated, reserved;
} cache;

static cache *caches[FS_CUDA_MAX_DEVICES]; /* created on first use */

static cache *cache_find(fs_device device)
{
    return __atomic_load_n(&caches[device.index], __ATOMIC_ACQUIRE);
}

static fs_status out_of_host_memory(fs_error *err)
{
    return fs_fail(err, FS_OUT_OF_MEMORY, "out of host memory: cannot record a block of device memory");
}

static fs_status cache_get(fs_device device, cache **result, fs_error *err)
{
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

    *result = cache_find(device);
    if (*result) return FS_OK;
    pthread_mutex_lock(&making);
    *result = cache_find(device);
    if (!*result) {
        cache *created = fs_calloc(1, sizeof *created);
        if (created) {
            pthread_mutex_init(&created->lock, NULL);
            __atomic_store_n(&caches[device.index], created, __ATOMIC_RELEASE);
        }
        *result = created;
    }
    pthread_mutex_unlock(&making);
    return *result ? FS_OK : out_of_host_memory(err);
}

/* ---- large blocks in use ---- */

static size_t slot_of(const cache *c, const void *data)
{
    size_t slot = (size_t)(((uintptr_t)data / LARGE_UNIT) * 0x9E3779B97F4A7C15u >> 32) & (c->in_use_slots - 1);
    while (c->in_use[slot].data && c->in_use[slot].data != data) slot = (slot + 1) & (c->in_use_slots - 1);
    return slot;
}

/* Make room for one more. Return false when out of host memory. */
static bool in_use_reserve(cache *c)
{
    if (2 * (c->in_use_count + 1) <= c->in_use_slots) return true;
    size_t slots = c->in_use_slots ? 2 * c->in_use_slots : 64, old_slots = c->in_use_slots;
    block *old = c->in_use, *table = fs_calloc(slots, sizeof *table);
    if (!table) return false;
    c->in_use = table;
    c->in_use_slots = slots;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].data) table[slot_of(c, old[i].data)] = old[i];
    fs_free(old);
    return true;
}

static void in_use_add(cache *c, block b)
{
    c->in_use[slot_of(c, b.data)] = b;
    c->in_use_count++;
}

/* Remove the block and return its size. Its probe chain is closed. */
static size_t in_use_remove(cache *c, const void *data)
{
    size_t mask = c->in_use_slots - 1, hole = slot_of(c, data), size = c->in_use[hole].size;

    c->in_use[hole].data = NULL;
    c->in_use_count--;
    for (size_t next = (hole + 1) & mask; c->in_use[next].data; next = (next + 1) & mask) {
        block moved = c->in_use[next];
        c->in_use[next].data = NULL;
        c->in_use[slot_of(c, moved.data)] = moved;
    }
    return size;
}

/* ---- free blocks ---- */

static void *grown(void *items, size_t count, size_t *capacity, size_t item_size)
{
    if (count < *capacity) return items;
    size_t wanted = *capacity ? 2 * *capacity : 16;
    void *moved = fs_realloc(items, wanted * item_size);
    if (moved) *capacity = wanted;
    return moved;
}

/* The first free large block of at least `size`. */
static size_t large_lower_bound(const cache *c, size_t size)
{
    size_t low = 0, high = c->large_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c->large[middle].size < size) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool large_put(cache *c, block b)
{
    block *items = grown(c->large, c->large_count, &c->large_capacity, sizeof *items);
    if (!items) return false;
    c->large = items;
    size_t at = large_lower_bound(c, b.size);
    memmove(items + at + 1, items + at, (c->large_count - at) * sizeof *items);
    items[at] = b;
    c->large_count++;
    return true;
}

static bool large_take(cache *c, size_t size, block *taken)
{
    size_t at = large_lower_bound(c, size);
    if (at == c->large_count || c->large[at].size > size + size / LARGE_WASTE) return false;
    *taken = c->large[at];
    c->large_count--;
    memmove(c->large + at, c->large + at + 1, (c->large_count - at) * sizeof *c->large);
    return true;
}

static bool small_put(small_bin *bin, void *data)
{
    void **items = grown(bin->blocks, bin->count, &bin->capacity, sizeof *items);
    if (!items) return false;
    bin->blocks = items;
    items[bin->count++] = data;
    return true;
}

/* Free all cached blocks, and the scratch blocks that nobody uses. The lock is held. */
static void cache_drop(cache *c)
{
    for (size_t i = 0; i < SMALL_BINS; i++) {
        small_bin *bin = &c->bins[i];
        for (size_t j = 0; j < bin->count; j++) {
            cudaFree(bin->blocks[j]);
            c->reserved -= (int64_t)(i * SMALL_UNIT);
        }
        fs_free(bin->blocks);
        memset(bin, 0, sizeof *bin);
    }
    for (size_t i = 0; i < c->large_count; i++) {
        cudaFree(c->large[i].data);
        c->reserved -= (int64_t)c->large[i].size;
    }
    fs_free(c->large);
    c->large = NULL;
    c->large_count = c->large_capacity = 0;
    for (int i = 0; i < FS_CUDA_SCRATCH_COUNT; i++) {
        if (!c->scratch[i].data || c->scratch[i].users) continue;
        cudaFree(c->scratch[i].data);
        c->scratch[i].data = NULL;
        c->reserved -= (int64_t)c->scratch[i].size;
    }
    cudaGetLastError();
}

/* Allocate from CUDA. If it is out of memory, free the cache and try again. The lock is held. */
static fs_status device_malloc(cache *c, fs_device device, size_t size, void **data, fs_error *err)
{
    char where[16];
    size_t free_bytes = 0, total_bytes = 0;

    cudaError_t code = cudaMalloc(data, size);
    if (code == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        cache_drop(c);
        code = cudaMalloc(data, size);
    }
    if (code == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) cudaGetLastError();
        return fs_fail(err, FS_OUT_OF_MEMORY,
                       "%s is out of memory: %.3f GiB requested, %.3f of %.3f GiB free, %.3f GiB held by flopscope's "
                       "tensors and workspaces: release tensors (of other libraries and processes, too) or use smaller "
                       "ones",
                       fs_device_text(device, where), (double)size / 0x1p30, (double)free_bytes / 0x1p30,
                       (double)total_bytes / 0x1p30, (double)c->reserved / 0x1p30);
    }
    FS_CUDA_TRY(code, device, "allocating memory", err);
    c->reserved += (int64_t)size;
    return FS_OK;
}

static fs_status take_small(cache *c, fs_device device, size_t units, void **data, fs_error *err)
{
    small_bin *bin = &c->bins[units];
    if (bin->count) {
        *data = bin->blocks[--bin->count];
        return FS_OK;
    }
    return device_malloc(c, device, units * SMALL_UNIT, data, err);
}

static fs_status take_large(cache *c, fs_device device, size_t size, void **data, fs_error *err)
{
    block b;

    if (!in_use_reserve(c)) return out_of_host_memory(err);
    if (!large_take(c, size, &b)) {
        b.size = size;
        FS_TRY(device_malloc(c, device, size, &b.data, err));
    }
    in_use_add(c, b);
    *data = b.data;
    return FS_OK;
}

fs_status fs_cuda_allocate(fs_device device, size_t nbytes, void **data, fs_error *err)
{
    cache *c;
    char where[16];
    fs_status status;

    *data = NULL;
    if (nbytes > SIZE_MAX / 4)
        return fs_fail(err, FS_OUT_OF_MEMORY, "%s is out of memory: %zu bytes requested for one tensor",
                       fs_device_text(device, where), nbytes);
    FS_TRY(cache_get(device, &c, err));
    pthread_mutex_lock(&c->lock);
    if (nbytes <= SMALL_LIMIT)
        status = take_small(c, device, nbytes ? (nbytes + SMALL_UNIT - 1) / SMALL_UNIT : 1, data, err);
    else status = take_large(c, device, (nbytes + LARGE_UNIT - 1) / LARGE_UNIT * LARGE_UNIT, data, err);
    if (status == FS_OK) c->allocated += (int64_t)nbytes;
    pthread_mutex_unlock(&c->lock);
    return status;
}

void fs_cuda_release(fs_device device, void *data, size_t nbytes)
{
    cache *c = cache_find(device);
    size_t size;
    bool recorded;

    if (!c || !data || fs_cuda_graph_keeps(device, data, nbytes)) return;
    pthread_mutex_lock(&c->lock);
    c->allocated -= (int64_t)nbytes;
    if (nbytes <= SMALL_LIMIT) {
        size_t units = nbytes ? (nbytes + SMALL_UNIT - 1) / SMALL_UNIT : 1;
        size = units * SMALL_UNIT;
        recorded = small_put(&c->bins[units], data);
    } else {
        size = in_use_remove(c, data);
        recorded = large_put(c, (block){data, size});
    }
    if (!recorded) { /* out of host memory: without a record, the block must go back to CUDA */
        cudaFree(data);
        cudaGetLastError();
        c->reserved -= (int64_t)size;
    }
    pthread_mutex_unlock(&c->lock);
}

fs_status fs_cuda_scratch_take(fs_device device, fs_cuda_scratch which, size_t nbytes, void **data, bool *fresh,
                               fs_error *err)
{
    cache *c;
    fs_status status = FS_OK;

    *data = NULL;
    FS_TRY(cache_get(device, &c, err));
    pthread_mutex_lock(&c->lock);
    bool absent = !c->scratch[which].data;
    if (absent) {
        status = device_malloc(c, device, nbytes, data, err);
        if (status == FS_OK) c->scratch[which].data = *data, c->scratch[which].size = nbytes;
    }
    if (status == FS_OK) {
        *data = c->scratch[which].data;
        c->scratch[which].users++;
    }
    pthread_mutex_unlock(&c->lock);
    if (fresh) *fresh = absent;
    return status;
}

void fs_cuda_scratch_give(fs_device device, fs_cuda_scratch which)
{
    cache *c = cache_find(device);

    if (!c || fs_cuda_graph_keeps_scratch(device, which)) return;
    pthread_mutex_lock(&c->lock);
    c->scratch[which].users--;
    pthread_mutex_unlock(&c->lock);
}

static int64_t statistic(fs_device device, bool reserved)
{
    cache *c = (unsigned)device.index < FS_CUDA_MAX_DEVICES ? cache_find(device) : NULL;
    if (!c) return 0;
    pthread_mutex_lock(&c->lock);
    int64_t value = reserved ? c->reserved : c->allocated;
    pthread_mutex_unlock(&c->lock);
    return value;
}

int64_t fs_cuda_allocated(fs_device device)
{
    return statistic(device, false);
}

int64_t fs_cuda_reserved(fs_device device)
{
    return statistic(device, true);
}

void fs_cuda_empty_cache(fs_device device)
{
    cache *c = (unsigned)device.index < FS_CUDA_MAX_DEVICES ? cache_find(device) : NULL;
    int previous;

    /* Without a cache, or in a forked child, nothing can be freed. */
    if (!c || fs_cuda_enter(device, &previous, NULL) != FS_OK) return;
    pthread_mutex_lock(&c->lock);
    cudaDeviceSynchronize(); /* otherwise each cudaFree would wait */
    cache_drop(c);
    pthread_mutex_unlock(&c->lock);
    fs_cuda_leave(previous);
}
