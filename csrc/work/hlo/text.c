/* Reads HLO text in one pass. Names, shapes and attributes are interned, so that an instruction costs some look-ups and
 * no memory of its own but its parts of the module's arrays.
 *
 *   HloModule name, is_scheduled=true, …
 *   FileNames … StackFrames …                              hlo/tables.c
 *   %computation (parameters) -> shape {                   the signature may be missing
 *     %name = shape opcode(operands), attribute=value, …   shapes: hlo/lexer.c, attributes: hlo/attributes.c
 *   }
 *   ENTRY %computation … { … }
 *
 * Computations may call those that follow: calls are names until all are read. */
#include "base/memory.h"
#include "work/hlo/parser.h"

enum { LONGEST_LITERAL = 40 };

/* Instructions ------------------------------------------------------------------------------------------------------*/

/* Find the instruction of this name in the computation that begins at `first`. */
static uint32_t find_named(const fs_hlo_parser *parser, uint32_t name, uint32_t first)
{
    uint32_t last = name < parser->named_capacity ? parser->named[name] : 0;
    return last > first ? last - 1 : FS_NONE;
}

static fs_status set_named(fs_hlo_parser *parser, uint32_t name, uint32_t instruction)
{
    uint32_t before = parser->named_capacity;
    FS_TRY(FS_LIST_ROOM(&parser->named, name, &parser->named_capacity, 256, parser->err));
    if (parser->named_capacity > before)
        memset(parser->named + before, 0, (parser->named_capacity - before) * sizeof *parser->named);
    parser->named[name] = instruction + 1;
    return FS_OK;
}

/* Take an operand: its name, after its shape where that is printed; or its shape alone, which tells no instruction. */
static fs_status take_operand(fs_hlo_parser *parser, uint32_t first, uint32_t *operand)
{
    char next = fs_hlo_peek(parser);
    const char *at = parser->at;
    uint32_t shape, name;
    *operand = FS_NONE;
    if (next != '%') {
        fs_hlo_word word = fs_hlo_take_name(parser);
        char after = parser->at < parser->end ? *parser->at : 0;
        parser->at = at;
        if (after == '[' || (after == '(' && (word.size == 0 || fs_hlo_is(word, "b")))) {
            FS_TRY(fs_hlo_take_shape(parser, &shape));
            next = fs_hlo_peek(parser);
            if (next == ',' || next == ')') return FS_OK;
            at = parser->at;
        }
    }
    FS_TRY(fs_hlo_take_id(parser, &name));
    *operand = find_named(parser, name, first);
    if (*operand == FS_NONE)
        return fs_hlo_wrong(parser, at, "'%.100s' is an operand, and no instruction before it in its computation",
                            fs_hlo_text(parser->module, name));
    return FS_OK;
}

static fs_status take_operands(fs_hlo_parser *parser, fs_hlo_instruction *instruction, uint32_t first)
{
    uint32_t operand;
    while (fs_hlo_peek(parser) != ')') {
        FS_TRY(take_operand(parser, first, &operand));
        FS_TRY(fs_hlo_put_operand(parser->module, operand, parser->err));
        instruction->operands.count++;
        if (!fs_hlo_eat(parser, ',')) break;
    }
    return fs_hlo_expect(parser, ')');
}

/* What stands in the brackets after the opcode of a constant. */
static fs_status take_literal(fs_hlo_parser *parser, fs_hlo_instruction *instruction)
{
    const char *from = parser->at--;
    FS_TRY(fs_hlo_skip_brackets(parser));
    size_t size = (size_t)(parser->at - 1 - from);
    if (size > LONGEST_LITERAL) return FS_OK;
    return fs_intern_bytes(&parser->module->texts, from, size, &instruction->kind, parser->err);
}

