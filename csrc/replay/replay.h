/* A replay: the host calls and the device work of some steps, simulated again with changes.
 *
 *   host 1    gap |call|   gap   |wait ········|tail| gap |call|      a thread, or threads that take turns
 *                   └─launch─┐           ▲ the call waits             gap: whatever the host did before the call
 *   stream 7              ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓     ▓▓▓▓▓▓
 *                            queue └─event─┐
 *   stream 17                              ▓▓▓▓▓▓
 *
 * A call begins its gap after the one before it has returned. Work begins once its launch has arrived, its stream is
 * free and the work of another stream that it waits for has ended, each with the delay that was recorded where it
 * decided, else the usual one. All these were launched earlier, so one pass in the order of the calls simulates
 * everything, and nothing can wait for itself. What delays work by more than 100 us is none of these: that time is
 * missing from the replay, which then does not give the recorded time.
 *
 * The steps are repeated until a round takes as long as the one before it, so that neither a host that runs ahead nor
 * an idle time before the first step counts. A single step is simulated once. */
#ifndef FS_REPLAY_REPLAY_H
#define FS_REPLAY_REPLAY_H

#include "store/store.h"

/* What a call does. X(NAME, name) */
#define FS_REPLAY_KIND_LIST(X)                                           \
    X(OTHER, other)                                                      \
    X(LAUNCH, launch) /* also copies that it does not wait for */        \
    X(COPY, copy)     /* and waits until its work has ended */           \
    X(STREAM, stream)                                                    \
    X(EVENT, event)                                                      \
    X(DEVICE, device) /* waits for these; cudaFree waits for a device */ \
    X(ORDER, order)   /* makes a stream wait for an event of another */  \
    X(END, end)       /* no call: the end of the steps on its threads */

typedef enum {
#define FS_REPLAY_KIND(NAME, name) FS_REPLAY_##NAME,
    FS_REPLAY_KIND_LIST(FS_REPLAY_KIND)
#undef FS_REPLAY_KIND
        FS_REPLAY_KIND_COUNT
} fs_replay_kind;

extern const char *const fs_replay_kind_names[FS_REPLAY_KIND_COUNT];

/* For what a call waits: all that was launched, or onto the lane `target`; the end of the work `target`, of its own if
 * it copies; the start of that work, as the queue is full until then. */
typedef enum {
    FS_REPLAY_FOR_NOTHING,
    FS_REPLAY_FOR_ALL,
    FS_REPLAY_FOR_LANE,
    FS_REPLAY_FOR_END,
    FS_REPLAY_FOR_ROOM
} fs_replay_wait;

/* All times are in ns, those of begins and ends since the steps begin. */
typedef struct {
    int64_t gap;          /* of the host before it; below 0 if threads that take turns overlap a little */
    int64_t own, tail;    /* of the call without waiting; from the end of what it waits for until it returns */
    int64_t after_lag;    /* from the return of the call `after` */
    int64_t begin, ended; /* as recorded */
    uint32_t after;       /* of another sequence; FS_NONE: it goes on by itself */
    uint32_t target;
    uint32_t first;    /* its first work; up to that of the next call */
    uint32_t events;   /* of the host that were recorded in the gap */
    uint32_t sequence; /* the threads that it runs on */
    uint32_t event;    /* in the store; FS_NONE of an END */
    uint8_t kind, wait;
} fs_replay_call;

#define FS_REPLAY_LANE (FS_NONE - 1) /* `before`: whatever was launched onto its lane */

typedef struct {
    int64_t duration, begin, ended;
    int64_t launch_lag, queue_lag,
        other_lag;          /* from when its call returned, `before` and `other` ended, to its begin */
    uint32_t before, other; /* works; FS_NONE: none */
    uint32_t lane, event, call;
} fs_replay_work;

typedef struct {
    fs_replay_call *calls;
    fs_replay_work *works;
    uint32_t call_count, work_count, lane_count, sequence_count, step_count;
    uint32_t sequence;         /* the program's: that of most launches, whose end counts */
    int64_t begin;             /* of the steps, in ns of the store */
    int64_t *backlogs;         /* by lane: when what was launched before the steps ended; below 0: nothing was */
    double recorded, replayed; /* ns a step, from the last of these to the end of all work: as recorded, unchanged */
    uint32_t unlaunched;       /* works without a launch */
    bool usable;               /* it gives the recorded time, and the launches were recorded */
    double event_ns;           /* what recording an event costs the host: fs_replay_fit */
} fs_replay;

/* Changes; NULL: none of the kind. */
typedef struct {
    const double *work_factor; /* by work, of its time; 0: it is gone */
    const uint8_t *gone;       /* by call, not 0: it takes no time and does not wait, and its work leaves when the call
                                * before returns */
    const double *host_factor; /* by call, of its gap and of its own time */
    double event_ns;           /* taken from gaps for each event in them, until 15 % are left */
    bool again;                /* once, from where the work before the steps left off: `replayed` */
    bool host_alone;           /* the devices take no time */
} fs_replay_edit;

/* Make a replay of the consecutive steps [begins[i], ends[i]) of the host; empty ones are none. FS_OUT_OF_MEMORY.
 * fs_replay_clear also accepts a zeroed struct. */
fs_status fs_replay_build(fs_replay *replay, const fs_store *store, const int64_t *begins, const int64_t *ends,
                          uint32_t steps, fs_error *err);
void fs_replay_clear(fs_replay *replay);

/* Simulate, and return the ns that a step takes; NaN without steps. FS_OUT_OF_MEMORY. */
fs_status fs_replay_run(const fs_replay *replay, const fs_replay_edit *edit, double *ns, fs_error *err);

/* Find and keep the least cost of a recorded event with which a step takes `bare` ns, as it does without a recording,
 * or as the host alone does; 0 if it takes as long as recorded. NaN: there is none, to 3 %. */
fs_status fs_replay_fit(fs_replay *replay, double bare, bool host_alone, double *event_ns, fs_error *err);

#endif
