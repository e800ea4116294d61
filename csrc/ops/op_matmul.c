/* Matrix products: dtypes, layouts, broadcast batches, and the bias of addmm. */
#include <stdio.h>
#include <string.h>

#include "base/search.h"
#include "ops/op_forms.h"
#include "ops/space.h"

enum {
    ROW_BYTES = 16,  /* of which rows of 8-bit factors on CUDA are multiples */
    INT8_ROWS = 17,  /* that a product of int8 on CUDA must have at least; torch._int_mm demands the same */
    PADDED_ROWS = 32 /* of a product with fewer */
};

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

static int64_t round_up(int64_t count, int64_t unit)
{
    return (count + unit - 1) / unit * unit;
}

/* Whether cuBLASLt's tensor-core kernels for 8 bits can read the matrices, whose last axis is that of the sums: it is
 * contiguous, and every row begins at, and consists of, whole 16 bytes. */
static bool has_whole_rows(const fs_tensor *x)
{
    int last = x->ndim - 1;
    int64_t k = x->shape[last];
    if ((uintptr_t)x->data % ROW_BYTES != 0 || k % ROW_BYTES != 0 || x->strides[last] != 1) return false;
    return !FS_ANY(d, last, x->shape[d] != 1 && x->strides[d] % ROW_BYTES != 0) &&
           (x->shape[last - 1] == 1 || x->strides[last - 1] >= k);
}

/* The operand as such matrices of `rows` rows: itself, or a copy with zeros after its elements. */
static fs_status take_rows(const fs_tensor *x, int64_t rows, operand *result, fs_error *err)
{
    int last = x->ndim - 1;
    if (rows == x->shape[last - 1] && has_whole_rows(x)) {
        fs_tensor_share(&result->tensor, x);
        result->ld = rows == 1 ? x->shape[last] : x->strides[last - 1];
        return FS_OK;
    }
    int64_t shape[FS_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[last - 1] = rows;
    shape[last] = result->ld = round_up(x->shape[last], ROW_BYTES);
    FS_TRY(fs_tensor_empty(&result->tensor, x->dtype, x->device, x->ndim, shape, err));
    fs_tensor elements = result->tensor;
    memcpy(elements.shape, x->shape, sizeof shape);
    if (fs_tensor_count(x) < fs_tensor_count(&result->tensor)) FS_TRY(fs_tensor_fill(&result->tensor, 0.0, err));
    return fs_tensor_convert(&elements, x, err);
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
    int64_t item = (int64_t)fs_dtypes[out->dtype].size, a_item = (int64_t)fs_dtypes[matmul->a_dtype].size;
    int64_t b_item = (int64_t)fs_dtypes[matmul->b_dtype].size;
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
        matmul->out = (char *)space.out + out_offset * item;
        matmul->a = (const char *)space.in[0] + a_offset * a_item;
        matmul->b = (const char *)space.in[1] + b_offset * b_item;
        FS_TRY(fs_backend_of(out->device)->matmul(out->device, matmul, err));
        int d = inner - 1;
        while (d >= 0 && ++at[d] == space.shape[d]) at[d--] = 0;
        if (d < 0) return FS_OK;
    }
}

/* `rows` and `columns` are those of the product, padded if it is computed in rows. */
static fs_status take_operands(const fs_tensor *a, const fs_tensor *b, bool in_rows, int64_t rows, int64_t columns,
                               operand operands[2], fs_error *err)
{
    if (!in_rows) {
        FS_TRY(take_operand(a, &operands[0], err));
        return take_operand(b, &operands[1], err);
    }
    fs_tensor b_rows = fs_tensor_transposed(b);
    operands[1].transposed = true;
    FS_TRY(take_rows(a, rows, &operands[0], err));
    return take_rows(&b_rows, columns, &operands[1], err);
}

