/* What the host did while a device may have been idle. Private to csrc/accounting. */
#ifndef FS_ACCOUNTING_HOST_H
#define FS_ACCOUNTING_HOST_H

#include "accounting/accounting.h"
#include "store/api_calls.h"
#include "summaries/intervals.h"
#include "work/names.h"

/* Marks of events. */
enum {
    FS_MARK_AROUND_WAIT = 1, /* an op around a wait for a device */
    FS_MARK_LAUNCHED = 2,    /* an API call that launched a kernel */
    FS_MARK_COPY_INSIDE = 4, /* an API call that copies within a device, which never waits for it */
    FS_MARK_AFTER_EVENT = 8, /* the first launch after a call that makes a stream wait for an event */
};

typedef struct {
    const fs_store *store;
    const fs_steps *steps;
    fs_intervals waits;    /* for a device, by begin; tags are events */
    fs_intervals occupied; /* by begin, disjoint: times with a cause other than HOST and SYNC, which is the tag */
    uint32_t *ops;         /* by event: the innermost op around it, itself included, or FS_NONE */
    uint8_t *marks;        /* by event */
    int64_t *launches;     /* durations of the calls with FS_MARK_LAUNCHED */
    uint32_t launch_count, launch_capacity;
    double launch_median;  /* ns: of these durations, once fs_host_end_launches was called; NaN: none */
    uint32_t *first_works; /* by name: the first kernel with it, or FS_NONE */
} fs_host;

/* Collect what the host did, and fill one description per step. FS_OUT_OF_MEMORY. fs_host_clear also accepts a zeroed
 * struct. */
fs_status fs_host_prepare(fs_host *host, const fs_store *store, const fs_table *table, const fs_steps *steps,
                          const fs_api_calls *calls, fs_names *names, fs_host_step *hosts, fs_error *err);
void fs_host_clear(fs_host *host);

/* Note a kernel and the API call that launched it. FS_OUT_OF_MEMORY. */
fs_status fs_host_note_kernel(fs_host *host, const fs_api_calls *calls, uint32_t event, fs_error *err);
void fs_host_end_launches(fs_host *host);

/* Return the name of the op around an event, or of the event itself. */
uint32_t fs_host_op_name(const fs_host *host, uint32_t index);

#endif
