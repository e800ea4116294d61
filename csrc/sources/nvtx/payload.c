/* A value is read only from bytes that the payload says it has, and nothing that it points to is followed. Numbers are
 * written as JSON has them, in every locale; those that are not finite are left out. */
#include "sources/nvtx/payload.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sources/nvtx/handles.h"

enum { MOST_PAYLOADS = 16, TEXT_BYTES = 200, NUMBER_BYTES = 40 };

/* Append a field whole, or not at all. */
static void put_field(fs_nvtx_payload *to, const char *name, char kind, const char *value, size_t value_size)
{
    size_t name_size = fs_note_cut(name, TEXT_BYTES), size = name_size + 1 + 1 + value_size + 1;
    if (name_size == 0 || size > sizeof to->fields - to->size) return;
    char *at = to->fields + to->size;
    memcpy(at, name, name_size);
    at[name_size] = 0;
    at[name_size + 1] = kind;
    memcpy(at + name_size + 2, value, value_size);
    at[size - 1] = 0;
    to->size += size;
}

static void put_real(fs_nvtx_payload *to, const char *name, double value, int digits)
{
    char text[NUMBER_BYTES];
    if (!isfinite(value)) return;
    int size = snprintf(text, sizeof text, "%.*g", digits, value);
    for (char *at = text; *at != 0; at++)
        if (*at == ',') *at = '.';
    put_field(to, name, FS_NOTE_NUMBER, text, (size_t)size);
}

/* Types of C's integers come in pairs, the signed one first. */
static bool is_signed(uint16_t type)
{
    enum { LAST_SIGNED = 17 };
    return type <= LAST_SIGNED && type % 2 == 1;
}

static void put_integer(fs_nvtx_payload *to, const char *name, const fs_nvtx_field *field, uint64_t value)
{
    char text[NUMBER_BYTES];
    int unused = 64 - 8 * field->size;
    int64_t extended = (int64_t)(value << unused) >> unused;
    int size = is_signed(field->type) ? snprintf(text, sizeof text, "%lld", (long long)extended)
                                      : snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    put_field(to, name, FS_NOTE_NUMBER, text, (size_t)size);
}

static void put_value(fs_nvtx_payload *to, const fs_nvtx_field *field, const char *bytes)
{
    const char *name = fs_nvtx_text(field->name);
    uint64_t whole = 0;
    memcpy(&whole, bytes, field->size);
    if (field->type == FS_NVTX_ENTRY_FLOAT || field->type == FS_NVTX_ENTRY_FLOAT32) {
        float value;
        memcpy(&value, bytes, sizeof value);
        put_real(to, name, (double)value, 9);
    } else if (field->type == FS_NVTX_ENTRY_DOUBLE || field->type == FS_NVTX_ENTRY_FLOAT64) {
        double value;
        memcpy(&value, bytes, sizeof value);
        put_real(to, name, value, 17);
    } else if (field->type == FS_NVTX_ENTRY_STRING_HANDLE) {
        const fs_nvtx_string *string = fs_nvtx_string_of((fs_nvtx_handle)(uintptr_t)whole); /* NOLINT(*-int-to-ptr) */
        if (string == NULL) return;
        const char *text = fs_nvtx_text(string->text);
        if (field->is_message) to->message = text;
        else put_field(to, name, FS_NOTE_TEXT, text, fs_note_cut(text, TEXT_BYTES));
    } else {
        put_integer(to, name, field, whole);
    }
}

void fs_nvtx_read_payload(uint32_t domain, const fs_nvtx_data *data, size_t count, fs_nvtx_payload *payload)
{
    payload->size = 0;
    payload->message = NULL;
    for (size_t i = 0; data != NULL && i < count && i < MOST_PAYLOADS; i++) {
        const fs_nvtx_schema *schema = fs_nvtx_schema_of(domain, data[i].schema);
        if (schema == NULL || data[i].bytes == NULL) continue;
        const fs_nvtx_field *fields = fs_nvtx_fields_of(schema);
        for (uint32_t at = 0; at < schema->count; at++) {
            if ((size_t)fields[at].offset + fields[at].size > data[i].size) continue;
            put_value(payload, &fields[at], (const char *)data[i].bytes + fields[at].offset);
        }
    }
}
