/* Reads a module from its protobuf: an HloModuleProto, or the HloProto around it. What is read, and how it is spelled,
 * is what the text has (hlo/text.c), so that both give the same module; only the values of constants are left out.
 *
 * Instructions and computations refer to others by numbers. Those of all computations are listed first, since calls may
 * precede what they call. The instructions of a computation are appended in the order of its schedule, if it has one.
 *
 * Field numbers: xla/service/hlo.proto and xla/xla_data.proto. */
#include "work/hlo/proto.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/sort.h"

/* What the instructions of a module's protobuf share: shapes, each kept once for equal bytes, and the frames of the
 * program that was traced. */

enum { SHAPE_TYPE = 2, SHAPE_SIZES = 3, SHAPE_PARTS = 4, SHAPE_LAYOUT = 5 };
enum { LAYOUT_ORDER = 1, LAYOUT_SPACE = 8 };
enum { FRAMES_FILE = 1, FRAMES_FUNCTION = 2, FRAMES_LOCATION = 3, FRAMES_FRAME = 4 };

/* Shapes ------------------------------------------------------------------------------------------------------------*/

/* By xla.PrimitiveType. */
static const uint8_t TYPES[] = {
    [1] = FS_HLO_PRED,
    [2] = FS_HLO_S8,
    [3] = FS_HLO_S16,
    [4] = FS_HLO_S32,
    [5] = FS_HLO_S64,
    [6] = FS_HLO_U8,
    [7] = FS_HLO_U16,
    [8] = FS_HLO_U32,
    [9] = FS_HLO_U64,
    [10] = FS_HLO_F16,
    [11] = FS_HLO_F32,
    [12] = FS_HLO_F64,
    [13] = FS_HLO_TUPLE,
    [14] = FS_HLO_OPAQUE,
    [15] = FS_HLO_C64,
    [16] = FS_HLO_BF16,
    [17] = FS_HLO_TOKEN,
    [18] = FS_HLO_C128,
    [19] = FS_HLO_F8E5M2,
    [20] = FS_HLO_F8E4M3FN,
    [21] = FS_HLO_S4,
    [22] = FS_HLO_U4,
    [23] = FS_HLO_F8E4M3B11FNUZ,
    [24] = FS_HLO_F8E5M2FNUZ,
    [25] = FS_HLO_F8E4M3FNUZ,
    [26] = FS_HLO_S2,
    [27] = FS_HLO_U2,
    [28] = FS_HLO_F8E4M3,
    [29] = FS_HLO_F8E3M4,
    [30] = FS_HLO_S1,
    [31] = FS_HLO_U1,
    [32] = FS_HLO_F4E2M1FN,
    [33] = FS_HLO_F8E8M0FNU,
    [34] = FS_HLO_BUFFER,
};

/* A dynamic size without a limit is -1. */
static fs_status read_sizes(fs_hlo_reader *reader, fs_wire message, fs_hlo_shape *shape)
{
    fs_hlo_module *module = reader->module;
    shape->sizes.first = module->number_count;
    FS_TRY(fs_hlo_proto_numbers(reader, message, SHAPE_SIZES));
    shape->sizes.count = module->number_count - shape->sizes.first;
    if (shape->sizes.count > FS_HLO_MOST_RANK)
        return fs_hlo_damaged(reader, message.at, "a shape has more than %d dimensions", FS_HLO_MOST_RANK);
    for (uint32_t i = 0; i < shape->sizes.count; i++) {
        int64_t *size = &module->numbers[shape->sizes.first + i];
        if (*size == INT64_MIN) *size = -1;
        else if (*size < 0) return fs_hlo_damaged(reader, message.at, "a shape has a negative size");
    }
    return FS_OK;
}

static fs_status read_layout(fs_hlo_reader *reader, fs_wire message, fs_hlo_shape *shape)
{
    fs_hlo_module *module = reader->module;
    fs_wire rest = message;
    fs_wire_field field;
    shape->layout.first = module->number_count;
    FS_TRY(fs_hlo_proto_numbers(reader, message, LAYOUT_ORDER));
    shape->layout.count = module->number_count - shape->layout.first;
    bool fits = shape->layout.count <= shape->sizes.count;
    for (uint32_t i = 0; fits && i < shape->layout.count; i++) {
        int64_t dimension = module->numbers[shape->layout.first + i];
        fits = dimension >= 0 && dimension < shape->sizes.count;
    }
    if (!fits) return fs_hlo_damaged(reader, message.at, "a layout has a dimension that its shape lacks");
    while (fs_wire_next(&rest, &field))
        if (field.number == LAYOUT_SPACE && field.type == FS_WIRE_VARINT) shape->space = (int64_t)field.value;
    return fs_wire_end(&rest, reader->err);
}

