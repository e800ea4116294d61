/* The window of a piece, and the structure around the events. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "sources/kineto/piece.h"

#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "sources/kineto/arguments.h"
#include "store/accelerator.h"
#include "store/event.h"
#include "store/launch_name.h"

/* Conversion of one event of a trace to a record. */

/* Categories ------------------------------------------------------------------------------------------------------- */

/* Destinations of the records of a category. */
typedef enum { HOST, DEVICE, MEMORY, WINDOW, IGNORED } category_form;

typedef struct {
    const char *name;
    size_t size;
    category_form form;
    fs_event_kind kind;
    fs_accelerator accelerator; /* that alone has such events; CUDA: several have them */
} category;

#define CATEGORY_OF(name, form, kind, accelerator) \
    {name, sizeof name - 1, form, FS_EVENT_##kind, FS_ACCELERATOR_##accelerator}
#define CATEGORY(name, form, kind) CATEGORY_OF(name, form, kind, CUDA)

static const category categories[] = {
#include "sources/kineto/categories.def"
};
enum { CATEGORY_COUNT = sizeof categories / sizeof *categories };

static const category *find_category(const fs_scan_span *name)
{
    for (const category *row = categories; row < categories + CATEGORY_COUNT; row++)
        if (row->size == name->size && memcmp(row->name, name->text, row->size) == 0) return row;
    return NULL;
}

/* torch's internal markers and queries, which its tables omit (torch/autograd/profiler.py, _filter_name). */
static const char *const hidden[] = {
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
};

static bool is_hidden(const fs_scan_span *name)
{
    if (name->size < 13 || (name->text[0] != 'a' && name->text[0] != 'p')) return false;
    return FS_ANY(i, sizeof hidden / sizeof *hidden, fs_scan_is(name, hidden[i]));
}

bool fs_scan_is_communication(const fs_scan_span *name)
{
    return fs_scan_begins(name, "nccl:") || fs_scan_begins(name, "gloo:") || fs_scan_begins(name, "ucc:") ||
           fs_scan_begins(name, "mpi:") || fs_scan_begins(name, "xccl:");
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

/* A process or thread id: a number or a name. */
typedef struct {
    int64_t number;
    bool is_number;
    const category *tells; /* what events of a process of this name are, in exports without categories */
} identity;

/* The processes of torch.autograd.profiler's exports before torch 1.8.1. */
static const category *category_of_process(const fs_scan_span *name)
{
    bool host = fs_scan_is(name, "CPU functions"), device = fs_scan_is(name, "CUDA functions");
    const fs_scan_span meant = {device ? "kernel" : "cpu_op", 6, false};
    return host || device ? find_category(&meant) : NULL;
}

typedef struct {
    char phase; /* "ph"; 0: missing */
    const char *phase_end;
    const category *category;
    fs_scan_span category_name, name;
    identity process, thread;
    int64_t start, duration, cpu, frame; /* the last two: of a sampled stack */
    bool has_start, has_duration, has_cpu, has_frame;
    bool wrong_duration; /* it is no number, or cannot be */
    fs_event_arguments arguments;
    fs_counter_series series; /* valid if the phase is 'C' and series_read */
    bool series_read;
} event_text;

/* Whether a counter is one of the rates that flopscope computes when it writes a trace. */
static bool is_achieved(const event_text *event)
{
    return fs_scan_is(&event->category_name, "flopscope");
}

static fs_scan_status read_identity(fs_scan *scan, identity *to)
{
    fs_scan_span text;
    if (*scan->at != '"') return fs_scan_integer(scan, &to->number, &to->is_number);
    fs_scan_status status = fs_scan_string(scan, &text);
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; status == FS_SCAN_GOOD && i < text.size; i++)
        hash = (hash ^ (unsigned char)text.text[i]) * 1099511628211u;
    to->number = (int64_t)(hash >> 1);
    to->is_number = false;
    if (status == FS_SCAN_GOOD) to->tells = category_of_process(&text);
    return status;
}

static fs_scan_status read_text(fs_scan *scan, fs_scan_span *span)
{
    return *scan->at == '"' ? fs_scan_string(scan, span) : fs_scan_skip(scan);
}

/* Dispatch on the first letter and the size; only two keys have four letters. */
static fs_scan_status read_event_member(fs_scan *scan, const fs_scan_span *key, event_text *event)
{
    fs_scan_span text = {"", 0, false};
    fs_scan_status status;
    switch (key->size) {
    case 2:
        if (key->text[0] == 'p' && key->text[1] == 'h') {
            status = read_text(scan, &text);
            if (text.size == 1) event->phase = text.text[0];
            event->phase_end = scan->at;
            return status;
        }
        if (key->text[0] == 't' && key->text[1] == 's')
            return fs_scan_microseconds(scan, &event->start, &event->has_start);
        if (key->text[0] == 's' && key->text[1] == 'f') return fs_scan_integer(scan, &event->frame, &event->has_frame);
        break;
    case 3:
        if (fs_scan_is(key, "cat")) {
            status = read_text(scan, &event->category_name);
            if (status == FS_SCAN_GOOD) event->category = find_category(&event->category_name);
            return status;
        }
        if (fs_scan_is(key, "pid")) return read_identity(scan, &event->process);
        if (fs_scan_is(key, "tid")) return read_identity(scan, &event->thread);
        if (fs_scan_is(key, "dur")) {
            status = fs_scan_microseconds(scan, &event->duration, &event->has_duration);
            event->wrong_duration = !event->has_duration;
            return status;
        }
        break;
    case 4:
        if (fs_scan_is(key, "name")) return read_text(scan, &event->name);
        if (fs_scan_is(key, "args") && event->phase == 'C') {
            event->series_read = true;
            return fs_counters_read(scan, &event->series);
        }
        if (fs_scan_is(key, "tdur")) return fs_scan_microseconds(scan, &event->cpu, &event->has_cpu);
        if (fs_scan_is(key, "args")) return fs_arguments_read(scan, &event->arguments);
        break;
    default:
        break;
    }
    return fs_scan_skip(scan);
}

/* Phases without relevant data: flows, metadata. */
static bool is_ignored(char phase)
{
    return phase != 0 && phase != 'X' && phase != 'i' && phase != 'I' && phase != 'C' && phase != 'P';
}

static fs_scan_status read_event(fs_scan *scan, event_text *event)
{
    scan->at++;
    fs_scan_span key = {NULL, 0, false};
    fs_scan_status status;
    while ((status = fs_scan_member(scan, &key)) == FS_SCAN_GOOD && key.text != NULL) {
        status = read_event_member(scan, &key, event);
        if (status != FS_SCAN_GOOD) break;
        if (is_ignored(event->phase)) return fs_scan_leave(scan);
    }
    return status;
}

/* Records ---------------------------------------------------------------------------------------------------------- */

static fs_status find_lane(fs_piece *piece, int64_t device, int64_t thread, const event_text *event, uint32_t *lane,
                           fs_error *err)
{
    fs_record_lane key = {device, thread, event->process.number}, *last = &piece->last_lane_key;
    if (piece->last_lane == FS_NONE || memcmp(&key, last, sizeof key) != 0) {
        FS_TRY(fs_intern_bytes(&piece->lanes, &key, sizeof key, &piece->last_lane, err));
        *last = key;
    }
    *lane = piece->last_lane;
    return FS_OK;
}

static int64_t number(const event_text *event, int which, int64_t missing)
{
    return fs_argument_known(&event->arguments, which) ? event->arguments.numbers[which] : missing;
}

/* Return a number of bytes, negative for freed memory; an impossible one is unknown, which the store represents by
 * 0. */
static int64_t bytes_of(const event_text *event, int which)
{
    int64_t bytes = number(event, which, 0);
    return bytes < -FS_MOST_AMOUNT || bytes > FS_MOST_AMOUNT ? 0 : bytes;
}

/* The flags of an op that trace_arguments.c writes as "graph replay". */
static uint8_t graph_flags(int64_t written)
{
    if (written == FS_EVENT_CAPTURED) return FS_EVENT_CAPTURED;
    return written == 0 ? 0 : FS_EVENT_REPLAYED | (written == FS_EVENT_MARK ? FS_EVENT_MARK : 0);
}

/* Return whether a record is the mark of a step; old versions of torch wrote it as an op. */
static bool marks_step(const fs_record *record, const fs_scan_span *name)
{
    if (record->kind != FS_EVENT_RANGE && record->kind != FS_EVENT_OP) return false;
    return fs_scan_begins(name, "ProfilerStep#") || fs_scan_is(name, "ProfilerStep*");
}

static fs_status keep_host(fs_piece *piece, const event_text *event, fs_record *record, fs_error *err)
{
    if (marks_step(record, &event->name)) record->kind = FS_EVENT_STEP;
    record->graph = graph_flags(number(event, FS_ARG_REPLAYED, 0));
    record->communication = record->kind == FS_EVENT_RANGE && fs_scan_is_communication(&event->name);
    FS_TRY(find_lane(piece, -1, number(event, FS_ARG_THREAD, event->thread.number), event, &record->lane, err));
    if (record->kind == FS_EVENT_OP) {
        if (number(event, FS_ARG_LAUNCH, FS_LAUNCH_NONE) != FS_LAUNCH_NONE)
            return fs_arguments_stated(piece, &event->arguments, &record->signature, err);
        record->node = fs_record_node(number(event, FS_ARG_NODE, -1), number(event, FS_ARG_FORWARD_THREAD, 0));
        return fs_arguments_call(piece, &event->arguments, &record->signature, err);
    }
    if (record->kind == FS_EVENT_RUNTIME) {
        if (fs_scan_begins(&event->name, "hip")) piece->accelerators |= 1U << FS_ACCELERATOR_HIP;
        return fs_arguments_kernel(piece, &event->arguments, &record->signature, err);
    }
    if (fs_event_is_annotation(record->kind))
        return fs_arguments_stated(piece, &event->arguments, &record->signature, err);
    return FS_OK;
}

static fs_status keep_device(fs_piece *piece, const event_text *event, fs_record *record, fs_error *err)
{
    int64_t place = event->process.is_number ? event->process.number : 0;
    int64_t device = number(event, FS_ARG_DEVICE, place), stream = number(event, FS_ARG_STREAM, event->thread.number);
    if (device < 0) device = 0; /* Kineto writes -1 for waits on all streams of a device */
    /* flopscope places waits for an unrecorded device on their thread. */
    if (record->kind == FS_EVENT_SYNC && device >= FS_DEVICE_LIMIT)
        return find_lane(piece, -1, event->thread.number, event, &record->lane, err);
    if (device >= FS_DEVICE_LIMIT) {
        piece->report.too_many++;
        piece->last->count--;
        return FS_OK;
    }
    record->device = (int8_t)device;
    if (record->kind == FS_EVENT_SYNC) record->device = -1;
    if (marks_step(record, &event->name)) record->kind = FS_EVENT_STEP;
    record->bytes = bytes_of(event, FS_ARG_BYTES);
    FS_TRY(find_lane(piece, device, stream, event, &record->lane, err));
    if (!fs_event_kind_on_device[record->kind] || record->kind == FS_EVENT_INTERVAL) return FS_OK;
    const fs_scan_span *mark = &event->arguments.texts[FS_ARG_MARK];
    record->marked = mark->size > 0 && number(event, FS_ARG_GRAPH_NODE, 0) != 0;
    piece->marked = piece->marked || record->marked;
    if (record->marked) FS_TRY(fs_intern_bytes(&piece->names, mark->text, mark->size, &record->mark, err));
    return fs_arguments_launch(piece, &event->arguments, &record->signature, err);
}

/* Number of the CPU in c10::DeviceType. */
enum { CPU_TYPE = 0 };

static fs_status keep_memory(fs_piece *piece, const event_text *event, fs_record *record, fs_error *err)
{
    int64_t type = number(event, FS_ARG_DEVICE_TYPE, CPU_TYPE);
    bool on_cpu = type == CPU_TYPE;
    piece->accelerators |= fs_accelerators_of_type(type);
    int64_t device = number(event, FS_ARG_DEVICE_ID, 0);
    if (device < 0) device = 0;
    record->bytes = bytes_of(event, FS_ARG_MEMORY_BYTES);
    record->device = (int8_t)(on_cpu ? -1 : device < FS_DEVICE_LIMIT ? device : FS_DEVICE_LIMIT - 1);
    record->name = FS_NONE;
    FS_TRY(fs_arguments_memory(piece, &event->arguments, &record->signature, err));
    return find_lane(piece, -1, event->thread.number, event, &record->lane, err);
}

static void extend_window(fs_piece *piece, const event_text *event)
{
    if (!event->has_start || !event->has_duration) return;
    int64_t end = event->start + event->duration;
    if (piece->window_begin == FS_MISSING || event->start < piece->window_begin) piece->window_begin = event->start;
    if (piece->window_end == FS_MISSING || end > piece->window_end) piece->window_end = end;
}

static void count_unknown(fs_piece *piece, const fs_scan_span *name)
{
    fs_kineto_report *report = &piece->report;
    size_t size = name->size < sizeof report->first_unknown ? name->size : sizeof report->first_unknown - 1;
    if (report->unknown++ > 0) return;
    if (size > 0) memcpy(report->first_unknown, name->text, size);
    report->first_unknown[size] = 0;
}

/* Discard times so far from 0 that sums of them might overflow, and negative durations. */
static void check_times(event_text *event)
{
    const int64_t limit = INT64_MAX / 4;
    if (event->start <= -limit || event->start >= limit) event->has_start = false;
    if (event->duration < 0 || event->duration >= limit) event->wrong_duration = true;
    if (event->wrong_duration) event->has_duration = false;
}

static fs_status keep(fs_piece *piece, const event_text *event, fs_error *err)
{
    typedef fs_status (*keeper)(fs_piece *, const event_text *, fs_record *, fs_error *);
    static const keeper keepers[] = {[HOST] = keep_host, [DEVICE] = keep_device, [MEMORY] = keep_memory};
    const category *found = event->category_name.size > 0 ? event->category : event->process.tells;
    bool instant = event->phase != 'X';
    if (found != NULL) {
        piece->report.understood++;
        piece->accelerators |= 1U << found->accelerator;
    }
    if (found != NULL && found->form == WINDOW) extend_window(piece, event);
    if (found == NULL && !instant && event->phase != 0) count_unknown(piece, &event->category_name);
    if (found == NULL || found->form == WINDOW || found->form == IGNORED) return FS_OK;
    if (instant != (found->form == MEMORY) || (instant && !fs_scan_is(&event->name, "[memory]"))) return FS_OK;
    if (found->form == HOST && is_hidden(&event->name)) return FS_OK;
    /* CUPTI and ROCm record 0 for times that were lost. */
    bool lost = found->form == DEVICE && event->start <= 0 && event->duration == 0 && !event->wrong_duration;
    if (!event->has_start || lost) {
        piece->report.without_time++;
        return FS_OK;
    }
    piece->report.without_duration += event->wrong_duration;
    fs_record *record = NULL;
    FS_TRY(fs_piece_add_record(piece, &record, err));
    int64_t correlation = number(event, FS_ARG_CORRELATION, -1); /* a counter: its low bits are unique enough */
    *record = (fs_record){
        .start = event->start,
        .duration = event->has_duration ? event->duration : FS_MISSING,
        .external = number(event, FS_ARG_EXTERNAL, number(event, FS_ARG_EXTERNAL_OLD, -1)),
        .signature = FS_NONE,
        .correlation = (uint32_t)correlation > 0 && correlation > 0 ? (uint32_t)correlation : FS_NONE,
        .device = -1,
        .kind = (uint8_t)found->kind,
    };
    fs_given_work launched;
    size_t own = found->kind == FS_EVENT_OP ? fs_launch_name_parse(event->name.text, event->name.size, &launched) : 0;
    size_t size = own > 0 ? own : event->name.size;
    if (found->form != MEMORY) FS_TRY(fs_intern_bytes(&piece->names, event->name.text, size, &record->name, err));
    FS_TRY(keepers[found->form](piece, event, record, err));
    return own > 0 ? fs_arguments_given(piece, &launched, &record->signature, err) : FS_OK;
}

static fs_status keep_stack(fs_piece *piece, const event_text *event, fs_error *err)
{
    if (!event->has_start || !event->has_duration || !event->has_frame) return FS_OK;
    int64_t cpu = !event->has_cpu || event->cpu < 0 ? FS_MISSING
                  : event->cpu < event->duration    ? event->cpu
                                                    : event->duration;
    const fs_stack_point point = {event->start,          event->duration,      cpu,
                                  event->process.number, event->thread.number, event->frame};
    return FS_LIST_ADD(&piece->stacks.points, &piece->stacks.count, &piece->stacks.capacity, 256, err, point);
}

/* Field by field, which takes a tenth of the time of clearing the whole struct. */
static void begin_event(event_text *event)
{
    event->phase = 0;
    event->category = NULL;
    fs_scan_no_text(&event->category_name);
    fs_scan_no_text(&event->name);
    event->process.number = event->thread.number = 0;
    event->process.is_number = event->thread.is_number = false;
    event->process.tells = NULL;
    event->start = event->duration = 0;
    event->has_start = event->has_duration = event->series_read = event->has_cpu = event->has_frame = false;
    event->wrong_duration = false;
    fs_arguments_begin(&event->arguments);
}

/* Errors ----------------------------------------------------------------------------------------------------------- */

static fs_status fail_at(const fs_piece *piece, const fs_scan *scan, fs_error *err)
{
    char found[24];
    int64_t byte = piece->offset + (int64_t)(scan->at - piece->text);
    unsigned char c = (unsigned char)*scan->at;
    snprintf(found, sizeof found, c > ' ' && c < 0x7f ? "'%c'" : "the byte 0x%02x", c);
    return fs_fail(err, FS_VALUE_ERROR, "byte %lld: expected %s, found %s", (long long)byte, scan->expected, found);
}

/* Mending ---------------------------------------------------------------------------------------------------------- */

/* Return FS_SCAN_GOOD if what follows a value can follow it: the end of the list, or a comma and one of `next`. */
static fs_scan_status followed(const fs_piece *piece, fs_scan *scan, char end, const char *next, const char *expected)
{
    fs_scan_space(scan);
    scan->expected = expected;
    fs_scan behind = *scan;
    if (*behind.at == end) return FS_SCAN_GOOD;
    if (*behind.at == ',') behind.at++;
    else if (*next == '"' && behind.at < behind.end) return FS_SCAN_BAD;
    fs_scan_space(&behind);
    if (behind.at >= behind.end) return piece->whole ? FS_SCAN_GOOD : FS_SCAN_MORE;
    return strchr(next, *behind.at) != NULL ? FS_SCAN_GOOD : FS_SCAN_BAD;
}

/* Return whether an event that is ignored, and was skipped from its phase to a bracket, ends with a later event. */
static bool is_swallowing(const event_text *event, const fs_scan *scan)
{
    const char *from = event->phase_end;
    return is_ignored(event->phase) && memmem(from, (size_t)(scan->at - from), "\"ph\"", 4) != NULL;
}

/* Return whether a value that began there may have its end in text that follows. */
static bool may_grow(const fs_piece *piece, const char *began, const fs_scan *scan)
{
    return !piece->whole && scan->end - began < FS_MEND_LONGEST;
}

/* Mend a value, an event's or a member's, of which `scan` is where it goes wrong. On FS_SCAN_GOOD piece->mended is the
 * copy, from the key on, and the scan is behind the value. */
static fs_scan_status mend(fs_piece *piece, const char *key, const char *value, fs_scan *scan)
{
    fs_scan whole = {.at = value, .end = scan->end};
    fs_scan_status status = fs_mend(&whole, key, piece->whole, &piece->mended);
    if (status == FS_SCAN_MORE && piece->whole) return FS_SCAN_BAD;
    if (status == FS_SCAN_GOOD) scan->at = whole.at;
    return status;
}

/* Read an event, or else a copy of it that is mended. */
static fs_scan_status read_or_mend(fs_piece *piece, fs_scan *scan, event_text *event)
{
    const char *began = scan->at;
    begin_event(event);
    fs_scan_status status = read_event(scan, event);
    if (status == FS_SCAN_MORE && may_grow(piece, began, scan)) return status;
    if (status == FS_SCAN_GOOD && !is_swallowing(event, scan)) {
        status = followed(piece, scan, ']', ",{]", "an event, which begins with '{'");
        if (status != FS_SCAN_BAD) return status;
    }
    const char *wrong = scan->at;
    fs_scan_status mended = mend(piece, began, began, scan);
    if (mended != FS_SCAN_GOOD) return mended == FS_SCAN_MORE ? mended : status;
    fs_scan copy = {.at = piece->mended.text, .end = piece->mended.text + piece->mended.size};
    begin_event(event);
    mended = read_event(&copy, event);
    piece->report.mended += mended == FS_SCAN_GOOD;
    if (mended != FS_SCAN_GOOD) scan->at = wrong;
    return mended;
}

/* Read the event at scan->at, after its '{'. FS_SCAN_MORE leaves the piece unchanged except for ids. A *status other
 * than FS_OK is FS_OUT_OF_MEMORY. */
static fs_scan_status piece_event(fs_piece *piece, fs_scan *scan, fs_status *status, fs_error *err)
{
    event_text event;
    fs_scan_status scanned = read_or_mend(piece, scan, &event);
    *status = FS_OK;
    if (scanned == FS_SCAN_GOOD && event.phase == 'M') piece->report.metadata++;
    if (scanned != FS_SCAN_GOOD || is_ignored(event.phase)) return scanned;
    check_times(&event);
    if (event.phase == 'P') {
        *status = keep_stack(piece, &event, err);
    } else if (event.phase != 'C') {
        *status = keep(piece, &event, err);
    } else if (event.series_read && event.has_start && event.process.is_number && !is_achieved(&event)) {
        int64_t device = event.process.number;
        *status = fs_counters_keep(&piece->counters, &event.name, device, event.start, &event.series, err);
    }
    return scanned;
}

/* Limits for one event or member and for the windows of all threads together, so that an endless text cannot exhaust
 * memory. An event larger than the second limit is read again by one thread alone. */
static const size_t most_element_bytes = (size_t)64 << 20, most_guessed_bytes = (size_t)4 << 20;
/* Members besides the events are kept up to this many bytes in total. */
static const size_t most_head_bytes = (size_t)16 << 20;

void fs_piece_init(fs_piece *piece, fs_record_pool *pool, int64_t offset, int64_t until, fs_piece_state state)
{
    memset(piece, 0, sizeof *piece);
    piece->pool = pool;
    piece->offset = offset;
    piece->until = until;
    piece->state = state;
    piece->last_lane = FS_NONE;
    piece->window_begin = piece->window_end = FS_MISSING;
}

void fs_piece_clear(fs_piece *piece)
{
    fs_piece_drop_records(piece);
    fs_free(piece->text);
    fs_free(piece->scratch);
    fs_free(piece->mended.text);
    fs_free(piece->call_signatures);
    fs_free(piece->states);
    fs_torch_builder_clear(&piece->builder);
    fs_counters_clear(&piece->counters);
    fs_stack_points_clear(&piece->stacks);
    fs_intern *tables[] = {&piece->names, &piece->calls, &piece->signatures, &piece->lanes, &piece->head};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) fs_intern_clear(tables[i]);
    piece->text = piece->scratch = piece->mended.text = NULL;
    piece->call_signatures = NULL;
    piece->states = NULL;
}

