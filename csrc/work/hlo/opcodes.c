/* Rows of opcodes, found by bisection, and the shapes of an instruction. The name of an asynchronous opcode is that of
 * what it starts and a suffix; only those whose rule differs have a row. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "work/hlo/cost_parts.h"

static const fs_hlo_opcode rows[] = {
#define FS_HLO_OPCODE(name, RUN, flops, each, NEED) {name, FS_HLO_##RUN, fs_hlo_count_##flops, each, FS_NEED_##NEED},
#include "work/hlo/opcodes.def"
#undef FS_HLO_OPCODE
};

enum { ROW_COUNT = sizeof rows / sizeof *rows };

static const fs_hlo_opcode done = {"", FS_HLO_WAITS, fs_hlo_count_each, 0, FS_NEED_NONE};
static const fs_hlo_opcode update = {"", FS_HLO_NOTHING, fs_hlo_count_each, 0, FS_NEED_NONE};

const fs_hlo_opcode *fs_hlo_opcode_rows(uint32_t *count)
{
    *count = ROW_COUNT;
    return rows;
}

/* Return the row whose name is the first `size` bytes, or NULL. */
static const fs_hlo_opcode *find(const char *name, size_t size)
{
    size_t low = 0, high = ROW_COUNT;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strncmp(rows[middle].name, name, size);
        if (order == 0 && rows[middle].name[size] != 0) order = 1;
        if (order == 0) return &rows[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

const fs_hlo_opcode *fs_hlo_opcode_of(const fs_hlo_module *module, uint32_t instruction, bool *starts)
{
    const char *name = fs_hlo_text(module, module->instructions[instruction].opcode);
    if (starts != NULL) *starts = false;
    if (name == NULL) return NULL;
    size_t size = strlen(name);
    const fs_hlo_opcode *row = find(name, size);
    if (row != NULL) return row;
    if (fs_text_ends((fs_text){name, size}, "-done")) return &done;
    if (fs_text_ends((fs_text){name, size}, "-update")) return &update;
    if (!fs_text_ends((fs_text){name, size}, "-start")) return NULL;
    if (starts != NULL) *starts = true;
    return find(name, size - strlen("-start"));
}

bool fs_hlo_is(const fs_hlo_module *module, uint32_t instruction, const char *opcode)
{
    const char *name = fs_hlo_text(module, module->instructions[instruction].opcode);
    return name != NULL && strcmp(name, opcode) == 0;
}

uint32_t fs_hlo_operand(const fs_hlo_module *module, uint32_t instruction, uint32_t place)
{
    fs_hlo_list operands = module->instructions[instruction].operands;
    return place < operands.count ? module->operands[operands.first + place] : FS_NONE;
}

uint32_t fs_hlo_operand_shape(const fs_hlo_module *module, uint32_t instruction, uint32_t place)
{
    uint32_t operand = fs_hlo_operand(module, instruction, place);
    return operand == FS_NONE ? FS_NONE : module->instructions[operand].shape;
}

uint32_t fs_hlo_called(const fs_hlo_module *module, uint32_t instruction, uint32_t place)
{
    fs_hlo_list called = module->instructions[instruction].called;
    return place < called.count ? module->called[called.first + place] : FS_NONE;
}

/* Opcodes whose shape is a tuple of the result and what the end of the instruction needs. X(opcode, place); WHOLE: the
 * shape is the result's. Those of other asynchronous starts are ((operands), result, …). */
enum { WHOLE = -1, AFTER_OPERANDS = 1 };

static const struct {
    const char *opcode;
    int place;
} results[] = {
    {"all-reduce-start", WHOLE}, {"copy-start", 0}, {"infeed", 0}, {"recv", 0}, {"send", 2},
};

uint32_t fs_hlo_result(const fs_hlo_module *module, uint32_t instruction)
{
    uint32_t shape = module->instructions[instruction].shape;
    bool starts;
    if (shape == FS_NONE || module->shapes[shape].type != FS_HLO_TUPLE) return shape;
    const char *name = fs_hlo_text(module, module->instructions[instruction].opcode);
    fs_hlo_opcode_of(module, instruction, &starts);
    int place = starts ? AFTER_OPERANDS : WHOLE;
    for (size_t i = 0; name != NULL && i < sizeof results / sizeof *results; i++)
        if (strcmp(name, results[i].opcode) == 0) place = results[i].place;
    fs_hlo_list parts = module->shapes[shape].parts;
    bool nested = parts.count > 0 && module->shapes[module->shape_parts[parts.first]].type == FS_HLO_TUPLE;
    if (place == WHOLE && starts && nested) place = AFTER_OPERANDS; /* all-reduce-start since 2026 */
    if (place == WHOLE) return shape;
    return (uint32_t)place < parts.count ? module->shape_parts[parts.first + (uint32_t)place] : FS_NONE;
}

double fs_hlo_count(const fs_hlo_module *module, uint32_t shape)
{
    return shape == FS_NONE ? (double)NAN : fs_hlo_elements(module, shape);
}

uint32_t fs_hlo_rank(const fs_hlo_module *module, uint32_t shape)
{
    return shape == FS_NONE ? 0 : module->shapes[shape].sizes.count;
}

double fs_hlo_size(const fs_hlo_module *module, uint32_t shape, int64_t dimension)
{
    if (dimension < 0 || dimension >= fs_hlo_rank(module, shape)) return NAN;
    return (double)module->numbers[module->shapes[shape].sizes.first + (uint32_t)dimension];
}

static const fs_torch_dtype dtypes[FS_HLO_TYPE_COUNT] = {
    [FS_HLO_PRED] = FS_TORCH_BOOL,
    [FS_HLO_S1] = FS_TORCH_INT1,
    [FS_HLO_S2] = FS_TORCH_INT2,
    [FS_HLO_S4] = FS_TORCH_INT4,
    [FS_HLO_S8] = FS_TORCH_INT8,
    [FS_HLO_S16] = FS_TORCH_INT16,
    [FS_HLO_S32] = FS_TORCH_INT32,
    [FS_HLO_S64] = FS_TORCH_INT64,
    [FS_HLO_U1] = FS_TORCH_UINT1,
    [FS_HLO_U2] = FS_TORCH_UINT2,
    [FS_HLO_U4] = FS_TORCH_UINT4,
    [FS_HLO_U8] = FS_TORCH_UINT8,
    [FS_HLO_U16] = FS_TORCH_UINT16,
    [FS_HLO_U32] = FS_TORCH_UINT32,
    [FS_HLO_U64] = FS_TORCH_UINT64,
    [FS_HLO_F4E2M1FN] = FS_TORCH_FLOAT4_E2M1FN_X2,
    [FS_HLO_F8E3M4] = FS_TORCH_FLOAT8_E4M3FN,
    [FS_HLO_F8E4M3] = FS_TORCH_FLOAT8_E4M3FN,
    [FS_HLO_F8E4M3FN] = FS_TORCH_FLOAT8_E4M3FN,
    [FS_HLO_F8E4M3FNUZ] = FS_TORCH_FLOAT8_E4M3FNUZ,
    [FS_HLO_F8E4M3B11FNUZ] = FS_TORCH_FLOAT8_E4M3FNUZ,
    [FS_HLO_F8E5M2] = FS_TORCH_FLOAT8_E5M2,
    [FS_HLO_F8E5M2FNUZ] = FS_TORCH_FLOAT8_E5M2FNUZ,
    [FS_HLO_F8E8M0FNU] = FS_TORCH_FLOAT8_E8M0FNU,
    [FS_HLO_F16] = FS_TORCH_FLOAT16,
    [FS_HLO_BF16] = FS_TORCH_BFLOAT16,
    [FS_HLO_F32] = FS_TORCH_FLOAT32,
    [FS_HLO_F64] = FS_TORCH_FLOAT64,
    [FS_HLO_C64] = FS_TORCH_COMPLEX64,
    [FS_HLO_C128] = FS_TORCH_COMPLEX128,
    [FS_HLO_INVALID] = FS_TORCH_DTYPE_NONE,
    [FS_HLO_TUPLE] = FS_TORCH_DTYPE_NONE,
    [FS_HLO_TOKEN] = FS_TORCH_DTYPE_NONE,
    [FS_HLO_OPAQUE] = FS_TORCH_DTYPE_NONE,
    [FS_HLO_BUFFER] = FS_TORCH_DTYPE_NONE,
};

fs_torch_dtype fs_hlo_dtype(const fs_hlo_module *module, uint32_t shape)
{
    for (int depth = 0; shape != FS_NONE && depth <= FS_HLO_MOST_DEPTH; depth++) {
        const fs_hlo_shape *of = &module->shapes[shape];
        if (of->type != FS_HLO_TUPLE) return dtypes[of->type];
        shape = of->parts.count > 0 ? module->shape_parts[of->parts.first] : FS_NONE;
    }
    return FS_TORCH_DTYPE_NONE;
}

uint32_t fs_hlo_past(const fs_hlo_module *module, uint32_t instruction, const char *const *opcodes)
{
    enum { MOST = 64 };
    for (int depth = 0; depth < MOST && instruction != FS_NONE; depth++) {
        bool passed = false;
        for (const char *const *one = opcodes; *one != NULL && !passed; one++)
            passed = fs_hlo_is(module, instruction, *one);
        uint32_t operand = passed ? fs_hlo_operand(module, instruction, 0) : FS_NONE;
        if (operand == FS_NONE) break;
        instruction = operand;
    }
    return instruction;
}

static uint32_t past_renaming(const fs_hlo_module *module, uint32_t instruction)
{
    static const char *const renaming[] = {"bitcast", NULL};
    return fs_hlo_past(module, instruction, renaming);
}

/* Return whether a fusion only copies a part of a parameter, or a parameter into a part of another: XLA may call memcpy
 * instead of a kernel. */
static bool only_copies(const fs_hlo_module *module, uint32_t fusion)
{
    static const struct {
        const char *opcode;
        uint32_t copied; /* operands that are parameters */
    } COPIES[] = {{"dynamic-slice", 1}, {"slice", 1}, {"copy", 1}, {"dynamic-update-slice", 2}};
    uint32_t body = fs_hlo_called(module, fusion, 0);
    uint32_t root = body == FS_NONE ? FS_NONE : past_renaming(module, module->computations[body].root);
    for (size_t i = 0; root != FS_NONE && i < sizeof COPIES / sizeof *COPIES; i++) {
        if (!fs_hlo_is(module, root, COPIES[i].opcode)) continue;
        for (uint32_t place = 0; place < COPIES[i].copied; place++) {
            uint32_t operand = past_renaming(module, fs_hlo_operand(module, root, place));
            if (operand == FS_NONE || !fs_hlo_is(module, operand, "parameter")) return false;
        }
        return true;
    }
    return false;
}

fs_hlo_run fs_hlo_run_of(const fs_hlo_module *module, uint32_t instruction)
{
    const fs_hlo_opcode *row = fs_hlo_opcode_of(module, instruction, NULL);
    if (row == NULL) return FS_HLO_RUNS;
    if (row->flops == fs_hlo_count_library) return fs_hlo_library_run(module, instruction);
    if (row->need == FS_NEED_BODY && row->run == FS_HLO_RUNS && only_copies(module, instruction)) return FS_HLO_COPIES;
    return row->run;
}
