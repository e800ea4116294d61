/* What fs_wire_next does rarely: long varints, numbers of fixed size, groups, errors. A group is skipped by a loop
 * whose depth is bounded: there is no recursion. */
#include "base/wire.h"

enum { GROUP_END = 4, MOST_GROUPS = 64 };

static bool fail(fs_wire *wire, const char *problem)
{
    wire->problem = problem;
    return false;
}

bool fs_wire_long_varint(fs_wire *wire, uint64_t *value)
{
    uint64_t sum = 0;
    const uint8_t *at = wire->at;
    for (int shift = 0; shift < 64; shift += 7) {
        if (at >= wire->end) return fail(wire, "a number is cut off");
        uint8_t byte = *at++;
        sum |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = sum;
            wire->at = at;
            return true;
        }
    }
    return fail(wire, "a number has more than 64 bits");
}

static bool take_fixed(fs_wire *wire, size_t size, uint64_t *value)
{
    uint64_t sum = 0;
    if ((size_t)(wire->end - wire->at) < size) return fail(wire, "a number is cut off");
    for (size_t i = 0; i < size; i++) sum |= (uint64_t)wire->at[i] << 8 * i;
    *value = sum;
    wire->at += size;
    return true;
}

/* Skip a group, whose start has been read, up to its end. */
static bool skip_group(fs_wire *wire, uint32_t number)
{
    uint32_t open[MOST_GROUPS];
    uint64_t key, value;
    size_t depth = 0;
    open[depth++] = number;
    while (depth > 0) {
        if (wire->at >= wire->end) return fail(wire, "a group does not end");
        if (!fs_wire_varint(wire, &key)) return false;
        switch (key & 7) {
        case FS_WIRE_VARINT:
            if (!fs_wire_varint(wire, &value)) return false;
            break;
        case FS_WIRE_FIXED64:
        case FS_WIRE_FIXED32:
            if (!take_fixed(wire, (key & 7) == FS_WIRE_FIXED64 ? 8 : 4, &value)) return false;
            break;
        case FS_WIRE_BYTES:
            if (!fs_wire_varint(wire, &value)) return false;
            if (value > (uint64_t)(wire->end - wire->at)) return fail(wire, "a field is longer than what holds it");
            wire->at += value;
            break;
        case FS_WIRE_GROUP:
            if (depth == MOST_GROUPS) return fail(wire, "groups are nested too deeply");
            open[depth++] = (uint32_t)(key >> 3);
            break;
        case GROUP_END:
            if (open[--depth] != key >> 3) return fail(wire, "a group ends that did not begin");
            break;
        default:
            return fail(wire, "a field is of an unknown type");
        }
    }
    return true;
}

bool fs_wire_other(fs_wire *wire, fs_wire_field *field, uint32_t type)
{
    if (type == FS_WIRE_FIXED64) return take_fixed(wire, 8, &field->value);
    if (type == FS_WIRE_FIXED32) return take_fixed(wire, 4, &field->value);
    if (type == FS_WIRE_GROUP) return skip_group(wire, field->number);
    return fail(wire, "a field is of an unknown type");
}

fs_status fs_wire_end(const fs_wire *wire, fs_error *err)
{
    if (wire->problem == NULL) return FS_OK;
    return fs_fail(err, FS_VALUE_ERROR, "byte %zu: %s", (size_t)(wire->at - wire->begin), wire->problem);
}

fs_status fs_wire_number(fs_wire message, uint32_t number, int64_t *value, fs_error *err)
{
    fs_wire_field field;
    while (fs_wire_next(&message, &field))
        if (field.number == number && field.type == FS_WIRE_VARINT) *value = (int64_t)field.value;
    return fs_wire_end(&message, err);
}

fs_status fs_wire_numbers(fs_wire message, int64_t *values, uint32_t count, fs_error *err)
{
    fs_wire_field field;
    while (fs_wire_next(&message, &field))
        if (field.number >= 1 && field.number <= count && field.type == FS_WIRE_VARINT)
            values[field.number - 1] = (int64_t)field.value;
    return fs_wire_end(&message, err);
}
