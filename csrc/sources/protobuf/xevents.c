/* Events of lines become rows. A row has the times of its event in whole ns: both ends are rounded down, so that nested
 * events stay nested. What an event is follows from its line and its stats:
 *
 *   stream   kernel_details: a kernel; memcpy_details, memset_details: a copy, a fill; cuda_graph_exec_id: a replay
 *   thread   correlation_id: an API call; step_num: a step; a name "$file.py:12 f": a call of Python; else a range
 *   ops      an op, which has the name of an instruction, unless the next one lies in it */
#include "sources/protobuf/xnames.h"

#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "store/store.h"

enum { LINE_EVENT = 4 };
enum { EVENT_NAME = 1, EVENT_OFFSET = 2, EVENT_DURATION = 3, EVENT_STAT = 4 };

enum { NVTX_MARK = 34 }; /* the type of a mark among the rows of ranges */

enum { NAME_BYTES = 256, CORE_STREAMS = 1000 }; /* more than the lines of a core of a TPU */

typedef struct {
    const fs_xname *name; /* NULL: it has none */
    int64_t start, end;   /* ns */
    bool lasts;
    uint32_t known; /* by fs_xstat_key: one bit each */
    fs_xvalue values[FS_XSTAT_COUNT];
    const fs_xdetails *details;
    fs_xdetails own;
} event;

typedef struct {
    fs_xspace *space;
    const fs_xchunk *chunks;
    uint32_t first; /* part of the rows */
    fs_status *statuses;
    fs_error *errors;
} reading;

/* One chunk, which one thread reads. */
typedef struct {
    fs_xspace *space;
    const fs_xplane *plane;
    const fs_xline *line;
    uint32_t part;
    fs_cell cells[FS_CELL_COUNT];
    char text[NAME_BYTES];
    fs_wire runs; /* of a TPU: of the line of programs, what was not read yet; */
    event ran[2]; /* the program of an op that began last, and the next one */
} chunk;

/* Names ------------------------------------------------------------------------------------------------------------ */

/* The name of a call of Python as torch's profiler has it: "file.py(12): f". */
static int frame_name(fs_text name, char text[NAME_BYTES])
{
    const char *begin = name.bytes + 1, *end = name.bytes + name.size, *colon = NULL, *space = NULL;
    for (const char *at = begin; at < end && space == NULL; at++) {
        if (*at == ' ') space = at;
        if (*at == ':') colon = at;
    }
    if (space == NULL) return snprintf(text, NAME_BYTES, "%.*s", (int)(end - begin), begin);
    int size = (int)(end - space - 1);
    if (colon != NULL)
        return snprintf(text, NAME_BYTES, "%.*s(%.*s): %.*s", (int)(colon - begin), begin, (int)(space - colon - 1),
                        colon + 1, size, space + 1);
    return snprintf(text, NAME_BYTES, "<built-in function %.*s>", size, space + 1);
}

/* The size of the name of an API call: "cuGraphLaunch (CudaGraph:40)" is "cuGraphLaunch". */
static size_t call_size(fs_text name)
{
    static const char graph[] = " (CudaGraph:";
    const char *found = memchr(name.bytes, ' ', name.size);
    size_t left = found != NULL ? name.size - (size_t)(found - name.bytes) : 0;
    bool is_graph = left >= sizeof graph - 1 && memcmp(found, graph, sizeof graph - 1) == 0;
    return is_graph ? name.size - left : name.size;
}

/* Add the names of a plane's events to the rows' strings: their space is the index of the plane. */
static fs_status add_names(fs_xspace *space, uint32_t part, uint32_t plane, fs_error *err)
{
    fs_cell cells[FS_CELL_COUNT] = {{FS_IS_MISSING, 0, 0, NULL, 0}};
    const fs_xname_list *list = &space->planes[plane].names->events;
    char text[NAME_BYTES];
    for (uint32_t i = 0; i < list->count; i++) {
        const fs_xname *name = &list->items[i];
        fs_text plain =
            name->shown.size > 0 && space->planes[plane].role == FS_XPLANE_DEVICE ? name->shown : name->name;
        FS_POLL(i, err);
        if (name->frame) {
            int size = frame_name(name->name, text);
            plain = (fs_text){text, size < NAME_BYTES ? (size_t)size : NAME_BYTES - 1};
        } else {
            plain.size = call_size(plain);
        }
        cells[FS_CELL_SPACE] = (fs_cell){FS_IS_INTEGER, plane, 0, NULL, 0};
        cells[FS_CELL_ID] = (fs_cell){FS_IS_INTEGER, name->id, 0, NULL, 0};
        cells[FS_CELL_NAME] = (fs_cell){FS_IS_TEXT, 0, 0, plain.bytes, plain.size};
        FS_TRY(fs_rows_add(space->rows, part, FS_ROW_STRING, cells, err));
    }
    return FS_OK;
}

