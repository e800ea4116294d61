/* One lock guards all: what is recorded into, the counts and the handles. It is held for one call, so fs_nvtx_end
 * returns only when no call uses the store, and it is taken around a fork, so that a child finds it open. What a thread
 * has pushed is its own, and is forgotten when another recording begins: recordings have serial numbers, and the id of
 * a started range holds its recording's. Names are looked up once for each message: each registered string, and each
 * place of a short text, remembers what it became. */
#include "sources/nvtx/ranges.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "sources/nvtx/abi.h"
#include "sources/nvtx/handles.h"
#include "sources/nvtx/nvtx.h"
#include "store/event.h"
#include "store/note.h"

typedef struct {
    char fields[FS_NOTE_FIELDS_BYTES];
    size_t size;
    const char *message; /* of the event, if a field is that; NULL: none */
} fs_nvtx_payload;

/* A value is read only from bytes that the payload says it has, and nothing that it points to is followed. Numbers are
 * written as JSON has them, in every locale; those that are not finite are left out. */

enum { MOST_PAYLOADS = 16, TEXT_BYTES = 200, NUMBER_BYTES = 40 };

/* Append a field whole, or not at all. */
static void put_field(fs_nvtx_payload *to, const char *name, char kind, const char *value, size_t value_size)
{
    fs_note_add_field(to->fields, &to->size, (fs_text){name, fs_note_cut(name, TEXT_BYTES)}, kind,
                      (fs_text){value, value_size});
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

/* Read the fields whose schema is known and whose bytes are there. Those for which there is no room are left out. */
static void read_payload(uint32_t domain, const fs_nvtx_data *data, size_t count, fs_nvtx_payload *payload)
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

static struct {
    fs_lock lock;
    _Atomic(fs_store *) store; /* NULL: nothing is recorded; read without the lock only to find that out */
    uint64_t recording;        /* serial number */
    fs_nvtx_report report;
} live;

/* Recording -------------------------------------------------------------------------------------------------------- */

void fs_nvtx_hold(void)
{
    fs_lock_take(&live.lock);
}

void fs_nvtx_release(void)
{
    fs_lock_give(&live.lock);
}

static void forget_in_child(void)
{
    atomic_store(&live.store, NULL);
    fs_nvtx_release();
}

static void handle_forks(void)
{
    pthread_atfork(fs_nvtx_hold, fs_nvtx_release, forget_in_child);
}

void fs_nvtx_watch_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, handle_forks);
}

/* Record into another store, or into none, and return the counts until now. */
static fs_nvtx_report record_into(fs_store *store)
{
    fs_nvtx_report report = live.report;
    live.recording++;
    live.report = (fs_nvtx_report){0};
    atomic_store(&live.store, store);
    return report;
}

bool fs_nvtx_begin(fs_store *store)
{
    fs_nvtx_watch_forks();
    fs_nvtx_hold();
    bool is_free = atomic_load(&live.store) == NULL;
    if (is_free) record_into(store);
    fs_nvtx_release();
    return is_free;
}

fs_nvtx_report fs_nvtx_move(fs_store *store)
{
    fs_nvtx_hold();
    fs_nvtx_report report = record_into(store);
    fs_nvtx_release();
    return report;
}

fs_nvtx_report fs_nvtx_end(void)
{
    return fs_nvtx_move(NULL);
}

fs_nvtx_report fs_nvtx_counts(void)
{
    fs_nvtx_hold();
    fs_nvtx_report report = live.report;
    fs_nvtx_release();
    return report;
}

static bool is_recording(void)
{
    return atomic_load_explicit(&live.store, memory_order_relaxed) != NULL;
}

/* Return the store that is recorded into, and hold it; NULL without holding it if there is none. */
static fs_store *hold_store(void)
{
    fs_nvtx_hold();
    fs_store *store = atomic_load_explicit(&live.store, memory_order_relaxed);
    if (store == NULL) fs_nvtx_release();
    return store;
}

/* Names and notes -------------------------------------------------------------------------------------------------- */

/* What a call says. */
typedef struct {
    uint32_t domain;
    const char *text;           /* of the message; NULL: none, or registered */
    fs_nvtx_string *registered; /* NULL: not registered */
    uint32_t category, colour;
    bool coloured;
} said;

enum { PLACES = 256, PLACE_BYTES = 72 };

/* Short texts by the place where the program has them, where it may put others later. */
static struct {
    _Alignas(64) const char *place; /* with the label, a line of the cache */
    fs_nvtx_label label;
    char text[PLACE_BYTES];
} places[PLACES];

