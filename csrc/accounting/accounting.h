/* Accounting: every instant of a device in a step belongs to one piece of work or to one cause of idleness.
 *
 *   host     |call|   |wait··········|  |call|
 *   stream 1   ▓▓▓▓▓▓▓▓▓▓              ░░░░░░▓▓▓▓      ▓ exclusive time of the work, ░ idle time and its cause
 *   stream 2        ▒▒▒▒▒▒▒▒▒                          ▒ exclusive from where the kernel of stream 1 ends
 *
 * An instant at which several pieces of work run belongs to the first class of computation, communication, copies,
 * compilation, and within a class to the work that began first. In a store without device work the ops on the CPU are
 * the work, and the ranges with declared work in which no op ran: the innermost of each thread, and an instant of
 * several threads belongs to the one that began, or resumed, first. */
#ifndef FS_ACCOUNTING_ACCOUNTING_H
#define FS_ACCOUNTING_ACCOUNTING_H

#include "base/colours.h"
#include "store/store.h"
#include "summaries/steps.h"
#include "table/table.h"

/* X(NAME, name, description) */
#define FS_WORK_CLASS_LIST(X)                                  \
    X(COMPUTATION, computation, "kernels, ops on the CPU")     \
    X(COMMUNICATION, communication, "communication kernels")   \
    X(COPY, copy, "copies between host and device, and fills") \
    X(COMPILATION, compilation, "what a compiler tried or copied")

typedef enum {
#define FS_WORK_CLASS_ENUM(NAME, name, prose) FS_WORK_##NAME,
    FS_WORK_CLASS_LIST(FS_WORK_CLASS_ENUM)
#undef FS_WORK_CLASS_ENUM
        FS_WORK_CLASS_COUNT
} fs_work_class;

enum {
#define FS_PART(name, ...) FS_PART_##name,
#include "accounting/parts.def"
#undef FS_PART
    FS_PART_COUNT
};

/* What a part of the accounting is called: the columns of parts.def. */
typedef struct {
    const char *label, *gloss, *noun, *meaning, *change;
} fs_part_texts;

typedef struct {
    const char *name, *hatch;
    fs_colour colour;
    fs_part_texts texts, bare_texts; /* of a device; of a program without one */
} fs_part_row;

extern const fs_part_row fs_parts[FS_PART_COUNT];

/* Why a device is idle, and the part of the accounting that such time belongs to. "The call" launched the next work.
 * X(NAME, name, part, label, description) */
#define FS_IDLE_CAUSE_LIST(X)                                                                                       \
    X(HOST, host, host, "the host launches late",                                                                   \
      "the call had not returned, or the launch had not arrived, when the device became idle")                      \
    X(SYNC, sync, sync, "after a wait of the host",                                                                 \
      "the same, at most 0.5 ms of it, after the host had waited for the device, or before it does in the same op") \
    X(DATA, data, data, "data is loaded", "the same, while the host waited for a DataLoader")                       \
    X(COLLECTIVE, collective, communication, "a collective of the CPUs",                                            \
      "the same, while a collective or message of gloo or MPI was in progress")                                     \
    X(COMPILE, compile, compilation, "the program is compiled",                                                     \
      "the same, while torch.compile or XLA compiled, or torch.compile recorded a graph")                           \
    X(RECORDING, recording, recording, "the profiler works", "the same, while the profiler itself worked")          \
    X(EDGES, edges, edges, "before or after all work",                                                              \
      "around the work of a profile without steps, or behind work that began before the recording")                 \
    X(LOADING, loading, other, "code is loaded", "the same as host, while the code of kernels was loaded")          \
    X(FIRST_LAUNCH, first_launch, other, "a kernel's first launch blocks",                                          \
      "the call itself lasted much longer than launches do, and it was the first of this kernel")                   \
    X(BLOCKED, blocked, other, "the launch call blocks", "the call itself lasted much longer than such calls do")   \
    X(STREAM_WAIT, stream_wait, other, "a stream waits for an event",                                               \
      "the call had returned; before it, since the launch before, a stream had been told to wait for an event")     \
    X(OTHER, other, other, "unknown", "the call had returned, or was not recorded")

typedef enum {
#define FS_IDLE_CAUSE_ENUM(NAME, name, part, label, prose) FS_IDLE_##NAME,
    FS_IDLE_CAUSE_LIST(FS_IDLE_CAUSE_ENUM)
#undef FS_IDLE_CAUSE_ENUM
        FS_IDLE_CAUSE_COUNT
} fs_idle_cause;

extern const char *const fs_idle_cause_names[FS_IDLE_CAUSE_COUNT];
extern const char *const fs_idle_cause_parts[FS_IDLE_CAUSE_COUNT];
extern const char *const fs_idle_cause_labels[FS_IDLE_CAUSE_COUNT];

/* The columns of each result. X(type, name, description); times in ns. Rows are those of the table, -1: unknown. */
#define FS_CELL_LIST(X)                                                                          \
    X(int64_t, device, "-1: the CPU")                                                            \
    X(int64_t, step, "index of the step")                                                        \
    X(int64_t, class, "an fs_work_class")                                                        \
    X(int64_t, row, "of the op whose work it is, or of the innermost op around it")              \
    X(int64_t, kernel, "row of the kernel, copy or fill")                                        \
    X(int64_t, part, "an FS_PART_…, to which the time beyond `ideal` belongs")                   \
    X(int64_t, op, "number of its device, row (of work without an op: its kernel) and part")     \
    X(int64_t, blocks, "of the grid of the first kernel; 0: unknown")                            \
    X(int64_t, resident, "blocks of it that the device can hold at once; 0: unknown")            \
    X(int64_t, event, "the first piece of work")                                                 \
    X(int64_t, owner, "the event of its op, or of a like one")                                   \
    X(int64_t, count, "pieces of work that began in the step")                                   \
    X(int64_t, busy, "their durations")                                                          \
    X(int64_t, exclusive, "the part of the step that belongs to this work")                      \
    X(int64_t, ideal, "the part of `exclusive` that the peaks require; -1: the work is unknown") \
    X(int64_t, cast, "the part of `exclusive` of calls that cast from float to float")           \
    X(int64_t, casts, "pieces of such work")                                                     \
    X(int64_t, reordered, "the part of `exclusive` of calls that only reorder elements")         \
    X(int64_t, reorders, "pieces of such work")                                                  \
    X(double, compute, "time of the FLOPs at the peak of their unit; unknown work adds nothing") \
    X(double, active, "the part of `compute` that counters saw a unit work, of unknown FLOPs")   \
    X(double, memory, "time of the bytes at the peak bandwidth; unknown work adds nothing")

