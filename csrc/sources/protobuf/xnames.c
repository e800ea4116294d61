/* Ids are usually 1, 2, 3, …, so an id is first looked for at its place after the smallest, and else by bisection. A
 * plane's names come after its lines in the file, which is why they are read first. */
#include "sources/protobuf/xnames.h"

#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"

enum { PLANE_EVENTS = 4, PLANE_STATS = 5 };
enum { MOST_NAMES = 1 << 22 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2, NAME_ID = 1, NAME_TEXT = 2, NAME_SHOWN = 4 };

static const char *const keys[] = {
#define KEY_NAME(NAME, name) name,
    FS_XSTATS(KEY_NAME)
#undef KEY_NAME
};

static const char *const words[] = {
#define DETAIL_WORD(NAME, word, column) word,
    FS_XDETAILS(DETAIL_WORD)
#undef DETAIL_WORD
};

/* As XLA names CUPTI's kinds of memory, in the order of rows.h. */
static const char *const memories[] = {"pageable", "pinned",        "device",        "array",
                                       "managed",  "device_static", "managed_static"};

/* Details ---------------------------------------------------------------------------------------------------------- */

/* Return the end of a number at the start of a text; *value is -1 if there is none. */
static const char *take_number(const char *at, const char *end, int64_t *value)
{
    const char *start = at;
    int64_t sum = 0;
    while (at < end && *at >= '0' && *at <= '9' && sum < INT64_MAX / 16) sum = sum * 10 + (*at++ - '0');
    *value = at > start ? sum : -1;
    return at;
}

static int64_t memory_named(fs_xtext text)
{
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++)
        if (fs_xtext_is(text, memories[i])) return (int64_t)i;
    return -1;
}

static void take_values(int word, fs_xtext text, fs_xdetails *details)
{
    const char *at = text.bytes, *end = at + text.size;
    if (word == FS_XDETAIL_FROM || word == FS_XDETAIL_TO || word == FS_XDETAIL_KIND) {
        details->values[word] = memory_named(text);
        return;
    }
    at = take_number(at, end, &details->values[word]);
    for (word++; at < end && *at == ',' && word < FS_XDETAIL_COUNT && words[word][0] == 0; word++)
        at = take_number(at + 1, end, &details->values[word]);
}

void fs_xdetails_read(fs_xtext text, fs_xdetails *details)
{
    const char *at = text.bytes, *end = at + text.size;
    for (int i = 0; i < FS_XDETAIL_COUNT; i++) details->values[i] = -1;
    while (at < end) {
        const char *space = memchr(at, ' ', (size_t)(end - at)), *until = space != NULL ? space : end;
        const char *colon = memchr(at, ':', (size_t)(until - at));
        fs_xtext word = {at, colon != NULL ? (size_t)(colon - at) : 0};
        for (int i = 0; word.size > 0 && i < FS_XDETAIL_COUNT; i++)
            if (fs_xtext_is(word, words[i]))
                take_values(i, (fs_xtext){colon + 1, (size_t)(until - colon - 1)}, details);
        at = until < end ? until + 1 : end;
    }
}

/* Many events refer to one text of details: it is read once. */
static fs_status keep_details(fs_xnames *names, fs_xname *name, fs_error *err)
{
    if (!fs_xtext_begins(name->name, "regs:") && !fs_xtext_begins(name->name, "kind")) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&names->details, names->detail_count, &names->detail_capacity, 64, err));
    fs_xdetails_read(name->name, &names->details[names->detail_count]);
    name->details = names->detail_count++;
    return FS_OK;
}

/* Names ------------------------------------------------------------------------------------------------------------ */

static uint8_t key_of(fs_xtext name)
{
    for (int key = 0; key < FS_XSTAT_COUNT; key++)
        if (fs_xtext_is(name, keys[key])) return (uint8_t)key;
    return FS_XSTAT_COUNT;
}

static fs_status read_name(fs_wire wire, fs_xname *name, fs_error *err)
{
    fs_wire_field field;
    while (fs_wire_next(&wire, &field)) {
        if (field.number == NAME_ID && field.type == FS_WIRE_VARINT) name->id = (int64_t)field.value;
        if (field.number == NAME_TEXT) name->name = fs_xtext_of(&field);
        if (field.number == NAME_SHOWN) name->shown = fs_xtext_of(&field);
    }
    return fs_wire_end(&wire, err);
}

static fs_status read_entry(fs_wire wire, fs_xname_list *list, fs_error *err)
{
    fs_wire_field field;
    fs_xname name = {.name = {"", 0}, .details = FS_NONE, .key = FS_XSTAT_COUNT};
    int64_t key = 0;
    bool keyed = false;
    while (fs_wire_next(&wire, &field)) {
        keyed = keyed || field.number == ENTRY_KEY;
        if (field.number == ENTRY_KEY && field.type == FS_WIRE_VARINT) key = (int64_t)field.value;
        if (field.number == ENTRY_VALUE) FS_TRY(read_name(fs_wire_in(&wire, &field), &name, err));
    }
    FS_TRY(fs_wire_end(&wire, err));
    if (keyed) name.id = key;
    if (list->count == MOST_NAMES)
        return fs_fail(err, FS_VALUE_ERROR, "byte %zu: more than %d names", (size_t)(wire.at - wire.begin), MOST_NAMES);
    FS_TRY(FS_LIST_ROOM(&list->items, list->count, &list->capacity, 64, err));
    list->items[list->count++] = name;
    return FS_OK;
}

