/* The store: append-only columns of events. It knows no source and no view.
 *
 *   chunks ─► [ 65 536 events: start… | duration… | bytes… | name… | … ]   51 bytes an event, never moved
 *             [ …                                                      ]
 *   names, signatures   interned bytes ◄── ids in the columns
 *   lanes               the threads and (device, stream)s that events lie on; a thread's lane holds its open event
 *
 * All times are integer ns of one clock. An id or time that a source cannot know is FS_NONE or FS_MISSING, never 0.
 * Every call is thread-safe. Readers read a store that nobody appends to (after a profile has stopped).
 */
#ifndef FS_STORE_STORE_H
#define FS_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/intern.h"
#include "base/memory.h"
#include "base/status.h"
#include "store/device_facts.h"

#define FS_NONE UINT32_MAX
#define FS_MISSING INT64_MIN

/* X(NAME, name, on the device, prose) */
#define FS_EVENT_KIND_LIST(X)                                                                          \
    X(OP, op, 0, "an operation that a program called")                                                 \
    X(RANGE, range, 0, "a user annotation")                                                            \
    X(STEP, step, 0, "one step of a profiled loop")                                                    \
    X(RUNTIME, runtime, 0, "a CUDA API call")                                                          \
    X(KERNEL, kernel, 1, "a kernel on a device")                                                       \
    X(MEMCPY, memcpy, 1, "a copy on a device")                                                         \
    X(MEMSET, memset, 1, "a fill on a device")                                                         \
    X(INTERVAL, interval, 1, "device time of its launcher seen from outside, between two CUDA events") \
    X(SYNC, sync, 0, "the host waiting for a device")                                                  \
    X(OVERHEAD, overhead, 0, "time that profiling itself or loading of code took")                     \
    X(MEMORY, memory, 0, "memory taken (bytes > 0) or given back (bytes < 0)")                         \
    X(FRAME, frame, 0, "a Python call")

typedef enum {
#define FS_EVENT_KIND_ENUM(NAME, name, on_device, prose) FS_EVENT_##NAME,
    FS_EVENT_KIND_LIST(FS_EVENT_KIND_ENUM)
#undef FS_EVENT_KIND_ENUM
        FS_EVENT_KIND_COUNT
} fs_event_kind;

/* Who told the time. X(NAME, name) */
#define FS_TIMING_LIST(X) X(CPU, cpu) X(EVENT, event) X(CUPTI, cupti) X(TRACE, trace)

typedef enum {
#define FS_TIMING_ENUM(NAME, name) FS_TIMING_##NAME,
    FS_TIMING_LIST(FS_TIMING_ENUM)
#undef FS_TIMING_ENUM
        FS_TIMING_COUNT
} fs_timing;

extern const char *const fs_event_kind_names[FS_EVENT_KIND_COUNT];
extern const bool fs_event_kind_on_device[FS_EVENT_KIND_COUNT];
extern const char *const fs_timing_names[FS_TIMING_COUNT];

/* The columns. X(type, name, missing value, prose) */
#define FS_EVENT_COLUMN_LIST(X)                                                          \
    X(int64_t, start, FS_MISSING, "ns")                                                  \
    X(int64_t, duration, FS_MISSING, "ns; missing while the event is open")              \
    X(int64_t, bytes, 0, "of a copy, a fill or a change of memory")                      \
    X(uint32_t, name, FS_NONE, "id in names")                                            \
    X(uint32_t, signature, FS_NONE, "id in signatures")                                  \
    X(uint32_t, parent, FS_NONE, "the enclosing event on the same thread")               \
    X(uint32_t, launcher, FS_NONE, "of device work: the host event that it ran for")     \
    X(uint32_t, correlation, FS_NONE, "ties an API call to the device work it launched") \
    X(uint32_t, lane, FS_NONE, "id of the thread, or of the (device, stream)")           \
    X(int8_t, device, -1, "the device that it ran on or whose memory it is; -1 the CPU") \
    X(uint8_t, kind, FS_EVENT_OP, "an fs_event_kind")                                    \
    X(uint8_t, timing, FS_TIMING_CPU, "an fs_timing")

typedef struct {
#define FS_EVENT_FIELD(type, name, missing, prose) type name;
    FS_EVENT_COLUMN_LIST(FS_EVENT_FIELD)
#undef FS_EVENT_FIELD
} fs_event;

/* An event with every field missing. */
extern const fs_event fs_event_missing;

enum { FS_CHUNK_BITS = FS_BLOCK(16, 5), FS_CHUNK_EVENTS = 1 << FS_CHUNK_BITS };

typedef struct {
#define FS_EVENT_ARRAY(type, name, missing, prose) type name[FS_CHUNK_EVENTS];
    FS_EVENT_COLUMN_LIST(FS_EVENT_ARRAY)
#undef FS_EVENT_ARRAY
} fs_chunk;

