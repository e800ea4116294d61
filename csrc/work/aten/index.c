/* Indexing. The arguments do not show which indices are equal: each is counted as distinct, up to the size of the
 * indexed tensor. */
#include <math.h>

#include "work/aten/elements.h"

static double item_at(const fs_torch_tensor *tensor)
{
    return fs_sizes_item(tensor->dtype);
}

/* Return the size of the axis given at place 1. */
static double axis_size(const fs_torch_tensor *self, const fs_torch_call *call)
{
    double axis = fs_sizes_number(fs_sizes_text(call, 1), NAN);
    if (axis < 0) axis += self->ndim;
    return axis >= 0 && axis < self->ndim ? (double)self->shape[(int)axis] : self->ndim == 0 ? 1 : (double)NAN;
}

/* Return the elements selected by indices: one each, or with BY_ROWS a slice of the axis at place 1 each. */
static double reached(const fs_aten_rule *rule, const fs_torch_call *call, const fs_torch_tensor *self,
                      const fs_torch_tensor *index)
{
    double each = fs_has(rule, FS_BY_ROWS) ? fs_sizes_elements(self) / axis_size(self, call) : 1;
    return each * fs_sizes_elements(index);
}

/* gather(self, …, index at PLACE): BY_ROWS. */
fs_work fs_count_gather(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0), *index = fs_sizes_tensor(call, fs_option(rule, FS_PLACE));
    if (self == NULL || index == NULL) return fs_work_unknown;
    double elements = reached(rule, call, self, index);
    return fs_sizes_work(0, fmin(elements, fs_sizes_distinct(self)) * item_at(self) + fs_sizes_read(index),
                         elements * item_at(self), fs_unit_of_plain(self->dtype));
}

/* embedding(weight, indices): one row of the weight per index. */
fs_work fs_count_embedding(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *weight = fs_sizes_tensor(call, 0), *index = fs_sizes_tensor(call, 1);
    if (weight == NULL || index == NULL || weight->ndim != 2) return fs_work_unknown;
    double elements = fs_sizes_elements(index) * (double)weight->shape[1];
    return fs_sizes_work(rule->flops,
                         fmin(elements, fs_sizes_distinct(weight)) * item_at(weight) + fs_sizes_read(index),
                         elements * item_at(weight), fs_unit_of_plain(weight->dtype));
}

/* backward(gradient, indices, …, rows of the weight at PLACE): each row of the gradient is added to a row of the
 * weight's gradient, which a separate op has zeroed. */
fs_work fs_count_embedding_backward(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *gradient = fs_sizes_tensor(call, 0), *index = fs_sizes_tensor(call, 1);
    if (gradient == NULL || index == NULL || gradient->ndim == 0) return fs_work_unknown;
    double width = (double)gradient->shape[gradient->ndim - 1], added = fs_sizes_elements(index) * width;
    double rows = fs_sizes_number(fs_sizes_text(call, fs_option(rule, FS_PLACE)), NAN);
    const fs_torch_tensor *factors = fs_sizes_tensor(call, 8); /* of a bag: for each index */
    return fs_sizes_work(fs_flops_of(rule->flops + (factors != NULL), added, gradient->dtype),
                         fs_sizes_read(gradient) + fs_sizes_read(index) +
                             (factors != NULL ? fs_sizes_read(factors) : 0),
                         fmin(added, rows * width) * item_at(gradient), fs_unit_of_plain(gradient->dtype));
}

/* embedding_bag(weight, indices, offsets, …, include last offset at PLACE): the rows of each bag are summed. */
fs_work fs_count_embedding_bag(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *weight = fs_sizes_tensor(call, 0), *index = fs_sizes_tensor(call, 1);
    const fs_torch_tensor *offsets = fs_sizes_tensor(call, 2);
    if (weight == NULL || index == NULL || offsets == NULL || weight->ndim != 2) return fs_work_unknown;
    double added = fs_sizes_elements(index) * (double)weight->shape[1], bags = fs_sizes_elements(offsets);
    if (fs_sizes_is_true(fs_sizes_text(call, fs_option(rule, FS_PLACE)))) bags--;
    double read = fmin(added, fs_sizes_distinct(weight)) * item_at(weight) + fs_sizes_read(index);
    double flops = rule->flops;
    if (fs_sizes_tensor(call, 6) != NULL) { /* a factor for each index */
        flops++;
        read += fs_sizes_read(fs_sizes_tensor(call, 6));
    }
    return fs_sizes_work(fs_flops_of(flops, added, weight->dtype), read + fs_sizes_read(offsets),
                         bags * (double)weight->shape[1] * item_at(weight), fs_unit_of_plain(weight->dtype));
}

