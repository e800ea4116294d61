/* The layouts of norms are rows of tables: which places hold what, and over what the statistics are taken. A family
 * multiplies elements by FLOPs per element that follow from the row and from what the call asks for; what is not
 * recorded makes FLOPs NaN, or the bytes a bound. */
#include <math.h>
#include <string.h>

#include "work/aten/elements.h"

enum { MAX_AXES = 64 };

/* Reductions ------------------------------------------------------------------------------------------------------- */

static bool is_bool(const char *text)
{
    return strcmp(text, "True") == 0 || strcmp(text, "False") == 0;
}

/* Return the elements left after reducing the axes at PLACE. *all: no axes are given, all are reduced. */
static double elements_left(const fs_aten_rule *rule, const fs_torch_call *call, bool *all)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    unsigned place = fs_option(rule, FS_PLACE);
    double axes[MAX_AXES];
    const char *text = fs_sizes_text(call, place);
    int count = place > 0 ? fs_sizes_numbers(text, axes, MAX_AXES) : -1;
    /* A single number is an axis if "keepdim" follows or is left out; `sum(dtype)` has a dtype there. */
    bool ends = place + 1 == call->count && fs_option(rule, FS_DTYPE_AT) == 0;
    if (*text != '[' && !ends && !is_bool(fs_sizes_text(call, place + 1))) count = -1;
    *all = count <= 0;
    double left = *all ? 1 : fs_sizes_elements(self);
    for (int i = 0; i < count; i++) {
        double axis = axes[i] < 0 ? axes[i] + self->ndim : axes[i];
        if (axis >= 0 && axis < self->ndim && self->shape[(int)axis] > 0) left /= (double)self->shape[(int)axis];
    }
    return left;
}

static unsigned reduced_dtype(const fs_aten_rule *rule, const fs_torch_call *call, bool all)
{
    for (unsigned i = 1; i < call->count; i++) /* `out=` */
        if (fs_sizes_tensor(call, i) != NULL) return fs_sizes_tensor(call, i)->dtype;
    unsigned place = fs_option(rule, FS_DTYPE_AT), requested = FS_TORCH_DTYPE_NONE;
    bool alone = all && place >= call->count && fs_option(rule, FS_PLACE) == 1; /* sum(self, dtype) */
    if (place > 0) requested = fs_sizes_dtype_of(fs_sizes_text(call, alone ? 1 : place));
    return requested != FS_TORCH_DTYPE_NONE ? requested : fs_result_dtype(rule, fs_sizes_tensor(call, 0)->dtype);
}

/* Reduction over the axes at PLACE, `flops` per input element: ARGUMENTS, DTYPE_AT, flags of the result; the additional
 * result is written only if there are axes. With two tensors (`max(a, b)`) it is pointwise. */
fs_work fs_count_reduce(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const fs_torch_tensor *self = fs_sizes_tensor(call, 0);
    unsigned place = fs_option(rule, FS_PLACE);
    bool all;
    if (self == NULL) return fs_work_unknown;
    if (place > 0 && fs_sizes_tensor(call, place) != NULL) {
        const fs_aten_rule pair = {rule->name, fs_count_pointwise, 1, FS_ARGUMENTS * 2, NULL, FS_CATEGORY_OF_FAMILY};
        return fs_count_pointwise(&pair, call);
    }
    double left = elements_left(rule, call, &all);
    bool unrecorded = place > 0 && fs_sizes_is_unrecorded(call, place);
    if (unrecorded) {
        left = fs_sizes_elements(self);
        all = false;
    }
    unsigned dtype = reduced_dtype(rule, call, all);
    double written = all && fs_has(rule, FS_AND_INDICES) ? fs_sizes_item(dtype) : fs_result_bytes(rule, left, dtype);
    fs_work work = fs_sizes_work(fs_flops_of(rule->flops, fs_sizes_elements(self), dtype), fs_sizes_read(self), written,
                                 fs_unit_of_plain(self->dtype));
    return unrecorded ? fs_at_most(work) : work;
}

/* Norms ------------------------------------------------------------------------------------------------------------ */

/* What a norm takes its statistics over; determines their shape. */
typedef enum { OVER_ROWS, OVER_CHANNELS, OVER_GROUPS } norm_over;