/* Reading an event ------------------------------------------------------------------------------------------------- */

static fs_status read_stat(const chunk *of, fs_wire wire, event *to, fs_error *err)
{
    const fs_xname *name, *referred;
    fs_xstat stat;
    FS_TRY(fs_xstat_read(of->plane->names, wire, &stat, &name, &referred, err));
    if (name->key == FS_XSTAT_COUNT) return FS_OK;
    to->known |= 1U << name->key;
    to->values[name->key] = stat.value;
    if (name->key < FS_XSTAT_KERNEL || name->key > FS_XSTAT_FILL_OLD) return FS_OK;
    if (referred != NULL && referred->details != FS_NONE) {
        to->details = &of->plane->names->details[referred->details];
    } else if (stat.value.type == FS_XTEXT) {
        fs_xdetails_read(stat.value.text, &to->own);
        to->details = &to->own;
    }
    return FS_OK;
}

/* The time of an offset in ps from the start of the line, rounded down; FS_MISSING if it is impossible. */
static int64_t time_of(int64_t start, int64_t offset)
{
    int64_t time, whole = offset / 1000 - (offset % 1000 < 0);
    return __builtin_add_overflow(start, whole, &time) ? FS_MISSING : time;
}

/* start: of the line */
static fs_status read_event(const chunk *of, int64_t start, fs_wire wire, event *to, fs_error *err)
{
    fs_wire_field field;
    int64_t offset = 0, duration = 0, end;
    to->name = NULL;
    to->known = 0;
    to->details = NULL;
    to->lasts = false;
    while (fs_wire_next(&wire, &field)) {
        if (field.number == EVENT_STAT) FS_TRY(read_stat(of, fs_wire_in(&wire, &field), to, err));
        if (field.type != FS_WIRE_VARINT) continue;
        if (field.number == EVENT_NAME) to->name = fs_xname_of(&of->plane->names->events, (int64_t)field.value);
        if (field.number == EVENT_OFFSET) offset = (int64_t)field.value;
        if (field.number == EVENT_DURATION) duration = (int64_t)field.value;
    }
    FS_TRY(fs_wire_end(&wire, err));
    to->lasts = duration > 0;
    to->start = time_of(start, offset);
    to->end = __builtin_add_overflow(offset, duration, &end) ? FS_MISSING : time_of(start, end);
    return FS_OK;
}

static bool knows(const event *one, fs_xstat_key key)
{
    return (one->known >> key & 1) != 0;
}

/* Rows ------------------------------------------------------------------------------------------------------------- */

static void set(chunk *of, fs_row_column column, int64_t value)
{
    of->cells[column].type = FS_IS_INTEGER;
    of->cells[column].integer = value;
}

static void drop(chunk *of, fs_row_column column)
{
    of->cells[column].type = FS_IS_MISSING;
}

/* A stat that may be a text: correlation ids are numbers, graphs as well. */
static void set_stat(chunk *of, fs_row_column column, const event *from, fs_xstat_key key)
{
    drop(of, column);
    if (knows(from, key) && (from->values[key].type == FS_XINTEGER || from->values[key].type == FS_XUNSIGNED))
        set(of, column, from->values[key].integer);
}

static void set_times(chunk *of, const event *from)
{
    set(of, FS_CELL_START, from->start);
    set(of, FS_CELL_END, from->end);
    if (from->start == FS_MISSING) drop(of, FS_CELL_START);
    if (from->end == FS_MISSING) drop(of, FS_CELL_END);
}

static void set_name(chunk *of, const event *from)
{
    drop(of, FS_CELL_NAME);
    if (from->name != NULL) set(of, FS_CELL_NAME, from->name->id);
}

