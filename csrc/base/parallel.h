/* A pool of threads for loops over ranges. */
#ifndef FS_BASE_PARALLEL_H
#define FS_BASE_PARALLEL_H

#include <stdint.h>

#include "base/status.h"

/* Work on [begin, end). Called on several threads at once. */
typedef void (*fs_parallel_body)(void *context, int64_t begin, int64_t end);

/* Run body over [0, count) in pieces of whole multiples of `grain` (the last may be shorter), on the calling thread
 * and the pool, and return when all is done. Runs on the calling thread alone when count <= grain, when one thread
 * is set, when the pool is busy with another caller's loop, or when no thread could be started: it never fails.
 * Pieces are handed out in order; two calls with the same count and grain may split differently, so a body whose
 * result depends on the split must use begin / grain as its piece number.
 * In a section of base/interrupt.h that is to end, pieces are left out: poll after it. */
void fs_parallel_for(int64_t count, int64_t grain, fs_parallel_body body, void *context);

/* Threads used, the caller's included. Default: the processors this process may run on, at most 256. */
int fs_parallel_threads(void);
fs_status fs_parallel_set_threads(int threads, fs_error *err);

#endif
