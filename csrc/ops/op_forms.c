/* For each form a planner, which checks the arguments and fills in the plan, and a function that computes it. Planners
 * allocate nothing and change nothing: what is wrong with the arguments is found there. What they set holds for the
 * computation: with `dense_out` the output is dense, with `elementwise` an element of the output depends on that of the
 * inputs alone, so that an input may be the output. */
#include "ops/op_forms.h"

#include <math.h>
#include <string.h>

#include "ops/op.h"
#include "ops/space.h"

static void like(fs_plan *plan, const fs_tensor *tensor)
{
    plan->dtype = tensor->dtype;
    plan->device = tensor->device;
    plan->ndim = tensor->ndim;
    memcpy(plan->shape, tensor->shape, sizeof plan->shape);
}

fs_status fs_tensor_convert(const fs_tensor *target, const fs_tensor *source, fs_error *err)
{
    fs_conversion conversion = {.in_dtype = source->dtype};
    const fs_tensor *in[2] = {source, NULL};
    if (fs_tensor_count(target) == 0) return FS_OK;
    fs_space_make(&conversion.space, target, in);
    return fs_backend_of(target->device)->convert(target->device, &conversion, err);
}

fs_status fs_tensor_fill(const fs_tensor *out, double value, fs_error *err)
{
    fs_elementwise space;
    const fs_tensor *none[2] = {NULL, NULL};
    fs_space_make(&space, out, none);
    space.scalar[0] = value;
    return fs_backend_of(out->device)->fill(out->device, &space, err);
}

fs_status fs_tensor_densify(const fs_tensor *tensor, fs_tensor *dense, fs_error *err)
{
    if (fs_tensor_is_dense(tensor)) {
        fs_tensor_share(dense, tensor);
        return FS_OK;
    }
    FS_TRY(fs_tensor_empty(dense, tensor->dtype, tensor->device, tensor->ndim, tensor->shape, err));
    fs_status status = fs_tensor_convert(dense, tensor, err);
    if (status != FS_OK) fs_tensor_release(dense);
    return status;
}

fs_tensor fs_tensor_transposed(const fs_tensor *x)
{
    fs_tensor view = *x;
    int last = x->ndim - 1;
    view.shape[last] = x->shape[last - 1];
    view.shape[last - 1] = x->shape[last];
    view.strides[last] = x->strides[last - 1];
    view.strides[last - 1] = x->strides[last];
    return view;
}

/* Pointwise -------------------------------------------------------------------------------------------------------- */

static fs_status compute_unary(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    fs_elementwise space;
    const fs_tensor *in[2] = {plan->call->in[0], NULL};
    fs_space_make(&space, out, in);
    return fs_backend_of(out->device)->unary(out->device, (fs_unary_id)plan->call->op->id, &space, err);
}

fs_status FS_PLAN_UNARY(fs_plan *plan, fs_error *err)
{
    FS_TRY(fs_call_check_floats(plan->call, err));
    like(plan, plan->call->in[0]);
    plan->elementwise = true;
    plan->compute = compute_unary;
    return FS_OK;
}

fs_status FS_PLAN_UNARY_IN_PLACE(fs_plan *plan, fs_error *err)
{
    plan->in_place = plan->reads_target = true;
    return FS_PLAN_UNARY(plan, err);
}

static fs_status compute_binary(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    fs_elementwise space;
    fs_space_make(&space, out, plan->call->in);
    memcpy(space.scalar, plan->call->scalar, sizeof space.scalar);
    return fs_backend_of(out->device)->binary(out->device, (fs_binary_id)plan->call->op->id, &space, err);
}

