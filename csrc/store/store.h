/* The store: append-only columns of events. It depends on no source and no view.
 *
 *   chunks ─► [ 65 536 events: start… | duration… | bytes… | name… | … ]   56 bytes an event, never moved
 *             [ …                                                      ]
 *   names, signatures   interned bytes ◄── ids in the columns
 *   lanes               the threads and (device, stream)s of events; a thread's lane holds its open event
 *
 * All times are integer ns of one clock. An unknown id or time is FS_NONE or FS_MISSING, never 0.
 * Every call is thread-safe. A store may be read once nothing is appended to it any more, after a profile has
 * stopped. */
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

/* X(NAME, name, on the device, description) */
#define FS_EVENT_KIND_LIST(X)                                                               \
    X(OP, op, 0, "an operation called by the program")                                      \
    X(RANGE, range, 0, "a user annotation")                                                 \
    X(STEP, step, 0, "one step of a profiled loop")                                         \
    X(RUNTIME, runtime, 0, "a CUDA API call")                                               \
    X(KERNEL, kernel, 1, "a kernel on a device")                                            \
    X(MEMCPY, memcpy, 1, "a copy on a device")                                              \
    X(MEMSET, memset, 1, "a fill on a device")                                              \
    X(INTERVAL, interval, 1, "time of its launcher on the device, between two CUDA events") \
    X(SYNC, sync, 0, "the host waiting for a device")                                       \
    X(OVERHEAD, overhead, 0, "time spent on profiling itself or on loading code")           \
    X(MEMORY, memory, 0, "memory allocated (bytes > 0) or freed (bytes < 0)")               \
    X(FRAME, frame, 0, "a Python call")

typedef enum {
#define FS_EVENT_KIND_ENUM(NAME, name, on_device, prose) FS_EVENT_##NAME,
    FS_EVENT_KIND_LIST(FS_EVENT_KIND_ENUM)
#undef FS_EVENT_KIND_ENUM
        FS_EVENT_KIND_COUNT
} fs_event_kind;

/* The source of the time. X(NAME, name) */
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

/* The columns. X(type, name, missing value, description) */
#define FS_EVENT_COLUMN_LIST(X)                                                                \
    X(int64_t, start, FS_MISSING, "ns")                                                        \
    X(int64_t, duration, FS_MISSING, "ns; missing while the event is open")                    \
    X(int64_t, bytes, 0, "of a copy, a fill or a change of memory")                            \
    X(uint32_t, name, FS_NONE, "id in names")                                                  \
    X(uint32_t, signature, FS_NONE, "id in signatures")                                        \
    X(uint32_t, parent, FS_NONE, "the enclosing event on the same thread")                     \
    X(uint32_t, launcher, FS_NONE, "of device work: the host event that launched it")          \
    X(uint32_t, forward, FS_NONE, "of an op of the backward pass: its op of the forward pass") \
    X(uint32_t, correlation, FS_NONE, "links an API call to the device work it launched")      \
    X(uint32_t, lane, FS_NONE, "id of the thread, or of the (device, stream)")                 \
    X(int8_t, device, -1, "the device of the work or of the memory; -1: the CPU")              \
    X(uint8_t, kind, FS_EVENT_OP, "an fs_event_kind")                                          \
    X(uint8_t, timing, FS_TIMING_CPU, "an fs_timing")                                          \
    X(uint8_t, flags, 0, "FS_EVENT_…")

typedef struct {
#define FS_EVENT_FIELD(type, name, missing, prose) type name;
    FS_EVENT_COLUMN_LIST(FS_EVENT_FIELD)
#undef FS_EVENT_FIELD
} fs_event;

/* Flags of events:
 *   ESTIMATED  of device work: its launcher is inferred, not recorded. The work of that op rests on an estimate.
 *   REPLAYED   of an op, a range or a frame: recorded when a graph was captured, and repeated here for a replay of the
 *              graph. It takes no host time: its duration is 0, at the start of the call that launched the graph.
 *   MARK       of a replayed range: an annotation that the program gave to nodes of a graph (torch.cuda's
 *              mark_kernels). It tells no op.
 *   CAPTURED   of an op or a range: it launched into a graph that was captured. Nothing ran: its work is that of the
 *              replays.
 *   ADOPTS     of an op: like a range, it has the work of the threads of libraries meanwhile. */
enum { FS_EVENT_ESTIMATED = 1, FS_EVENT_REPLAYED = 2, FS_EVENT_MARK = 4, FS_EVENT_CAPTURED = 8, FS_EVENT_ADOPTS = 16 };

/* An event with every field missing. */
extern const fs_event fs_event_missing;

enum { FS_CHUNK_BITS = FS_BLOCK(16, 5), FS_CHUNK_EVENTS = 1 << FS_CHUNK_BITS };

typedef struct fs_chunk {
#define FS_EVENT_ARRAY(type, name, missing, prose) type name[FS_CHUNK_EVENTS];
    FS_EVENT_COLUMN_LIST(FS_EVENT_ARRAY)
#undef FS_EVENT_ARRAY
} fs_chunk;

typedef struct {
    bool on_device;
    int device;     /* -1: a host thread */
    uint64_t id;    /* operating system's thread id, or stream */
    uint32_t open;  /* innermost open event of a host thread and of its current task, or FS_NONE */
    uint32_t base;  /* innermost open event of the thread outside of any task */
    uint32_t first; /* outermost open event of the task alone, or FS_NONE */
    uint64_t task;  /* the current task; 0: none */
} fs_lane;

typedef struct fs_store fs_store;

