/* Collectives identified by the ops around a communication kernel, for traces in which PyTorch records no details with
 * the kernel: RCCL's ncclDevKernel_Generic names no kind, and traces before torch 2.2 have no size.
 *
 *   c10d::_allgather_base_       the kind; its tensors give the sent and received sizes
 *     record_param_comms         the sent size
 *       nccl:_all_gather_base    an annotation that ends on another thread: kind and sent size
 *         cudaLaunchKernelExC
 *
 * Private to csrc/summaries. */
#ifndef FS_SUMMARIES_COLLECTIVE_CALLERS_H
#define FS_SUMMARIES_COLLECTIVE_CALLERS_H

#include "store/api_calls.h"
#include "store/collective.h"
#include "work/collective_kinds.h"
#include "summaries/intervals.h"

typedef struct {
    const fs_store *store;
    fs_api_calls calls;
    fs_intervals annotations; /* of collectives, at their starts; tags are event ids */
} fs_collective_callers;

/* FS_OUT_OF_MEMORY. fs_collective_callers_clear also accepts a zeroed struct. */
fs_status fs_collective_callers_create(fs_collective_callers *callers, const fs_store *store, fs_error *err);
void fs_collective_callers_clear(fs_collective_callers *callers);

/* Fill in `collective` from the ops around the kernel and return its kind; return `by_kernel`, the kind given by the
 * kernel's name, if they name none. An op may launch kernels of another kind (an allgather of uneven parts launches
 * broadcasts); the size of such a kernel stays unknown. */
fs_collective_kind fs_collective_called_for(const fs_collective_callers *callers, uint32_t kernel,
                                            fs_collective_kind by_kernel, fs_collective *collective);

#endif