typedef struct {
    bool on_device;
    int device;    /* -1: a host thread */
    uint64_t id;   /* operating system's thread id, or stream */
    uint32_t open; /* innermost open event of a host thread and of the task that it runs, or FS_NONE */
    uint32_t base; /* innermost open event of the thread outside of any task */
    uint32_t first; /* outermost open event of the task alone, or FS_NONE */
    uint64_t task; /* that it runs; 0: none */
} fs_lane;

typedef struct fs_store fs_store;

/* FS_OUT_OF_MEMORY. fs_store_destroy takes NULL too. */
fs_status fs_store_create(fs_store **store, fs_error *err);
void fs_store_destroy(fs_store *store);

/* So many events are about to be appended at once: memory is taken accordingly. */
void fs_store_expect(fs_store *store, uint32_t count);

/* Ids of names, signatures (fs_signature_encode's bytes) and lanes. */
fs_status fs_store_name(fs_store *store, const char *text, uint32_t *id, fs_error *err);
fs_status fs_store_signature(fs_store *store, const void *bytes, size_t size, uint32_t *id, fs_error *err);
fs_status fs_store_device_lane(fs_store *store, int device, uint64_t stream, uint32_t *lane, fs_error *err);
fs_status fs_store_thread_lane(fs_store *store, uint32_t *lane, fs_error *err); /* of the calling thread */
fs_status fs_store_thread_lane_of(fs_store *store, uint64_t thread, uint32_t *lane, fs_error *err);

/* Append a whole event; index (may be NULL) receives its place. On FS_OUT_OF_MEMORY the store is as it was. */
fs_status fs_store_append(fs_store *store, const fs_event *event, uint32_t *index, fs_error *err);

/* Append an event that encloses what this thread does until fs_store_end. Parent, lane and thread are filled in.
 * fs_store_end of an event that still has open events inside closes those at the same time; of a frame, only the frames
 * inside: a generator's call ends at each yield, and the range that it holds open does not. Ending an event that is not
 * open on its thread only sets its duration. */
fs_status fs_store_begin(fs_store *store, fs_event_kind kind, uint32_t name, uint32_t signature, int64_t start,
                         uint32_t *index, fs_error *err);
void fs_store_end(fs_store *store, uint32_t index, int64_t end);

/* The calling thread now runs another task (a coroutine of an event loop), 0: none. What the task before holds open
 * does not enclose what comes now: it is set aside until that task runs again. The ranges among it overlap others from
 * here on: they become asynchronous annotations (store/event.h), of no lane. Each is ended by its index as ever. A step
 * that a task begins outside of its other events is the thread's. */
void fs_store_run_task(fs_store *store, uint64_t task);

/* As fs_store_begin, on the thread of that lane. */
fs_status fs_store_begin_on(fs_store *store, uint32_t lane, fs_event_kind kind, uint32_t name, int64_t start,
                            uint32_t *index, fs_error *err);

/* Give an event another name: an id of fs_store_name. */
void fs_store_rename(fs_store *store, uint32_t index, uint32_t name);

/* Put another event in the place of one. The event that encloses it, and the host event that it ran for, are FS_NONE or
 * of a lower index. */
void fs_store_set(fs_store *store, uint32_t index, const fs_event *event);

/* From when to when events were recorded, FS_MISSING where not known; both missing in a new store. */
void fs_store_set_window(fs_store *store, int64_t begin, int64_t end);
void fs_store_window(const fs_store *store, int64_t *begin, int64_t *end);

/* What is known of a device (0 …), by copy. Devices that nobody told of have every fact missing. */
fs_status fs_store_set_device(fs_store *store, int device, const fs_device_facts *facts, fs_error *err);
fs_device_facts fs_store_device(const fs_store *store, int device);

/* Close at `end` whatever is still open on any thread; returns how many events that were. */
uint32_t fs_store_end_all(fs_store *store, int64_t end);

/* The innermost open event of the calling thread, or FS_NONE. */
uint32_t fs_store_innermost(fs_store *store);

/* Reading. */
uint32_t fs_store_count(const fs_store *store);
void fs_store_get(const fs_store *store, uint32_t index, fs_event *event);
const fs_chunk *fs_store_chunk(const fs_store *store, uint32_t chunk); /* events [chunk << FS_CHUNK_BITS, …) */
uint32_t fs_store_name_count(const fs_store *store);
const char *fs_store_name_text(const fs_store *store, uint32_t id);
uint32_t fs_store_signature_count(const fs_store *store);
fs_span fs_store_signature_bytes(const fs_store *store, uint32_t id);
uint32_t fs_store_lane_count(const fs_store *store);
fs_lane fs_store_lane(const fs_store *store, uint32_t id);
int64_t fs_store_nbytes(const fs_store *store); /* memory that the events take */

#endif
