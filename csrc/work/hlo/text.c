/* Reads HLO text in one pass. Names, shapes and attributes are interned, so that an instruction costs some look-ups and
 * no memory of its own but its parts of the module's arrays.
 *
 *   HloModule name, is_scheduled=true, …
 *   FileNames … StackFrames …
 *   %computation (parameters) -> shape {                   the signature may be missing
 *     %name = shape opcode(operands), attribute=value, …   shapes: hlo/lexer.c
 *   }
 *   ENTRY %computation … { … }
 *
 * Computations may call those that follow: calls are names until all are read. */
#include <stddef.h>

#include "base/memory.h"
#include "base/unused.h"
#include "work/hlo/parser.h"

/* Attributes of instructions, in HLO text: a row for each that is kept. Those of metadata={…} and window={…} are rows
 * too. All others, of whatever form, are skipped. */

typedef enum { OF_INSTRUCTION, OF_METADATA, OF_WINDOW } fs_hlo_place;

typedef fs_status taker(fs_hlo_parser *parser, fs_hlo_instruction *instruction, size_t what);

/* what: a key of fs_hlo_attribute_key, or the offset of a field of the instruction. */
static taker take_numbers, take_called, take_condition, take_word, take_text, take_config, take_frame, take_source,
    take_line, take_window, take_sizes, take_pads, take_labels, take_groups, take_pairs, take_global, take_precision,
    take_metadata;

#define FIELD(name) offsetof(fs_hlo_instruction, name)
static const struct {
    const char *name;
    fs_hlo_place place;
    taker *take;
    size_t what;
} ROWS[] = {
#define ATTRIBUTE(NAME, text) {text, OF_INSTRUCTION, take_numbers, FS_HLO_##NAME},
    FS_HLO_ATTRIBUTES(ATTRIBUTE)
#undef ATTRIBUTE
        {"calls", OF_INSTRUCTION, take_called, 0},
    {"to_apply", OF_INSTRUCTION, take_called, 0},
    {"body", OF_INSTRUCTION, take_called, 0},
    {"condition", OF_INSTRUCTION, take_condition, 0},
    {"branch_computations", OF_INSTRUCTION, take_called, 0},
    {"true_computation", OF_INSTRUCTION, take_called, 0},
    {"false_computation", OF_INSTRUCTION, take_called, 0},
    {"called_computations", OF_INSTRUCTION, take_called, 0},
    {"select", OF_INSTRUCTION, take_called, 0},
    {"scatter", OF_INSTRUCTION, take_called, 0},
    {"kind", OF_INSTRUCTION, take_word, FIELD(kind)},
    {"direction", OF_INSTRUCTION, take_word, FIELD(kind)},
    {"fft_type", OF_INSTRUCTION, take_word, FIELD(kind)},
    {"algorithm", OF_INSTRUCTION, take_word, FIELD(kind)},
    {"distribution", OF_INSTRUCTION, take_word, FIELD(kind)},
    {"custom_call_target", OF_INSTRUCTION, take_text, FIELD(target)},
    {"backend_config", OF_INSTRUCTION, take_config, 0},
    {"window", OF_INSTRUCTION, take_window, 0},
    {"size", OF_WINDOW, take_sizes, FS_HLO_WINDOW_SIZE},
    {"stride", OF_WINDOW, take_sizes, FS_HLO_WINDOW_STRIDE},
    {"lhs_dilate", OF_WINDOW, take_sizes, FS_HLO_WINDOW_LHS_DILATE},
    {"rhs_dilate", OF_WINDOW, take_sizes, FS_HLO_WINDOW_RHS_DILATE},
    {"pad", OF_WINDOW, take_pads, 0},
    {"dim_labels", OF_INSTRUCTION, take_labels, 0},
    {"replica_groups", OF_INSTRUCTION, take_groups, 0},
    {"source_target_pairs", OF_INSTRUCTION, take_pairs, 0},
    {"use_global_device_ids", OF_INSTRUCTION, take_global, 0},
    {"operand_precision", OF_INSTRUCTION, take_precision, 0},
    {"metadata", OF_INSTRUCTION, take_metadata, 0},
    {"op_name", OF_METADATA, take_text, FIELD(op_name)},
    {"deduplicated_name", OF_METADATA, take_text, FIELD(kernel)},
    {"stack_frame_id", OF_METADATA, take_frame, 0},
    {"source_file", OF_METADATA, take_source, 0},
    {"source_line", OF_METADATA, take_line, 0},
};
#undef FIELD
enum { ROW_COUNT = sizeof ROWS / sizeof *ROWS };
_Static_assert(ROW_COUNT <= sizeof((fs_hlo_parser *)0)->rows, "rows of attributes");

