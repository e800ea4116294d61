/* An op is recorded between begin_op and end_op on its thread; ops do not nest, so one mark in flight for each thread
 * is enough. Device times are differences between two marks, resolved later in the order in which they were queued:
 * each time follows from the one before it, so errors do not grow and the ring may be resolved in parts. Every mark is
 * given back exactly once; the last one of a device is its anchor until then. What cannot be recorded is counted as
 * lost; an op never fails because of the recorder. The store of the running recorder is read by others only between
 * fs_recording_hold and …_release. */
#include "sources/native.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "ops/observer.h"

enum { PENDING_CAPACITY = 4096 };

/* Device work whose time is not resolved yet: the interval between two marks on the device's stream. */
typedef struct {
    uint32_t launcher;
    fs_device device;
    fs_mark *from, *to;
} pending;

/* The last resolved mark of a device on the host clock. */
typedef struct {
    fs_mark *mark;
    int64_t time;
    uint32_t lane;
} anchor;

enum { MAX_DEVICES = 64 }; /* the limit of the CUDA backend */

struct fs_recorder {
    fs_store *store;
    uint64_t serial; /* distinguishes recorders in known_signatures, where an address may be reused */
    fs_observer observer;
    fs_recorder_options options;
    _Atomic uint32_t *op_names; /* by index in fs_ops: store id of the op's name + 1; 0: not interned yet */
    uint32_t memory_name;
    atomic_llong lost;
    pthread_mutex_t lock;            /* of the members below */
    pending queue[PENDING_CAPACITY]; /* a ring of `waiting` entries from `first` */
    int first, waiting;
    anchor anchors[MAX_DEVICES];
};

static atomic_ullong recorder_serials;

static void lose(fs_recorder *recorder)
{
    atomic_fetch_add(&recorder->lost, 1);
}

/* Device times ----------------------------------------------------------------------------------------------------- */

static void release_mark(fs_device device, fs_mark *mark)
{
    if (mark != NULL) fs_backend_of(device)->mark_give(device, mark);
}

/* Anchor a device at its first op: after a wait for its stream, the mark's time is the present. */
static fs_status set_anchor(fs_recorder *recorder, fs_device device)
{
    anchor *at = &recorder->anchors[device.index];
    if (at->mark != NULL) return FS_OK;
    const fs_backend *backend = fs_backend_of(device);
    FS_TRY(fs_store_device_lane(recorder->store, device.index, 0, &at->lane, NULL));
    FS_TRY(backend->synchronize(device, NULL));
    FS_TRY(backend->mark_take(device, &at->mark, NULL));
    fs_status status = backend->synchronize(device, NULL);
    if (status != FS_OK) {
        release_mark(device, at->mark);
        at->mark = NULL;
    }
    at->time = fs_clock_now();
    return status;
}

/* Compute each mark's time from the previous one, so that long runs lose no precision. */
static fs_status resolve(fs_recorder *recorder, const pending *work, fs_error *err)
{
    const fs_backend *backend = fs_backend_of(work->device);
    anchor *at = &recorder->anchors[work->device.index];
    int64_t gap = 0, duration = 0;
    fs_status status;
    FS_TRY_GOTO(status, backend->mark_elapsed(work->device, at->mark, work->from, &gap, err), failed);
    FS_TRY_GOTO(status, backend->mark_elapsed(work->device, work->from, work->to, &duration, err), failed);
    fs_event event = fs_event_missing;
    fs_store_get(recorder->store, work->launcher, &event);
    event = (fs_event){
        .start = at->time + gap,
        .duration = duration,
        .name = event.name,
        .signature = FS_NONE,
        .parent = FS_NONE,
        .launcher = work->launcher,
        .correlation = FS_NONE,
        .lane = at->lane,
        .device = (int8_t)work->device.index,
        .kind = FS_EVENT_INTERVAL,
        .timing = FS_TIMING_EVENT,
    };
    release_mark(work->device, at->mark);
    release_mark(work->device, work->from);
    at->mark = work->to;
    at->time = event.start + duration;
    return fs_store_append(recorder->store, &event, NULL, err);
failed:
    release_mark(work->device, work->from);
    release_mark(work->device, work->to);
    return status;
}

