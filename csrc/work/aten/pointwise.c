/* FLOPs follow the result's elements and bytes the distinct elements of each tensor, so a broadcast input is read once.
 * The dtype of a result is found as torch promotes: tensors with dimensions decide, others count only if their category
 * is higher. Where a number of the call was not recorded, the widest possible result is assumed and the work marked as
 * an upper bound. */
#include <math.h>
#include <string.h>

#include "base/unused.h"
#include "work/aten/elements.h"

/* Shared ----------------------------------------------------------------------------------------------------------- */

bool fs_is_in_place(const fs_aten_rule *rule)
{
    size_t size = strcspn(rule->name, ".");
    return size > 1 && rule->name[size - 1] == '_' && rule->name[size - 2] != '_';
}

unsigned fs_inputs(const fs_aten_rule *rule, const fs_torch_call *call)
{
    unsigned most = fs_option(rule, FS_ARGUMENTS);
    return most == 0 || call->count < most ? call->count : most;
}

const fs_torch_tensor *fs_out_tensor(const fs_aten_rule *rule, const fs_torch_call *call)
{
    for (unsigned i = fs_inputs(rule, call); i < call->count; i++)
        if (fs_sizes_tensor(call, i) != NULL) return fs_sizes_tensor(call, i);
    return NULL;
}

static unsigned kind_of(unsigned dtype)
{
    return fs_torch_dtypes[dtype].kind;
}

unsigned fs_result_dtype(const fs_aten_rule *rule, unsigned dtype)
{
    if (fs_has(rule, FS_GIVES_BOOLS)) return FS_TORCH_BOOL;
    if (fs_has(rule, FS_GIVES_INDICES)) return FS_TORCH_INT64;
    if (dtype == FS_TORCH_DTYPE_NONE) return dtype;
    if (fs_has(rule, FS_GIVES_SUMS) && kind_of(dtype) == FS_TORCH_INTEGER) return FS_TORCH_INT64;
    if (fs_has(rule, FS_GIVES_FLOATS) && kind_of(dtype) == FS_TORCH_INTEGER) return FS_TORCH_FLOAT32;
    if (fs_has(rule, FS_GIVES_COMPLEX)) return dtype == FS_TORCH_FLOAT64 ? FS_TORCH_COMPLEX128 : FS_TORCH_COMPLEX64;
    if (fs_has(rule, FS_GIVES_REAL) && dtype == FS_TORCH_COMPLEX128) return FS_TORCH_FLOAT64;
    return fs_has(rule, FS_GIVES_REAL) && kind_of(dtype) == FS_TORCH_COMPLEX ? (unsigned)FS_TORCH_FLOAT32 : dtype;
}

double fs_result_bytes(const fs_aten_rule *rule, double elements, unsigned dtype)
{
    double size = fs_sizes_item(dtype) * (fs_has(rule, FS_AND_TWIN) ? 2 : 1);
    if (fs_has(rule, FS_AND_BOOLS)) size += fs_sizes_item(FS_TORCH_BOOL);
    if (fs_has(rule, FS_AND_INDICES)) size += fs_sizes_item(FS_TORCH_INT64);
    return elements * size;
}

double fs_flops_of(double each, double elements, unsigned dtype)
{
    if (each == 0) return 0;
    if (dtype == FS_TORCH_DTYPE_NONE) return NAN;
    return fs_sizes_is_float(dtype) ? each * elements : 0;
}

fs_work fs_at_most(fs_work work)
{
    work.at_most = true;
    return work;
}

fs_work fs_of_launched(double flops, double read, double written, double item, double most_read)
{
    fs_work work = fs_sizes_work(flops, read, written, fs_unit_of_plain(FS_TORCH_DTYPE_NONE));
    work.needs = FS_NEEDS_ELEMENTS;
    work.item = item;
    work.most_read = most_read;
    return work;
}

/* Dtypes: torch's promotion ---------------------------------------------------------------------------------------- */

/* 0 … 3: bool, integers, floats, complex */
static int category(unsigned dtype)
{
    if (dtype == FS_TORCH_BOOL) return 0;
    return kind_of(dtype) == FS_TORCH_INTEGER ? 1 : kind_of(dtype) == FS_TORCH_COMPLEX ? 3 : 2;
}

/* FS_TORCH_DTYPE_COUNT + 1: none yet. */
enum { NO_DTYPE = FS_TORCH_DTYPE_COUNT + 1 };

unsigned fs_promoted(unsigned a, unsigned b)
{
    if (a == NO_DTYPE || a == b) return b;
    if (b == NO_DTYPE) return a;
    if (a == FS_TORCH_DTYPE_NONE || b == FS_TORCH_DTYPE_NONE) return FS_TORCH_DTYPE_NONE;
    if (category(a) != category(b)) {
        unsigned high = category(a) > category(b) ? a : b, low = high == a ? b : a;
        return category(high) == 3 && low == FS_TORCH_FLOAT64 ? (unsigned)FS_TORCH_COMPLEX128 : high;
    }
    double wider = fs_sizes_item(a) - fs_sizes_item(b);
    if (wider != 0) return wider > 0 ? a : b;
    if (category(a) == 1) return fs_sizes_item(a) == 1 ? FS_TORCH_INT16 : a; /* int8 and uint8 */
    return FS_TORCH_FLOAT32;                                                 /* float16 and bfloat16 */
}

