/* Ops over lists of tensors. A trace omits the dtype of a list's tensors, and long lists entirely: then the executed
 * kernels determine the work (FS_NEEDS_ELEMENTS). */
#include <math.h>
#include <string.h>

#include "work/aten/elements.h"

typedef struct {
    double elements, bytes; /* NaN: unknown */
    unsigned dtype;         /* to which the tensors promote */
} list_sums;

static list_sums sums_of(const fs_torch_argument *list)
{
    const int64_t *at = list->list;
    fs_torch_tensor tensor;
    list_sums sums = {NAN, NAN, FS_TORCH_DTYPE_NONE};
    for (uint32_t i = 0; list->type == FS_TORCH_TENSOR_LIST && i < list->count; i++) {
        fs_torch_next_tensor(&at, &tensor);
        sums.elements = fs_sizes_elements(&tensor) + (i > 0 ? sums.elements : 0);
        sums.bytes = fs_sizes_read(&tensor) + (i > 0 ? sums.bytes : 0);
        sums.dtype = i > 0 ? fs_promoted(sums.dtype, tensor.dtype) : tensor.dtype;
    }
    return sums;
}

static unsigned list_count(const fs_torch_call *call)
{
    unsigned lists = 0;
    for (unsigned i = 0; i < call->count; i++) lists += call->arguments[i].type == FS_TORCH_TENSOR_LIST;
    return lists;
}

/* Return the bytes of `count` lists from the list numbered `first` on; one that the call lacks is like the first. */
static double bytes_of_lists(const fs_torch_call *call, unsigned first, double count)
{
    double bytes = 0;
    unsigned number = 0;
    for (unsigned i = 0; i < call->count && count > 0; i++) {
        if (call->arguments[i].type != FS_TORCH_TENSOR_LIST || number++ < first) continue;
        bytes += sums_of(&call->arguments[i]).bytes;
        count--;
    }
    return bytes + (count > 0 ? count * sums_of(&call->arguments[0]).bytes : 0);
}

/* Return work for the elements of the first argument, a list: `flops` for each, `read` lists read from the list
 * numbered `from` on, and `written` like the first one written. */
static fs_work each_element(const fs_torch_call *call, double flops, unsigned from, double read, double written)
{
    if (call->count == 0 || call->arguments[0].type != FS_TORCH_TENSOR_LIST) return fs_work_unknown;
    list_sums first = sums_of(&call->arguments[0]);
    if (!isnan(first.bytes))
        return fs_sizes_work(fs_flops_of(flops, first.elements, first.dtype), bytes_of_lists(call, from, read),
                             written * first.bytes, fs_unit_of_plain(first.dtype));
    fs_work work = fs_sizes_work(flops, read, written, fs_unit_of_plain(FS_TORCH_FLOAT32));
    work.list_elements = first.elements;
    work.needs = FS_NEEDS_ELEMENTS;
    return work;
}

/* `flops` per element. ARGUMENTS lists are read (0: all) and PLACE lists written; with WRITES_FIRST the first list is
 * only written. */
fs_work fs_count_list(const fs_aten_rule *rule, const fs_torch_call *call)
{
    unsigned lists = fs_option(rule, FS_ARGUMENTS), from = fs_has(rule, FS_WRITES_FIRST);
    if (lists == 0) lists = list_count(call);
    return each_element(call, rule->flops, from, (double)lists - from, fs_option(rule, FS_PLACE));
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
    fs_work work = each_element(call, 0, 0, 1, 1);
    if (isnan(work.bytes_moved)) return work;
    list_sums list = sums_of(&call->arguments[0]);
    unsigned dtype = out != NULL ? out->dtype : list.dtype;
    double written = list.elements * fs_sizes_item(dtype);
    if (isnan(written)) return work;
    return fs_sizes_work(0, isnan(list.bytes) ? written : list.bytes, written, fs_unit_of_plain(dtype));
}

/* block_diag(tensors): blocks on the diagonal of a matrix of zeros; numbers and vectors are matrices of one row. */
fs_work fs_count_block_diagonal(const fs_aten_rule *rule, const fs_torch_call *call)
{
    (void)rule;
    if (call->count == 0 || call->arguments[0].type != FS_TORCH_TENSOR_LIST) return fs_work_unknown;
    list_sums list = sums_of(&call->arguments[0]);
    const int64_t *at = call->arguments[0].list;
    fs_torch_tensor block;
    double rows = 0, columns = 0;
    for (uint32_t i = 0; i < call->arguments[0].count; i++) {
        fs_torch_next_tensor(&at, &block);
        if (block.ndim > 2) return fs_work_unknown;
        rows += block.ndim > 1 ? (double)block.shape[0] : 1;
        columns += block.ndim > 0 ? (double)block.shape[block.ndim - 1] : 1;
    }
    return fs_sizes_work(0, list.bytes, rows * columns * fs_sizes_item(list.dtype), fs_unit_of_plain(list.dtype));
}

/* _chunk_cat(tensors, axis, chunks, out): each tensor in chunks, padded to equal size. Where the dtype of the list is
 * not recorded, that of `out` is assumed. */
fs_work fs_count_chunk_cat(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *out = fs_out_tensor(rule, call);
    fs_work work = each_element(call, 0, 0, 1, 1);
    if (out == NULL || isnan(work.bytes_moved)) return work;
    list_sums list = sums_of(&call->arguments[0]);
    double item = fs_sizes_item(out->dtype), read = isnan(list.bytes) ? list.elements * item : list.bytes;
    if (isnan(read)) read = fs_sizes_read(out);
    return fs_at_most(fs_sizes_work(0, read, fs_sizes_elements(out) * item, fs_unit_of_plain(out->dtype)));
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
    return each_element(call, flops, 0, read, written);
}