enum { LONGEST_KNOWN = 1024 }; /* bytes of shapes that are looked up */

static fs_status read_shape(fs_hlo_reader *reader, fs_wire message, int depth, uint32_t *id);

/* The parts are listed one after the other, once those nested in them are. */
static fs_status read_parts(fs_hlo_reader *reader, fs_wire message, int depth, uint32_t count, fs_hlo_shape *shape)
{
    fs_hlo_module *module = reader->module;
    fs_status status = FS_OK;
    fs_wire_field field;
    uint32_t *parts = fs_malloc((count + (size_t)1) * sizeof *parts), at = 0;
    if (parts == NULL) return fs_no_memory(reader->err);
    while (status == FS_OK && at < count && fs_wire_next(&message, &field))
        if (field.number == SHAPE_PARTS)
            status = read_shape(reader, fs_wire_in(&message, &field), depth + 1, &parts[at++]);
    shape->parts = (fs_hlo_list){module->shape_part_count, at};
    for (uint32_t i = 0; i < at && status == FS_OK; i++) status = fs_hlo_put_part(module, parts[i], reader->err);
    fs_free(parts);
    return status;
}

static fs_status read_shape(fs_hlo_reader *reader, fs_wire message, int depth, uint32_t *id)
{
    fs_hlo_shape shape = {.type = FS_HLO_INVALID};
    fs_wire rest = message, layout = {.at = NULL};
    fs_wire_field field;
    uint32_t known = reader->shapes.count, bytes = 0, parts = 0;
    if (depth == FS_HLO_MOST_DEPTH)
        return fs_hlo_damaged(reader, message.at, "tuples are nested deeper than %d", FS_HLO_MOST_DEPTH);
    size_t size = (size_t)(message.end - message.at);
    if (size <= LONGEST_KNOWN) {
        FS_TRY(fs_intern_bytes(&reader->shapes, message.at, size, &bytes, reader->err));
        if (bytes < known) {
            *id = reader->shape_ids[bytes];
            return FS_OK;
        }
        FS_TRY(FS_LIST_ROOM(&reader->shape_ids, bytes, &reader->shape_id_capacity, 64, reader->err));
        reader->shape_ids[bytes] = FS_NONE; /* not asked for meanwhile: what lies in this shape is shorter */
    }
    while (fs_wire_next(&rest, &field)) {
        if (field.number == SHAPE_TYPE && field.type == FS_WIRE_VARINT && field.value < sizeof TYPES)
            shape.type = (fs_hlo_type)TYPES[field.value];
        if (field.number == SHAPE_LAYOUT) layout = fs_wire_in(&rest, &field);
        parts += field.number == SHAPE_PARTS;
    }
    FS_TRY(fs_wire_end(&rest, reader->err));
    FS_TRY(read_sizes(reader, message, &shape));
    if (layout.at != NULL) FS_TRY(read_layout(reader, layout, &shape));
    if (parts > 0) FS_TRY(read_parts(reader, message, depth, parts, &shape));
    if (!fs_hlo_countable(reader->module, &shape))
        return fs_hlo_damaged(reader, message.at, "a shape has more than 2^62 elements");
    *id = reader->module->shape_count;
    if (size <= LONGEST_KNOWN) reader->shape_ids[bytes] = *id;
    return fs_hlo_put_shape(reader->module, shape, reader->err);
}

/* Frames ------------------------------------------------------------------------------------------------------------*/

