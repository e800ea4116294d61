#include "ops/op.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "ops/observer.h"
#include "ops/op_forms.h"
#include "ops/space.h"

static const struct {
    fs_status (*plan)(fs_plan *plan, fs_error *err);
} forms[FS_FORM_COUNT] = {
#define FORM_ROW(NAME, text_signature) [FS_FORM_##NAME] = {FS_PLAN_##NAME},
    FS_FORM_LIST(FORM_ROW)
#undef FORM_ROW
};

fs_status fs_call_fail(const fs_call *call, fs_error *err, fs_status status, const char *problem)
{
    char text[700], one[200];
    size_t used = (size_t)snprintf(text, sizeof text, "%s(", call->op->name);
    bool first = true;
    for (int i = 0; i < 3; i++) {
        if (call->in[i] == NULL && !call->is_scalar[i]) continue;
        if (call->is_scalar[i]) {
            snprintf(one, sizeof one, "%g", call->scalar[i]);
        } else {
            fs_tensor_text(call->in[i], one, sizeof one);
        }
        used += (size_t)snprintf(text + used, sizeof text - used, first ? "%s" : ", %s", one);
        first = false;
    }
    if (call->out != NULL) {
        snprintf(text + used, sizeof text - used, first ? "out=%s" : ", out=%s",
                 fs_tensor_text(call->out, one, sizeof one));
    }
    return fs_fail(err, status, "%s): %s", text, problem);
}

/* The output that the caller gave must be what the op would have made. */
static fs_status check_out(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    char problem[300], shape[128], device[16];
    bool same_shape = out->ndim == plan->ndim;
    for (int d = 0; same_shape && d < plan->ndim; d++) same_shape = out->shape[d] == plan->shape[d];
    if (!same_shape) {
        snprintf(problem, sizeof problem, "the output must have shape %s",
                 fs_shape_text(plan->ndim, plan->shape, shape, sizeof shape));
        return fs_call_fail(plan->call, err, FS_VALUE_ERROR, problem);
    }
    if (out->dtype != plan->dtype) {
        snprintf(problem, sizeof problem, "the output must have dtype %s", fs_dtypes[plan->dtype].name);
        return fs_call_fail(plan->call, err, FS_TYPE_ERROR, problem);
    }
    if (!fs_device_equal(out->device, plan->device)) {
        snprintf(problem, sizeof problem, "the output must be on %s", fs_device_text(plan->device, device));
        return fs_call_fail(plan->call, err, FS_VALUE_ERROR, problem);
    }
    if (out->storage->read_only) {
        return fs_call_fail(plan->call, err, FS_VALUE_ERROR, "the output's memory is read-only; write into a copy");
    }
    if (fs_tensor_is_dense(out)) return FS_OK;
    int64_t distinct = fs_distinct_count(out->ndim, out->shape, out->strides);
    if (distinct == fs_tensor_count(out)) return FS_OK;
    return fs_call_fail(plan->call, err, FS_VALUE_ERROR,
                        distinct == FS_COUNT_UNKNOWN
                            ? "whether elements of the output share memory is too hard to tell; write into a copy"
                            : "the output overlaps itself: several of its elements are one (it is broadcast, or its "
                              "windows overlap); write into a copy");
}

/* The event -------------------------------------------------------------------------------------------------------- */

static void describe(fs_signature *signature, fs_argument_role role, const fs_tensor *tensor, uint8_t same_as)
{
    fs_argument *argument = &signature->arguments[signature->argument_count++];
    bool dense = tensor == NULL || fs_tensor_is_dense(tensor);
    *argument = (fs_argument){
        .role = (uint8_t)role,
        .dtype = (uint8_t)(tensor ? tensor->dtype : FS_DTYPE_NONE),
        .ndim = (uint8_t)(tensor ? tensor->ndim : 0),
        .same_as = same_as,
        .dense = dense,
        .shape = tensor ? tensor->shape : NULL,
        .strides = dense ? NULL : tensor->strides,
    };
}

/* Where the work of a call is timed: a copy between devices on the GPU's side. */
static fs_device working_device(const fs_plan *plan)
{
    for (int i = 0; i < 3 && plan->device.kind == FS_CPU; i++) {
        if (plan->call->in[i] != NULL && plan->call->in[i]->device.kind == FS_CUDA) return plan->call->in[i]->device;
    }
    return plan->device;
}