/* In order of ids; among equal ones in the order of the file, which is that of their texts in memory. */
static int by_id(const void *a, const void *b)
{
    const fs_xname *one = a, *other = b;
    if (one->id != other->id) return one->id < other->id ? -1 : 1;
    return (one->name.bytes > other->name.bytes) - (one->name.bytes < other->name.bytes);
}

static void sort(fs_xname_list *list)
{
    uint32_t kept = 0;
    if (list->count > 0) qsort(list->items, list->count, sizeof *list->items, by_id);
    for (uint32_t i = 0; i < list->count; i++) {
        bool replaced = i + 1 < list->count && list->items[i + 1].id == list->items[i].id;
        if (!replaced) list->items[kept++] = list->items[i];
    }
    list->count = kept;
}

const fs_xname *fs_xname_of(const fs_xname_list *list, int64_t id)
{
    if (list->count == 0 || id < list->items[0].id) return NULL;
    uint64_t place = (uint64_t)id - (uint64_t)list->items[0].id;
    if (place < list->count && list->items[place].id == id) return &list->items[place];
    uint32_t at = FS_FIRST_NOT(i, 0, list->count, list->items[i].id < id);
    return at < list->count && list->items[at].id == id ? &list->items[at] : NULL;
}

fs_status fs_xnames_read(fs_xnames *names, fs_wire plane, fs_error *err)
{
    fs_wire_field field;
    uint32_t round = 0;
    while (fs_wire_next(&plane, &field)) {
        FS_POLL(round++, err);
        if (field.number == PLANE_EVENTS) FS_TRY(read_entry(fs_wire_in(&plane, &field), &names->events, err));
        if (field.number == PLANE_STATS) FS_TRY(read_entry(fs_wire_in(&plane, &field), &names->stats, err));
    }
    FS_TRY(fs_wire_end(&plane, err));
    sort(&names->events);
    sort(&names->stats);
    for (uint32_t i = 0; i < names->events.count; i++)
        names->events.items[i].frame = fs_xtext_begins(names->events.items[i].name, "$");
    for (uint32_t i = 0; i < names->stats.count; i++) {
        names->stats.items[i].key = key_of(names->stats.items[i].name);
        FS_TRY(keep_details(names, &names->stats.items[i], err));
    }
    return FS_OK;
}

void fs_xnames_clear(fs_xnames *names)
{
    fs_free(names->events.items);
    fs_free(names->stats.items);
    fs_free(names->details);
}

/* Stats ------------------------------------------------------------------------------------------------------------ */

enum { STAT_ID = 1, STAT_REAL = 2, STAT_UNSIGNED = 3, STAT_INTEGER = 4, STAT_TEXT = 5, STAT_BYTES = 6, STAT_NAME = 7 };

fs_status fs_xstat_read(const fs_xnames *names, fs_wire wire, fs_xstat *stat, const fs_xname **name,
                        const fs_xname **referred, fs_error *err)
{
    static const fs_xname unnamed = {.name = {"", 0}, .details = FS_NONE, .key = FS_XSTAT_COUNT};
    static const fs_xvalue_type types[] = {[STAT_REAL] = FS_XREAL,       [STAT_UNSIGNED] = FS_XUNSIGNED,
                                           [STAT_INTEGER] = FS_XINTEGER, [STAT_TEXT] = FS_XTEXT,
                                           [STAT_BYTES] = FS_XBYTES,     [STAT_NAME] = FS_XTEXT};
    static const uint8_t wires[] = {[STAT_REAL] = FS_WIRE_FIXED64,   [STAT_UNSIGNED] = FS_WIRE_VARINT,
                                    [STAT_INTEGER] = FS_WIRE_VARINT, [STAT_TEXT] = FS_WIRE_BYTES,
                                    [STAT_BYTES] = FS_WIRE_BYTES,    [STAT_NAME] = FS_WIRE_VARINT};
    fs_wire_field field;
    *stat = (fs_xstat){{"", 0}, {FS_XNOTHING, 0, 0, {NULL, 0}}};
    *name = &unnamed;
    *referred = NULL;
    while (fs_wire_next(&wire, &field)) {
        if (field.number == STAT_ID && field.type == FS_WIRE_VARINT) {
            const fs_xname *found = fs_xname_of(&names->stats, (int64_t)field.value);
            if (found != NULL) *name = found;
        } else if (field.number >= STAT_REAL && field.number <= STAT_NAME && field.type == wires[field.number]) {
            stat->value.type = types[field.number];
            if (field.type != FS_WIRE_BYTES) stat->value.integer = (int64_t)field.value;
            if (field.number == STAT_REAL) stat->value.real = fs_wire_double(&field);
            if (field.type == FS_WIRE_BYTES) stat->value.text = fs_xtext_of(&field);
            if (field.number == STAT_NAME) {
                *referred = fs_xname_of(&names->stats, stat->value.integer);
                if (*referred != NULL) stat->value.text = (*referred)->name;
                else stat->value.type = FS_XNOTHING;
            }
        }
    }
    stat->name = (*name)->name;
    return fs_wire_end(&wire, err);
}