/* Return the dtype of a Python number in the text; NO_DTYPE if it is not a number. */
static unsigned dtype_of_number(const char *text)
{
    double number;
    if (strcmp(text, "True") == 0 || strcmp(text, "False") == 0) return FS_TORCH_BOOL;
    if (*text == '[' || fs_sizes_numbers(text, &number, 1) != 1) return NO_DTYPE;
    return strpbrk(text, ".einf") != NULL ? FS_TORCH_FLOAT32 : FS_TORCH_INT64;
}

/* Return whether a tensor may be a Python number: the widest dtype of its kind. */
static bool may_be_number(const fs_torch_tensor *tensor)
{
    return tensor->ndim == 0 && (tensor->dtype == FS_TORCH_FLOAT64 || tensor->dtype == FS_TORCH_INT64 ||
                                 tensor->dtype == FS_TORCH_COMPLEX128);
}

/* Tensors with dimensions decide; those without, and numbers, count only if their category is higher. */
static unsigned promoted(const fs_torch_call *call, unsigned end)
{
    unsigned ranks[3] = {NO_DTYPE, NO_DTYPE, NO_DTYPE}, alone = NO_DTYPE;
    for (unsigned i = 0; i < end; i++) {
        const fs_torch_tensor *tensor = fs_sizes_tensor(call, i);
        if (tensor == NULL) {
            if (call->arguments[i].type == FS_TORCH_SCALAR)
                ranks[2] = fs_promoted(ranks[2], dtype_of_number(call->arguments[i].text));
        } else if (may_be_number(tensor)) {
            alone = fs_promoted(alone, tensor->dtype);
            ranks[2] = fs_promoted(ranks[2], tensor->dtype == FS_TORCH_FLOAT64      ? (unsigned)FS_TORCH_FLOAT32
                                             : tensor->dtype == FS_TORCH_COMPLEX128 ? (unsigned)FS_TORCH_COMPLEX64
                                                                                    : tensor->dtype);
        } else {
            unsigned *rank = &ranks[tensor->ndim == 0];
            *rank = fs_promoted(*rank, tensor->dtype);
        }
    }
    unsigned dtype = ranks[0];
    if (ranks[0] == NO_DTYPE && ranks[1] == NO_DTYPE && alone != NO_DTYPE) dtype = alone;
    for (int i = 1; i < 3; i++) {
        if (dtype == FS_TORCH_DTYPE_NONE || ranks[i] == NO_DTYPE) continue;
        if (dtype == NO_DTYPE || (ranks[i] != FS_TORCH_DTYPE_NONE && category(ranks[i]) > category(dtype)))
            dtype = ranks[i];
    }
    return dtype == NO_DTYPE ? (unsigned)FS_TORCH_DTYPE_NONE : dtype;
}

/* Pointwise -------------------------------------------------------------------------------------------------------- */

/* Return the elements of the shape to which the tensors of the first `end` arguments broadcast. */
static double broadcast_elements(const fs_torch_call *call, unsigned end)
{
    double elements = 1;
    for (unsigned back = 1;; back++) { /* axes from the last on */
        int64_t size = 1;
        bool any = false;
        for (unsigned i = 0; i < end; i++) {
            const fs_torch_tensor *tensor = fs_sizes_tensor(call, i);
            if (tensor == NULL || tensor->ndim < back) continue;
            int64_t own = tensor->shape[tensor->ndim - back];
            any = true;
            if (own != 1) size = own;
        }
        if (!any) return elements;
        elements *= (double)size;
    }
}

typedef struct {
    double elements;
    unsigned dtype;
    bool widest; /* an upper bound, because a number of the call is not recorded */
} result;

/* Return the widest dtype of a result if it is not recorded whether the call requests another one: narrow floats may
 * become float32. */
static unsigned widest_of(unsigned dtype)
{
    bool narrow = fs_sizes_is_float(dtype) && fs_sizes_item(dtype) < fs_sizes_item(FS_TORCH_FLOAT32);
    return narrow ? (unsigned)FS_TORCH_FLOAT32 : dtype;
}

