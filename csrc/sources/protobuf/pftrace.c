/* Packets are read twice: first the descriptors of tracks, which may follow the events on them, then the events.
 *
 * A slice is written at its end. In a trace that a program wrote while it ran, the packets of a track are in the order
 * of time, and an end closes the slice that began last. torch writes the beginnings of many slices, then their ends in
 * the same order: where time runs backwards on a track, an end closes the slice that began first.
 *
 * Names and categories are interned by sequence (pftrace_values.h). When a sequence forgets its state, its names get
 * another epoch: slices that are still open keep those of theirs. */
#include "sources/protobuf/pftrace.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/wire.h"
#include "sources/protobuf/pftrace_values.h"
#include "store/store.h"

/* torch's traces have the work of a GPU as render stages: packets of their own with a duration, on no track. The stage
 * gives the category, and what a Chrome trace has as args are texts here, under keys of which three differ. The name of
 * a copy or a set is that of its stage: the kinds of its memory are not in the file. */

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

/* The category of a Chrome trace; that of another stage is its name, which no reader of categories knows. */
static fs_text stage_category(fs_text stage, bool launched)
{
    static const char *const rows[][2] = {{"Kernel", "kernel"},
                                          {"Memcpy", "gpu_memcpy"},
                                          {"Memset", "gpu_memset"},
                                          {"Annotation", "gpu_user_annotation"}};
    fs_text category = fs_pftrace_renamed(stage, rows, sizeof rows / sizeof *rows);
    return launched && category.bytes == stage.bytes ? fs_text_of("kernel") : category;
}

/* Whether a text is a number as JSON has it, and which. */
static bool is_number(fs_text text, int64_t *number)
{
    if (text.size == 0 || text.size > LONGEST_NUMBER || (text.size > 1 && text.bytes[0] == '0')) return false;
    *number = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.bytes[i] < '0' || text.bytes[i] > '9') return false;
        *number = 10 * *number + (text.bytes[i] - '0');
    }
    return true;
}

static fs_status read_extra(fs_wire wire, fs_text *name, fs_text *value, fs_error *err)
{
    fs_wire_field field;
    *name = *value = fs_text_of("");
    while (fs_wire_next(&wire, &field)) {
        if (field.number == EXTRA_NAME && field.type == FS_WIRE_BYTES)
            *name = (fs_text){(const char *)field.bytes, field.size};
        if (field.number == EXTRA_VALUE && field.type == FS_WIRE_BYTES)
            *value = (fs_text){(const char *)field.bytes, field.size};
    }
    return fs_wire_end(&wire, err);
}

/* Put ,"key":[x,y,z]. */
static fs_status put_sizes(fs_pftrace_text *text, const char *key, fs_wire wire, fs_error *err)
{
    int64_t sizes[] = {1, 1, 1};
    FS_TRY(fs_wire_numbers(wire, sizes, 3, err));
    FS_TRY(fs_text_put_plain(text, key, err));
    for (int i = 0; i < 3; i++) {
        FS_TRY(fs_text_put_plain(text, i > 0 ? "," : "[", err));
        FS_TRY(fs_text_put_integer(text, sizes[i], err));
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
    static const char *const keys[][2] = {{"device id", "device"}, {"stream id", "stream"}, {"context id", "context"}};
    fs_wire_field field;
    fs_text name, value;
    int64_t number;
    FS_TRY(fs_text_put_plain(text, ",\"args\":{\"gpu\":", err));
    FS_TRY(fs_text_put_integer(text, device, err));
    while (fs_wire_next(&wire, &field)) {
        if (field.number == STAGE_LAUNCH) FS_TRY(put_launch(text, fs_wire_in(&wire, &field), err));
        if (field.number != STAGE_EXTRA) continue;
        FS_TRY(read_extra(fs_wire_in(&wire, &field), &name, &value, err));
        name = fs_pftrace_renamed(name, keys, sizeof keys / sizeof *keys);
        FS_TRY(fs_text_put_plain(text, ",", err));
        FS_TRY(fs_text_put_quoted(text, name.bytes, name.size, err));
        FS_TRY(fs_text_put_plain(text, ":", err));
        if (is_number(value, &number)) FS_TRY(fs_text_put_integer(text, number, err));
        else FS_TRY(fs_text_put_quoted(text, value.bytes, value.size, err));
    }
    return fs_text_put_plain(text, "}", err);
}

/* Put a GpuRenderStageEvent that began at `start` ns as an event. FS_VALUE_ERROR; FS_OUT_OF_MEMORY. */
static fs_status pftrace_put_stage(fs_pftrace_text *text, const fs_pftrace_names *names, uint32_t epoch, uint64_t start,
                                   fs_wire stage, fs_error *err)
{
    fs_wire rest = stage;
    fs_wire_field field;
    fs_text kind = fs_text_of("stage"), name = {NULL, 0}, key, value;
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
        if (fs_text_is(key, "stream id")) is_number(value, &stream);
    }
    if (kind.bytes == NULL) kind = fs_text_of("stage");
    if (name.bytes == NULL) name = kind;
    FS_TRY(fs_text_begin_event(text, start, &end, device, stream, err));
    FS_TRY(fs_text_put_member(text, "name", name.bytes, name.size, err));
    fs_text category = stage_category(kind, launched);
    FS_TRY(fs_text_put_member(text, "cat", category.bytes, category.size, err));
    FS_TRY(put_arguments(text, stage, device, err));
    FS_TRY(fs_text_put_plain(text, "}", err));
    return fs_text_hand_on(text, false, err);
}