static fs_status take_instruction(fs_hlo_parser *parser, uint32_t first)
{
    fs_hlo_module *module = parser->module;
    fs_hlo_instruction instruction = fs_hlo_blank();
    const char *at = parser->at;
    fs_hlo_word word = {0};
    instruction.operands.first = module->operand_count;
    if (*at != '%') word = fs_hlo_take_name(parser);
    instruction.root = fs_hlo_is(word, "ROOT") && fs_hlo_peek(parser) != '=';
    if (!instruction.root) parser->at = at;
    FS_TRY(fs_hlo_take_id(parser, &instruction.name));
    if (find_named(parser, instruction.name, first) != FS_NONE)
        return fs_hlo_wrong(parser, at, "'%.100s' stands twice in its computation",
                            fs_hlo_text(module, instruction.name));
    FS_TRY(fs_hlo_expect(parser, '='));
    FS_TRY(fs_hlo_take_shape(parser, &instruction.shape));
    word = fs_hlo_take_name(parser);
    if (word.size == 0) return fs_hlo_wrong(parser, parser->at, "an opcode is missing");
    FS_TRY(fs_intern_bytes(&module->texts, word.at, word.size, &instruction.opcode, parser->err));
    FS_TRY(fs_hlo_expect(parser, '('));
    int64_t parameter = -1;
    if (fs_hlo_is(word, "constant")) FS_TRY(take_literal(parser, &instruction));
    else if (!fs_hlo_is(word, "parameter")) FS_TRY(take_operands(parser, &instruction, first));
    else {
        FS_TRY(fs_hlo_take_integer(parser, &parameter));
        FS_TRY(fs_hlo_expect(parser, ')'));
    }
    FS_TRY(fs_hlo_take_attributes(parser, &instruction));
    if (parameter >= 0) FS_TRY(fs_hlo_put_value(module, FS_HLO_PARAMETER, parameter, parser->err));
    instruction.attributes.count = module->attribute_count - instruction.attributes.first;
    instruction.computation = module->computation_count;
    FS_TRY(set_named(parser, instruction.name, module->instruction_count));
    return fs_hlo_put_instruction(module, instruction, parser->err);
}

/* Computations ------------------------------------------------------------------------------------------------------*/

static fs_status take_computation(fs_hlo_parser *parser)
{
    fs_hlo_module *module = parser->module;
    fs_hlo_computation computation = {.root = FS_NONE, .instructions.first = module->instruction_count};
    const char *at = parser->at;
    uint32_t shape, first = module->instruction_count;
    fs_hlo_word word = fs_hlo_take_name(parser);
    bool entry = fs_hlo_is(word, "ENTRY");
    if (fs_hlo_is(word, "HloModule"))
        return fs_hlo_wrong(parser, at, "a second module begins; each is read on its own");
    if (!entry) parser->at = at;
    FS_TRY(fs_hlo_take_id(parser, &computation.name));
    if (fs_hlo_peek(parser) == '(') {
        FS_TRY(fs_hlo_skip_brackets(parser));
        FS_TRY(fs_hlo_expect(parser, '-'));
        FS_TRY(fs_hlo_expect(parser, '>'));
        FS_TRY(fs_hlo_take_shape(parser, &shape));
    }
    FS_TRY(fs_hlo_expect(parser, '{'));
    while (fs_hlo_peek(parser) != '}') {
        if (parser->at == parser->end) return fs_hlo_wrong(parser, at, "the computation that begins here does not end");
        FS_TRY(take_instruction(parser, first));
        if (module->instructions[module->instruction_count - 1].root) computation.root = module->instruction_count - 1;
    }
    FS_TRY(fs_hlo_expect(parser, '}'));
    FS_TRY(fs_hlo_skip_attributes(parser));
    computation.instructions.count = module->instruction_count - first;
    if (computation.instructions.count == 0) return fs_hlo_wrong(parser, at, "the computation has no instructions");
    if (computation.root == FS_NONE) computation.root = module->instruction_count - 1;
    if (entry) module->entry = module->computation_count;
    FS_TRY(FS_LIST_ROOM(&parser->places, module->computation_count, &parser->place_capacity, 64, parser->err));
    parser->places[module->computation_count] = at;
    return fs_hlo_put_computation(module, computation, parser->err);
}

/* Replace the names of called computations by their ids. */
static fs_status link_calls(fs_hlo_parser *parser)
{
    fs_hlo_module *module = parser->module;
    fs_status status = FS_OK;
    uint32_t *ids = fs_calloc(module->texts.count + (size_t)1, sizeof *ids); /* by text, plus 1 */
    if (ids == NULL) return fs_no_memory(parser->err);
    for (uint32_t i = 0; i < module->computation_count && status == FS_OK; i++) {
        uint32_t *id = &ids[module->computations[i].name];
        if (*id != 0)
            status = fs_hlo_wrong(parser, parser->places[i], "a second computation has the name '%.100s'",
                                  fs_hlo_text(module, module->computations[i].name));
        *id = i + 1;
    }
    for (uint32_t i = 0; i < module->called_count; i++) module->called[i] = ids[module->called[i]] - 1;
    fs_free(ids);
    return status;
}

