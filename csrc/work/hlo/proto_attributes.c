/* Attributes of instructions, in the protobuf: a row for each field. A number that is 0 and an empty list are not in a
 * message, so some opcodes have attributes whether they are there or not: their rows name the opcode. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/unused.h"
#include "work/hlo/proto.h"

/* Takes an attribute from a field of an instruction's message. what: a key of fs_hlo_attribute_key, or the offset of a
 * field of the instruction. */
typedef fs_status taker(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                        fs_hlo_instruction *instruction, size_t what);

static taker take_numbers, take_number, take_text, take_window, take_labels, take_dot, take_algorithm,
    take_distribution, take_fft, take_random, take_metadata, take_groups, take_devices, take_iota, take_mesh,
    take_pairs;

#define FIELD(name) offsetof(fs_hlo_instruction, name)
static const struct {
    uint32_t number;
    const char *opcode; /* that has it also without the field; "" */
    taker *take;
    size_t what;
} ROWS[] = {
    {9, "parameter", take_number, FS_HLO_PARAMETER},
    {11, "", take_text, FIELD(kind)},
    {14, "broadcast", take_numbers, FS_HLO_DIMENSIONS},
    {14, "reduce", take_numbers, FS_HLO_DIMENSIONS},
    {14, "transpose", take_numbers, FS_HLO_DIMENSIONS},
    {14, "reverse", take_numbers, FS_HLO_DIMENSIONS},
    {14, "map", take_numbers, FS_HLO_DIMENSIONS},
    {14, "", take_numbers, FS_HLO_DIMENSIONS},
    {15, "", take_window, 0},
    {16, "", take_labels, 0},
    {23, "", take_distribution, 0},
    {28, "", take_text, FIELD(target)},
    {30, "", take_dot, 0},
    {31, "fft", take_fft, 0},
    {32, "", take_numbers, FS_HLO_FFT_LENGTH},
    {34, "", take_numbers, FS_HLO_SLICE_SIZES},
    {43, "", take_text, FIELD(config)},
    {26, "", take_number, FS_HLO_CHANNEL},
    {49, "", take_groups, 0},
    {51, "", take_algorithm, 0},
    {52, "", take_pairs, 0},
    {63, "", take_text, FIELD(kind)},
    {70, "rng-bit-generator", take_random, 0},
    {71, "", take_number, FS_HLO_GLOBAL_IDS},
    {87, "", take_devices, 0},
    {92, "", take_iota, 0},
    {93, "", take_mesh, 0},
    {7, "", take_metadata, 0},
};
#undef FIELD
enum { ROW_COUNT = sizeof ROWS / sizeof *ROWS, MOST_FIELD = 128 };

fs_status fs_hlo_proto_attributes(fs_hlo_reader *reader, fs_wire message, const char *opcode,
                                  fs_hlo_instruction *instruction)
{
    static const fs_wire_field missing = {.number = 0};
    fs_wire_field last[MOST_FIELD], field;
    bool here[MOST_FIELD] = {false}, taken[MOST_FIELD] = {false};
    fs_wire rest = message;
    while (fs_wire_next(&rest, &field)) {
        if (field.number >= MOST_FIELD) continue;
        here[field.number] = true;
        last[field.number] = field;
    }
    FS_TRY(fs_wire_end(&rest, reader->err));
    for (size_t i = 0; i < ROW_COUNT; i++) {
        uint32_t number = ROWS[i].number;
        if (taken[number] || !(here[number] || strcmp(opcode, ROWS[i].opcode) == 0)) continue;
        taken[number] = true;
        FS_TRY(ROWS[i].take(reader, message, here[number] ? &last[number] : &missing, instruction, ROWS[i].what));
    }
    if (instruction->config == FS_NONE) return FS_OK;
    return fs_hlo_put_config(reader->module, opcode, fs_hlo_text(reader->module, instruction->config), reader->err);
}

/* Numbers and texts -------------------------------------------------------------------------------------------------*/

static bool is_opcode(const fs_hlo_reader *reader, const fs_hlo_instruction *instruction, const char *opcode)
{
    return strcmp(fs_hlo_text(reader->module, instruction->opcode), opcode) == 0;
}

