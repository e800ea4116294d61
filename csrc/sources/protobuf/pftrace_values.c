/* Names are found by a number that combines their epoch and kind, and by their own. Annotations are nested messages:
 * what is nested deeper than torch's are is left out. */
#include "sources/protobuf/pftrace_values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "store/store.h"

/* The buffer grows to the largest event between two hand-ons, each of which empties it. */

enum { ENOUGH = FS_BLOCK(3 << 20, 64) };

static fs_status text_put(fs_pftrace_text *text, const char *bytes, size_t size, fs_error *err)
{
    if (text->size + size > text->capacity) {
        size_t capacity = 2 * (text->size + size) + 256;
        char *grown = fs_realloc(text->bytes, capacity);
        if (grown == NULL) return fs_no_memory(err);
        text->bytes = grown;
        text->capacity = capacity;
    }
    if (size > 0) memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    return FS_OK;
}

fs_status fs_text_put_plain(fs_pftrace_text *text, const char *plain, fs_error *err)
{
    return text_put(text, plain, strlen(plain), err);
}

fs_status fs_text_put_quoted(fs_pftrace_text *text, const void *bytes, size_t size, fs_error *err)
{
    const unsigned char *at = bytes, *end = at + size, *from = at;
    char escaped[8];
    FS_TRY(fs_text_put_plain(text, "\"", err));
    for (; at < end; at++) {
        if (*at >= 0x20 && *at != '"' && *at != '\\') continue;
        FS_TRY(text_put(text, (const char *)from, (size_t)(at - from), err));
        snprintf(escaped, sizeof escaped, "\\u%04x", *at);
        FS_TRY(fs_text_put_plain(text, escaped, err));
        from = at + 1;
    }
    FS_TRY(text_put(text, (const char *)from, (size_t)(end - from), err));
    return fs_text_put_plain(text, "\"", err);
}

fs_status fs_text_put_integer(fs_pftrace_text *text, int64_t value, fs_error *err)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    return fs_text_put_plain(text, digits, err);
}

/* A number that is none is null. */
static fs_status put_real(fs_pftrace_text *text, double value, fs_error *err)
{
    char digits[32] = "null";
    if (isfinite(value)) snprintf(digits, sizeof digits, "%.17g", value);
    return fs_text_put_plain(text, digits, err);
}

/* ns as µs with three decimals. */
static fs_status put_time(fs_pftrace_text *text, uint64_t ns, fs_error *err)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%llu.%03llu", (unsigned long long)(ns / 1000), (unsigned long long)(ns % 1000));
    return fs_text_put_plain(text, digits, err);
}

fs_status fs_text_begin_event(fs_pftrace_text *text, uint64_t start, const uint64_t *end, int64_t process,
                              int64_t thread, fs_error *err)
{
    FS_TRY(fs_text_put_plain(text, text->some ? ",\n{\"ph\":" : "\n{\"ph\":", err));
    text->some = true;
    FS_TRY(fs_text_put_plain(text, end != NULL ? "\"X\",\"ts\":" : "\"i\",\"ts\":", err));
    FS_TRY(put_time(text, start, err));
    if (end != NULL) {
        FS_TRY(fs_text_put_plain(text, ",\"dur\":", err));
        FS_TRY(put_time(text, *end >= start ? *end - start : 0, err));
    }
    FS_TRY(fs_text_put_plain(text, ",\"pid\":", err));
    FS_TRY(fs_text_put_integer(text, process, err));
    FS_TRY(fs_text_put_plain(text, ",\"tid\":", err));
    return fs_text_put_integer(text, thread, err);
}

fs_status fs_text_put_member(fs_pftrace_text *text, const char *key, const void *bytes, size_t size, fs_error *err)
{
    FS_TRY(fs_text_put_plain(text, ",\"", err));
    FS_TRY(fs_text_put_plain(text, key, err));
    FS_TRY(fs_text_put_plain(text, "\":", err));
    return fs_text_put_quoted(text, bytes, size, err);
}

fs_status fs_text_hand_on(fs_pftrace_text *text, bool all, fs_error *err)
{
    if (text->size == 0 || (!all && text->size < ENOUGH)) return FS_OK;
    FS_TRY(text->write(text->context, text->bytes, text->size, err));
    text->size = 0;
    return FS_OK;
}

