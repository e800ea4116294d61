/* Groups of devices, in the protobuf: their text, as XLA writes it, and their sizes. */
#include <stdarg.h>
#include <stdio.h>

#include "base/unused.h"
#include "work/hlo/proto.h"

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

fs_status fs_hlo_proto_groups(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                              fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    return take_lists(reader, message, field->number, instruction);
}

/* [2,4]<=[8], or with another order of the devices [2,4]<=[4,2]T(1,0) */
fs_status fs_hlo_proto_iota(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                            fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    enum { NUMBERS = 2, DIMENSIONS = 3, ORDER = 4 };
    fs_hlo_module *module = reader->module;
    fs_wire inner = fs_wire_in(&message, field);
    groups_text text = {.size = 0};
    int64_t values[NUMBERS]; /* of groups, and of devices in each */
    uint32_t first = module->number_count;
    FS_TRY(fs_hlo_proto_fields(reader, inner, NUMBERS, (int64_t[]){0, 0}, values));
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
fs_status fs_hlo_proto_devices(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                               fs_hlo_instruction *instruction, size_t what)
{
    enum { GROUPS = 1, IOTA = 2 };
    fs_wire inner = fs_wire_in(&message, field), rest = inner;
    fs_wire_field part;
    if (instruction->groups != FS_NONE) return FS_OK;
    while (fs_wire_next(&rest, &part))
        if (part.number == IOTA) return fs_hlo_proto_iota(reader, rest, &part, instruction, what);
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
        if (field.number == PART)
            FS_TRY(fs_hlo_proto_fields(reader, fs_wire_in(&grouped, &field), 2, (int64_t[]){0, 0}, part));
    }
    FS_TRY(fs_wire_end(&grouped, reader->err));
    FS_TRY(put_axes(reader, text, mesh, axis));
    if (part[1] > 0) put(text, ":(%lld)%lld", (long long)part[0], (long long)part[1]);
    return FS_OK;
}

/* mesh['x'=2,'y'=4] {'x','y':(2)2} */
fs_status fs_hlo_proto_mesh(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
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
fs_status fs_hlo_proto_pairs(fs_hlo_reader *reader, fs_wire message, const fs_wire_field *field,
                             fs_hlo_instruction *instruction, size_t FS_UNUSED(what))
{
    uint32_t number = field->number;
    fs_wire_field one;
    groups_text text = {.size = 0};
    int64_t pair[2];
    while (fs_wire_next(&message, &one)) {
        if (one.number != number) continue;
        FS_TRY(fs_hlo_proto_fields(reader, fs_wire_in(&message, &one), 2, (int64_t[]){0, 0}, pair));
        put_numbers(&text, text.size == 0 ? "{{" : ",{", pair, 2, "}");
    }
    FS_TRY(fs_wire_end(&message, reader->err));
    put(&text, "}");
    return put_groups(reader, &text, 0, instruction);
}
