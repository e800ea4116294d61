/* Everything is surveyed before the first byte is written: times, rows, names and work. So the head is complete, and
 * each event is written once, in one pass, from texts that were made for its name, its lane and its signature. Device
 * annotations come in a pass of their own before the others, for viewers nest later slices of one start in earlier
 * ones. */
#include "views/chrome_trace.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "store/event.h"
#include "views/trace.h"

/* Sort indices of processes, as in Kineto: GPUs below the host, then overhead, then spans. */
enum { GPUS_FROM = 5000000, OVERHEAD_AT = 0x100000a, SPANS_AT = 0x20000000, PIDS_OF_LINUX = 1 << 22 };

static void put_text(fs_json *out, const char *text)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): no caller passes NULL */
    fs_json_put(out, text, strlen(text));
}

/* The head --------------------------------------------------------------------------------------------------------- */

static void put_device(fs_json *out, int device, const fs_device_facts *facts)
{
    fs_json_members members = {out, "{"};
    FS_JSON_KEY(&members, "id");
    fs_json_integer(out, device);
    FS_JSON_KEY(&members, "name");
    fs_json_string(out, facts->name);
#define PUT_FACT(name, trace_name, prose)   \
    if (facts->name >= 0) {                 \
        FS_JSON_KEY(&members, #trace_name); \
        fs_json_integer(out, facts->name);  \
    }
    FS_DEVICE_FACT_LIST(PUT_FACT)
#undef PUT_FACT
    FS_JSON_LITERAL(out, "}");
}

static void put_devices(fs_trace *trace)
{
    const char *before = "";
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        fs_device_facts facts = fs_store_device(trace->store, device);
        if (memcmp(&facts, &fs_device_facts_missing, sizeof facts) == 0) continue;
        put_text(&trace->out, before);
        put_device(&trace->out, device, &facts);
        before = ", ";
    }
}

static void put_timings(fs_trace *trace)
{
    const char *before = "";
    for (int timing = 0; timing < FS_TIMING_COUNT; timing++) {
        if (!trace->timings[timing]) continue;
        put_text(&trace->out, before);
        fs_json_string(&trace->out, fs_timing_names[timing]);
        before = ", ";
    }
}