static result result_of(const fs_aten_rule *rule, const fs_torch_call *call)
{
    unsigned end = fs_inputs(rule, call), like = fs_option(rule, FS_LIKE), dtype_at = fs_option(rule, FS_DTYPE_AT);
    bool in_place = fs_is_in_place(rule);
    const fs_torch_tensor *model = in_place ? fs_sizes_tensor(call, 0) : NULL, *out = fs_out_tensor(rule, call);
    if (model == NULL && like > 0) model = fs_sizes_tensor(call, like - 1);
    result found = {model != NULL ? fs_sizes_elements(model) : broadcast_elements(call, end), FS_TORCH_DTYPE_NONE,
                    false};
    unsigned requested = dtype_at > 0 ? fs_sizes_dtype_of(fs_sizes_text(call, dtype_at)) : FS_TORCH_DTYPE_NONE;
    if (in_place && model != NULL) found.dtype = model->dtype;
    else if (out != NULL) found.dtype = out->dtype;
    else if (requested != FS_TORCH_DTYPE_NONE) found.dtype = requested;
    else {
        unsigned usual = fs_result_dtype(rule, model != NULL ? model->dtype : promoted(call, end));
        bool unrecorded = dtype_at > 0 && fs_sizes_is_unrecorded(call, dtype_at);
        found.dtype = unrecorded ? widest_of(usual) : usual;
        found.widest = unrecorded && (found.dtype != usual || !fs_sizes_is_float(usual));
    }
    /* softmax of float16 with a float32 result */
    if (dtype_at > 0 && fs_sizes_is_true(fs_sizes_text(call, dtype_at))) found.dtype = FS_TORCH_FLOAT32;
    return found;
}

/* Return the bytes of the input tensors. Next to larger ones, a tensor without dimensions is not counted: it is a host
 * number or negligible. */
static double read_inputs(const fs_aten_rule *rule, const fs_torch_call *call, double elements)
{
    double bytes = 0;
    for (unsigned i = fs_has(rule, FS_WRITES_FIRST); i < fs_inputs(rule, call); i++) {
        const fs_torch_tensor *tensor = fs_sizes_tensor(call, i);
        if (tensor != NULL && (tensor->ndim > 0 || elements == 1)) bytes += fs_sizes_read(tensor);
    }
    return bytes;
}

/* One function of the arguments' elements: `flops` per element of the result, whatever dtype the arguments promote to.
 * ARGUMENTS, DTYPE_AT, LIKE, flags of the result, WRITES_FIRST. */
fs_work fs_count_pointwise(const fs_aten_rule *rule, const fs_torch_call *call)
{
    result found = result_of(rule, call);
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    double written = found.elements;
    if (fs_is_in_place(rule) && self != NULL) written = fs_sizes_distinct(self);
    fs_work work =
        fs_sizes_work(fs_flops_of(rule->flops, found.elements, found.dtype), read_inputs(rule, call, found.elements),
                      fs_result_bytes(rule, written, found.dtype), fs_unit_of_plain(found.dtype));
    return found.widest ? fs_at_most(work) : work;
}

fs_aten_rule fs_aten_backward(const fs_aten_rule *rule)
{
    bool has_gradient = rule->count == fs_count_pointwise && rule->flops > 0;
    return (fs_aten_rule){rule->name, has_gradient ? fs_count_pointwise : NULL, 1, 0, NULL, fs_aten_category(rule)};
}

/* No data movement: views, allocation without filling, queries. */
fs_work fs_count_view(const fs_aten_rule *FS_UNUSED(rule), const fs_torch_call *FS_UNUSED(call))
{
    return fs_sizes_work(0, 0, 0, fs_unit_of_plain(FS_TORCH_DTYPE_NONE));
}

/* Data movement of a size that no argument gives: elements selected by a mask or by indices. */
fs_work fs_count_moves(const fs_aten_rule *FS_UNUSED(rule), const fs_torch_call *FS_UNUSED(call))
{
    return fs_sizes_work(0, NAN, NAN, fs_unit_of_plain(FS_TORCH_DTYPE_NONE));
}

/* One half of an axis times a function of the other half. */
fs_work fs_count_glu(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    if (self == NULL) return fs_work_unknown;
    double elements = fs_sizes_elements(self) / 2;
    return fs_sizes_work(fs_flops_of(rule->flops, elements, self->dtype), fs_sizes_read(self),
                         elements * fs_sizes_item(self->dtype), fs_unit_of_plain(self->dtype));
}

/* The gradient of glu, for both halves. */
fs_work fs_count_glu_backward(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *gradient = fs_sizes_tensor(call, 0), *self = fs_sizes_tensor(call, 1);
    if (gradient == NULL || self == NULL) return fs_work_unknown;
    double elements = fs_sizes_elements(self);
    return fs_sizes_work(fs_flops_of(rule->flops, elements, self->dtype), fs_sizes_read(gradient) + fs_sizes_read(self),
                         elements * fs_sizes_item(self->dtype), fs_unit_of_plain(self->dtype));
}

/* Pointwise, followed by a sum unless the reduction at PLACE is 0 (none); PLACE 0: always. */
fs_work fs_count_loss(const fs_aten_rule *rule, const fs_torch_call *call)
{
    unsigned place = fs_option(rule, FS_PLACE);
    result found = result_of(rule, call);
    fs_work work = fs_count_pointwise(rule, call);
    if (place > 0 && fs_sizes_number(fs_sizes_text(call, place), 1) == 0) return work;
    return fs_sizes_work(work.flops + fs_flops_of(1, found.elements, found.dtype), work.bytes_read,
                         fs_sizes_item(found.dtype), work.unit);
}
