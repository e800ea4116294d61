/* Notes of ranges as arguments, and the ranges of a store as events for the traces of other writers. A range that did
 * not nest in its thread's events has no thread, and gets the row of thread 0, where it encloses nothing. */
#include <stdio.h>

#include "base/interrupt.h"
#include "store/event.h"
#include "views/chrome_trace.h"
#include "views/trace.h"

static void put_payload(fs_json *json, const fs_note *note)
{
    fs_json_members members = {json, "{"};
    if (note->payload_type == FS_NOTE_UNSIGNED && note->payload.whole > INT64_MAX) {
        fs_json_number(json, (double)note->payload.whole);
    } else if (note->payload_type == FS_NOTE_UNSIGNED || note->payload_type == FS_NOTE_INTEGER) {
        fs_json_integer(json, note->payload.integer);
    } else if (note->payload_type == FS_NOTE_REAL) {
        fs_json_number(json, note->payload.real);
    } else {
        for (const char *name = note->fields, *end = name + note->fields_size; name < end;) {
            const char *value = name + strlen(name) + 1;
            fs_json_key_text(&members, "", 0);
            fs_json_string(json, name);
            FS_JSON_LITERAL(json, ": ");
            if (*value == FS_NOTE_NUMBER) fs_json_put(json, value + 1, strlen(value + 1));
            else fs_json_string(json, value + 1);
            name = value + strlen(value) + 1;
        }
        FS_JSON_LITERAL(json, "}");
    }
}

void fs_trace_note(fs_json_members *members, const fs_note *note)
{
    char colour[16];
    if (note->category != 0) {
        FS_JSON_KEY(members, "category");
        if (*note->category_name != 0) fs_json_string(members->json, note->category_name);
        else fs_json_integer(members->json, note->category);
    }
    if (note->coloured) {
        snprintf(colour, sizeof colour, "#%06x", (unsigned)note->colour & 0xffffff);
        FS_JSON_KEY(members, "color");
        fs_json_string(members->json, colour);
    }
    if (note->payload_type == FS_NOTE_NOTHING && note->fields_size == 0) return;
    FS_JSON_KEY(members, "payload");
    put_payload(members->json, note);
}

static void put_range(fs_json *out, const fs_store *store, const fs_event *event, int64_t process, int64_t shift)
{
    static const char opening[] = ", \"args\": {";
    fs_json_members members = {out, opening};
    fs_note note;
    FS_JSON_LITERAL(out, "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": ");
    fs_json_string(out, event->name == FS_NONE ? "" : fs_store_name_text(store, event->name));
    FS_JSON_LITERAL(out, ", \"pid\": ");
    fs_json_integer(out, process);
    FS_JSON_LITERAL(out, ", \"tid\": ");
    fs_json_integer(out, event->lane == FS_NONE ? 0 : (int64_t)fs_store_lane(store, event->lane).id);
    FS_JSON_LITERAL(out, ", \"ts\": ");
    fs_json_time(out, (uint64_t)fs_add_saturated(event->start, shift));
    FS_JSON_LITERAL(out, ", \"dur\": ");
    fs_json_time(out, (uint64_t)event->duration);
    if (event->signature != FS_NONE) {
        fs_span bytes = fs_store_signature_bytes(store, event->signature);
        if (fs_note_decode(bytes.bytes, bytes.size, &note)) fs_trace_note(&members, &note);
    }
    if (members.before != opening) FS_JSON_LITERAL(out, "}");
    FS_JSON_LITERAL(out, "},\n");
}

fs_status fs_trace_ranges(fs_json *out, const fs_store *store, int64_t process, int64_t shift, fs_error *err)
{
    for (uint32_t index = 0; index < fs_store_count(store) && out->status == FS_OK; index++) {
        fs_event event;
        FS_POLL(index, err);
        fs_store_get(store, index, &event);
        if (event.kind == FS_EVENT_RANGE && event.duration != FS_MISSING && event.start >= -shift)
            put_range(out, store, &event, process, shift);
    }
    return out->status;
}
