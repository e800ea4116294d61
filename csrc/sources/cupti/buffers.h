/* The pool of buffers that CUPTI fills. Private to the CUPTI source.
 *
 *   free ─ request ─► CUPTI fills it ─ complete ─► parsed at once ─► free
 *
 * Of all buffers together there are at most `most_bytes`. Over that bound CUPTI gets small buffers whose records are
 * counted as dropped and not kept: refusing one crashes CUPTIs before CUDA 12.9, and they are counted exactly. CUPTI
 * may call from any thread.
 */
#ifndef FS_SOURCES_CUPTI_BUFFERS_H
#define FS_SOURCES_CUPTI_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { FS_CUPTI_BUFFER_BYTES = 4 << 20, FS_CUPTI_MOST_BYTES = 256 << 20, FS_CUPTI_FIRST_BUFFERS = 2 };

/* Set the bound and make the first buffers; the pool must be empty. FS_OUT_OF_MEMORY. */
fs_status fs_cupti_buffers_open(size_t buffer_bytes, size_t most_bytes, fs_error *err);

/* A buffer of zeros to fill; NULL where there is no memory at all. */
uint8_t *fs_cupti_buffer_take(size_t *size);

/* What to do with the records of a buffer that CUPTI hands back. Another client's may come to us, and ours to it, where
 * one begins while the other captures. */
typedef enum { FS_CUPTI_KEEP, FS_CUPTI_DROP, FS_CUPTI_FOREIGN } fs_cupti_buffer_use;
fs_cupti_buffer_use fs_cupti_buffer_use_of(const uint8_t *buffer);

/* A buffer that CUPTI is done with, `valid` bytes of it filled; of a closed pool it is freed, a foreign one is left
 * alone.
 */
void fs_cupti_buffer_give(uint8_t *buffer, size_t valid);

/* Free what is not in CUPTI's hands; returns how many buffers are. */
int64_t fs_cupti_buffers_close(void);

#endif
