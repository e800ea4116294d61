/* Scaled dot-product attention in all its variants, and its gradients; recurrent layers and cells. */
#include "work/aten_attention.h"

#include <math.h>

#include "work/aten_products.h"
#include "work/aten_sizes.h"

static const struct {
    int query, layout, bias, causal, lengths, longest, log_sum_exp;
} places[] = {
#define PLACES(NAME, ...) [FS_ATTENTION_##NAME] = {__VA_ARGS__},
    FS_ATTENTION_LIST(PLACES)
#undef PLACES
};

/* Queries of [batch, heads, rows, size], keys and values of `columns` each, of `value_size`. */
typedef struct {
    const fs_torch_tensor *query, *key, *value;
    double batch, heads, rows, columns, size, value_size;
} shapes;

static double size_at(const fs_torch_tensor *tensor, uint32_t from_end)
{
    return (double)tensor->shape[tensor->ndim - from_end];
}

static const fs_torch_tensor *tensor_at(const fs_torch_call *call, int place)
{
    const fs_torch_tensor *tensor = place < 0 ? NULL : fs_sizes_tensor(call, (unsigned)place);
    return tensor != NULL && tensor->ndim > 0 ? tensor : NULL;
}

static bool find_shapes(const fs_torch_call *call, int row, shapes *found)
{
    int first = places[row].query;
    found->query = tensor_at(call, first);
    found->key = tensor_at(call, first + 1);
    found->value = tensor_at(call, first + 2);
    if (found->query == NULL || found->key == NULL || found->value == NULL) return false;
    if (found->query->ndim < 2 || found->key->ndim < 2 || found->value->ndim < 2) return false;
    found->size = size_at(found->query, 1);
    found->value_size = size_at(found->value, 1);
    bool heads_first = places[row].layout == FS_HEADS_FIRST && found->query->ndim != 3;
    if (!heads_first && (found->query->ndim < 3 || found->key->ndim < 3)) return false;
    found->rows = size_at(found->query, heads_first ? 2 : 3);
    found->columns = size_at(found->key, heads_first ? 2 : 3);
    found->batch = found->query->ndim > 3 ? (double)found->query->shape[0] : 1;
    double elements = found->batch * found->rows * found->size;
    found->heads = elements > 0 ? fs_sizes_elements(found->query) / elements : 0;
    if (places[row].layout == FS_HEADS_FIRST && found->query->ndim == 3 && places[row].lengths < 0) {
        /* [heads, sequence, size] without a batch */
        found->heads = size_at(found->query, 3);
        found->rows = size_at(found->query, 2);
        found->columns = size_at(found->key, 2);
    }
    return true;
}

/* Sequences of several lengths behind each other: where all are of the longest one's, they are a batch; else nothing
 * tells the lengths, and how many pairs there are is NaN. */
static void part_sequences(const fs_torch_call *call, int row, shapes *found)
{
    const fs_torch_tensor *offsets = tensor_at(call, places[row].lengths);
    if (offsets == NULL || found->query->ndim != 3) return;
    double count = fs_sizes_elements(offsets) - 1;
    double rows = fs_sizes_number(fs_sizes_text(call, (unsigned)places[row].longest), NAN);
    double columns = fs_sizes_number(fs_sizes_text(call, (unsigned)places[row].longest + 1), NAN);
    bool even = count * rows == found->rows && count * columns == found->columns;
    found->batch = even ? count : (double)NAN;
    found->rows = rows;
    found->columns = columns;
}

static bool is_causal(const fs_torch_call *call, int row)
{
    const char *text = fs_sizes_text(call, (unsigned)places[row].causal);
    return places[row].layout == FS_MASKED ? fs_sizes_number(text, 0) > 0 : fs_sizes_is_true(text);
}

/* How many queries meet how many keys. A causal mask ends with both: the last query sees all keys. */
static double pairs_of(const shapes *of, bool causal)
{
    double rows = of->rows, columns = of->columns;
    if (!causal) return rows * columns;
    return rows <= columns ? rows * (2 * columns - rows) / 2 : columns * columns / 2;
}

static double bias_bytes(const fs_torch_call *call, int row)
{
    const fs_torch_tensor *bias = tensor_at(call, places[row].bias);
    return bias != NULL ? fs_sizes_read(bias) : 0;
}

/* One float32 for each query and head. */
static double log_sum_exp_bytes(const fs_torch_call *call, int row, const shapes *of)
{
    int place = places[row].log_sum_exp;
    bool here = place == FS_ALWAYS || (place >= 0 && fs_sizes_is_true(fs_sizes_text(call, (unsigned)place)));
    return here ? 4 * fs_sizes_elements(of->query) / of->size : 0;
}

/* 2 B H Sq Skv (D + Dv): queries with keys, and the weights with values. */
fs_work fs_count_attention(const fs_aten_rule *rule, const fs_torch_call *call)
{
    int row = rule->option;
    shapes of;
    if (!find_shapes(call, row, &of) || of.size == 0) return fs_work_unknown;
    double read = fs_sizes_read(of.query) + fs_sizes_read(of.key) + fs_sizes_read(of.value) + bias_bytes(call, row);
    double output = fs_sizes_elements(of.query) / of.size * of.value_size * fs_sizes_item(of.query->dtype);
    double written = output + log_sum_exp_bytes(call, row, &of);
    part_sequences(call, row, &of);
    double flops = 2 * of.batch * of.heads * pairs_of(&of, is_causal(call, row)) * (of.size + of.value_size);
    return fs_sizes_work(flops, read, written, fs_products_unit(of.query->dtype));
}