enum { TRACE_PACKET = 1 };
enum {
    PACKET_CLOCKS = 6,
    PACKET_TIME = 8,
    PACKET_SEQUENCE = 10,
    PACKET_EVENT = 11,
    PACKET_INTERNED = 12,
    PACKET_FLAGS = 13,
    PACKET_CLEARED = 41,
    PACKET_PACKED = 50,
    PACKET_STAGE = 53,
    PACKET_CLOCK = 58,
    PACKET_DEFAULTS = 59,
    PACKET_TRACK = 60
};
enum { FLAG_CLEARED = 1 };
enum { DEFAULTS_EVENT = 11, DEFAULTS_CLOCK = 58 };
enum { TRACK_ID = 1, TRACK_PROCESS = 3, TRACK_THREAD = 4, TRACK_PARENT = 5 };
enum {
    EVENT_CATEGORY_ID = 3,
    EVENT_TYPE = 9,
    EVENT_NAME_ID = 10,
    EVENT_TRACK = 11,
    EVENT_CATEGORY = 22,
    EVENT_NAME = 23
};
enum { BEGIN = 1, END = 2, INSTANT = 3 };
enum { CLOCKS_CLOCK = 1, CLOCK_ID = 1, CLOCK_TIME = 2, CLOCK_INCREMENTAL = 3, CLOCK_UNIT = 4 };
enum { FIRST_OWN_CLOCK = 64, MOST_PARENTS = 8 };

typedef struct {
    uint64_t parent;
    int64_t process, thread; /* -1: unknown */
    uint64_t last;           /* time of its last event */
    uint32_t first, newest;  /* open slices; FS_NONE */
} track;

typedef struct {
    uint64_t time;
    fs_wire event; /* of its beginning */
    uint32_t epoch, before, after;
} slice;

/* A sequence of packets: its own clock and its defaults. */
typedef struct {
    uint64_t clock, time, unit; /* clock: of packets that name none; unit: ns; 0: times are absolute */
    uint64_t own;               /* the clock that counts from the packet before; 0: none */
    uint64_t track;
    uint32_t epoch;
} sequence;

typedef struct {
    fs_pftrace_text text;
    fs_pftrace_names names;
    fs_id_map track_ids, sequence_ids;
    track *tracks;
    sequence *sequences;
    slice *slices;
    uint32_t track_count, track_capacity, sequence_count, sequence_capacity, slice_count, slice_capacity, free, epochs;
    bool writing; /* the second reading */
    bool batched; /* an end closes the slice that began first */
    bool by_rocprofv3;
} reading;

/* Tracks and sequences --------------------------------------------------------------------------------------------- */

