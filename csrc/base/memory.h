/* Host memory of the core's own structures. All allocations use these functions, so that a test can make one fail. */
#ifndef FS_BASE_MEMORY_H
#define FS_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Like malloc, calloc and realloc; NULL when out of memory. Thread-safe. */
void *fs_malloc(size_t size);
void *fs_calloc(size_t count, size_t size);
void *fs_realloc(void *block, size_t size);
void fs_free(void *block);

/* Return FS_OUT_OF_MEMORY with the size of the allocation that failed last on this thread: "no memory for 64 bytes". */
fs_status fs_no_memory(fs_error *err);
#ifdef __clang_analyzer__ /* as with fs_fail */
#define fs_no_memory(err) (FS_IGNORE((fs_no_memory)(err)), FS_OUT_OF_MEMORY)
#endif

/* Point *list to room for `count` items of its type, uninitialised or zeroed: FS_TRY(FS_NEW(&list, count, err)). NULL
 * and fs_no_memory if there is none. Released with fs_free. */
#define FS_NEW(list, count, err) fs_new(list, count, sizeof **(list), false, err)
#define FS_NEW_ZEROED(list, count, err) fs_new(list, count, sizeof **(list), true, err)
fs_status fs_new(void *list, size_t count, size_t item_size, bool zeroed, fs_error *err);

/* Like fs_malloc, in huge pages if the system has them. For megabytes that will be filled: a tenth of the page
 * faults. */
void *fs_malloc_huge(size_t size);

/* Map zeroed memory, a multiple of FS_HUGE_PAGE bytes, in huge pages if the system has them. The system gets it back as
 * soon as it is unmapped, on whatever thread. NULL when out of memory. */
enum { FS_HUGE_PAGE = 2 << 20 };
void *fs_map(size_t size);
void fs_unmap(void *block, size_t size);

/* Give freed memory back to the system, where the library keeps it: after threads have freed megabytes. */
void fs_memory_trim(void);

/* The block size for large buffers. The C tests and the fuzz targets are built with FS_SMALL_BLOCKS, so that small
 * inputs span several blocks in little time. */
#ifdef FS_SMALL_BLOCKS
#define FS_BLOCK(usual, small) (small)
#else
#define FS_BLOCK(usual, small) (usual)
#endif

/* Allocate bytes aligned to 64 (a cache line and an AVX-512 register). Release with fs_free. */
void *fs_malloc_aligned(size_t size);

/* The number of allocated blocks, which a test compares at its start and end. */
int64_t fs_memory_live(void);

/* Fault injection: the n-th allocation from now (1 is the next) and all later ones fail. 0 turns it off. */
void fs_memory_fail_at(int64_t n);

/* Lists ------------------------------------------------------------------------------------------------------------ */

/* Lists that grow by doubling: a pointer to items of one size and the number of items that there is room for. An empty
 * list is a null pointer and 0; it is released with fs_free. */

/* Make room for the item with this index, and for as many again: the capacity becomes the double of what it was, at
 * least `first`, and more if the index needs it. `list` is the address of the pointer to the items. The room that is
 * new is uninitialised. FS_OUT_OF_MEMORY, which leaves the list as it was; also if the capacity would exceed 32 bits.
 */
fs_status fs_list_grow(void *list, size_t index, uint32_t *capacity, size_t item_size, uint32_t first, fs_error *err);

/* Grow the list only if it has no room for the index: FS_TRY(FS_LIST_ROOM(&list, count, &capacity, 64, err)).
 * The index and the capacity are evaluated twice. */
#define FS_LIST_ROOM(list, index, capacity, first, err) \
    ((index) < *(capacity) ? FS_OK : fs_list_grow(list, index, capacity, sizeof **(list), first, err))

/* Append an item: FS_TRY(FS_LIST_ADD(&list, &count, &capacity, 64, err, item)). */
#define FS_LIST_ADD(list, count, capacity, first, err, ...)                    \
    __extension__({                                                            \
        fs_status added_ = FS_LIST_ROOM(list, *(count), capacity, first, err); \
        if (added_ == FS_OK) {                                                 \
            (*(list))[*(count)] = __VA_ARGS__;                                 \
            ++*(count);                                                        \
        }                                                                      \
        added_;                                                                \
    })

#endif
