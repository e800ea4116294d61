/* Convolutions of 1 to 3 dimensions, and their gradients. */
#include "work/aten/convolution.h"

#include <math.h>
#include <string.h>

#include "work/aten/products.h"
#include "work/aten/sizes.h"
#include "work/libraries/libraries.h"

/* A table of the places at which a gradient's call has its forward op's input, weight and result. A gradient has the
 * shape of a result only if the forward op's own tensors have the same shapes, so a call of other sizes is never
 * mistaken for it. */

static const struct {
    const char *name, *op;
    int transposed, input, gradient, weight;
} rows[] = {
#define FS_GRADIENT(name, ...) {#name, __VA_ARGS__},
#include "work/aten/gradients.def"
#undef FS_GRADIENT
};

static const char aten[] = "aten::";

/* Return whether the op is aten's op of that name, in any overload. */
static bool is_op(const char *name, const char *op)
{
    size_t prefix = sizeof aten - 1, size = strlen(op);
    if (strncmp(name, aten, prefix) != 0 || strncmp(name + prefix, op, size) != 0) return false;
    char end = name[prefix + size];
    return end == 0 || end == '.';
}

/* Return false if the op is not such a gradient, or one of its tensors is missing. */
static bool gradient_find(const char *name, const fs_torch_call *call, fs_gradient *found)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!is_op(name, rows[i].name)) continue;
        bool weighted = rows[i].weight != FS_NOT_THERE;
        *found = (fs_gradient){
            .op = rows[i].op,
            .input = fs_sizes_tensor(call, (unsigned)rows[i].input),
            .weight = weighted ? fs_sizes_tensor(call, (unsigned)rows[i].weight) : NULL,
            .output = fs_sizes_tensor(call, (unsigned)rows[i].gradient),
            .transposed = rows[i].transposed,
        };
        return found->input != NULL && found->output != NULL && (!weighted || found->weight != NULL);
    }
    return false;
}

static bool same_shape(const fs_torch_tensor *a, const fs_torch_tensor *b)
{
    return a != NULL && a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
}

bool fs_work_is_gradient(const char *name, const fs_torch_call *call)
{
    fs_gradient found;
    return fs_bags_is_gradient(name) || gradient_find(name, call, &found);
}

const fs_torch_tensor *fs_work_result_told(const char *gradient_name, const fs_torch_call *gradient, const char *name,
                                           const fs_torch_call *call)
{
    fs_gradient of;
    if (fs_bags_is_gradient(gradient_name)) {
        const fs_torch_tensor *result = fs_sizes_tensor(gradient, 0);
        bool fits = fs_bags_is_gradient_of(gradient_name, name) && fs_bags_fit(name, call, result);
        return fits ? result : NULL;
    }
    if (!gradient_find(gradient_name, gradient, &of)) return NULL;
    if (*of.op != 0 && !is_op(name, of.op)) return NULL;
    if (*of.op == 0 && strstr(name, "conv") == NULL) return NULL;
    if (!same_shape(fs_sizes_tensor(call, 0), of.input)) return NULL;
    if (of.weight != NULL && !same_shape(fs_sizes_tensor(call, 1), of.weight)) return NULL;
    return of.output;
}

enum { MOST_DIMS = 3 };

static const struct {
    int weight, bias, stride, padding, dilation, transposed, output_padding, groups;
} places[] = {
#define PLACES(NAME, ...) [FS_CONVOLUTION_##NAME] = {__VA_ARGS__},
    FS_CONVOLUTION_LIST(PLACES)
#undef PLACES
};

static const struct {
    int transposed, wanted;
} backward_places[] = {
#define PLACES(NAME, ...) [FS_BACKWARD_##NAME] = {__VA_ARGS__},
    FS_BACKWARD_LIST(PLACES)
#undef PLACES
};

/* Read an argument's number for each dimension; a single one applies to all. `usual` if the op has no such argument or
 * an empty one; NaN if the trace does not record it. */
static void numbers_at(const fs_torch_call *call, int place, uint32_t dims, double usual, double *numbers)
{
    bool here = place >= 0 && (unsigned)place < call->count;
    int count = here ? fs_sizes_numbers(fs_sizes_text(call, (unsigned)place), numbers, MOST_DIMS) : 0;
    double rest = count < 0 ? (double)NAN : count == 0 ? usual : numbers[0];
    for (uint32_t d = count < 0 ? 0 : (uint32_t)count; d < dims; d++) numbers[d] = rest;
}

/* Return whether it is transposed; NaN if the trace does not record it. */
static double transposed_at(const fs_torch_call *call, int place)
{
    return place == FS_ALWAYS ? 1 : fs_products_flag(call, place);
}

/* Elements of the result over the convolved axes, and the share of the input that is used: strides larger than the
 * kernel skip some. */
