/* The idle time of a device, and its causes. Private to csrc/accounting. */
#ifndef FS_ACCOUNTING_IDLE_H
#define FS_ACCOUNTING_IDLE_H

#include "accounting/host.h"
#include "accounting/sums.h"

/* What launched the work that ended an idle time. */
typedef struct {
    int64_t returned; /* until when the host had not launched it; FS_MISSING: unknown */
    uint32_t event;   /* the API call, or the op of the host; FS_NONE: unknown */
} fs_idle_launch;

typedef struct {
    const fs_store *store;
    const fs_table *table;
    const fs_steps *steps;
    const fs_api_calls *calls;
    const fs_host *host;
    fs_idle_launch *launches; /* of one device, by idle time */
    uint32_t launch_capacity;
    bool lists; /* each idle time is listed in `spans` */
    fs_idle_span *spans;
    uint32_t span_count, span_capacity;
} fs_idle;

/* An all-zero struct may be cleared too. */
void fs_idle_clear(fs_idle *idle);

/* Add the time of the steps outside of `busy`, which is united, by cause. `works` is sorted by begin. */
fs_status fs_idle_add(fs_idle *idle, fs_sums *sums, int device, const fs_intervals *works, const fs_intervals *busy,
                      fs_error *err);

/* Move the listed idle times to a result. */
void fs_idle_take_spans(fs_idle *idle, fs_accounting *accounting);

#endif