/* Resolve until at most `keep` are left. All are tried; the first error is returned. */
static fs_status resolve_all(fs_recorder *recorder, int keep, fs_error *err)
{
    fs_status first = FS_OK;
    while (recorder->waiting > keep) {
        fs_status status = resolve(recorder, &recorder->queue[recorder->first], first == FS_OK ? err : NULL);
        recorder->first = (recorder->first + 1) % PENDING_CAPACITY;
        recorder->waiting--;
        if (status != FS_OK) lose(recorder);
        if (first == FS_OK) first = status;
    }
    return first;
}

/* Record a mark before an op's work. If that fails, return NULL and count a lost event. */
static fs_mark *mark_before(fs_recorder *recorder, fs_device device)
{
    fs_mark *mark = NULL;
    pthread_mutex_lock(&recorder->lock);
    fs_status status = set_anchor(recorder, device);
    pthread_mutex_unlock(&recorder->lock);
    if (status == FS_OK) status = fs_backend_of(device)->mark_take(device, &mark, NULL);
    if (status != FS_OK) lose(recorder);
    return mark;
}

static void queue_work(fs_recorder *recorder, uint32_t launcher, fs_device device, fs_mark *from)
{
    fs_mark *to;
    if (fs_backend_of(device)->mark_take(device, &to, NULL) != FS_OK) {
        release_mark(device, from);
        lose(recorder);
        return;
    }
    pthread_mutex_lock(&recorder->lock);
    if (recorder->waiting == PENDING_CAPACITY) FS_IGNORE(resolve_all(recorder, PENDING_CAPACITY / 2, NULL));
    recorder->queue[(recorder->first + recorder->waiting++) % PENDING_CAPACITY] =
        (pending){.launcher = launcher, .device = device, .from = from, .to = to};
    pthread_mutex_unlock(&recorder->lock);
}

/* The observer ----------------------------------------------------------------------------------------------------- */

/* The mark before the op in flight on this thread. Ops do not nest. */
static _Thread_local fs_mark *mark_in_flight;

static fs_status op_name(fs_recorder *recorder, const fs_op *op, uint32_t *id)
{
    _Atomic uint32_t *cached = &recorder->op_names[op - fs_ops];
    uint32_t known = atomic_load_explicit(cached, memory_order_relaxed);
    if (known == 0) {
        char name[64] = FS_OP_NAMESPACE;
        strncat(name, op->name, sizeof name - sizeof FS_OP_NAMESPACE);
        FS_TRY(fs_store_name(recorder->store, name, &known, NULL));
        atomic_store_explicit(cached, ++known, memory_order_relaxed);
    }
    *id = known - 1;
    return FS_OK;
}

/* The signatures that this thread interned last, by op: a loop repeats each op with the same shapes. */
enum { KNOWN_SIGNATURES = 16, KNOWN_BYTES = 160 };
static _Thread_local struct {
    uint64_t recorder; /* serial */
    const fs_op *op;
    size_t size;
    uint32_t id;
    _Alignas(8) char bytes[KNOWN_BYTES];
} known_signatures[KNOWN_SIGNATURES];

static fs_status signature_id(fs_recorder *recorder, const fs_op *op, const fs_signature *signature, uint32_t *id)
{
    _Alignas(8) char bytes[FS_SIGNATURE_MAX_BYTES];
    size_t size = fs_signature_encode(signature, bytes), place = (size_t)(op - fs_ops) % KNOWN_SIGNATURES;
    if (known_signatures[place].recorder == recorder->serial && known_signatures[place].op == op &&
        known_signatures[place].size == size && memcmp(known_signatures[place].bytes, bytes, size) == 0) {
        *id = known_signatures[place].id;
        return FS_OK;
    }
    FS_TRY(fs_store_signature(recorder->store, bytes, size, id, NULL));
    if (size > KNOWN_BYTES) return FS_OK;
    known_signatures[place].recorder = recorder->serial;
    known_signatures[place].op = op;
    known_signatures[place].size = size;
    known_signatures[place].id = *id;
    memcpy(known_signatures[place].bytes, bytes, size);
    return FS_OK;
}