static void describe_call(const fs_plan *plan, const fs_tensor *out, fs_signature *signature)
{
    const fs_call *call = plan->call;
    uint8_t place[3] = {FS_SAME_AS_NONE, FS_SAME_AS_NONE, FS_SAME_AS_NONE};
    signature->flags = call->allow_tf32 && plan->dtype == FS_FLOAT32 ? FS_SIGNATURE_TF32 : 0;
    fs_device device = working_device(plan);
    signature->device_kind = (uint8_t)device.kind;
    signature->device_index = (uint8_t)device.index;
    signature->argument_count = 0;
    for (int i = 0; i < 3; i++) {
        if (call->in[i] == NULL && !call->is_scalar[i]) continue;
        fs_argument_role role = call->is_scalar[i] ? FS_ARGUMENT_SCALAR : FS_ARGUMENT_IN;
        if (plan->in_place && i == 0) role = plan->reads_target ? FS_ARGUMENT_INOUT : FS_ARGUMENT_TARGET;
        uint8_t same_as = FS_SAME_AS_NONE;
        for (int j = 0; j < i && same_as == FS_SAME_AS_NONE && call->in[i] != NULL; j++) {
            if (call->in[j] != NULL && fs_tensor_same_memory(call->in[i], call->in[j])) same_as = place[j];
        }
        place[i] = signature->argument_count;
        describe(signature, role, call->in[i], same_as);
    }
    if (!plan->in_place) describe(signature, FS_ARGUMENT_OUT, out, FS_SAME_AS_NONE);
}

/* Running ---------------------------------------------------------------------------------------------------------- */

/* Whether computing straight into `out` would read elements that were already overwritten, or a backend that wants a
 * dense output would not get one. */
static bool needs_scratch(const fs_plan *plan, const fs_tensor *out)
{
    if (plan->dense_out && !fs_tensor_is_dense(out)) return true;
    for (int i = 0; i < 3; i++) {
        const fs_tensor *in = plan->call->in[i];
        if (in == NULL || (plan->in_place && i == 0) || !fs_tensor_overlaps(in, out)) continue;
        fs_tensor view = fs_tensor_broadcast(out, out->ndim, out->shape);
        bool element_for_element = plan->elementwise && in->data == out->data && in->dtype == out->dtype &&
                                   in->ndim == out->ndim &&
                                   memcmp(in->shape, out->shape, (size_t)out->ndim * sizeof *in->shape) == 0;
        for (int d = 0; element_for_element && d < out->ndim; d++) {
            element_for_element = view.strides[d] == in->strides[d] || out->shape[d] == 1;
        }
        if (!element_for_element) return true;
    }
    return false;
}

/* Loops of an op that is interrupted leave pieces out. */
static fs_status compute_all(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    FS_TRY(plan->compute(plan, out, err));
    return fs_interrupt_poll(err);
}

static fs_status compute(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    if (fs_tensor_count(out) == 0) return FS_OK;
    if (!needs_scratch(plan, out)) return compute_all(plan, out, err);
    fs_tensor scratch;
    FS_TRY(fs_tensor_empty(&scratch, out->dtype, out->device, out->ndim, out->shape, err));
    fs_status status = compute_all(plan, &scratch, err);
    if (status == FS_OK) status = fs_tensor_convert(out, &scratch, err);
    fs_tensor_release(&scratch);
    return status;
}

static fs_status produce(const fs_plan *plan, const fs_tensor *given, fs_tensor *result, fs_error *err)
{
    if (given != NULL) {
        FS_TRY(compute(plan, given, err));
        fs_tensor_share(result, given);
        return FS_OK;
    }
    FS_TRY(fs_tensor_empty(result, plan->dtype, plan->device, plan->ndim, plan->shape, err));
    fs_status status = fs_tensor_count(result) == 0 ? FS_OK : compute_all(plan, result, err);
    if (status != FS_OK) fs_tensor_release(result);
    return status;
}

fs_status fs_op_run(const fs_call *call, fs_tensor *result, fs_error *err)
{
    fs_plan plan;
    plan.call = call;
    plan.in_place = plan.reads_target = plan.elementwise = plan.dense_out = false;
    FS_TRY(forms[call->op->form].plan(&plan, err));
    const fs_tensor *given = plan.in_place ? call->in[0] : call->out;
    if (given != NULL) FS_TRY(check_out(&plan, given, err));

    const fs_observer *observer = fs_observer_enter();
    if (observer == NULL) return produce(&plan, given, result, err);
    fs_tensor dense = {.dtype = plan.dtype, .device = plan.device, .ndim = plan.ndim};
    memcpy(dense.shape, plan.shape, (size_t)plan.ndim * sizeof *plan.shape);
    fs_dense_strides(dense.ndim, dense.shape, dense.strides);
    fs_signature signature;
    describe_call(&plan, given ? given : &dense, &signature);
    fs_device device = {.kind = (fs_device_kind)signature.device_kind, .index = signature.device_index};
    uint64_t token = observer->begin(observer->context, call->op, &signature, device);
    fs_status status = produce(&plan, given, result, err);
    observer->end(observer->context, token, call->op, device, status != FS_OK);
    fs_observer_leave();
    return status;
}

/* Random numbers --------------------------------------------------------------------------------------------------- */

static atomic_ullong random_seed = 0x5eed;
static atomic_ullong random_offset;

void fs_op_seed(uint64_t seed)
{
    atomic_store(&random_seed, seed);
    atomic_store(&random_offset, 0);
}

void fs_random_take(int64_t count, uint64_t *seed, uint64_t *offset)
{
    *seed = atomic_load(&random_seed);
    *offset = atomic_fetch_add(&random_offset, ((uint64_t)count + 3) & ~(uint64_t)3); /* whole Philox blocks */
}
