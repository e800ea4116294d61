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

static int by_id(const void *a, const void *b)
{
    const fs_hlo_numbered *one = a, *other = b;
    return (one->id > other->id) - (one->id < other->id);
}

bool fs_hlo_sort_numbered(fs_hlo_numbered *items, uint32_t count, int64_t *twice)
{
    if (count > 0) qsort(items, count, sizeof *items, by_id);
    for (uint32_t i = 1; i < count; i++) {
        *twice = items[i].id;
        if (items[i].id == items[i - 1].id) return false;
    }
    return true;
}

uint32_t fs_hlo_place_of(const fs_hlo_numbered *items, uint32_t count, int64_t id)
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
            uint32_t place = fs_hlo_place_of(list->places, list->count, number);
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
    fs_wire_field field;
    int64_t number;
    instruction->called.first = reader->module->called_count;
    while (fs_wire_next(&message, &field)) {
        if (field.number != INSTRUCTION_CALLED) continue;
        fs_wire ids = fs_wire_list(&message, &field);
        while (fs_wire_item(&ids, &field, &number))
            FS_TRY(
                fs_hlo_put_called(reader->module, fs_hlo_place_of(reader->computations, count, number), reader->err));
        FS_TRY(fs_wire_end(&ids, reader->err));
    }
    instruction->called.count = reader->module->called_count - instruction->called.first;
    return fs_wire_end(&message, reader->err);
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
            FS_TRY(fs_hlo_proto_shape(reader, fs_wire_in(&rest, &field), &instruction.shape));
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
    fs_wire rest = message;
    fs_wire_field field;
    int64_t id = 0;
    while (fs_wire_next(&rest, &field))
        if (field.number == INSTRUCTION_ID && field.type == FS_WIRE_VARINT) id = (int64_t)field.value;
    FS_TRY(fs_wire_end(&rest, reader->err));
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
    bool is_root = fs_hlo_place_of(list->places, list->count, root) == place;
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
            uint32_t place = fs_hlo_place_of(list->places, list->count, number);
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
    if (!fs_hlo_sort_numbered(list->places, list->count, &twice))
        return fs_hlo_damaged(reader, message.at, "two instructions have the number %lld", (long long)twice);
    FS_TRY(FS_NEW(&list->ids, list->count, reader->err));
    memset(list->ids, 0xff, list->count * sizeof *list->ids); /* FS_NONE */
    FS_TRY(append_instructions(reader, list, sequence, root, computations));
    uint32_t place = fs_hlo_place_of(list->places, list->count, root);
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
    bool has_schedule;
} computation_list;

static fs_status list_computation(fs_hlo_reader *reader, computation_list *list, fs_wire message)
{
    listed item = {.message = message, .sequence = fs_wire_of(reader->begin, 0)};
    fs_wire rest = message;
    fs_wire_field field;
    while (fs_wire_next(&rest, &field))
        if (field.number == COMPUTATION_ID && field.type == FS_WIRE_VARINT) item.id = (int64_t)field.value;
    FS_TRY(fs_wire_end(&rest, reader->err));
    FS_TRY(FS_LIST_ROOM(&list->items, list->count, &list->capacity, 64, reader->err));
    list->items[list->count++] = item;
    return FS_OK;
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
    fs_wire_field field, one;
    while (fs_wire_next(&message, &field)) {
        int64_t parameter = 0;
        if (field.number != 1) continue;
        fs_wire entry = fs_wire_in(&message, &field);
        while (fs_wire_next(&entry, &one))
            if (one.number == number && one.type == FS_WIRE_VARINT) parameter = (int64_t)one.value;
        FS_TRY(fs_wire_end(&entry, reader->err));
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
        if (field.number == MODULE_FRAMES) FS_TRY(fs_hlo_proto_frames(reader, inner));
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
        uint32_t place = fs_hlo_place_of(reader->computations, list->count, id);
        if (place != FS_NONE) list->items[place].sequence = sequence;
    }
    return reader->module->scheduled ? fs_wire_end(&rest, reader->err) : FS_OK;
}

static fs_status find_entry(fs_hlo_reader *reader, const computation_list *list, const uint8_t *at)
{
    fs_hlo_module *module = reader->module;
    module->entry = fs_hlo_place_of(reader->computations, list->count, list->entry);
    for (uint32_t i = 0; module->entry == FS_NONE && i < list->count; i++)
        if (fs_wire_is(&list->entry_name, fs_hlo_text(module, module->computations[i].name))) module->entry = i;
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
    if (!fs_hlo_sort_numbered(reader->computations, list->count, &twice))
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