enum { INTERNED_KINDS = 32, EVENT_ANNOTATION = 4, MOST_NESTED = 32 };

void fs_pftrace_names_clear(fs_pftrace_names *names)
{
    fs_id_map_clear(&names->ids);
    fs_free(names->texts);
}

/* Names ------------------------------------------------------------------------------------------------------------ */

fs_status fs_pftrace_names_read(fs_pftrace_names *names, uint32_t epoch, fs_wire wire, fs_error *err)
{
    fs_wire_field field, inner;
    while (fs_wire_next(&wire, &field)) {
        fs_text text = {NULL, 0};
        uint64_t id = 0;
        if (field.number >= INTERNED_KINDS) continue;
        fs_wire rest = fs_wire_in(&wire, &field);
        while (fs_wire_next(&rest, &inner)) {
            if (inner.number == 1 && inner.type == FS_WIRE_VARINT) id = inner.value;
            if (inner.number == 2 && inner.type == FS_WIRE_BYTES)
                text = (fs_text){(const char *)inner.bytes, inner.size};
        }
        FS_TRY(fs_wire_end(&rest, err));
        if (text.bytes == NULL) continue;
        FS_TRY(FS_LIST_ROOM(&names->texts, names->count, &names->capacity, 64, err));
        names->texts[names->count] = text;
        FS_TRY(
            fs_id_map_set(&names->ids, (int64_t)epoch * INTERNED_KINDS + field.number, (int64_t)id, names->count, err));
        names->count++;
    }
    return fs_wire_end(&wire, err);
}

static fs_text interned(const fs_pftrace_names *names, uint32_t epoch, int kind, uint64_t id)
{
    uint32_t index = fs_id_map_get(&names->ids, (int64_t)epoch * INTERNED_KINDS + kind, (int64_t)id);
    return index != FS_NONE ? names->texts[index] : (fs_text){NULL, 0};
}

/* The text of a field, or the one that another field names. */
fs_text fs_pftrace_text_of(const fs_pftrace_names *names, uint32_t epoch, const fs_wire_field *field, int kind)
{
    if (field->type == FS_WIRE_BYTES) return (fs_text){(const char *)field->bytes, field->size};
    return field->type == FS_WIRE_VARINT ? interned(names, epoch, kind, field->value) : (fs_text){NULL, 0};
}

/* Where annotations are written, and the names that they refer to. */
typedef struct {
    fs_pftrace_text *text;
    const fs_pftrace_names *names;
    uint32_t epoch;
} writing;

/* Annotations ------------------------------------------------------------------------------------------------------ */

enum {
    NAME_ID = 1,
    BOOL = 2,
    UNSIGNED = 3,
    INTEGER = 4,
    REAL = 5,
    STRING = 6,
    POINTER = 7,
    JSON = 9,
    NAME = 10,
    ENTRY = 11,
    ITEM = 12,
    STRING_ID = 17
};

static fs_status put_annotation(const writing *to, fs_wire wire, int depth, bool named, fs_error *err);

/* The entries of a dict or the items of an array. */
static fs_status put_nested(const writing *to, fs_wire wire, uint32_t number, int depth, fs_error *err)
{
    fs_wire_field field;
    bool some = false;
    FS_TRY(fs_text_put_plain(to->text, number == ENTRY ? "{" : "[", err));
    while (fs_wire_next(&wire, &field)) {
        if (field.number != number) continue;
        if (some) FS_TRY(fs_text_put_plain(to->text, ",", err));
        some = true;
        FS_TRY(put_annotation(to, fs_wire_in(&wire, &field), depth + 1, number == ENTRY, err));
    }
    return fs_text_put_plain(to->text, number == ENTRY ? "}" : "]", err);
}