/* The window ------------------------------------------------------------------------------------------------------- */

static size_t most_bytes(const fs_piece *piece)
{
    return piece->guessed ? most_guessed_bytes : most_element_bytes;
}

/* Release the window; reading can continue at the same byte. */
static void drop_window(fs_piece *piece)
{
    piece->offset += (int64_t)piece->done;
    fs_free(piece->text);
    piece->text = NULL;
    piece->size = piece->capacity = piece->done = 0;
}

fs_status fs_piece_room(fs_piece *piece, size_t size, fs_error *err)
{
    size_t left = piece->size - piece->done;
    if (piece->done > 0) {
        memmove(piece->text, piece->text + piece->done, left);
        piece->offset += (int64_t)piece->done;
        piece->size = left;
        piece->done = 0;
    }
    size_t needed = left + size + FS_SCAN_PADDING;
    if (needed <= piece->capacity) return FS_OK;
    size_t capacity = needed > 2 * piece->capacity ? needed : 2 * piece->capacity;
    char *text = fs_realloc(piece->text, capacity);
    if (text == NULL) return fs_no_memory(err);
    piece->text = text;
    piece->capacity = capacity;
    return FS_OK;
}

/* Structure -------------------------------------------------------------------------------------------------------- */

static fs_scan_status read_start(fs_piece *piece, fs_scan *scan)
{
    static const char mark[] = "\xef\xbb\xbf"; /* the byte order mark of UTF-8, which some editors write */
    if (scan->end - scan->at < 3 && *scan->at == *mark) return FS_SCAN_MORE;
    if (memcmp(scan->at, mark, 3) == 0) scan->at += 3;
    fs_scan_space(scan);
    if (*scan->at == '[') {
        piece->top_array = piece->seen_events = true;
        piece->state = FS_PIECE_EVENTS;
    } else if (*scan->at == '{') {
        piece->state = FS_PIECE_MEMBERS;
    } else {
        return fs_scan_bad(scan, "a trace, which begins with '{' or '['");
    }
    scan->at++;
    return FS_SCAN_GOOD;
}