/* Read the tables: files, functions and places come before the frames that they describe. */
static fs_status read_frames(fs_hlo_reader *reader, const fs_wire *rows, const uint32_t *starts)
{
    fs_hlo_module *module = reader->module;
    fs_wire_field field;
    for (uint32_t at = starts[FRAMES_FRAME]; at < starts[FRAMES_FRAME + 1]; at++) {
        fs_hlo_frame frame = {.file = FS_NONE, .function = FS_NONE, .parent = FS_NONE};
        int64_t values[2] = {0, 0}, place[3] = {0, 0, 0};
        FS_TRY(fs_wire_numbers(rows[at], values, 2, reader->err));
        if (values[0] >= 1 && values[0] <= starts[FRAMES_LOCATION + 1] - starts[FRAMES_LOCATION]) {
            FS_TRY(fs_wire_numbers(rows[starts[FRAMES_LOCATION] + (uint32_t)values[0] - 1], place, 3, reader->err));
            for (int kind = FRAMES_FILE; kind <= FRAMES_FUNCTION; kind++) {
                if (place[kind - 1] < 1 || place[kind - 1] > starts[kind + 1] - starts[kind]) continue;
                fs_wire text = rows[starts[kind] + (uint32_t)place[kind - 1] - 1];
                field = (fs_wire_field){0, FS_WIRE_BYTES, 0, text.at, (size_t)(text.end - text.at)};
                FS_TRY(fs_hlo_proto_text(reader, &field, kind == FRAMES_FILE ? &frame.file : &frame.function));
            }
            frame.line = place[2] > 0 ? place[2] : 0;
        }
        if (values[1] >= 1 && values[1] <= module->frame_count) frame.parent = (uint32_t)values[1] - 1;
        FS_TRY(fs_hlo_put_frame(module, frame, reader->err));
    }
    reader->table_frames = module->frame_count;
    return FS_OK;
}

/* List the rows of the four tables, one table after the other. */
static fs_status proto_frames(fs_hlo_reader *reader, fs_wire message)
{
    uint32_t starts[FRAMES_FRAME + 2] = {0}, next[FRAMES_FRAME + 1];
    fs_wire rest = message;
    fs_wire_field field;
    while (fs_wire_next(&rest, &field))
        if (field.number >= FRAMES_FILE && field.number <= FRAMES_FRAME) starts[field.number + 1]++;
    FS_TRY(fs_wire_end(&rest, reader->err));
    for (int kind = FRAMES_FILE; kind <= FRAMES_FRAME; kind++) {
        next[kind] = starts[kind];
        starts[kind + 1] += starts[kind];
    }
    fs_wire *rows = fs_malloc((starts[FRAMES_FRAME + 1] + (size_t)1) * sizeof *rows);
    if (rows == NULL) return fs_no_memory(reader->err);
    for (rest = message; fs_wire_next(&rest, &field);)
        if (field.number >= FRAMES_FILE && field.number <= FRAMES_FRAME)
            rows[next[field.number]++] = fs_wire_in(&rest, &field);
    fs_status status = read_frames(reader, rows, starts);
    fs_free(rows);
    return status;
}

enum {
    MODULE_NAME = 1,
    MODULE_ENTRY_NAME = 2,
    MODULE_COMPUTATION = 3,
    MODULE_ENTRY = 6,
    MODULE_SCHEDULE = 7,
    MODULE_ALIASES = 8,
    MODULE_DEVICES = 15,
    MODULE_FRAMES = 17,
    MODULE_DONORS = 18
};
enum { DEVICES_REPLICAS = 1, DEVICES_COMPUTATIONS = 2 };
enum { COMPUTATION_NAME = 1, COMPUTATION_INSTRUCTION = 2, COMPUTATION_ID = 5, COMPUTATION_ROOT = 6 };
enum { SCHEDULE_ENTRY = 1, ENTRY_KEY = 1, ENTRY_VALUE = 2, SEQUENCE_ID = 1 };
enum {
    INSTRUCTION_NAME = 1,
    INSTRUCTION_OPCODE = 2,
    INSTRUCTION_SHAPE = 3,
    INSTRUCTION_ID = 35,
    INSTRUCTION_OPERANDS = 36,
    INSTRUCTION_CALLED = 38
};

/* Numbers and errors ------------------------------------------------------------------------------------------------*/

fs_status fs_hlo_damaged(const fs_hlo_reader *reader, const uint8_t *at, const char *format, ...)
{
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return fs_fail(reader->err, FS_VALUE_ERROR, "byte %zu of the HloProto: %s", (size_t)(at - reader->begin), what);
}

FS_ORDER_BY(by_id, fs_hlo_numbered, id)

/* Sort things by their numbers; *twice receives a number that two have, if the result is false. */
static bool sort_numbered(fs_hlo_numbered *items, uint32_t count, int64_t *twice)
{
    if (count > 0) qsort(items, count, sizeof *items, by_id);
    for (uint32_t i = 1; i < count; i++) {
        *twice = items[i].id;
        if (items[i].id == items[i - 1].id) return false;
    }
    return true;
}