static fs_status put_head(fs_trace *trace, fs_error *err)
{
    fs_json *out = &trace->out;
    FS_JSON_LITERAL(out, "{\n\"schemaVersion\": 1,\n\"deviceProperties\": [");
    put_devices(trace);
    FS_JSON_LITERAL(out, "],\n");
    if (*trace->options->members != 0) {
        put_text(out, trace->options->members);
        FS_JSON_LITERAL(out, ",\n");
    }
    FS_TRY(fs_trace_stack_frames(out, trace->store, err));
    FS_JSON_LITERAL(out, "\"flopscope\": {\"version\": ");
    fs_json_string(out, trace->options->version);
    FS_JSON_LITERAL(out, ", \"timing\": [");
    put_timings(trace);
    FS_JSON_LITERAL(out, "], \"dropped\": ");
    fs_json_integer(out, trace->options->dropped);
    FS_JSON_LITERAL(out, ", \"without a time\": ");
    fs_json_integer(out, trace->left_out);
    FS_JSON_LITERAL(out, "},\n\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": ");
    fs_json_integer(out, (int64_t)trace->base);
    FS_JSON_LITERAL(out, ",\n\"traceEvents\": [\n");
    return FS_OK;
}

/* Metadata --------------------------------------------------------------------------------------------------------- */

/* Begin a metadata event, up to the value of its only argument. */
static void begin_fact(fs_trace *trace, const char *name, const char *key, const fs_track *track)
{
    fs_json *out = &trace->out;
    FS_JSON_LITERAL(out, "{\"ph\": \"M\", \"name\": \"");
    put_text(out, name);
    FS_JSON_LITERAL(out, "\", \"ts\": ");
    fs_json_time(out, fs_trace_time(trace, trace->first));
    FS_JSON_LITERAL(out, ", \"pid\": ");
    fs_json_integer(out, track->process);
    FS_JSON_LITERAL(out, ", \"tid\": ");
    fs_json_integer(out, (int64_t)track->thread);
    FS_JSON_LITERAL(out, ", \"args\": {\"");
    put_text(out, key);
    FS_JSON_LITERAL(out, "\": ");
}

static void end_fact(fs_trace *trace)
{
    FS_JSON_LITERAL(&trace->out, "}},\n");
}

static void put_process(fs_trace *trace, int64_t process, const char *name, int64_t sort_index)
{
    fs_track track = {.process = process};
    begin_fact(trace, "process_name", "name", &track);
    fs_json_string(&trace->out, name);
    end_fact(trace);
    begin_fact(trace, "process_sort_index", "sort_index", &track);
    fs_json_integer(&trace->out, sort_index);
    end_fact(trace);
}

/* `index` (negative: none) is inserted into the text. */
static void put_label(fs_trace *trace, int64_t process, const char *text, int index)
{
    begin_fact(trace, "process_labels", "labels", &(fs_track){.process = process});
    FS_JSON_LITERAL(&trace->out, "\"");
    put_text(&trace->out, text);
    if (index >= 0) fs_json_integer(&trace->out, index);
    FS_JSON_LITERAL(&trace->out, "\"");
    end_fact(trace);
}

/* `id`: the thread or stream of the track. number: of a further row; 0: the track itself. */
static void put_thread(fs_trace *trace, const fs_track *track, uint64_t id, uint32_t number)
{
    begin_fact(trace, "thread_name", "name", track);
    if (track->on_device) FS_JSON_LITERAL(&trace->out, "\"stream ");
    else FS_JSON_LITERAL(&trace->out, "\"thread ");
    fs_json_integer(&trace->out, (int64_t)id);
    if (number > 0) {
        FS_JSON_LITERAL(&trace->out, " (");
        fs_json_integer(&trace->out, number);
        FS_JSON_LITERAL(&trace->out, ")");
    }
    FS_JSON_LITERAL(&trace->out, "\"");
    end_fact(trace);
    begin_fact(trace, "thread_sort_index", "sort_index", track);
    fs_json_integer(&trace->out, (int64_t)id);
    end_fact(trace);
}

static void put_facts(fs_trace *trace)
{
    put_process(trace, trace->pid, trace->options->process, trace->pid);
    put_label(trace, trace->pid, "CPU", -1);
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        if (!trace->on_device[device]) continue;
        put_process(trace, device, trace->options->process, GPUS_FROM + device);
        put_label(trace, device, "GPU ", device);
    }
    if (trace->overhead) put_process(trace, -1, "CUPTI Overhead", OVERHEAD_AT);
    for (uint32_t id = 0; id < trace->lane_count; id++) {
        const fs_track *track = &trace->tracks[id];
        if (trace->lanes[id]) put_thread(trace, track, track->thread, 0);
    }
    for (uint32_t i = 0; i < trace->extra_count; i++) {
        const fs_extra_row *row = &trace->extra[i];
        put_thread(trace, &row->track, row->of, row->number);
    }
}

