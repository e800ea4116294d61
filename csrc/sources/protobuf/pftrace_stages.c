/* torch's traces have the work of a GPU as render stages: packets of their own with a duration, on no track. The stage
 * gives the category, and what a Chrome trace has as args are texts here, under keys of which three differ. The name of
 * a copy or a set is that of its stage: the kinds of its memory are not in the file. */
#include "sources/protobuf/pftrace_stages.h"

#include <string.h>

enum {
    STAGE_DURATION = 2,
    STAGE_EXTRA = 6,
    STAGE_DEVICE = 11,
    STAGE_QUEUE = 13,
    STAGE_KIND = 14,
    STAGE_NAME = 17,
    STAGE_NAME_ID = 20,
    STAGE_LAUNCH = 21
};
enum { EXTRA_NAME = 1, EXTRA_VALUE = 2 };
enum { LAUNCH_GRID = 1, LAUNCH_BLOCK = 2 };
enum { LONGEST_NUMBER = 18 };

typedef fs_pftrace_span span;

static span plain(const char *text)
{
    return (span){(const uint8_t *)text, strlen(text)};
}

/* The category of a Chrome trace; that of another stage is its name, which no reader of categories knows. */
static span category_of(span stage, bool launched)
{
    static const char *const rows[][2] = {{"Kernel", "kernel"},
                                          {"Memcpy", "gpu_memcpy"},
                                          {"Memset", "gpu_memset"},
                                          {"Annotation", "gpu_user_annotation"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (fs_pftrace_is(stage, rows[i][0])) return plain(rows[i][1]);
    return launched ? plain("kernel") : stage;
}

static span key_of(span name)
{
    static const char *const rows[][2] = {{"device id", "device"}, {"stream id", "stream"}, {"context id", "context"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (fs_pftrace_is(name, rows[i][0])) return plain(rows[i][1]);
    return name;
}

/* Whether a text is a number as JSON has it, and which. */
static bool is_number(span text, int64_t *number)
{
    if (text.size == 0 || text.size > LONGEST_NUMBER || (text.size > 1 && text.bytes[0] == '0')) return false;
    *number = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.bytes[i] < '0' || text.bytes[i] > '9') return false;
        *number = 10 * *number + (text.bytes[i] - '0');
    }
    return true;
}

static fs_status read_extra(fs_wire wire, span *name, span *value, fs_error *err)
{
    fs_wire_field field;
    *name = *value = plain("");
    while (fs_wire_next(&wire, &field)) {
        if (field.number == EXTRA_NAME && field.type == FS_WIRE_BYTES) *name = (span){field.bytes, field.size};
        if (field.number == EXTRA_VALUE && field.type == FS_WIRE_BYTES) *value = (span){field.bytes, field.size};
    }
    return fs_wire_end(&wire, err);
}

/* Put ,"key":[x,y,z]. */
static fs_status put_sizes(fs_pftrace_text *text, const char *key, fs_wire wire, fs_error *err)
{
    uint64_t sizes[] = {1, 1, 1};
    fs_wire_field field;
    while (fs_wire_next(&wire, &field))
        if (field.number >= 1 && field.number <= 3 && field.type == FS_WIRE_VARINT)
            sizes[field.number - 1] = field.value;
    FS_TRY(fs_wire_end(&wire, err));
    FS_TRY(fs_text_put_plain(text, key, err));
    for (int i = 0; i < 3; i++) {
        FS_TRY(fs_text_put_plain(text, i > 0 ? "," : "[", err));
        FS_TRY(fs_text_put_integer(text, (int64_t)sizes[i], err));
    }
    return fs_text_put_plain(text, "]", err);
}

static fs_status put_launch(fs_pftrace_text *text, fs_wire wire, fs_error *err)
{
    fs_wire_field field;
    while (fs_wire_next(&wire, &field)) {
        if (field.number == LAUNCH_GRID) FS_TRY(put_sizes(text, ",\"grid\":", fs_wire_in(&wire, &field), err));
        if (field.number == LAUNCH_BLOCK) FS_TRY(put_sizes(text, ",\"block\":", fs_wire_in(&wire, &field), err));
    }
    return fs_wire_end(&wire, err);
}

static fs_status put_arguments(fs_pftrace_text *text, fs_wire wire, int64_t device, fs_error *err)
{
    fs_wire_field field;
    span name, value;
    int64_t number;
    FS_TRY(fs_text_put_plain(text, ",\"args\":{\"gpu\":", err));
    FS_TRY(fs_text_put_integer(text, device, err));
    while (fs_wire_next(&wire, &field)) {
        if (field.number == STAGE_LAUNCH) FS_TRY(put_launch(text, fs_wire_in(&wire, &field), err));
        if (field.number != STAGE_EXTRA) continue;
        FS_TRY(read_extra(fs_wire_in(&wire, &field), &name, &value, err));
        name = key_of(name);
        FS_TRY(fs_text_put_plain(text, ",", err));
        FS_TRY(fs_text_put_quoted(text, name.bytes, name.size, err));
        FS_TRY(fs_text_put_plain(text, ":", err));
        if (is_number(value, &number)) FS_TRY(fs_text_put_integer(text, number, err));
        else FS_TRY(fs_text_put_quoted(text, value.bytes, value.size, err));
    }
    return fs_text_put_plain(text, "}", err);
}

fs_status fs_pftrace_put_stage(fs_pftrace_text *text, const fs_pftrace_names *names, uint32_t epoch, uint64_t start,
                               fs_wire stage, fs_error *err)
{
    fs_wire rest = stage;
    fs_wire_field field;
    span kind = plain("stage"), name = {NULL, 0}, key, value;
    int64_t device = 0, stream = 0;
    uint64_t end = start;
    bool launched = false;
    while (fs_wire_next(&rest, &field)) {
        bool number = field.type == FS_WIRE_VARINT;
        if (field.number == STAGE_DURATION && number) end = start + field.value;
        if (field.number == STAGE_DEVICE && number) device = (int64_t)field.value;
        if (field.number == STAGE_QUEUE && number) stream = (int64_t)field.value;
        if (field.number == STAGE_NAME || field.number == STAGE_NAME_ID)
            name = fs_pftrace_text_of(names, epoch, &field, FS_INTERNED_NAME);
        if (field.number == STAGE_KIND && number) kind = fs_pftrace_text_of(names, epoch, &field, FS_INTERNED_STAGE);
        launched = launched || field.number == STAGE_LAUNCH;
    }
    FS_TRY(fs_wire_end(&rest, err));
    for (rest = stage; fs_wire_next(&rest, &field);) { /* the queue's number is the file's own */
        if (field.number != STAGE_EXTRA) continue;
        FS_TRY(read_extra(fs_wire_in(&rest, &field), &key, &value, err));
        if (fs_pftrace_is(key, "stream id")) is_number(value, &stream);
    }
    if (kind.bytes == NULL) kind = plain("stage");
    if (name.bytes == NULL) name = kind;
    FS_TRY(fs_text_begin_event(text, start, &end, device, stream, err));
    FS_TRY(fs_text_put_member(text, "name", name.bytes, name.size, err));
    span category = category_of(kind, launched);
    FS_TRY(fs_text_put_member(text, "cat", category.bytes, category.size, err));
    FS_TRY(put_arguments(text, stage, device, err));
    FS_TRY(fs_text_put_plain(text, "}", err));
    return fs_text_hand_on(text, false, err);
}