/* Return the place of the thing with a number, FS_NONE if there is none. */
static uint32_t place_of(const fs_hlo_numbered *items, uint32_t count, int64_t id)
{
    uint32_t at = FS_FIRST_NOT(i, 0, count, items[i].id < id);
    return at < count && items[at].id == id ? items[at].place : FS_NONE;
}

fs_status fs_hlo_proto_text(fs_hlo_reader *reader, const fs_wire_field *field, uint32_t *text)
{
    if (field->type != FS_WIRE_BYTES || field->size == 0) return FS_OK;
    return fs_intern_bytes(&reader->module->texts, field->bytes, field->size, text, reader->err);
}

fs_status fs_hlo_proto_numbers(fs_hlo_reader *reader, fs_wire message, uint32_t number)
{
    fs_wire_field field;
    int64_t value;
    while (fs_wire_next(&message, &field)) {
        if (field.number != number) continue;
        fs_wire list = fs_wire_list(&message, &field);
        while (fs_wire_item(&list, &field, &value)) FS_TRY(fs_hlo_put_number(reader->module, value, reader->err));
        FS_TRY(fs_wire_end(&list, reader->err));
    }
    return fs_wire_end(&message, reader->err);
}

/* Instructions ------------------------------------------------------------------------------------------------------*/

/* The instructions of a computation: their messages in the order of the file, their places by number, and the ids that
 * the module gives them, by place (FS_NONE: not yet). */
typedef struct {
    fs_wire *messages;
    fs_hlo_numbered *places;
    uint32_t *ids;
    uint32_t count, capacity, place_capacity;
} instruction_list;

static fs_status read_operands(fs_hlo_reader *reader, const instruction_list *list, fs_wire message,
                               fs_hlo_instruction *instruction)
{
    fs_wire_field field;
    int64_t number;
    instruction->operands.first = reader->module->operand_count;
    while (fs_wire_next(&message, &field)) {
        if (field.number != INSTRUCTION_OPERANDS) continue;
        fs_wire ids = fs_wire_list(&message, &field);
        while (fs_wire_item(&ids, &field, &number)) {
            uint32_t place = place_of(list->places, list->count, number);
            uint32_t operand = place != FS_NONE ? list->ids[place] : FS_NONE;
            if (operand == FS_NONE)
                return fs_hlo_damaged(reader, message.at,
                                      "%lld is an operand, and no instruction before it in its "
                                      "computation",
                                      (long long)number);
            FS_TRY(fs_hlo_put_operand(reader->module, operand, reader->err));
        }
        FS_TRY(fs_wire_end(&ids, reader->err));
    }
    instruction->operands.count = reader->module->operand_count - instruction->operands.first;
    return fs_wire_end(&message, reader->err);
}

static fs_status read_called(fs_hlo_reader *reader, fs_wire message, fs_hlo_instruction *instruction, uint32_t count)
{
    fs_hlo_module *module = reader->module;
    uint32_t first = module->number_count;
    instruction->called.first = module->called_count;
    FS_TRY(fs_hlo_proto_numbers(reader, message, INSTRUCTION_CALLED));
    for (uint32_t i = first; i < module->number_count; i++)
        FS_TRY(fs_hlo_put_called(module, place_of(reader->computations, count, module->numbers[i]), reader->err));
    module->number_count = first;
    instruction->called.count = module->called_count - instruction->called.first;
    return FS_OK;
}

static fs_status read_instruction(fs_hlo_reader *reader, const instruction_list *list, fs_wire message,
                                  uint32_t computations, bool root)
{
    fs_hlo_module *module = reader->module;
    fs_hlo_instruction instruction = fs_hlo_blank();
    fs_wire rest = message;
    fs_wire_field field;
    while (fs_wire_next(&rest, &field)) {
        if (field.number == INSTRUCTION_NAME) FS_TRY(fs_hlo_proto_text(reader, &field, &instruction.name));
        if (field.number == INSTRUCTION_OPCODE) FS_TRY(fs_hlo_proto_text(reader, &field, &instruction.opcode));
        if (field.number == INSTRUCTION_SHAPE)
            FS_TRY(read_shape(reader, fs_wire_in(&rest, &field), 0, &instruction.shape));
    }
    FS_TRY(fs_wire_end(&rest, reader->err));
    if (instruction.name == FS_NONE || instruction.opcode == FS_NONE || instruction.shape == FS_NONE)
        return fs_hlo_damaged(reader, message.at, "an instruction has no name, no opcode or no shape");
    FS_TRY(read_operands(reader, list, message, &instruction));
    FS_TRY(read_called(reader, message, &instruction, computations));
    instruction.attributes.first = module->attribute_count;
    FS_TRY(fs_hlo_proto_attributes(reader, message, fs_hlo_text(module, instruction.opcode), &instruction));
    instruction.attributes.count = module->attribute_count - instruction.attributes.first;
    instruction.computation = module->computation_count;
    instruction.root = root;
    return fs_hlo_put_instruction(module, instruction, reader->err);
}

