/* Sampled stacks of a trace: events of phase "P", as the Trace Event Format has them. Private to the trace source.
 *
 *   {"ph": "P", "pid": 7, "tid": 7, "ts": 1.5, "dur": 1, "tdur": 0.9, "sf": 2}
 *
 * "dur" is the time that the sample stands for and "tdur" the CPU time in it; "sf" is a key of the member
 * "stackFrames": {"2": {"name": "train.py(12): step", "category": "program", "parent": 1}, …}. A sample of an unknown
 * frame is left out. */
#ifndef FS_SOURCES_KINETO_STACKS_H
#define FS_SOURCES_KINETO_STACKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "store/store.h"

typedef struct {
    int64_t start, duration, cpu; /* ns; cpu: FS_MISSING if unknown */
    int64_t process, thread, frame;
} fs_stack_point;

/* Zeroed if there are none. */
typedef struct {
    fs_stack_point *points;
    uint32_t count, capacity;
} fs_stack_points;

void fs_stack_points_clear(fs_stack_points *points);

/* Add the samples of the pieces of a trace to the store, with the frames of its head. FS_OUT_OF_MEMORY. */
fs_status fs_stack_points_join(const fs_stack_points *const *pieces, uint32_t count, const char *head, size_t size,
                               fs_store *store, fs_error *err);

#endif
