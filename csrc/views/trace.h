/* The state that the files of a Chrome trace share. Private to csrc/views.
 *
 *   survey ──► when it began and ended, who took part     one pass over the store
 *   texts  ──► names and arguments, made once             repeated by most events
 *   trace  ──► head, who is who, device annotations, events
 */
#ifndef FS_VIEWS_TRACE_H
#define FS_VIEWS_TRACE_H

#include "base/intern.h"
#include "store/event.h"
#include "views/chrome_trace.h"
#include "views/flows.h"

enum { FS_TRACE_PLACES = FS_DEVICE_LIMIT + 1 /* the CPU is place 0 */ };

/* A part of the trace's `texts`. */
typedef struct {
    size_t at, size;
} fs_piece;

/* A row of the viewer. Device rows have the device's index as process. */
typedef struct {
    int64_t process;
    uint64_t thread;
    bool on_device;
} fs_track;

typedef struct {
    const fs_store *store;
    const fs_chrome_trace_options *options;
    int64_t pid;
    fs_json out;
    /* What the survey found. */
    uint32_t count;
    int64_t first, last; /* times of the store, the window's too; both 0 where no time is known */
    int64_t begin, end;  /* of the window, FS_MISSING */
    int64_t left_out;
    uint64_t base; /* Unix time that trace times count from, ns */
    bool on_device[FS_DEVICE_LIMIT], annotated, overhead;
    bool timings[FS_TIMING_COUNT];
    bool *lanes; /* that have events */
    uint32_t lane_count;
    int64_t allocated[FS_TRACE_PLACES];
    fs_flows flows;
    /* Text that many events have in common. */
    fs_json texts;
    fs_piece *names;  /* by id */
    fs_intern shared; /* what arguments follow from */
    fs_piece *arguments;
    uint32_t argument_capacity;
} fs_trace;

/* What is to be known before the first byte. */
fs_status fs_trace_survey(fs_trace *trace, fs_error *err);
fs_status fs_trace_name_texts(fs_trace *trace, fs_error *err);

/* The members of an event's "args", with what comes before them: nothing is written for an event that has none. */
void fs_trace_arguments(fs_trace *trace, const fs_event *event, uint32_t index);

static inline void fs_trace_put(fs_trace *trace, fs_piece piece)
{
    fs_json_put(&trace->out, trace->texts.bytes + piece.at, piece.size);
}

/* Where the memory of an event's device is counted. */
static inline int fs_trace_place(const fs_event *event)
{
    return event->device < 0 ? 0 : event->device + 1;
}

static inline bool fs_trace_is_device(const fs_event *event)
{
    return fs_event_lies_on_device(event->kind, event->device);
}

static inline bool fs_trace_is_device_annotation(const fs_event *event)
{
    return fs_event_is_annotation(event->kind) && event->device >= 0;
}

fs_track fs_trace_track(const fs_trace *trace, const fs_event *event);

#endif