/* Set up the names of attributes. */
static fs_status name_attributes(fs_hlo_parser *parser)
{
    uint32_t id;
    for (int row = 0; row < ROW_COUNT; row++) {
        FS_TRY(fs_intern_text(&parser->keys, ROWS[row].name, &id, parser->err));
        parser->rows[id] = (uint8_t)row;
    }
    return FS_OK;
}

/* Take a name, = and a value. */
static fs_status take_attribute(fs_hlo_parser *parser, fs_hlo_instruction *instruction, fs_hlo_place place)
{
    fs_text name = fs_hlo_take_name(parser);
    if (name.size == 0) return fs_hlo_wrong(parser, parser->at, "the name of an attribute is missing");
    uint32_t id = fs_intern_find(&parser->keys, name.bytes, name.size);
    FS_TRY(fs_hlo_expect(parser, '='));
    fs_hlo_pass_blanks(parser);
    if (id == FS_NONE || ROWS[parser->rows[id]].place != place)
        return fs_hlo_skip_value(parser, place != OF_INSTRUCTION);
    return ROWS[parser->rows[id]].take(parser, instruction, ROWS[parser->rows[id]].what);
}

/* Take the attributes that follow an instruction's operands, each after a comma. */
static fs_status take_attributes(fs_hlo_parser *parser, fs_hlo_instruction *instruction)
{
    fs_hlo_module *module = parser->module;
    instruction->attributes.first = module->attribute_count;
    instruction->called.first = module->called_count;
    parser->condition = FS_NONE;
    while (fs_hlo_eat(parser, ',')) FS_TRY(take_attribute(parser, instruction, OF_INSTRUCTION));
    if (parser->condition != FS_NONE) FS_TRY(fs_hlo_put_called(module, parser->condition, parser->err));
    if (instruction->config != FS_NONE)
        FS_TRY(fs_hlo_put_config(module, fs_hlo_text(module, instruction->opcode),
                                 fs_hlo_text(module, instruction->config), parser->err));
    instruction->called.count = module->called_count - instruction->called.first;
    return FS_OK;
}

/* Skip those that follow a computation. */
static fs_status skip_attributes(fs_hlo_parser *parser)
{
    while (fs_hlo_eat(parser, ',')) FS_TRY(fs_hlo_skip_value(parser, false));
    return FS_OK;
}

/* Texts, calls and the place in the program
 * --------------------------------------------------------------------------*/

static uint32_t *field(fs_hlo_instruction *instruction, size_t offset)
{
    return (uint32_t *)(void *)((char *)instruction + offset);
}

static fs_status take_text(fs_hlo_parser *parser, fs_hlo_instruction *instruction, size_t what)
{
    return fs_hlo_take_text(parser, field(instruction, what));
}

static fs_status take_word(fs_hlo_parser *parser, fs_hlo_instruction *instruction, size_t what)
{
    return fs_hlo_take_id(parser, field(instruction, what));
}

/* A computation's name, or a list of them. */
static fs_status take_called(fs_hlo_parser *parser, fs_hlo_instruction *FS_UNUSED(instruction), size_t FS_UNUSED(what))
{
    bool list = fs_hlo_eat(parser, '{');
    uint32_t name;
    if (list && fs_hlo_eat(parser, '}')) return FS_OK;
    do {
        FS_TRY(fs_hlo_take_id(parser, &name));
        FS_TRY(fs_hlo_put_called(parser->module, name, parser->err));
    } while (list && fs_hlo_eat(parser, ','));
    return list ? fs_hlo_expect(parser, '}') : FS_OK;
}

static fs_status take_condition(fs_hlo_parser *parser, fs_hlo_instruction *FS_UNUSED(instruction),
                                size_t FS_UNUSED(what))
{
    return fs_hlo_take_id(parser, &parser->condition);
}

static fs_status take_config(fs_hlo_parser *parser, fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    if (fs_hlo_peek(parser) == '"') return fs_hlo_take_text(parser, &instruction->config);
    const char *from = parser->at;
    FS_TRY(fs_hlo_skip_value(parser, false));
    return fs_intern_bytes(&parser->module->texts, from, (size_t)(parser->at - from), &instruction->config,
                           parser->err);
}

