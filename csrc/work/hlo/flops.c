/* FLOPs of instructions (conventions: docs/counting.md). Every rule is a function of the row and the instruction; what
 * the shapes do not tell is NaN. */
#include <math.h>
#include <string.h>

#include "base/unused.h"
#include "work/hlo/cost_parts.h"
#include "work/aten/multiply.h"
#include "work/aten/sizes.h"

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
    return fs_hlo_product(module, instruction, fs_hlo_convolution(module, instruction, shapes), NULL);
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
        pairs *= fs_hlo_window_pairs(module, instruction, d, fs_hlo_size(module, operand, d), (double)sizes[d],
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
