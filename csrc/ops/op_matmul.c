/* Matrix products: layouts, broadcast batches, and the bias of addmm. */
#include <stdio.h>
#include <string.h>

#include "ops/op_call.h"
#include "ops/op_forms.h"
#include "ops/space.h"

/* One operand in the backend's layout: a leading dimension, and whether columns are contiguous. */
typedef struct {
    fs_tensor tensor; /* owned: the operand, or a dense copy of it */
    int64_t ld;
    bool transposed;
} operand;

static bool fits_layout(const fs_tensor *x, operand *result)
{
    int64_t rows = x->shape[x->ndim - 2], columns = x->shape[x->ndim - 1];
    int64_t row_stride = x->strides[x->ndim - 2], column_stride = x->strides[x->ndim - 1];
    if ((columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns)) {
        result->transposed = false;
        result->ld = rows == 1 ? columns : row_stride;
        return true;
    }
    if ((rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows)) {
        result->transposed = true;
        result->ld = columns == 1 ? rows : column_stride;
        return true;
    }
    return false;
}

static fs_status take_operand(const fs_tensor *x, operand *result, fs_error *err)
{
    if (fits_layout(x, result)) {
        fs_tensor_share(&result->tensor, x);
        return FS_OK;
    }
    result->transposed = false;
    result->ld = x->shape[x->ndim - 1];
    FS_TRY(fs_tensor_empty(&result->tensor, x->dtype, x->device, x->ndim, x->shape, err));
    return fs_tensor_convert(&result->tensor, x, err);
}

/* The axes before the last two, as a tensor of matrices. */
static fs_tensor batch_axes(const fs_tensor *x)
{
    fs_tensor view = *x;
    view.ndim = x->ndim - 2;
    return view;
}

/* One backend call per run of evenly spaced matrices: a single call, unless batches broadcast unevenly. */
static fs_status multiply(const fs_tensor *out, fs_matmul *matmul, const operand operands[2], fs_error *err)
{
    fs_tensor out_batch = batch_axes(out), a_batch = batch_axes(&operands[0].tensor),
              b_batch = batch_axes(&operands[1].tensor);
    const fs_tensor *in[2] = {&a_batch, &b_batch};
    fs_elementwise space;
    fs_space_make(&space, &out_batch, in);
    int inner = space.ndim - 1;
    size_t item = fs_dtypes[out->dtype].size;
    matmul->batch = space.shape[inner];
    matmul->out_batch = space.out_strides[inner];
    matmul->a_batch = space.in_strides[0][inner];
    matmul->b_batch = space.in_strides[1][inner];
    int64_t at[FS_MAX_DIMS] = {0};
    for (;;) {
        int64_t out_offset = 0, a_offset = 0, b_offset = 0;
        for (int d = 0; d < inner; d++) {
            out_offset += at[d] * space.out_strides[d];
            a_offset += at[d] * space.in_strides[0][d];
            b_offset += at[d] * space.in_strides[1][d];
        }
        matmul->out = (char *)space.out + out_offset * (int64_t)item;
        matmul->a = (const char *)space.in[0] + a_offset * (int64_t)item;
        matmul->b = (const char *)space.in[1] + b_offset * (int64_t)item;
        FS_TRY(fs_backend_of(out->device)->matmul(out->device, matmul, err));
        int d = inner - 1;
        while (d >= 0 && ++at[d] == space.shape[d]) at[d--] = 0;
        if (d < 0) return FS_OK;
    }
}

static fs_status compute_matmul(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    const fs_call *call = plan->call;
    bool has_bias = call->op->form == FS_FORM_ADDMM;
    const fs_tensor *a = call->in[has_bias ? 1 : 0], *b = call->in[has_bias ? 2 : 1];
    int64_t k = a->shape[a->ndim - 1];
    if (has_bias) FS_TRY(fs_tensor_convert(out, call->in[0], err));
    if (k == 0) return has_bias ? FS_OK : fs_tensor_fill(out, 0.0, err);
    operand operands[2];
    memset(operands, 0, sizeof operands);
    fs_status status;
    FS_TRY_GOTO(status, take_operand(a, &operands[0], err), done);
    FS_TRY_GOTO(status, take_operand(b, &operands[1], err), done);
    fs_matmul matmul = {
        .m = out->shape[out->ndim - 2],
        .n = out->shape[out->ndim - 1],
        .k = k,
        .out_ld = out->shape[out->ndim - 1],
        .a_ld = operands[0].ld,
        .b_ld = operands[1].ld,
        .a_transposed = operands[0].transposed,
        .b_transposed = operands[1].transposed,
        .accumulate = has_bias,
        .allow_tf32 = call->allow_tf32,
        .dtype = out->dtype,
    };
    status = multiply(out, &matmul, operands, err);
done:
    for (int i = 0; i < 2; i++) fs_tensor_release(&operands[i].tensor);
    return status;
}

fs_status FS_PLAN_MATMUL(fs_plan *plan, fs_error *err)
{
    const fs_call *call = plan->call;
    int first = call->op->form == FS_FORM_ADDMM;
    const fs_tensor *a = call->in[first], *b = call->in[first + 1];
    char problem[160];
    FS_TRY(fs_call_check_floats(call, err));
    if (a->ndim < 2 || b->ndim < 2) {
        return fs_call_fail(call, err, FS_VALUE_ERROR, "both factors need at least two axes");
    }
    int64_t rows = a->shape[a->ndim - 2], columns = b->shape[b->ndim - 1];
    int64_t inner_a = a->shape[a->ndim - 1], inner_b = b->shape[b->ndim - 2];
    if (inner_a != inner_b) {
        snprintf(problem, sizeof problem, "the first factor has %lld columns, the second %lld rows; they must be equal",
                 (long long)inner_a, (long long)inner_b);
        return fs_call_fail(call, err, FS_VALUE_ERROR, problem);
    }
    if (!fs_broadcast_shape(a->ndim - 2, a->shape, b->ndim - 2, b->shape, &plan->ndim, plan->shape)) {
        return fs_call_fail(call, err, FS_VALUE_ERROR, "the axes before the last two do not broadcast");
    }
    plan->shape[plan->ndim++] = rows;
    plan->shape[plan->ndim++] = columns;
    plan->dtype = a->dtype;
    plan->device = a->device;
    plan->dense_out = true;
    plan->compute = compute_matmul;
    return FS_OK;
}

fs_status FS_PLAN_ADDMM(fs_plan *plan, fs_error *err)
{
    const fs_tensor *bias = plan->call->in[0];
    int ndim;
    int64_t shape[FS_MAX_DIMS];
    FS_TRY(FS_PLAN_MATMUL(plan, err));
    if (!fs_broadcast_shape(plan->ndim, plan->shape, bias->ndim, bias->shape, &ndim, shape) || ndim != plan->ndim ||
        memcmp(shape, plan->shape, (size_t)ndim * sizeof *shape) != 0) {
        return fs_call_fail(plan->call, err, FS_VALUE_ERROR, "the bias does not broadcast to the product's shape");
    }
    return FS_OK;
}