/* FS_OUT_OF_MEMORY. fs_store_destroy accepts NULL. */
fs_status fs_store_create(fs_store **store, fs_error *err);
void fs_store_destroy(fs_store *store);

/* Announce that this many events are about to be appended, so that memory is allocated accordingly. */
void fs_store_expect(fs_store *store, uint32_t count);

/* Return the ids of names, signatures (the bytes of fs_signature_encode) and lanes. */
fs_status fs_store_name(fs_store *store, const char *text, uint32_t *id, fs_error *err);
fs_status fs_store_signature(fs_store *store, const void *bytes, size_t size, uint32_t *id, fs_error *err);
/* The same for a signature that hardly any other event has: it is not looked up. */
fs_status fs_store_append_signature(fs_store *store, const void *bytes, size_t size, uint32_t *id, fs_error *err);
fs_status fs_store_device_lane(fs_store *store, int device, uint64_t stream, uint32_t *lane, fs_error *err);
fs_status fs_store_thread_lane(fs_store *store, uint32_t *lane, fs_error *err); /* of the calling thread */
fs_status fs_store_thread_lane_of(fs_store *store, uint64_t thread, uint32_t *lane, fs_error *err);

/* Append a complete event. index (may be NULL) receives its index. FS_OUT_OF_MEMORY leaves the store unchanged. */
fs_status fs_store_append(fs_store *store, const fs_event *event, uint32_t *index, fs_error *err);

/* Append `count` events at once, of which *first is the first, and fill each of them in: by any number of threads, but
 * before anything else uses the store. FS_OUT_OF_MEMORY leaves it unchanged. */
fs_status fs_store_reserve(fs_store *store, uint32_t count, uint32_t *first, fs_error *err);
void fs_store_put(fs_store *store, uint32_t index, const fs_event *event);

/* Append an event that encloses the events of this thread until fs_store_end. Parent, lane and thread are filled in.
 * fs_store_end of an event with open events inside closes those at the same time; of a frame, only the frames inside,
 * as a generator's call ends at each yield, but a range that it has open does not. Ending an event that is not open on
 * its thread only sets its duration. */
fs_status fs_store_begin(fs_store *store, fs_event_kind kind, uint32_t name, uint32_t signature, int64_t start,
                         uint32_t *index, fs_error *err);
void fs_store_end(fs_store *store, uint32_t index, int64_t end);

/* End a range by itself: what is open inside stays open, such as a range that was begun later and ends later. The range
 * then nests in nothing and becomes asynchronous (store/event.h), and so does one that another thread ends. */
void fs_store_end_range(fs_store *store, uint32_t index, int64_t end);

/* Set the calling thread's task (a coroutine of an event loop), 0: none. The open events of the previous task do not
 * enclose the next events: they are set aside until that task runs again. The ranges among them may now overlap others,
 * so they become asynchronous annotations (store/event.h) without a lane. Each still ends by its index. A step that a
 * task begins outside of its other events belongs to the thread. */
void fs_store_run_task(fs_store *store, uint64_t task);

/* Like fs_store_begin, on the thread of that lane. */
fs_status fs_store_begin_on(fs_store *store, uint32_t lane, fs_event_kind kind, uint32_t name, int64_t start,
                            uint32_t *index, fs_error *err);

/* Rename an event: an id from fs_store_name. */
void fs_store_rename(fs_store *store, uint32_t index, uint32_t name);

/* Link an op of the backward pass to its op of the forward pass, which may have a higher index. */
void fs_store_set_forward(fs_store *store, uint32_t index, uint32_t forward);

/* Replace an event. Its parent and its launcher must be FS_NONE or have lower indices. */
void fs_store_set(fs_store *store, uint32_t index, const fs_event *event);

/* The start and end of recording, FS_MISSING if unknown; both are missing in a new store. */
void fs_store_set_window(fs_store *store, int64_t begin, int64_t end);
void fs_store_window(const fs_store *store, int64_t *begin, int64_t *end);

/* A copy of a device's properties (device 0 …). If no source recorded them, all are missing. */
fs_status fs_store_set_device(fs_store *store, int device, const fs_device_facts *facts, fs_error *err);
fs_device_facts fs_store_device(const fs_store *store, int device);

/* Close all open events on all threads at `end`. Return their number. */
uint32_t fs_store_end_all(fs_store *store, int64_t end);

/* The innermost open event of the calling thread, or FS_NONE. */
uint32_t fs_store_innermost(fs_store *store);

/* Let nothing be appended until fs_store_release, so that a store that grows can be read. Short, and without calls that
 * append to it. */
void fs_store_hold(fs_store *store);
void fs_store_release(fs_store *store);

/* Reading. */
uint32_t fs_store_count(const fs_store *store);
void fs_store_get(const fs_store *store, uint32_t index, fs_event *event);
const fs_chunk *fs_store_chunk(const fs_store *store, uint32_t chunk); /* events [chunk << FS_CHUNK_BITS, …) */
fs_chunk *const *fs_store_chunks(const fs_store *store);               /* all of them; NULL if there are none */
uint32_t fs_store_name_count(const fs_store *store);
const char *fs_store_name_text(const fs_store *store, uint32_t id);
uint32_t fs_store_signature_count(const fs_store *store);
fs_span fs_store_signature_bytes(const fs_store *store, uint32_t id);
uint32_t fs_store_lane_count(const fs_store *store);
fs_lane fs_store_lane(const fs_store *store, uint32_t id);
int64_t fs_store_nbytes(const fs_store *store); /* memory of the events */

#endif
