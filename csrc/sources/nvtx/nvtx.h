/* Ranges that libraries and programs mark by NVTX, NVIDIA's Tools Extension: events of a store while it is recorded
 * into. This library is the tool that NVTX loads:
 *
 *   fs_nvtx_inject ─► NVTX_INJECTION64_PATH=this library
 *   each library's first call of NVTX ─► InitializeInjectionNvtx2 ─► its functions call those here
 *   push, start ─► fs_store_begin; pop, end ─► fs_store_end_range: a range of the calling thread
 *
 * A range is named "domain: message", or "message" without a domain, as in recordings of Nsight Systems; its category,
 * colour and payload are a note (store/note.h). A range pushed is popped by its thread, the innermost of its domain
 * first. Marks are counted. Calls are safe on every thread at any time; while nothing is recorded, a call costs some
 * ns. In a forked child nothing is recorded until it begins to record itself.
 *
 * CUPTI has such functions too, and reports the ranges as records. They need CUPTI, which this library detaches after
 * every profile, and a GPU; NVTX asks for its tool once, so ranges before CUPTI is loaded would be lost for good; and
 * CUPTI leaves out structured payloads, which hold NCCL's sizes. */
#ifndef FS_SOURCES_NVTX_NVTX_H
#define FS_SOURCES_NVTX_NVTX_H

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

/* X(name, description) */
#define FS_NVTX_COUNT_LIST(X)                                                            \
    X(ranges, "begun while recording")                                                   \
    X(marks, "instants, which are not kept")                                             \
    X(unmatched, "ends of ranges that had not begun while recording, or that had ended") \
    X(lost, "ranges left out: no memory, or nested too deeply for their ends to be told apart")

typedef struct {
#define FS_NVTX_COUNT(name, prose) int64_t name;
    FS_NVTX_COUNT_LIST(FS_NVTX_COUNT)
#undef FS_NVTX_COUNT
} fs_nvtx_report;

/* Become the tool of the libraries in this process that have not called NVTX yet, unless the environment names another:
 * false then, and if it cannot be set. */
bool fs_nvtx_inject(void);

/* Record into a store from now on: ranges that are open already are left out. False if another store is recorded into.
 * fs_nvtx_move goes on with another store, as if recording began anew. After either, and after fs_nvtx_end, no call
 * uses the former store; ranges that are open stay so there. The counts are those of the former store. */
bool fs_nvtx_begin(fs_store *store);
fs_nvtx_report fs_nvtx_move(fs_store *store);
fs_nvtx_report fs_nvtx_end(void);

/* Give NCCL's kernels of a stopped store, whose calls are attributed, the messages that its ranges tell.
 * FS_OUT_OF_MEMORY, FS_INTERRUPTED. */
fs_status fs_nvtx_join_nccl(fs_store *store, fs_error *err);

/* Return the counts so far. */
fs_nvtx_report fs_nvtx_counts(void);

#endif