static fs_status put_value(const writing *to, fs_wire wire, const fs_wire_field *value, int depth, fs_error *err)
{
    fs_pftrace_text *text = to->text;
    bool number = value->type == FS_WIRE_VARINT;
    if (value->number == 0) return fs_text_put_plain(text, "[]", err); /* an empty array has no items */
    if (depth < MOST_NESTED && (value->number == ENTRY || value->number == ITEM))
        return put_nested(to, wire, value->number, depth, err);
    if (value->number == BOOL && number) return fs_text_put_plain(text, value->value != 0 ? "true" : "false", err);
    if ((value->number == UNSIGNED || value->number == INTEGER || value->number == POINTER) && number)
        return fs_text_put_integer(text, (int64_t)value->value, err);
    if (value->number == REAL && value->type == FS_WIRE_FIXED64) return put_real(text, fs_wire_double(value), err);
    fs_text string = {NULL, 0};
    if (value->number == STRING || value->number == JSON || value->number == STRING_ID)
        string = fs_pftrace_text_of(to->names, to->epoch, value, FS_INTERNED_TEXT);
    return string.bytes != NULL ? fs_text_put_quoted(text, string.bytes, string.size, err)
                                : fs_text_put_plain(text, "null", err);
}

fs_text fs_pftrace_renamed(fs_text name, const char *const (*rows)[2], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fs_text_is(name, rows[i][0])) return fs_text_of(rows[i][1]);
    return name;
}

#define AGENT "Agent-" /* rocprofv3's device 4 is "Agent-4", or just 4 */

/* Put "name": value, or the value alone. */
static fs_status put_annotation(const writing *to, fs_wire wire, int depth, bool named, fs_error *err)
{
    /* Names of rocprofv3's annotations, and what torch calls them. */
    static const char *const names[][2] = {{"corr_id", "correlation"}, {"agent", "device"}, {"queue", "stream"}};
    fs_wire rest = wire;
    fs_wire_field field, value = {.number = 0, .type = FS_WIRE_GROUP};
    fs_text name = {"", 0};
    while (fs_wire_next(&rest, &field)) {
        if (field.number == NAME || field.number == NAME_ID)
            name = fs_pftrace_text_of(to->names, to->epoch, &field, FS_INTERNED_ANNOTATION);
        else value = field;
    }
    FS_TRY(fs_wire_end(&rest, err));
    if (named) {
        name = fs_pftrace_renamed(name.bytes != NULL ? name : (fs_text){"", 0}, names, sizeof names / sizeof *names);
        FS_TRY(fs_text_put_quoted(to->text, name.bytes, name.size, err));
        FS_TRY(fs_text_put_plain(to->text, ":", err));
        fs_text agent = fs_pftrace_text_of(to->names, to->epoch, &value, FS_INTERNED_TEXT);
        if (fs_text_is(name, "device") && agent.bytes != NULL && fs_text_begins(agent, AGENT))
            return fs_text_put_quoted(to->text, agent.bytes + sizeof AGENT - 1, agent.size - (sizeof AGENT - 1), err);
    }
    return put_value(to, wire, &value, depth, err);
}

fs_status fs_pftrace_put_annotations(fs_pftrace_text *text, const fs_pftrace_names *names, uint32_t epoch,
                                     fs_wire event, fs_pftrace_signs *signs, fs_error *err)
{
    const writing writes = {text, names, epoch}, *to = &writes;
    fs_wire_field field, inner;
    bool some = false;
    FS_TRY(fs_text_put_plain(to->text, "{", err));
    while (fs_wire_next(&event, &field)) {
        if (field.number != EVENT_ANNOTATION) continue;
        fs_wire annotation = fs_wire_in(&event, &field), rest = annotation;
        while (fs_wire_next(&rest, &inner)) {
            if (inner.number != NAME && inner.number != NAME_ID) continue;
            fs_text name = fs_pftrace_text_of(to->names, to->epoch, &inner, FS_INTERNED_ANNOTATION);
            if (name.bytes == NULL) continue;
            signs->grid = signs->grid || fs_text_is(name, "grid");
            signs->stream = signs->stream || fs_text_is(name, "stream") || fs_text_is(name, "queue");
            signs->called = signs->called || fs_text_is(name, "cbid");
            signs->op = signs->op || fs_text_is(name, "Input Dims") || fs_text_is(name, "Sequence number");
        }
        if (some) FS_TRY(fs_text_put_plain(to->text, ",", err));
        some = true;
        FS_TRY(put_annotation(to, annotation, 0, true, err));
    }
    return fs_text_put_plain(to->text, "}", err);
}
