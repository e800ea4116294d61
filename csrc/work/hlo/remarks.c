/* A value is followed to where it comes from through what only renames it. XLA copies what it must not overwrite: the
 * entry's parameters unless they are donated, and parts of a loop's carry that are read after they were replaced. What
 * is asked of the rest of a module is found once for all of its instructions. */
#include "work/hlo/remarks.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "device/units.h"
#include "work/category.h"
#include "work/hlo/cost_parts.h"

enum { MOST_FUSED = 64 };

static bool renames(const fs_hlo_module *module, uint32_t id)
{
    return fs_hlo_is(module, id, "bitcast") || fs_hlo_is(module, id, "opt-barrier");
}

/* Return the instruction whose result this one is, renamed: possibly itself. */
static uint32_t source_of(const fs_hlo_module *module, uint32_t id, bool through_copies)
{
    static const char *const all[] = {"bitcast", "opt-barrier", "copy", NULL};
    static const char *const renaming[] = {"bitcast", "opt-barrier", NULL};
    return fs_hlo_past(module, id, through_copies ? all : renaming);
}

static bool same_shape(const fs_hlo_module *module, uint32_t left, uint32_t right)
{
    const fs_hlo_shape *a = &module->shapes[left], *b = &module->shapes[right];
    return a->type == b->type && a->sizes.count == b->sizes.count &&
           memcmp(module->numbers + a->sizes.first, module->numbers + b->sizes.first,
                  a->sizes.count * sizeof *module->numbers) == 0;
}

static bool same_layout(const fs_hlo_module *module, uint32_t left, uint32_t right)
{
    const fs_hlo_shape *a = &module->shapes[left], *b = &module->shapes[right];
    return same_shape(module, left, right) && a->space == b->space && a->layout.count == b->layout.count &&
           memcmp(module->numbers + a->layout.first, module->numbers + b->layout.first,
                  a->layout.count * sizeof *module->numbers) == 0;
}

/* Arguments -------------------------------------------------------------------------------------------------------- */

static bool is_donated(const fs_hlo_module *module, uint32_t parameter)
{
    uint32_t count;
    const int64_t *number = fs_hlo_values(module, parameter, FS_HLO_PARAMETER, &count);
    for (uint32_t i = 0; count > 0 && i < module->donor_count; i++)
        if (module->donors[i] == number[0]) return true;
    return false;
}

/* Return whether an operand of an instruction is a value, renamed or not. */
static bool reads(const fs_hlo_module *module, uint32_t id, uint32_t value)
{
    fs_hlo_list operands = module->instructions[id].operands;
    for (uint32_t place = 0; place < operands.count; place++) {
        uint32_t operand = fs_hlo_operand(module, id, place);
        if (operand != FS_NONE && source_of(module, operand, false) == value) return true;
    }
    return false;
}

/* Return whether an instruction other than `id` reads a value of its computation. */
static bool is_read_besides(const fs_hlo_remarks *of, uint32_t value, uint32_t id)
{
    return of->readers[value] > (uint32_t)reads(of->module, id, value);
}

/* Return whether more results of the entry than donated parameters have this shape. */
static bool has_result_for(const fs_hlo_remarks *of, uint32_t shape)
{
    const fs_hlo_module *module = of->module;
    uint32_t root = module->computations[module->entry].root;
    if (root == FS_NONE) return false;
    uint32_t result = module->instructions[root].shape;
    const fs_hlo_shape *whole = &module->shapes[result];
    int64_t left = whole->parts.count == 0 && same_shape(module, result, shape);
    for (uint32_t i = 0; i < whole->parts.count; i++)
        left += same_shape(module, module->shape_parts[whole->parts.first + i], shape);
    for (uint32_t i = 0; i < of->donated_count; i++)
        left -= same_shape(module, module->instructions[of->donated[i]].shape, shape);
    return left > 0;
}

static bool of_argument(const fs_hlo_remarks *about, uint32_t id, uint32_t parameter, char *text, size_t room)
{
    const fs_hlo_module *module = about->module;
    const fs_hlo_instruction *of = &module->instructions[parameter];
    const char *name = fs_hlo_text(module, of->op_name != FS_NONE ? of->op_name : of->name);
    if (is_donated(module, parameter) || is_read_besides(about, parameter, id) || about->results[id]) return false;
    if (!same_layout(module, of->shape, module->instructions[id].shape) || !has_result_for(about, of->shape))
        return false;
    snprintf(text, room, "argument=%s", name != NULL ? name : "");
    return true;
}

