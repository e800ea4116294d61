/* Planes are read one after the other, by one thread, which skips over their events; then several threads read parts of
 * the lines. A part begins and ends between events, and is a part of the rows, so that the result does not depend on
 * the number of threads. */
#include "sources/protobuf/xspace.h"

#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/sort.h"
#include "sources/protobuf/xnames.h"

/* Ids are usually 1, 2, 3, …, so an id is first looked for at its place after the smallest, and else by bisection. A
 * plane's names come after its lines in the file, which is why they are read first. */

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

static int64_t memory_named(fs_text text)
{
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++)
        if (fs_text_is(text, memories[i])) return (int64_t)i;
    return -1;
}

static void take_values(int word, fs_text text, fs_xdetails *details)
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

void fs_xdetails_read(fs_text text, fs_xdetails *details)
{
    const char *at = text.bytes, *end = at + text.size;
    for (int i = 0; i < FS_XDETAIL_COUNT; i++) details->values[i] = -1;
    while (at < end) {
        const char *space = memchr(at, ' ', (size_t)(end - at)), *until = space != NULL ? space : end;
        const char *colon = memchr(at, ':', (size_t)(until - at));
        fs_text word = {at, colon != NULL ? (size_t)(colon - at) : 0};
        for (int i = 0; word.size > 0 && i < FS_XDETAIL_COUNT; i++)
            if (fs_text_is(word, words[i])) take_values(i, (fs_text){colon + 1, (size_t)(until - colon - 1)}, details);
        at = until < end ? until + 1 : end;
    }
}

/* Many events refer to one text of details: it is read once. */
static fs_status keep_details(fs_xnames *names, fs_xname *name, fs_error *err)
{
    if (!fs_text_begins(name->name, "regs:") && !fs_text_begins(name->name, "kind")) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&names->details, names->detail_count, &names->detail_capacity, 64, err));
    fs_xdetails_read(name->name, &names->details[names->detail_count]);
    name->details = names->detail_count++;
    return FS_OK;
}

/* Names ------------------------------------------------------------------------------------------------------------ */

static uint8_t key_of(fs_text name)
{
    for (int key = 0; key < FS_XSTAT_COUNT; key++)
        if (fs_text_is(name, keys[key])) return (uint8_t)key;
    return FS_XSTAT_COUNT;
}

static fs_status read_name(fs_wire wire, fs_xname *name, fs_error *err)
{
    fs_wire_field field;
    while (fs_wire_next(&wire, &field)) {
        if (field.number == NAME_ID && field.type == FS_WIRE_VARINT) name->id = (int64_t)field.value;
        if (field.number == NAME_TEXT) name->name = fs_wire_text(&field);
        if (field.number == NAME_SHOWN) name->shown = fs_wire_text(&field);
    }
    const char *space = name->name.size > 0 ? memchr(name->name.bytes, ' ', name->name.size) : NULL;
    if (name->shown.size == 0 && space != NULL && fs_text_begins(name->name, "%"))
        name->shown = (fs_text){name->name.bytes + 1, (size_t)(space - name->name.bytes) - 1};
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
        if (field.number != ENTRY_VALUE) continue;
        name.about = fs_wire_in(&wire, &field);
        FS_TRY(read_name(name.about, &name, err));
    }
    FS_TRY(fs_wire_end(&wire, err));
    if (keyed) name.id = key;
    if (list->count == MOST_NAMES)
        return fs_fail(err, FS_VALUE_ERROR, "byte %zu: more than %d names", (size_t)(wire.at - wire.begin), MOST_NAMES);
    return FS_LIST_ADD(&list->items, &list->count, &list->capacity, 64, err, name);
}

/* In order of ids; among equal ones in the order of the file, which is that of their texts in memory. */
FS_ORDER_BY(by_id, fs_xname, id, name.bytes)

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

/* Read the entries of a plane. FS_VALUE_ERROR; FS_OUT_OF_MEMORY. */
static fs_status xnames_read(fs_xnames *names, fs_wire plane, fs_error *err)
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
        names->events.items[i].frame = fs_text_begins(names->events.items[i].name, "$");
    for (uint32_t i = 0; i < names->stats.count; i++) {
        names->stats.items[i].key = key_of(names->stats.items[i].name);
        FS_TRY(keep_details(names, &names->stats.items[i], err));
    }
    return FS_OK;
}