/* scatter(self, …, index at PLACE, source or value after it): writes at the indices; an addition (`flops` each) also
 * reads there. Out of place, all of self is copied. BY_ROWS. */
fs_work fs_count_scatter(const fs_aten_rule *rule, const fs_torch_call *call)
{
    unsigned place = fs_option(rule, FS_PLACE);
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0), *index = fs_sizes_tensor(call, place);
    const fs_torch_tensor *source = fs_sizes_tensor(call, place + 1);
    if (self == NULL || index == NULL) return fs_work_unknown;
    double elements = reached(rule, call, self, index), touched = fmin(elements, fs_sizes_elements(self));
    double read = fs_sizes_read(index), written = touched * item_at(self);
    if (source != NULL && source->ndim > 0) read += fmin(elements, fs_sizes_distinct(source)) * item_at(source);
    if (rule->flops > 0) read += touched * item_at(self);
    if (!fs_is_in_place(rule)) {
        read += fs_sizes_read(self) - (rule->flops > 0 ? touched * item_at(self) : 0);
        written = fs_sizes_elements(self) * item_at(self);
    }
    return fs_sizes_work(fs_flops_of(rule->flops, elements, self->dtype), read, written, fs_unit_of_plain(self->dtype));
}

/* Return the elements of the shape to which a list of indices broadcasts, if there is one index tensor for each axis of
 * self; else NaN: an unindexed axis may or may not appear in the list. */
static double indexed(const fs_torch_tensor *self, const fs_torch_argument *list, double *index_elements)
{
    enum { MOST = 64 };
    double sizes[MOST] = {0}, elements = 1;
    uint32_t most = 0;
    const int64_t *at = list->list;
    fs_torch_tensor index;
    if (list->type != FS_TORCH_TENSOR_LIST || list->count == 0 || list->count != self->ndim) return NAN;
    *index_elements = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        fs_torch_next_tensor(&at, &index);
        if (index.ndim == 0 || index.ndim > MOST) return NAN;
        *index_elements += fs_sizes_elements(&index);
        for (uint32_t back = 0; back < index.ndim; back++)
            sizes[back] = fmax(sizes[back], (double)index.shape[index.ndim - 1 - back]);
        if (index.ndim > most) most = index.ndim;
    }
    for (uint32_t back = 0; back < most; back++) elements *= sizes[back];
    return elements;
}

/* index(self, indices): the selected elements. If the trace records no shapes of the list, as torch's do not, the
 * launched kernel determines their number. An index counts as int64, a mask as selecting everything. */
fs_work fs_count_index(const fs_aten_rule *rule, const fs_torch_call *call)
{
    (void)rule;
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    double index_elements = 0;
    if (self == NULL || call->count < 2) return fs_work_unknown;
    double elements = indexed(self, &call->arguments[1], &index_elements), item = item_at(self);
    if (isnan(elements)) return fs_of_launched(0, 1, 1, item, fs_sizes_read(self));
    double read = fmin(elements, fs_sizes_distinct(self)) * item + index_elements * fs_sizes_item(FS_TORCH_INT64);
    return fs_at_most(fs_sizes_work(0, read, elements * item, fs_unit_of_plain(self->dtype)));
}

/* index_put(self, indices, values, accumulate): traces omit the sizes and types of a list of indices, so their bytes
 * are not counted; if there is a single value, the launched kernel determines the number of elements. */