typedef struct {
    double elements, met;
} extent;

static void meet(extent *of, double size, double outputs, double kernel)
{
    of->elements *= outputs;
    if (outputs * kernel < size) of->met *= outputs * kernel / size;
}

/* An input without a batch has one dimension fewer. */
static extent space(const fs_torch_call *call, int row, const fs_torch_tensor *input, const fs_torch_tensor *weight,
                    bool transposed)
{
    uint32_t dims = weight->ndim - 2;
    double stride[MOST_DIMS], padding[MOST_DIMS], dilation[MOST_DIMS], more[MOST_DIMS];
    extent of = {1, 1};
    const char *text = fs_sizes_text(call, (unsigned)places[row].padding);
    bool same = strcmp(text, "same") == 0, valid = strcmp(text, "valid") == 0;
    numbers_at(call, places[row].stride, dims, 1, stride);
    numbers_at(call, places[row].dilation, dims, 1, dilation);
    numbers_at(call, places[row].output_padding, dims, 0, more);
    numbers_at(call, same || valid ? FS_NOT_THERE : places[row].padding, dims, 0, padding);
    for (uint32_t d = 0; d < dims; d++) {
        double size = (double)input->shape[input->ndim - dims + d], kernel = (double)weight->shape[2 + d];
        double reach = dilation[d] * (kernel - 1) + 1;
        if (transposed) of.elements *= (size - 1) * stride[d] - 2 * padding[d] + reach + more[d];
        else if (same) meet(&of, size, ceil(size / stride[d]), kernel);
        else meet(&of, size, floor((size + 2 * padding[d] - reach) / stride[d]) + 1, kernel);
    }
    return of;
}

static double channels_in(const fs_torch_tensor *tensor, const fs_torch_tensor *weight)
{
    return (double)tensor->shape[tensor->ndim - (weight->ndim - 2) - 1];
}

/* Return whether a gradient's convolution is transposed, inferred from the shapes if the flag is not recorded: the
 * first size of the weight is the number of channels of the result, or of the input if transposed. If both have the
 * same number, the smaller tensor is the result. */
static double is_transposed(const fs_torch_call *call, int place, const fs_torch_tensor *gradient,
                            const fs_torch_tensor *input, const fs_torch_tensor *weight)
{
    double flag = transposed_at(call, place), first = (double)weight->shape[0];
    bool of_result = channels_in(gradient, weight) == first, of_input = channels_in(input, weight) == first;
    if (!isnan(flag)) return flag;
    if (of_result != of_input) return of_input;
    return of_result ? fs_sizes_elements(input) < fs_sizes_elements(gradient) : (double)NAN;
}

/* Return the share of the input that the forward convolution used. */
static double met_by(const fs_torch_tensor *gradient, const fs_torch_tensor *input, const fs_torch_tensor *weight)
{
    uint32_t dims = weight->ndim - 2;
    extent of = {1, 1};
    for (uint32_t d = 0; d < dims; d++) {
        meet(&of, (double)input->shape[input->ndim - dims + d], (double)gradient->shape[gradient->ndim - dims + d],
             (double)weight->shape[2 + d]);
    }
    return of.met;
}

/* Twice the multiply-adds: each element of the result (of the input if transposed) is combined with the kernel of each
 * channel of its group. The weight is [out, in / groups, …], transposed [in, out / groups, …]. */
static double flops_of(double elements, const fs_torch_tensor *weight)
{
    return 2 * elements * fs_sizes_elements(weight) / (double)weight->shape[0];
}

static bool is_convolution(const fs_torch_tensor *input, const fs_torch_tensor *weight)
{
    if (input == NULL || weight == NULL || weight->ndim < 3 || weight->ndim > 2 + MOST_DIMS) return false;
    return input->ndim + 1 >= weight->ndim && input->ndim <= weight->ndim && weight->shape[0] > 0;
}

static double channels_of(const fs_torch_call *call, int row, const fs_torch_tensor *weight, bool transposed)
{
    if (!transposed) return (double)weight->shape[0];
    return (double)weight->shape[1] * fs_products_number(call, places[row].groups, 1);
}

