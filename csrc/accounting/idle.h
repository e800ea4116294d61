/* The idle time of a device, and its causes. Private to csrc/accounting. */
#ifndef FS_ACCOUNTING_IDLE_H
#define FS_ACCOUNTING_IDLE_H

#include "accounting/host.h"
#include "accounting/sums.h"

/* Idle times, each for itself. Released with fs_free(items). */
typedef struct {
    fs_idle_span *items;
    uint32_t count, capacity;
} fs_idle_spans;

/* One device, or the CPU (-1). */
typedef struct {
    const fs_store *store;
    const fs_table *table;
    const fs_steps *steps;
    const uint32_t *calls; /* by work: the API call that launched it, or FS_NONE */
    const fs_host *host;
    const fs_intervals *works; /* by begin */
    const fs_intervals *busy;  /* their union */
    int device;
    int64_t arrival; /* ns: fs_idle_find_arrival */
} fs_idle;

/* Find how long launches that came late took to arrive: the median. FS_OUT_OF_MEMORY. */
fs_status fs_idle_find_arrival(fs_idle *idle, fs_error *err);

/* Add the time of the steps first … end - 1 outside of `busy` by cause, and list each idle time (NULL: do not). Several
 * threads may add different steps to sums of their own. FS_OUT_OF_MEMORY. */
fs_status fs_idle_add(const fs_idle *idle, uint32_t first, uint32_t end, fs_sums *sums, fs_idle_spans *spans,
                      fs_error *err);

#endif
