/* State shared by the files of the Chrome trace writer. Private to csrc/views.
 *
 *   survey ──► first and last time, processes and threads     one pass over the store
 *   rows   ──► rows for slices that overlap without nesting
 *   work   ──► FLOPs, bytes and rates of single events        if options->table is given
 *   texts  ──► names and arguments, formatted once            shared by many events
 *   trace  ──► head, metadata, device annotations, events, counters */
#ifndef FS_VIEWS_TRACE_H
#define FS_VIEWS_TRACE_H

#include "base/intern.h"
#include "store/event.h"
#include "store/note.h"
#include "table/table.h"
#include "views/chrome_trace.h"
#include "views/flows.h"
#include "views/replayed.h"

enum { FS_TRACE_PLACES = FS_DEVICE_LIMIT + 1 /* the CPU is place 0 */, FS_TRACE_RECENT = 1 << 10 };

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

/* Arguments that were written lately. */
typedef struct {
    uint32_t signature, with; /* with: the name of a host event, the device of device work */
    bool on_device, known;
    fs_piece arguments;
} fs_trace_recent;

/* A further row of a track, for slices that would overlap others in it without nesting. */
typedef struct {
    fs_track track;  /* with an unused thread id */
    uint64_t of;     /* the thread id of the track */
    uint32_t number; /* from 2 */
} fs_extra_row;

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
    fs_track *tracks; /* by lane */
    int64_t allocated[FS_TRACE_PLACES];
    fs_flows flows;
    /* Rows. */
    fs_extra_row *extra;
    uint32_t extra_count, extra_capacity;
    uint32_t *moved; /* by event: 1 + its extra row, 0: none; NULL: no slice is in one */
    /* Work. */
    fs_table *table;    /* NULL: none */
    uint32_t *rated_of; /* by event: index in table->rated, or FS_NONE */
    uint32_t next_work; /* in table->works, as events are written in order */
    fs_replayed_places replayed;
    /* Text shared by many events. */
    fs_json texts;
    fs_piece *names;                         /* by id */
    fs_piece *places;                        /* by lane: fs_trace_put_place of its track */
    fs_intern shared;                        /* keys of shared arguments */
    fs_trace_recent recent[FS_TRACE_RECENT]; /* by the last bits of the signature */
    fs_piece *arguments;
    uint32_t argument_capacity;
} fs_trace;

/* Collect what must be known before the first byte. FS_OUT_OF_MEMORY. */
fs_status fs_trace_survey(fs_trace *trace, fs_error *err);
/* Format the names, and where the events of each lane are. FS_OUT_OF_MEMORY. */
fs_status fs_trace_name_texts(fs_trace *trace, fs_error *err);
/* Write the process and the thread of a track, up to the value of "ts". */
void fs_trace_put_place(fs_json *out, const fs_track *track);

/* Find a row for every slice. Viewers drop a slice that overlaps an earlier one of its row without lying in it. Of each
 * track, in order of start, a slice goes to the first row in which it nests. FS_OUT_OF_MEMORY. */
fs_status fs_trace_rows(fs_trace *trace, fs_error *err);

/* Count the work of single events. FS_OUT_OF_MEMORY. */
fs_status fs_trace_work(fs_trace *trace, fs_error *err);
/* Write what is known of an event's work. Events must come in the order of the store. */
void fs_trace_work_arguments(fs_trace *trace, fs_json_members *members, const fs_event *event, uint32_t index);
/* Return the number of decimals, at most 8, for four digits of a rate, or all of its whole part. */
int fs_trace_rate_decimals(double rate);
/* Write the counters. FS_OUT_OF_MEMORY. */
fs_status fs_trace_counters(fs_trace *trace, fs_error *err);

/* Return the duration of an event's slice: an open event lasts until the last known time. */
int64_t fs_trace_duration(const fs_trace *trace, int64_t start, int64_t duration);
/* Return a time of the store as a time of the trace. */
static inline uint64_t fs_trace_time(const fs_trace *trace, int64_t time)
{
    return (uint64_t)time + (uint64_t)trace->options->clock_offset - trace->base;
}

/* Return whether the event is written: it has a time, and is not the share of another. */
static inline bool fs_trace_is_written(const fs_event *event)
{
    return event->start != FS_MISSING && !fs_event_is_share(event->kind, event->lane);
}

/* Return the extra row of an event, or NULL. */
static inline const fs_extra_row *fs_trace_extra(const fs_trace *trace, uint32_t index)
{
    return trace->moved != NULL && trace->moved[index] != 0 ? &trace->extra[trace->moved[index] - 1] : NULL;
}

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

/* Return whether the event is on the track of its lane. */
static inline bool fs_trace_is_on_lane(const fs_trace *trace, const fs_event *event)
{
    if (event->lane == FS_NONE || event->kind == FS_EVENT_OVERHEAD) return false;
    return trace->tracks[event->lane].on_device || !fs_trace_is_device(event);
}

fs_track fs_trace_track(const fs_trace *trace, const fs_event *event);

/* Write the arguments that a range's note holds. */
void fs_trace_note(fs_json_members *members, const fs_note *note);

#endif