static fs_status record_op(fs_recorder *recorder, const fs_op *op, const fs_signature *signature, uint32_t *index)
{
    uint32_t name, shapes;
    FS_TRY(op_name(recorder, op, &name));
    FS_TRY(signature_id(recorder, op, signature, &shapes));
    return fs_store_begin(recorder->store, FS_EVENT_OP, name, shapes, fs_clock_now(), index, NULL);
}

static uint64_t begin_op(void *context, const fs_op *op, const fs_signature *signature, fs_device device)
{
    fs_recorder *recorder = context;
    uint32_t index;
    if (!recorder->options.ops) return FS_NONE;
    /* Record the mark first, so that its cost is not part of the op. */
    bool marks = recorder->options.event_times && device.kind == FS_CUDA;
    mark_in_flight = marks ? mark_before(recorder, device) : NULL;
    if (record_op(recorder, op, signature, &index) == FS_OK) return index;
    release_mark(device, mark_in_flight);
    lose(recorder);
    return FS_NONE;
}

/* An op that failed did no work: it gets its own row, which no rule matches. */
static void mark_failed(fs_recorder *recorder, uint32_t index, const fs_op *op)
{
    char name[64];
    uint32_t id;
    snprintf(name, sizeof name, FS_OP_NAMESPACE "%s (failed)", op->name);
    if (fs_store_name(recorder->store, name, &id, NULL) == FS_OK) {
        fs_store_rename(recorder->store, index, id);
    } else {
        lose(recorder);
    }
}

static void end_op(void *context, uint64_t token, const fs_op *op, fs_device device, bool failed)
{
    fs_recorder *recorder = context;
    if (token == FS_NONE) return;
    if (failed) mark_failed(recorder, (uint32_t)token, op);
    fs_store_end(recorder->store, (uint32_t)token, fs_clock_now());
    if (mark_in_flight != NULL) queue_work(recorder, (uint32_t)token, device, mark_in_flight);
}

static void record_memory(void *context, fs_device device, int64_t delta, uint64_t address)
{
    fs_recorder *recorder = context;
    _Alignas(8) char bytes[FS_MEMORY_STATE_BYTES];
    if (!recorder->options.profile_memory) return;
    const fs_backend *backend = fs_backend_of(device);
    fs_memory_state state = {backend->allocated(device), backend->reserved(device), address};
    if (delta < 0) state.allocated += delta; /* it is released next */
    fs_memory_state_encode(&state, bytes);
    fs_event event = fs_event_missing;
    event.kind = FS_EVENT_MEMORY;
    event.name = recorder->memory_name;
    event.start = fs_clock_now();
    event.duration = 0;
    event.bytes = delta;
    event.parent = fs_store_innermost(recorder->store);
    event.device = device.kind == FS_CUDA ? (int8_t)device.index : -1;
    if (fs_store_thread_lane(recorder->store, &event.lane, NULL) != FS_OK ||
        fs_store_append_signature(recorder->store, bytes, sizeof bytes, &event.signature, NULL) != FS_OK ||
        fs_store_append(recorder->store, &event, NULL, NULL) != FS_OK) {
        lose(recorder);
    }
}

static void run_task(void *context, uint64_t task)
{
    fs_store_run_task(((fs_recorder *)context)->store, task);
}

/* Creation and destruction ----------------------------------------------------------------------------------------- */

