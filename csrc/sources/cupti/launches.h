/* A log of the launches of graphs, for recordings whose device work does not tell its node: which executable graph
 * each call of such a recording launched. Its owner locks. Private to the CUPTI source.
 *
 * A launch is logged where the driver's function begins: the executable graph exists then, and the time is within the
 * recorded call, of the driver or of the runtime around it, near its start even if the call has to wait. Calls that
 * fail are logged too, as they are recorded. */
#ifndef FS_SOURCES_CUPTI_LAUNCHES_H
#define FS_SOURCES_CUPTI_LAUNCHES_H

#include "sources/graphs/captures.h"
#include "store/store.h"

enum { FS_MOST_LAUNCHES = 1 << 18 }; /* that are kept: 6 MiB */

typedef struct {
    int64_t time;    /* fs_clock_now */
    uint32_t thread; /* of the system */
    uint32_t handle; /* of the thread, as fs_thread_handle */
    uint32_t graph;  /* id of the executable graph; 0: unknown */
} fs_logged_launch;

/* What Kineto writes for a thread that ran no recorded op, so that the system's id is unknown to it: the lower half of
 * the calling thread's pthread_t as a signed number, without its sign. */
uint32_t fs_thread_handle(void);

typedef struct {
    fs_logged_launch *launches; /* of each thread in the order of time */
    uint32_t count, capacity;
    int64_t lost; /* for which there was no room */
} fs_launch_log;

/* An all-zero struct is empty. */
void fs_launch_log_clear(fs_launch_log *log);

/* Copy what was logged during a recording into an empty log: all of it, if the window of the store is unknown. `shift`
 * as below. FS_OUT_OF_MEMORY. */
fs_status fs_launch_log_copy(const fs_launch_log *log, const fs_store *store, int64_t shift, fs_launch_log *copy,
                             fs_error *err);

/* Make room for another recording: if the log is more than half full, forget the older half. */
void fs_launch_log_begin(fs_launch_log *log);
void fs_launch_log_add(fs_launch_log *log, const fs_logged_launch *launch);

/* Add to the captures which executable graph each call of the store launched, where the log shows it. The store's times
 * are `shift` ns less than those of the log, which may be wrong by the drift of clocks. The order of the launches of a
 * thread decides: between pauses that are longer than any drift, all ways are tried to lay the calls and the logged
 * launches side by side, so that each launch is within its call and the difference of the clocks never jumps. One with
 * as many calls as launches counts, or one that pairs more of them than any other. The log is then sorted by thread.
 * FS_OUT_OF_MEMORY; FS_INTERRUPTED. */
fs_status fs_launch_log_tie(fs_launch_log *log, const fs_store *store, int64_t shift, fs_captures *captures,
                            fs_error *err);

#endif
