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
    double launch_median;  /* ns: of the calls with FS_MARK_LAUNCHED, once all kernels are noted; NaN: none */
    uint32_t *first_works; /* by name: the first kernel with it, or FS_NONE */
    bool compiles;         /* in some op or range */
    uint32_t *longest;     /* by wait: that of it and those before it which ends last */
} fs_host;

/* Collect what the host did, and fill one description per step. FS_OUT_OF_MEMORY. fs_host_clear also accepts a zeroed
 * struct. */
fs_status fs_host_prepare(fs_host *host, const fs_store *store, const fs_table *table, const fs_steps *steps,
                          const fs_api_calls *calls, fs_names *names, fs_host_step *hosts, fs_error *err);
void fs_host_clear(fs_host *host);

/* Note a kernel and the API call that launched it, on any thread. Return the duration of the call at the first kernel
 * that is noted of it, else FS_MISSING. */
int64_t fs_host_note_kernel(fs_host *host, uint32_t call, const fs_chunk *chunk, uint32_t at, uint32_t event);

/* Return the name of the op around an event, or of the event itself. */
uint32_t fs_host_op_name(const fs_host *host, uint32_t index);

#endif
