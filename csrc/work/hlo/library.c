/* Custom calls, from their shapes and backend_config. */
#include <math.h>
#include <string.h>

#include "base/unused.h"
#include "work/aten/attention.h"
#include "work/aten/linalg.h"
#include "work/aten/multiply.h"
#include "work/hlo/cost_parts.h"

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
    return product(call, fs_hlo_convolution(call->module, call->instruction, shapes));
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