static const char unnamed[] = "<unnamed range>";

static fs_status make_name(fs_store *store, uint32_t domain, const char *text, uint32_t *name)
{
    char joined[FS_NVTX_DOMAIN_BYTES + 2 + FS_NVTX_TEXT_BYTES + 1], *at = joined;
    if (domain != 0) {
        const char *before = fs_nvtx_domain_name(domain);
        size_t size = strlen(before);
        memcpy(at, before, size);
        memcpy(at + size, ": ", 2);
        at += size + 2;
    }
    size_t size = fs_note_cut(text, FS_NVTX_TEXT_BYTES);
    memcpy(at, text, size);
    at[size] = 0;
    return fs_store_name(store, joined, name, NULL);
}

static fs_status make_note(fs_store *store, const said *what, fs_note *note, bool repeats, uint32_t *id)
{
    _Alignas(8) char bytes[FS_NOTE_MAX_BYTES];
    note->category = what->category;
    note->category_name = fs_nvtx_category_name(what->domain, what->category);
    note->coloured = what->coloured;
    note->colour = what->colour;
    size_t size = fs_note_encode(note, bytes);
    return repeats ? fs_store_signature(store, bytes, size, id, NULL)
                   : fs_store_append_signature(store, bytes, size, id, NULL);
}

static bool fits(const fs_nvtx_label *label, const said *what)
{
    return label->recording == live.recording && label->domain == what->domain && label->category == what->category &&
           label->coloured == what->coloured && label->colour == what->colour;
}

/* Make a label what the call says, unless it is that already. */
static fs_status renew_label(fs_store *store, const said *what, const char *text, fs_nvtx_label *label)
{
    fs_note note = {0};
    if (fits(label, what)) return FS_OK;
    fs_nvtx_label made = {.recording = live.recording,
                          .domain = what->domain,
                          .category = what->category,
                          .colour = what->colour,
                          .coloured = what->coloured,
                          .note = FS_NONE,
                          .latest_note = FS_NONE};
    FS_TRY(make_name(store, what->domain, text, &made.name));
    if (what->category != 0 || what->coloured) FS_TRY(make_note(store, what, &note, true, &made.note));
    *label = made;
    return FS_OK;
}

/* Find what a message became, or was the last time: *label is valid while the lock is held. */
static fs_status find_label(fs_store *store, const said *what, fs_nvtx_label **label)
{
    static fs_nvtx_label of_no_place;
    if (what->registered != NULL) {
        *label = &what->registered->label;
        return renew_label(store, what, fs_nvtx_text(what->registered->text), *label);
    }
    const char *text = what->text != NULL ? what->text : unnamed;
    size_t slot = ((uintptr_t)text >> 3 ^ (uintptr_t)text >> 11 ^ what->domain) % PLACES;
    *label = &places[slot].label;
    if (places[slot].place == text && strcmp(places[slot].text, text) == 0)
        return renew_label(store, what, text, *label);
    size_t size = strnlen(text, PLACE_BYTES);
    if (size == PLACE_BYTES) {
        *label = &of_no_place;
    } else {
        places[slot].place = text;
        memcpy(places[slot].text, text, size + 1);
    }
    (*label)->recording = 0; /* of another text */
    return renew_label(store, what, text, *label);
}

/* Take the plain payload of a call; false if it has none. */
static bool take_payload(const fs_nvtx_attributes *attributes, fs_note *note)
{
    static const uint8_t types[] = {
        [FS_NVTX_UINT64] = FS_NOTE_UNSIGNED, [FS_NVTX_INT64] = FS_NOTE_INTEGER, [FS_NVTX_DOUBLE] = FS_NOTE_REAL,
        [FS_NVTX_UINT32] = FS_NOTE_UNSIGNED, [FS_NVTX_INT32] = FS_NOTE_INTEGER, [FS_NVTX_FLOAT] = FS_NOTE_REAL,
    };
    int32_t type = attributes->payload_type;
    if (type <= 0 || type >= (int32_t)sizeof types) return false;
    *note = (fs_note){.payload_type = types[type]};
    switch (type) {
    case FS_NVTX_UINT32:
        note->payload.whole = attributes->payload.uint32;
        break;
    case FS_NVTX_INT32:
        note->payload.integer = attributes->payload.int32;
        break;
    case FS_NVTX_FLOAT:
        note->payload.real = (double)attributes->payload.real32;
        break;
    default:
        note->payload.whole = attributes->payload.uint64;
    }
    return true;
}