typedef struct {
    norm_over over;
    uint8_t input, weight, bias; /* places; 0: none */
    uint8_t shape;               /* OVER_ROWS: place of the normalized shape; OVER_GROUPS: of the number of groups */
    uint8_t running;             /* place of the running mean, followed by its variance */
    uint8_t training;            /* place of a bool; 0: always trains */
    uint8_t written;             /* number of statistics returned besides the result */
    bool never_trains;
} norm_layout;

/* clang-format off */
static const norm_layout norms[] = {
    [FS_NORM_LAYER] = {.over = OVER_ROWS, .shape = 1, .weight = 2, .bias = 3, .written = 2},
    [FS_NORM_RMS] = {.over = OVER_ROWS, .shape = 1, .weight = 2, .written = 1},
    [FS_NORM_GROUP] = {.over = OVER_GROUPS, .weight = 1, .bias = 2, .shape = 6, .written = 2},
    [FS_NORM_BATCH] = {.over = OVER_CHANNELS, .weight = 1, .bias = 2, .running = 3, .training = 5, .written = 2},
    [FS_NORM_BATCH_TRAINS] = {.over = OVER_CHANNELS, .weight = 1, .bias = 2, .running = 3, .written = 2},
    [FS_NORM_BATCH_NEVER_TRAINS] = {.over = OVER_CHANNELS, .weight = 1, .bias = 2, .running = 3, .never_trains = true},
    [FS_NORM_BATCH_STATISTICS] = {.over = OVER_CHANNELS, .written = 2},
};
/* clang-format on */

static double bytes_at(const fs_torch_call *call, unsigned place)
{
    const fs_torch_tensor *tensor = place > 0 ? fs_sizes_tensor(call, place) : NULL;
    return tensor != NULL ? fs_sizes_read(tensor) : 0;
}

static bool is_at(const fs_torch_call *call, unsigned place)
{
    return place > 0 && fs_sizes_tensor(call, place) != NULL;
}

/* Return the number of means. */
static double statistics_of(const norm_layout *layout, const fs_torch_tensor *input, const fs_torch_call *call)
{
    double sizes[MAX_AXES], rows = fs_sizes_elements(input);
    if (layout->over == OVER_CHANNELS) return input->ndim > 1 ? (double)input->shape[1] : (double)NAN;
    if (layout->over == OVER_GROUPS) { /* the number of groups is not recorded: at most the number of channels */
        double channels = input->ndim > 1 ? (double)input->shape[1] : (double)NAN;
        double groups = fs_sizes_number(fs_sizes_text(call, layout->shape), channels);
        return input->ndim > 0 ? (double)input->shape[0] * groups : (double)NAN;
    }
    int count = fs_sizes_numbers(fs_sizes_text(call, layout->shape), sizes, MAX_AXES);
    const fs_torch_tensor *weight = is_at(call, layout->weight) ? fs_sizes_tensor(call, layout->weight) : NULL;
    if (count < 0 && weight != NULL && fs_sizes_elements(weight) > 0) return rows / fs_sizes_elements(weight);
    if (count < 0) return NAN;
    for (int i = 0; i < count; i++) rows /= sizes[i];
    return rows;
}

/* Statistics of narrow floats are float32. */
static double statistic_size(unsigned dtype)
{
    return fmax(fs_sizes_item(dtype), fs_sizes_item(FS_TORCH_FLOAT32));
}

/* (element - mean) / deviation * weight + bias: `flops` per element including the statistics, 2 if they are already
 * known, plus 1 each for weight and bias. PLACE: the row of `norms`. */
