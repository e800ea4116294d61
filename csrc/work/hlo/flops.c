/* FLOPs of instructions (conventions: docs/counting.md). Every rule is a function of the row and the instruction; what
 * the shapes do not tell is NaN. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/unused.h"
#include "work/aten/attention.h"
#include "work/aten/linalg.h"
#include "work/aten/products.h"
#include "work/aten/sizes.h"
#include "work/hlo/cost_parts.h"

/* Numbers and texts of a backend_config, which is JSON. Its keys differ from one another and from its values, so a key
 * is found as text; a config that is no JSON has none. */

/* Return the text after `"key":`, or NULL. */
static const char *after(const char *config, const char *key)
{
    size_t size = strlen(key);
    for (const char *at = config; at != NULL && (at = strstr(at, key)) != NULL; at += size) {
        const char *end = at + size;
        if (at == config || at[-1] != '"' || *end != '"') continue;
        end += 1 + strspn(end + 1, " ");
        if (*end == ':') return end + 1 + strspn(end + 1, " ");
    }
    return NULL;
}

int fs_hlo_config_numbers(const char *config, const char *key, double *numbers, int capacity)
{
    const char *text = after(config, key);
    int count = 0;
    if (text == NULL) return -1;
    bool list = *text == '[';
    text += list;
    for (;;) {
        char *end;
        text += strspn(text, list ? "\", " : "\"");
        if (*text != '-' && (*text < '0' || *text > '9')) return count;
        double number = strtod(text, &end);
        if (end == text) return count;
        if (count == capacity) return count;
        numbers[count++] = number;
        if (!list) return count;
        text = end;
    }
}

double fs_hlo_config_number(const char *config, const char *key, double missing)
{
    double number;
    return fs_hlo_config_numbers(config, key, &number, 1) == 1 ? number : missing;
}

bool fs_hlo_config_is(const char *config, const char *key, const char *text)
{
    const char *value = after(config, key);
    size_t size = strlen(text);
    if (value == NULL) return false;
    value += *value == '"';
    return strncmp(value, text, size) == 0 && strchr("\",}]", value[size]) != NULL;
}

bool fs_hlo_config_has(const char *config, const char *key, const char *text)
{
    const char *value = after(config, key), *found = value != NULL ? strstr(value, text) : NULL;
    return found != NULL && found < value + strcspn(value, *value == '[' ? "]" : ",}");
}

/* Windows over an operand: convolutions and reductions of windows.
 *
 * A convolution multiplies each element of the output's space with each tap of the filter, as torch's does: padding
 * only changes its shapes. A dilated operand has zeros between its elements, and meeting those is no work. So the pairs
 * along a dimension are those of an output and a tap that fall on an element, or on padding in an element's place. They
 * are also at most one for each element and tap, because both determine the output. The gradients of a convolution,
 * which are convolutions with dilations and padding of their own, therefore count as much as it. */

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