/* Events ----------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *text;
    size_t size;
} beginning;

typedef struct {
    beginning host, device;
} categories;

/* Text before the name. */
#define TEXT(literal) {literal, sizeof(literal) - 1}
#define SLICE(category) TEXT("{\"ph\": \"X\", \"cat\": \"" category "\", \"name\": ")
static const beginning driver_call = SLICE("cuda_driver");
static const categories beginnings[FS_EVENT_KIND_COUNT] = {
    [FS_EVENT_OP] = {.host = SLICE("cpu_op")},
    [FS_EVENT_RANGE] = {.host = SLICE("user_annotation"), .device = SLICE("gpu_user_annotation")},
    [FS_EVENT_STEP] = {.host = SLICE("user_annotation"), .device = SLICE("gpu_user_annotation")},
    [FS_EVENT_RUNTIME] = {.host = SLICE("cuda_runtime")},
    [FS_EVENT_KERNEL] = {.device = SLICE("kernel")},
    [FS_EVENT_MEMCPY] = {.device = SLICE("gpu_memcpy")},
    [FS_EVENT_MEMSET] = {.device = SLICE("gpu_memset")},
    [FS_EVENT_INTERVAL] = {.device = SLICE("gpu_op")},
    [FS_EVENT_SYNC] = {.host = SLICE("cuda_sync")},
    [FS_EVENT_OVERHEAD] = {.host = SLICE("overhead")},
    [FS_EVENT_MEMORY] = {.host = TEXT("{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": ")},
    [FS_EVENT_FRAME] = {.host = SLICE("python_function")},
};

static bool is_driver_call(const fs_trace *trace, const fs_event *event)
{
    if (event->kind != FS_EVENT_RUNTIME || event->name == FS_NONE) return false;
    const char *name = fs_store_name_text(trace->store, event->name);
    return strncmp(name, "cu", 2) == 0 && strncmp(name, "cuda", 4) != 0;
}

static void put_name(fs_trace *trace, const fs_event *event)
{
    if (event->kind == FS_EVENT_MEMORY) FS_JSON_LITERAL(&trace->out, "\"[memory]\"");
    else if (event->name == FS_NONE) FS_JSON_LITERAL(&trace->out, "\"\"");
    else fs_trace_put(trace, trace->names[event->name]);
}

static void put_place(fs_trace *trace, const fs_event *event, uint32_t index)
{
    const fs_extra_row *extra = fs_trace_extra(trace, index);
    if (extra == NULL && fs_trace_is_on_lane(trace, event)) {
        fs_trace_put(trace, trace->places[event->lane]);
    } else {
        fs_track track = fs_trace_track(trace, event);
        if (extra != NULL) track.thread = extra->track.thread;
        fs_trace_put_place(&trace->out, &track);
    }
    fs_json_time(&trace->out, fs_trace_time(trace, event->start));
}

/* Write half of an arrow from an API call to the device work that it launched: one arrow for each correlation. */
static void put_flow(fs_trace *trace, const fs_event *event, uint32_t index)
{
    fs_flow flow = fs_flows_find(&trace->flows, event->correlation);
    if (flow.work == FS_NONE || (index != flow.call && index != flow.work)) return;
    fs_json *out = &trace->out;
    if (index == flow.call) FS_JSON_LITERAL(out, "{\"ph\": \"s\", \"id\": ");
    else FS_JSON_LITERAL(out, "{\"ph\": \"f\", \"id\": ");
    fs_json_integer(out, event->correlation);
    put_place(trace, event, index);
    FS_JSON_LITERAL(out, ", \"cat\": \"ac2g\", \"name\": \"ac2g\"");
    if (index == flow.work) FS_JSON_LITERAL(out, ", \"bp\": \"e\"");
    FS_JSON_LITERAL(out, "},\n");
}

static void put_event(fs_trace *trace, const fs_event *event, uint32_t index)
{
    fs_json *out = &trace->out;
    const categories *of_kind = &beginnings[event->kind];
    const beginning *begin = fs_trace_is_device(event) ? &of_kind->device : &of_kind->host;
    if (is_driver_call(trace, event)) begin = &driver_call;
    if (begin->text != NULL) fs_json_put(out, begin->text, begin->size);
    put_name(trace, event);
    put_place(trace, event, index);
    if (event->kind != FS_EVENT_MEMORY) {
        FS_JSON_LITERAL(out, ", \"dur\": ");
        fs_json_time(out, (uint64_t)fs_trace_duration(trace, event->start, event->duration));
    }
    fs_trace_arguments(trace, event, index);
    FS_JSON_LITERAL(out, "},\n");
    if (event->correlation != FS_NONE) put_flow(trace, event, index);
}

/* Device annotations come first: of slices with the same start, viewers nest the later written in the earlier. */
static fs_status put_events(fs_trace *trace, bool annotations, fs_error *err)
{
    FS_EACH_EVENT(trace->store, index, chunk, at) {
        fs_event event;
        FS_POLL(index, err);
        FS_TRY(trace->out.status);
        fs_event_load(chunk, at, &event);
        if (!fs_trace_is_written(&event) || fs_trace_is_device_annotation(&event) != annotations) continue;
        fs_replayed_place(&trace->replayed, index, &event);
        put_event(trace, &event, index);
    }
    return trace->out.status;
}

/* Write the span and the markers of the recording; the last one ends the list without a comma. */
static void put_window(fs_trace *trace)
{
    static const char *const parts[] = {
        "{\"ph\": \"X\", \"cat\": \"Trace\", \"name\": \"flopscope (0)\", \"pid\": \"Spans\", \"tid\": \"flopscope\", "
        "\"ts\": ",
        "{\"ph\": \"i\", \"s\": \"g\", \"name\": \"Iteration Start: flopscope\", \"pid\": \"Traces\", "
        "\"tid\": \"Trace flopscope\", \"ts\": ",
        "{\"ph\": \"i\", \"s\": \"g\", \"name\": \"Record Window End\", \"pid\": \"\", \"tid\": \"\", \"ts\": ",
    };
    fs_json *out = &trace->out;
    int64_t begin = trace->begin != FS_MISSING ? trace->begin : trace->first;
    int64_t end = trace->end != FS_MISSING ? trace->end : trace->last;
    int64_t span;
    if (end < begin || __builtin_sub_overflow(end, begin, &span)) span = 0;
    put_text(out, parts[0]);
    fs_json_time(out, fs_trace_time(trace, begin));
    FS_JSON_LITERAL(out, ", \"dur\": ");
    fs_json_time(out, (uint64_t)span);
    FS_JSON_LITERAL(out, ", \"args\": {\"Op count\": ");
    fs_json_integer(out, trace->count);
    FS_JSON_LITERAL(out, "}},\n{\"ph\": \"M\", \"name\": \"process_sort_index\", \"ts\": ");
    fs_json_time(out, fs_trace_time(trace, begin));
    FS_JSON_LITERAL(out, ", \"pid\": \"Spans\", \"tid\": 0, \"args\": {\"sort_index\": ");
    fs_json_integer(out, SPANS_AT);
    FS_JSON_LITERAL(out, "}},\n");
    put_text(out, parts[1]);
    fs_json_time(out, fs_trace_time(trace, begin));
    FS_JSON_LITERAL(out, "},\n");
    put_text(out, parts[2]);
    fs_json_time(out, fs_trace_time(trace, end));
    FS_JSON_LITERAL(out, "}\n]\n}\n");
}

static fs_status write_trace(fs_trace *trace, fs_error *err)
{
    FS_TRY(fs_json_init(&trace->texts, NULL, NULL, err));
    FS_TRY(fs_json_init(&trace->out, trace->options->write, trace->options->context, err));
    FS_TRY(fs_replayed_create(&trace->replayed, trace->store, err));
    FS_TRY(fs_trace_survey(trace, err));
    FS_TRY(fs_trace_name_texts(trace, err));
    FS_TRY(fs_trace_rows(trace, err));
    FS_TRY(fs_trace_work(trace, err));
    FS_TRY(put_head(trace, err));
    put_facts(trace);
    if (trace->annotated) FS_TRY(put_events(trace, true, err));
    FS_TRY(put_events(trace, false, err));
    FS_TRY(fs_trace_counters(trace, err));
    FS_TRY(fs_trace_samples(&trace->out, trace->store, fs_trace_time(trace, 0), err));
    FS_TRY(fs_trace_stack_samples(&trace->out, trace->store, fs_trace_time(trace, 0), err));
    put_window(trace);
    return fs_json_flush(&trace->out);
}

fs_status fs_chrome_trace_write(const fs_store *store, const fs_chrome_trace_options *options, int64_t *left_out,
                                fs_error *err)
{
    fs_trace *trace = fs_calloc(1, sizeof *trace);
    if (trace == NULL) return fs_no_memory(err);
    trace->store = store;
    trace->options = options;
    trace->pid = options->pid >= 0 && options->pid < FS_DEVICE_LIMIT ? options->pid + PIDS_OF_LINUX : options->pid;
    fs_status status = write_trace(trace, err);
    if (left_out != NULL) *left_out = trace->left_out;
    fs_json_clear(&trace->texts);
    fs_json_clear(&trace->out);
    fs_flows_clear(&trace->flows);
    fs_replayed_clear(&trace->replayed);
    fs_intern_clear(&trace->shared);
    fs_table_destroy(trace->table);
    fs_free(trace->rated_of);
    fs_free(trace->extra);
    fs_free(trace->moved);
    fs_free(trace->lanes);
    fs_free(trace->tracks);
    fs_free(trace->places);
    fs_free(trace->names);
    fs_free(trace->arguments);
    fs_free(trace);
    return status;
}
