/* The wire format of protocol buffers: the fields of a message, one after the other, without a schema.
 *
 *   fs_wire wire = fs_wire_of(bytes, size);
 *   fs_wire_field field;
 *   while (fs_wire_next(&wire, &field))
 *       if (field.number == 3 && field.type == FS_WIRE_BYTES) …
 *   FS_TRY(fs_wire_end(&wire, err));
 *
 * Nothing is copied, and nothing outside of the bytes is read. A message within a message is a reader of its own, made
 * from the field: errors still name the byte of the outermost one. Groups, which are deprecated, are skipped. */
#ifndef FS_BASE_WIRE_H
#define FS_BASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"

/* The values of a field's type that occur in files. */
typedef enum {
    FS_WIRE_VARINT = 0,
    FS_WIRE_FIXED64 = 1,
    FS_WIRE_BYTES = 2,
    FS_WIRE_GROUP = 3, /* which was skipped */
    FS_WIRE_FIXED32 = 5
} fs_wire_type;

typedef struct {
    const uint8_t *at, *end, *begin; /* begin: of the outermost message */
    const char *problem;             /* NULL: none so far; then it is at the byte `at` */
} fs_wire;

typedef struct {
    uint32_t number;
    fs_wire_type type;
    uint64_t value;       /* of a varint or of fixed size */
    const uint8_t *bytes; /* of FS_WIRE_BYTES */
    size_t size;
} fs_wire_field;

static inline fs_wire fs_wire_of(const void *bytes, size_t size)
{
    const uint8_t *begin = bytes;
    return (fs_wire){begin, begin + size, begin, NULL};
}

/* The message in a field of FS_WIRE_BYTES; without fields if it is of another type. */
static inline fs_wire fs_wire_in(const fs_wire *wire, const fs_wire_field *field)
{
    if (field->type != FS_WIRE_BYTES) return (fs_wire){wire->begin, wire->begin, wire->begin, NULL};
    return (fs_wire){field->bytes, field->bytes + field->size, wire->begin, NULL};
}

/* Read the rest of a varint whose first byte has its highest bit set, and a field that is not of the two common types.
 * Private to fs_wire_next. */
bool fs_wire_long_varint(fs_wire *wire, uint64_t *value);
bool fs_wire_other(fs_wire *wire, fs_wire_field *field, uint32_t type);

/* Read a varint; false at damage. */
static inline bool fs_wire_varint(fs_wire *wire, uint64_t *value)
{
    if (wire->at >= wire->end || *wire->at >= 0x80) return fs_wire_long_varint(wire, value);
    *value = *wire->at++;
    return true;
}

/* Read the next field; false at the end and at damage, which fs_wire_end tells apart. */
static inline bool fs_wire_next(fs_wire *wire, fs_wire_field *field)
{
    uint64_t key;
    if (wire->at == wire->end || wire->problem != NULL || !fs_wire_varint(wire, &key)) return false;
    field->number = (uint32_t)(key >> 3);
    field->type = (fs_wire_type)(key & 7);
    if (key > UINT32_MAX) return fs_wire_other(wire, field, 7);
    if (field->type == FS_WIRE_VARINT) return fs_wire_varint(wire, &field->value);
    if (field->type != FS_WIRE_BYTES) return fs_wire_other(wire, field, (uint32_t)(key & 7));
    uint64_t size;
    if (!fs_wire_varint(wire, &size)) return false;
    if (size > (uint64_t)(wire->end - wire->at)) {
        wire->problem = "a field is longer than what holds it";
        return false;
    }
    field->bytes = wire->at;
    field->size = (size_t)size;
    wire->at += size;
    return true;
}

/* Return FS_OK if the message was read to its end, else FS_VALUE_ERROR, which names the byte. */
fs_status fs_wire_end(const fs_wire *wire, fs_error *err);

/* The numbers of a repeated field, which are packed into one or stand in a field each:
 *
 *   fs_wire list = fs_wire_list(&wire, &field);
 *   while (fs_wire_item(&list, &field, &value)) …
 *   FS_TRY(fs_wire_end(&list, err)); */
static inline fs_wire fs_wire_list(const fs_wire *wire, const fs_wire_field *field)
{
    if (field->type == FS_WIRE_BYTES) return fs_wire_in(wire, field);
    return (fs_wire){NULL, NULL, wire->begin, NULL};
}

static inline bool fs_wire_item(fs_wire *list, fs_wire_field *field, int64_t *value)
{
    uint64_t number = field->value;
    if (field->type == FS_WIRE_BYTES) {
        if (list->at >= list->end || !fs_wire_varint(list, &number)) return false;
    } else if (field->number == 0) {
        return false;
    } else {
        field->number = 0; /* read */
    }
    *value = (int64_t)number;
    return true;
}

/* A field's value as a double. */
static inline double fs_wire_double(const fs_wire_field *field)
{
    double value;
    memcpy(&value, &field->value, sizeof value);
    return value;
}

/* The text of a field; empty if it is none. */
static inline fs_text fs_wire_text(const fs_wire_field *field)
{
    return field->type == FS_WIRE_BYTES ? (fs_text){(const char *)field->bytes, field->size} : fs_text_of("");
}

/* Take the varint of the last field with a number, or of those with the numbers from 1 to `count`; what is not there
 * stays as it is. The failures of fs_wire_end. */
fs_status fs_wire_number(fs_wire message, uint32_t number, int64_t *value, fs_error *err);
fs_status fs_wire_numbers(fs_wire message, int64_t *values, uint32_t count, fs_error *err);

#endif
