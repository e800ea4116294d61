/* Names of device work as Kineto writes them, so that rows of all sources have the same names. Private to the reader of
 * databases. */
#ifndef FS_SOURCES_SQLITE_NAMES_H
#define FS_SOURCES_SQLITE_NAMES_H

#include <stddef.h>
#include <stdint.h>

enum { FS_WORK_NAME_SIZE = 96 };

/* "Memcpy HtoD (Pageable -> Device)". Kinds are those of nsys; a negative or unknown one is named so. */
void fs_copy_name(int64_t kind, int64_t from, int64_t to, char name[FS_WORK_NAME_SIZE]);
/* "Memset (Device)" */
void fs_fill_name(int64_t memory, char name[FS_WORK_NAME_SIZE]);
/* "Stream Sync" */
void fs_sync_name(int64_t type, char name[FS_WORK_NAME_SIZE]);
/* "CUDA graph 5 (replayed; its kernels were not recorded)"; without the number if it is 0 */
void fs_replay_name(int64_t graph, char name[FS_WORK_NAME_SIZE]);

/* The size of the name of an API call without the version that nsys appends: cudaLaunchKernel_v7000. The "_v2" of a
 * driver function belongs to its name. */
size_t fs_call_name_size(const char *name, size_t size);

#endif
