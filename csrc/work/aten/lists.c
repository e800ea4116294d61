/* Ops over lists of tensors. A trace omits the dtype of a list's tensors, and long lists entirely: then the executed
 * kernels determine the work (fs_work.of_launched). */
#include <math.h>
#include <string.h>

#include "work/aten/elements.h"

/* Return the elements of a list's tensors, NaN for an empty list; sets *dtype to theirs if it is recorded. */
static double list_elements(const fs_torch_argument *list, unsigned *dtype)
{
    const int64_t *at = list->list;
    fs_torch_tensor tensor;
    double elements = list->count > 0 ? 0 : (double)NAN;
    for (uint32_t i = 0; i < list->count; i++) {
        fs_torch_next_tensor(&at, &tensor);
        elements += fs_sizes_elements(&tensor);
        if (tensor.dtype != FS_TORCH_DTYPE_NONE) *dtype = tensor.dtype;
    }
    return elements;
}

static unsigned list_count(const fs_torch_call *call)
{
    unsigned lists = 0;
    for (unsigned i = 0; i < call->count; i++) lists += call->arguments[i].type == FS_TORCH_TENSOR_LIST;
    return lists;
}

/* Return work per element of the first argument, a list: `flops`, elements read and elements written. */
static fs_work each_element(const fs_torch_call *call, double flops, double read, double written)
{
    unsigned dtype = FS_TORCH_FLOAT32;
    if (call->count == 0 || call->arguments[0].type != FS_TORCH_TENSOR_LIST) return fs_work_unknown;
    double elements = list_elements(&call->arguments[0], &dtype);
    fs_work work = fs_sizes_work(flops, read, written, fs_sizes_unit(dtype));
    work.list_elements = elements;
    work.of_launched = true;
    return work;
}

/* `flops` per element. ARGUMENTS lists are read (0: all) and PLACE lists written; with WRITES_FIRST the first list is
 * only written. */
fs_work fs_count_list(const fs_aten_rule *rule, const fs_torch_call *call)
{
    unsigned lists = fs_option(rule, FS_ARGUMENTS);
    if (lists == 0) lists = list_count(call);
    return each_element(call, rule->flops, (double)lists - fs_has(rule, FS_WRITES_FIRST), fs_option(rule, FS_PLACE));
}

fs_aten_rule fs_aten_foreach(const fs_aten_rule *rule)
{
    bool good = rule->count == fs_count_pointwise;
    int option = FS_PLACE * 1 + (fs_has(rule, FS_WRITES_FIRST) ? FS_WRITES_FIRST : 0);
    return (fs_aten_rule){rule->name, good ? fs_count_list : NULL, rule->flops, option, NULL, fs_aten_category(rule)};
}

/* All tensors of a list joined into one. */
fs_work fs_count_join(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *out = fs_out_tensor(rule, call);
    fs_work work = each_element(call, 0, 1, 1);
    if (out == NULL || !work.of_launched) return work;
    double bytes = work.list_elements * fs_sizes_item(out->dtype);
    return fs_sizes_work(0, bytes, bytes, fs_sizes_unit(out->dtype));
}

/* _chunk_cat(tensors, axis, chunks, out): each tensor in chunks, padded to equal size. The dtype of the list is not
 * recorded: that of `out` is assumed. */
fs_work fs_count_chunk_cat(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *out = fs_out_tensor(rule, call);
    fs_work work = each_element(call, 0, 1, 1);
    if (out == NULL || !work.of_launched) return work;
    double read = isnan(work.list_elements) ? fs_sizes_elements(out) : work.list_elements;
    double item = fs_sizes_item(out->dtype);
    return fs_at_most(fs_sizes_work(0, read * item, fs_sizes_elements(out) * item, fs_sizes_unit(out->dtype)));
}

/* The fused optimizers, counted as the sum of the unfused operations on an element. */
typedef struct {
    uint8_t flops, read, written;
    uint8_t decay;    /* place of the weight decay: 1 more if it is not 0 */
    uint8_t amsgrad;  /* place of the bool: 1 more, and one more list read and written */
    uint8_t momentum; /* place of the momentum: 2 more if it is not 0, and one more list */
    uint8_t nesterov; /* place of the bool: 1 more */
} optimizer_row;

/* clang-format off */
static const optimizer_row optimizers[] = {
    /* (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps, amsgrad):
     * lerp, mul, addcmul, sqrt, div, add, addcdiv */
    [FS_OPTIMIZER_ADAM] = {.flops = 7, .read = 4, .written = 3, .decay = 9, .amsgrad = 11},
    /* (self, grads, momentum_buffer_list, weight_decay, momentum, lr, dampening, nesterov): add */
    [FS_OPTIMIZER_SGD] = {.flops = 1, .read = 2, .written = 1, .decay = 3, .momentum = 4, .nesterov = 7},
    /* (self, grads, state_sums, state_steps, lr, lr_decay, weight_decay): addcmul, sqrt, add, addcdiv */
    [FS_OPTIMIZER_ADAGRAD] = {.flops = 4, .read = 3, .written = 2, .decay = 6},
};
/* clang-format on */

/* PLACE: the row of `optimizers`. */
fs_work fs_count_optimizer(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const optimizer_row *row = &optimizers[fs_option(rule, FS_PLACE)];
    double flops = row->flops, read = row->read, written = row->written;
    if (row->decay > 0 && fs_sizes_number(fs_sizes_text(call, row->decay), 0) != 0) flops += 1;
    if (row->amsgrad > 0 && fs_sizes_is_true(fs_sizes_text(call, row->amsgrad))) flops++, read++, written++;
    if (row->momentum > 0 && fs_sizes_number(fs_sizes_text(call, row->momentum), 0) != 0) flops += 2, read++, written++;
    if (row->nesterov > 0 && fs_sizes_is_true(fs_sizes_text(call, row->nesterov))) flops += 1;
    return each_element(call, flops, read, written);
}
