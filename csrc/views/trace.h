/* State shared by the files of the Chrome trace writer. Private to csrc/views.
 *
 *   survey ──► first and last time, processes and threads     one pass over the store
 *   texts  ──► names and arguments, formatted once            shared by many events
 *   trace  ──► head, metadata, device annotations, events */
#ifndef FS_VIEWS_TRACE_H
#define FS_VIEWS_TRACE_H

#include "base/intern.h"
#include "store/event.h"
#include "views/chrome_trace.h"
#include "views/flows.h"
#include "views/replayed.h"

enum { FS_TRACE_PLACES = FS_DEVICE_LIMIT + 1 /* the CPU is place 0 */ };

/* A part of the trace's `texts`. */
typedef struct {
    size_t at, size;
} fs_piece;

/* A row of the viewer. The process of a device row is the device index. */
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
    /* Results of the survey. */
    uint32_t count;
    int64_t first, last; /* times of the store, including the window; both 0 if no time is known */
    int64_t begin, end;  /* of the window; FS_MISSING */
    int64_t left_out;
    uint64_t base; /* Unix time in ns from which trace times count */
    bool on_device[FS_DEVICE_LIMIT], annotated, overhead;
    bool timings[FS_TIMING_COUNT];
    bool *lanes; /* lanes that have events */
    uint32_t lane_count;
    int64_t allocated[FS_TRACE_PLACES];
    fs_flows flows;
    fs_replayed_places replayed;
    /* Text shared by many events. */
    fs_json texts;
    fs_piece *names;  /* by id */
    fs_intern shared; /* keys of shared arguments */
    fs_piece *arguments;
    uint32_t argument_capacity;
} fs_trace;

/* Collect what must be known before the first byte. FS_OUT_OF_MEMORY. */
fs_status fs_trace_survey(fs_trace *trace, fs_error *err);
fs_status fs_trace_name_texts(fs_trace *trace, fs_error *err);

/* Write the members of an event's "args" and the text before them; nothing if it has none. */
void fs_trace_arguments(fs_trace *trace, const fs_event *event, uint32_t index);

static inline void fs_trace_put(fs_trace *trace, fs_piece piece)
{
    fs_json_put(&trace->out, trace->texts.bytes + piece.at, piece.size);
}

/* Return the index under which memory of the event's device is counted. */
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
