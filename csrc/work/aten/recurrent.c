/* Recurrent networks: whole layers, and the elementwise part of their cells. */
#include "work/aten/recurrent.h"

#include <math.h>

#include "work/aten/multiply.h"
#include "work/aten/products.h"
#include "work/aten/sizes.h"

static const struct {
    int buffer, hidden, mode, size, projected, layers, bidirectional;
} places[] = {
#define PLACES(NAME, ...) [FS_RNN_##NAME] = {__VA_ARGS__},
    FS_RNN_LIST(PLACES)
#undef PLACES
};

static const struct {
    int state, biases;
    double flops, flops_each_bias, written;
} cells[] = {
#define CELLS(NAME, ...) [FS_CELL_##NAME] = {__VA_ARGS__},
    FS_CELL_LIST(CELLS)
#undef CELLS
};

/* By cuDNN's modes, which MIOpen shares (cudnnRNNMode_t): relu, tanh, LSTM, GRU. */
static const double gates_of_mode[] = {1, 1, 4, 3};

/* Return the multiply-adds of one step of one batch element: each layer and direction multiplies the input and the last
 * state by a matrix per gate, and its result by another one if projected. NaN if unknown. */
static double multiplied(const fs_torch_call *call, int row, double width, double *state)
{
    double mode = fs_products_number(call, places[row].mode, NAN);
    double size = fs_products_number(call, places[row].size, NAN);
    double projected = fs_products_number(call, places[row].projected, 0);
    double layers = fs_products_number(call, places[row].layers, NAN);
    double directions = 1 + fs_products_flag(call, places[row].bidirectional);
    if (!(mode >= 0 && mode <= 3) || !(layers >= 1)) return NAN;
    double output = projected > 0 ? projected : size;
    double above = directions * output; /* input of the layers above the first */
    double each = gates_of_mode[(int)mode] * size, last = each * output + (projected > 0 ? projected * size : 0);
    *state = above;
    return directions * (each * width + (layers - 1) * each * above + layers * last);
}

/* Return the bytes of all weights, in one buffer or in a list. */
static double weight_bytes(const fs_torch_call *call, int row, unsigned dtype)
{
    int buffer = places[row].buffer;
    const fs_torch_tensor *held = buffer < 0 ? NULL : fs_sizes_tensor(call, (unsigned)buffer);
    if (held != NULL && held->ndim > 0) return fs_sizes_read(held);
    if (call->count < 2 || call->arguments[1].type != FS_TORCH_TENSOR_LIST || call->arguments[1].count == 0) return NAN;
    double elements = 0;
    const int64_t *at = call->arguments[1].list;
    for (uint32_t i = 0; i < call->arguments[1].count; i++) {
        fs_torch_tensor tensor;
        fs_torch_next_tensor(&at, &tensor);
        elements += fs_sizes_elements(&tensor);
    }
    return elements * fs_sizes_item(dtype);
}

/* Gradients take two products for each forward one: for the inputs and for the weights. */
fs_work fs_count_rnn(const fs_aten_rule *rule, const fs_torch_call *call)
{
    int row = rule->option;
    bool backward = row == FS_RNN_CUDNN_BACKWARD || row == FS_RNN_MIOPEN_BACKWARD;
    unsigned hidden = (unsigned)places[row].hidden;
    const fs_torch_tensor *input = fs_sizes_tensor(call, 0);
    if (input == NULL || input->ndim < 2 || input->shape[input->ndim - 1] == 0) return fs_work_unknown;
    double width = (double)input->shape[input->ndim - 1], steps = fs_sizes_elements(input) / width, state = NAN;
    double flops = 2 * steps * multiplied(call, row, width, &state);
    double output = steps * state * fs_sizes_item(input->dtype), states = fs_products_read(call, hidden, hidden + 2);
    double read = fs_sizes_read(input) + weight_bytes(call, row, input->dtype) + states;
    fs_unit_choice unit = fs_unit_of_product(input->dtype);
    if (backward) return fs_sizes_work(2 * flops, read + 2 * output, read, unit);
    return fs_sizes_work(flops, read, output + states, unit);
}

/* Arguments: input, weights for the input and for the state, two biases, two states; for gradients also the result, its
 * states and their gradients. */
fs_work fs_count_rnn_layer(const fs_aten_rule *rule, const fs_torch_call *call)
{
    enum { GIVEN = 7 };
    const fs_torch_tensor *input = fs_sizes_tensor(call, 0), *weight = fs_sizes_tensor(call, 1);
    const fs_torch_tensor *recurrent = fs_sizes_tensor(call, 2);
    if (input == NULL || weight == NULL || recurrent == NULL) return fs_work_unknown;
    if (input->ndim == 0 || weight->ndim != 2 || recurrent->ndim != 2 || weight->shape[1] == 0) return fs_work_unknown;
    double steps = fs_sizes_elements(input) / (double)weight->shape[1];
    double flops = 2 * steps * (fs_sizes_elements(weight) + fs_sizes_elements(recurrent));
    double output = steps * (double)recurrent->shape[1] * fs_sizes_item(input->dtype);
    fs_unit_choice unit = fs_unit_of_product(input->dtype);
    if (rule->option == 1)
        return fs_sizes_work(2 * flops, fs_products_read(call, 0, call->count), fs_products_read(call, 0, GIVEN), unit);
    return fs_sizes_work(flops, fs_products_read(call, 0, GIVEN), output + fs_products_read(call, 5, GIVEN), unit);
}

fs_work fs_count_cell(const fs_aten_rule *rule, const fs_torch_call *call)
{
    int row = rule->option, biases = 0;
    const fs_torch_tensor *state = fs_sizes_tensor(call, (unsigned)cells[row].state);
    if (state == NULL) return fs_work_unknown;
    for (int i = 0; cells[row].biases >= 0 && i < 2; i++) {
        const fs_torch_tensor *bias = fs_sizes_tensor(call, (unsigned)(cells[row].biases + i));
        biases += bias != NULL && bias->ndim > 0;
    }
    double elements = fs_sizes_elements(state);
    return fs_sizes_work((cells[row].flops + biases * cells[row].flops_each_bias) * elements,
                         fs_products_read(call, 0, call->count),
                         cells[row].written * elements * fs_sizes_item(state->dtype), fs_unit_of_plain(state->dtype));
}