fs_status FS_PLAN_BINARY(fs_plan *plan, fs_error *err)
{
    const fs_call *call = plan->call;
    const fs_tensor *a = call->in[0], *b = call->in[1];
    if (a == NULL && b == NULL) {
        return fs_call_fail(call, err, FS_TYPE_ERROR, "at least one argument must be a tensor");
    }
    FS_TRY(fs_call_check_floats(call, err));
    like(plan, a ? a : b);
    if (a && b && !fs_broadcast_shape(a->ndim, a->shape, b->ndim, b->shape, &plan->ndim, plan->shape)) {
        return fs_call_fail(call, err, FS_VALUE_ERROR,
                            "the shapes do not broadcast: aligned at the last axis, sizes must be equal or 1");
    }
    plan->elementwise = true;
    plan->compute = compute_binary;
    return FS_OK;
}

fs_status FS_PLAN_BINARY_IN_PLACE(fs_plan *plan, fs_error *err)
{
    plan->in_place = plan->reads_target = true;
    return FS_PLAN_BINARY(plan, err);
}

/* Along the last axis ---------------------------------------------------------------------------------------------- */

static fs_status compute_reduction(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    const fs_call *call = plan->call;
    const fs_tensor *x = call->in[0];
    fs_reduction_id op = (fs_reduction_id)call->op->id;
    if (fs_tensor_count(x) == 0) { /* rows without elements; the planner rejected the extremes */
        return fs_tensor_fill(out, op == FS_MEAN || op == FS_VAR ? (double)NAN : 0.0, err);
    }
    fs_tensor dense;
    FS_TRY(fs_tensor_densify(x, &dense, err));
    int64_t rows = call->over_everything ? 1 : fs_tensor_count(out);
    fs_reduction reduction = {dense.data, out->data, rows, fs_tensor_count(x) / rows, x->dtype, call->correction};
    fs_status status = fs_backend_of(out->device)->reduce(out->device, op, &reduction, err);
    fs_tensor_release(&dense);
    return status;
}

fs_status FS_PLAN_REDUCE(fs_plan *plan, fs_error *err)
{
    const fs_call *call = plan->call;
    const fs_tensor *x = call->in[0];
    FS_TRY(fs_call_check_floats(call, err));
    like(plan, x);
    bool everything = call->over_everything;
    if (!everything && x->ndim == 0)
        return fs_call_fail(call, err, FS_VALUE_ERROR, "the input needs at least one axis to reduce over");
    bool no_elements = everything ? fs_tensor_count(x) == 0 : x->shape[x->ndim - 1] == 0;
    bool extreme = call->op->id == FS_AMAX || call->op->id == FS_AMIN || call->op->id == FS_ARGMAX;
    if (no_elements && extreme) {
        return fs_call_fail(call, err, FS_VALUE_ERROR, "the maximum and minimum of an empty axis are undefined");
    }
    if (call->op->id == FS_ARGMAX) plan->dtype = FS_INT64;
    for (int d = everything ? 0 : x->ndim - 1; d < x->ndim; d++) plan->shape[d] = 1;
    if (!call->keepdims) plan->ndim = everything ? 0 : x->ndim - 1;
    plan->dense_out = true;
    plan->compute = compute_reduction;
    return FS_OK;
}

fs_status FS_PLAN_VAR(fs_plan *plan, fs_error *err)
{
    return FS_PLAN_REDUCE(plan, err);
}

static fs_status compute_cumsum(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    fs_tensor dense;
    FS_TRY(fs_tensor_densify(plan->call->in[0], &dense, err));
    int64_t length = out->shape[out->ndim - 1];
    fs_cumsum scan = {dense.data, out->data, fs_tensor_count(out) / length, length, out->dtype};
    fs_status status = fs_backend_of(out->device)->cumsum(out->device, &scan, err);
    fs_tensor_release(&dense);
    return status;
}

fs_status FS_PLAN_CUMSUM(fs_plan *plan, fs_error *err)
{
    FS_TRY(FS_PLAN_SOFTMAX(plan, err));
    plan->compute = compute_cumsum;
    return FS_OK;
}