static void set_details(chunk *of, const fs_xdetails *details)
{
    static const fs_row_column columns[] = {
#define DETAIL_COLUMN(NAME, word, column) FS_CELL_##column,
        FS_XDETAILS(DETAIL_COLUMN)
#undef DETAIL_COLUMN
    };
    for (int i = 0; i < FS_XDETAIL_COUNT; i++) drop(of, columns[i]);
    for (int i = 0; details != NULL && i < FS_XDETAIL_COUNT; i++)
        if (details->values[i] >= 0) set(of, columns[i], details->values[i]);
}

/* The kind of a copy in CUPTI's numbers, by its name. */
static int64_t copy_kind(const event *from)
{
    static const struct {
        const char *name;
        int64_t kind;
    } kinds[] = {{"MemcpyH2D", 1}, {"MemcpyD2H", 2}, {"MemcpyD2D", 8}, {"MemcpyP2P", 10}};
    for (size_t i = 0; from->name != NULL && i < sizeof kinds / sizeof *kinds; i++) {
        if (fs_text_is(from->name->name, kinds[i].name)) return kinds[i].kind;
    }
    return 0;
}

/* The instruction, and its module as "/host:metadata" names it: "jit_step(12)", with the number of the program. */
static void set_instruction(chunk *of, const event *from)
{
    const fs_xvalue *op = &from->values[FS_XSTAT_OP], *module = &from->values[FS_XSTAT_MODULE];
    drop(of, FS_CELL_INSTRUCTION);
    if (!knows(from, FS_XSTAT_OP) || op->type != FS_XTEXT) return;
    of->cells[FS_CELL_INSTRUCTION] = (fs_cell){FS_IS_TEXT, 0, 0, op->text.bytes, op->text.size};
    drop(of, FS_CELL_MODULE);
    if (!knows(from, FS_XSTAT_MODULE) || module->type != FS_XTEXT) return;
    of->cells[FS_CELL_MODULE] = (fs_cell){FS_IS_TEXT, 0, 0, module->text.bytes, module->text.size};
    if (!knows(from, FS_XSTAT_PROGRAM) || module->text.size > NAME_BYTES - 32) return;
    int size = snprintf(of->text, NAME_BYTES, "%.*s(%llu)", (int)module->text.size, module->text.bytes,
                        (unsigned long long)from->values[FS_XSTAT_PROGRAM].integer);
    of->cells[FS_CELL_MODULE] = (fs_cell){FS_IS_TEXT, 0, 0, of->text, (size_t)size};
}

static fs_text name_of(const fs_xname *op)
{
    return op->shown.size > 0 ? op->shown : op->name;
}

/* Whether a TPU's op starts a copy between memories, or waits for one: nothing is computed in its time. */
static bool is_copy(const fs_xname *op)
{
    return fs_text_begins(name_of(op), "copy-start") || fs_text_begins(name_of(op), "copy-done");
}

/* Read on in the line of programs until the next one begins after `start`. Ops come in the order of their starts. */
static fs_status take_runs(chunk *of, int64_t start, fs_error *err)
{
    fs_wire_field field;
    while (of->ran[1].name == NULL || of->ran[1].start <= start) {
        if (of->ran[1].name != NULL) of->ran[0] = of->ran[1];
        of->ran[1].name = NULL;
        if (!fs_wire_next(&of->runs, &field)) break;
        if (field.number != LINE_EVENT) continue;
        FS_TRY(read_event(of, of->plane->run_start, fs_wire_in(&of->runs, &field), &of->ran[1], err));
    }
    return FS_OK;
}

/* The instruction of a TPU's op, by its name. Its module is known by the number of its program, "(12)", or by time;
 * "?", which no module is called, if none ran then. Without a number and a line of programs, it may be any. */
static fs_status set_named(chunk *of, const event *from, fs_error *err)
{
    fs_text name = name_of(from->name);
    fs_text module = {of->text, 0};
    if (from->name->program != 0) {
        module.size = (size_t)snprintf(of->text, NAME_BYTES, "(%llu)", (unsigned long long)from->name->program);
    } else if (of->plane->runs.begin != NULL) {
        FS_TRY(take_runs(of, from->start, err));
        const event *ran = &of->ran[0];
        module = ran->name != NULL && from->start < ran->end ? ran->name->name : (fs_text){"?", 1};
    }
    of->cells[FS_CELL_INSTRUCTION] = (fs_cell){FS_IS_TEXT, 0, 0, name.bytes, name.size};
    of->cells[FS_CELL_MODULE] = (fs_cell){FS_IS_TEXT, 0, 0, module.bytes, module.size};
    return FS_OK;
}

