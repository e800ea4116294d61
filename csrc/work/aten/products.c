/* Matrix products, and the table of all multiply-add rules. */
#include "work/aten/products.h"

#include <math.h>

#include "work/aten/attention.h"
#include "work/aten/convolution.h"
#include "work/aten/linalg.h"
#include "work/aten/sizes.h"

/* X(NAME, weights in one buffer, hidden state, mode, hidden size, projected size, layers, bidirectional): places; the
 * cell state follows the hidden state. Rows of gradients follow the forward row of the same library. */
#define FS_RNN_LIST(X)                                    \
    X(CUDNN, 3, 4, 6, 7, 8, 9, 13)                        \
    X(CUDNN_BACKWARD, 3, 4, 10, 11, 12, 13, 17)           \
    X(MIOPEN, FS_NOT_THERE, 3, 5, 6, FS_NOT_THERE, 7, 11) \
    X(MIOPEN_BACKWARD, 3, 4, 10, 11, FS_NOT_THERE, 12, 16)

enum {
#define FS_RNN_ENUM(NAME, ...) FS_RNN_##NAME,
    FS_RNN_LIST(FS_RNN_ENUM)
#undef FS_RNN_ENUM
};

/* X(NAME, state, first bias, FLOPs, FLOPs for each bias, elements written): the places of a tensor with the state's
 * shape and of the biases; the numbers are per element of the state.
 *
 * LSTM: 4 gates of a sum and a function each; f c + i g, its tanh and the product with o. Written: both states, and the
 * gates for the gradients.
 * GRU: r and z, of a sum and a function each; n = tanh(a + r b), n + z (h - n). Written: the state, and r, z, n, h, b.
 * Gradients of the LSTM: tanh c and its product with dh; dh o (1 - tanh^2 c) + dc; four products with it; three
 * sigmoids of 3 each, a tanh of 3. Written: the gradients of the gates and of the cell state.
 * Gradients of the GRU: dz 5, dh 1, dn 5, dn r 1, dr 4. Written: the gradients of both sets of gates, and of the
 * state. */
#define FS_CELL_LIST(X)                         \
    X(LSTM, 2, 3, 13, 4, 6)                     \
    X(GRU, 2, 3, 10, 3, 6)                      \
    X(LSTM_BACKWARD, 2, FS_NOT_THERE, 23, 0, 5) \
    X(GRU_BACKWARD, 0, FS_NOT_THERE, 16, 0, 7)

enum {
#define FS_CELL_ENUM(NAME, ...) FS_CELL_##NAME,
    FS_CELL_LIST(FS_CELL_ENUM)
#undef FS_CELL_ENUM
};

/* An argument that the call does not have is `absent`; one that the trace did not record is NaN, and the callers must
 * not confuse the two. */

double fs_products_flops_each(unsigned dtype)
{
    return fs_torch_dtypes[dtype].kind == FS_TORCH_COMPLEX ? 8 : 2;
}

double fs_products_number(const fs_torch_call *call, int place, double absent)
{
    if (place < 0 || (unsigned)place >= call->count) return absent;
    return fs_sizes_number(fs_sizes_text(call, (unsigned)place), NAN);
}

double fs_products_flag(const fs_torch_call *call, int place)
{
    if (place < 0 || (unsigned)place >= call->count) return 0;
    const char *text = fs_sizes_text(call, (unsigned)place);
    return *text == 0 ? (double)NAN : fs_sizes_is_true(text) || fs_sizes_number(text, 0) != 0;
}

/* Return the bytes of all tensors with dimensions at places from `from` up to `to`. */
static double products_read(const fs_torch_call *call, unsigned from, unsigned to)
{
    double bytes = 0;
    for (unsigned place = from; place < to && place < call->count; place++) {
        const fs_torch_tensor *tensor = fs_sizes_tensor(call, place);
        if (tensor != NULL && tensor->ndim > 0) bytes += fs_sizes_read(tensor);
    }
    return bytes;
}