static fs_status finish(fs_hlo_parser *parser)
{
    fs_hlo_module *module = parser->module;
    fs_error err;
    uint32_t at;
    if (module->entry == FS_NONE && module->computation_count == 1) module->entry = 0;
    if (module->entry == FS_NONE) return fs_hlo_wrong(parser, parser->end, "no computation is the ENTRY");
    FS_TRY(link_calls(parser));
    fs_status status = fs_hlo_check_calls(module, &at, &err);
    if (status == FS_VALUE_ERROR) return fs_hlo_wrong(parser, parser->places[at], "%s", err.message);
    return status == FS_OK ? FS_OK : fs_fail(parser->err, status, "%s", err.message);
}

/* Modules -----------------------------------------------------------------------------------------------------------*/

static fs_status take_count(fs_hlo_parser *parser, uint32_t *count)
{
    int64_t value;
    FS_TRY(fs_hlo_take_integer(parser, &value));
    if (value >= 1 && value < FS_NONE) *count = (uint32_t)value;
    return FS_OK;
}

/* { {0}: (1, {}, may-alias), … }, or { (1, {}), … }: the first number in each pair of round brackets. */
static fs_status take_donors(fs_hlo_parser *parser)
{
    const char *from = parser->at;
    FS_TRY(fs_hlo_skip_value(parser, false));
    const char *end = parser->at;
    for (parser->at = from; parser->at < end; parser->at++) {
        int64_t parameter;
        if (*parser->at != '(') continue;
        parser->at++;
        FS_TRY(fs_hlo_take_integer(parser, &parameter));
        FS_TRY(fs_hlo_put_donor(parser->module, parameter, parser->err));
    }
    parser->at = end;
    return FS_OK;
}

static fs_status take_header(fs_hlo_parser *parser)
{
    fs_hlo_module *module = parser->module;
    fs_hlo_pass_blanks(parser);
    const char *at = parser->at;
    if (!fs_hlo_is(fs_hlo_take_name(parser), "HloModule")) {
        parser->at = at;
        return fs_hlo_wrong(
            parser, at, "it must begin with 'HloModule', as jax.jit(f).lower(x).compile().as_text() does, not '%.*s'",
            fs_hlo_shown(parser), at);
    }
    FS_TRY(fs_hlo_take_id(parser, &module->name));
    while (fs_hlo_eat(parser, ',')) {
        fs_hlo_word key = fs_hlo_take_name(parser);
        FS_TRY(fs_hlo_expect(parser, '='));
        fs_hlo_pass_blanks(parser);
        if (fs_hlo_is(key, "is_scheduled")) module->scheduled = fs_hlo_is(fs_hlo_take_name(parser), "true");
        else if (fs_hlo_is(key, "num_partitions")) FS_TRY(take_count(parser, &module->partitions));
        else if (fs_hlo_is(key, "replica_count")) FS_TRY(take_count(parser, &module->replicas));
        else if (fs_hlo_is(key, "input_output_alias") || fs_hlo_is(key, "buffer_donor")) FS_TRY(take_donors(parser));
        else FS_TRY(fs_hlo_skip_value(parser, false));
    }
    return FS_OK;
}

static fs_status read(fs_hlo_parser *parser)
{
    FS_TRY(fs_hlo_name_attributes(parser));
    FS_TRY(take_header(parser));
    FS_TRY(fs_hlo_take_tables(parser));
    while (fs_hlo_peek(parser) != 0) FS_TRY(take_computation(parser));
    if (parser->at < parser->end) return fs_hlo_wrong(parser, parser->at, "a zero byte stands in the text");
    return finish(parser);
}

fs_status fs_hlo_read_text(fs_hlo_module *module, const char *text, size_t size, fs_error *err)
{
    fs_hlo_parser parser = {.start = text, .at = text, .end = text + size, .module = module, .err = err};
    fs_status status = fs_hlo_begin(module, err);
    if (status == FS_OK) status = read(&parser);
    void *blocks[] = {parser.shape_ids, parser.named, (void *)parser.places, parser.waiting,
                      parser.unescaped, parser.files, parser.functions,      parser.locations};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fs_free(blocks[i]);
    fs_intern_clear(&parser.keys);
    fs_intern_clear(&parser.shapes);
    if (status != FS_OK) fs_hlo_clear(module);
    return status;
}
