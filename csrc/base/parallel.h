/* A pool of threads for loops over ranges. */
#ifndef FS_BASE_PARALLEL_H
#define FS_BASE_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Work on [begin, end). Called on several threads at once. */
typedef void (*fs_parallel_body)(void *context, int64_t begin, int64_t end);

/* Run body over [0, count) in pieces that are multiples of `grain` (the last may be shorter), on the calling thread and
 * the pool, and return when all pieces are done. Never fails: it uses only the calling thread if count <= grain, if the
 * number of threads is 1, if the pool is busy with another caller's loop, or if no thread could be started. Pieces are
 * started in order. Two calls with the same count and grain may split differently, so a body whose result depends on
 * the split must use begin / grain as its piece number. If the section of base/interrupt.h should stop, pieces are
 * skipped: poll after the call. */
void fs_parallel_for(int64_t count, int64_t grain, fs_parallel_body body, void *context);

/* Begin such a loop on the pool alone and return: the caller does other work meanwhile, and must then call
 * fs_parallel_end, which works on what is left and returns when all pieces are done. Until then other loops use only
 * their calling threads. Returns false if nothing was begun: where fs_parallel_for would use only the calling thread.
 * A forked child has neither the loop nor its pieces, and must not end it. */
bool fs_parallel_begin(int64_t count, int64_t grain, fs_parallel_body body, void *context);
void fs_parallel_end(void);

/* The number of threads, including the caller's. Default: the processors that this process may use, at most 256. */
int fs_parallel_threads(void);
fs_status fs_parallel_set_threads(int threads, fs_error *err);

#endif