/* Recurrent networks: whole layers, and the elementwise part of their cells. */

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
    if (call->count < 2 || call->arguments[1].type != FS_TORCH_TENSOR_LIST) return NAN;
    return fs_sizes_list_elements(&call->arguments[1]) * fs_sizes_item(dtype);
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
    double output = steps * state * fs_sizes_item(input->dtype), states = products_read(call, hidden, hidden + 2);
    double read = fs_sizes_read(input) + weight_bytes(call, row, input->dtype) + states;
    fs_unit_choice unit = fs_unit_of_product(input->dtype);
    if (backward) return fs_sizes_work(2 * flops, read + 2 * output, read, unit);
    return fs_sizes_work(flops, read, output + states, unit);
}

/* The tensors of an argument, one or a list. */
typedef struct {
    double elements, matrices, width; /* elements; those of tensors with two axes; last size of the first tensor */
} tensor_sums;

static tensor_sums sums_of(const fs_torch_argument *given)
{
    tensor_sums sums = {0, 0, NAN};
    bool is_list = given->type == FS_TORCH_TENSOR_LIST;
    uint32_t count = is_list ? given->count : given->type == FS_TORCH_TENSOR;
    const int64_t *at = given->list;
    fs_torch_tensor tensor = given->tensor;
    for (uint32_t i = 0; i < count; i++) {
        if (is_list) fs_torch_next_tensor(&at, &tensor);
        double elements = fs_sizes_elements(&tensor);
        if (i == 0 && tensor.ndim > 0) sums.width = (double)tensor.shape[tensor.ndim - 1];
        sums.elements += elements;
        if (tensor.ndim == 2) sums.matrices += elements;
    }
    return sums;
}

/* Arguments: input, weights for the input and for the state, two biases, two states; for gradients also the result, its
 * states and their gradients. Of a cell: input, state or a list of both, weights, biases. */
fs_work fs_count_rnn_layer(const fs_aten_rule *rule, const fs_torch_call *call)
{
    enum { GIVEN = 7 };
    bool is_cell = rule->option == 2;
    const fs_torch_tensor *input = fs_sizes_tensor(call, 0), *weight = fs_sizes_tensor(call, is_cell ? 2 : 1);
    const fs_torch_tensor *recurrent = fs_sizes_tensor(call, is_cell ? 3 : 2);
    if (input == NULL || weight == NULL || recurrent == NULL) return fs_work_unknown;
    if (input->ndim == 0 || weight->ndim != 2 || recurrent->ndim != 2 || weight->shape[1] == 0) return fs_work_unknown;
    double steps = fs_sizes_elements(input) / (double)weight->shape[1], item = fs_sizes_item(input->dtype);
    double flops = 2 * steps * (fs_sizes_elements(weight) + fs_sizes_elements(recurrent));
    fs_unit_choice unit = fs_unit_of_product(input->dtype);
    if (is_cell) {
        double states = sums_of(&call->arguments[1]).elements * item;
        return fs_sizes_work(flops, fs_sizes_read(input) + states + products_read(call, 2, call->count), states, unit);
    }
    double output = steps * (double)recurrent->shape[1] * item;
    if (rule->option == 1)
        return fs_sizes_work(2 * flops, products_read(call, 0, call->count), products_read(call, 0, GIVEN), unit);
    return fs_sizes_work(flops, products_read(call, 0, GIVEN), output + products_read(call, 5, GIVEN), unit);
}

/* Arguments: input, for packed ones the sizes of batches, states, a list of weights, whether there are biases, layers,
 * dropout, train, bidirectional. Each matrix is used once for each step of each sequence. */