static fs_status keep_member(fs_piece *piece, const char *from, const char *to, fs_error *err)
{
    uint32_t id;
    size_t size = (size_t)(to - from);
    if (piece->head_bytes + size > most_head_bytes) return FS_OK;
    piece->head_bytes += size;
    return fs_intern_bytes(&piece->head, from, size, &id, err);
}

static fs_scan_status read_member(fs_piece *piece, fs_scan *scan, fs_status *status, fs_error *err)
{
    static const char events[] = "traceEvents";
    fs_scan_span key;
    fs_scan_space(scan);
    if (*scan->at == ',') {
        scan->at++;
        return FS_SCAN_GOOD;
    }
    if (*scan->at == '}') {
        scan->at++;
        piece->state = FS_PIECE_END;
        return FS_SCAN_GOOD;
    }
    const char *began = scan->at;
    if (*scan->at != '"') return fs_scan_bad(scan, "a member's key or '}'");
    fs_scan_status scanned = fs_scan_string(scan, &key);
    if (scanned != FS_SCAN_GOOD) return scanned;
    fs_scan_space(scan);
    if (*scan->at != ':') return fs_scan_bad(scan, "':'");
    scan->at++;
    fs_scan_space(scan);
    if (key.size == sizeof events - 1 && memcmp(key.text, events, key.size) == 0) {
        if (*scan->at != '[') return fs_scan_bad(scan, "'[' and the events");
        scan->at++;
        piece->seen_events = true;
        piece->state = FS_PIECE_EVENTS;
        return FS_SCAN_GOOD;
    }
    const char *value = scan->at;
    scanned = fs_scan_skip(scan);
    const char *end = scan->at;
    if (scanned == FS_SCAN_GOOD) scanned = followed(piece, scan, '}', "\"", "a member's key or '}'");
    if (scanned == FS_SCAN_GOOD) *status = keep_member(piece, began, end, err);
    if (scanned == FS_SCAN_GOOD || (scanned == FS_SCAN_MORE && may_grow(piece, value, scan))) return scanned;
    fs_scan_status mended = mend(piece, began, value, scan);
    if (mended == FS_SCAN_BAD) return scanned;
    const fs_mended *copy = &piece->mended;
    piece->report.mended += mended == FS_SCAN_GOOD;
    if (mended == FS_SCAN_GOOD) *status = keep_member(piece, copy->text, copy->text + copy->size, err);
    return mended;
}

