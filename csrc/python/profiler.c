/* Profiler: a store, and the sources that fill it while it runs. */
#include "python/profiler.h"

#include <math.h>
#include <string.h>

#include "base/fork.h"
#include "python/task.h"
#include "sources/attribute.h"
#include "store/event.h"
#include "store/signature.h"
#include "store/torch_signature.h"

PyTypeObject *fs_profiler_type;

bool fs_profiler_runs(const fs_profiler_object *self)
{
    return self->running && self->generation == fs_fork_generation();
}

bool fs_profiler_is_stopped(const fs_profiler_object *self, const char *what)
{
    bool runs = fs_profiler_runs(self) || (self->changing && self->generation == fs_fork_generation());
    if (runs) PyErr_Format(PyExc_RuntimeError, "the profile is still running; stop it before asking for its %s", what);
    return !runs;
}

int64_t fs_profiler_dropped(const fs_profiler_object *self)
{
    bool capturing = self->captures && fs_profiler_runs(self);
    return fs_recorder_lost(self->recorder) + self->frames_lost + (capturing ? fs_cupti_last() : self->cupti).dropped;
}

static PyObject *profiler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"profile_memory", "ops",          "event_times", "cupti",      "api_calls",
                            "may_share",      "buffer_bytes", "most_bytes",  "with_stack", NULL};
    int profile_memory = 0, ops = 1, event_times = 1, cupti = 0, api_calls = 1, may_share = 0, with_stack = 0;
    Py_ssize_t buffer_bytes = 0, most_bytes = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|ppppppnnp:Profiler", names, &profile_memory, &ops, &event_times,
                                     &cupti, &api_calls, &may_share, &buffer_bytes, &most_bytes, &with_stack))
        return NULL;
    fs_profiler_object *self = (fs_profiler_object *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->options =
        (fs_recorder_options){.ops = ops, .profile_memory = profile_memory, .event_times = event_times && !cupti};
    self->cupti_options = (fs_cupti_options){.api_calls = api_calls,
                                             .may_share = may_share,
                                             .buffer_bytes = (size_t)buffer_bytes,
                                             .most_bytes = (size_t)most_bytes};
    self->captures = cupti;
    self->with_stack = with_stack;
    fs_error err;
    if (fs_store_create(&self->store, &err) != FS_OK ||
        fs_recorder_create(&self->recorder, self->store, &self->options, &err) != FS_OK) {
        Py_DECREF(self);
        return fs_raise(&err);
    }
    return (PyObject *)self;
}

bool fs_profiler_may_change(const fs_profiler_object *self)
{
    bool changing = self->changing && self->generation == fs_fork_generation();
    bool read = self->readers > 0 && self->readers_generation == fs_fork_generation();
    if (!changing && !read) return true;
    PyErr_SetString(PyExc_RuntimeError, changing ? "another thread is starting or stopping this profile"
                                                 : "this profile is being read: nothing may change it until its table, "
                                                   "trace or summary is made");
    return false;
}

/* In a forked child nobody reads any more. */
static PyObject *read_stopped(PyObject *object, PyObject *args, const char *what, PyCFunction method)
{
    fs_profiler_object *self = (fs_profiler_object *)object;
    uint32_t generation = fs_fork_generation();
    if (!fs_profiler_is_stopped(self, what)) return NULL;
    if (self->readers_generation != generation) self->readers = 0;
    self->readers_generation = generation;
    self->readers++;
    PyObject *result = method(object, args);
    if (self->readers_generation == generation) self->readers--;
    return result;
}

/* What reads a stopped profile: nothing may change the store meanwhile. X(method, what it gives) */
#define READING_METHODS(X)              \
    X(table, "table")                   \
    X(events, "events")                 \
    X(gpu_summary, "GPU summary")       \
    X(step_breakdown, "step breakdown") \
    X(launch_summary, "launch summary") \
    X(collectives, "collectives")       \
    X(stream_summary, "stream summary") \
    X(write_trace, "trace")
