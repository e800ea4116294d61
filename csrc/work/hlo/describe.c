/* Scopes enclose source lines: a scope has many lines, and so few events stand for all of an execution's. */
#include "work/hlo/describe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device/units.h"
#include "work/category.h"
#include "work/hlo/cost_parts.h"

enum { MOST_NAME = 1024, MOST_PLACES = 64 };

void fs_hlo_describer_clear(fs_hlo_describer *of)
{
    fs_intern_clear(&of->places);
    fs_torch_builder_clear(&of->builder);
}

/* Categories ------------------------------------------------------------------------------------------------------- */

/* X(CATEGORY, what an opcode or a target begins with): the first that fits. A fusion has that of its body's. */
#define CATEGORIES(X)                     \
    X(COMMUNICATION, "all-")              \
    X(COMMUNICATION, "collective-")       \
    X(COMMUNICATION, "reduce-scatter")    \
    X(COMMUNICATION, "send")              \
    X(COMMUNICATION, "recv")              \
    X(ATTENTION, "__cudnn$fmha")          \
    X(NORMALISATION, "__cudnn$norm")      \
    X(NORMALISATION, "batch-norm")        \
    X(CONVOLUTION, "__cudnn$conv")        \
    X(CONVOLUTION, "convolution")         \
    X(PRODUCT, "__cublas$lt")             \
    X(PRODUCT, "__cublas$gemm")           \
    X(PRODUCT, "dot")                     \
    X(PRODUCT, "ragged-dot")              \
    X(LINEAR_ALGEBRA, "__cusolver")       \
    X(LINEAR_ALGEBRA, "__cublas$")        \
    X(LINEAR_ALGEBRA, "fft")              \
    X(LINEAR_ALGEBRA, "cholesky")         \
    X(LINEAR_ALGEBRA, "triangular-solve") \
    X(REDUCTION, "reduce")                \
    X(REDUCTION, "select-and-scatter")    \
    X(REDUCTION, "sort")                  \
    X(REDUCTION, "__cub$")                \
    X(POINTWISE, "rng")                   \
    X(COPIES, "copy")                     \
    X(COPIES, "scatter")                  \
    X(COPIES, "gather")

/* The order of CATEGORIES is that in which a body's instructions decide. */
static const struct {
    const char *prefix;
    fs_category category;
} categories[] = {
#define CATEGORY(NAME, prefix) {prefix, FS_CATEGORY_##NAME},
    CATEGORIES(CATEGORY)
#undef CATEGORY
};

enum { NO_ROW = sizeof categories / sizeof *categories };

static size_t row_of(const fs_hlo_module *module, uint32_t id)
{
    const fs_hlo_instruction *of = &module->instructions[id];
    const char *text = fs_hlo_text(module, of->target != FS_NONE ? of->target : of->opcode);
    for (size_t i = 0; text != NULL && i < NO_ROW; i++)
        if (strncmp(text, categories[i].prefix, strlen(categories[i].prefix)) == 0) return i;
    return NO_ROW;
}

static fs_category category_of(const fs_hlo_module *module, uint32_t id, const fs_hlo_work *work)
{
    const fs_hlo_instruction *of = &module->instructions[id];
    const char *opcode = fs_hlo_text(module, of->opcode);
    size_t row = row_of(module, id);
    for (uint32_t place = 0; row == NO_ROW && place < of->called.count; place++) {
        uint32_t called = fs_hlo_called(module, id, place);
        if (called == FS_NONE) continue;
        fs_hlo_list list = module->computations[called].instructions;
        for (uint32_t i = list.first; i < list.first + list.count; i++) {
            size_t inner = row_of(module, i);
            if (inner < row) row = inner;
        }
    }
    if (row != NO_ROW) return categories[row].category;
    if (work->work.flops > 0) return FS_CATEGORY_POINTWISE;
    return opcode == NULL || strcmp(opcode, "custom-call") == 0 ? FS_CATEGORY_OTHER : FS_CATEGORY_COPIES;
}

/* Calls ------------------------------------------------------------------------------------------------------------ */

static fs_status add_shape(fs_hlo_describer *of, const fs_hlo_module *module, uint32_t id, fs_error *err)
{
    const fs_hlo_shape *shape = &module->shapes[id];
    if (shape->parts.count == 0) {
        bool known = shape->sizes.count <= FS_HLO_MOST_RANK && shape->type != FS_HLO_TUPLE;
        fs_torch_tensor tensor = {.dtype = (uint8_t)fs_hlo_dtype(module, id),
                                  .ndim = known ? shape->sizes.count : 0,
                                  .shape = module->numbers + shape->sizes.first};
        return fs_torch_add_tensor(&of->builder, &tensor, err);
    }
    for (uint32_t i = 0; i < shape->parts.count; i++)
        FS_TRY(add_shape(of, module, module->shape_parts[shape->parts.first + i], err));
    return FS_OK;
}