static fs_status take_metadata(fs_hlo_parser *parser, fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    if (fs_hlo_peek(parser) != '{') return fs_hlo_skip_value(parser, false);
    parser->at++;
    while (fs_hlo_peek(parser) != '}') {
        FS_TRY(take_attribute(parser, instruction, OF_METADATA));
        fs_hlo_eat(parser, ',');
    }
    return fs_hlo_expect(parser, '}');
}

static fs_status take_frame(fs_hlo_parser *parser, fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    int64_t id;
    FS_TRY(fs_hlo_take_integer(parser, &id));
    if (id > 0 && id <= parser->table_frames) instruction->frame = (uint32_t)(id - 1);
    return FS_OK;
}

/* Return the frame of an instruction without tables: the last one is shared by those of one line. */
static fs_status take_source(fs_hlo_parser *parser, fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    fs_hlo_frame frame = {.function = FS_NONE, .parent = FS_NONE};
    FS_TRY(fs_hlo_take_text(parser, &frame.file));
    instruction->frame = parser->module->frame_count;
    return fs_hlo_put_frame(parser->module, frame, parser->err);
}

static fs_status take_line(fs_hlo_parser *parser, fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    fs_hlo_module *module = parser->module;
    int64_t line;
    FS_TRY(fs_hlo_take_integer(parser, &line));
    if (instruction->frame == FS_NONE || instruction->frame < parser->table_frames) return FS_OK;
    module->frames[instruction->frame].line = line;
    if (instruction->frame == parser->table_frames) return FS_OK;
    const fs_hlo_frame *last = &module->frames[instruction->frame - 1];
    if (last->file != last[1].file || last->line != line) return FS_OK;
    module->frame_count--;
    instruction->frame--;
    return FS_OK;
}

/* Numbers -----------------------------------------------------------------------------------------------------------*/

/* {0,1}, or 1. */
static fs_status take_numbers(fs_hlo_parser *parser, fs_hlo_instruction *FS_UNUSED(instruction), size_t what)
{
    uint32_t first = parser->module->number_count;
    bool list = fs_hlo_eat(parser, '{');
    int64_t number;
    while (!list || fs_hlo_peek(parser) != '}') {
        FS_TRY(fs_hlo_take_integer(parser, &number));
        FS_TRY(fs_hlo_put_number(parser->module, number, parser->err));
        if (!list || !fs_hlo_eat(parser, ',')) break;
    }
    if (list) FS_TRY(fs_hlo_expect(parser, '}'));
    return fs_hlo_put_values(parser->module, (fs_hlo_attribute_key)what, first, parser->err);
}

/* Take groups of numbers, such as 0_1x0_1. They become lists of the keys, one for each place in a group. */
static fs_status take_groups_of(fs_hlo_parser *parser, const fs_hlo_attribute_key *keys, int key_count)
{
    enum { MOST = FS_HLO_MOST_RANK };
    int64_t values[2][MOST] = {{0}};
    int count = 0;
    do {
        if (count == MOST) return fs_hlo_wrong(parser, parser->at, "more than %d dimensions", MOST);
        for (int i = 0; i < key_count && (i == 0 || fs_hlo_eat(parser, '_')); i++)
            FS_TRY(fs_hlo_take_integer(parser, &values[i][count]));
        count++;
    } while (fs_hlo_eat(parser, 'x'));
    for (int i = 0; i < key_count; i++) {
        uint32_t first = parser->module->number_count;
        for (int j = 0; j < count; j++) FS_TRY(fs_hlo_put_number(parser->module, values[i][j], parser->err));
        FS_TRY(fs_hlo_put_values(parser->module, keys[i], first, parser->err));
    }
    return FS_OK;
}

/* {size=3x3 stride=2x2 pad=0_1x0_1} */
static fs_status take_window(fs_hlo_parser *parser, fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    FS_TRY(fs_hlo_expect(parser, '{'));
    while (fs_hlo_peek(parser) != '}') FS_TRY(take_attribute(parser, instruction, OF_WINDOW));
    return fs_hlo_expect(parser, '}');
}

static fs_status take_sizes(fs_hlo_parser *parser, fs_hlo_instruction *FS_UNUSED(instruction), size_t what)
{
    fs_hlo_attribute_key key = (fs_hlo_attribute_key)what;
    return take_groups_of(parser, &key, 1);
}

