/* The phases of a training step, as PyTorch records them: host time in their outermost ops and ranges, and the time of
 * the device work that these launched. */
#ifndef FS_SUMMARIES_PHASES_H
#define FS_SUMMARIES_PHASES_H

#include "store/store.h"

/* X(NAME, name, prose) */
#define FS_PHASE_LIST(X)                                          \
    X(DATA, data, "the next batch of a DataLoader")               \
    X(FORWARD, forward, "ops outside of the other phases")        \
    X(BACKWARD, backward, "autograd's nodes, on whatever thread") \
    X(OPTIMIZER, optimizer, "Optimizer.step#… and Optimizer.zero_grad#…")

typedef enum {
#define FS_PHASE_ENUM(NAME, name, prose) FS_PHASE_##NAME,
    FS_PHASE_LIST(FS_PHASE_ENUM)
#undef FS_PHASE_ENUM
        FS_PHASE_COUNT
} fs_phase;

extern const char *const fs_phase_names[FS_PHASE_COUNT];

typedef struct {
    int64_t host, device; /* ns, summed over threads and devices */
} fs_phase_times;

/* Sum the phases that began from `begin` until before `end`, ns. FS_OUT_OF_MEMORY. */
fs_status fs_phases_sum(fs_phase_times times[FS_PHASE_COUNT], const fs_store *store, int64_t begin, int64_t end,
                        fs_error *err);

#endif