static fs_status describe_call(fs_hlo_describer *of, const fs_hlo_remarks *remarks, uint32_t id,
                               const fs_hlo_work *work, uint32_t *signature, fs_error *err)
{
    const fs_hlo_module *module = remarks->module;
    char remark[MOST_NAME / 4];
    fs_hlo_list operands = module->instructions[id].operands;
    fs_torch_recorded recorded = {.flops = work->work.flops,
                                  .bytes_read = work->work.bytes_read,
                                  .bytes_written = work->work.bytes_written,
                                  .bytes = work->work.bytes_moved};
    if (work->work.flops > 0 && work->work.unit.preferred != FS_UNIT_NONE)
        snprintf(recorded.unit, sizeof recorded.unit, "%s", fs_units[work->work.unit.preferred].name);
    snprintf(recorded.category, sizeof recorded.category, "%s", fs_categories[category_of(module, id, work)].name);
    FS_TRY(fs_torch_begin(&of->builder, err));
    FS_TRY(fs_torch_add_recorded(&of->builder, &recorded, err));
    for (uint32_t i = 0; i < operands.count; i++) {
        uint32_t shape = fs_hlo_operand_shape(module, id, i);
        if (shape != FS_NONE) FS_TRY(add_shape(of, module, shape, err));
        else FS_TRY(fs_torch_add_nothing(&of->builder, err));
    }
    if (fs_hlo_remark(remarks, id, remark, sizeof remark))
        FS_TRY(fs_torch_add_text(&of->builder, FS_TORCH_SCALAR, remark, strlen(remark), err));
    return fs_store_signature(of->store, of->builder.words, fs_torch_size(&of->builder), signature, err);
}

/* Places ----------------------------------------------------------------------------------------------------------- */

static fs_status add_place(fs_hlo_describer *of, const char *text, uint32_t *place, fs_error *err)
{
    fs_hlo_place key = {*place, FS_NONE};
    FS_TRY(fs_store_name(of->store, text, &key.name, err));
    return fs_intern_bytes(&of->places, &key, sizeof key, place, err);
}

/* Return the length of the first part of an op_name, which ends at a slash outside of parentheses. */
static size_t part_size(const char *text)
{
    int depth = 0;
    size_t size = 0;
    for (; text[size] != 0 && (text[size] != '/' || depth > 0); size++)
        depth += (text[size] == '(') - (text[size] == ')');
    return size;
}

static fs_status add_scopes(fs_hlo_describer *of, const fs_hlo_module *module, const fs_hlo_instruction *instruction,
                            uint32_t *place, fs_error *err)
{
    char text[MOST_NAME];
    const char *path = fs_hlo_text(module, instruction->op_name), *name = fs_hlo_text(module, module->name);
    bool any = false;
    for (int depth = 0; path != NULL && depth < MOST_PLACES; depth++) {
        size_t size = part_size(path);
        if (path[size] == 0) break; /* the last part is the primitive */
        snprintf(text, sizeof text, "scope: %.*s", size < MOST_NAME / 2 ? (int)size : MOST_NAME / 2, path);
        if (size > 0) FS_TRY(add_place(of, text, place, err));
        any = any || size > 0;
        path += size + 1;
    }
    if (any || name == NULL) return FS_OK;
    snprintf(text, sizeof text, "scope: %.*s", MOST_NAME / 2, name);
    return add_place(of, text, place, err);
}

static fs_status add_lines(fs_hlo_describer *of, const fs_hlo_module *module, uint32_t frame, uint32_t *place,
                           fs_error *err)
{
    char text[MOST_NAME];
    uint32_t frames[MOST_PLACES];
    int depth = 0;
    for (; frame != FS_NONE && depth < MOST_PLACES; frame = module->frames[frame].parent) frames[depth++] = frame;
    while (depth-- > 0) {
        const fs_hlo_frame *one = &module->frames[frames[depth]];
        const char *file = fs_hlo_text(module, one->file), *function = fs_hlo_text(module, one->function);
        if (file == NULL || *file == 0) continue;
        snprintf(text, sizeof text, "%.*s(%lld): %.*s", MOST_NAME / 2, file, (long long)one->line, MOST_NAME / 4,
                 function != NULL ? function : "");
        FS_TRY(add_place(of, text, place, err));
    }
    return FS_OK;
}

fs_status fs_hlo_describe(fs_hlo_describer *of, const fs_hlo_remarks *remarks, uint32_t id, const fs_hlo_work *work,
                          uint32_t number, fs_hlo_described *described, fs_error *err)
{
    const fs_hlo_module *module = remarks->module;
    char text[MOST_NAME], suffix[16] = "/";
    const fs_hlo_instruction *instruction = &module->instructions[id];
    const char *name = fs_hlo_text(module, instruction->name), *around = fs_hlo_text(module, module->name);
    if (around == NULL) around = "module";
    if (number > 1) snprintf(suffix, sizeof suffix, "(%u)/", number);
    snprintf(text, sizeof text, "%.*s%s%.*s", MOST_NAME / 3, number > 0 ? around : "", number > 0 ? suffix : "",
             MOST_NAME / 2, name != NULL ? name : "");
    *described = (fs_hlo_described){FS_NONE, FS_NONE, FS_NONE};
    FS_TRY(describe_call(of, remarks, id, work, &described->signature, err));
    FS_TRY(add_scopes(of, module, instruction, &described->place, err));
    FS_TRY(add_lines(of, module, instruction->frame, &described->place, err));
    return fs_store_name(of->store, text, &described->name, err);
}