static void xnames_clear(fs_xnames *names)
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
            if (field.type == FS_WIRE_BYTES) stat->value.text = fs_wire_text(&field);
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

enum { SPACE_PLANE = 1 };
enum { PLANE_NAME = 2, PLANE_LINE = 3, PLANE_STAT = 6 };
enum { LINE_ID = 1, LINE_NAME = 2, LINE_START = 3, LINE_EVENT = 4 };
enum { METADATA_NAME = 2, METADATA_STAT = 5 };

/* More are no recording, and would take much more memory than the file. */
enum { MOST_PLANES = 1 << 12, MOST_LINES = 1 << 16 };

enum { CHUNK_BYTES = FS_BLOCK(1 << 20, 64) };

/* Roles ------------------------------------------------------------------------------------------------------------ */

/* Whether a name is "/device:GPU:0": a kind in capitals, and an index; or "/device:TPU:0 SparseCore 1". */
static bool is_device(fs_text name, int64_t *device, int64_t *core)
{
    static const char sparse[] = " SparseCore ";
    static const char start[] = "/device:";
    size_t at = sizeof start - 1, digits = 0;
    if (!fs_text_begins(name, start) || fs_text_begins(name, "/device:CUSTOM")) return false;
    while (at < name.size && name.bytes[at] >= 'A' && name.bytes[at] <= 'Z') at++;
    if (at == sizeof start - 1 || at >= name.size || name.bytes[at] != ':') return false;
    at++;
    *device = 0;
    while (at < name.size && name.bytes[at] >= '0' && name.bytes[at] <= '9' && digits < 9) {
        *device = *device * 10 + (name.bytes[at++] - '0');
        digits++;
    }
    fs_text rest = {name.bytes + at, name.size - at};
    if (digits == 0 || !fs_text_begins(rest, sparse)) return digits > 0 && rest.size == 0;
    take_number(rest.bytes + sizeof sparse - 1, rest.bytes + rest.size, core);
    ++*core;
    return *core > 0 && *core <= MOST_PLANES;
}

static fs_xplane_role role_of(fs_text name, int64_t *device, int64_t *core)
{
    static const char *const hosts[] = {"/host:CPU",       "/host:CUPTI",         "/host:NVTX-CUPTI",
                                        "/host:ROCTRACER", "/host:python-tracer", "/host:TPU-runtime"};
    if (is_device(name, device, core)) return FS_XPLANE_DEVICE;
    if (fs_text_is(name, "/host:metadata")) return FS_XPLANE_METADATA;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (fs_text_is(name, hosts[i])) return FS_XPLANE_HOST;
    return FS_XPLANE_OTHER;
}

/* A GPU's streams have all that runs on it; what else its plane has was derived from them. A TPU has no streams. */
static fs_xline_role line_role(const fs_xplane *plane, fs_text name)
{
    if (plane->role == FS_XPLANE_HOST) return fs_text_begins(name, "Host Threads/") ? FS_XLINE_CALLS : FS_XLINE_THREAD;
    if (plane->role != FS_XPLANE_DEVICE) return FS_XLINE_LEFT_OUT;
    if (fs_text_begins(name, "Stream #")) return FS_XLINE_STREAM;
    if (!fs_text_begins(plane->name, "/device:TPU:")) return FS_XLINE_LEFT_OUT;
    if (fs_text_is(name, "XLA Ops") || fs_text_is(name, "Sparse Core Ops")) return FS_XLINE_OPS;
    return fs_text_is(name, "Steps") ? FS_XLINE_STEPS : FS_XLINE_LEFT_OUT;
}

/* Lines ------------------------------------------------------------------------------------------------------------ */

typedef struct {
    fs_xspace *space;
    fs_xchunk *chunks;
    uint32_t count, capacity;
} reading;

static fs_status add_chunk(reading *all, fs_xchunk chunk, const uint8_t *from, const uint8_t *until, fs_error *err)
{
    if (from == until) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&all->chunks, all->count, &all->capacity, 64, err));
    chunk.wire.at = from;
    chunk.wire.end = until;
    all->chunks[all->count++] = chunk;
    return FS_OK;
}

