/* The steps of a profile and the breakdown of their times.
 *
 *   host    |  step 0   |  step 1   |
 *   device    ░░▓▓▓▓▓▓▓▓▓▓▓░░▓▓▓▓▓▓▓▓▓▓
 *   steps   |    step 0    |  step 1  |
 *
 * As in PyTorch's TensorBoard plugin, a step ends on the host or when the last device work launched inside it ends,
 * whichever is later, and the next step begins there; the first one, where work that was queued before the recording
 * began ends. A profile without steps is one step, from the start of recording
 * (the first event if unknown) to its end or the end of the last device event.
 *
 * A first or last mark without work is no step (store/step_marks.h). Its time lies outside of the steps, as does that
 * before the first mark. */
#ifndef FS_SUMMARIES_STEPS_H
#define FS_SUMMARIES_STEPS_H

#include "store/api_calls.h"

/* Parts of a step. Each moment of a step belongs to the first of these parts that is active on any device or thread, so
 * the parts sum to the step's time. X(NAME, name, prose) */
#define FS_STEP_PART_LIST(X)                                                             \
    X(KERNEL, kernel, "kernels other than communication")                                \
    X(MEMCPY, memcpy, "copies on a device")                                              \
    X(MEMSET, memset, "fills on a device")                                               \
    X(COMMUNICATION, communication, "communication kernels, where no other kernel runs") \
    X(RUNTIME, runtime, "API calls, synchronization and profiling overhead")             \
    X(DATA_LOADING, data_loading, "ops and ranges of a DataLoader")                      \
    X(OTHER_CPU, other_cpu, "all other ops and ranges")                                  \
    X(OTHER, other, "no recorded activity")

typedef enum {
#define FS_STEP_PART_ENUM(NAME, name, prose) FS_PART_##NAME,
    FS_STEP_PART_LIST(FS_STEP_PART_ENUM)
#undef FS_STEP_PART_ENUM
        FS_STEP_PART_COUNT
} fs_step_part;

extern const char *const fs_step_part_names[FS_STEP_PART_COUNT];

typedef struct {
    uint32_t name;                     /* of the step; FS_NONE: the whole profile */
    int64_t begin, end;                /* ns */
    int64_t host_begin, host_end;      /* on the host, after the end of the step before; or of all host events */
    int64_t parts[FS_STEP_PART_COUNT]; /* ns; filled by fs_steps_break_down */
} fs_step;

/* Ascending and disjoint, on the host as well. Empty only if the store has no events with times. */
typedef struct {
    fs_step *steps;
    uint32_t count;
    uint32_t first; /* those before it only tell what happened earlier: 0, or 1 of a window */
    bool marked;    /* the program marked its steps */
} fs_steps;

/* Find the steps; fs_steps_find_with uses an index of the API calls that the caller has;
 * fs_steps_break_down also fills in the steps' parts. After FS_OUT_OF_MEMORY there is nothing to clear. */
fs_status fs_steps_find(fs_steps *steps, const fs_store *store, fs_error *err);
fs_status fs_steps_find_with(fs_steps *steps, const fs_store *store, const fs_api_calls *calls, fs_error *err);
fs_status fs_steps_break_down(fs_steps *steps, const fs_store *store, fs_error *err);

/* Replace the steps by two without names: the time before a window, and the window. Its limits are in ns since the
 * profile began. FS_VALUE_ERROR: it is empty, or not within the recording. The steps stay to be cleared. */
fs_status fs_steps_cut(fs_steps *steps, const fs_store *store, int64_t begin, int64_t end, fs_error *err);
void fs_steps_clear(fs_steps *steps);

#endif