/* Computations ------------------------------------------------------------------------------------------------------*/

static fs_status list_instruction(fs_hlo_reader *reader, instruction_list *list, fs_wire message)
{
    int64_t id = 0;
    FS_TRY(fs_wire_number(message, INSTRUCTION_ID, &id, reader->err));
    FS_TRY(FS_LIST_ROOM(&list->messages, list->count, &list->capacity, 64, reader->err));
    FS_TRY(FS_LIST_ROOM(&list->places, list->count, &list->place_capacity, 64, reader->err));
    list->places[list->count] = (fs_hlo_numbered){id, list->count};
    list->messages[list->count++] = message;
    return FS_OK;
}

static fs_status append_instruction(fs_hlo_reader *reader, const instruction_list *list, uint32_t place, int64_t root,
                                    uint32_t computations)
{
    fs_hlo_module *module = reader->module;
    bool is_root = place_of(list->places, list->count, root) == place;
    FS_TRY(read_instruction(reader, list, list->messages[place], computations, is_root));
    list->ids[place] = module->instruction_count - 1;
    return FS_OK;
}

/* Append the instructions in the order of the schedule, and those that it lacks in the order of the file. */
static fs_status append_instructions(fs_hlo_reader *reader, const instruction_list *list, fs_wire sequence,
                                     int64_t root, uint32_t computations)
{
    fs_wire_field field;
    int64_t number;
    while (fs_wire_next(&sequence, &field)) {
        if (field.number != SEQUENCE_ID) continue;
        fs_wire ids = fs_wire_list(&sequence, &field);
        while (fs_wire_item(&ids, &field, &number)) {
            uint32_t place = place_of(list->places, list->count, number);
            if (place == FS_NONE || list->ids[place] != FS_NONE)
                return fs_hlo_damaged(reader, sequence.at,
                                      "%lld is in the schedule of a computation that lacks it, or twice",
                                      (long long)number);
            FS_TRY(append_instruction(reader, list, place, root, computations));
        }
        FS_TRY(fs_wire_end(&ids, reader->err));
    }
    FS_TRY(fs_wire_end(&sequence, reader->err));
    for (uint32_t place = 0; place < list->count; place++)
        if (list->ids[place] == FS_NONE) FS_TRY(append_instruction(reader, list, place, root, computations));
    return FS_OK;
}

static fs_status fill_computation(fs_hlo_reader *reader, instruction_list *list, fs_wire message, fs_wire sequence,
                                  uint32_t computations)
{
    fs_hlo_module *module = reader->module;
    fs_hlo_computation computation = {.name = FS_NONE, .instructions.first = module->instruction_count};
    fs_wire rest = message;
    fs_wire_field field;
    int64_t root = 0, twice;
    while (fs_wire_next(&rest, &field)) {
        if (field.number == COMPUTATION_NAME) FS_TRY(fs_hlo_proto_text(reader, &field, &computation.name));
        if (field.number == COMPUTATION_ROOT && field.type == FS_WIRE_VARINT) root = (int64_t)field.value;
        if (field.number == COMPUTATION_INSTRUCTION) FS_TRY(list_instruction(reader, list, fs_wire_in(&rest, &field)));
    }
    FS_TRY(fs_wire_end(&rest, reader->err));
    if (computation.name == FS_NONE) return fs_hlo_damaged(reader, message.at, "a computation has no name");
    if (list->count == 0) return fs_hlo_damaged(reader, message.at, "the computation has no instructions");
    if (!sort_numbered(list->places, list->count, &twice))
        return fs_hlo_damaged(reader, message.at, "two instructions have the number %lld", (long long)twice);
    FS_TRY(FS_NEW(&list->ids, list->count, reader->err));
    memset(list->ids, 0xff, list->count * sizeof *list->ids); /* FS_NONE */
    FS_TRY(append_instructions(reader, list, sequence, root, computations));
    uint32_t place = place_of(list->places, list->count, root);
    computation.root = place != FS_NONE ? list->ids[place] : module->instruction_count - 1;
    computation.instructions.count = list->count;
    return fs_hlo_put_computation(module, computation, reader->err);
}

