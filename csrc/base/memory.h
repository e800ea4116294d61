/* Host memory of the core's own structures. One door, so that a test can make the n-th allocation fail. */
#ifndef FS_BASE_MEMORY_H
#define FS_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* As malloc, calloc and realloc; NULL when out of memory. Thread-safe. */
void *fs_malloc(size_t size);
void *fs_calloc(size_t count, size_t size);
void *fs_realloc(void *block, size_t size);
void fs_free(void *block);

/* As fs_malloc, in huge pages where the system has them: for megabytes that will be filled, a tenth of the page faults.
 */
void *fs_malloc_huge(size_t size);

/* The size of blocks in which much is read or kept. The fuzz targets are built with FS_SMALL_BLOCKS: their small inputs
 * then take several blocks, and little time. */
#ifdef FS_SMALL_BLOCKS
#define FS_BLOCK(usual, small) (small)
#else
#define FS_BLOCK(usual, small) (usual)
#endif

/* Bytes aligned to 64 (a cache line and an AVX-512 register); release with fs_free. */
void *fs_malloc_aligned(size_t size);

/* Blocks now alive; a test ends with what it began with. */
int64_t fs_memory_live(void);

/* Fault injection: the n-th allocation from now (1 is the next) and all after it fail. 0 turns it off. */
void fs_memory_fail_at(int64_t n);

#endif