fs_status fs_recorder_create(fs_recorder **recorder, fs_store *store, const fs_recorder_options *options, fs_error *err)
{
    fs_recorder *created = fs_calloc(1, sizeof *created);
    _Atomic uint32_t *op_names = fs_calloc((size_t)fs_op_count, sizeof *op_names);
    if (created == NULL || op_names == NULL || fs_store_name(store, "[memory]", &created->memory_name, err) != FS_OK) {
        fs_free(created);
        fs_free(op_names);
        return fs_no_memory(err);
    }
    created->store = store;
    created->serial = atomic_fetch_add(&recorder_serials, 1) + 1;
    created->options = *options;
    created->op_names = op_names;
    created->observer = (fs_observer){.context = created,
                                      .begin = begin_op,
                                      .end = end_op,
                                      .memory = record_memory,
                                      .task = run_task,
                                      .serial = created->serial};
    pthread_mutex_init(&created->lock, NULL);
    *recorder = created;
    return FS_OK;
}

void fs_recorder_destroy(fs_recorder *recorder)
{
    if (recorder == NULL) return;
    pthread_mutex_destroy(&recorder->lock);
    fs_free(recorder->op_names);
    fs_free(recorder);
}

static struct {
    pthread_mutex_t lock;
    fs_store *store; /* of the running recorder */
} recording = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void set_recording(fs_store *store)
{
    pthread_mutex_lock(&recording.lock);
    recording.store = store;
    pthread_mutex_unlock(&recording.lock);
}

fs_store *fs_recording_hold(void)
{
    pthread_mutex_lock(&recording.lock);
    return recording.store;
}

void fs_recording_release(void)
{
    pthread_mutex_unlock(&recording.lock);
}

void fs_recorder_move(fs_recorder *recorder, fs_store *store)
{
    recorder->store = store;
    recorder->serial = atomic_fetch_add(&recorder_serials, 1) + 1;
    for (int i = 0; i < fs_op_count; i++) atomic_store(&recorder->op_names[i], 0);
}

fs_status fs_recorder_start(fs_recorder *recorder, fs_error *err)
{
    if (fs_observer_get() != NULL) {
        return fs_fail(err, FS_RUNTIME_ERROR, "a profile is in progress already; stop it before starting another");
    }
    fs_store_set_window(recorder->store, fs_clock_now(), FS_MISSING);
    fs_observer_set(&recorder->observer);
    set_recording(recorder->store);
    return FS_OK;
}

fs_status fs_recorder_stop(fs_recorder *recorder, fs_error *err)
{
    int64_t begin, end;
    if (fs_observer_get() == &recorder->observer) { /* otherwise it never started */
        set_recording(NULL);
        fs_observer_set(NULL);
    }
    fs_store_window(recorder->store, &begin, &end);
    end = fs_clock_now();
    fs_store_end_all(recorder->store, end);
    fs_store_set_window(recorder->store, begin, end);
    pthread_mutex_lock(&recorder->lock);
    fs_status status = resolve_all(recorder, 0, err);
    for (int i = 0; i < MAX_DEVICES; i++) {
        release_mark((fs_device){FS_CUDA, i}, recorder->anchors[i].mark);
        recorder->anchors[i].mark = NULL;
    }
    pthread_mutex_unlock(&recorder->lock);
    return status;
}

fs_status fs_recorder_begin_range(fs_recorder *recorder, fs_event_kind kind, const char *name,
                                  const fs_given_work *work, uint32_t *index, fs_error *err)
{
    uint32_t id, signature = FS_NONE;
    FS_TRY(fs_store_name(recorder->store, name, &id, err));
    if (work != NULL) {
        _Alignas(8) char bytes[FS_GIVEN_WORK_BYTES];
        fs_given_work_encode(work, bytes);
        FS_TRY(fs_store_signature(recorder->store, bytes, sizeof bytes, &signature, err));
    }
    return fs_store_begin(recorder->store, kind, id, signature, fs_clock_now(), index, err);
}

void fs_recorder_end_range(fs_recorder *recorder, uint32_t index)
{
    fs_store_end(recorder->store, index, fs_clock_now());
}

int64_t fs_recorder_lost(const fs_recorder *recorder)
{
    return atomic_load(&recorder->lost);
}