fs_work fs_count_recurrent(const fs_aten_rule *rule, const fs_torch_call *call)
{
    (void)rule;
    const fs_torch_tensor *input = fs_sizes_tensor(call, 0);
    unsigned weights = 3;
    while (weights > 1 && (weights >= call->count || call->arguments[weights].type != FS_TORCH_TENSOR_LIST)) weights--;
    if (weights < 2 || input == NULL || input->ndim < 2 || fs_sizes_from_end(input, 1) == 0) return fs_work_unknown;
    tensor_sums given = sums_of(&call->arguments[weights]), states = sums_of(&call->arguments[weights - 1]);
    double steps = fs_sizes_elements(input) / fs_sizes_from_end(input, 1), item = fs_sizes_item(input->dtype);
    double output = steps * (1 + fs_products_flag(call, (int)weights + 5)) * states.width;
    return fs_sizes_work(fs_products_flops_each(input->dtype) * steps * given.matrices,
                         fs_sizes_read(input) + (given.elements + states.elements) * item,
                         (output + states.elements) * item, fs_unit_of_product(input->dtype));
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
                         products_read(call, 0, call->count),
                         cells[row].written * elements * fs_sizes_item(state->dtype), fs_unit_of_plain(state->dtype));
}

const fs_aten_rule fs_aten_product_rules[] = {
#define FS_PRODUCT(name, family, option) {#name, fs_count_##family, 2, option, NULL, FS_CATEGORY_OF_FAMILY},
#include "work/aten/products.def"
#undef FS_PRODUCT
    {.name = NULL},
};

/* Return the number of products: the broadcast batches of both. */
static double batches(const fs_torch_tensor *a, const fs_torch_tensor *b)
{
    uint32_t most = a->ndim > b->ndim ? a->ndim : b->ndim;
    double count = 1;
    for (uint32_t d = 3; d <= most; d++) count *= fmax(fs_sizes_from_end(a, d), fs_sizes_from_end(b, d));
    return count;
}

/* a[…, m, k] times b[…, k, n]; a vector is a row on the left and a column on the right. */
typedef struct {
    double batch, m, n, k;
} sizes;

static bool sizes_of(const fs_torch_tensor *a, const fs_torch_tensor *b, sizes *found)
{
    if (a == NULL || b == NULL || a->ndim == 0 || b->ndim == 0) return false;
    found->k = fs_sizes_from_end(a, 1);
    found->m = fs_sizes_from_end(a, 2);
    found->n = b->ndim > 1 ? fs_sizes_from_end(b, 1) : 1;
    found->batch = batches(a, b);
    return found->k == (b->ndim > 1 ? fs_sizes_from_end(b, 2) : fs_sizes_from_end(b, 1));
}

/* Return the bytes of the addend at the place before the product; a factor of 0 leaves it unread. */
static double added_bytes(const fs_torch_call *call, int place)
{
    const fs_torch_tensor *added = place > 0 ? fs_sizes_tensor(call, 0) : NULL;
    if (added == NULL || fs_sizes_number(fs_sizes_text(call, (unsigned)place + 2), 1) == 0) return 0;
    return fs_sizes_read(added);
}

static bool is_number(const fs_torch_call *call, unsigned place)
{
    const fs_torch_argument *argument = &call->arguments[place];
    return argument->type == FS_TORCH_SCALAR && !isnan(fs_sizes_number(argument->text, NAN));
}

/* Return the dtype requested for the result, else that of the inputs. In some versions of an op it is an extra
 * argument: the first of one more number than the `usual` ones from a place on. */
static unsigned result_dtype(const fs_torch_call *call, unsigned from, unsigned usual, unsigned inputs)
{
    unsigned numbers = 0, first = 0;
    for (unsigned place = call->count; place-- > from;)
        if (is_number(call, place)) numbers++, first = place;
    if (numbers <= usual) return inputs;
    fs_torch_dtype named = fs_sizes_dtype_of(fs_sizes_text(call, first));
    return named != FS_TORCH_DTYPE_NONE ? named : inputs;
}

static fs_work product(const fs_aten_rule *rule, const fs_torch_call *call, bool summed, bool widened)
{
    unsigned place = (unsigned)rule->option;
    const fs_torch_tensor *a = fs_sizes_tensor(call, place), *b = fs_sizes_tensor(call, place + 1);
    sizes of;
    if (!sizes_of(a, b, &of)) return fs_work_unknown;
    unsigned dtype = widened ? FS_TORCH_INT32 : result_dtype(call, place + 2, place > 0 ? 2 : 0, a->dtype);
    double written = (summed ? 1 : of.batch) * of.m * of.n * fs_sizes_item(dtype);
    double read = fs_sizes_read(a) + fs_sizes_read(b) + added_bytes(call, rule->option);
    return fs_sizes_work(fs_products_flops_each(a->dtype) * of.batch * of.m * of.n * of.k, read, written,
                         fs_unit_of_product(a->dtype));
}

