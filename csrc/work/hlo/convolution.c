/* Windows over an operand: convolutions and reductions of windows.
 *
 * A convolution multiplies each element of the output's space with each tap of the filter, as torch's does: padding
 * only changes its shapes. A dilated operand has zeros between its elements, and meeting those is no work. So the pairs
 * along a dimension are those of an output and a tap that fall on an element, or on padding in an element's place. They
 * are also at most one for each element and tap, because both determine the output. The gradients of a convolution,
 * which are convolutions with dilations and padding of their own, therefore count as much as it. */
#include <math.h>

#include "work/hlo/cost_parts.h"

enum { MOST_DILATION = 4096, MOST_TAPS = 4096 };

static int64_t value_at(const fs_hlo_module *module, uint32_t instruction, fs_hlo_attribute_key key, uint32_t place,
                        int64_t missing)
{
    uint32_t count;
    const int64_t *values = fs_hlo_values(module, instruction, key, &count);
    return place < count ? values[place] : missing;
}

static int64_t modulo(int64_t number, int64_t by)
{
    int64_t rest = number % by;
    return rest < 0 ? rest + by : rest;
}

/* Return the number of outputs and taps that meet at a multiple of the operand's dilation. */
static double undilated(double outputs, double taps, int64_t stride, int64_t step, int64_t padding, int64_t dilation)
{
    int64_t first[MOST_DILATION], period = 0;
    double pairs = 0;
    if (dilation <= 1 || outputs == 0) return outputs * taps;
    if (dilation > MOST_DILATION || !(taps <= MOST_TAPS)) return outputs * taps / (double)dilation;
    for (int64_t i = 0; i < dilation; i++) first[i] = -1;
    /* The outputs 0, 1, … begin at the remainders of their multiples of the stride, which repeat. */
    int64_t rest = 0, by = modulo(stride, dilation);
    for (period = 0; first[rest] < 0; period++, rest = (rest + by) % dilation) first[rest] = period;
    int64_t wanted = modulo(padding, dilation);
    step = modulo(step, dilation);
    for (int64_t tap = 0; tap < (int64_t)taps; tap++, wanted = modulo(wanted - step, dilation)) {
        if (first[wanted] < 0 || (double)first[wanted] >= outputs) continue;
        pairs += floor((outputs - 1 - (double)first[wanted]) / (double)period) + 1;
    }
    return pairs;
}

double fs_hlo_window_pairs(const fs_hlo_module *module, uint32_t instruction, uint32_t dimension, double operand,
                           double taps, double outputs)
{
    int64_t stride = value_at(module, instruction, FS_HLO_WINDOW_STRIDE, dimension, 1);
    int64_t low = value_at(module, instruction, FS_HLO_WINDOW_PAD_LOW, dimension, 0);
    int64_t high = value_at(module, instruction, FS_HLO_WINDOW_PAD_HIGH, dimension, 0);
    int64_t dilation = value_at(module, instruction, FS_HLO_WINDOW_LHS_DILATE, dimension, 1);
    int64_t step = value_at(module, instruction, FS_HLO_WINDOW_RHS_DILATE, dimension, 1);
    /* A cumulative sum: each window is the one before it and an element. */
    bool scans = taps == operand && outputs == operand && taps > 1 && stride == 1 && dilation == 1 && step == 1 &&
                 (low == 0 || high == 0);
    if (scans && fs_hlo_is(module, instruction, "reduce-window")) return operand;
    double pairs = undilated(outputs, taps, stride, step, low, dilation);
    return fmin(pairs, operand * taps);
}

/* Labels of an operand's dimensions; false if it has others. */
static bool find(const fs_hlo_module *module, uint32_t instruction, fs_hlo_attribute_key key, uint32_t shape,
                 int64_t *spatial, uint32_t spaces, int64_t *output_feature)
{
    uint32_t count, found = 0;
    const int64_t *labels = fs_hlo_values(module, instruction, key, &count);
    if (count > fs_hlo_rank(module, shape)) return false; /* vectors of features, "?", come last */
    for (uint32_t d = 0; d < count; d++) {
        if (labels[d] == FS_HLO_LABEL_OUTPUT) *output_feature = d; /* of a filter; elsewhere the batch */
        if (labels[d] < 0 || labels[d] >= spaces) continue;
        spatial[labels[d]] = d;
        found++;
    }
    return found == spaces;
}

/* A convolution along its dimensions in space. */
typedef struct {
    uint32_t spaces;
    int64_t input[FS_HLO_MOST_RANK], filter[FS_HLO_MOST_RANK], output[FS_HLO_MOST_RANK]; /* their dimensions */
    int64_t features; /* the filter's dimension of output features */
} dimensions;

static bool find_dimensions(const fs_hlo_module *module, uint32_t instruction, const uint32_t shapes[3], dimensions *of)
{
    int64_t batch;
    uint32_t labels;
    of->features = -1;
    fs_hlo_values(module, instruction, FS_HLO_WINDOW_SIZE, &of->spaces);
    fs_hlo_values(module, instruction, FS_HLO_LHS_LABELS, &labels);
    if (of->spaces > FS_HLO_MOST_RANK || (of->spaces == 0 && labels > 2)) return false;
    return find(module, instruction, FS_HLO_LHS_LABELS, shapes[0], of->input, of->spaces, &batch) &&
           find(module, instruction, FS_HLO_RHS_LABELS, shapes[1], of->filter, of->spaces, &of->features) &&
           find(module, instruction, FS_HLO_OUT_LABELS, shapes[2], of->output, of->spaces, &batch);
}

double fs_hlo_convolution(const fs_hlo_module *module, uint32_t instruction, const uint32_t shapes[3])
{
    dimensions of;
    if (!find_dimensions(module, instruction, shapes, &of)) return NAN;
    /* Each element of the output is a sum over a filter of one output feature. */
    double outputs = fs_hlo_count(module, shapes[2]), pairs = fs_hlo_count(module, shapes[1]);
    if (outputs == 0 || pairs == 0) return 0;
    pairs *= outputs / fs_hlo_size(module, shapes[1], of.features);
    for (uint32_t d = 0; d < of.spaces; d++) {
        double taps = fs_hlo_size(module, shapes[1], of.filter[d]),
               places = fs_hlo_size(module, shapes[2], of.output[d]);
        double size = fs_hlo_size(module, shapes[0], of.input[d]);
        pairs *= fs_hlo_window_pairs(module, instruction, d, size, taps, places) / (taps * places);
    }
    return pairs;
}

double fs_hlo_convolution_met(const fs_hlo_module *module, uint32_t instruction)
{
    uint32_t shapes[3];
    dimensions of;
    double met = 1;
    if (!fs_hlo_library_convolution(module, instruction, shapes)) {
        if (!fs_hlo_is(module, instruction, "convolution")) return 1;
        for (uint32_t i = 0; i < 2; i++) shapes[i] = fs_hlo_operand_shape(module, instruction, i);
        shapes[2] = fs_hlo_result(module, instruction);
    }
    if (shapes[0] != fs_hlo_operand_shape(module, instruction, 0)) return 1;
    if (!find_dimensions(module, instruction, shapes, &of)) return 1;
    for (uint32_t d = 0; d < of.spaces; d++) {
        double size = fs_hlo_size(module, shapes[0], of.input[d]);
        double reached = fs_hlo_size(module, shapes[1], of.filter[d]) * fs_hlo_size(module, shapes[2], of.output[d]);
        if (reached < size) met *= reached / size;
    }
    return met;
}