#define FS_GAP_LIST(X)                                                                  \
    X(int64_t, device, "-1: the CPU")                                                   \
    X(int64_t, step, "index of the step")                                               \
    X(int64_t, cause, "an fs_idle_cause")                                               \
    X(int64_t, part, "an FS_PART_…, that of the cause")                                 \
    X(int64_t, row, "of the work that ended the idle time")                             \
    X(int64_t, wait, "event: the first wait of the host, if that was the cause; or -1") \
    X(int64_t, event, "the first piece of work that ended such idle time; or -1")       \
    X(int64_t, count, "number of such idle times")                                      \
    X(int64_t, time, "their sum")

#define FS_PAIR_LIST(X)                                         \
    X(int64_t, before, "row of a piece of work")                \
    X(int64_t, after, "row of the next one on the same stream") \
    X(int64_t, event, "the first such next piece of work")      \
    X(int64_t, count, "how often")

/* The kernels of each op, in steps or not. Unlike in cells, those that only like work gives an op are left out. */
#define FS_LAUNCHED_LIST(X)                               \
    X(int64_t, row, "of the op whose work it is")         \
    X(int64_t, kernel, "row of the kernel, copy or fill") \
    X(int64_t, count, "pieces of work")                   \
    X(int64_t, busy, "their durations")

/* How the kernels of a device were launched, as in summaries/launches.h; of the CPU there is none. */
#define FS_LAUNCHING_LIST(X)                                          \
    X(int64_t, device, "")                                            \
    X(int64_t, kernels, "whose API call was recorded")                \
    X(int64_t, launches, "API calls that launched them")              \
    X(int64_t, with_past, "launches onto a stream with earlier work") \
    X(int64_t, bound, "of them: those for which the stream had run dry")

#define FS_ACCOUNT_FIELD(type, name, prose) type name;
typedef struct {
    FS_CELL_LIST(FS_ACCOUNT_FIELD)
} fs_cell;

typedef struct {
    FS_GAP_LIST(FS_ACCOUNT_FIELD)
} fs_gap;

typedef struct {
    FS_PAIR_LIST(FS_ACCOUNT_FIELD)
} fs_pair;

typedef struct {
    FS_LAUNCHED_LIST(FS_ACCOUNT_FIELD)
} fs_launched;

typedef struct {
    FS_LAUNCHING_LIST(FS_ACCOUNT_FIELD)
} fs_launching;
#undef FS_ACCOUNT_FIELD

/* What the host did in a step. */
typedef struct {
    int64_t waits; /* ns in which some thread waited for a device */
    /* Host events that were recorded in it, by kind; not those that replays of a graph have from its capture. */
    int64_t events[FS_EVENT_KIND_COUNT];
    int64_t described; /* of the ops: those of which what they were called with was recorded */
} fs_host_step;

/* An idle time of a device within a step that has one cause: the gaps' times, each for itself. */
typedef struct {
    int64_t begin, end;
    uint32_t event; /* the piece of work that ended it; FS_NONE: none */
    uint32_t wait;  /* the wait of the host that caused it, or FS_NONE */
    int8_t device;
    uint8_t cause;
} fs_idle_span;

typedef struct fs_accounting {
    fs_steps steps;
    fs_host_step *hosts; /* by step */
    fs_cell *cells;
    fs_gap *gaps;
    fs_pair *pairs;
    fs_launched *launched;
    uint32_t cell_count, gap_count, pair_count, launched_count;
    fs_idle_span *spans; /* by device, ascending; NULL unless fs_accounting_list made it */
    uint32_t span_count;
    fs_launching *launching; /* by device, those with work */
    uint32_t launching_count;
    double launch_median; /* ns: of the durations of the API calls that launched kernels; NaN: none */
} fs_accounting;

/* Account for the time of the steps. The table must list its works (fs_table_options.works). FS_OUT_OF_MEMORY. */
fs_status fs_accounting_build(fs_accounting *accounting, const fs_store *store, const fs_table *table, fs_error *err);

/* The same, and list each idle time. Of an idle time with several causes, the waits for data are where they were, and
 * what follows a wait of the host comes before what is due to its other work. */
fs_status fs_accounting_list(fs_accounting *accounting, const fs_store *store, const fs_table *table, fs_error *err);

/* Account for a window of time instead of the steps, from `begin` to `end` in ns since the profile began: there is one
 * step, without a name. Unlike in steps, the ideal time, the FLOPs and the bytes of a work that the window cuts are
 * spread evenly over its duration. Pairs, launches and what ops launched are those of the whole profile.
 * FS_VALUE_ERROR, as fs_steps_cut; FS_OUT_OF_MEMORY. */
fs_status fs_accounting_of_window(fs_accounting *accounting, const fs_store *store, const fs_table *table,
                                  int64_t begin, int64_t end, fs_error *err);
void fs_accounting_clear(fs_accounting *accounting);

#endif
