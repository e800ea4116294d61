/* A stopped store as a Chrome trace, in the words of Kineto (torch.profiler's tracer), so that Perfetto,
 * chrome://tracing, Holistic Trace Analysis, TraceLens and whatever else reads torch's traces reads this.
 *
 *   kind in the store       category                        row: process, thread
 *   op                      cpu_op                          this process, its thread
 *   range, step             user_annotation                 likewise
 *   runtime                 cuda_runtime, cuda_driver       likewise; by its name: "cuda…" and "cu…"
 *   sync                    cuda_sync                       where its lane says
 *   frame                   python_function                 this process, its thread
 *   memory                  cpu_instant_event               likewise; an instant
 *   overhead                overhead                        -1, its thread or 0
 *   kernel, memcpy, memset  kernel, gpu_memcpy, gpu_memset  device, stream
 *   range, step on a device gpu_user_annotation             device, stream
 *   interval                gpu_op                          device, stream: an op's device time between two CUDA
 * events, no kernel's (Kineto has no such thing)
 *
 * Numbers are Kineto's: "External id" (event + 1) ties device work and API calls to their op or annotation,
 * "correlation" device work to the API call, and an arrow (ac2g) leads from one to the other. Added to it: "flops",
 * "bytes read" and "bytes written" of ops, "flops" and "bytes" of ranges whose work was said. What is not known is left
 * out. "Total Allocated" of a "[memory]" instant is the least that can have been allocated: the sum of what the store
 * saw, over the least start that lets it never be negative.
 *
 * An event that is still open lasts until the window's end (the last known time where there is none) and has
 * "open": true.
 */
#ifndef FS_VIEWS_CHROME_TRACE_H
#define FS_VIEWS_CHROME_TRACE_H

#include "store/store.h"
#include "views/json.h"

typedef struct {
    fs_json_sink write; /* takes the text, in pieces */
    void *context;
    int64_t clock_offset; /* ns from the store's clock to Unix time: trace times are that, less baseTimeNanoseconds */
    int64_t pid;          /* moved up by 2^22, above all of Linux's, where it would be taken for a device's index */
    const char *process;  /* name */
    const char *version;  /* of flopscope */
    const char *members;  /* more members of the top object, as JSON without braces; "" for none */
    int64_t dropped;      /* events that the store could not keep */
} fs_chrome_trace_options;

/* *left_out (may be NULL) receives the number of events whose start is not known: they are not in the trace. Fails with
 * what `write` fails with, FS_OUT_OF_MEMORY. */
fs_status fs_chrome_trace_write(const fs_store *store, const fs_chrome_trace_options *options, int64_t *left_out,
                                fs_error *err);

#endif