static fs_status add(chunk *of, fs_row_kind kind, fs_error *err)
{
    return fs_rows_add(of->space->rows, of->part, kind, of->cells, err);
}

static fs_status add_mark(chunk *of, fs_error *err)
{
    set(of, FS_CELL_TYPE, NVTX_MARK);
    return add(of, FS_ROW_RANGE, err);
}

static fs_status add_work(chunk *of, const event *from, fs_error *err)
{
    fs_row_kind kind = FS_ROW_KERNEL;
    bool op = of->line->role == FS_XLINE_OPS; /* it has a name, also if it is a copy */
    if (from->name == NULL) return add_mark(of, err);
    if (knows(from, FS_XSTAT_ALLOCATION) || knows(from, FS_XSTAT_FREE) || knows(from, FS_XSTAT_RESIDENCY))
        return add_mark(of, err);
    if (knows(from, FS_XSTAT_COPY) || (op && is_copy(from->name))) kind = FS_ROW_COPY;
    else if (knows(from, FS_XSTAT_FILL) || knows(from, FS_XSTAT_FILL_OLD)) kind = FS_ROW_FILL;
    else if (knows(from, FS_XSTAT_REPLAY) && !knows(from, FS_XSTAT_KERNEL)) kind = FS_ROW_REPLAY;
    set_times(of, from);
    set_name(of, from);
    if (kind != FS_ROW_KERNEL && !op) drop(of, FS_CELL_NAME);
    if (kind == FS_ROW_COPY) set(of, FS_CELL_COPY_KIND, copy_kind(from));
    set_details(of, from->details);
    set_stat(of, FS_CELL_CORRELATION, from, FS_XSTAT_CORRELATION);
    set_stat(of, FS_CELL_GRAPH, from, kind == FS_ROW_REPLAY ? FS_XSTAT_REPLAY : FS_XSTAT_GRAPH);
    set_stat(of, FS_CELL_GRAPH_NODE, from, FS_XSTAT_GRAPH_NODE);
    if (op) FS_TRY(set_named(of, from, err));
    else set_instruction(of, from);
    return add(of, kind, err);
}

/* "train#5" */
static fs_status add_step(chunk *of, const event *from, fs_error *err)
{
    fs_text name = from->name != NULL ? from->name->name : (fs_text){"step", 4};
    int size = name.size < NAME_BYTES ? (int)name.size : NAME_BYTES;
    if (knows(from, FS_XSTAT_STEP))
        size = snprintf(of->text, NAME_BYTES, "%.*s#%lld", size, name.bytes,
                        (long long)from->values[FS_XSTAT_STEP].integer);
    else size = snprintf(of->text, NAME_BYTES, "step#%.*s", size, name.bytes); /* the name is its number */
    of->cells[FS_CELL_NAME] = (fs_cell){FS_IS_TEXT, 0, 0, of->text, size < NAME_BYTES ? (size_t)size : NAME_BYTES - 1};
    return add(of, FS_ROW_STEP, err);
}

static fs_status add_host(chunk *of, const event *from, fs_error *err)
{
    bool frame = from->name != NULL && from->name->frame;
    set_times(of, from);
    set_name(of, from);
    set_stat(of, FS_CELL_CORRELATION, from, FS_XSTAT_CORRELATION);
    if (of->cells[FS_CELL_CORRELATION].type == FS_IS_INTEGER) return add(of, FS_ROW_CALL, err);
    if (knows(from, FS_XSTAT_STEP)) return add_step(of, from, err);
    if (frame) return add(of, FS_ROW_FRAME, err);
    if (!from->lasts) return add_mark(of, err);
    bool ranged =
        of->line->role == FS_XLINE_THREAD || (from->name != NULL && fs_text_begins(from->name->name, "NVTX:"));
    return add(of, ranged ? FS_ROW_SPAN : FS_ROW_OVERHEAD, err);
}

/* Chunks ----------------------------------------------------------------------------------------------------------- */

