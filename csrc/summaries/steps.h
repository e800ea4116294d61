/* The steps of a profile, and what the time of each went to.
 *
 *   host    |  step 0   |  step 1   |
 *   device    ░░▓▓▓▓▓▓▓▓▓▓▓░░▓▓▓▓▓▓▓▓▓▓
 *   steps   |    step 0    |  step 1  |
 *
 * A step ends where the last work on a device that was launched inside it ends, if that is after its end on the host,
 * and the next one begins there: as PyTorch's TensorBoard plugin has it. A profile without steps is one step, from when
 * recording began (the first event, where that is not known) to its end or the end of the last event on a device. */
#ifndef FS_SUMMARIES_STEPS_H
#define FS_SUMMARIES_STEPS_H

#include "store/store.h"

/* What time goes to: each moment of a step to the first of these that goes on then, on whatever device or thread. The
 * parts of a step sum to its time. X(NAME, name, prose) */
#define FS_STEP_PART_LIST(X)                                                                  \
    X(KERNEL, kernel, "kernels but those of communication")                                   \
    X(MEMCPY, memcpy, "copies on a device")                                                   \
    X(MEMSET, memset, "fills on a device")                                                    \
    X(COMMUNICATION, communication, "kernels of communication: what of them no kernel hides") \
    X(RUNTIME, runtime, "API calls, waiting for a device, and profiling's own work")          \
    X(DATA_LOADING, data_loading, "ops and ranges of a DataLoader")                           \
    X(OTHER_CPU, other_cpu, "all other ops and ranges")                                       \
    X(OTHER, other, "nothing that was recorded")

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
    int64_t parts[FS_STEP_PART_COUNT]; /* ns, of fs_steps_break_down */
} fs_step;

/* Ascending and disjoint. None only of a store in which nothing happened. */
typedef struct {
    fs_step *steps;
    uint32_t count;
} fs_steps;

/* Find the steps; and what their time went to. FS_OUT_OF_MEMORY leaves nothing to clear. */
fs_status fs_steps_find(fs_steps *steps, const fs_store *store, fs_error *err);
fs_status fs_steps_break_down(fs_steps *steps, const fs_store *store, fs_error *err);
void fs_steps_clear(fs_steps *steps);

#endif