/* The dimension of an iota is not among the dimensions in the text. */
static fs_status take_numbers(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                              fs_hlo_instruction *instruction, size_t what)
{
    uint32_t first = reader->module->number_count;
    if (what == FS_HLO_DIMENSIONS && is_opcode(reader, instruction, "iota")) return FS_OK;
    if (field->number != 0) FS_TRY(fs_hlo_proto_numbers(reader, message, field->number));
    return fs_hlo_put_values(reader->module, (fs_hlo_attribute_key)what, first, reader->err);
}

static fs_status take_number(fs_hlo_reader *reader, fs_wire FS_UNUSED(message), const fs_wire_field *field,
                             fs_hlo_instruction *FS_UNUSED(instruction), size_t what)
{
    int64_t value = field->number != 0 && field->type == FS_WIRE_VARINT ? (int64_t)field->value : 0;
    if (what == FS_HLO_GLOBAL_IDS && value == 0) return FS_OK; /* the text has none */
    return fs_hlo_put_value(reader->module, (fs_hlo_attribute_key)what, value, reader->err);
}

static fs_status take_text(fs_hlo_reader *reader, fs_wire FS_UNUSED(message), const fs_wire_field *field,
                           fs_hlo_instruction *instruction, size_t what)
{
    return fs_hlo_proto_text(reader, field, (uint32_t *)(void *)((char *)instruction + what));
}

/* Windows -----------------------------------------------------------------------------------------------------------*/

/* The text has only those of a window's numbers that are not usual. */
static fs_status take_window(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                             fs_hlo_instruction *FS_UNUSED(instruction), size_t FS_UNUSED(what))
{
    enum { SIZE, STRIDE, LOW, HIGH, RHS_DILATE, LHS_DILATE, COLUMNS };
    static const int64_t USUAL[COLUMNS] = {-1, 1, 0, 0, 1, 1};
    static const fs_hlo_attribute_key KEYS[COLUMNS] = {FS_HLO_WINDOW_SIZE,       FS_HLO_WINDOW_STRIDE,
                                                       FS_HLO_WINDOW_PAD_LOW,    FS_HLO_WINDOW_PAD_HIGH,
                                                       FS_HLO_WINDOW_RHS_DILATE, FS_HLO_WINDOW_LHS_DILATE};
    int64_t values[FS_HLO_MOST_RANK][COLUMNS];
    int dimensions = 0;
    bool odd[COLUMNS] = {false};
    fs_wire inner = fs_wire_in(&message, field);
    fs_wire_field one;
    while (fs_wire_next(&inner, &one)) {
        if (one.number != 1) continue;
        if (dimensions == FS_HLO_MOST_RANK)
            return fs_hlo_damaged(reader, inner.at, "more than %d dimensions", FS_HLO_MOST_RANK);
        int64_t *row = values[dimensions++];
        memset(row, 0, sizeof *values);
        FS_TRY(fs_wire_numbers(fs_wire_in(&inner, &one), row, COLUMNS, reader->err));
        for (int j = 0; j < COLUMNS; j++) odd[j] = odd[j] || row[j] != USUAL[j];
    }
    FS_TRY(fs_wire_end(&inner, reader->err));
    odd[LOW] = odd[HIGH] = odd[LOW] || odd[HIGH];
    for (int j = 0; j < COLUMNS; j++) {
        uint32_t first = reader->module->number_count;
        if (!odd[j]) continue;
        for (int i = 0; i < dimensions; i++) FS_TRY(fs_hlo_put_number(reader->module, values[i][j], reader->err));
        FS_TRY(fs_hlo_put_values(reader->module, KEYS[j], first, reader->err));
    }
    return FS_OK;
}

/* Products and convolutions -----------------------------------------------------------------------------------------*/

/* The text has the contracted dimensions also where there are none. */
static fs_status take_dot(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                          fs_hlo_instruction *FS_UNUSED(instruction), size_t FS_UNUSED(what))
{
    static const struct {
        uint32_t number;
        fs_hlo_attribute_key key;
        bool always;
    } LISTS[] = {{3, FS_HLO_LHS_BATCH, false},
                 {1, FS_HLO_LHS_CONTRACTING, true},
                 {4, FS_HLO_RHS_BATCH, false},
                 {2, FS_HLO_RHS_CONTRACTING, true}};
    for (size_t i = 0; i < sizeof LISTS / sizeof *LISTS; i++) {
        uint32_t first = reader->module->number_count;
        FS_TRY(fs_hlo_proto_numbers(reader, fs_wire_in(&message, field), LISTS[i].number));
        if (LISTS[i].always || reader->module->number_count > first)
            FS_TRY(fs_hlo_put_values(reader->module, LISTS[i].key, first, reader->err));
    }
    return FS_OK;
}