static fs_status take_pads(fs_hlo_parser *parser, fs_hlo_instruction *FS_UNUSED(instruction), size_t FS_UNUSED(what))
{
    static const fs_hlo_attribute_key KEYS[] = {FS_HLO_WINDOW_PAD_LOW, FS_HLO_WINDOW_PAD_HIGH};
    return take_groups_of(parser, KEYS, 2);
}

/* b01f_01io->b01f: for each dimension its place among the spatial ones, or what it is. */
static fs_status take_labels(fs_hlo_parser *parser, fs_hlo_instruction *FS_UNUSED(instruction), size_t FS_UNUSED(what))
{
    static const struct {
        fs_hlo_attribute_key key;
        char first, second; /* -1 and -2 */
        const char *after;
    } PARTS[] = {
        {FS_HLO_LHS_LABELS, 'b', 'f', "_"}, {FS_HLO_RHS_LABELS, 'o', 'i', "->"}, {FS_HLO_OUT_LABELS, 'b', 'f', ""}};
    const char *from = parser->at;
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
        uint32_t first = parser->module->number_count;
        for (; parser->at < parser->end; parser->at++) {
            char label = *parser->at;
            int64_t number = label == PARTS[i].first ? -1 : label == PARTS[i].second ? -2 : label - '0';
            if (label == '?') continue;
            if (number < -2 || number > 9) break;
            FS_TRY(fs_hlo_put_number(parser->module, number, parser->err));
        }
        FS_TRY(fs_hlo_put_values(parser->module, PARTS[i].key, first, parser->err));
        for (const char *after = PARTS[i].after; *after != 0; after++, parser->at++)
            if (parser->at == parser->end || *parser->at != *after)
                return fs_hlo_wrong(parser, from, "labels of dimensions are not like b01f_01io->b01f");
    }
    return FS_OK;
}

/* Take the text of groups, of which only the beginning is kept. The order of a mesh's devices stands after a comma:
 * mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'} */
static fs_status take_text_of_groups(fs_hlo_parser *parser, fs_hlo_instruction *instruction, fs_text *word)
{
    static const char ORDER[] = ", device_ids=";
    *word = (fs_text){parser->at, 0};
    FS_TRY(fs_hlo_skip_value(parser, false));
    size_t left = (size_t)(parser->end - parser->at), size = sizeof ORDER - 1;
    if (left > size && *word->bytes == 'm' && memcmp(parser->at, ORDER, size) == 0) {
        parser->at += size;
        FS_TRY(fs_hlo_skip_value(parser, false));
    }
    word->size = (size_t)(parser->at - word->bytes);
    size = word->size < FS_HLO_MOST_GROUPS ? word->size : FS_HLO_MOST_GROUPS;
    return fs_intern_bytes(&parser->module->texts, word->bytes, size, &instruction->groups, parser->err);
}

static fs_status take_groups(fs_hlo_parser *parser, fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    fs_text word;
    FS_TRY(take_text_of_groups(parser, instruction, &word));
    int64_t size = fs_hlo_group_size(word.bytes, word.size);
    return size > 0 ? fs_hlo_put_value(parser->module, FS_HLO_GROUP_SIZE, size, parser->err) : FS_OK;
}

static fs_status take_pairs(fs_hlo_parser *parser, fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    fs_text word;
    return take_text_of_groups(parser, instruction, &word);
}

static fs_status take_global(fs_hlo_parser *parser, fs_hlo_instruction *FS_UNUSED(instruction), size_t FS_UNUSED(what))
{
    bool stated = fs_text_is(fs_hlo_take_name(parser), "true");
    return stated ? fs_hlo_put_value(parser->module, FS_HLO_GLOBAL_IDS, 1, parser->err) : FS_OK;
}

/* {highest,default} */
static fs_status take_precision(fs_hlo_parser *parser, fs_hlo_instruction *FS_UNUSED(instruction),
                                size_t FS_UNUSED(what))
{
    uint32_t first = parser->module->number_count;
    FS_TRY(fs_hlo_expect(parser, '{'));
    while (fs_hlo_peek(parser) != '}') {
        fs_text word = fs_hlo_take_name(parser);
        int64_t number = fs_text_is(word, "highest") ? 2 : fs_text_is(word, "high") ? 1 : 0;
        FS_TRY(fs_hlo_put_number(parser->module, number, parser->err));
        if (!fs_hlo_eat(parser, ',')) break;
    }
    FS_TRY(fs_hlo_expect(parser, '}'));
    return fs_hlo_put_values(parser->module, FS_HLO_PRECISION, first, parser->err);
}

