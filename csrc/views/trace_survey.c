/* Collects what the trace writer must know before the first byte. */
#include "base/memory.h"
#include "base/saturate.h"
#include "store/stacks.h"
#include "views/trace.h"

/* Kineto counts times from the last multiple of this many ns (the average length of three months) since 1970, so that
 * the traces of all processes of a job share a base and any time has at most 15 digits. */
static const uint64_t base_step = UINT64_C(7889238) * 1000000000;

int64_t fs_trace_duration(const fs_trace *trace, int64_t start, int64_t duration)
{
    if (duration != FS_MISSING) return duration > 0 ? duration : 0;
    int64_t end = trace->end != FS_MISSING ? trace->end : trace->last;
    return end > start && !__builtin_sub_overflow(end, start, &duration) ? duration : 0;
}

fs_track fs_trace_track(const fs_trace *trace, const fs_event *event)
{
    bool on_device = fs_trace_is_device(event);
    if (fs_trace_is_on_lane(trace, event)) return trace->tracks[event->lane];
    fs_track track = {.process = trace->pid, .on_device = on_device};
    if (on_device) track.process = event->device < 0 ? 0 : event->device;
    if (event->lane != FS_NONE) {
        track.thread = trace->tracks[event->lane].thread;
        track.on_device = trace->tracks[event->lane].on_device;
    }
    if (event->kind == FS_EVENT_OVERHEAD) track.process = -1;
    return track;
}

static fs_status list_tracks(fs_trace *trace, fs_error *err)
{
    trace->lane_count = fs_store_lane_count(trace->store);
    FS_TRY(FS_NEW_ZEROED(&trace->lanes, trace->lane_count + (size_t)1, err));
    FS_TRY(FS_NEW(&trace->tracks, trace->lane_count + (size_t)1, err));
    for (uint32_t id = 0; id < trace->lane_count; id++) {
        fs_lane lane = fs_store_lane(trace->store, id);
        trace->tracks[id] = (fs_track){lane.on_device ? lane.device : trace->pid, lane.id, lane.on_device};
    }
    return FS_OK;
}

static void add_time(fs_trace *trace, int64_t time)
{
    if (time < trace->first) trace->first = time;
    if (time > trace->last) trace->last = time;
}

/* The initial amount allocated is at least what was freed before it was allocated. */
static void add_memory(fs_trace *trace, const fs_event *event, int64_t *sums)
{
    int place = fs_trace_place(event);
    fs_add_to(&sums[place], event->bytes);
    if (-sums[place] > trace->allocated[place]) trace->allocated[place] = -sums[place];
}

static void add_event(fs_trace *trace, const fs_event *event, int64_t *sums)
{
    if (event->start == FS_MISSING) {
        trace->left_out++;
        return;
    }
    add_time(trace, event->start);
    int64_t end;
    if (event->duration > 0 && !__builtin_add_overflow(event->start, event->duration, &end)) add_time(trace, end);
    fs_track track = fs_trace_track(trace, event);
    if (event->lane != FS_NONE && event->kind != FS_EVENT_OVERHEAD) trace->lanes[event->lane] = true;
    if (track.on_device && track.process >= 0 && track.process < FS_DEVICE_LIMIT) {
        trace->on_device[track.process] = true;
    }
    trace->annotated |= fs_trace_is_device_annotation(event);
    trace->overhead |= event->kind == FS_EVENT_OVERHEAD;
    trace->timings[event->timing] = true;
    if (event->kind == FS_EVENT_MEMORY) add_memory(trace, event, sums);
}

fs_status fs_trace_survey(fs_trace *trace, fs_error *err)
{
    int64_t sums[FS_TRACE_PLACES] = {0};
    trace->count = fs_store_count(trace->store);
    FS_TRY(list_tracks(trace, err));
    trace->first = INT64_MAX;
    trace->last = INT64_MIN;
    fs_store_window(trace->store, &trace->begin, &trace->end);
    if (trace->begin != FS_MISSING) add_time(trace, trace->begin);
    if (trace->end != FS_MISSING) add_time(trace, trace->end);
    FS_EACH_EVENT(trace->store, index, chunk, at) {
        fs_event event;
        fs_event_load(chunk, at, &event);
        add_event(trace, &event, sums);
    }
    const fs_stacks *stacks = fs_store_stacks(trace->store);
    for (uint32_t i = 0; i < stacks->count; i++) {
        add_time(trace, stacks->runs[i].begin);
        add_time(trace, stacks->runs[i].end);
    }
    if (trace->first > trace->last) trace->first = trace->last = 0;
    uint64_t first = (uint64_t)trace->first + (uint64_t)trace->options->clock_offset;
    trace->base = (int64_t)first < 0 ? first : first / base_step * base_step;
    return fs_flows_build(&trace->flows, trace->store, err);
}

void fs_trace_put_place(fs_json *out, const fs_track *track)
{
    FS_JSON_LITERAL(out, ", \"pid\": ");
    fs_json_integer(out, track->process);
    FS_JSON_LITERAL(out, ", \"tid\": ");
    fs_json_integer(out, (int64_t)track->thread);
    FS_JSON_LITERAL(out, ", \"ts\": ");
}

static fs_status put_places(fs_trace *trace, fs_error *err)
{
    FS_TRY(FS_NEW(&trace->places, trace->lane_count + (size_t)1, err));
    for (uint32_t id = 0; id < trace->lane_count; id++) {
        size_t at = trace->texts.size;
        fs_trace_put_place(&trace->texts, &trace->tracks[id]);
        trace->places[id] = (fs_piece){at, trace->texts.size - at};
    }
    return trace->texts.status;
}

fs_status fs_trace_name_texts(fs_trace *trace, fs_error *err)
{
    uint32_t count = fs_store_name_count(trace->store);
    FS_TRY(FS_NEW(&trace->names, count + (size_t)1, err));
    for (uint32_t id = 0; id < count; id++) {
        size_t at = trace->texts.size;
        fs_json_string(&trace->texts, fs_store_name_text(trace->store, id));
        trace->names[id] = (fs_piece){at, trace->texts.size - at};
    }
    return put_places(trace, err);
}
