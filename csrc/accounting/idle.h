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
    const fs_api_calls *calls;
    fs_intervals waits; /* of the host for a device, by begin; tags are events */
    fs_intervals data;  /* of the host for a DataLoader; united */
    uint32_t *ops;      /* by event: the innermost op around it, itself included, or FS_NONE */
    uint8_t *marks;     /* by event: whether it is an op around such a wait, an API call that launched a kernel */
    int64_t *launches;  /* the durations of the latter */
    uint32_t launch_count, launch_capacity;
    bool lists; /* each idle time is listed in `spans` */
    fs_idle_span *spans;
    uint32_t span_count, span_capacity;
} fs_idle;

/* Collect what the host did, and fill one description per step. FS_OUT_OF_MEMORY. fs_idle_clear also accepts a zeroed
 * struct. */
fs_status fs_idle_prepare(fs_idle *idle, const fs_store *store, const fs_table *table, const fs_steps *steps,
                          const fs_api_calls *calls, fs_names *names, fs_host_step *hosts, fs_error *err);
void fs_idle_clear(fs_idle *idle);

/* Note the API call that launched a kernel. FS_OUT_OF_MEMORY. */
fs_status fs_idle_note_launch(fs_idle *idle, uint32_t correlation, fs_error *err);

/* Return the median duration of these API calls in ns; NaN if there are none. */
double fs_idle_launch_median(fs_idle *idle);

/* Add the time of the steps outside of `busy`, which is united, by cause. `works` is sorted by begin. */
fs_status fs_idle_add(fs_idle *idle, fs_sums *sums, int device, const fs_intervals *works, const fs_intervals *busy,
                      fs_error *err);

/* Move the listed idle times to a result. */
void fs_idle_take_spans(fs_idle *idle, fs_accounting *accounting);

#endif
