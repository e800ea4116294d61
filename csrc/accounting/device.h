/* The accounting of one device, or of the CPU. Private to csrc/accounting. */
#ifndef FS_ACCOUNTING_DEVICE_H
#define FS_ACCOUNTING_DEVICE_H

#include "accounting/work_facts.h"
#include "summaries/launches.h"

typedef struct {
    const fs_store *store;
    const fs_table *table;
    const fs_steps *steps;
    const fs_host *host;
    const fs_work_facts *facts;
    bool lists; /* each idle time */
    /* What devices have in common, which follow one another. */
    fs_sums sums;
    fs_idle_span *spans;
    uint32_t span_count, span_capacity;
    fs_launch_marks launched;
    uint32_t *last_rows; /* by lane: row of the last work, or FS_NONE */
    uint32_t *cells;     /* by work: of the step in which it begins, in the sums of the share that has the step */
    fs_launching *launching;
    uint32_t launching_count;
} fs_devices;

/* Set up what devices have in common; the fields before are set. FS_OUT_OF_MEMORY. fs_devices_clear also accepts a
 * zeroed struct. */
fs_status fs_devices_begin(fs_devices *all, fs_error *err);
void fs_devices_clear(fs_devices *all);

/* Account for works[order[begin … end - 1]], or for works[begin … end - 1] if the order is NULL. -1: the CPU.
 * FS_OUT_OF_MEMORY. */
fs_status fs_devices_add(fs_devices *all, int device, const uint32_t *order, uint32_t begin, uint32_t end,
                         fs_error *err);

#endif