/* The tables at the head of a module's text: FileNames, FunctionNames, FileLocations and StackFrames. Each row begins
 * with its number, from 1.
 *
 * XLA prints the parent of a frame as its number plus 1, so that no frame has the parent 0; should a version print the
 * number, the outermost frames have the parent 0. */

typedef fs_status row_taker(fs_hlo_parser *parser);

static fs_status take_file(fs_hlo_parser *parser)
{
    FS_TRY(FS_LIST_ROOM(&parser->files, parser->file_count, &parser->file_capacity, 16, parser->err));
    return fs_hlo_take_text(parser, &parser->files[parser->file_count++]);
}

static fs_status take_function(fs_hlo_parser *parser)
{
    FS_TRY(FS_LIST_ROOM(&parser->functions, parser->function_count, &parser->function_capacity, 16, parser->err));
    return fs_hlo_take_text(parser, &parser->functions[parser->function_count++]);
}

/* Take {name=1 other=2}: the values of these names, 0 where they are missing. */
static fs_status take_fields(fs_hlo_parser *parser, const char *const *names, int count, int64_t *values)
{
    for (int i = 0; i < count; i++) values[i] = 0;
    FS_TRY(fs_hlo_expect(parser, '{'));
    while (fs_hlo_peek(parser) != '}') {
        fs_text name = fs_hlo_take_name(parser);
        int field = 0;
        if (name.size == 0) return fs_hlo_wrong(parser, parser->at, "the name of a field is missing");
        FS_TRY(fs_hlo_expect(parser, '='));
        while (field < count && !fs_text_is(name, names[field])) field++;
        FS_TRY(field < count ? fs_hlo_take_integer(parser, &values[field]) : fs_hlo_skip_value(parser, true));
        fs_hlo_eat(parser, ',');
    }
    return fs_hlo_expect(parser, '}');
}

/* Return the row's text. */
static uint32_t text_at(const uint32_t *texts, uint32_t count, int64_t number)
{
    return number >= 1 && number <= count ? texts[number - 1] : FS_NONE;
}

static fs_status take_location(fs_hlo_parser *parser)
{
    static const char *const FIELDS[] = {"file_name_id", "function_name_id", "line"};
    int64_t values[3];
    FS_TRY(take_fields(parser, FIELDS, 3, values));
    FS_TRY(FS_LIST_ROOM(&parser->locations, parser->location_count, &parser->location_capacity, 16, parser->err));
    parser->locations[parser->location_count++] =
        (fs_hlo_frame){.file = text_at(parser->files, parser->file_count, values[0]),
                       .function = text_at(parser->functions, parser->function_count, values[1]),
                       .line = values[2] > 0 ? values[2] : 0};
    return FS_OK;
}

/* The parent is as printed until all are there. */
static fs_status take_frame_row(fs_hlo_parser *parser)
{
    static const char *const FIELDS[] = {"file_location_id", "parent_frame_id"};
    int64_t values[2];
    FS_TRY(take_fields(parser, FIELDS, 2, values));
    fs_hlo_frame frame = {.file = FS_NONE, .function = FS_NONE};
    if (values[0] >= 1 && values[0] <= parser->location_count) frame = parser->locations[values[0] - 1];
    frame.parent = values[1] >= 0 && values[1] < FS_NONE ? (uint32_t)values[1] : FS_NONE;
    return fs_hlo_put_frame(parser->module, frame, parser->err);
}

/* A parent precedes the frames that it called. */
static void link_frames(fs_hlo_module *module)
{
    uint32_t least = FS_NONE;
    for (uint32_t i = 0; i < module->frame_count; i++)
        if (module->frames[i].parent < least) least = module->frames[i].parent;
    uint32_t first = least == 0 ? 1 : 2; /* as the first frame is printed */
    for (uint32_t i = 0; i < module->frame_count; i++) {
        uint32_t printed = module->frames[i].parent;
        module->frames[i].parent = printed >= first && printed - first < i ? printed - first : FS_NONE;
    }
}

static fs_status take_rows(fs_hlo_parser *parser, row_taker *take)
{
    int64_t number, count = 0;
    while (fs_hlo_peek(parser) >= '0' && *parser->at <= '9') {
        const char *at = parser->at;
        FS_TRY(fs_hlo_take_integer(parser, &number));
        if (number != ++count) return fs_hlo_wrong(parser, at, "row %lld of a table is missing", (long long)count);
        FS_TRY(take(parser));
    }
    return FS_OK;
}