static fs_status read_computation(fs_hlo_reader *reader, fs_wire message, fs_wire sequence, uint32_t computations)
{
    instruction_list list = {.messages = NULL};
    fs_status status = fill_computation(reader, &list, message, sequence, computations);
    fs_free(list.messages);
    fs_free(list.places);
    fs_free(list.ids);
    return status;
}

/* Modules -----------------------------------------------------------------------------------------------------------*/

/* A computation, as the module lists it. */
typedef struct {
    fs_wire message, sequence;
    int64_t id;
} listed;

typedef struct {
    listed *items;
    uint32_t count, capacity;
    fs_wire_field entry_name;
    fs_wire schedule;
    int64_t entry;
} computation_list;

static fs_status list_computation(fs_hlo_reader *reader, computation_list *list, fs_wire message)
{
    listed item = {.message = message, .sequence = fs_wire_of(reader->begin, 0)};
    FS_TRY(fs_wire_number(message, COMPUTATION_ID, &item.id, reader->err));
    return FS_LIST_ADD(&list->items, &list->count, &list->capacity, 64, reader->err, item);
}

static fs_status read_devices(fs_hlo_reader *reader, fs_wire message)
{
    fs_wire_field field;
    while (fs_wire_next(&message, &field)) {
        bool counts = field.type == FS_WIRE_VARINT && field.value >= 1 && field.value < FS_NONE;
        if (counts && field.number == DEVICES_REPLICAS) reader->module->replicas = (uint32_t)field.value;
        if (counts && field.number == DEVICES_COMPUTATIONS) reader->module->partitions = (uint32_t)field.value;
    }
    return fs_wire_end(&message, reader->err);
}

/* A list of messages, whose fields of a number are parameters; 0 is left out. */
static fs_status read_donors(fs_hlo_reader *reader, fs_wire message, uint32_t number)
{
    fs_wire_field field;
    while (fs_wire_next(&message, &field)) {
        int64_t parameter = 0;
        if (field.number != 1) continue;
        FS_TRY(fs_wire_number(fs_wire_in(&message, &field), number, &parameter, reader->err));
        FS_TRY(fs_hlo_put_donor(reader->module, parameter, reader->err));
    }
    return fs_wire_end(&message, reader->err);
}

static fs_status list_computations(fs_hlo_reader *reader, computation_list *list, fs_wire message)
{
    fs_hlo_module *module = reader->module;
    fs_wire_field field;
    while (fs_wire_next(&message, &field)) {
        fs_wire inner = fs_wire_in(&message, &field);
        if (field.number == MODULE_NAME) FS_TRY(fs_hlo_proto_text(reader, &field, &module->name));
        if (field.number == MODULE_ENTRY_NAME) list->entry_name = field;
        if (field.number == MODULE_ENTRY && field.type == FS_WIRE_VARINT) list->entry = (int64_t)field.value;
        if (field.number == MODULE_COMPUTATION) FS_TRY(list_computation(reader, list, inner));
        if (field.number == MODULE_DEVICES) FS_TRY(read_devices(reader, inner));
        if (field.number == MODULE_ALIASES) FS_TRY(read_donors(reader, inner, 2));
        if (field.number == MODULE_DONORS) FS_TRY(read_donors(reader, inner, 1));
        if (field.number == MODULE_FRAMES) FS_TRY(proto_frames(reader, inner));
        if (field.number != MODULE_SCHEDULE) continue;
        list->schedule = inner;
        module->scheduled = true;
    }
    return fs_wire_end(&message, reader->err);
}