/* Return how often, along a dimension of the window, an element of the operand meets a tap. */
static double window_pairs(const fs_hlo_module *module, uint32_t instruction, uint32_t dimension, double operand,
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
static bool find_labels(const fs_hlo_module *module, uint32_t instruction, fs_hlo_attribute_key key, uint32_t shape,
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
} convolved;

static bool find_dimensions(const fs_hlo_module *module, uint32_t instruction, const uint32_t shapes[3], convolved *of)
{
    int64_t batch;
    uint32_t labels;
    of->features = -1;
    fs_hlo_values(module, instruction, FS_HLO_WINDOW_SIZE, &of->spaces);
    fs_hlo_values(module, instruction, FS_HLO_LHS_LABELS, &labels);
    if (of->spaces > FS_HLO_MOST_RANK || (of->spaces == 0 && labels > 2)) return false;
    return find_labels(module, instruction, FS_HLO_LHS_LABELS, shapes[0], of->input, of->spaces, &batch) &&
           find_labels(module, instruction, FS_HLO_RHS_LABELS, shapes[1], of->filter, of->spaces, &of->features) &&
           find_labels(module, instruction, FS_HLO_OUT_LABELS, shapes[2], of->output, of->spaces, &batch);
}

/* Return the multiply-adds of a convolution of input and filter to output, whichever of these shapes is the result. */
static double hlo_convolution(const fs_hlo_module *module, uint32_t instruction, const uint32_t shapes[3])
{
    convolved of;
    if (!find_dimensions(module, instruction, shapes, &of)) return NAN;
    /* Each element of the output is a sum over a filter of one output feature. */
    double outputs = fs_hlo_count(module, shapes[2]), pairs = fs_hlo_count(module, shapes[1]);
    if (outputs == 0 || pairs == 0) return 0;
    pairs *= outputs / fs_hlo_size(module, shapes[1], of.features);
    for (uint32_t d = 0; d < of.spaces; d++) {
        double taps = fs_hlo_size(module, shapes[1], of.filter[d]),
               places = fs_hlo_size(module, shapes[2], of.output[d]);
        double size = fs_hlo_size(module, shapes[0], of.input[d]);
        pairs *= window_pairs(module, instruction, d, size, taps, places) / (taps * places);
    }
    return pairs;
}

double fs_hlo_convolution_met(const fs_hlo_module *module, uint32_t instruction)
{
    uint32_t shapes[3];
    convolved of;
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

/* Custom calls, from their shapes and backend_config. */

enum { FS_CONVOLVED_OUTPUT, FS_CONVOLVED_INPUT, FS_CONVOLVED_FILTER };

typedef struct {
    const fs_hlo_module *module;
    uint32_t instruction, result; /* the shape of the first result */
    const char *target, *config;
    int option;
} custom;

typedef fs_hlo_flops rule(const custom *call);

static uint32_t operand_shape(const custom *call, uint32_t place)
{
    return fs_hlo_operand_shape(call->module, call->instruction, place);
}

static fs_hlo_flops count_moves(const custom *FS_UNUSED(call))
{
    return fs_hlo_flops_none();
}

static fs_hlo_flops count_unknown(const custom *FS_UNUSED(call))
{
    return fs_hlo_flops_unknown();
}

static fs_hlo_flops count_per_result(const custom *call)
{
    return fs_hlo_flops_plain(call->option * fs_hlo_count(call->module, call->result),
                              fs_hlo_dtype(call->module, call->result));
}

static fs_hlo_flops product(const custom *call, double multiply_adds)
{
    return fs_hlo_product(call->module, call->instruction, multiply_adds, call->config);
}

/* The readers make attributes of the config's dimensions. */
static fs_hlo_flops count_product(const custom *call)
{
    uint32_t count;
    fs_hlo_values(call->module, call->instruction, FS_HLO_LHS_CONTRACTING, &count);
    if (count == 0) return fs_hlo_flops_unknown();
    return product(call, fs_hlo_count(call->module, call->result) * fs_hlo_contracted(call->module, call->instruction));
}

/* oneDNN sums over the last axis of the first factor, or the one before it if it is transposed. */
static fs_hlo_flops count_last_axis(const custom *call)
{
    uint32_t left = operand_shape(call, 0);
    int64_t axis = (int64_t)fs_hlo_rank(call->module, left) - 1 - fs_hlo_config_is(call->config, "transpose_a", "true");
    return product(call, fs_hlo_count(call->module, call->result) * fs_hlo_size(call->module, left, axis));
}

/* Set the input, filter and output of a convolution. */
static void set_shapes(const custom *call, uint32_t shapes[3])
{
    static const int PLACES[][3] = {/* 0 and 1: operands; 2: the result */
                                    [FS_CONVOLVED_OUTPUT] = {0, 1, 2},
                                    [FS_CONVOLVED_INPUT] = {2, 1, 0},
                                    [FS_CONVOLVED_FILTER] = {0, 2, 1}};
    const uint32_t known[] = {operand_shape(call, 0), operand_shape(call, 1), call->result};
    for (int i = 0; i < 3; i++) shapes[i] = known[PLACES[call->option][i]];
}

static fs_hlo_flops count_convolution(const custom *call)
{
    uint32_t shapes[3];
    set_shapes(call, shapes);
    return product(call, hlo_convolution(call->module, call->instruction, shapes));
}

/* The scores [batch, heads, queries, keys] are in the config, the sizes of heads follow from the shapes. Backward: five
 * products, as aten's. */
static fs_hlo_flops count_attention(const custom *call)
{
    double scores[4], window = fs_hlo_config_number(call->config, "sliding_window_length", 0);
    if (fs_hlo_config_numbers(call->config, "dimensions", scores, 4) != 4) return fs_hlo_flops_unknown();
    double rows = scores[2], columns = scores[3], heads = scores[0] * scores[1], queries = heads * rows;
    bool causal = fs_hlo_config_has(call->config, "mask_type", "CAUSAL"), backward = strstr(call->target, "Backward");
    double size = fs_hlo_count(call->module, operand_shape(call, 0)) / queries;
    /* The result, and backward the gradient of the queries, which has their size; keys and values are alike. */
    double value_size = backward ? size : fs_hlo_count(call->module, call->result) / queries;
    double pairs = causal ? fs_attention_reached(rows, columns, 1) : rows * columns;
    if (causal && window > 0) pairs -= fs_attention_reached(rows, columns, 1 - window);
    double sizes = backward ? 3 * size + 2 * value_size : size + value_size;
    fs_hlo_flops flops = product(call, heads * pairs * sizes);
    flops.at_most = fs_hlo_config_has(call->config, "mask_type", "PADDING");
    return flops;
}

/* Normalisation with weight and bias, and its gradients. */
static fs_hlo_flops count_norm(const custom *call)
{
    uint32_t input = operand_shape(call, 0);
    double each = fs_hlo_config_has(call->config, "kind", "BWD") ? 13 : 7;
    return fs_hlo_flops_plain(each * fs_hlo_count(call->module, input), fs_hlo_dtype(call->module, input));
}

static const struct {
    double mn2, n3, n2k;
} factors[] = {
#define COSTS(NAME, matrix, right, mn2, n3, n2k, ...) [FS_FACTOR_##NAME] = {mn2, n3, n2k},
    FS_FACTOR_LIST(COSTS)
#undef COSTS
};

static fs_hlo_flops count_factor(const custom *call)
{
    uint32_t matrix = operand_shape(call, 0), right = operand_shape(call, 1), rank = fs_hlo_rank(call->module, matrix);
    if (rank < 2) return fs_hlo_flops_unknown();
    double rows = fs_hlo_size(call->module, matrix, (int64_t)rank - 1);
    double columns = fs_hlo_size(call->module, matrix, (int64_t)rank - 2), m = fmax(rows, columns),
           n = fmin(rows, columns);
    double batch = n > 0 ? fs_hlo_count(call->module, matrix) / (m * n) : 0;
    fs_torch_dtype dtype = fs_hlo_dtype(call->module, matrix);
    double flops = batch * (factors[call->option].mn2 * m * n * n + factors[call->option].n3 * n * n * n);
    if (factors[call->option].n2k > 0) flops += factors[call->option].n2k * n * fs_hlo_count(call->module, right);
    return fs_hlo_flops_plain(fs_products_flops_each(dtype) / 2 * flops, dtype);
}

typedef enum { IS, BEGINS, HAS } match;

typedef struct {
    match match;
    const char *text;
    rule *count;
    int option;
    fs_hlo_run run;
    bool workspace;
} library;

static const library rows[] = {
#define FS_HLO_LIBRARY(match, text, rule, option, RUN, workspace) \
    {match, text, count_##rule, option, FS_HLO_##RUN, workspace},
#include "work/hlo/library.def"
#undef FS_HLO_LIBRARY
};

static bool is_bytes(const fs_hlo_shape *shape)
{
    return (shape->type == FS_HLO_S8 || shape->type == FS_HLO_U8) && shape->sizes.count == 1;
}

static const char *target_of(const fs_hlo_module *module, uint32_t instruction)
{
    const char *target = fs_hlo_text(module, module->instructions[instruction].target);
    return target != NULL ? target : "";
}

static const library *find(const char *target)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *found = strstr(target, rows[i].text);
        if (found == NULL || (rows[i].match != HAS && found != target)) continue;
        if (rows[i].match != IS || target[strlen(rows[i].text)] == 0) return &rows[i];
    }
    return NULL;
}

/* Return the row of a call; NULL: its target is unknown. One without operands that returns bytes is scratch memory, as
 * XLA gives to fusions that cuDNN runs, whatever its name. */
static const library *row_of(const fs_hlo_module *module, uint32_t instruction)
{
    static const library scratch = {IS, "", count_moves, 0, FS_HLO_NOTHING, false};
    const library *row = find(target_of(module, instruction));
    uint32_t shape = module->instructions[instruction].shape;
    bool bytes = shape != FS_NONE && is_bytes(&module->shapes[shape]);
    return row == NULL && bytes && module->instructions[instruction].operands.count == 0 ? &scratch : row;
}

fs_hlo_run fs_hlo_library_run(const fs_hlo_module *module, uint32_t instruction)
{
    const library *row = row_of(module, instruction);
    return row != NULL ? row->run : FS_HLO_RUNS;
}

bool fs_hlo_library_has_workspace(const fs_hlo_module *module, uint32_t instruction)
{
    uint32_t result = fs_hlo_result(module, instruction);
    if (result == FS_NONE || module->shapes[result].type != FS_HLO_TUPLE) return false;
    fs_hlo_list parts = module->shapes[result].parts;
    if (parts.count < 2) return false;
    const fs_hlo_shape *last = &module->shapes[module->shape_parts[parts.first + parts.count - 1]];
    const library *row = is_bytes(last) ? row_of(module, instruction) : NULL;
    return row != NULL && row->workspace;
}

/* Describe a call; NULL: its target is unknown. */
static const library *describe(const fs_hlo_module *module, uint32_t instruction, custom *call)
{
    const char *config = fs_hlo_text(module, module->instructions[instruction].config);
    const library *row = row_of(module, instruction);
    uint32_t result = fs_hlo_result(module, instruction);
    if (result != FS_NONE && module->shapes[result].type == FS_HLO_TUPLE) {
        fs_hlo_list parts = module->shapes[result].parts;
        result = parts.count > 0 ? module->shape_parts[parts.first] : FS_NONE;
    }
    *call = (custom){module,
                     instruction,
                     result,
                     target_of(module, instruction),
                     config != NULL ? config : "",
                     row != NULL ? row->option : 0};
    return row;
}

bool fs_hlo_library_convolution(const fs_hlo_module *module, uint32_t instruction, uint32_t shapes[3])
{
    custom call;
    if (module->instructions[instruction].target == FS_NONE) return false;
    const library *row = describe(module, instruction, &call);
    if (row == NULL || row->count != count_convolution) return false;
    set_shapes(&call, shapes);
    return true;
}

fs_hlo_flops fs_hlo_count_library(fs_hlo_costs *costs, const fs_hlo_opcode *FS_UNUSED(row), uint32_t instruction)
{
    custom call;
    const library *found = describe(costs->module, instruction, &call);
    return found != NULL ? found->count(&call) : fs_hlo_flops_unknown();
}

fs_hlo_flops fs_hlo_flops_none(void)
{
    return (fs_hlo_flops){.unit = {FS_UNIT_NONE, FS_UNIT_NONE}};
}

fs_hlo_flops fs_hlo_flops_unknown(void)
{
    return (fs_hlo_flops){.flops = NAN, .unit = {FS_UNIT_NONE, FS_UNIT_NONE}};
}

fs_hlo_flops fs_hlo_flops_plain(double flops, fs_torch_dtype dtype)
{
    if (flops == 0 || dtype == FS_TORCH_DTYPE_NONE) return flops == 0 ? fs_hlo_flops_none() : fs_hlo_flops_unknown();
    flops = fs_sizes_is_float(dtype) ? flops : 0;
    return (fs_hlo_flops){.flops = flops, .unit = fs_unit_of_plain(dtype), .most = flops};
}

/* The unit of products of float32 factors follows from the algorithm, if one is named: "dot_tf32_tf32_f32",
 * "ALG_DOT_BF16_BF16_F32". Otherwise they may run as TF32, which only the kernels show. */
static fs_unit_choice float32_unit(const char *precision)
{
    static const struct {
        const char *text;
        fs_unit_choice unit;
    } stated[] = {
        {"tf32", {FS_UNIT_TF32_TENSOR, FS_UNIT_FP32}},     {"TF32", {FS_UNIT_TF32_TENSOR, FS_UNIT_FP32}},
        {"dot_bf16", {FS_UNIT_BF16_TENSOR, FS_UNIT_FP32}}, {"DOT_BF16", {FS_UNIT_BF16_TENSOR, FS_UNIT_FP32}},
        {"dot_f16", {FS_UNIT_FP16_TENSOR, FS_UNIT_FP32}},  {"DOT_F16", {FS_UNIT_FP16_TENSOR, FS_UNIT_FP32}},
    };
    for (size_t i = 0; precision != NULL && i < sizeof stated / sizeof *stated; i++)
        if (strstr(precision, stated[i].text) != NULL) return stated[i].unit;
    return fs_unit_of_product(FS_TORCH_FLOAT32);
}

int fs_hlo_precision(const fs_hlo_module *module, uint32_t instruction)
{
    const char *config = fs_hlo_text(module, module->instructions[instruction].config);
    uint32_t count;
    const int64_t *numbers = fs_hlo_values(module, instruction, FS_HLO_PRECISION, &count);
    int most = 0;
    for (uint32_t i = 0; i < count; i++) most = numbers[i] > most && numbers[i] <= 2 ? (int)numbers[i] : most;
    if (most < 1 && fs_hlo_config_has(config, "operand_precision", "\"HIGH\"")) most = 1;
    if (most < 2 && fs_hlo_config_has(config, "operand_precision", "\"HIGHEST\"")) most = 2;
    if (fs_hlo_config_is(config, "algorithm", "ALG_DOT_F32_F32_F32")) most = 2;
    return most;
}

fs_hlo_flops fs_hlo_product(const fs_hlo_module *module, uint32_t instruction, double multiply_adds,
                            const char *precision)
{
    fs_torch_dtype left = fs_hlo_dtype(module, fs_hlo_operand_shape(module, instruction, 0));
    fs_torch_dtype right = fs_hlo_dtype(module, fs_hlo_operand_shape(module, instruction, 1));
    fs_torch_dtype dtype = fs_torch_dtypes[right].size > fs_torch_dtypes[left].size ? right : left;
    double flops = fs_products_flops_each(dtype) * multiply_adds;
    fs_unit_choice unit = dtype == FS_TORCH_FLOAT32 ? float32_unit(precision) : fs_unit_of_product(dtype);
    if (dtype == FS_TORCH_FLOAT32 && fs_hlo_precision(module, instruction) == 2)
        unit = (fs_unit_choice){FS_UNIT_FP32, FS_UNIT_FP32};
    return (fs_hlo_flops){.flops = flops, .product = flops, .unit = unit, .most = flops};
}

double fs_hlo_bounded(double number)
{
    return number >= 0 && number <= 1e120 ? number : (double)NAN;
}

static fs_hlo_flops bounded(fs_hlo_flops of)
{
    of.flops = fs_hlo_bounded(of.flops);
    of.product = fs_hlo_bounded(of.product);
    if (isnan(of.flops)) of.most = 0;
    return of;
}

void fs_hlo_flops_add(fs_hlo_flops *sum, fs_hlo_flops part, double times)
{
    if (times == 0) return;
    sum->flops += times * part.flops;
    sum->product += times * part.product;
    sum->at_most = sum->at_most || part.at_most;
    if (times * part.most > sum->most) {
        sum->most = times * part.most;
        sum->unit = part.unit;
    }
    *sum = bounded(*sum);
}

static bool has_name_of_product(const fs_hlo_module *module, uint32_t instruction)
{
    const char *scope = fs_hlo_text(module, module->instructions[instruction].op_name);
    const char *last = scope != NULL ? strrchr(scope, '/') : NULL;
    return scope != NULL && strcmp(last != NULL ? last + 1 : scope, "dot_general") == 0;
}

/* Return whether an instruction is a part of a product. XLA makes multiplications and sums of products of vectors and
 * of small ones, before it fuses them with what is around; both keep the name of the product. Sums of the sums of
 * parts, which have it too, are XLA's own. */
static bool is_of_product(const fs_hlo_module *module, uint32_t instruction)
{
    static const char *const moves[] = {"bitcast", "convert", "reshape", "transpose", "copy", NULL};
    bool sum = fs_hlo_is(module, instruction, "reduce");
    uint32_t source = fs_hlo_past(module, sum ? fs_hlo_operand(module, instruction, 0) : instruction, moves);
    return source != FS_NONE && fs_hlo_is(module, source, "multiply") && has_name_of_product(module, source) &&
           has_name_of_product(module, instruction);
}

fs_hlo_flops fs_hlo_flops_of(fs_hlo_costs *costs, uint32_t instruction)
{
    const fs_hlo_opcode *row = fs_hlo_opcode_of(costs->module, instruction, NULL);
    if (row == NULL) return fs_hlo_flops_unknown();
    fs_hlo_flops flops = row->flops(costs, row, instruction);
    if (is_of_product(costs->module, instruction)) flops.product = flops.flops;
    return bounded(flops);
}

fs_hlo_flops fs_hlo_count_each(fs_hlo_costs *costs, const fs_hlo_opcode *row, uint32_t instruction)
{
    if (row->each == 0) return fs_hlo_flops_none();
    uint32_t result = fs_hlo_result(costs->module, instruction);
    return fs_hlo_flops_plain(row->each * fs_hlo_count(costs->module, result), fs_hlo_dtype(costs->module, result));
}

fs_hlo_flops fs_hlo_count_inputs(fs_hlo_costs *costs, const fs_hlo_opcode *row, uint32_t instruction)
{
    uint32_t input = fs_hlo_operand_shape(costs->module, instruction, 0);
    return fs_hlo_flops_plain(row->each * fs_hlo_count(costs->module, input), fs_hlo_dtype(costs->module, input));
}

fs_hlo_flops fs_hlo_count_moves(fs_hlo_costs *FS_UNUSED(costs), const fs_hlo_opcode *FS_UNUSED(row),
                                uint32_t FS_UNUSED(instruction))
{
    return fs_hlo_flops_none();
}

fs_hlo_flops fs_hlo_count_sums(fs_hlo_costs *FS_UNUSED(costs), const fs_hlo_opcode *FS_UNUSED(row),
                               uint32_t FS_UNUSED(instruction))
{
    return fs_hlo_flops_unknown();
}

fs_hlo_flops fs_hlo_count_unknown(fs_hlo_costs *FS_UNUSED(costs), const fs_hlo_opcode *FS_UNUSED(row),
                                  uint32_t FS_UNUSED(instruction))
{
    return fs_hlo_flops_unknown();
}

/* Return the cost of the computation that an instruction calls at a place. */
static fs_hlo_flops body_at(fs_hlo_costs *costs, uint32_t instruction, uint32_t place)
{
    uint32_t computation = fs_hlo_called(costs->module, instruction, place);
    return computation == FS_NONE ? fs_hlo_flops_unknown() : fs_hlo_body_of(costs, computation)->flops;
}

static fs_hlo_flops times(fs_hlo_flops of, double factor)
{
    fs_hlo_flops product = fs_hlo_flops_none();
    fs_hlo_flops_add(&product, of, factor);
    return product;
}

fs_hlo_flops fs_hlo_count_called(fs_hlo_costs *costs, const fs_hlo_opcode *FS_UNUSED(row), uint32_t instruction)
{
    return body_at(costs, instruction, 0);
}

fs_hlo_flops fs_hlo_count_mapped(fs_hlo_costs *costs, const fs_hlo_opcode *FS_UNUSED(row), uint32_t instruction)
{
    double elements = fs_hlo_count(costs->module, fs_hlo_result(costs->module, instruction));
    return times(body_at(costs, instruction, 0), elements);
}

/* A loop within a body. */
fs_hlo_flops fs_hlo_count_loop(fs_hlo_costs *costs, const fs_hlo_opcode *FS_UNUSED(row), uint32_t instruction)
{
    uint32_t count;
    const int64_t *trips = fs_hlo_values(costs->module, instruction, FS_HLO_TRIP_COUNT, &count);
    return times(body_at(costs, instruction, 0), count == 1 ? (double)trips[0] : (double)NAN);
}

/* A conditional within a body: at most the branch with the most. */
fs_hlo_flops fs_hlo_count_branches(fs_hlo_costs *costs, const fs_hlo_opcode *FS_UNUSED(row), uint32_t instruction)
{
    fs_hlo_flops most = fs_hlo_flops_none();
    for (uint32_t place = 0; place < costs->module->instructions[instruction].called.count; place++) {
        fs_hlo_flops branch = body_at(costs, instruction, place);
        if (!(branch.flops <= most.flops)) most = branch;
    }
    most.at_most = true;
    return most;
}

double fs_hlo_contracted(const fs_hlo_module *module, uint32_t instruction)
{
    uint32_t count, left = fs_hlo_operand_shape(module, instruction, 0);
    const int64_t *dimensions = fs_hlo_values(module, instruction, FS_HLO_LHS_CONTRACTING, &count);
    double elements = 1;
    for (uint32_t i = 0; i < count; i++) elements *= fs_hlo_size(module, left, dimensions[i]);
    return elements;
}

fs_hlo_flops fs_hlo_count_dot(fs_hlo_costs *costs, const fs_hlo_opcode *FS_UNUSED(row), uint32_t instruction)
{
    const fs_hlo_module *module = costs->module;
    double elements = fs_hlo_count(module, fs_hlo_result(module, instruction));
    return fs_hlo_product(module, instruction, elements * fs_hlo_contracted(module, instruction),
                          fs_hlo_text(module, module->instructions[instruction].kind));
}

/* The groups divide the rows, and rows of no group are not multiplied. */
fs_hlo_flops fs_hlo_count_ragged_dot(fs_hlo_costs *costs, const fs_hlo_opcode *row, uint32_t instruction)
{
    fs_hlo_flops flops = fs_hlo_count_dot(costs, row, instruction);
    flops.at_most = true;
    return flops;
}

fs_hlo_flops fs_hlo_count_convolution(fs_hlo_costs *costs, const fs_hlo_opcode *FS_UNUSED(row), uint32_t instruction)
{
    const fs_hlo_module *module = costs->module;
    const uint32_t shapes[] = {fs_hlo_operand_shape(module, instruction, 0),
                               fs_hlo_operand_shape(module, instruction, 1), fs_hlo_result(module, instruction)};
    return fs_hlo_product(module, instruction, hlo_convolution(module, instruction, shapes), NULL);
}

/* Each element of the first operand meets the reduction once; more operands are reduced together. */
fs_hlo_flops fs_hlo_count_reduce(fs_hlo_costs *costs, const fs_hlo_opcode *FS_UNUSED(row), uint32_t instruction)
{
    return times(body_at(costs, instruction, 0),
                 fs_hlo_count(costs->module, fs_hlo_operand_shape(costs->module, instruction, 0)));
}

fs_hlo_flops fs_hlo_count_windows(fs_hlo_costs *costs, const fs_hlo_opcode *FS_UNUSED(row), uint32_t instruction)
{
    const fs_hlo_module *module = costs->module;
    uint32_t operand = fs_hlo_operand_shape(module, instruction, 0), output = fs_hlo_result(module, instruction), count;
    const int64_t *sizes = fs_hlo_values(module, instruction, FS_HLO_WINDOW_SIZE, &count);
    double pairs = 1;
    while (output != FS_NONE && module->shapes[output].type == FS_HLO_TUPLE && module->shapes[output].parts.count > 0)
        output = module->shape_parts[module->shapes[output].parts.first];
    if (count != fs_hlo_rank(module, operand)) return fs_hlo_flops_unknown();
    for (uint32_t d = 0; d < count; d++) {
        pairs *= window_pairs(module, instruction, d, fs_hlo_size(module, operand, d), (double)sizes[d],
                              fs_hlo_size(module, output, d));
    }
    return times(body_at(costs, instruction, 0), pairs);
}

/* Operands, indices, and as many updates as operands. */
fs_hlo_flops fs_hlo_count_scatter(fs_hlo_costs *costs, const fs_hlo_opcode *FS_UNUSED(row), uint32_t instruction)
{
    uint32_t operands = costs->module->instructions[instruction].operands.count / 2;
    return times(body_at(costs, instruction, 0),
                 fs_hlo_count(costs->module, fs_hlo_operand_shape(costs->module, instruction, operands + 1)));
}

/* Each element of the source is scattered to the one that its window selects: select=…, scatter=…. */
fs_hlo_flops fs_hlo_count_select_scatter(fs_hlo_costs *costs, const fs_hlo_opcode *FS_UNUSED(row), uint32_t instruction)
{
    uint32_t count;
    const int64_t *sizes = fs_hlo_values(costs->module, instruction, FS_HLO_WINDOW_SIZE, &count);
    double elements = fs_hlo_count(costs->module, fs_hlo_operand_shape(costs->module, instruction, 1)), window = 1;
    fs_hlo_flops sum = fs_hlo_flops_none();
    for (uint32_t d = 0; d < count; d++) window *= (double)sizes[d];
    fs_hlo_flops_add(&sum, body_at(costs, instruction, 0), elements * window);
    fs_hlo_flops_add(&sum, body_at(costs, instruction, 1), elements);
    return sum;
}

/* 5 n log2 n, half of that if one side is real (benchFFT), as aten's. */
fs_hlo_flops fs_hlo_count_fourier(fs_hlo_costs *costs, const fs_hlo_opcode *FS_UNUSED(row), uint32_t instruction)
{
    const fs_hlo_module *module = costs->module;
    uint32_t input = fs_hlo_operand_shape(module, instruction, 0), output = fs_hlo_result(module, instruction), count;
    const int64_t *lengths = fs_hlo_values(module, instruction, FS_HLO_FFT_LENGTH, &count);
    fs_torch_dtype from = fs_hlo_dtype(module, input), to = fs_hlo_dtype(module, output);
    bool real_in = fs_torch_dtypes[from].kind != FS_TORCH_COMPLEX,
         real_out = fs_torch_dtypes[to].kind != FS_TORCH_COMPLEX;
    double points = 1;
    if (count == 0) return fs_hlo_flops_unknown();
    for (uint32_t d = 0; d < count; d++) points *= (double)lengths[d];
    double elements = fs_hlo_count(module, real_out ? output : input);
    return fs_hlo_flops_plain((real_in || real_out ? 2.5 : 5) * elements * log2(fmax(points, 1)), from);
}

/* Read a batch of square matrices: their number and size; false if the shape is none. */
static bool matrices(const fs_hlo_module *module, uint32_t shape, double *size, double *batch)
{
    uint32_t rank = fs_hlo_rank(module, shape);
    if (rank < 2) return false;
    *size = fs_hlo_size(module, shape, (int64_t)rank - 1);
    *batch = *size > 0 ? fs_hlo_count(module, shape) / (*size * *size) : 0;
    return true;
}

static fs_hlo_flops solved(double multiples, fs_torch_dtype dtype)
{
    return fs_hlo_flops_plain(fs_products_flops_each(dtype) / 2 * multiples, dtype);
}

fs_hlo_flops fs_hlo_count_cholesky(fs_hlo_costs *costs, const fs_hlo_opcode *FS_UNUSED(row), uint32_t instruction)
{
    uint32_t shape = fs_hlo_operand_shape(costs->module, instruction, 0);
    double size, batch;
    if (!matrices(costs->module, shape, &size, &batch)) return fs_hlo_flops_unknown();
    return solved(batch * size * size * size / 3, fs_hlo_dtype(costs->module, shape));
}

fs_hlo_flops fs_hlo_count_triangular(fs_hlo_costs *costs, const fs_hlo_opcode *FS_UNUSED(row), uint32_t instruction)
{
    uint32_t shape = fs_hlo_operand_shape(costs->module, instruction, 0);
    uint32_t right = fs_hlo_operand_shape(costs->module, instruction, 1);
    double size, batch;
    if (!matrices(costs->module, shape, &size, &batch)) return fs_hlo_flops_unknown();
    return solved(size * fs_hlo_count(costs->module, right), fs_hlo_dtype(costs->module, shape));
}
