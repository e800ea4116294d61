/* Collectives, as torch records them: record_param_comms. */
#include <math.h>
#include <string.h>

#include "store/collective.h"
#include "store/event.h"
#include "work/aten/sizes.h"
#include "work/collective_sizes.h"
#include "work/libraries/libraries.h"

static double bytes_of(int64_t elements, int size)
{
    return elements != FS_MISSING && size > 0 ? (double)elements * size : (double)NAN;
}

/* What this device reads and writes of its own memory. FLOPs: 0 without a reduction; where sums are made depends on
 * the algorithm and the network. */
static fs_work work_of(fs_collective_kind kind, double sent, double received)
{
    fs_work work = fs_work_unknown;
    bool reduces = kind == FS_COLLECTIVE_ALLREDUCE || kind == FS_COLLECTIVE_REDUCESCATTER ||
                   kind == FS_COLLECTIVE_REDUCE || kind == FS_COLLECTIVE_OTHER;
    work.between = true;
    work.flops = reduces ? (double)NAN : 0;
    switch (kind) {
    case FS_COLLECTIVE_BROADCAST: /* the root reads, the others write */
        work.bytes_moved = sent;
        break;
    case FS_COLLECTIVE_SEND:
        work = fs_sizes_work(work.flops, sent, 0, work.unit);
        break;
    case FS_COLLECTIVE_RECV:
        work = fs_sizes_work(work.flops, 0, received, work.unit);
        break;
    default:
        work = fs_sizes_work(work.flops, sent, received, work.unit);
    }
    work.between = true;
    /* Only the root of these has both sizes. */
    work.at_most = kind == FS_COLLECTIVE_REDUCE || kind == FS_COLLECTIVE_GATHER || kind == FS_COLLECTIVE_SCATTER;
    if (isnan(work.bytes_moved)) work.flops = NAN;
    return work;
}

static fs_work of_callers(const fs_torch_call *call)
{
    fs_collective_sizes sizes = fs_collective_no_sizes;
    fs_collective_kind kind = FS_COLLECTIVE_OTHER;
    int32_t ranks = 0;
    fs_work work = fs_work_unknown;
    if (call->outer_name != NULL && fs_collective_is_caller(call->outer_name)) {
        kind = fs_collective_kind_of(call->outer_name);
        fs_collective_read_caller(call->outer_name, call->outer, &sizes);
        fs_collective_read_caller("record_param_comms", call, &sizes);
        bool both = sizes.sent != FS_MISSING && sizes.received != FS_MISSING;
        fs_torch_dtype dtype =
            sizes.dtype != NULL ? fs_torch_dtype_named(sizes.dtype, strlen(sizes.dtype)) : FS_TORCH_DTYPE_NONE;
        if (fs_collective_complete(kind, &sizes, &ranks)) {
            int size = fs_torch_dtypes[dtype].size;
            work = work_of(kind, bytes_of(sizes.sent, size), bytes_of(sizes.received, size));
            work.at_most = work.at_most || (kind == FS_COLLECTIVE_ALLTOALL && !both); /* parts may differ */
        }
    }
    if (isnan(work.bytes_moved)) work.needs = FS_NEEDS_CALLER;
    return work;
}

fs_work fs_count_collective(const fs_aten_rule *rule, const fs_torch_call *call)
{
    (void)rule;
    fs_collective recorded;
    if (!fs_collective_read(call->end, call->rest, &recorded)) return of_callers(call);
    fs_collective_kind kind = fs_collective_kind_of(recorded.name.text);
    int64_t sent = recorded.in_elements, received = recorded.out_elements;
    if (kind == FS_COLLECTIVE_RECV && received <= 0) received = sent;
    if (kind == FS_COLLECTIVE_SEND && sent <= 0) sent = received;
    return work_of(kind, bytes_of(sent, recorded.element_size), bytes_of(received, recorded.element_size));
}
