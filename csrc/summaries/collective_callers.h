/* What the ops around a kernel of communication tell of it, where PyTorch tells nothing with the kernel itself: RCCL's
 * ncclDevKernel_Generic names no kind, and traces of torch before 2.2 no size.
 *
 *   c10d::_allgather_base_       names the kind; its tensors tell what was given and got
 *     record_param_comms         what was given
 *       nccl:_all_gather_base    an annotation, which ends on another thread: kind, and what was given
 *         cudaLaunchKernelExC
 *
 * Private to csrc/summaries.
 */
#ifndef FS_SUMMARIES_COLLECTIVE_CALLERS_H
#define FS_SUMMARIES_COLLECTIVE_CALLERS_H

#include "store/api_calls.h"
#include "store/collective.h"
#include "summaries/collective_kinds.h"
#include "summaries/intervals.h"

typedef struct {
    const fs_store *store;
    fs_api_calls calls;
    fs_intervals annotations; /* of collectives, where they begin; the tags are the events */
} fs_collective_callers;

/* FS_OUT_OF_MEMORY. fs_collective_callers_clear takes all zero too. */
fs_status fs_collective_callers_create(fs_collective_callers *callers, const fs_store *store, fs_error *err);
void fs_collective_callers_clear(fs_collective_callers *callers);

/* Fill in what the ops around the kernel tell and `told` lacks. Returns the kind that they name, whose kernel's name
 * says `by_kernel`; that kind where they name none. An op may launch kernels of another kind (an allgather of uneven
 * parts is many broadcasts): such a kernel's size is not the op's. */
fs_collective_kind fs_collective_called_for(const fs_collective_callers *callers, uint32_t kernel,
                                            fs_collective_kind by_kernel, fs_collective *told);

#endif