/* Return the note of a plain payload, which the range before may have had too. */
static fs_status find_payload_note(fs_store *store, const said *what, fs_note *note, fs_nvtx_label *label, uint32_t *id)
{
    if (label->latest_note == FS_NONE || label->latest_type != note->payload_type ||
        label->latest != note->payload.whole) {
        FS_TRY(make_note(store, what, note, false, id));
        label->latest_note = *id;
        label->latest_type = note->payload_type;
        label->latest = note->payload.whole;
    }
    *id = label->latest_note;
    return FS_OK;
}

/* Begin a range on the calling thread. `attributes` and `payload` may be NULL. */
static fs_status begin_range(fs_store *store, said *what, const fs_nvtx_attributes *attributes,
                             const fs_nvtx_payload *payload, int64_t start, uint32_t *index)
{
    fs_nvtx_label *label;
    fs_note note;
    if (payload != NULL && payload->message != NULL && what->text == NULL && what->registered == NULL)
        what->text = payload->message;
    FS_TRY(find_label(store, what, &label));
    uint32_t id = label->note;
    if (attributes != NULL && take_payload(attributes, &note)) {
        FS_TRY(find_payload_note(store, what, &note, label, &id));
    } else if (payload != NULL && payload->size > 0) {
        note = (fs_note){.fields = payload->fields, .fields_size = payload->size};
        FS_TRY(make_note(store, what, &note, true, &id));
    }
    FS_TRY(fs_store_begin(store, FS_EVENT_RANGE, label->name, id, start, index, NULL));
    live.report.ranges++;
    return FS_OK;
}

/* Begin the range that attributes describe. */
static fs_status begin_described(fs_store *store, uint32_t domain, const fs_nvtx_attributes *attributes, int64_t start,
                                 uint32_t *index)
{
    char narrow[FS_NVTX_TEXT_BYTES + 1];
    fs_nvtx_payload payload;
    said what = {.domain = domain};
    if (attributes == NULL || attributes->size < sizeof *attributes)
        return begin_range(store, &what, NULL, NULL, start, index);
    what.category = attributes->category;
    what.coloured = attributes->colour_type == FS_NVTX_ARGB;
    what.colour = what.coloured ? attributes->colour : 0;
    if (attributes->message_type == FS_NVTX_ASCII) {
        what.text = attributes->message;
    } else if (attributes->message_type == FS_NVTX_REGISTERED) {
        what.registered = fs_nvtx_string_of(attributes->message);
    } else if (attributes->message_type == FS_NVTX_WIDE && attributes->message != NULL) {
        fs_nvtx_narrow(attributes->message, narrow);
        what.text = narrow;
    }
    if (attributes->payload_type != FS_NVTX_STRUCTURED)
        return begin_range(store, &what, attributes, NULL, start, index);
    size_t count = attributes->payload_count > 0 ? (size_t)attributes->payload_count : 1;
    const fs_nvtx_data *data = (const void *)(uintptr_t)attributes->payload.uint64; /* NOLINT(*-int-to-ptr) */
    read_payload(what.domain, data, count, &payload);
    return begin_range(store, &what, NULL, &payload, start, index);
}

/* Give a range that has no note the fields that come with its end. */
static void note_at_end(fs_store *store, uint32_t index, uint32_t domain, const fs_nvtx_payload *payload)
{
    fs_event event;
    fs_note note = {.fields = payload->fields, .fields_size = payload->size};
    fs_store_get(store, index, &event);
    if (payload->size == 0 || event.signature != FS_NONE) return;
    if (make_note(store, &(said){.domain = domain}, &note, true, &event.signature) == FS_OK)
        fs_store_set(store, index, &event);
}

/* Pushing and popping ---------------------------------------------------------------------------------------------- */

enum { MOST_DEPTH = 256 };

/* What the thread has pushed in a recording, outermost first. */
static _Thread_local struct {
    uint64_t recording;
    uint32_t depth, deeper; /* deeper: pushed beyond MOST_DEPTH, and not recorded */
    struct {
        uint32_t domain, index;
    } open[MOST_DEPTH];
} pushed;

static void renew_pushed(void)
{
    if (pushed.recording == live.recording) return;
    pushed.recording = live.recording;
    pushed.depth = pushed.deeper = 0;
}

/* Remember a range as pushed, unless it could not begin, and return its depth. */
static int keep_pushed(uint32_t domain, fs_status status, uint32_t index)
{
    if (status != FS_OK) {
        live.report.lost++;
        return FS_NVTX_NO_DEPTH;
    }
    pushed.open[pushed.depth].domain = domain;
    pushed.open[pushed.depth].index = index;
    return (int)pushed.depth++;
}

