/* A stopped store as a Chrome trace with the names and keys of Kineto (torch.profiler's tracer), readable by Perfetto,
 * chrome://tracing, Holistic Trace Analysis, TraceLens and other readers of torch's traces.
 *
 *   kind in the store       category                        row: process, thread
 *   op                      cpu_op                          this process, its thread
 *   range, step             user_annotation                 likewise
 *   runtime                 cuda_runtime, cuda_driver       likewise; by its name: "cuda…" and "cu…"
 *   sync                    cuda_sync                       the row of its lane
 *   frame                   python_function                 this process, its thread
 *   memory                  cpu_instant_event               likewise; an instant
 *   overhead                overhead                        -1, its thread or 0
 *   kernel, memcpy, memset  kernel, gpu_memcpy, gpu_memset  device, stream
 *   range, step on a device gpu_user_annotation             device, stream
 *   interval                gpu_op                          device, stream: device time of an op between two CUDA
 *   events, not of a kernel (absent from Kineto)
 *
 * Numbers are Kineto's: "External id" (event + 1) links device work and API calls to their op or annotation,
 * "correlation" links device work to the API call, and an arrow (ac2g) connects the two. Additions: "flops", "bytes
 * read" and "bytes written" of ops, "flops" and "bytes" of ranges with declared work, "category", "color" and "payload"
 * of those of NVTX. Unknown members are omitted. "Total Allocated" of a "[memory]" instant is a lower bound: the sum of
 * the recorded changes plus the smallest initial amount that keeps it from becoming negative.
 *
 * Slices of a row that overlap without nesting, which viewers drop, are in further rows of the same name and a number,
 * as "stream 7 (2)". Their "args" give the true place: "device" and "stream", or "on thread".
 *
 * With options.table, device work has its share, by duration, of its op's work: "FLOPs", "bytes read", "bytes written",
 * "TFLOP/s", "GB/s", "% roofline", "bound". An op to which work belongs has "FLOPs" and the rates too. Each FLOP is in
 * one op and, with it, in that op's device work: in the innermost op that a rule counts. Each device has two counters,
 * of the category "flopscope": the TFLOP/s and the GB/s of its work, each piece of work spread evenly over its
 * duration, and 0 between them. Work of unknown FLOPs or bytes adds nothing to the counter. A counter has at most
 * FS_COUNTER_VALUES values; of more work than fits, each value is the mean over an equal part of the time.
 *
 * An open event lasts until the end of the window (the last known time if there is none) and has "open": true. */
#ifndef FS_VIEWS_CHROME_TRACE_H
#define FS_VIEWS_CHROME_TRACE_H

#include "store/store.h"
#include "table/table.h"
#include "views/json.h"

enum { FS_COUNTER_VALUES = 1 << 16 };

typedef struct {
    fs_json_sink write; /* receives the text, in pieces */
    void *context;
    int64_t clock_offset; /* ns from the store's clock to Unix time; a trace time is Unix time less its base */
    int64_t pid;          /* shown plus 2^22, above every Linux process id, so that it cannot equal a device index */
    const char *process;  /* name of the process */
    const char *version;  /* of flopscope */
    const char *members;  /* further members of the top-level object, as JSON without braces; "" for none */
    int64_t dropped;      /* number of events that the store could not keep */
    const fs_table_options *table; /* the peaks for rates; NULL: events have no work and devices no counters */
} fs_chrome_trace_options;

/* Write the trace. *left_out (may be NULL) receives the number of events omitted because their start is unknown.
 * Errors: those of `write`; FS_OUT_OF_MEMORY. */
fs_status fs_chrome_trace_write(const fs_store *store, const fs_chrome_trace_options *options, int64_t *left_out,
                                fs_error *err);

/* Write the samples of hardware counters as events of a Chrome trace, each followed by a comma and a line break, for
 * traces of other writers too: bytes as rates, and a mark where nothing was counted any more. shift: from a time of the
 * store to that of the trace, in ns. FS_OUT_OF_MEMORY, FS_INTERRUPTED. */
fs_status fs_trace_samples(fs_json *out, const fs_store *store, uint64_t shift, fs_error *err);

/* Write the sampled stacks: each run as an event of phase "P", with "dur" and, of the thread's CPU time, "tdur"; and
 * the member "stackFrames" that their "sf" refers to, with a comma and a line break. Nothing if there are none.
 * Likewise. */
fs_status fs_trace_stack_samples(fs_json *out, const fs_store *store, uint64_t shift, fs_error *err);
fs_status fs_trace_stack_frames(fs_json *out, const fs_store *store, fs_error *err);

/* Write the ranges that have ended as events of the host, each followed by a comma and a line break, for traces of
 * other writers. process: their id there. Likewise; ranges before the trace's time 0 are left out. */
fs_status fs_trace_ranges(fs_json *out, const fs_store *store, int64_t process, int64_t shift, fs_error *err);

#endif
