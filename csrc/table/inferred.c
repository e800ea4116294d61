/* Second step of a build: infers missing arguments of calls from other events of the trace; see fs_build_infer. */
#include "table/inferred.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"

/* Dtypes ----------------------------------------------------------------------------------------------------------- */

static bool any_untyped(const fs_calls *set)
{
    for (uint32_t id = 0; id < set->count; id++)
        if (set->calls[id].untyped) return true;
    return false;
}

/* Take the dtype of the first kernel that has one, unless a later kernel contradicts it. */
static void add_kernel(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    uint32_t launcher = chunk->launcher[at] < build->count ? fs_build_past_frames(build, chunk->launcher[at]) : FS_NONE;
    if (launcher == FS_NONE || FS_BUILD_AT(build, launcher, kind) != FS_EVENT_OP) return;
    fs_call *call = fs_build_call(build, launcher), *kernel = fs_build_call(build, index);
    if (!call->untyped || kernel->text == NULL) return;
    fs_torch_dtype dtype = fs_kernel_dtype(kernel->text);
    if (dtype == FS_TORCH_DTYPE_NONE) return;
    if (call->dtype != FS_TORCH_DTYPE_NONE && call->dtype != dtype) call->untyped = false;
    call->dtype = (uint8_t)dtype;
}

static void set_dtype(fs_torch_call *call, uint8_t dtype)
{
    call->untyped = true;
    /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): the caller has decoded the call */
    for (uint32_t i = 0; i < call->count; i++)
        if (call->arguments[i].type == FS_TORCH_TENSOR) call->arguments[i].tensor.dtype = dtype;
}

/* Decode the arguments of a call with the dtype inferred from its kernels. *outer: storage for the enclosing op's
 * call. */
static bool decode_typed(const fs_calls *set, const fs_call *of, fs_torch_call *call, fs_torch_call *outer)
{
    if (!fs_calls_decode(set, of, call)) return false;
    fs_calls_surround(set, of, call, outer);
    if (!of->untyped || of->dtype == FS_TORCH_DTYPE_NONE) return true;
    set_dtype(call, of->dtype);
    if (call->outer != NULL) set_dtype(outer, of->dtype);
    return true;
}

static void find_dtypes(fs_build *build)
{
    fs_calls *set = &build->calls;
    fs_torch_call call, outer;
    if (!any_untyped(set)) return;
    for (uint32_t index = 0; index < build->count; index++) {
        uint32_t at;
        const fs_chunk *chunk = fs_build_chunk(build, index, &at);
        if (chunk->kind[at] == FS_EVENT_KERNEL) add_kernel(build, chunk, at, index);
    }
    for (uint32_t id = 0; id < set->count; id++) {
        fs_call *of = &set->calls[id];
        if (!of->untyped || of->dtype == FS_TORCH_DTYPE_NONE) continue;
        if (!decode_typed(set, of, &call, &outer)) continue;
        of->work = fs_work_of_torch(of->text, &call);
        of->work.at_most = true; /* some tensors may be narrower: a bias, a mask */
    }
}

/* Gradients -------------------------------------------------------------------------------------------------------- */

/* The calls of gradients. */
typedef struct {
    const fs_calls *set;
    uint32_t *ids;
    uint32_t count;
    uint64_t looked; /* how many were compared with a call */
} gradients;

/* Find the shape of the result of a call; *found is false if its gradients disagree or there are none. *result points
 * into the store. */
static fs_status find_output(gradients *from, const char *name, const fs_torch_call *wanted, fs_torch_tensor *result,
                             bool *found, fs_error *err)
{
    fs_torch_call gradient;
    *found = false;
    for (uint32_t i = 0; i < from->count; i++) {
        const fs_call *call = &from->set->calls[from->ids[i]];
        FS_POLL(from->looked++, err);
        if (!fs_calls_decode(from->set, call, &gradient)) continue;
        const fs_torch_tensor *output = fs_work_result_told(call->text, &gradient, name, wanted);
        if (output == NULL) continue;
        size_t size = output->ndim * sizeof *output->shape;
        if (*found && (result->ndim != output->ndim || memcmp(result->shape, output->shape, size) != 0)) {
            *found = false;
            break;
        }
        *result = *output;
        *found = true;
    }
    return FS_OK;
}

static fs_status find_results(fs_calls *set, gradients *from, fs_error *err)
{
    fs_torch_call torch, outer;
    fs_torch_tensor output = {0};
    for (uint32_t id = 0; id < set->count; id++) {
        fs_call *call = &set->calls[id];
        bool found;
        if (call->work.needs != FS_NEEDS_GRADIENT || !decode_typed(set, call, &torch, &outer)) continue;
        FS_TRY(find_output(from, call->text, &torch, &output, &found, err));
        if (!found) continue;
        torch.output = &output;
        call->work = fs_work_of_torch(call->text, &torch);
        if (torch.untyped) call->work.at_most = true;
    }
    return FS_OK;
}

/* Find the work of gradients whose op of the forward pass the trace does not tell: of those whose result has the shape
 * of the gradient, the one with the most work gives a bound. */
static fs_status find_forwards(fs_calls *set, gradients *of, fs_error *err)
{
    fs_torch_call gradient, forward;
    for (uint32_t i = 0; i < of->count; i++) {
        fs_call *call = &set->calls[of->ids[i]];
        if (call->work.needs != FS_NEEDS_FORWARD || !fs_calls_decode(set, call, &gradient)) continue;
        for (uint32_t id = 0; id < set->count; id++) {
            FS_POLL(of->looked++, err);
            const fs_call *from = &set->calls[id];
            if (from->text == NULL || from->on_device || !fs_calls_decode(set, from, &forward)) continue;
            if (fs_work_result_told(call->text, &gradient, from->text, &forward) == NULL) continue;
            gradient.outer_name = from->text;
            gradient.outer = &forward;
            fs_work work = fs_work_of_torch(call->text, &gradient);
            if (call->work.needs == FS_NEEDS_FORWARD || work.bytes_moved > call->work.bytes_moved) call->work = work;
        }
    }
    return FS_OK;
}

fs_status fs_build_infer(fs_build *build, fs_error *err)
{
    fs_calls *set = &build->calls;
    gradients all = {.set = set};
    find_dtypes(build);
    for (uint32_t id = 0; id < set->count; id++) all.count += set->calls[id].gradient;
    if (all.count == 0) return FS_OK;
    all.ids = fs_malloc(all.count * sizeof *all.ids);
    if (all.ids == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the gradients of %u calls", all.count);
    all.count = 0;
    for (uint32_t id = 0; id < set->count; id++)
        if (set->calls[id].gradient) all.ids[all.count++] = id;
    fs_status status = find_results(set, &all, err);
    if (status == FS_OK) status = find_forwards(set, &all, err);
    fs_free(all.ids);
    return status;
}