static fs_scan_status read_element(fs_piece *piece, fs_scan *scan, fs_status *status, fs_error *err)
{
    fs_scan_space(scan);
    while (*scan->at == ',') {
        scan->at++;
        fs_scan_space(scan);
    }
    piece->done = (size_t)(scan->at - piece->text);
    if (*scan->at == ']') {
        scan->at++;
        piece->state = piece->top_array ? FS_PIECE_END : FS_PIECE_MEMBERS;
        return FS_SCAN_GOOD;
    }
    if (*scan->at != '{') return fs_scan_bad(scan, "an event, which begins with '{'");
    if (piece->offset + (int64_t)piece->done >= piece->until) {
        piece->stopped = true;
        return FS_SCAN_GOOD;
    }
    fs_scan_status scanned = piece_event(piece, scan, status, err);
    if (scanned == FS_SCAN_GOOD) piece->report.events++;
    return scanned;
}

static fs_scan_status read_step(fs_piece *piece, fs_scan *scan, fs_status *status, fs_error *err)
{
    switch (piece->state) {
    case FS_PIECE_START:
        return read_start(piece, scan);
    case FS_PIECE_MEMBERS:
        return read_member(piece, scan, status, err);
    case FS_PIECE_EVENTS:
        return read_element(piece, scan, status, err);
    case FS_PIECE_END:
        fs_scan_space(scan);
        return fs_scan_bad(scan, "the end of the file");
    }
    return FS_SCAN_BAD;
}

