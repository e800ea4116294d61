/* Messages of NCCL, from the ranges of NVTX in which it does what it is called for.
 *
 *   NVTX range ncclAllReduce ── payload: communicator, size of the message
 *     cudaLaunchKernelExC ── correlation ──► ncclDevKernel_AllReduce…: the collective, in its launch's signature
 *
 * Between ncclGroupStart and ncclGroupEnd, the outermost ncclGroupEnd launches what all calls of the group asked for. A
 * kernel gets a message only if it is the only one of NCCL's kernels that the call, or the group, launched, and if the
 * group is of one communicator and one kind, or sends and receives. The numbers of ranks are those that the creation of
 * the communicators recorded. */
#ifndef FS_SOURCES_NCCL_H
#define FS_SOURCES_NCCL_H

#include "base/intern.h"
#include "store/store.h"

/* Kinds of calls beside collectives, which have the numbers below. */
enum { FS_NCCL_GROUP_START = 64, FS_NCCL_GROUP_END, FS_NCCL_COMMUNICATOR, FS_NCCL_NO_CALL };

/* The names of the fields of NCCL's payloads that are used. */
#define FS_NCCL_COMMUNICATOR_FIELD "NCCL communicator ID"
#define FS_NCCL_SIZE_FIELD "Message size [bytes]"
#define FS_NCCL_RANKS_FIELD "No. of ranks"

/* A range of NCCL. */
typedef struct {
    uint32_t lane, event; /* the range's, in the store */
    uint64_t communicator;
    int64_t size;  /* bytes; FS_MISSING: unknown */
    int32_t ranks; /* of a communicator; 0: unknown */
    uint8_t kind;
    bool known; /* the communicator */
} fs_nccl_call;

typedef struct {
    int64_t messages; /* kernels that got theirs */
    int64_t unsized;  /* calls of collectives without a size */
} fs_nccl_report;

/* Return the kind of the call that a range is named after, without its domain. */
uint8_t fs_nccl_kind(fs_span text);

/* Give the kernels in the store their messages. The calls are put in order. The counts are added to. FS_OUT_OF_MEMORY;
 * FS_INTERRUPTED. */
fs_status fs_nccl_join(fs_store *store, fs_nccl_call *calls, uint32_t count, fs_nccl_report *report, fs_error *err);

#endif