/* Carries ---------------------------------------------------------------------------------------------------------- */

static bool of_carry(const fs_hlo_remarks *about, uint32_t id, uint32_t part, char *text, size_t room)
{
    const fs_hlo_module *module = about->module;
    uint32_t tuple = fs_hlo_is(module, part, "get-tuple-element") ? fs_hlo_operand(module, part, 0) : FS_NONE;
    uint32_t shape = module->instructions[id].shape;
    if (tuple == FS_NONE || !fs_hlo_is(module, tuple, "parameter")) return false;
    if (!same_layout(module, module->instructions[part].shape, shape)) return false;
    if (!about->bodies[module->instructions[id].computation]) return false;
    const fs_hlo_shape *of = &module->shapes[shape];
    if (of->sizes.count == 0) return false; /* a counter */
    int size = snprintf(text, room, "carry=");
    for (uint32_t i = 0; i < of->sizes.count && size > 0 && (size_t)size < room; i++)
        size += snprintf(text + size, room - (size_t)size, "%s%lld", i > 0 ? "x" : "",
                         (long long)module->numbers[of->sizes.first + i]);
    return true;
}

/* Products --------------------------------------------------------------------------------------------------------- */

static bool is_product(const fs_hlo_module *module, uint32_t id)
{
    const char *target = fs_hlo_text(module, module->instructions[id].target);
    if (target == NULL) return fs_hlo_is(module, id, "dot") || fs_hlo_is(module, id, "convolution");
    return strncmp(target, "__cublas$", 9) == 0 || strncmp(target, "__cudnn$conv", 12) == 0;
}

/* Return the product that an instruction is, or the first in its body; FS_NONE: none. */
static uint32_t product_in(const fs_hlo_module *module, uint32_t id)
{
    if (is_product(module, id)) return id;
    uint32_t body = fs_hlo_is(module, id, "fusion") ? fs_hlo_called(module, id, 0) : FS_NONE;
    if (body == FS_NONE) return FS_NONE;
    fs_hlo_list list = module->computations[body].instructions;
    for (uint32_t i = list.first; i < list.first + list.count; i++)
        if (is_product(module, i)) return i;
    return FS_NONE;
}

/* Return the type of 16 bits from which a value was converted, in the body of a fusion or before it; NULL: none. */
static const char *widened_from(const fs_hlo_module *module, uint32_t value, uint32_t fusion)
{
    static const char *const moves[] = {"transpose", "copy", "reshape", "broadcast", "bitcast", NULL};
    for (int depth = 0; depth < MOST_FUSED && value != FS_NONE; depth++) {
        value = fs_hlo_past(module, value, moves);
        uint32_t count, operand = fs_hlo_operand(module, value, 0);
        if (fs_hlo_is(module, value, "convert") && operand != FS_NONE) {
            fs_torch_dtype from = fs_hlo_dtype(module, module->instructions[operand].shape);
            return from == FS_TORCH_BFLOAT16 ? "bf16" : from == FS_TORCH_FLOAT16 ? "f16" : NULL;
        }
        if (fs_hlo_is(module, value, "parameter") && fusion != FS_NONE) { /* go on outside */
            const int64_t *number = fs_hlo_values(module, value, FS_HLO_PARAMETER, &count);
            value = count > 0 && number[0] < FS_NONE ? fs_hlo_operand(module, fusion, (uint32_t)number[0]) : FS_NONE;
            fusion = FS_NONE;
        } else if (fs_hlo_is(module, value, "fusion") && fs_hlo_called(module, value, 0) != FS_NONE) { /* go inside */
            fusion = value;
            value = module->computations[fs_hlo_called(module, value, 0)].root;
        } else {
            value = FS_NONE;
        }
    }
    return NULL;
}

static bool of_product(const fs_hlo_module *module, uint32_t id, char *text, size_t room)
{
    uint32_t product = product_in(module, id), around = product == id ? FS_NONE : id;
    if (product == FS_NONE) return false;
    for (uint32_t place = 0; place < 2; place++) {
        uint32_t shape = fs_hlo_operand_shape(module, product, place);
        if (shape == FS_NONE || fs_hlo_dtype(module, shape) != FS_TORCH_FLOAT32) return false;
    }
    const char *left = widened_from(module, fs_hlo_operand(module, product, 0), around);
    const char *right = widened_from(module, fs_hlo_operand(module, product, 1), around);
    static const char *const NAMES[] = {NULL, "high", "highest"};
    const char *precision = NAMES[fs_hlo_precision(module, product)];
    bool widened = left != NULL && right != NULL && strcmp(left, right) == 0;
    if (widened) snprintf(text, room, "widened=%s", left);
    else if (precision != NULL) snprintf(text, room, "precision=%s", precision);
    return widened || precision != NULL;
}