fs_work fs_count_norm(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const norm_layout *layout = &norms[fs_option(rule, FS_PLACE)];
    const fs_torch_tensor *input = fs_sizes_tensor(call, 0);
    if (input == NULL) return fs_work_unknown;
    bool trains = !layout->never_trains;
    bool unrecorded = layout->training > 0 && fs_sizes_is_unrecorded(call, layout->training);
    if (layout->training > 0 && !unrecorded) trains = fs_sizes_is_true(fs_sizes_text(call, layout->training));
    double elements = fs_sizes_elements(input), result = elements * fs_sizes_item(input->dtype);
    double each = unrecorded ? (double)NAN : trains ? rule->flops : 2;
    each += is_at(call, layout->weight) + is_at(call, layout->bias);
    double running = bytes_at(call, layout->running) + bytes_at(call, layout->running > 0 ? layout->running + 1u : 0);
    double read = fs_sizes_read(input) + bytes_at(call, layout->weight) + bytes_at(call, layout->bias) + running;
    double written = fs_has(rule, FS_WRITES_FIRST) ? 0 : result; /* the statistics only */
    if (trains)
        written += running + layout->written * statistics_of(layout, input, call) * statistic_size(input->dtype);
    fs_work work =
        fs_sizes_work(fs_flops_of(each, elements, input->dtype), read, written, fs_unit_of_plain(input->dtype));
    unrecorded = unrecorded || (layout->over == OVER_GROUPS && fs_sizes_is_unrecorded(call, layout->shape));
    return unrecorded ? fs_at_most(work) : work;
}

typedef struct {
    uint8_t gradient, input, weight, statistics, statistic_count;
    uint8_t mask;     /* place of the bools that select gradients; 0: all */
    uint8_t training; /* as above */
    bool centred;     /* subtracts the mean */
} norm_backward_layout;

static const norm_backward_layout backwards[] = {
    [FS_NORM_LAYER] = {0, 1, 5, 3, 2, 7, 0, true},        [FS_NORM_RMS] = {0, 1, 4, 3, 1, 5, 0, false},
    [FS_NORM_GROUP] = {0, 1, 4, 2, 2, 9, 0, true},        [FS_NORM_BATCH] = {0, 1, 2, 5, 2, 9, 7, true},
    [FS_NORM_BATCH_TRAINS] = {1, 0, 2, 5, 2, 0, 0, true},
};

/* Read which gradients of input, weight and bias are requested: a list of bools, or all. */
static void wanted(const char *mask, bool *gradients)
{
    for (int i = 0; i < 3; i++) {
        mask = strpbrk(mask, "TFtf");
        gradients[i] = mask == NULL || *mask == 'T' || *mask == 't';
        if (mask == NULL) mask = "";
        else mask += strcspn(mask, ",]");
    }
}

/* With h the normalized input and g the gradient times the weight: the input's gradient is (g - mean(g) - h mean(g h))
 * / deviation, the weight's is the sum of gradient times h, the bias's is the sum of the gradient. PLACE: the row of
 * `backwards`. */
fs_work fs_count_norm_backward(const fs_aten_rule *rule, const fs_torch_call *call)
{
    const norm_backward_layout *layout = &backwards[fs_option(rule, FS_PLACE)];
    const fs_torch_tensor *gradient = fs_sizes_tensor(call, layout->gradient);
    const fs_torch_tensor *input = fs_sizes_tensor(call, layout->input);
    if (gradient == NULL || input == NULL) return fs_work_unknown;
    bool trains = layout->training == 0 || fs_sizes_is_true(fs_sizes_text(call, layout->training));
    bool unrecorded = layout->training > 0 && fs_sizes_is_unrecorded(call, layout->training);
    bool has_weight = is_at(call, layout->weight), wants[3];
    wanted(layout->mask > 0 ? fs_sizes_text(call, layout->mask) : "", wants);
    double each = unrecorded ? (double)NAN : 0, elements = fs_sizes_elements(input), size = fs_sizes_item(input->dtype);
    double weight = has_weight ? bytes_at(call, layout->weight) : 0;
    if (wants[0] && trains) each += (layout->centred ? 7 : 5) + has_weight;
    if (wants[0] && !trains) each += 1 + has_weight;
    if ((wants[0] && trains) || wants[1]) each += layout->centred ? 2 : 1; /* h */
    if (wants[1]) each += 2;
    if (wants[2] && layout->centred) each += 1;
    double read = fs_sizes_read(gradient) + fs_sizes_read(input) + weight;
    for (unsigned i = 0; i < layout->statistic_count; i++) read += bytes_at(call, layout->statistics + i);
    double written = wants[0] * elements * size + (wants[1] + (layout->centred && wants[2])) * weight;
    return fs_sizes_work(fs_flops_of(each, elements, input->dtype), read, written, fs_unit_of_plain(input->dtype));
}