static fs_status track_of(reading *all, uint64_t id, uint32_t *index, fs_error *err)
{
    *index = fs_id_map_get(&all->track_ids, (int64_t)id, 0);
    if (*index != FS_NONE) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&all->tracks, all->track_count, &all->track_capacity, 16, err));
    FS_TRY(fs_id_map_set(&all->track_ids, (int64_t)id, 0, all->track_count, err));
    all->tracks[all->track_count] = (track){0, -1, -1, 0, FS_NONE, FS_NONE};
    *index = all->track_count++;
    return FS_OK;
}

static fs_status sequence_of(reading *all, uint64_t id, uint32_t *index, fs_error *err)
{
    *index = fs_id_map_get(&all->sequence_ids, (int64_t)id, 0);
    if (*index != FS_NONE) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&all->sequences, all->sequence_count, &all->sequence_capacity, 8, err));
    FS_TRY(fs_id_map_set(&all->sequence_ids, (int64_t)id, 0, all->sequence_count, err));
    all->sequences[all->sequence_count] = (sequence){.unit = 1, .epoch = all->epochs++};
    *index = all->sequence_count++;
    return FS_OK;
}

static fs_status read_track(reading *all, fs_wire wire, fs_error *err)
{
    fs_wire_field field;
    track found = {0, -1, -1, 0, FS_NONE, FS_NONE};
    uint64_t id = 0;
    uint32_t index;
    while (fs_wire_next(&wire, &field)) {
        if (field.number == TRACK_ID && field.type == FS_WIRE_VARINT) id = field.value;
        if (field.number == TRACK_PARENT && field.type == FS_WIRE_VARINT) found.parent = field.value;
        if (field.number != TRACK_PROCESS && field.number != TRACK_THREAD) continue;
        int64_t ids[] = {found.process, found.thread};
        FS_TRY(fs_wire_numbers(fs_wire_in(&wire, &field), ids, field.number == TRACK_THREAD ? 2 : 1, err));
        found.process = ids[0];
        found.thread = ids[1];
    }
    FS_TRY(track_of(all, id, &index, err));
    all->tracks[index] = found;
    return fs_wire_end(&wire, err);
}

/* Events ----------------------------------------------------------------------------------------------------------- */

/* The category of torch's traces; without one it follows from the annotations. */
static const char *category_of(fs_text category, fs_text name, const fs_pftrace_signs *told)
{
    static const struct {
        const char *start, *category;
    } rows[] = {{"kernel_dispatch", "kernel"}, {"memory_copy", "gpu_memcpy"},  {"hip_", "hip_runtime"},
                {"hsa_", "hip_runtime"},       {"marker_", "user_annotation"}, {"rccl_", "user_annotation"}};
    for (size_t i = 0; category.bytes != NULL && i < sizeof rows / sizeof *rows; i++)
        if (fs_text_begins(category, rows[i].start) && !fs_text_is(category, "hip_runtime")) return rows[i].category;
    if (category.size > 0) return NULL;
    if (told->grid) return "kernel";
    if (told->stream && fs_text_begins(name, "Memcpy")) return "gpu_memcpy";
    if (told->stream && fs_text_begins(name, "Memset")) return "gpu_memset";
    if (told->stream) return "gpu_user_annotation";
    if (told->called) return "cuda_runtime";
    return told->op ? "cpu_op" : "user_annotation";
}

/* The process and the thread of a track: its own, or those of one that it is part of. */
static void place_of(const reading *all, uint32_t index, int64_t *process, int64_t *thread)
{
    const track *at = &all->tracks[index];
    *process = *thread = -1;
    for (int step = 0; step < MOST_PARENTS; step++) {
        if (*process < 0) *process = at->process;
        if (*thread < 0) *thread = at->thread;
        uint32_t parent = at->parent != 0 ? fs_id_map_get(&all->track_ids, (int64_t)at->parent, 0) : FS_NONE;
        if (parent == FS_NONE) break;
        at = &all->tracks[parent];
    }
    if (*process < 0) *process = 0;
    if (*thread < 0) *thread = index;
}