fs_status fs_piece_read(fs_piece *piece, size_t size, fs_error *err)
{
    piece->size += size;
    if (piece->text == NULL) return FS_OK;
    memset(piece->text + piece->size, 0, FS_SCAN_PADDING);
    fs_scan scan = {.at = piece->text + piece->done, .end = piece->text + piece->size};
    fs_status status = FS_OK;
    fs_scan_status scanned = FS_SCAN_GOOD;
    while (!piece->stopped && scan.at < scan.end) {
        scanned = read_step(piece, &scan, &status, err);
        if (status != FS_OK) return status;
        if (scanned != FS_SCAN_GOOD) break;
        piece->done = (size_t)(scan.at - piece->text);
    }
    if (scanned == FS_SCAN_BAD) return fail_at(piece, &scan, err);
    if (piece->size - piece->done > most_bytes(piece)) {
        return fs_fail(err, FS_VALUE_ERROR, "byte %lld: the element that begins here exceeds the limit of %zu MB",
                       (long long)fs_piece_at(piece), most_bytes(piece) >> 20);
    }
    return FS_OK;
}

/* Parts of a text -------------------------------------------------------------------------------------------------- */

enum { WINDOW_BYTES = FS_BLOCK(1 << 17, 1 << 8) };

/* State of the search for the boundary between two events: "}", ",", "{" and a quote, with optional white space. */
typedef enum { NOTHING, CLOSED, COMMA, OPENED, FOUND } seam;

