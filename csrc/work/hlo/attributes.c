/* Attributes of instructions, in HLO text: a row for each that is kept. Those of metadata={…} and window={…} are rows
 * too. All others, of whatever form, are skipped. */
#include <stddef.h>

#include "base/memory.h"
#include "base/unused.h"
#include "work/hlo/parser.h"

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

fs_status fs_hlo_name_attributes(fs_hlo_parser *parser)
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
    fs_hlo_word name = fs_hlo_take_name(parser);
    if (name.size == 0) return fs_hlo_wrong(parser, parser->at, "the name of an attribute is missing");
    uint32_t id = fs_intern_find(&parser->keys, name.at, name.size);
    FS_TRY(fs_hlo_expect(parser, '='));
    fs_hlo_pass_blanks(parser);
    if (id == FS_NONE || ROWS[parser->rows[id]].place != place)
        return fs_hlo_skip_value(parser, place != OF_INSTRUCTION);
    return ROWS[parser->rows[id]].take(parser, instruction, ROWS[parser->rows[id]].what);
}

fs_status fs_hlo_take_attributes(fs_hlo_parser *parser, fs_hlo_instruction *instruction)
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

fs_status fs_hlo_skip_attributes(fs_hlo_parser *parser)
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
static fs_status take_text_of_groups(fs_hlo_parser *parser, fs_hlo_instruction *instruction, fs_hlo_word *word)
{
    static const char ORDER[] = ", device_ids=";
    *word = (fs_hlo_word){parser->at, 0};
    FS_TRY(fs_hlo_skip_value(parser, false));
    size_t left = (size_t)(parser->end - parser->at), size = sizeof ORDER - 1;
    if (left > size && *word->at == 'm' && memcmp(parser->at, ORDER, size) == 0) {
        parser->at += size;
        FS_TRY(fs_hlo_skip_value(parser, false));
    }
    word->size = (size_t)(parser->at - word->at);
    size = word->size < FS_HLO_MOST_GROUPS ? word->size : FS_HLO_MOST_GROUPS;
    return fs_intern_bytes(&parser->module->texts, word->at, size, &instruction->groups, parser->err);
}

static fs_status take_groups(fs_hlo_parser *parser, fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    fs_hlo_word word;
    FS_TRY(take_text_of_groups(parser, instruction, &word));
    int64_t size = fs_hlo_group_size(word.at, word.size);
    return size > 0 ? fs_hlo_put_value(parser->module, FS_HLO_GROUP_SIZE, size, parser->err) : FS_OK;
}

static fs_status take_pairs(fs_hlo_parser *parser, fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    fs_hlo_word word;
    return take_text_of_groups(parser, instruction, &word);
}

static fs_status take_global(fs_hlo_parser *parser, fs_hlo_instruction *FS_UNUSED(instruction), size_t FS_UNUSED(what))
{
    bool stated = fs_hlo_is(fs_hlo_take_name(parser), "true");
    return stated ? fs_hlo_put_value(parser->module, FS_HLO_GLOBAL_IDS, 1, parser->err) : FS_OK;
}

/* {highest,default} */
static fs_status take_precision(fs_hlo_parser *parser, fs_hlo_instruction *FS_UNUSED(instruction),
                                size_t FS_UNUSED(what))
{
    uint32_t first = parser->module->number_count;
    FS_TRY(fs_hlo_expect(parser, '{'));
    while (fs_hlo_peek(parser) != '}') {
        fs_hlo_word word = fs_hlo_take_name(parser);
        int64_t number = fs_hlo_is(word, "highest") ? 2 : fs_hlo_is(word, "high") ? 1 : 0;
        FS_TRY(fs_hlo_put_number(parser->module, number, parser->err));
        if (!fs_hlo_eat(parser, ',')) break;
    }
    FS_TRY(fs_hlo_expect(parser, '}'));
    return fs_hlo_put_values(parser->module, FS_HLO_PRECISION, first, parser->err);
}