static fs_status compute_matmul(const fs_plan *plan, const fs_tensor *out, fs_error *err)
{
    const fs_call *call = plan->call;
    bool has_bias = call->op->form == FS_FORM_ADDMM;
    const fs_tensor *a = call->in[has_bias ? 1 : 0], *b = call->in[has_bias ? 2 : 1];
    int last = out->ndim - 1;
    int64_t m = out->shape[last - 1], n = out->shape[last], k = a->shape[a->ndim - 1], rows = m, columns = n;
    if (k == 0) return has_bias ? fs_tensor_convert(out, call->in[0], err) : fs_tensor_fill(out, 0.0, err);

    bool in_rows = out->device.kind == FS_CUDA && fs_dtypes[a->dtype].size == 1;
    if (in_rows) columns = round_up(n, ROW_BYTES / (int64_t)fs_dtypes[out->dtype].size);
    if (in_rows && a->dtype == FS_INT8 && m < INT8_ROWS) rows = PADDED_ROWS;
    bool is_padded = rows != m || columns != n || (in_rows && (uintptr_t)out->data % ROW_BYTES != 0);
    fs_tensor padded = *out;
    operand operands[2];
    memset(operands, 0, sizeof operands);
    fs_status status;
    if (is_padded) {
        int64_t shape[FS_MAX_DIMS];
        memcpy(shape, out->shape, sizeof shape);
        shape[last - 1] = rows;
        shape[last] = columns;
        FS_TRY(fs_tensor_empty(&padded, out->dtype, out->device, out->ndim, shape, err));
    }
    fs_tensor elements = padded;
    elements.shape[last - 1] = m;
    elements.shape[last] = n;
    if (has_bias) FS_TRY_GOTO(status, fs_tensor_convert(&elements, call->in[0], err), done);
    FS_TRY_GOTO(status, take_operands(a, b, in_rows, rows, columns, operands, err), done);
    fs_matmul matmul = {
        .m = rows,
        .n = columns,
        .k = in_rows ? round_up(k, ROW_BYTES) : k,
        .out_ld = columns,
        .a_ld = operands[0].ld,
        .b_ld = operands[1].ld,
        .a_transposed = operands[0].transposed,
        .b_transposed = operands[1].transposed,
        .accumulate = has_bias,
        .allow_tf32 = call->allow_tf32,
        .a_dtype = a->dtype,
        .b_dtype = b->dtype,
        .dtype = out->dtype,
    };
    status = multiply(&padded, &matmul, operands, err);
    if (status == FS_OK && is_padded) status = fs_tensor_convert(out, &elements, err);
done:
    for (int i = 0; i < 2; i++) fs_tensor_release(&operands[i].tensor);
    if (is_padded) fs_tensor_release(&padded);
    return status;
}

/* The dtype of the product, which for float8 is that of the bias or of the output, if it can be. */
static fs_status plan_dtype(fs_plan *plan, const fs_tensor *a, const fs_tensor *b, fs_error *err)
{
    const fs_call *call = plan->call;
    const fs_tensor *bias = call->op->form == FS_FORM_ADDMM ? call->in[0] : NULL, *given = bias ? bias : call->out;
    char problem[160];
    plan->dtype = fs_dtype_of_product(a->dtype, b->dtype);
    if (plan->dtype == FS_DTYPE_NONE || plan->dtype == a->dtype) {
        plan->dtype = a->dtype;
        return fs_call_check_floats(call, err);
    }
    if (a->dtype == FS_FLOAT8_E5M2 && b->dtype == FS_FLOAT8_E5M2 && a->device.kind == FS_CUDA) {
        return fs_call_fail(call, err, FS_TYPE_ERROR,
                            "cuBLASLt cannot multiply two matrices of float8_e5m2; cast one with "
                            "x.to(\"float8_e4m3fn\")");
    }
    bool is_float8 = fs_dtype_is_float8(a->dtype);
    if (is_float8 && given && fs_dtype_is_float(given->dtype) && given->dtype != FS_FLOAT64) plan->dtype = given->dtype;
    if (bias && bias->dtype != plan->dtype) {
        snprintf(problem, sizeof problem, "the bias must have dtype %s%s", is_float8 ? "float32, float16 or " : "",
                 fs_dtypes[plan->dtype].name);
        return fs_call_fail(call, err, FS_TYPE_ERROR, problem);
    }
    return fs_call_check_devices(call, err);
}

fs_status FS_PLAN_MATMUL(fs_plan *plan, fs_error *err)
{
    const fs_call *call = plan->call;
    int first = call->op->form == FS_FORM_ADDMM;
    const fs_tensor *a = call->in[first], *b = call->in[first + 1];
    char problem[160];
    FS_TRY(plan_dtype(plan, a, b, err));
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