/* Five products: queries with keys again, and the gradients of weights, values, queries and keys. */
fs_work fs_count_attention_backward(const fs_aten_rule *rule, const fs_torch_call *call)
{
    int row = rule->option;
    shapes of;
    if (!find_shapes(call, row, &of) || of.size == 0) return fs_work_unknown;
    double item = fs_sizes_item(of.query->dtype);
    double output = fs_sizes_elements(of.query) / of.size * of.value_size * item; /* and its gradient */
    double inputs = fs_sizes_read(of.query) + fs_sizes_read(of.key) + fs_sizes_read(of.value);
    double read = inputs + 2 * output + log_sum_exp_bytes(call, row, &of) + bias_bytes(call, row);
    double written = (fs_sizes_elements(of.query) + fs_sizes_elements(of.key) + fs_sizes_elements(of.value)) * item;
    part_sequences(call, row, &of);
    double pairs = of.batch * of.heads * pairs_of(&of, is_causal(call, row));
    return fs_sizes_work(2 * pairs * (3 * of.size + 2 * of.value_size), read, written,
                         fs_products_unit(of.query->dtype));
}

/* Recurrent layers --------------------------------------------------------------------------------------------------
 */

/* Gates by cuDNN's mode (cudnnRNNMode_t): relu, tanh, LSTM, GRU. */
static const double gates_of_mode[] = {1, 1, 4, 3};

/* Each step of each layer and direction multiplies the input and the last state by a matrix for each gate; gradients
 * take two products for each. */
fs_work fs_count_rnn(const fs_aten_rule *rule, const fs_torch_call *call)
{
    enum { INPUT = 0, BUFFER = 3, HIDDEN = 4 };
    bool backward = rule->option == 1;
    unsigned mode_at = backward ? 10 : 6;
    const fs_torch_tensor *input = fs_sizes_tensor(call, INPUT), *hidden = fs_sizes_tensor(call, HIDDEN);
    const fs_torch_tensor *weights = fs_sizes_tensor(call, BUFFER), *cell = fs_sizes_tensor(call, HIDDEN + 1);
    double mode = fs_sizes_number(fs_sizes_text(call, mode_at), -1);
    double size = fs_sizes_number(fs_sizes_text(call, mode_at + 1), NAN);
    double projected = fs_sizes_number(fs_sizes_text(call, mode_at + 2), 0);
    double layers = fs_sizes_number(fs_sizes_text(call, mode_at + 3), NAN);
    double directions = fs_sizes_is_true(fs_sizes_text(call, mode_at + 7)) ? 2 : 1;
    if (input == NULL || hidden == NULL || input->ndim < 2 || !(mode >= 0 && mode <= 3) || !(layers <= 1000))
        return fs_work_unknown;
    double width = size_at(input, 1), steps = fs_sizes_elements(input) / width;
    double state = projected > 0 ? projected : size, each = gates_of_mode[(int)mode] * size, flops = 0;
    for (double layer = 0; layer < layers; layer++) {
        double from = layer == 0 ? width : directions * state;
        flops += 2 * steps * directions * (each * (from + state) + (projected > 0 ? projected * size : 0));
    }
    double item = fs_sizes_item(input->dtype), output = steps * directions * state * item;
    double states = fs_sizes_read(hidden) + (cell != NULL && cell->ndim > 0 ? fs_sizes_read(cell) : 0);
    double held = weights != NULL && weights->ndim > 0 ? fs_sizes_read(weights) : (double)NAN;
    double given = fs_sizes_read(input) + held + states;
    fs_unit_choice unit = fs_products_unit(input->dtype);
    if (backward) return fs_sizes_work(2 * flops, given + 2 * output, given, unit);
    return fs_sizes_work(flops, given, output + states, unit);
}

/* FLOPs for each element of the state, gates and biases added: LSTM 4 gates of an addition and a function, f c + i g,
 * tanh and a product; GRU 3 gates, r h', n + z (h - n). What backward reads and writes follows from the workspace. */
fs_work fs_count_cell(const fs_aten_rule *rule, const fs_torch_call *call)
{
    static const double flops_each[] = {13, 11, 22, 16};
    double read = 0, written, state;
    const fs_torch_tensor *first = fs_sizes_tensor(call, 0), *cell = fs_sizes_tensor(call, 2);
    for (unsigned place = 0; place < call->count; place++) {
        const fs_torch_tensor *tensor = tensor_at(call, (int)place);
        if (tensor != NULL) read += fs_sizes_read(tensor);
    }
    if (first == NULL) return fs_work_unknown;
    double item = fs_sizes_item(first->dtype);
    if (rule->option < 2) {
        if (cell == NULL) return fs_work_unknown;
        state = fs_sizes_elements(cell);
        written = (rule->option == 0 ? 2 + 4 : 1 + 5) * state * item; /* states, and the workspace for backward */
    } else {
        state = rule->option == 2 && cell != NULL ? fs_sizes_elements(cell) : fs_sizes_elements(first);
        written = (rule->option == 2 ? 4 + 1 : 2 * 3 + 1) * state * item; /* gradients of gates and state */
    }
    return fs_sizes_work(flops_each[rule->option] * state, read, written, fs_sizes_unit(first->dtype));
}
