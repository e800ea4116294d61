/* Planes are read one after the other, by one thread, which skips over their events; then several threads read parts of
 * the lines. A part begins and ends between events, and is a part of the rows, so that the result does not depend on
 * the number of threads. */
#include "sources/protobuf/xspace.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "sources/protobuf/xnames.h"

enum { SPACE_PLANE = 1 };
enum { PLANE_NAME = 2, PLANE_LINE = 3, PLANE_EVENTS = 4, PLANE_STAT = 6 };
enum { LINE_ID = 1, LINE_NAME = 2, LINE_START = 3, LINE_EVENT = 4 };
enum { ENTRY_VALUE = 2, METADATA_NAME = 2, METADATA_STAT = 5 };

/* More are no recording, and would take much more memory than the file. */
enum { MOST_PLANES = 1 << 12, MOST_LINES = 1 << 16 };

enum { CHUNK_BYTES = FS_BLOCK(1 << 20, 64) };

/* Roles ------------------------------------------------------------------------------------------------------------ */

/* Whether a name is "/device:GPU:0": a kind in capitals, and an index. */
static bool is_device(fs_xtext name, int64_t *device)
{
    static const char start[] = "/device:";
    size_t at = sizeof start - 1, digits = 0;
    if (!fs_xtext_begins(name, start) || fs_xtext_begins(name, "/device:CUSTOM")) return false;
    while (at < name.size && name.bytes[at] >= 'A' && name.bytes[at] <= 'Z') at++;
    if (at == sizeof start - 1 || at >= name.size || name.bytes[at] != ':') return false;
    at++;
    *device = 0;
    while (at < name.size && name.bytes[at] >= '0' && name.bytes[at] <= '9' && digits < 9) {
        *device = *device * 10 + (name.bytes[at++] - '0');
        digits++;
    }
    return digits > 0 && at == name.size;
}

static fs_xplane_role role_of(fs_xtext name, int64_t *device)
{
    static const char *const hosts[] = {"/host:CPU",       "/host:CUPTI",         "/host:NVTX-CUPTI",
                                        "/host:ROCTRACER", "/host:python-tracer", "/host:TPU-runtime"};
    if (is_device(name, device)) return FS_XPLANE_DEVICE;
    if (fs_xtext_is(name, "/host:metadata")) return FS_XPLANE_METADATA;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (fs_xtext_is(name, hosts[i])) return FS_XPLANE_HOST;
    return FS_XPLANE_OTHER;
}

/* A GPU's streams have all that runs on it; what else its plane has was derived from them. A TPU has no streams. */
static fs_xline_role line_role(const fs_xplane *plane, fs_xtext name)
{
    if (plane->role == FS_XPLANE_HOST) return fs_xtext_begins(name, "Host Threads/") ? FS_XLINE_CALLS : FS_XLINE_THREAD;
    if (plane->role != FS_XPLANE_DEVICE) return FS_XLINE_LEFT_OUT;
    if (fs_xtext_begins(name, "Stream #")) return FS_XLINE_STREAM;
    if (!fs_xtext_begins(plane->name, "/device:TPU:")) return FS_XLINE_LEFT_OUT;
    if (fs_xtext_is(name, "XLA Ops")) return FS_XLINE_OPS;
    return fs_xtext_is(name, "Steps") ? FS_XLINE_STEPS : FS_XLINE_LEFT_OUT;
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
        if (field.number == LINE_NAME) line.name = fs_xtext_of(&field);
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
    if (line.role == FS_XLINE_LEFT_OUT) all->count = first;
    if (line.role == FS_XLINE_OPS && all->count > first) {
        all->chunks[first].wire.end = wire.end;
        all->count = first + 1;
    }
    if (of->line_count == MOST_LINES)
        return fs_fail(err, FS_VALUE_ERROR, "byte %zu: more than %d lines", (size_t)(wire.at - wire.begin), MOST_LINES);
    FS_TRY(FS_LIST_ROOM(&of->lines, of->line_count, &of->line_capacity, 8, err));
    of->lines[of->line_count++] = line;
    return FS_OK;
}

/* Planes ----------------------------------------------------------------------------------------------------------- */

static fs_status read_stat(fs_xspace *space, fs_xplane *plane, fs_wire wire, fs_error *err)
{
    const fs_xname *name, *referred;
    fs_xstat stat;
    FS_TRY(fs_xstat_read(plane->names, wire, &stat, &name, &referred, err));
    if (stat.name.size == 0 || stat.value.type == FS_XNOTHING || stat.value.type == FS_XBYTES) return FS_OK;
    if (fs_xtext_is(stat.name, "process_id") && stat.value.type != FS_XTEXT && space->process == 0)
        space->process = stat.value.integer;
    FS_TRY(FS_LIST_ROOM(&plane->stats, plane->stat_count, &plane->stat_capacity, 8, err));
    plane->stats[plane->stat_count++] = stat;
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
            if (inner.number == METADATA_NAME) module.name = fs_xtext_of(&inner);
            if (inner.number != METADATA_STAT) continue;
            FS_TRY(fs_xstat_read(plane->names, fs_wire_in(&wire, &inner), &stat, &name, &referred, err));
            bool is_module = fs_xtext_is(stat.name, "Hlo Proto") || fs_xtext_is(stat.name, "hlo_proto");
            if (is_module && stat.value.type == FS_XBYTES) module.proto = stat.value.text;
        }
        FS_TRY(fs_wire_end(&wire, err));
    }
    FS_TRY(fs_wire_end(&entry, err));
    if (module.proto.bytes == NULL) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&space->modules, space->module_count, &space->module_capacity, 8, err));
    space->modules[space->module_count++] = module;
    return FS_OK;
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
        if (field.number == PLANE_NAME) plane->name = fs_xtext_of(&field);
    FS_TRY(fs_wire_end(&rest, err));
    plane->role = role_of(plane->name, &plane->device);
    FS_TRY(fs_xnames_read(plane->names, wire, err));
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
        FS_TRY(FS_LIST_ROOM(&space->remarks, space->remark_count, &space->remark_capacity, 8, err));
        space->remarks[space->remark_count++] = (fs_xremark){(fs_xremark_kind)field.number, fs_xtext_of(&field)};
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
        fs_xnames_clear(plane->names);
        fs_free(plane->names);
        fs_free(plane->stats);
        fs_free(plane->lines);
    }
    fs_free(space->planes);
    fs_free(space->modules);
    fs_free(space->remarks);
    *space = (fs_xspace){.rows = NULL};
}