/* Read what a line says of itself, and split its events. Nested ops are not split: each needs the one after it. */
static fs_status read_line(reading *all, uint32_t plane, fs_wire wire, fs_error *err)
{
    fs_xplane *of = &all->space->planes[plane];
    fs_xline line = {.name = {"", 0}};
    fs_xchunk chunk = {plane, of->line_count, wire};
    uint32_t first = all->count;
    const uint8_t *from = wire.at;
    fs_wire_field field;
    while (fs_wire_next(&wire, &field)) {
        if (field.number == LINE_ID && field.type == FS_WIRE_VARINT) line.id = (int64_t)field.value;
        if (field.number == LINE_START && field.type == FS_WIRE_VARINT) line.start = (int64_t)field.value;
        if (field.number == LINE_NAME) line.name = fs_wire_text(&field);
        if (field.number != LINE_EVENT) continue;
        FS_POLL(line.events, err);
        line.events++;
        if (wire.at - from < CHUNK_BYTES) continue;
        FS_TRY(add_chunk(all, chunk, from, wire.at, err));
        from = wire.at;
    }
    FS_TRY(fs_wire_end(&wire, err));
    if (line.events > 0) FS_TRY(add_chunk(all, chunk, from, wire.end, err));
    line.role = line_role(of, line.name);
    if (fs_text_is(line.name, "XLA Modules") || fs_text_is(line.name, "Sparse Core Modules")) {
        of->runs = chunk.wire;
        of->run_start = line.start;
    }
    if (line.role == FS_XLINE_LEFT_OUT) all->count = first;
    if (line.role == FS_XLINE_OPS && all->count > first) {
        all->chunks[first].wire.end = wire.end;
        all->count = first + 1;
    }
    if (of->line_count == MOST_LINES)
        return fs_fail(err, FS_VALUE_ERROR, "byte %zu: more than %d lines", (size_t)(wire.at - wire.begin), MOST_LINES);
    return FS_LIST_ADD(&of->lines, &of->line_count, &of->line_capacity, 8, err, line);
}

/* Planes ----------------------------------------------------------------------------------------------------------- */

static fs_status read_stat(fs_xspace *space, fs_xplane *plane, fs_wire wire, fs_error *err)
{
    const fs_xname *name, *referred;
    fs_xstat stat;
    FS_TRY(fs_xstat_read(plane->names, wire, &stat, &name, &referred, err));
    if (stat.name.size == 0 || stat.value.type == FS_XNOTHING || stat.value.type == FS_XBYTES) return FS_OK;
    if (fs_text_is(stat.name, "process_id") && stat.value.type != FS_XTEXT && space->process == 0)
        space->process = stat.value.integer;
    return FS_LIST_ADD(&plane->stats, &plane->stat_count, &plane->stat_capacity, 8, err, stat);
}

/* Find the programs of a TPU's ops: their descriptions have stats, whose names are known now. */
static fs_status read_programs(fs_xplane *plane, fs_error *err)
{
    const fs_xname *name, *referred;
    fs_wire_field field;
    fs_xstat stat;
    for (uint32_t i = 0; i < plane->names->events.count; i++) {
        fs_xname *of = &plane->names->events.items[i];
        FS_POLL(i, err);
        for (fs_wire wire = of->about; fs_wire_next(&wire, &field);) {
            if (field.number != METADATA_STAT) continue;
            FS_TRY(fs_xstat_read(plane->names, fs_wire_in(&wire, &field), &stat, &name, &referred, err));
            if (name->key == FS_XSTAT_PROGRAM) of->program = (uint64_t)stat.value.integer;
        }
    }
    return FS_OK;
}

/* Keep the module of an entry of "/host:metadata". */
static fs_status read_module(fs_xspace *space, const fs_xplane *plane, fs_wire entry, fs_error *err)
{
    const fs_xname *name, *referred;
    fs_xmodule module = {{"", 0}, {NULL, 0}};
    fs_wire_field field, inner;
    fs_xstat stat;
    while (fs_wire_next(&entry, &field)) {
        fs_wire wire = fs_wire_in(&entry, &field);
        while (field.number == ENTRY_VALUE && fs_wire_next(&wire, &inner)) {
            if (inner.number == METADATA_NAME) module.name = fs_wire_text(&inner);
            if (inner.number != METADATA_STAT) continue;
            FS_TRY(fs_xstat_read(plane->names, fs_wire_in(&wire, &inner), &stat, &name, &referred, err));
            bool is_module = fs_text_is(stat.name, "Hlo Proto") || fs_text_is(stat.name, "hlo_proto");
            if (is_module && stat.value.type == FS_XBYTES) module.proto = stat.value.text;
        }
        FS_TRY(fs_wire_end(&wire, err));
    }
    FS_TRY(fs_wire_end(&entry, err));
    if (module.proto.bytes == NULL) return FS_OK;
    return FS_LIST_ADD(&space->modules, &space->module_count, &space->module_capacity, 8, err, module);
}