static fs_status compute_rowwise(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    const fs_call *call = plan->call;
    fs_tensor dense[3];
    memset(dense, 0, sizeof dense);
    fs_status status = FS_OK;
    for (int i = 0; i < 3; i++) {
        if (call->in[i] != NULL) FS_TRY_GOTO(status, fs_tensor_densify(call->in[i], &dense[i], err), done);
    }
    int64_t length = out->shape[out->ndim - 1];
    fs_rowwise rowwise = {dense[0].data, out->data, dense[1].data, dense[2].data, fs_tensor_count(out) / length,
                          length,        call->eps, out->dtype};
    status = fs_backend_of(out->device)->rowwise(out->device, (fs_rowwise_id)call->op->id, &rowwise, err);
done:
    for (int i = 0; i < 3; i++) fs_tensor_release(&dense[i]);
    return status;
}

fs_status FS_PLAN_SOFTMAX(fs_plan *plan, fs_error *err)
{
    const fs_call *call = plan->call;
    const fs_tensor *x = call->in[0];
    FS_TRY(fs_call_check_floats(call, err));
    if (x->ndim == 0) return fs_call_fail(call, err, FS_VALUE_ERROR, "the input needs at least one axis");
    like(plan, x);
    for (int i = 1; i < 3; i++) {
        const fs_tensor *affine = call->in[i];
        if (affine == NULL || (affine->ndim == 1 && affine->shape[0] == x->shape[x->ndim - 1])) continue;
        return fs_call_fail(call, err, FS_VALUE_ERROR, "weight and bias must have the shape of the last axis");
    }
    plan->dense_out = true;
    plan->compute = compute_rowwise;
    return FS_OK;
}

fs_status FS_PLAN_LAYER_NORM(fs_plan *plan, fs_error *err)
{
    return FS_PLAN_SOFTMAX(plan, err);
}

fs_status FS_PLAN_RMS_NORM(fs_plan *plan, fs_error *err)
{
    return FS_PLAN_SOFTMAX(plan, err);
}

/* Copies ----------------------------------------------------------------------------------------------------------- */

/* Copy between devices densely, through the host. */
static fs_status copy_across(const fs_tensor *out, const fs_tensor *x, fs_error *err)
{
    fs_tensor dense;
    FS_TRY(fs_tensor_densify(x, &dense, err));
    size_t nbytes = fs_tensor_nbytes(out);
    fs_status status;
    if (out->device.kind == FS_CPU) {
        status = fs_backend_of(x->device)->to_host(x->device, out->data, dense.data, nbytes, err);
    } else if (x->device.kind == FS_CPU) {
        status = fs_backend_of(out->device)->from_host(out->device, out->data, dense.data, nbytes, err);
    } else {
        status = fs_backend_of(out->device)->peer_copy(out->device, out->data, x->device, dense.data, nbytes, err);
    }
    fs_tensor_release(&dense);
    return status;
}

static fs_status compute_copy(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    const fs_call *call = plan->call;
    if (call->op->id == 1) {
        fs_tensor view = fs_tensor_transposed(call->in[0]);
        return fs_tensor_convert(out, &view, err);
    }
    if (!fs_device_equal(out->device, call->in[0]->device)) return copy_across(out, call->in[0], err);
    return fs_tensor_convert(out, call->in[0], err);
}

fs_status FS_PLAN_COPY(fs_plan *plan, fs_error *err)
{
    const fs_call *call = plan->call;
    const fs_tensor *x = call->in[0];
    like(plan, x);
    if (call->op->id == 1) {
        if (x->ndim < 2) return fs_call_fail(call, err, FS_VALUE_ERROR, "the input needs at least two axes");
        fs_tensor view = fs_tensor_transposed(x);
        like(plan, &view);
    }
    if (call->to_device) plan->device = call->device;
    plan->dense_out = !fs_device_equal(plan->device, x->device);
    plan->elementwise = call->op->id != 1;
    plan->compute = compute_copy;
    return FS_OK;
}

static fs_status compute_cast(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    return fs_tensor_convert(out, plan->call->in[0], err);
}

fs_status FS_PLAN_CAST(fs_plan *plan, fs_error *err)
{
    (void)err;
    like(plan, plan->call->in[0]);
    plan->dtype = plan->call->dtype;
    plan->elementwise = true;
    plan->compute = compute_cast;
    return FS_OK;
}