/* Write a slice or an instant as an event. */
static fs_status write_event(reading *all, uint32_t track_index, const slice *of, const uint64_t *end, fs_error *err)
{
    fs_pftrace_text *text = &all->text;
    fs_wire wire = of->event;
    fs_wire_field field;
    fs_text name = {NULL, 0}, category = {NULL, 0};
    fs_pftrace_signs told = {false, false, false, false};
    int64_t process, thread;
    while (fs_wire_next(&wire, &field)) {
        if (field.number == EVENT_NAME || field.number == EVENT_NAME_ID)
            name = fs_pftrace_text_of(&all->names, of->epoch, &field, FS_INTERNED_NAME);
        if (field.number == EVENT_CATEGORY || (field.number == EVENT_CATEGORY_ID && field.type == FS_WIRE_VARINT))
            category = fs_pftrace_text_of(&all->names, of->epoch, &field, FS_INTERNED_CATEGORY);
    }
    if (name.bytes == NULL) name = (fs_text){"<unnamed>", 9};
    place_of(all, track_index, &process, &thread);
    FS_TRY(fs_text_begin_event(text, of->time, end, process, thread, err));
    FS_TRY(fs_text_put_member(text, "name", name.bytes, name.size, err));
    FS_TRY(fs_text_put_plain(text, ",\"args\":", err));
    FS_TRY(fs_pftrace_put_annotations(text, &all->names, of->epoch, of->event, &told, err));
    const char *known = category_of(category, name, &told);
    all->by_rocprofv3 |= known != NULL && category.size > 0;
    if (known != NULL) category = fs_text_of(known);
    FS_TRY(fs_text_put_member(text, "cat", category.bytes, category.size, err));
    FS_TRY(fs_text_put_plain(text, "}", err));
    return fs_text_hand_on(text, false, err);
}

static fs_status open_slice(reading *all, uint32_t index, const slice *opened, fs_error *err)
{
    uint32_t at = all->free;
    track *on = &all->tracks[index];
    if (at != FS_NONE) {
        all->free = all->slices[at].after;
    } else {
        FS_TRY(FS_LIST_ROOM(&all->slices, all->slice_count, &all->slice_capacity, 64, err));
        at = all->slice_count++;
    }
    all->slices[at] = *opened;
    all->slices[at].before = on->newest;
    all->slices[at].after = FS_NONE;
    if (on->newest != FS_NONE) all->slices[on->newest].after = at;
    else on->first = at;
    on->newest = at;
    return FS_OK;
}

static fs_status close_slice(reading *all, uint32_t index, uint64_t time, fs_error *err)
{
    track *on = &all->tracks[index];
    uint32_t at = all->batched ? on->first : on->newest;
    if (at == FS_NONE) return FS_OK; /* it began before the recording */
    slice closed = all->slices[at];
    if (closed.before != FS_NONE) all->slices[closed.before].after = closed.after;
    else on->first = closed.after;
    if (closed.after != FS_NONE) all->slices[closed.after].before = closed.before;
    else on->newest = closed.before;
    all->slices[at].after = all->free;
    all->free = at;
    return write_event(all, index, &closed, &time, err);
}

static fs_status read_event(reading *all, const sequence *from, uint64_t time, fs_wire wire, fs_error *err)
{
    fs_wire rest = wire;
    fs_wire_field field;
    uint64_t type = 0, id = from->track;
    uint32_t index;
    while (fs_wire_next(&rest, &field)) {
        if (field.number == EVENT_TYPE && field.type == FS_WIRE_VARINT) type = field.value;
        if (field.number == EVENT_TRACK && field.type == FS_WIRE_VARINT) id = field.value;
    }
    FS_TRY(fs_wire_end(&rest, err));
    if (type < BEGIN || type > INSTANT) return FS_OK;
    FS_TRY(track_of(all, id, &index, err));
    if (type != INSTANT) {
        all->batched = all->batched || (!all->writing && time < all->tracks[index].last);
        all->tracks[index].last = time;
    }
    if (!all->writing) return FS_OK;
    slice begun = {time, wire, from->epoch, FS_NONE, FS_NONE};
    if (type == BEGIN) return open_slice(all, index, &begun, err);
    return type == END ? close_slice(all, index, time, err) : write_event(all, index, &begun, NULL, err);
}

