/* What the host did while devices idled: before launches that came late, and in calls of some names. Names are chosen
 * by flags: one byte for each name of the store. */
#ifndef FS_ACCOUNTING_LATE_H
#define FS_ACCOUNTING_LATE_H

#include "store/store.h"

/* The columns of each result. X(type, name, description); times in ns. */
#define FS_NAMED_CALL_LIST(X)                                             \
    X(int64_t, event, "")                                                 \
    X(int64_t, name, "id")                                                \
    X(int64_t, start, "")                                                 \
    X(int64_t, duration, "0: unknown")                                    \
    X(int64_t, idle, "what the devices idled within it, summed")          \
    X(int64_t, unused, "1 if on some device no work began after it did")  \
    X(int64_t, copied, "elements of the tensor that it extends; 0: none") \
    X(int64_t, made, "elements of its result; 0: unknown")                \
    X(int64_t, run, "of calls that make a tensor longer and longer; -1: none")

#define FS_LATE_SUM_LIST(X)                                           \
    X(int64_t, name, "id; -1: none")                                  \
    X(int64_t, launches, "1 if the events, or some within, launched") \
    X(int64_t, time, "")                                              \
    X(int64_t, count, "")

#define FS_LATE_FIELD(type, name, prose) type name;
typedef struct {
    FS_NAMED_CALL_LIST(FS_LATE_FIELD)
} fs_named_call;

typedef struct {
    FS_LATE_SUM_LIST(FS_LATE_FIELD)
} fs_late_sum;
#undef FS_LATE_FIELD

/* Released with fs_free(items), also after a failure. */
typedef struct {
    fs_named_call *items;
    uint32_t count, capacity;
} fs_named_calls;

typedef struct {
    fs_late_sum *items;
    uint32_t count;
} fs_late_sums;

/* Whether some name is chosen. */
bool fs_flags_any(const uint8_t *names, uint32_t count);

/* List the events of these names on the host, in order of start, without idle time. FS_OUT_OF_MEMORY. */
fs_status fs_named_calls_find(fs_named_calls *calls, const fs_store *store, const uint8_t *names, fs_error *err);

/* The same with idle time, which without steps is that between the first and the last work. on_device: else the work is
 * that of ops on a CPU. FS_OUT_OF_MEMORY. */
fs_status fs_idle_calls_find(fs_named_calls *calls, const fs_store *store, const uint8_t *names, bool on_device,
                             fs_error *err);

/* The calls of these names, ops that join the tensors of a list, with what they make longer and longer: growth.c. If
 * there is such a run and a device, durations are those of the work there. FS_OUT_OF_MEMORY. */
fs_status fs_growing_calls_find(fs_named_calls *calls, const fs_store *store, const uint8_t *names, fs_error *err);

/* The API calls of these names of which the duration is known, while which work of a device ended: in them, or at most
 * 10 µs after them, by which the clocks of host and device may disagree. FS_OUT_OF_MEMORY. */
fs_status fs_waiting_calls_find(fs_named_calls *calls, const fs_store *store, const uint8_t *names, fs_error *err);

/* Late times are those from when a device had nothing to do, in a step from `first_step` on, to the call that launched
 * its next work. Sum the parts of them in which calls of these names ran, by the op around the call that ended each.
 * FS_OUT_OF_MEMORY. */
fs_status fs_late_within(fs_late_sums *sums, const fs_store *store, uint32_t first_step, const uint8_t *names,
                         fs_error *err);

typedef struct {
    uint32_t first_step;
    int64_t least;      /* ns: shorter late times are left out */
    const uint8_t *ops; /* names of the ops around the calls that end late times; one flag more: of calls without op */
    const uint8_t *other; /* names of ops, ranges and calls that are the cause of other idle time */
} fs_late_request;

/* Sum what the threads that end late times were in during these, by name: ops, ranges, frames and API calls, each
 * without those within it. What has another cause (`other`, overhead) does not count. FS_OUT_OF_MEMORY. */
fs_status fs_late_spent(fs_late_sums *sums, const fs_store *store, const fs_late_request *request, fs_error *err);

#endif
