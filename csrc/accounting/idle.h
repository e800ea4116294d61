/* The idle time of a device, and its causes. Private to csrc/accounting. */
#ifndef FS_ACCOUNTING_IDLE_H
#define FS_ACCOUNTING_IDLE_H

#include "accounting/sums.h"
#include "store/api_calls.h"
#include "summaries/intervals.h"
#include "work/names.h"

typedef struct {
    const fs_store *store;
    const fs_table *table;
    const fs_steps *steps;
    fs_api_calls calls;
    fs_intervals waits; /* of the host for a device, by begin; tags are events */
    uint8_t *hosts;     /* by event: bits for an op around such a wait, and a call that copies within a device */
    fs_intervals data;  /* of the host for a DataLoader; united */
} fs_idle;

/* FS_OUT_OF_MEMORY. fs_idle_clear also accepts a zeroed struct. */
fs_status fs_idle_prepare(fs_idle *idle, const fs_store *store, const fs_table *table, const fs_steps *steps,
                          fs_names *names, fs_error *err);
void fs_idle_clear(fs_idle *idle);

/* Fill one description per step. */
void fs_idle_describe_hosts(const fs_idle *idle, fs_host_step *hosts);

/* Add the time of the steps outside of `busy`, which is united, by cause. `works` is sorted by begin. */
fs_status fs_idle_add(fs_idle *idle, fs_sums *sums, int device, const fs_intervals *works, const fs_intervals *busy,
                      fs_error *err);

#endif