/* Packets ---------------------------------------------------------------------------------------------------------- */

/* A clock of the sequence's own, which may count from the packet before and in another unit. */
static fs_status read_clocks(sequence *of, fs_wire wire, fs_error *err)
{
    fs_wire_field field, inner;
    while (fs_wire_next(&wire, &field)) {
        uint64_t values[CLOCK_UNIT + 1] = {0};
        if (field.number != CLOCKS_CLOCK) continue;
        fs_wire rest = fs_wire_in(&wire, &field);
        while (fs_wire_next(&rest, &inner))
            if (inner.number <= CLOCK_UNIT && inner.type == FS_WIRE_VARINT) values[inner.number] = inner.value;
        FS_TRY(fs_wire_end(&rest, err));
        if (values[CLOCK_ID] < FIRST_OWN_CLOCK || values[CLOCK_INCREMENTAL] == 0) continue;
        of->own = values[CLOCK_ID];
        of->unit = values[CLOCK_UNIT] > 0 && values[CLOCK_UNIT] <= 1000000000 ? values[CLOCK_UNIT] : 1;
        of->time = values[CLOCK_TIME] * of->unit;
    }
    return fs_wire_end(&wire, err);
}

static fs_status read_defaults(sequence *of, fs_wire wire, fs_error *err)
{
    fs_wire_field field;
    while (fs_wire_next(&wire, &field)) {
        if (field.number == DEFAULTS_CLOCK && field.type == FS_WIRE_VARINT) of->clock = field.value;
        if (field.number != DEFAULTS_EVENT) continue;
        int64_t track_id = (int64_t)of->track;
        FS_TRY(fs_wire_number(fs_wire_in(&wire, &field), EVENT_TRACK, &track_id, err));
        of->track = (uint64_t)track_id;
    }
    return fs_wire_end(&wire, err);
}

/* The fields of a packet that are read, by their numbers. */
typedef struct {
    fs_wire_field clocks, event, interned, defaults, track, stage;
    uint64_t time, sequence, flags, clock;
} packet;

static fs_status take_packet(fs_wire wire, packet *to, fs_error *err)
{
    fs_wire_field field;
    memset(to, 0, sizeof *to);
    while (fs_wire_next(&wire, &field)) {
        bool number = field.type == FS_WIRE_VARINT;
        if (field.number == PACKET_CLOCKS) to->clocks = field;
        if (field.number == PACKET_EVENT) to->event = field;
        if (field.number == PACKET_INTERNED) to->interned = field;
        if (field.number == PACKET_DEFAULTS) to->defaults = field;
        if (field.number == PACKET_TRACK) to->track = field;
        if (field.number == PACKET_STAGE) to->stage = field;
        if (field.number == PACKET_TIME && number) to->time = field.value;
        if (field.number == PACKET_SEQUENCE && number) to->sequence = field.value;
        if (field.number == PACKET_CLOCK && number) to->clock = field.value;
        if (field.number == PACKET_FLAGS && number) to->flags |= field.value;
        if (field.number == PACKET_CLEARED && number && field.value != 0) to->flags |= FLAG_CLEARED;
    }
    return fs_wire_end(&wire, err);
}

static fs_status read_packet(reading *all, fs_wire wire, fs_error *err)
{
    packet of;
    uint32_t index;
    FS_TRY(take_packet(wire, &of, err));
    if (of.track.number != 0 && !all->writing) FS_TRY(read_track(all, fs_wire_in(&wire, &of.track), err));
    FS_TRY(sequence_of(all, of.sequence, &index, err));
    sequence *from = &all->sequences[index];
    if ((of.flags & FLAG_CLEARED) != 0) *from = (sequence){.unit = 1, .epoch = all->epochs++};
    if (of.clocks.number != 0) FS_TRY(read_clocks(from, fs_wire_in(&wire, &of.clocks), err));
    if (of.defaults.number != 0) FS_TRY(read_defaults(from, fs_wire_in(&wire, &of.defaults), err));
    if (of.interned.number != 0 && all->writing)
        FS_TRY(fs_pftrace_names_read(&all->names, from->epoch, fs_wire_in(&wire, &of.interned), err));
    uint64_t clock = of.clock != 0 ? of.clock : from->clock;
    bool incremental = from->own != 0 && clock == from->own;
    if (incremental) from->time += of.time * from->unit;
    uint64_t time = incremental ? from->time : of.time;
    if (of.stage.number != 0 && all->writing)
        FS_TRY(pftrace_put_stage(&all->text, &all->names, from->epoch, time, fs_wire_in(&wire, &of.stage), err));
    return of.event.number != 0 ? read_event(all, from, time, fs_wire_in(&wire, &of.event), err) : FS_OK;
}