/* Give the computations their sequences of the schedule. */
static fs_status take_schedule(fs_hlo_reader *reader, computation_list *list)
{
    fs_wire rest = list->schedule, entry;
    fs_wire_field field;
    while (reader->module->scheduled && fs_wire_next(&rest, &field)) {
        if (field.number != SCHEDULE_ENTRY) continue;
        fs_wire sequence = fs_wire_of(reader->begin, 0);
        int64_t id = 0;
        for (entry = fs_wire_in(&rest, &field); fs_wire_next(&entry, &field);) {
            if (field.number == ENTRY_KEY && field.type == FS_WIRE_VARINT) id = (int64_t)field.value;
            if (field.number == ENTRY_VALUE) sequence = fs_wire_in(&entry, &field);
        }
        FS_TRY(fs_wire_end(&entry, reader->err));
        uint32_t place = place_of(reader->computations, list->count, id);
        if (place != FS_NONE) list->items[place].sequence = sequence;
    }
    return reader->module->scheduled ? fs_wire_end(&rest, reader->err) : FS_OK;
}

static fs_status find_entry(fs_hlo_reader *reader, const computation_list *list, const uint8_t *at)
{
    fs_hlo_module *module = reader->module;
    module->entry = place_of(reader->computations, list->count, list->entry);
    for (uint32_t i = 0; module->entry == FS_NONE && i < list->count; i++)
        if (fs_text_is(fs_wire_text(&list->entry_name), fs_hlo_text(module, module->computations[i].name)))
            module->entry = i;
    if (module->entry == FS_NONE && list->count == 1) module->entry = 0;
    return module->entry != FS_NONE ? FS_OK : fs_hlo_damaged(reader, at, "no computation is the entry");
}

static fs_status read(fs_hlo_reader *reader, computation_list *list, fs_wire message)
{
    fs_hlo_module *module = reader->module;
    fs_error err;
    uint32_t at;
    int64_t twice;
    FS_TRY(list_computations(reader, list, message));
    if (module->name == FS_NONE) return fs_hlo_damaged(reader, message.at, "the module has no name");
    if (list->items == NULL) return fs_hlo_damaged(reader, message.at, "no computation is the entry");
    FS_TRY(FS_NEW(&reader->computations, list->count + (size_t)1, reader->err));
    for (uint32_t i = 0; i < list->count; i++) reader->computations[i] = (fs_hlo_numbered){list->items[i].id, i};
    if (!sort_numbered(reader->computations, list->count, &twice))
        return fs_hlo_damaged(reader, message.at, "two computations have the number %lld", (long long)twice);
    FS_TRY(take_schedule(reader, list));
    for (uint32_t i = 0; i < list->count; i++)
        FS_TRY(read_computation(reader, list->items[i].message, list->items[i].sequence, list->count));
    FS_TRY(find_entry(reader, list, message.at));
    fs_status status = fs_hlo_check_calls(module, &at, &err);
    if (status == FS_VALUE_ERROR) return fs_hlo_damaged(reader, list->items[at].message.at, "%s", err.message);
    return status == FS_OK ? FS_OK : fs_fail(reader->err, status, "%s", err.message);
}

/* The module in an HloProto, whose first field is the module, which begins with its name; or the message itself. */
static fs_wire module_of(fs_wire message)
{
    fs_wire rest = message;
    fs_wire_field field;
    while (fs_wire_next(&rest, &field))
        if (field.number == MODULE_NAME && field.type == FS_WIRE_BYTES && field.size > 0 && field.bytes[0] == '\n')
            return fs_wire_in(&rest, &field);
    return message;
}

/* A text begins with HloModule or a comment, after blanks; a protobuf with its first field, a newline. */
bool fs_hlo_is_proto(const void *bytes, size_t size)
{
    const char *text = bytes;
    size_t at = 0;
    while (at < size && text[at] != 0 && strchr(" \t\r\n", text[at]) != NULL) at++;
    return size > 0 && text[0] == '\n' && (at == size || (text[at] != 'H' && text[at] != '/'));
}

fs_status fs_hlo_read_proto(fs_hlo_module *module, const void *bytes, size_t size, fs_error *err)
{
    fs_hlo_reader reader = {.module = module, .err = err, .begin = bytes};
    computation_list list = {.entry_name = {.number = 0}};
    *module = (fs_hlo_module){.name = FS_NONE, .entry = FS_NONE, .partitions = 1, .replicas = 1};
    fs_status status = read(&reader, &list, module_of(fs_wire_of(bytes, size)));
    fs_free(list.items);
    fs_free(reader.computations);
    fs_free(reader.shape_ids);
    fs_intern_clear(&reader.shapes);
    if (status != FS_OK) fs_hlo_clear(module);
    return status;
}
