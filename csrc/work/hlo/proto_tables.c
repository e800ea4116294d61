/* What the instructions of a module's protobuf share: shapes, each kept once for equal bytes, and the frames of the
 * program that was traced. */
#include <string.h>

#include "base/memory.h"
#include "work/hlo/proto.h"

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

fs_status fs_hlo_proto_shape(fs_hlo_reader *reader, fs_wire message, uint32_t *id)
{
    return read_shape(reader, message, 0, id);
}

/* Frames ------------------------------------------------------------------------------------------------------------*/

/* Return the numbers 1, 2 and 3 of a message, 0 where they are missing. */
static fs_status read_three(fs_hlo_reader *reader, fs_wire message, int64_t values[3])
{
    fs_wire_field field;
    memset(values, 0, 3 * sizeof *values);
    while (fs_wire_next(&message, &field))
        if (field.number >= 1 && field.number <= 3 && field.type == FS_WIRE_VARINT)
            values[field.number - 1] = (int32_t)field.value;
    return fs_wire_end(&message, reader->err);
}

/* Read the tables: files, functions and places come before the frames that they describe. */
static fs_status read_frames(fs_hlo_reader *reader, const fs_wire *rows, const uint32_t *starts)
{
    fs_hlo_module *module = reader->module;
    int64_t values[3], place[3];
    fs_wire_field field;
    for (uint32_t at = starts[FRAMES_FRAME]; at < starts[FRAMES_FRAME + 1]; at++) {
        fs_hlo_frame frame = {.file = FS_NONE, .function = FS_NONE, .parent = FS_NONE};
        FS_TRY(read_three(reader, rows[at], values));
        if (values[0] >= 1 && values[0] <= starts[FRAMES_LOCATION + 1] - starts[FRAMES_LOCATION]) {
            FS_TRY(read_three(reader, rows[starts[FRAMES_LOCATION] + (uint32_t)values[0] - 1], place));
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
fs_status fs_hlo_proto_frames(fs_hlo_reader *reader, fs_wire message)
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