static fs_status compute_copy_in_place(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    const fs_tensor *source = plan->call->in[1];
    return fs_device_equal(out->device, source->device) ? fs_tensor_convert(out, source, err)
                                                        : copy_across(out, source, err);
}

fs_status FS_PLAN_COPY_IN_PLACE(fs_plan *plan, fs_error *err)
{
    const fs_call *call = plan->call;
    const fs_tensor *x = call->in[0], *source = call->in[1];
    int ndim;
    int64_t shape[FS_MAX_DIMS];
    like(plan, x);
    bool fits = fs_broadcast_shape(x->ndim, x->shape, source->ndim, source->shape, &ndim, shape) && ndim == x->ndim &&
                memcmp(shape, x->shape, (size_t)ndim * sizeof *shape) == 0;
    bool across = !fs_device_equal(x->device, source->device);
    if (across && (x->dtype != source->dtype || fs_tensor_count(x) != fs_tensor_count(source))) {
        return fs_call_fail(call, err, FS_VALUE_ERROR, "for a copy between devices, shapes and dtypes must be equal");
    }
    if (!fits) return fs_call_fail(call, err, FS_VALUE_ERROR, "the source does not broadcast to the target's shape");
    plan->in_place = plan->elementwise = true;
    plan->dense_out = across;
    plan->compute = compute_copy_in_place;
    return FS_OK;
}

/* Creation --------------------------------------------------------------------------------------------------------- */

static fs_status draw(fs_random_id op, const fs_tensor *out, double low, double high, fs_error *err)
{
    fs_random random = {.out = out->data, .count = fs_tensor_count(out), .low = low, .high = high, .dtype = out->dtype};
    fs_random_take(random.count, &random.seed, &random.offset);
    return fs_backend_of(out->device)->random(out->device, op, &random, err);
}

static fs_status compute_create(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    int id = plan->call->op->id;
    return id < 2 ? fs_tensor_fill(out, id, err) : draw((fs_random_id)(id - 2), out, 0.0, 1.0, err);
}

fs_status FS_PLAN_CREATE(fs_plan *plan, fs_error *err)
{
    const fs_call *call = plan->call;
    plan->dtype = call->dtype;
    plan->device = call->device;
    plan->ndim = call->ndim;
    memcpy(plan->shape, call->shape, sizeof plan->shape);
    bool random = call->op->form == FS_FORM_CREATE && call->op->id >= 2;
    if (random && !fs_dtype_is_float(call->dtype)) {
        return fs_fail(err, FS_TYPE_ERROR, "%s: the dtype must be " FS_FLOATS_TEXT ", not %s", call->op->name,
                       fs_dtypes[call->dtype].name);
    }
    plan->dense_out = random;
    plan->compute = compute_create;
    return FS_OK;
}

static fs_status compute_full(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    return fs_tensor_fill(out, plan->call->scalar[1], err);
}

fs_status FS_PLAN_CREATE_FULL(fs_plan *plan, fs_error *err)
{
    FS_TRY(FS_PLAN_CREATE(plan, err));
    plan->compute = compute_full;
    return FS_OK;
}

fs_status FS_PLAN_FILL_IN_PLACE(fs_plan *plan, fs_error *err)
{
    (void)err;
    like(plan, plan->call->in[0]);
    plan->in_place = true;
    plan->compute = compute_full;
    return FS_OK;
}

static fs_status compute_random(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    const fs_call *call = plan->call;
    return draw((fs_random_id)call->op->id, out, call->scalar[1], call->scalar[2], err);
}

fs_status FS_PLAN_RANDOM_IN_PLACE(fs_plan *plan, fs_error *err)
{
    FS_TRY(fs_call_check_floats(plan->call, err));
    like(plan, plan->call->in[0]);
    plan->in_place = plan->dense_out = true;
    plan->compute = compute_random;
    return FS_OK;
}
