/* The pool of buffers that CUPTI fills. Private to the CUPTI source.
 *
 *   free ─ request ─► CUPTI fills it ─ complete ─► parsed at once ─► free
 *
 * All buffers together hold at most `most_bytes`. Beyond that bound CUPTI receives small buffers whose records are
 * counted as dropped: refusing a buffer crashes CUPTI before CUDA 12.9, and this keeps the count exact. CUPTI may call
 * from any thread. */
#ifndef FS_SOURCES_CUPTI_BUFFERS_H
#define FS_SOURCES_CUPTI_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { FS_CUPTI_BUFFER_BYTES = 4 << 20, FS_CUPTI_MOST_BYTES = 256 << 20, FS_CUPTI_FIRST_BUFFERS = 2 };

/* Set the bound and allocate the first buffers; the pool must be empty. FS_OUT_OF_MEMORY. */
fs_status fs_cupti_buffers_open(size_t buffer_bytes, size_t most_bytes, fs_error *err);

/* Return a zeroed buffer to fill; NULL if memory is exhausted. */
uint8_t *fs_cupti_buffer_take(size_t *size);

/* Use of the records of a returned buffer. If one client starts while another captures, CUPTI may return a buffer to
 * the wrong client; such a buffer is FOREIGN. */
typedef enum { FS_CUPTI_KEEP, FS_CUPTI_DROP, FS_CUPTI_FOREIGN } fs_cupti_buffer_use;
fs_cupti_buffer_use fs_cupti_buffer_use_of(const uint8_t *buffer);

/* Take back a buffer that CUPTI has finished with, `valid` bytes of it filled. A buffer of a closed pool is freed; a
 * foreign one is ignored. */
void fs_cupti_buffer_give(uint8_t *buffer, size_t valid);

/* Free the buffers that CUPTI does not hold; returns the number that it holds. */
int64_t fs_cupti_buffers_close(void);

#endif