static fs_status read_packets(reading *all, fs_wire wire, fs_error *err)
{
    fs_wire_field field;
    uint32_t round = 0;
    all->sequence_count = all->epochs = 0;
    fs_id_map_clear(&all->sequence_ids);
    all->sequence_ids = (fs_id_map){0};
    while (fs_wire_next(&wire, &field)) {
        FS_POLL(round++, err);
        if (field.number == TRACE_PACKET) FS_TRY(read_packet(all, fs_wire_in(&wire, &field), err));
    }
    return fs_wire_end(&wire, err);
}

static fs_status read_trace(reading *all, fs_wire wire, fs_error *err)
{
    FS_TRY(read_packets(all, wire, err));
    all->writing = true;
    FS_TRY(fs_text_put_plain(&all->text, "{\"schemaVersion\":1,\"traceEvents\":[", err));
    FS_TRY(read_packets(all, wire, err));
    if (all->by_rocprofv3) FS_TRY(fs_text_put_plain(&all->text, "],\"rocprofv3\":{}}\n", err));
    else FS_TRY(fs_text_put_plain(&all->text, "]}\n", err));
    return fs_text_hand_on(&all->text, true, err);
}

fs_status fs_pftrace_read(const void *bytes, size_t size, fs_pftrace_write write, void *context, fs_error *err)
{
    reading all = {.text = {.write = write, .context = context}, .free = FS_NONE};
    fs_status status = read_trace(&all, fs_wire_of(bytes, size), err);
    fs_id_map *maps[] = {&all.track_ids, &all.sequence_ids};
    void *blocks[] = {all.text.bytes, all.tracks, all.sequences, all.slices};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) fs_id_map_clear(maps[i]);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fs_free(blocks[i]);
    fs_pftrace_names_clear(&all.names);
    return status;
}

/* Compression ------------------------------------------------------------------------------------------------------ */

fs_status fs_pftrace_list_packed(const void *bytes, size_t size, fs_pftrace_packed **packed, uint32_t *count,
                                 fs_error *err)
{
    fs_wire wire = fs_wire_of(bytes, size);
    fs_wire_field field, inner;
    uint32_t capacity = 0, round = 0;
    fs_status status = FS_OK;
    *packed = NULL;
    *count = 0;
    for (const uint8_t *from = wire.at; status == FS_OK && fs_wire_next(&wire, &field); from = wire.at) {
        fs_wire rest = fs_wire_in(&wire, &field);
        if (round++ % FS_POLL_ROUNDS == 0) status = fs_interrupt_poll(err);
        while (status == FS_OK && field.number == TRACE_PACKET && fs_wire_next(&rest, &inner)) {
            if (inner.number != PACKET_PACKED || inner.type != FS_WIRE_BYTES) continue;
            status = FS_LIST_ROOM(packed, *count, &capacity, 16, err);
            if (status != FS_OK) break;
            size_t content = (size_t)(inner.bytes - wire.begin);
            (*packed)[(*count)++] = (fs_pftrace_packed){(size_t)(from - wire.begin), (size_t)(wire.at - wire.begin),
                                                        content, content + inner.size};
        }
        if (status == FS_OK) status = fs_wire_end(&rest, err);
    }
    if (status == FS_OK) status = fs_wire_end(&wire, err);
    if (status == FS_OK) return FS_OK;
    fs_free(*packed);
    *packed = NULL;
    *count = 0;
    return status;
}
