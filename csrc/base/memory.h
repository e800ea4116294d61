/* Host memory of the core's own structures. All allocations use these functions, so that a test can make one fail. */
#ifndef FS_BASE_MEMORY_H
#define FS_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Like malloc, calloc and realloc; NULL when out of memory. Thread-safe. */
void *fs_malloc(size_t size);
void *fs_calloc(size_t count, size_t size);
void *fs_realloc(void *block, size_t size);
void fs_free(void *block);

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

#endif