/* Modules ---------------------------------------------------------------------------------------------------------- */

static void note_instruction(fs_hlo_remarks *of, uint32_t id, uint32_t *last_reader)
{
    const fs_hlo_module *module = of->module;
    const fs_hlo_instruction *one = &module->instructions[id];
    uint32_t called = fs_hlo_called(module, id, 0);
    for (uint32_t place = 0; place < one->operands.count && !renames(module, id); place++) {
        uint32_t operand = fs_hlo_operand(module, id, place);
        uint32_t value = operand != FS_NONE ? source_of(module, operand, false) : FS_NONE;
        if (value == FS_NONE || last_reader[value] == id + 1) continue;
        last_reader[value] = id + 1;
        of->readers[value]++;
    }
    if (fs_hlo_is(module, id, "while") && called != FS_NONE) of->bodies[called] = true;
}

/* Note the results of the entry and its donated parameters. */
static void note_entry(fs_hlo_remarks *of)
{
    const fs_hlo_module *module = of->module;
    if (module->entry >= module->computation_count) return;
    const fs_hlo_computation *entry = &module->computations[module->entry];
    for (uint32_t i = entry->instructions.first; i < entry->instructions.first + entry->instructions.count; i++)
        if (fs_hlo_is(module, i, "parameter") && is_donated(module, i)) of->donated[of->donated_count++] = i;
    if (entry->root == FS_NONE) return;
    of->results[source_of(module, entry->root, false)] = true;
    fs_hlo_list parts = module->instructions[entry->root].operands;
    for (uint32_t i = 0; fs_hlo_is(module, entry->root, "tuple") && i < parts.count; i++) {
        uint32_t operand = fs_hlo_operand(module, entry->root, i);
        if (operand != FS_NONE) of->results[source_of(module, operand, false)] = true;
    }
}

fs_status fs_hlo_remarks_make(fs_hlo_remarks *of, const fs_hlo_module *module, fs_error *err)
{
    size_t count = (size_t)module->instruction_count + 1, computations = (size_t)module->computation_count + 1;
    uint32_t *last_reader = fs_calloc(count, sizeof *last_reader);
    *of = (fs_hlo_remarks){.module = module,
                           .readers = fs_calloc(count, sizeof *of->readers),
                           .donated = fs_calloc(count, sizeof *of->donated),
                           .results = fs_calloc(count, sizeof *of->results),
                           .bodies = fs_calloc(computations, sizeof *of->bodies)};
    bool made =
        last_reader != NULL && of->readers != NULL && of->donated != NULL && of->results != NULL && of->bodies != NULL;
    for (uint32_t i = 0; made && i < module->instruction_count; i++) note_instruction(of, i, last_reader);
    if (made) note_entry(of);
    else fs_hlo_remarks_clear(of);
    fs_free(last_reader);
    return made ? FS_OK : fs_no_memory(err);
}

void fs_hlo_remarks_clear(fs_hlo_remarks *of)
{
    void *blocks[] = {of->readers, of->donated, of->results, of->bodies};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fs_free(blocks[i]);
    *of = (fs_hlo_remarks){.module = NULL};
}

bool fs_hlo_remark(const fs_hlo_remarks *about, uint32_t id, char *text, size_t room)
{
    const fs_hlo_module *module = about->module;
    const fs_hlo_instruction *of = &module->instructions[id];
    const char *target = fs_hlo_text(module, of->target);
    if (target != NULL && strstr(target, "python") != NULL && strstr(target, "callback") != NULL) {
        snprintf(text, room, "callback=%s", target);
        return true;
    }
    if (!fs_hlo_is(module, id, "copy")) return of_product(module, id, text, room);
    uint32_t source = source_of(module, id, true);
    bool entry = of->computation == module->entry && fs_hlo_is(module, source, "parameter");
    return entry ? of_argument(about, id, source, text, room) : of_carry(about, id, source, text, room);
}

/* Scopes enclose source lines: a scope has many lines, and so few events stand for all of an execution's. */

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