typedef struct {
    seam state;
    int64_t event; /* the byte of the last "{" */
} seeker;

static seam next_state(seam state, char c)
{
    static const char expected[] = {[NOTHING] = '}', [CLOSED] = ',', [COMMA] = '{', [OPENED] = '"'};
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') return state;
    if (c == expected[state]) return state + 1;
    return c == '}' ? CLOSED : NOTHING;
}

/* Scan `size` bytes, the first of which is byte `offset` of the text. */
static void scan_bytes(seeker *found, const char *text, size_t size, int64_t offset)
{
    for (const char *at = text, *end = text + size; at < end && found->state != FOUND; at++) {
        if (found->state == NOTHING && (at = memchr(at, '}', (size_t)(end - at))) == NULL) return;
        seam before = found->state;
        found->state = next_state(before, *at);
        if (before == COMMA && found->state == OPENED) found->event = offset + (at - text);
    }
}

/* Fill the window; *count: the number of bytes added, 0 at the end of the text. */
static fs_status fill(fs_piece *piece, fs_kineto_read read, void *context, int64_t *count, fs_error *err)
{
    size_t left = piece->size - piece->done, size = left > WINDOW_BYTES / 2 ? left : WINDOW_BYTES - left;
    size_t most = most_bytes(piece) + WINDOW_BYTES;
    if (size > most - left) size = most - left;
    FS_TRY(fs_piece_room(piece, size, err));
    *count = read(context, piece->offset + (int64_t)piece->size, piece->text + piece->size, size, err);
    return *count < 0 ? FS_RUNTIME_ERROR : FS_OK;
}