/* The labels of the dimensions of an operand: the first and the second have fields, and so have the spatial ones. */
static fs_status take_operand_labels(fs_hlo_reader *reader, fs_wire message, const int64_t *values, int first,
                                     int second, uint32_t spatial, fs_hlo_attribute_key key)
{
    fs_hlo_module *module = reader->module;
    uint32_t from = module->number_count;
    FS_TRY(fs_hlo_proto_numbers(reader, message, spatial));
    uint32_t count = module->number_count - from;
    if (count > FS_HLO_MOST_RANK - 2)
        return fs_hlo_damaged(reader, message.at, "more than %d dimensions", FS_HLO_MOST_RANK);
    int64_t labels[FS_HLO_MOST_RANK];
    for (uint32_t i = 0; i < count + 2; i++) labels[i] = INT64_MIN;
    for (uint32_t i = 0; i < count + 2; i++) {
        int64_t dimension = i < count ? module->numbers[from + i] : values[(i == count ? first : second) - 1];
        int64_t label = i < count ? (int64_t)i : i == count ? -1 : -2;
        if (dimension < 0 || dimension >= count + 2 || labels[dimension] != INT64_MIN)
            return fs_hlo_damaged(reader, message.at, "the dimensions of a convolution are contradictory");
        labels[dimension] = label;
    }
    module->number_count = from;
    for (uint32_t i = 0; i < count + 2; i++) FS_TRY(fs_hlo_put_number(module, labels[i], reader->err));
    return fs_hlo_put_values(module, key, from, reader->err);
}

static fs_status take_labels(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                             fs_hlo_instruction *FS_UNUSED(instruction), size_t FS_UNUSED(what))
{
    enum { RHS_INPUT = 3, RHS_OUTPUT = 4, RHS = 6, LHS_BATCH = 7, LHS_FEATURE = 8, OUT_BATCH = 9, OUT_FEATURE = 10 };
    enum { LHS = 11, OUT = 12 };
    int64_t values[OUT_FEATURE] = {0};
    fs_wire inner = fs_wire_in(&message, field);
    FS_TRY(fs_wire_numbers(inner, values, OUT_FEATURE, reader->err));
    FS_TRY(take_operand_labels(reader, inner, values, LHS_BATCH, LHS_FEATURE, LHS, FS_HLO_LHS_LABELS));
    FS_TRY(take_operand_labels(reader, inner, values, RHS_OUTPUT, RHS_INPUT, RHS, FS_HLO_RHS_LABELS));
    return take_operand_labels(reader, inner, values, OUT_BATCH, OUT_FEATURE, OUT, FS_HLO_OUT_LABELS);
}

/* Enumerations: their names in the text -----------------------------------------------------------------------------*/

static fs_status put_kind(fs_hlo_reader *reader, const char *const *names, size_t count, uint64_t value,
                          fs_hlo_instruction *instruction)
{
    if (value >= count || names[value] == NULL) return FS_OK;
    return fs_intern_text(&reader->module->texts, names[value], &instruction->kind, reader->err);
}

static fs_status take_distribution(fs_hlo_reader *reader, fs_wire FS_UNUSED(message), const fs_wire_field *field,
                                   fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    static const char *const NAMES[] = {NULL, "rng_uniform", "rng_normal"};
    return put_kind(reader, NAMES, 3, field->type == FS_WIRE_VARINT ? field->value : 0, instruction);
}

static fs_status take_random(fs_hlo_reader *reader, fs_wire FS_UNUSED(message), const fs_wire_field *field,
                             fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    static const char *const NAMES[] = {"rng_default", "rng_three_fry", "rng_philox"};
    return put_kind(reader, NAMES, 3, field->type == FS_WIRE_VARINT ? field->value : 0, instruction);
}