static bool is_deep(void)
{
    renew_pushed();
    if (pushed.depth < MOST_DEPTH) return false;
    pushed.deeper++;
    live.report.lost++;
    return true;
}

/* Push a range that attributes describe or, if they are NULL, one of a text. */
static inline int push(fs_nvtx_handle domain, const char *text, const fs_nvtx_attributes *attributes)
{
    uint32_t index = FS_NONE;
    int depth = FS_NVTX_NO_DEPTH;
    if (!is_recording()) return depth;
    int64_t start = fs_clock_now();
    fs_store *store = hold_store();
    if (store == NULL) return depth;
    if (!is_deep()) {
        said what = {.domain = fs_nvtx_domain_of(domain), .text = text};
        fs_status status = attributes != NULL ? begin_described(store, what.domain, attributes, start, &index)
                                              : begin_range(store, &what, NULL, NULL, start, &index);
        depth = keep_pushed(what.domain, status, index);
    }
    fs_nvtx_release();
    return depth;
}

int fs_nvtx_push(fs_nvtx_handle domain, const fs_nvtx_attributes *attributes)
{
    return push(domain, NULL, attributes);
}

int fs_nvtx_push_text(const char *text)
{
    return push(NULL, text, NULL);
}

/* Take the innermost range that the thread has pushed in the domain; FS_NONE if there is none. */
static uint32_t take_pushed(uint32_t domain)
{
    renew_pushed();
    if (pushed.deeper > 0) {
        pushed.deeper--;
        return FS_NONE;
    }
    uint32_t at = pushed.depth;
    while (at > 0 && pushed.open[at - 1].domain != domain) at--;
    if (at == 0) {
        live.report.unmatched++;
        return FS_NONE;
    }
    uint32_t index = pushed.open[at - 1].index;
    pushed.depth--;
    memmove(&pushed.open[at - 1], &pushed.open[at], (pushed.depth + 1 - at) * sizeof *pushed.open);
    return index;
}

int fs_nvtx_pop(fs_nvtx_handle domain, const fs_nvtx_data *data, size_t count)
{
    fs_nvtx_payload payload;
    if (!is_recording()) return FS_NVTX_NO_DEPTH;
    int64_t end = fs_clock_now();
    fs_store *store = hold_store();
    if (store == NULL) return FS_NVTX_NO_DEPTH;
    uint32_t number = fs_nvtx_domain_of(domain), index = take_pushed(number);
    int depth = index != FS_NONE ? (int)pushed.depth : FS_NVTX_NO_DEPTH;
    if (index != FS_NONE) {
        fs_store_end_range(store, index, end);
        if (data != NULL) {
            read_payload(number, data, count, &payload);
            note_at_end(store, index, number, &payload);
        }
    }
    fs_nvtx_release();
    return depth;
}

/* Starting and ending ---------------------------------------------------------------------------------------------- */

enum { ID_BITS = 32 };

uint64_t fs_nvtx_start(fs_nvtx_handle domain, const fs_nvtx_attributes *attributes)
{
    uint32_t index;
    uint64_t id = 0;
    if (!is_recording()) return id;
    int64_t start = fs_clock_now();
    fs_store *store = hold_store();
    if (store == NULL) return id;
    fs_status status = begin_described(store, fs_nvtx_domain_of(domain), attributes, start, &index);
    if (status == FS_OK) id = live.recording << ID_BITS | index;
    else live.report.lost++;
    fs_nvtx_release();
    return id;
}

/* Return whether an id is that of a range of this recording that has not ended. */
static bool is_open(const fs_store *store, uint64_t id)
{
    uint32_t index = (uint32_t)id;
    return id >> ID_BITS == (uint32_t)live.recording && index < fs_store_count(store) &&
           FS_EVENT_AT(store, index, kind) == FS_EVENT_RANGE && FS_EVENT_AT(store, index, duration) == FS_MISSING;
}

void fs_nvtx_stop(uint64_t id)
{
    if (!is_recording()) return;
    int64_t end = fs_clock_now();
    fs_store *store = hold_store();
    if (store == NULL) return;
    if (is_open(store, id)) fs_store_end_range(store, (uint32_t)id, end);
    else live.report.unmatched++;
    fs_nvtx_release();
}

void fs_nvtx_mark(void)
{
    if (!is_recording() || hold_store() == NULL) return;
    live.report.marks++;
    fs_nvtx_release();
}