fs_work fs_count_convolution(const fs_aten_rule *rule, const fs_torch_call *call)
{
    int row = rule->option;
    const fs_torch_tensor *input = fs_sizes_tensor(call, 0);
    const fs_torch_tensor *weight = fs_sizes_tensor(call, (unsigned)places[row].weight);
    const fs_torch_tensor *bias = places[row].bias < 0 ? NULL : fs_sizes_tensor(call, (unsigned)places[row].bias);
    double flag = transposed_at(call, places[row].transposed);
    if (!is_convolution(input, weight) || isnan(flag)) return fs_work_unknown;
    bool transposed = flag != 0;
    double batch = input->ndim == weight->ndim ? (double)input->shape[0] : 1;
    extent of = space(call, row, input, weight, transposed);
    double output = batch * channels_of(call, row, weight, transposed) * of.elements;
    /* If the trace records no strides, it may contain the result's shape. */
    if (isnan(output) && call->output != NULL && call->output->ndim == input->ndim) {
        of.met = transposed ? 1 : met_by(call->output, input, weight);
        output = fs_sizes_elements(call->output);
    }
    double read = of.met * fs_sizes_read(input) + fs_sizes_read(weight) + (bias != NULL ? fs_sizes_read(bias) : 0);
    const fs_torch_tensor *added = row == FS_CONVOLUTION_ADD ? fs_sizes_tensor(call, 2) : NULL;
    if (added != NULL) read += fs_sizes_read(added);
    fs_work work = fs_sizes_work(flops_of(transposed ? fs_sizes_elements(input) : output, weight), read,
                                 output * fs_sizes_item(input->dtype), fs_unit_of_product(input->dtype));
    if (isnan(output)) work.needs = FS_NEEDS_GRADIENT;
    return work;
}

/* Read which gradients of input, weight and bias are requested: "[True, False, True]". All if the op has no such
 * argument; all, and false, if the trace does not record it. */
static bool wanted_at(const fs_torch_call *call, int place, bool *wanted)
{
    const char *text = fs_sizes_text(call, (unsigned)place);
    bool present = (unsigned)place < call->count, unrecorded = !present || *text == 0;
    for (int i = 0; i < 3; i++) {
        text += strcspn(text, "TtFf01");
        wanted[i] = unrecorded || *text == 'T' || *text == 't' || *text == '1';
        text += strcspn(text, ",");
    }
    return !present || !unrecorded;
}

fs_work fs_count_convolution_backward(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *gradient = fs_sizes_tensor(call, 0), *input = fs_sizes_tensor(call, 1);
    const fs_torch_tensor *weight = fs_sizes_tensor(call, 2);
    bool wanted[3];
    if (gradient == NULL || !is_convolution(input, weight) || gradient->ndim != input->ndim) return fs_work_unknown;
    double transposed = is_transposed(call, backward_places[rule->option].transposed, gradient, input, weight);
    bool known = wanted_at(call, backward_places[rule->option].wanted, wanted);
    if (isnan(transposed)) return fs_work_unknown;
    double flops = flops_of(fs_sizes_elements(transposed != 0 ? input : gradient), weight);
    double item = fs_sizes_item(input->dtype), read = fs_sizes_read(gradient), written = 0;
    if (wanted[0]) {
        read += fs_sizes_read(weight);
        written += fs_sizes_elements(input) * item;
    }
    if (wanted[1]) {
        read += (transposed != 0 ? 1 : met_by(gradient, input, weight)) * fs_sizes_read(input);
        written += fs_sizes_elements(weight) * item;
    }
    if (wanted[2]) written += channels_in(gradient, weight) * item;
    fs_work work = fs_sizes_work((wanted[0] + wanted[1]) * flops, read, written, fs_unit_of_product(input->dtype));
    work.at_most = !known;
    return work;
}

/* backward_input(sizes, gradient, weight, …), backward_weight(sizes, gradient, input, …): `sizes` is the shape of the
 * result, which old traces do not record; the enclosing op was called with a tensor of that shape. */
fs_work fs_count_convolution_part(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_gradient of;
    fs_work work = fs_work_unknown;
    if (call->outer == NULL) work.needs = FS_NEEDS_OP;
    if (call->outer == NULL || !gradient_find(call->outer_name, call->outer, &of)) return work;
    const fs_torch_tensor *input = of.input, *weight = of.weight, *gradient = of.output;
    if (!is_convolution(input, weight) || gradient->ndim != input->ndim) return work;
    double flag = is_transposed(call->outer, of.transposed, gradient, input, weight);
    if (isnan(flag)) return work;
    bool transposed = flag != 0;
    double item = fs_sizes_item(input->dtype), read = fs_sizes_read(gradient);
    double flops = flops_of(fs_sizes_elements(transposed ? input : gradient), weight);
    fs_unit_choice unit = fs_unit_of_product(input->dtype);
    switch (rule->option) {
    case FS_PART_INPUT:
        return fs_sizes_work(flops, read + fs_sizes_read(weight), fs_sizes_elements(input) * item, unit);
    case FS_PART_WEIGHT:
        read += (transposed ? 1 : met_by(gradient, input, weight)) * fs_sizes_read(input);
        return fs_sizes_work(flops, read, fs_sizes_elements(weight) * item, unit);
    default: /* the bias: a sum over all axes but the channels */
        return fs_sizes_work(fs_sizes_elements(gradient), read, channels_in(gradient, weight) * item,
                             fs_unit_of_plain(gradient->dtype));
    }
}