#define READING_METHOD(method, what)                                      \
    static PyObject *reading_##method(PyObject *object, PyObject *args)   \
    {                                                                     \
        return read_stopped(object, args, what, fs_profiler_##method);    \
    }
READING_METHODS(READING_METHOD)

/* The sources start and stop: the one that says what was asked for last and first. */
static fs_status start_sources(fs_profiler_object *self, fs_error *err)
{
    fs_status status = FS_OK;
    self->generation = fs_fork_generation();
    if (self->captures) {
        self->changing = true;
        Py_BEGIN_ALLOW_THREADS status = fs_cupti_start(self->store, &self->cupti_options, NULL, err);
        Py_END_ALLOW_THREADS self->changing = false;
    }
    if (status != FS_OK) return status;
    status = fs_recorder_start(self->recorder, err);
    if (status != FS_OK && self->captures) FS_IGNORE(fs_cupti_stop(NULL));
    self->running = status == FS_OK;
    return status;
}

static void stop_frames(fs_profiler_object *self)
{
    fs_frames_stop(self->frames, &self->frames_lost);
    self->frames = NULL;
}

/* In a forked child only the profile's own state changes: locks may be held by threads that stayed behind. */
static fs_status stop_sources(fs_profiler_object *self, fs_error *err)
{
    fs_status status = FS_OK;
    stop_frames(self);
    bool here = fs_profiler_runs(self);
    self->running = false;
    if (!here) return FS_OK;
    self->changing = true;
    Py_BEGIN_ALLOW_THREADS;
    status = fs_recorder_stop(self->recorder, err);
    if (self->captures) {
        fs_status stopped = fs_cupti_stop(status == FS_OK ? err : NULL);
        if (status == FS_OK) status = stopped;
        self->cupti = fs_cupti_last();
        fs_status attributed = fs_attribute(self->store, status == FS_OK ? err : NULL);
        if (status == FS_OK) status = attributed;
    }
    Py_END_ALLOW_THREADS;
    self->changing = false;
    return status;
}

static void profiler_dealloc(PyObject *object)
{
    fs_profiler_object *self = (fs_profiler_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->running) FS_IGNORE(stop_sources(self, NULL));
    fs_recorder_destroy(self->recorder);
    fs_store_destroy(self->store);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *profiler_start(PyObject *object, PyObject *unused)
{
    (void)unused;
    fs_error err;
    fs_profiler_object *self = (fs_profiler_object *)object;
    if (!fs_profiler_may_change(self)) return NULL;
    if (self->generation != fs_fork_generation()) self->running = self->changing = false; /* in the parent */
    if (start_sources(self, &err) != FS_OK) return fs_raise(&err);
    if (self->with_stack && (self->frames = fs_frames_start(self->store)) == NULL) {
        FS_IGNORE(stop_sources(self, NULL));
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *profiler_stop(PyObject *object, PyObject *unused)
{
    (void)unused;
    fs_profiler_object *self = (fs_profiler_object *)object;
    fs_error err;
    if (!fs_profiler_may_change(self)) return NULL;
    if (!self->running) {
        PyErr_SetString(PyExc_RuntimeError, "this profile is not running: it was never started, or stopped before");
        return NULL;
    }
    if (stop_sources(self, &err) != FS_OK) return fs_raise(&err);
    Py_RETURN_NONE;
}

/* A new store and recorder take the place of those so far, which `store` and `recorder` receive, stopped; the capture
 * goes on. collect: with all that CUPTI has to tell up to now. False, with an exception set, where nothing changed or
 * recording could not go on; `store` is NULL then.
 */
static bool begin_anew(fs_profiler_object *self, bool collect, fs_store **store, fs_recorder **recorder)
{
    fs_error err;
    fs_store *next_store = NULL;
    fs_recorder *next = NULL;
    fs_status status;
    *store = NULL;
    if (!fs_profiler_may_change(self)) return false;
    if (!fs_profiler_runs(self)) {
        PyErr_SetString(PyExc_RuntimeError, "this profile is not running: there is nothing to begin anew");
        return false;
    }
    if (fs_store_create(&next_store, &err) != FS_OK ||
        fs_recorder_create(&next, next_store, &self->options, &err) != FS_OK) {
        fs_store_destroy(next_store);
        fs_raise(&err);
        return false;
    }
    stop_frames(self);
    self->changing = true;
    Py_BEGIN_ALLOW_THREADS;
    status = collect && self->captures ? fs_cupti_collect(&err) : FS_OK;
    fs_status stopped = fs_recorder_stop(self->recorder, status == FS_OK ? &err : NULL);
    if (collect && status == FS_OK) status = stopped;
    if (self->captures) {
        self->cupti = fs_cupti_last();
        fs_cupti_restart(next_store);
    }
    fs_status started = fs_recorder_start(next, status == FS_OK ? &err : NULL);
    if (status == FS_OK) status = started;
    Py_END_ALLOW_THREADS;
    *recorder = self->recorder;
    *store = self->store;
    self->recorder = next;
    self->store = next_store;
    self->store_generation++;
    self->changing = false;
    if (status == FS_OK && self->with_stack && (self->frames = fs_frames_start(self->store)) == NULL)
        status = FS_RUNTIME_ERROR; /* and the exception is set */
    else if (status != FS_OK) fs_raise(&err);
    if (status == FS_OK) return true;
    fs_recorder_destroy(*recorder);
    fs_store_destroy(*store);
    *store = NULL;
    return false;
}

void fs_profiler_empty(fs_profiler_object *self)
{
    fs_store *store = NULL;
    fs_recorder *recorder = NULL;
    if (fs_store_create(&store, NULL) != FS_OK ||
        fs_recorder_create(&recorder, store, &self->options, NULL) != FS_OK) {
        fs_store_destroy(store);
        return;
    }
    fs_recorder_destroy(self->recorder);
    fs_store_destroy(self->store);
    self->recorder = recorder;
    self->store = store;
    self->store_generation++;
}

static PyObject *profiler_restart(PyObject *object, PyObject *unused)
{
    (void)unused;
    fs_store *store;
    fs_recorder *recorder;
    if (!begin_anew((fs_profiler_object *)object, false, &store, &recorder)) return NULL;
    fs_recorder_destroy(recorder);
    fs_store_destroy(store);
    Py_RETURN_NONE;
}

static PyObject *profiler_split(PyObject *object, PyObject *unused)
{
    (void)unused;
    fs_profiler_object *self = (fs_profiler_object *)object;
    fs_error err;
    fs_status status = FS_OK;
    fs_profiler_object *part = (fs_profiler_object *)Py_TYPE(object)->tp_alloc(Py_TYPE(object), 0);
    if (part == NULL) return NULL;
    if (!begin_anew(self, true, &part->store, &part->recorder)) {
        part->recorder = NULL;
        Py_DECREF(part);
        return NULL;
    }
    part->options = self->options;
    part->cupti_options = self->cupti_options;
    part->cupti = self->cupti;
    part->captures = self->captures;
    part->generation = self->generation;
    if (part->captures) {
        Py_BEGIN_ALLOW_THREADS status = fs_attribute(part->store, &err);
        Py_END_ALLOW_THREADS
    }
    if (status == FS_OK) return (PyObject *)part;
    Py_DECREF(part);
    return fs_raise(&err);
}

static PyObject *profiler_begin_range(PyObject *object, PyObject *args)
{
    fs_profiler_object *self = (fs_profiler_object *)object;
    const char *name;
    int is_step = 0;
    fs_given_work work = {.flops = NAN, .bytes = NAN};
    fs_error err;
    uint32_t index;
    if (!PyArg_ParseTuple(args, "s|pdd:begin_range", &name, &is_step, &work.flops, &work.bytes)) return NULL;
    if (!fs_profiler_runs(self)) Py_RETURN_NONE;
    fs_task_look();
    if (!fs_profiler_runs(self)) Py_RETURN_NONE;
    bool said = !isnan(work.flops) || !isnan(work.bytes);
    fs_event_kind kind = is_step ? FS_EVENT_STEP : FS_EVENT_RANGE;
    if (fs_recorder_begin_range(self->recorder, kind, name, said ? &work : NULL, &index, &err) != FS_OK)
        return fs_raise(&err);
    return PyLong_FromUnsignedLongLong((uint64_t)self->store_generation << 32 | index);
}

static PyObject *profiler_end_range(PyObject *object, PyObject *token)
{
    fs_profiler_object *self = (fs_profiler_object *)object;
    unsigned long long given = PyLong_AsUnsignedLongLong(token);
    if (given == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
    uint32_t index = (uint32_t)given;
    /* A range of a store that is gone went with it. */
    if (given >> 32 != self->store_generation || self->generation != fs_fork_generation()) Py_RETURN_NONE;
    if (index >= fs_store_count(self->store)) {
        PyErr_Format(PyExc_ValueError, "no event %u: the profile has %u", index, fs_store_count(self->store));
        return NULL;
    }
    uint8_t kind = FS_EVENT_AT(self->store, index, kind);
    if (kind != FS_EVENT_RANGE && kind != FS_EVENT_STEP) {
        PyErr_Format(PyExc_ValueError, "event %u is a %s, not a range", index, fs_event_kind_names[kind]);
        return NULL;
    }
    if (fs_profiler_runs(self)) fs_recorder_end_range(self->recorder, index);
    Py_RETURN_NONE;
}

static PyObject *get_event_count(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(fs_store_count(((fs_profiler_object *)object)->store));
}

static PyObject *get_nbytes(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(fs_store_nbytes(((fs_profiler_object *)object)->store));
}

static PyObject *get_dropped(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(fs_profiler_dropped((fs_profiler_object *)object));
}

static PyObject *get_running(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(fs_profiler_runs((fs_profiler_object *)object));
}

static PyObject *get_capture(PyObject *object, void *unused)
{
    (void)unused;
    const fs_profiler_object *self = (fs_profiler_object *)object;
    if (!self->captures) Py_RETURN_NONE;
    fs_cupti_report report = fs_profiler_runs(self) ? fs_cupti_last() : self->cupti;
    return Py_BuildValue("{s:L,s:L,s:I,s:O}", "dropped", (long long)report.dropped, "taken", (long long)report.taken,
                         "version", report.version, "shared", report.shared ? Py_True : Py_False);
}

static int add_device(PyObject *names, fs_device device)
{
    PyObject *name = fs_device_object(device);
    int status = name == NULL ? -1 : PySet_Add(names, name);
    Py_XDECREF(name);
    return status;
}

/* Which devices ran ops: their peaks are asked for. */
static PyObject *get_devices(PyObject *object, void *unused)
{
    (void)unused;
    const fs_store *store = ((fs_profiler_object *)object)->store;
    PyObject *names = PySet_New(NULL);
    for (uint32_t i = 0; names != NULL && i < fs_store_signature_count(store); i++) {
        fs_signature signature;
        fs_span bytes = fs_store_signature_bytes(store, i);
        if (fs_signature_kind_of(bytes.bytes) != FS_SIGNATURE_CALL) continue;
        fs_signature_decode(bytes.bytes, bytes.size, &signature);
        fs_device device = {(fs_device_kind)signature.device_kind, signature.device_index};
        if (add_device(names, device) < 0) Py_CLEAR(names);
    }
    for (uint32_t i = 0; names != NULL && i < fs_store_lane_count(store); i++) {
        fs_lane lane = fs_store_lane(store, i);
        if (lane.on_device && add_device(names, (fs_device){FS_CUDA, lane.device}) < 0) Py_CLEAR(names);
    }
    return names;
}

/* By index, as the source knows them. */
static PyObject *get_device_names(PyObject *object, void *unused)
{
    (void)unused;
    const fs_store *store = ((fs_profiler_object *)object)->store;
    PyObject *names = PyDict_New();
    for (int i = 0; names != NULL && i < FS_DEVICE_LIMIT; i++) {
        fs_device_facts facts = fs_store_device(store, i);
        if (facts.name[0] == 0) continue;
        PyObject *index = PyLong_FromLong(i), *name = fs_text_object(facts.name);
        if (index == NULL || name == NULL || PyDict_SetItem(names, index, name) < 0) Py_CLEAR(names);
        Py_XDECREF(index);
        Py_XDECREF(name);
    }
    return names;
}

static PyObject *get_has_frames(PyObject *object, void *unused)
{
    (void)unused;
    const fs_store *store = ((fs_profiler_object *)object)->store;
    for (uint32_t i = 0; i < fs_store_count(store); i++)
        if (FS_EVENT_AT(store, i, kind) == FS_EVENT_FRAME) Py_RETURN_TRUE;
    Py_RETURN_FALSE;
}

static PyObject *get_has_shapes(PyObject *object, void *unused)
{
    (void)unused;
    const fs_store *store = ((fs_profiler_object *)object)->store;
    for (uint32_t id = 0; id < fs_store_signature_count(store); id++) {
        fs_span bytes = fs_store_signature_bytes(store, id);
        fs_torch_call call;
        if (fs_signature_kind_of(bytes.bytes) == FS_SIGNATURE_CALL) Py_RETURN_TRUE;
        if (fs_torch_decode(bytes.bytes, bytes.size, &call) && call.count > 0) Py_RETURN_TRUE;
    }
    Py_RETURN_FALSE;
}

static PyMethodDef methods[] = {
    {"start", profiler_start, METH_NOARGS, "Record the ops of all threads. RuntimeError if another profile does."},
    {"stop", profiler_stop, METH_NOARGS,
     "Stop, close open ranges and wait for the devices. RuntimeError if not running."},
    {"restart", profiler_restart, METH_NOARGS,
     "Drop what was recorded so far and record on. RuntimeError if not running."},
    {"split", profiler_split, METH_NOARGS,
     "A stopped Profiler of what was recorded so far; this one records on, anew. RuntimeError if not running."},
    {"begin_range", profiler_begin_range, METH_VARARGS,
     "begin_range($self, name, is_step=False, flops=nan, bytes=nan, /)\n--\n\n"
     "Open a user annotation on this thread; a token for end_range, None if not running."},
    {"end_range", profiler_end_range, METH_O, "Close the annotation of that token."},
    {"table", reading_table, METH_VARARGS,
     "table($self, by_shape, stack_n, peaks, cpu_alone=False, /)\n--\n\n(columns, meta) of the grouped events, by "
     "their stack_n innermost frames too; peaks by device name. cpu_alone: the program is known to have used no GPU."},
    {"events", reading_events, METH_NOARGS,
     "(columns, names, kinds, begin): each event in integers, what name and kind count in, the window's begin in ns."},
    {"gpu_summary", reading_gpu_summary, METH_VARARGS,
     "gpu_summary($self, step=None, /)\n--\n\nHow well each device was used, in percent; in steps of that name."},
    {"step_breakdown", reading_step_breakdown, METH_NOARGS, "What the time of each step went to, in ns."},
    {"launch_summary", reading_launch_summary, METH_NOARGS,
     "How the kernels of each device were launched, times in µs."},
    {"collectives", reading_collectives, METH_NOARGS,
     "(columns, begin): each kernel of communication, start in ns, other times in µs, sizes in bytes, bandwidths in "
     "GB/s; the window's begin in ns."},
    {"stream_summary", reading_stream_summary, METH_NOARGS,
     "How long each stream worked, beside others, and communicated, times in µs; stream None: the whole device."},
    {"write_trace", reading_write_trace, METH_VARARGS,
     "write_trace($self, write, version, members='', /)\n--\n\n"
     "Call write(bytes) with the pieces of a Chrome trace; how many events without a time it leaves out."},
    {"_append", (PyCFunction)(void (*)(void))fs_profiler_append, METH_VARARGS | METH_KEYWORDS,
     "Append an event, for tests; its index."},
    {"_set_device", fs_profiler_set_device, METH_VARARGS, "_set_device(index, facts): what is known of it, for tests."},
    {"_set_window", fs_profiler_set_window, METH_VARARGS, "_set_window(begin, end): in ns, for tests."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"event_count", get_event_count, NULL, "Events recorded.", NULL},
    {"nbytes", get_nbytes, NULL, "Memory that the events take, in bytes.", NULL},
    {"dropped", get_dropped, NULL, "Events that could not be kept.", NULL},
    {"capture", get_capture, NULL,
     "Of CUPTI's capture, None without one: {\"dropped\", \"taken\", \"version\", \"shared\"}.", NULL},
    {"running", get_running, NULL, "Whether it records now.", NULL},
    {"devices", get_devices, NULL, "Names of the devices that ran ops.", NULL},
    {"device_names", get_device_names, NULL, "What the drivers call the devices that are known, by index.", NULL},
    {"has_frames", get_has_frames, NULL, "Whether there are Python calls.", NULL},
    {"has_shapes", get_has_shapes, NULL, "Whether it is known what any op was called with.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, profiler_new},
    {Py_tp_dealloc, profiler_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc,
     "Profiler(profile_memory=False, ops=True, event_times=True, cupti=False, api_calls=True, may_share=False, "
     "buffer_bytes=0, most_bytes=0, with_stack=False)\n--\n\nRecords what runs into a store."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "flopscope._core.Profiler",
    .basicsize = sizeof(fs_profiler_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int fs_add_profiler(PyObject *module)
{
    return fs_add_type(module, &fs_profiler_type, &spec) < 0 ? -1 : fs_add_columns(module);
}