fs_work fs_count_index_put(const fs_aten_rule *rule, const fs_torch_call *call)
{
    (void)rule;
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0), *values = fs_sizes_tensor(call, 2);
    bool adds = fs_sizes_is_true(fs_sizes_text(call, 3));
    if (self == NULL) return fs_work_unknown;
    if (values == NULL || values->ndim == 0)
        return fs_of_launched(fs_flops_of(adds, 1, self->dtype), adds, 1, item_at(self), NAN);
    double elements = fs_sizes_elements(values), bytes = fmin(elements, fs_sizes_elements(self)) * item_at(self);
    return fs_sizes_work(fs_flops_of(adds, elements, self->dtype), fs_sizes_read(values) + (adds ? bytes : 0), bytes,
                         fs_unit_of_plain(self->dtype));
}

/* nll_loss_forward(self, target, weight, reduction, …): the element of each row selected by the target, summed. */
fs_work fs_count_nll(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0), *target = fs_sizes_tensor(call, 1);
    if (self == NULL || target == NULL) return fs_work_unknown;
    double picked = fs_sizes_elements(target), size = item_at(self);
    bool sums = fs_sizes_number(fs_sizes_text(call, 3), 1) != 0;
    return fs_sizes_work(fs_flops_of(rule->flops, picked, self->dtype), picked * size + fs_sizes_read(target),
                         (sums ? 2 : picked + 1) * size, fs_unit_of_plain(self->dtype));
}

/* nll_loss_backward(gradient, self, target, …): one element per row; a separate op zeroes the rest. */
fs_work fs_count_nll_backward(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *gradient = fs_sizes_tensor(call, 0), *self = fs_sizes_tensor(call, 1);
    const fs_torch_tensor *target = fs_sizes_tensor(call, 2);
    if (gradient == NULL || self == NULL || target == NULL) return fs_work_unknown;
    double picked = fs_sizes_elements(target);
    return fs_sizes_work(fs_flops_of(rule->flops, picked, self->dtype), fs_sizes_read(gradient) + fs_sizes_read(target),
                         picked * item_at(self), fs_unit_of_plain(self->dtype));
}

/* topk(self, k, axis, …): k elements along an axis, by default the last; flags of the result. */
fs_work fs_count_pick(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    if (self == NULL) return fs_work_unknown;
    double k = fs_sizes_number(fs_sizes_text(call, 1), NAN), axis = fs_sizes_number(fs_sizes_text(call, 2), -1);
    if (axis < 0) axis += self->ndim;
    if (self->ndim > 0 && !(axis >= 0 && axis < self->ndim)) return fs_work_unknown;
    double elements = self->ndim > 0 ? fs_sizes_elements(self) / (double)self->shape[(int)axis] * k : k;
    bool unrecorded = fs_sizes_is_unrecorded(call, 1);
    if (unrecorded) elements = fs_sizes_elements(self);
    double written = fs_result_bytes(rule, elements, fs_result_dtype(rule, self->dtype));
    fs_work work = fs_sizes_work(rule->flops, fs_sizes_read(self), written, fs_unit_of_plain(self->dtype));
    return unrecorded ? fs_at_most(work) : work;
}

/* arange(start, end, step, out): the size follows from the numbers, because `out` may not have its shape yet. */
fs_work fs_count_range(const fs_aten_rule *rule, const fs_torch_call *call)
{
    double numbers[3] = {0, NAN, 1};
    int numbered = 0;
    while (numbered < 3 && (unsigned)numbered < call->count && fs_sizes_tensor(call, (unsigned)numbered) == NULL) {
        numbers[numbered] = fs_sizes_number(call->arguments[numbered].text, NAN);
        numbered++;
    }
    const fs_torch_tensor *out = fs_sizes_tensor(call, (unsigned)numbered);
    if (out == NULL) return fs_count_view(rule, call); /* the outer call, which fills nothing */
    if (numbered == 1) numbers[1] = numbers[0], numbers[0] = 0;
    double elements = ceil((numbers[1] - numbers[0]) / numbers[2]);
    if (isnan(elements)) return fs_of_launched(0, 0, 1, item_at(out), NAN); /* the trace records no numbers */
    return fs_sizes_work(0, 0, elements * item_at(out), fs_unit_of_plain(out->dtype));
}