/* Take the tables of files, functions, places and frames that stand at the head of a module. */
static fs_status take_tables(fs_hlo_parser *parser)
{
    static const struct {
        const char *name;
        row_taker *take;
    } TABLES[] = {{"FileNames", take_file},
                  {"FunctionNames", take_function},
                  {"FileLocations", take_location},
                  {"StackFrames", take_frame_row}};
    for (size_t i = 0; i < sizeof TABLES / sizeof *TABLES; i++) {
        fs_hlo_pass_blanks(parser);
        const char *at = parser->at;
        if (!fs_text_is(fs_hlo_take_name(parser), TABLES[i].name)) {
            parser->at = at;
            continue;
        }
        FS_TRY(take_rows(parser, TABLES[i].take));
    }
    parser->table_frames = parser->module->frame_count;
    link_frames(parser->module);
    return FS_OK;
}

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
        fs_text word = fs_hlo_take_name(parser);
        char after = parser->at < parser->end ? *parser->at : 0;
        parser->at = at;
        if (after == '[' || (after == '(' && (word.size == 0 || fs_text_is(word, "b")))) {
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
    fs_text word = {0};
    instruction.operands.first = module->operand_count;
    if (*at != '%') word = fs_hlo_take_name(parser);
    instruction.root = fs_text_is(word, "ROOT") && fs_hlo_peek(parser) != '=';
    if (!instruction.root) parser->at = at;
    FS_TRY(fs_hlo_take_id(parser, &instruction.name));
    if (find_named(parser, instruction.name, first) != FS_NONE)
        return fs_hlo_wrong(parser, at, "'%.100s' stands twice in its computation",
                            fs_hlo_text(module, instruction.name));
    FS_TRY(fs_hlo_expect(parser, '='));
    FS_TRY(fs_hlo_take_shape(parser, &instruction.shape));
    word = fs_hlo_take_name(parser);
    if (word.size == 0) return fs_hlo_wrong(parser, parser->at, "an opcode is missing");
    FS_TRY(fs_intern_bytes(&module->texts, word.bytes, word.size, &instruction.opcode, parser->err));
    FS_TRY(fs_hlo_expect(parser, '('));
    int64_t parameter = -1;
    if (fs_text_is(word, "constant")) FS_TRY(take_literal(parser, &instruction));
    else if (!fs_text_is(word, "parameter")) FS_TRY(take_operands(parser, &instruction, first));
    else {
        FS_TRY(fs_hlo_take_integer(parser, &parameter));
        FS_TRY(fs_hlo_expect(parser, ')'));
    }
    FS_TRY(take_attributes(parser, &instruction));
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
    fs_text word = fs_hlo_take_name(parser);
    bool entry = fs_text_is(word, "ENTRY");
    if (fs_text_is(word, "HloModule"))
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
    FS_TRY(skip_attributes(parser));
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
    if (!fs_text_is(fs_hlo_take_name(parser), "HloModule")) {
        parser->at = at;
        return fs_hlo_wrong(
            parser, at, "it must begin with 'HloModule', as jax.jit(f).lower(x).compile().as_text() does, not '%.*s'",
            fs_hlo_shown(parser), at);
    }
    FS_TRY(fs_hlo_take_id(parser, &module->name));
    while (fs_hlo_eat(parser, ',')) {
        fs_text key = fs_hlo_take_name(parser);
        FS_TRY(fs_hlo_expect(parser, '='));
        fs_hlo_pass_blanks(parser);
        if (fs_text_is(key, "is_scheduled")) module->scheduled = fs_text_is(fs_hlo_take_name(parser), "true");
        else if (fs_text_is(key, "num_partitions")) FS_TRY(take_count(parser, &module->partitions));
        else if (fs_text_is(key, "replica_count")) FS_TRY(take_count(parser, &module->replicas));
        else if (fs_text_is(key, "input_output_alias") || fs_text_is(key, "buffer_donor")) FS_TRY(take_donors(parser));
        else FS_TRY(fs_hlo_skip_value(parser, false));
    }
    return FS_OK;
}

static fs_status read(fs_hlo_parser *parser)
{
    FS_TRY(name_attributes(parser));
    FS_TRY(take_header(parser));
    FS_TRY(take_tables(parser));
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