static fs_status take_fft(fs_hlo_reader *reader, fs_wire FS_UNUSED(message), const fs_wire_field *field,
                          fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    static const char *const NAMES[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
    return put_kind(reader, NAMES, 4, field->type == FS_WIRE_VARINT ? field->value : 0, instruction);
}

/* The precision of the factors of a product, and its algorithm. */
static fs_status take_algorithm(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                                fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    static const char *const NAMES[] = {NULL,
                                        "dot_any_f8_any_f8_f32",
                                        "dot_any_f8_any_f8_f32_fast_accum",
                                        "dot_f16_f16_f16",
                                        "dot_f16_f16_f32",
                                        "dot_bf16_bf16_bf16",
                                        "dot_bf16_bf16_f32",
                                        "dot_bf16_bf16_f32_x3",
                                        "dot_bf16_bf16_f32_x6",
                                        "dot_tf32_tf32_f32",
                                        "dot_tf32_tf32_f32_x3",
                                        "dot_f32_f32_f32",
                                        "dot_f64_f64_f64",
                                        "dot_bf16_bf16_f32_x9"};
    int64_t values[2] = {0, 0};
    fs_hlo_module *module = reader->module;
    uint32_t first = module->number_count;
    bool stated = false;
    FS_TRY(fs_hlo_proto_numbers(reader, fs_wire_in(&message, field), 1));
    for (uint32_t i = first; i < module->number_count; i++) stated = stated || module->numbers[i] != 0;
    if (stated) FS_TRY(fs_hlo_put_values(module, FS_HLO_PRECISION, first, reader->err));
    FS_TRY(fs_wire_numbers(fs_wire_in(&message, field), values, 2, reader->err));
    return put_kind(reader, NAMES, sizeof NAMES / sizeof *NAMES, (uint64_t)values[1], instruction);
}

/* Metadata ----------------------------------------------------------------------------------------------------------*/

/* The frame of an instruction without a number in the table: one of its file and line. */
static fs_status put_source(fs_hlo_reader *reader, const fs_wire_field *file, int64_t line,
                            fs_hlo_instruction *instruction)
{
    fs_hlo_module *module = reader->module;
    fs_hlo_frame frame = {.file = FS_NONE, .function = FS_NONE, .line = line > 0 ? line : 0, .parent = FS_NONE};
    FS_TRY(fs_hlo_proto_text(reader, file, &frame.file));
    if (frame.file == FS_NONE) return FS_OK;
    bool same = module->frame_count > reader->table_frames;
    if (same) {
        const fs_hlo_frame *last = &module->frames[module->frame_count - 1];
        same = last->file == frame.file && last->line == frame.line;
    }
    instruction->frame = module->frame_count - same;
    return same ? FS_OK : fs_hlo_put_frame(module, frame, reader->err);
}

static fs_status take_metadata(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                               fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    enum { OP_NAME = 2, FILE_NAME = 3, LINE = 4, DEDUPLICATED = 12, FRAME = 15 };
    fs_wire inner = fs_wire_in(&message, field);
    fs_wire_field one, file = {.number = 0};
    int64_t line = 0;
    while (fs_wire_next(&inner, &one)) {
        bool number = one.type == FS_WIRE_VARINT;
        if (one.number == OP_NAME) FS_TRY(fs_hlo_proto_text(reader, &one, &instruction->op_name));
        if (one.number == DEDUPLICATED) FS_TRY(fs_hlo_proto_text(reader, &one, &instruction->kernel));
        if (one.number == FILE_NAME && one.type == FS_WIRE_BYTES) file = one;
        if (one.number == LINE && number) line = (int32_t)one.value;
        if (one.number == FRAME && number && one.value >= 1 && one.value <= reader->table_frames)
            instruction->frame = (uint32_t)one.value - 1;
    }
    FS_TRY(fs_wire_end(&inner, reader->err));
    return instruction->frame == FS_NONE && file.number != 0 ? put_source(reader, &file, line, instruction) : FS_OK;
}

/* Groups of devices, in the protobuf: their text, as XLA writes it, and their sizes. */

enum { MOST_TEXT = 512 };

typedef struct {
    char bytes[MOST_TEXT];
    size_t size;
    bool cut; /* it was longer */
} groups_text;

__attribute__((format(printf, 2, 3))) static void put(groups_text *text, const char *format, ...)
{
    va_list values;
    if (text->cut) return;
    va_start(values, format);
    int size = vsnprintf(text->bytes + text->size, MOST_TEXT - text->size, format, values);
    va_end(values);
    text->cut = size < 0 || text->size + (size_t)size >= MOST_TEXT;
    text->size = text->cut ? MOST_TEXT - 1 : text->size + (size_t)size;
}

static void put_numbers(groups_text *text, const char *before, const int64_t *numbers, uint32_t count,
                        const char *after)
{
    put(text, "%s", before);
    for (uint32_t i = 0; i < count && !text->cut; i++) put(text, "%s%lld", i > 0 ? "," : "", (long long)numbers[i]);
    put(text, "%s", after);
}

static fs_status put_groups(fs_hlo_reader *reader, const groups_text *text, int64_t size,
                            fs_hlo_instruction *instruction)
{
    size_t kept = text->size < FS_HLO_MOST_GROUPS ? text->size : FS_HLO_MOST_GROUPS;
    if (size > 0) FS_TRY(fs_hlo_put_value(reader->module, FS_HLO_GROUP_SIZE, size, reader->err));
    return fs_intern_bytes(&reader->module->texts, text->bytes, kept, &instruction->groups, reader->err);
}

/* Lists of ids, each the field 1 of one of the fields `number`, which may be packed: {{0,1},{2,3}} */
static fs_status take_lists(fs_hlo_reader *reader, fs_wire message, uint32_t number, fs_hlo_instruction *instruction)
{
    fs_hlo_module *module = reader->module;
    fs_wire_field field;
    groups_text text = {.size = 0};
    int64_t size = 0;
    put(&text, "{");
    for (uint32_t lists = 0; fs_wire_next(&message, &field);) {
        if (field.number != number) continue;
        uint32_t first = module->number_count;
        FS_TRY(fs_hlo_proto_numbers(reader, fs_wire_in(&message, &field), 1));
        uint32_t count = module->number_count - first;
        size = lists == 0 || size == count ? count : 0;
        put_numbers(&text, lists++ == 0 ? "{" : ",{", module->numbers + first, count, "}");
        module->number_count = first;
    }
    FS_TRY(fs_wire_end(&message, reader->err));
    put(&text, "}");
    return put_groups(reader, &text, size, instruction);
}

static fs_status take_groups(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                             fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    return take_lists(reader, message, field->number, instruction);
}

/* [2,4]<=[8], or with another order of the devices [2,4]<=[4,2]T(1,0) */
static fs_status take_iota(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                           fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    enum { NUMBERS = 2, DIMENSIONS = 3, ORDER = 4 };
    fs_hlo_module *module = reader->module;
    fs_wire inner = fs_wire_in(&message, field);
    groups_text text = {.size = 0};
    int64_t values[NUMBERS] = {0, 0}; /* of groups, and of devices in each */
    uint32_t first = module->number_count;
    FS_TRY(fs_wire_numbers(inner, values, NUMBERS, reader->err));
    FS_TRY(fs_hlo_proto_numbers(reader, inner, DIMENSIONS));
    uint32_t dimensions = module->number_count - first;
    FS_TRY(fs_hlo_proto_numbers(reader, inner, ORDER));
    const int64_t *numbers = module->numbers + first;
    put_numbers(&text, "[", values, NUMBERS, "]");
    put_numbers(&text, "<=[", numbers, dimensions, "]");
    if (dimensions > 1) put_numbers(&text, "T(", numbers + dimensions, module->number_count - first - dimensions, ")");
    module->number_count = first;
    return put_groups(reader, &text, values[1], instruction);
}

/* The list of devices stands beside the older groups. */
static fs_status take_devices(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                              fs_hlo_instruction *instruction, size_t what)
{
    enum { GROUPS = 1, IOTA = 2 };
    fs_wire inner = fs_wire_in(&message, field), rest = inner;
    fs_wire_field part;
    if (instruction->groups != FS_NONE) return FS_OK;
    while (fs_wire_next(&rest, &part))
        if (part.number == IOTA) return take_iota(reader, rest, &part, instruction, what);
    FS_TRY(fs_wire_end(&rest, reader->err));
    return take_lists(reader, inner, GROUPS, instruction);
}

/* Write the axes of a mesh with their sizes, or only the name of the one with a number. */
static fs_status put_axes(fs_hlo_reader *reader, groups_text *text, fs_wire mesh, uint64_t only)
{
    enum { AXES = 1, NAME = 1, SIZE = 2, ALL = INT32_MAX };
    fs_wire_field field, part;
    for (uint64_t number = 0; fs_wire_next(&mesh, &field);) {
        if (field.number != AXES || (only != ALL && number++ != only)) continue;
        fs_wire axis = fs_wire_in(&mesh, &field);
        long long size = 0;
        if (only == ALL && number++ > 0) put(text, ",");
        while (fs_wire_next(&axis, &part)) {
            bool name = part.number == NAME && part.type == FS_WIRE_BYTES && part.size < MOST_TEXT;
            if (name) put(text, "'%.*s'", (int)part.size, (const char *)part.bytes);
            if (part.number == SIZE && part.type == FS_WIRE_VARINT) size = (long long)part.value;
        }
        FS_TRY(fs_wire_end(&axis, reader->err));
        if (only == ALL) put(text, "=%lld", size);
    }
    return fs_wire_end(&mesh, reader->err);
}

/* Write an axis that the groups have, and the part of it, if it is one. */
static fs_status put_grouped(fs_hlo_reader *reader, groups_text *text, fs_wire mesh, fs_wire grouped)
{
    enum { AXIS = 1, PART = 2 };
    fs_wire_field field;
    uint64_t axis = 0;
    int64_t part[2] = {0, 0}; /* the size of what is before it, and its own */
    while (fs_wire_next(&grouped, &field)) {
        if (field.number == AXIS && field.type == FS_WIRE_VARINT) axis = field.value;
        if (field.number == PART) FS_TRY(fs_wire_numbers(fs_wire_in(&grouped, &field), part, 2, reader->err));
    }
    FS_TRY(fs_wire_end(&grouped, reader->err));
    FS_TRY(put_axes(reader, text, mesh, axis));
    if (part[1] > 0) put(text, ":(%lld)%lld", (long long)part[0], (long long)part[1]);
    return FS_OK;
}

/* mesh['x'=2,'y'=4] {'x','y':(2)2} */
static fs_status take_mesh(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                           fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    enum { MESH = 1, GROUPED = 2, EVERY_AXIS = INT32_MAX };
    fs_wire inner = fs_wire_in(&message, field), rest = inner, mesh = {inner.begin, inner.begin, inner.begin, NULL};
    fs_wire_field part;
    groups_text text = {.size = 0};
    while (fs_wire_next(&rest, &part))
        if (part.number == MESH) mesh = fs_wire_in(&rest, &part);
    FS_TRY(fs_wire_end(&rest, reader->err));
    put(&text, "mesh[");
    FS_TRY(put_axes(reader, &text, mesh, EVERY_AXIS));
    const char *before = "] {";
    while (fs_wire_next(&inner, &part)) {
        if (part.number != GROUPED) continue;
        put(&text, "%s", before);
        FS_TRY(put_grouped(reader, &text, mesh, fs_wire_in(&inner, &part)));
        before = ",";
    }
    FS_TRY(fs_wire_end(&inner, reader->err));
    put(&text, "}");
    return put_groups(reader, &text, text.cut ? 0 : fs_hlo_group_size(text.bytes, text.size), instruction);
}

/* {{0,1},{1,0}}: of each pair, a message, a 0 is left out. */
static fs_status take_pairs(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                            fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    uint32_t number = field->number;
    fs_wire_field one;
    groups_text text = {.size = 0};
    while (fs_wire_next(&message, &one)) {
        if (one.number != number) continue;
        int64_t pair[2] = {0, 0};
        FS_TRY(fs_wire_numbers(fs_wire_in(&message, &one), pair, 2, reader->err));
        put_numbers(&text, text.size == 0 ? "{{" : ",{", pair, 2, "}");
    }
    FS_TRY(fs_wire_end(&message, reader->err));
    put(&text, "}");
    return put_groups(reader, &text, 0, instruction);
}