static fs_status read_plane(reading *all, fs_wire wire, fs_error *err)
{
    fs_xspace *space = all->space;
    fs_wire rest = wire;
    fs_wire_field field;
    uint32_t index = space->plane_count;
    if (index == MOST_PLANES)
        return fs_fail(err, FS_VALUE_ERROR, "byte %zu: more than %d planes", (size_t)(wire.at - wire.begin),
                       MOST_PLANES);
    FS_TRY(FS_LIST_ROOM(&space->planes, index, &space->plane_capacity, 8, err));
    fs_xplane *plane = &space->planes[index];
    *plane = (fs_xplane){.name = {"", 0}};
    FS_TRY(FS_NEW_ZEROED(&plane->names, 1, err));
    space->plane_count++;
    while (fs_wire_next(&rest, &field))
        if (field.number == PLANE_NAME) plane->name = fs_wire_text(&field);
    FS_TRY(fs_wire_end(&rest, err));
    plane->role = role_of(plane->name, &plane->device, &plane->core);
    FS_TRY(xnames_read(plane->names, wire, err));
    if (plane->role == FS_XPLANE_DEVICE && fs_text_begins(plane->name, "/device:TPU:"))
        FS_TRY(read_programs(plane, err));
    for (rest = wire; fs_wire_next(&rest, &field);) {
        fs_wire inner = fs_wire_in(&rest, &field);
        if (field.number == PLANE_LINE) FS_TRY(read_line(all, index, inner, err));
        if (field.number == PLANE_STAT) FS_TRY(read_stat(space, plane, inner, err));
        if (field.number == PLANE_EVENTS && plane->role == FS_XPLANE_METADATA)
            FS_TRY(read_module(space, plane, inner, err));
    }
    for (uint32_t i = 0; plane->role == FS_XPLANE_HOST && i < plane->names->stats.count; i++)
        space->stepped = space->stepped || plane->names->stats.items[i].key == FS_XSTAT_STEP;
    return fs_wire_end(&rest, err);
}

static fs_status read_space(reading *all, fs_wire wire, fs_error *err)
{
    fs_xspace *space = all->space;
    fs_wire_field field;
    while (fs_wire_next(&wire, &field)) {
        if (field.number == SPACE_PLANE) FS_TRY(read_plane(all, fs_wire_in(&wire, &field), err));
        if (field.number < FS_XREMARK_ERROR || field.number > FS_XREMARK_HOST) continue;
        FS_TRY(FS_LIST_ADD(&space->remarks, &space->remark_count, &space->remark_capacity, 8, err,
                           (fs_xremark){(fs_xremark_kind)field.number, fs_wire_text(&field)}));
    }
    FS_TRY(fs_wire_end(&wire, err));
    return fs_xevents_read(space, all->chunks, all->count, err);
}

fs_status fs_xspace_read(fs_xspace *space, const void *bytes, size_t size, fs_rows *rows, fs_error *err)
{
    *space = (fs_xspace){.rows = rows};
    fs_rows_unite(rows); /* JAX nests two events in each call of a jitted function */
    reading all = {.space = space};
    fs_status status = read_space(&all, fs_wire_of(bytes, size), err);
    fs_free(all.chunks);
    if (status != FS_OK) fs_xspace_clear(space);
    return status;
}

void fs_xspace_clear(fs_xspace *space)
{
    for (uint32_t i = 0; i < space->plane_count; i++) {
        fs_xplane *plane = &space->planes[i];
        xnames_clear(plane->names);
        fs_free(plane->names);
        fs_free(plane->stats);
        fs_free(plane->lines);
    }
    fs_free(space->planes);
    fs_free(space->modules);
    fs_free(space->remarks);
    *space = (fs_xspace){.rows = NULL};
}
