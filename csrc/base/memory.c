/* Every block counts once: live_blocks is the number of blocks that were handed out and not freed, which is how a test
 * finds a leak. While the countdown of injected failures runs, each call of a function here is one step of it; at the
 * last step it turns to -1, and everything fails until it is turned off, as memory that is exhausted stays so. */
#include "base/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/mman.h>

static atomic_llong live_blocks;
static atomic_llong fail_countdown; /* 0: off; n: the n-th allocation from now fails; -1: all fail */

static _Thread_local size_t refused; /* the bytes of the allocation that failed last */

static bool must_fail(void)
{
    long long left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    /* Threads count down together: one that took the last step of another would turn the failures off. */
    while (left > 1 && !atomic_compare_exchange_weak(&fail_countdown, &left, left - 1)) {
    }
    if (left >= 0 && left != 1) return false;
    atomic_store(&fail_countdown, -1);
    return true;
}

static void *refuse(size_t size)
{
    refused = size;
    return NULL;
}

static void *counted(void *block, size_t size)
{
    if (block == NULL) return refuse(size);
    atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return block;
}

/* Blocks of at least this size are assumed to be filled. */
static const size_t huge_bytes = (size_t)8 << 20;

void *fs_malloc_huge(size_t size)
{
    void *block = NULL;
    if (must_fail() || posix_memalign(&block, FS_HUGE_PAGE, size ? size : 1) != 0) return refuse(size);
#ifdef MADV_HUGEPAGE
    madvise(block, size, MADV_HUGEPAGE); /* a hint: if it fails, pages are small */
#endif
    return counted(block, size);
}

void *fs_map(size_t size)
{
    if (must_fail()) return refuse(size);
    size_t room = size + FS_HUGE_PAGE;
    char *mapped = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return refuse(size);
    size_t before = -(uintptr_t)mapped % FS_HUGE_PAGE;
    if (before > 0) munmap(mapped, before);
    if (before < FS_HUGE_PAGE) munmap(mapped + before + size, FS_HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
    madvise(mapped + before, size, MADV_HUGEPAGE);
#endif
    return counted(mapped + before, size);
}

void fs_unmap(void *block, size_t size)
{
    if (block == NULL) return;
    atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    munmap(block, size);
}

void *fs_malloc(size_t size)
{
    if (size >= huge_bytes) return fs_malloc_huge(size);
    return must_fail() ? refuse(size) : counted(malloc(size ? size : 1), size);
}

void *fs_calloc(size_t count, size_t size)
{
    return must_fail() ? refuse(count * size) : counted(calloc(count ? count : 1, size ? size : 1), count * size);
}

void *fs_realloc(void *block, size_t size)
{
    void *moved = must_fail() ? NULL : realloc(block, size ? size : 1);
    if (moved == NULL) return refuse(size);
    return block == NULL ? counted(moved, size) : moved;
}

void *fs_malloc_aligned(size_t size)
{
    void *block = NULL;
    if (must_fail() || posix_memalign(&block, 64, size ? size : 1) != 0) return refuse(size);
    return counted(block, size);
}

void fs_free(void *block)
{
    if (block != NULL) atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    free(block);
}

fs_status(fs_no_memory)(fs_error *err)
{
    return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %zu bytes", refused);
}

/* The pointer is written as bytes: lists of all types pass here, and a void ** to a pointer of another type would break
 * C's aliasing rules. */
fs_status fs_new(void *list, size_t count, size_t item_size, bool zeroed, fs_error *err)
{
    size_t size;
    void *block = NULL;
    if (__builtin_mul_overflow(count, item_size, &size)) refused = SIZE_MAX;
    else block = zeroed ? fs_calloc(count, item_size) : fs_malloc(size);
    memcpy(list, &block, sizeof block);
    return block != NULL ? FS_OK : fs_no_memory(err);
}

void fs_memory_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

int64_t fs_memory_live(void)
{
    return atomic_load(&live_blocks);
}

void fs_memory_fail_at(int64_t n)
{
    atomic_store(&fail_countdown, n);
}

/* Lists ------------------------------------------------------------------------------------------------------------ */

/* The pointer and the capacity change together, after the new room is there, so a failure leaves a list as it was.
 * Doubling copies each item once on average. The pointer is read and written as bytes: lists of all types pass here,
 * and a void ** to a pointer of another type would break C's aliasing rules. */

fs_status fs_list_grow(void *list, size_t index, uint32_t *capacity, size_t item_size, uint32_t first, fs_error *err)
{
    void *old, *grown = NULL;
    size_t wanted = 2 * (size_t)*capacity, size;
    if (wanted < first) wanted = first;
    if (wanted > UINT32_MAX) wanted = UINT32_MAX;
    if (wanted <= index) wanted = index < SIZE_MAX ? index + 1 : index;
    memcpy(&old, list, sizeof old);
    if (wanted <= UINT32_MAX && !__builtin_mul_overflow(wanted, item_size, &size)) grown = fs_realloc(old, size);
    else return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %zu items of %zu bytes", wanted, item_size);
    if (grown == NULL) return fs_no_memory(err);
    memcpy(list, &grown, sizeof grown);
    *capacity = (uint32_t)wanted;
    return FS_OK;
}