fs_work fs_count_product(const fs_aten_rule *rule, const fs_torch_call *call)
{
    return product(rule, call, false, false);
}

fs_work fs_count_summed_product(const fs_aten_rule *rule, const fs_torch_call *call)
{
    return product(rule, call, true, false);
}

fs_work fs_count_int_product(const fs_aten_rule *rule, const fs_torch_call *call)
{
    return product(rule, call, false, true);
}

fs_work fs_count_vectors(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *a = fs_sizes_tensor(call, (unsigned)rule->option);
    const fs_torch_tensor *b = fs_sizes_tensor(call, (unsigned)rule->option + 1);
    if (a == NULL || b == NULL) return fs_work_unknown;
    return fs_sizes_work(fs_products_flops_each(a->dtype) * fs_sizes_elements(a), fs_sizes_read(a) + fs_sizes_read(b),
                         fs_sizes_item(a->dtype), fs_unit_of_plain(a->dtype));
}

/* One multiplication each; with an addend, a multiply-add. */
fs_work fs_count_outer(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *a = fs_sizes_tensor(call, (unsigned)rule->option);
    const fs_torch_tensor *b = fs_sizes_tensor(call, (unsigned)rule->option + 1);
    if (a == NULL || b == NULL) return fs_work_unknown;
    double elements = fs_sizes_elements(a) * fs_sizes_elements(b);
    double read = fs_sizes_read(a) + fs_sizes_read(b) + added_bytes(call, rule->option);
    return fs_sizes_work((rule->option > 0 ? 1 : 0.5) * fs_products_flops_each(a->dtype) * elements, read,
                         elements * fs_sizes_item(a->dtype), fs_unit_of_plain(a->dtype));
}

fs_work fs_count_linear(const fs_aten_rule *rule, const fs_torch_call *call)
{
    (void)rule;
    const fs_torch_tensor *input = fs_sizes_tensor(call, 0), *weight = fs_sizes_tensor(call, 1);
    const fs_torch_tensor *bias = fs_sizes_tensor(call, 2);
    if (input == NULL || weight == NULL || input->ndim == 0 || weight->ndim == 0) return fs_work_unknown;
    double k = fs_sizes_from_end(weight, 1), n = weight->ndim > 1 ? fs_sizes_from_end(weight, 2) : 1;
    if (k != fs_sizes_from_end(input, 1) || k == 0) return fs_work_unknown;
    double rows = fs_sizes_elements(input) / k;
    double read = fs_sizes_read(input) + fs_sizes_read(weight) + (bias != NULL ? fs_sizes_read(bias) : 0);
    return fs_sizes_work(fs_products_flops_each(input->dtype) * rows * k * n, read,
                         rows * n * fs_sizes_item(input->dtype), fs_unit_of_product(input->dtype));
}

/* Without a recorded dtype, the result has that of the first matrix. */
fs_work fs_count_scaled(const fs_aten_rule *rule, const fs_torch_call *call)
{
    (void)rule;
    const fs_torch_tensor *a = fs_sizes_tensor(call, 0), *b = fs_sizes_tensor(call, 1);
    sizes of;
    if (!sizes_of(a, b, &of)) return fs_work_unknown;
    double packed = fs_torch_dtypes[a->dtype].kind == FS_TORCH_FLOAT4 ? 2 : 1; /* elements per byte */
    double read = fs_sizes_read(a) + fs_sizes_read(b) + products_read(call, 2, call->count);
    double written = of.m * of.n * fs_sizes_item(result_dtype(call, 2, 0, a->dtype));
    return fs_sizes_work(2 * of.m * of.n * of.k * packed, read, written, fs_unit_of_product(a->dtype));
}

/* _cslt_sparse_mm(matrix, dense, bias, alpha, dtype, …): the matrix is a buffer in which 16 elements, of which 8 are
 * kept, take the room of 9, of a dtype of one byte that of 10. The kept ones are multiplied. */