/* Begin where an event seems to begin; *start is -1 if there is no such place in the piece. */
static fs_status seek(fs_piece *piece, fs_kineto_read read, void *context, int64_t *start, fs_error *err)
{
    seeker found = {NOTHING, -1};
    int64_t count = 1;
    *start = -1;
    while (found.state != FOUND && count > 0) {
        int64_t next = piece->offset + (int64_t)piece->size;
        if ((found.state == OPENED ? found.event : next) >= piece->until) return FS_OK;
        piece->done = piece->size; /* none of it is needed any more */
        FS_TRY(fill(piece, read, context, &count, err));
        scan_bytes(&found, piece->text + piece->size, (size_t)count, next);
        piece->size += (size_t)count;
    }
    if (found.state != FOUND || found.event >= piece->until) return FS_OK;
    *start = found.event;
    if (*start >= piece->offset) {
        piece->done = (size_t)(*start - piece->offset);
    } else { /* it is before the window */
        piece->offset = *start;
        piece->size = piece->done = 0;
    }
    return fs_piece_read(piece, 0, err);
}

fs_status fs_piece_scan(fs_piece *piece, fs_kineto_read read, void *context, bool exact, int64_t *start, fs_error *err)
{
    int64_t count = 1;
    fs_status status = FS_OK;
    *start = piece->offset;
    piece->guessed = !exact;
    if (!exact) status = seek(piece, read, context, start, err);
    while (status == FS_OK && *start >= 0 && !piece->stopped && count > 0) {
        FS_TRY(fs_interrupt_poll(err));
        status = fill(piece, read, context, &count, err);
        if (status == FS_OK) status = fs_piece_read(piece, (size_t)count, err);
    }
    if (piece->stopped || status != FS_OK || *start < 0) drop_window(piece); /* the rest belongs to the next piece */
    return status;
}
