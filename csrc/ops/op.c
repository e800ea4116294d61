/* A call becomes a plan, by the form of its op; the plan says shape, dtype and device of the result before anything is
 * allocated, so the observer can describe the call and errors come first. The result never depends on aliasing: where a
 * computation would read what it has already overwritten, it goes to a scratch tensor that is copied at the end. An
 * observer that has seen `begin` always sees `end`, also of an op that fails. */
#include "ops/op.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "ops/observer.h"
#include "ops/op_forms.h"
#include "ops/space.h"

/* The rows of pointwise.def and ops.def, as one array: each pointwise row makes two, one of them in place. The id is
 * the place in its list, by which backends choose a loop or a kernel. */

#define UNARY_ROWS(op, value, text)                                              \
    {#op, "Return " text, FS_FORM_UNARY, FS_UNARY_##op, FS_FLOPS_PER_OUTPUT, 1}, \
        {#op "_", "Set x to " text, FS_FORM_UNARY_IN_PLACE, FS_UNARY_##op, FS_FLOPS_PER_OUTPUT, 1},
#define BINARY_ROWS(op, value, text)                                               \
    {#op, "Return " text, FS_FORM_BINARY, FS_BINARY_##op, FS_FLOPS_PER_OUTPUT, 1}, \
        {#op "_",                                                                  \
         "Set x to " text ", where a is x and b is other",                         \
         FS_FORM_BINARY_IN_PLACE,                                                  \
         FS_BINARY_##op,                                                           \
         FS_FLOPS_PER_OUTPUT,                                                      \
         1},
#define OTHER_ROW(op, form, id, rule, each, text) {#op, text, FS_FORM_##form, id, FS_FLOPS_##rule, each},

const fs_op fs_ops[] = {
#define FS_UNARY UNARY_ROWS
#define FS_BINARY BINARY_ROWS
#include "ops/pointwise.def"
#undef FS_UNARY
#undef FS_BINARY
#define FS_OP OTHER_ROW
#include "ops/ops.def"
#undef FS_OP
};
const int fs_op_count = (int)(sizeof fs_ops / sizeof *fs_ops);

const fs_op *fs_op_find(const char *name)
{
    for (int i = 0; i < fs_op_count; i++) {
        if (strcmp(fs_ops[i].name, name) == 0) return &fs_ops[i];
    }
    return NULL;
}

/* Every error of a call begins with the call as it was written, "add(float32 (2, 3) on cpu, 4): ", and then says the
 * problem. The text is cut where it does not fit, never left out. */

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

fs_status fs_call_check_floats(const fs_call *call, fs_error *err)
{
    const fs_tensor *first = NULL;
    for (int i = 0; i < 3; i++) {
        const fs_tensor *in = call->in[i];
        if (in == NULL) continue;
        if (!fs_dtype_is_float(in->dtype)) {
            return fs_call_fail(call, err, FS_TYPE_ERROR,
                                "the dtype must be " FS_FLOATS_TEXT "; cast with x.to(\"float32\")");
        }
        if (first == NULL) first = in;
        if (in->dtype != first->dtype) {
            return fs_call_fail(call, err, FS_TYPE_ERROR, "the dtypes differ; cast one with x.to(dtype)");
        }
    }
    return fs_call_check_devices(call, err);
}

fs_status fs_call_check_devices(const fs_call *call, fs_error *err)
{
    const fs_tensor *first = NULL;
    for (int i = 0; i < 3; i++) {
        const fs_tensor *in = call->in[i];
        if (in == NULL) continue;
        if (first == NULL) first = in;
        if (!fs_device_equal(in->device, first->device))
            return fs_call_fail(call, err, FS_VALUE_ERROR, "the devices differ; move one with x.to(device)");
    }
    return FS_OK;
}

/* The stream is a pure function of seed and offset, and a call reserves its share of offsets in one atomic step: two
 * threads never draw the same numbers, and a device does not matter. Shares are whole Philox blocks of 4 numbers. */

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

static const struct {
    fs_status (*plan)(fs_plan *plan, fs_error *err);
} forms[FS_FORM_COUNT] = {
#define FORM_ROW(NAME, text_signature) [FS_FORM_##NAME] = {FS_PLAN_##NAME},
    FS_FORM_LIST(FORM_ROW)
#undef FORM_ROW
};

/* Check the caller's output against the shape, dtype and device that the op would allocate. */
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
    return fs_call_fail(
        plan->call, err, FS_VALUE_ERROR,
        distinct == FS_COUNT_UNKNOWN
            ? "cannot determine whether elements of the output share memory; write into a copy"
            : "the output overlaps itself: several of its elements share memory (it is broadcast, or its "
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

/* The device on which a call is timed: for a copy between devices, the GPU. */
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
    bool tf32 = call->allow_tf32 && call->in[1]->dtype == FS_FLOAT32; /* of a product, which has two factors */
    signature->flags = tf32 ? FS_SIGNATURE_TF32 : 0;
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

/* Whether computing directly into `out` would overwrite elements before they are read, or pass a strided output to a
 * backend that needs a dense one. */
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

/* The loops of an interrupted op skip pieces. */
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

static fs_status produce(const fs_plan *plan, const fs_tensor *destination, fs_tensor *result, fs_error *err)
{
    if (destination != NULL) {
        FS_TRY(compute(plan, destination, err));
        fs_tensor_share(result, destination);
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
    const fs_tensor *destination = plan.in_place ? call->in[0] : call->out;
    if (destination != NULL) FS_TRY(check_out(&plan, destination, err));

    const fs_observer *observer = fs_observer_enter();
    if (observer == NULL) return produce(&plan, destination, result, err);
    fs_tensor dense = {.dtype = plan.dtype, .device = plan.device, .ndim = plan.ndim};
    memcpy(dense.shape, plan.shape, (size_t)plan.ndim * sizeof *plan.shape);
    fs_dense_strides(dense.ndim, dense.shape, dense.strides);
    fs_signature signature;
    describe_call(&plan, destination ? destination : &dense, &signature);
    fs_device device = {.kind = (fs_device_kind)signature.device_kind, .index = signature.device_index};
    uint64_t token = observer->begin(observer->context, call->op, &signature, device);
    fs_status status = produce(&plan, destination, result, err);
    observer->end(observer->context, token, call->op, device, status != FS_OK);
    fs_observer_leave();
    return status;
}