fs_work fs_count_compressed(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *matrix = fs_sizes_tensor(call, 0), *dense = fs_sizes_tensor(call, 1);
    if (matrix == NULL || dense == NULL || dense->ndim != 2 || dense->shape[0] == 0) return fs_work_unknown;
    double k = (double)dense->shape[0], n = (double)dense->shape[1];
    double m = floor(fs_sizes_elements(matrix) * 16 / (fs_sizes_item(matrix->dtype) == 1 ? 10 : 9) / k);
    fs_torch_dtype named = fs_sizes_dtype_of(fs_sizes_text(call, (unsigned)rule->option));
    double item = fs_sizes_item(named != FS_TORCH_DTYPE_NONE ? named : dense->dtype);
    return fs_sizes_work(m * k * n, products_read(call, 0, call->count), m * n * item,
                         fs_unit_of_product(dense->dtype));
}

/* The offsets divide the rows of a matrix, its columns, or the summed axis. If they divide one matrix of both, only the
 * part up to the last offset is multiplied, which the arguments do not give; the whole matrix is an upper bound. */
fs_work fs_count_grouped(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *a = fs_sizes_tensor(call, 0), *b = fs_sizes_tensor(call, 1);
    const fs_torch_tensor *offsets = fs_sizes_tensor(call, (unsigned)rule->option);
    if (a == NULL || b == NULL || a->ndim < 2 || b->ndim < 2) return fs_work_unknown;
    double m = fs_sizes_from_end(a, 2), k = fs_sizes_from_end(a, 1), n = fs_sizes_from_end(b, 1), groups = 1, batch = 1;
    if (k != fs_sizes_from_end(b, 2)) return fs_work_unknown;
    if (a->ndim == 3 && b->ndim == 3) batch = groups = (double)a->shape[0];
    else if (a->ndim == 2 && b->ndim == 2) groups = offsets != NULL ? fs_sizes_elements(offsets) : NAN;
    double read = fs_sizes_read(a) + fs_sizes_read(b) + products_read(call, 2, call->count);
    double written = groups * m * n * fs_sizes_item(result_dtype(call, 2, 0, a->dtype));
    fs_work work = fs_sizes_work(2 * batch * m * n * k, read, written, fs_unit_of_product(a->dtype));
    work.at_most = a->ndim != 3 || b->ndim != 3;
    return work;
}

/* Weights in 8 or 4 bits, in a kernel-specific order: the scales give the number of outputs. */
fs_work fs_count_packed(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *input = fs_sizes_tensor(call, 0);
    const fs_torch_tensor *scales = fs_sizes_tensor(call, (unsigned)rule->option);
    if (input == NULL || input->ndim == 0 || scales == NULL || scales->ndim == 0) return fs_work_unknown;
    double outputs = (double)scales->shape[scales->ndim > 1], inputs = fs_sizes_from_end(input, 1);
    double rows = inputs > 0 ? fs_sizes_elements(input) / inputs : 0;
    return fs_sizes_work(2 * rows * inputs * outputs, products_read(call, 0, call->count),
                         rows * outputs * fs_sizes_item(input->dtype), fs_unit_of_product(input->dtype));
}

/* A subtraction, a function and an addition for each element of each pair of rows. */
fs_work fs_count_distances(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *a = fs_sizes_tensor(call, 0), *b = rule->option == 0 ? fs_sizes_tensor(call, 1) : a;
    if (a == NULL || b == NULL || a->ndim < 2 || b->ndim < 2) return fs_work_unknown;
    double rows = fs_sizes_from_end(a, 2), width = fs_sizes_from_end(a, 1);
    double pairs = rule->option == 0 ? batches(a, b) * rows * fs_sizes_from_end(b, 2) : rows * (rows - 1) / 2;
    double read = fs_sizes_read(a) + (a == b ? 0 : fs_sizes_read(b));
    return fs_sizes_work(3 * pairs * width, read, pairs * fs_sizes_item(a->dtype), fs_unit_of_plain(a->dtype));
}
