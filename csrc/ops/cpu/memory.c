/* Memory of CPU tensors: small blocks from malloc, large ones from mmap through a cache of free blocks.
 *
 * A large block's size is rounded up to one of eight classes per power of two. A free block is in its class's list,
 * linked through its own first bytes:
 *
 *   free_blocks[class]  ──►  [ next | … ]  ──►  [ next | … ]  ──►  NULL
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/unused.h"
#include "ops/cpu/cpu_rows.h"

#define LARGE ((size_t)1 << 20)
#define HUGE_PAGE ((size_t)2 << 20)

enum { CLASSES_PER_POWER = 8, CLASS_COUNT = 64 * CLASSES_PER_POWER };

typedef struct free_block {
    struct free_block *next;
} free_block;

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static free_block *free_blocks[CLASS_COUNT];
static size_t cached_bytes;

static atomic_llong allocated_bytes; /* as requested */
static atomic_llong reserved_bytes;  /* as allocated from the system */

static void lock_cache(void)
{
    pthread_mutex_lock(&cache_lock);
}

static void unlock_cache(void)
{
    pthread_mutex_unlock(&cache_lock);
}

/* Hold the lock across a fork, so that the child does not inherit it locked by another thread. */
static void watch_forks(void)
{
    pthread_atfork(lock_cache, unlock_cache, unlock_cache);
}

/* The class of a size of at least LARGE. Its blocks have *block_bytes: at most an eighth more. */
static int size_class(size_t nbytes, size_t *block_bytes)
{
    int power = 63 - __builtin_clzll((unsigned long long)nbytes);
    size_t step = ((size_t)1 << power) / CLASSES_PER_POWER;
    size_t steps = (nbytes - ((size_t)1 << power) + step - 1) / step; /* up to 8, which is step 0 of the next power */
    *block_bytes = ((size_t)1 << power) + steps * step;
    return power * CLASSES_PER_POWER + (int)steps;
}

/* Call mmap, aligned to a huge page if the block is large enough: page faults are then 512 times fewer. */
static void *map_block(size_t nbytes)
{
    size_t extra = nbytes >= 2 * HUGE_PAGE ? HUGE_PAGE : 0;
    char *mapped = mmap(NULL, nbytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return NULL;
    if (extra == 0) return mapped;

    size_t before = (HUGE_PAGE - ((uintptr_t)mapped & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
    if (before > 0) munmap(mapped, before);
    if (extra > before) munmap(mapped + before + nbytes, extra - before);
    madvise(mapped + before, nbytes, MADV_HUGEPAGE);
    return mapped + before;
}

static size_t cache_limit(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (size_t)pages * (size_t)page / 8 : 0;
}

/* The caller holds the lock. */
static void empty_locked(void)
{
    for (int class = 0; class < CLASS_COUNT && cached_bytes > 0; class++) {
        size_t power = (size_t)1 << (class / CLASSES_PER_POWER);
        size_t block_bytes = power + (size_t)(class % CLASSES_PER_POWER) * (power / CLASSES_PER_POWER);
        while (free_blocks[class] != NULL) {
            free_block *block = free_blocks[class];
            free_blocks[class] = block->next;
            munmap(block, block_bytes);
            cached_bytes -= block_bytes;
            atomic_fetch_sub(&reserved_bytes, (long long)block_bytes);
        }
    }
}

static void *allocate_large(size_t nbytes)
{
    size_t block_bytes;
    int class = size_class(nbytes, &block_bytes);
    void *block = NULL;

    pthread_once(&fork_once, watch_forks);
    lock_cache();
    if (free_blocks[class] != NULL) {
        block = free_blocks[class];
        free_blocks[class] = free_blocks[class]->next;
        cached_bytes -= block_bytes;
    } else {
        block = map_block(block_bytes);
        if (block == NULL && cached_bytes > 0) {
            empty_locked();
            block = map_block(block_bytes);
        }
        if (block != NULL) atomic_fetch_add(&reserved_bytes, (long long)block_bytes);
    }
    unlock_cache();
    return block;
}

static void release_large(void *data, size_t nbytes)
{
    static size_t limit; /* guarded by the lock */
    size_t block_bytes;
    int class = size_class(nbytes, &block_bytes);

    lock_cache();
    if (limit == 0) limit = cache_limit();
    /* The blocks in the cache were not used recently, so this block replaces them. */
    if (cached_bytes + block_bytes > limit) empty_locked();
    if (block_bytes > limit) {
        munmap(data, block_bytes);
        atomic_fetch_sub(&reserved_bytes, (long long)block_bytes);
    } else {
        free_block *block = data;
        block->next = free_blocks[class];
        free_blocks[class] = block;
        cached_bytes += block_bytes;
    }
    unlock_cache();
}

fs_status fs_cpu_allocate(fs_device FS_UNUSED(device), size_t nbytes, void **data, fs_error *err)
{
    *data = NULL;
    if (nbytes < LARGE) {
        *data = fs_malloc_aligned(nbytes);
        if (*data != NULL) atomic_fetch_add(&reserved_bytes, (long long)nbytes);
    } else if (nbytes <= PTRDIFF_MAX / 2) {
        *data = allocate_large(nbytes);
    }
    if (*data == NULL) {
        return fs_fail(
            err, FS_OUT_OF_MEMORY,
            "out of host memory: %zu bytes (%.2f GiB) requested; %.2f GiB are in CPU tensors; free tensors or make "
            "smaller ones",
            nbytes, (double)nbytes * 0x1p-30, (double)atomic_load(&allocated_bytes) * 0x1p-30);
    }
    atomic_fetch_add(&allocated_bytes, (long long)nbytes);
    return FS_OK;
}

void fs_cpu_release(fs_device FS_UNUSED(device), void *data, size_t nbytes)
{
    if (data == NULL) return;
    atomic_fetch_sub(&allocated_bytes, (long long)nbytes);
    if (nbytes < LARGE) {
        atomic_fetch_sub(&reserved_bytes, (long long)nbytes);
        fs_free(data);
    } else {
        release_large(data, nbytes);
    }
}

int64_t fs_cpu_allocated(fs_device FS_UNUSED(device))
{
    return atomic_load(&allocated_bytes);
}

int64_t fs_cpu_reserved(fs_device FS_UNUSED(device))
{
    return atomic_load(&reserved_bytes);
}

void fs_cpu_empty_cache(fs_device FS_UNUSED(device))
{
    lock_cache();
    empty_locked();
    unlock_cache();
}