/* Add the ops of a line that have none in them. The order of the events is that of their starts, parents first. */
static fs_status read_ops(chunk *of, fs_wire wire, fs_error *err)
{
    fs_wire_field field;
    event events[2];
    uint32_t round = 0, now = 0;
    bool waits = false;
    while (fs_wire_next(&wire, &field)) {
        if (field.number != LINE_EVENT) continue;
        FS_POLL(round++, err);
        FS_TRY(read_event(of, of->line->start, fs_wire_in(&wire, &field), &events[now], err));
        bool inside = waits && events[now].end <= events[1 - now].end && events[now].start < events[1 - now].end;
        if (waits && !inside) FS_TRY(add_work(of, &events[1 - now], err));
        waits = true;
        now = 1 - now;
    }
    if (waits) FS_TRY(add_work(of, &events[1 - now], err));
    return fs_wire_end(&wire, err);
}

static fs_status read_chunk(chunk *of, fs_wire wire, fs_error *err)
{
    fs_wire_field field;
    event one;
    uint32_t round = 0;
    of->runs = of->plane->runs;
    if (of->line->role == FS_XLINE_OPS) return read_ops(of, wire, err);
    while (fs_wire_next(&wire, &field)) {
        if (field.number != LINE_EVENT) continue;
        FS_POLL(round++, err);
        FS_TRY(read_event(of, of->line->start, fs_wire_in(&wire, &field), &one, err));
        if (of->line->role == FS_XLINE_STREAM) FS_TRY(add_work(of, &one, err));
        else if (of->line->role != FS_XLINE_STEPS) FS_TRY(add_host(of, &one, err));
        else if (of->plane->device == 0 && !of->space->stepped) {
            set_times(of, &one);
            FS_TRY(add_step(of, &one, err));
        }
    }
    return fs_wire_end(&wire, err);
}

/* The number of a stream, as in "Stream #14(Compute)"; else the id of the line. */
static int64_t stream_of(const fs_xline *line, int64_t core)
{
    const char *at = memchr(line->name.bytes, '#', line->name.size), *end = line->name.bytes + line->name.size;
    int64_t stream = 0;
    if (line->role == FS_XLINE_OPS) return line->id + core * CORE_STREAMS;
    if (line->role != FS_XLINE_STREAM || at == NULL) return line->id;
    at++;
    if (at == end || *at < '0' || *at > '9') return line->id;
    while (at < end && *at >= '0' && *at <= '9' && stream < INT32_MAX) stream = stream * 10 + (*at++ - '0');
    return stream;
}

static void read_chunks(void *context, int64_t begin, int64_t end)
{
    const reading *all = context;
    for (int64_t i = begin; i < end; i++) {
        const fs_xchunk *from = &all->chunks[i];
        const fs_xplane *plane = &all->space->planes[from->plane];
        chunk one = {
            .space = all->space, .plane = plane, .line = &plane->lines[from->line], .part = all->first + (uint32_t)i};
        set(&one, FS_CELL_SPACE, from->plane);
        set(&one, FS_CELL_PROCESS, all->space->process);
        if (plane->role == FS_XPLANE_DEVICE) {
            set(&one, FS_CELL_DEVICE, plane->device);
            set(&one, FS_CELL_STREAM, stream_of(one.line, plane->core));
        }
        set(&one, FS_CELL_THREAD, one.line->id);
        all->statuses[i] = read_chunk(&one, from->wire, &all->errors[i]);
    }
}

fs_status fs_xevents_read(fs_xspace *space, const fs_xchunk *chunks, uint32_t count, fs_error *err)
{
    fs_status status;
    reading all = {.space = space, .chunks = chunks};
    if (count == 0) return FS_OK;
    FS_TRY(fs_rows_open_parts(space->rows, count, &all.first, err));
    for (uint32_t plane = 0; plane < space->plane_count; plane++) {
        fs_xplane_role role = space->planes[plane].role;
        if (role == FS_XPLANE_DEVICE || role == FS_XPLANE_HOST) FS_TRY(add_names(space, all.first, plane, err));
    }
    FS_TRY(FS_NEW_ZEROED(&all.statuses, count, err));
    FS_TRY_GOTO(status, FS_NEW(&all.errors, count, err), done);
    fs_parallel_for(count, 1, read_chunks, &all);
    status = fs_interrupt_poll(err);
    for (uint32_t i = 0; status == FS_OK && i < count; i++) status = fs_status_of(all.statuses[i], &all.errors[i], err);
done:
    fs_free(all.statuses);
    fs_free(all.errors);
    return status;
}
