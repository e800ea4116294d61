/* Profiler: the sources that fill a Store while it runs. */
#include "python/profiler.h"

#include <math.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/memory.h"
#include "python/store_methods.h"
#include "python/task.h"
#include "sources/attribute.h"
#include "store/event.h"

PyTypeObject *fs_profiler_type;

bool fs_profiler_runs(const fs_profiler_object *self)
{
    return fs_store_object_is_filled(self->into);
}

static fs_nvtx_report ranges_of_nvtx(const fs_profiler_object *self)
{
    return self->hears_nvtx && fs_profiler_runs(self) ? fs_nvtx_counts() : self->ranges;
}

static int64_t lost(const void *source)
{
    const fs_profiler_object *self = source;
    bool capturing = self->captures && fs_profiler_runs(self);
    return fs_recorder_lost(self->recorder) + self->frames_lost + (capturing ? fs_cupti_last() : self->cupti).dropped +
           ranges_of_nvtx(self).lost;
}

static PyObject *profiler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"profile_memory", "ops",        "event_times", "cupti", "api_calls", "may_share",
                            "buffer_bytes",   "most_bytes", "with_stack",  "nvtx",  NULL};
    int profile_memory = 0, ops = 1, event_times = 1, cupti = 0, api_calls = 1, may_share = 0, with_stack = 0, nvtx = 0;
    Py_ssize_t buffer_bytes = 0, most_bytes = 0;
    if (!fs_parse_arguments(args, kwargs, "|ppppppnnpp:Profiler", names, &profile_memory, &ops, &event_times, &cupti,
                            &api_calls, &may_share, &buffer_bytes, &most_bytes, &with_stack, &nvtx))
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
    self->nvtx = nvtx;
    fs_error err;
    if ((self->into = fs_store_object_create()) == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    if (fs_recorder_create(&self->recorder, self->into->store, &self->options, &err) != FS_OK) {
        Py_DECREF(self);
        return fs_raise(&err);
    }
    self->into->profile_memory = profile_memory;
    self->into->lost = lost;
    self->into->source = self;
    return (PyObject *)self;
}

/* Start the sources. The recorder starts last and stops first. */
static fs_status start_sources(fs_profiler_object *self, fs_error *err)
{
    fs_status status = FS_OK;
    self->into->generation = fs_fork_generation();
    self->late_count = 0;
    if (self->captures) {
        self->into->changing = true;
        status = FS_WITHOUT_GIL(fs_cupti_start(self->into->store, &self->cupti_options, NULL, err));
        self->into->changing = false;
    }
    if (status != FS_OK) return status;
    status = fs_recorder_start(self->recorder, err);
    if (status != FS_OK && self->captures) FS_IGNORE(fs_cupti_stop(NULL));
    self->into->filled = status == FS_OK;
    self->hears_nvtx = status == FS_OK && self->nvtx && fs_nvtx_begin(self->into->store);
    return status;
}

static void stop_nvtx(fs_profiler_object *self)
{
    if (self->hears_nvtx) self->ranges = fs_nvtx_end();
    self->hears_nvtx = false;
}

/* Put late ops where they belong, and find what launched the work, in a store whose recording has ended. */
static fs_status complete(fs_profiler_object *self, fs_store **store, fs_error *err)
{
    if (self->late_count > 0) {
        fs_store *whole;
        FS_TRY(fs_store_create(&whole, err));
        fs_status status = fs_store_insert(*store, self->late, self->late_count, whole, err);
        self->late_count = 0;
        if (status != FS_OK) {
            fs_store_destroy(whole);
            return status;
        }
        fs_store_destroy(*store);
        *store = whole;
    }
    if (!self->captures) return FS_OK;
    FS_TRY(fs_attribute(*store, err));
    FS_TRY(fs_nvtx_join_nccl(*store, err));
    return fs_store_object_join_watched(store, err);
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
    self->into->filled = false;
    if (!here) return FS_OK;
    stop_nvtx(self);
    self->into->changing = true;
    Py_BEGIN_ALLOW_THREADS;
    status = fs_recorder_stop(self->recorder, err);
    if (self->captures) {
        fs_status stopped = fs_cupti_stop(status == FS_OK ? err : NULL);
        if (status == FS_OK) status = stopped;
        self->cupti = fs_cupti_last();
    }
    fs_status completed = complete(self, &self->into->store, status == FS_OK ? err : NULL);
    if (status == FS_OK) status = completed;
    fs_recorder_move(self->recorder, self->into->store);
    Py_END_ALLOW_THREADS;
    self->into->changing = false;
    return status;
}

static void profiler_dealloc(PyObject *object)
{
    fs_profiler_object *self = (fs_profiler_object *)object;
    if (self->into != NULL && self->into->filled) FS_IGNORE(stop_sources(self, NULL));
    if (self->into != NULL && self->recorder != NULL) {
        self->into->dropped += lost(self);
        self->into->lost = NULL;
    }
    fs_recorder_destroy(self->recorder);
    fs_free(self->late);
    Py_XDECREF(self->into);
    fs_free_object(object);
}

static PyObject *profiler_start(PyObject *object, PyObject *Py_UNUSED(unused))
{
    fs_error err;
    fs_profiler_object *self = (fs_profiler_object *)object;
    if (!fs_store_object_may_change(self->into)) return NULL;
    if (self->into->generation != fs_fork_generation())
        self->into->filled = self->into->changing = false; /* in the parent */
    if (start_sources(self, &err) != FS_OK) return fs_raise(&err);
    if (self->with_stack && (self->frames = fs_frames_start(self->into->store)) == NULL) {
        FS_IGNORE(stop_sources(self, NULL));
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *profiler_stop(PyObject *object, PyObject *Py_UNUSED(unused))
{
    fs_profiler_object *self = (fs_profiler_object *)object;
    fs_error err;
    if (!fs_store_object_may_change(self->into)) return NULL;
    if (!self->into->filled)
        return PyErr_Format(PyExc_RuntimeError, "this profile is not running: it was never started, or stopped before");
    return fs_none_or_raise(stop_sources(self, &err), &err);
}

/* A new store and recorder take the place of those so far, which `store` and `recorder` receive, stopped; the capture
 * goes on. collect: with all that CUPTI has to tell up to now. False, with an exception set, where nothing changed or
 * recording could not go on; `store` is NULL then.
 */
static bool begin_anew(fs_profiler_object *self, bool collect, fs_store **store, fs_recorder **recorder)
{
    fs_status status;
    fs_error err;
    fs_store *next_store = NULL;
    fs_recorder *next = NULL;
    *store = NULL;
    if (!fs_store_object_may_change(self->into)) return false;
    if (!fs_profiler_runs(self))
        return fs_refuse(PyExc_RuntimeError, "this profile is not running: there is nothing to begin anew");
    if (fs_store_create(&next_store, &err) != FS_OK ||
        fs_recorder_create(&next, next_store, &self->options, &err) != FS_OK) {
        fs_store_destroy(next_store);
        fs_raise(&err);
        return false;
    }
    stop_frames(self);
    self->into->changing = true;
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
    if (self->hears_nvtx) self->ranges = fs_nvtx_move(next_store);
    Py_END_ALLOW_THREADS;
    *recorder = self->recorder;
    *store = self->into->store;
    self->recorder = next;
    self->into->store = next_store;
    self->recording++;
    self->into->changing = false;
    if (status == FS_OK && self->with_stack && (self->frames = fs_frames_start(self->into->store)) == NULL)
        status = FS_RUNTIME_ERROR; /* and the exception is set */
    else if (status != FS_OK) fs_raise(&err);
    if (status == FS_OK) return true;
    fs_recorder_destroy(*recorder);
    fs_store_destroy(*store);
    *store = NULL;
    return false;
}

static PyObject *profiler_restart(PyObject *object, PyObject *Py_UNUSED(unused))
{
    fs_store *store;
    fs_recorder *recorder;
    fs_profiler_object *self = (fs_profiler_object *)object;
    if (!begin_anew(self, false, &store, &recorder)) return NULL;
    self->late_count = 0;
    fs_recorder_destroy(recorder);
    fs_store_destroy(store);
    Py_RETURN_NONE;
}

static PyObject *profiler_split(PyObject *object, PyObject *Py_UNUSED(unused))
{
    fs_profiler_object *self = (fs_profiler_object *)object;
    fs_error err;
    fs_status status = FS_OK;
    fs_recorder *recorder;
    fs_store_object *part = (fs_store_object *)fs_store_type->tp_alloc(fs_store_type, 0);
    if (part == NULL) return NULL;
    if (!begin_anew(self, true, &part->store, &recorder)) {
        Py_DECREF(part);
        return NULL;
    }
    part->dropped = fs_recorder_lost(recorder) + self->cupti.dropped + self->ranges.lost;
    fs_recorder_destroy(recorder);
    part->profile_memory = self->options.profile_memory;
    status = FS_WITHOUT_GIL(complete(self, &part->store, &err));
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
    bool has_work = !isnan(work.flops) || !isnan(work.bytes);
    fs_event_kind kind = is_step ? FS_EVENT_STEP : FS_EVENT_RANGE;
    if (fs_recorder_begin_range(self->recorder, kind, name, has_work ? &work : NULL, &index, &err) != FS_OK)
        return fs_raise(&err);
    return PyLong_FromUnsignedLongLong((uint64_t)self->recording << 32 | index);
}

static PyObject *profiler_end_range(PyObject *object, PyObject *token)
{
    fs_profiler_object *self = (fs_profiler_object *)object;
    unsigned long long token_value = PyLong_AsUnsignedLongLong(token);
    if (token_value == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
    uint32_t index = (uint32_t)token_value;
    /* A range of an earlier recording, or of the parent process, no longer exists. */
    if (token_value >> 32 != self->recording || self->into->generation != fs_fork_generation()) Py_RETURN_NONE;
    if (index >= fs_store_count(self->into->store))
        return PyErr_Format(PyExc_ValueError, "no event %u: the profile has %u", index,
                            fs_store_count(self->into->store));
    if (!fs_profiler_runs(self)) Py_RETURN_NONE; /* it has ended with the recording */
    uint8_t kind = FS_EVENT_AT(self->into->store, index, kind);
    if (kind != FS_EVENT_RANGE && kind != FS_EVENT_STEP)
        return PyErr_Format(PyExc_ValueError, "event %u is a %s, not a range", index, fs_event_kind_names[kind]);
    fs_recorder_end_range(self->recorder, index);
    Py_RETURN_NONE;
}

static PyObject *profiler_add_op(PyObject *object, PyObject *args)
{
    fs_profiler_object *self = (fs_profiler_object *)object;
    const char *name;
    long long duration;
    fs_error err;
    int64_t began, unknown;
    fs_late_op op = {.end = fs_clock_now()};
    if (!PyArg_ParseTuple(args, "sL:add_op", &name, &duration)) return NULL;
    if (!fs_profiler_runs(self)) Py_RETURN_NONE;
    fs_store *store = self->into->store;
    fs_store_window(store, &began, &unknown);
    op.start = duration < op.end - began ? op.end - duration : began;
    if (op.start >= op.end) Py_RETURN_NONE;
    fs_status status = fs_store_name(store, name, &op.name, &err);
    if (status == FS_OK) status = fs_store_thread_lane(store, &op.lane, &err);
    if (status == FS_OK) {
        op.open = fs_store_lane(store, op.lane).open;
        status = FS_LIST_ROOM(&self->late, self->late_count, &self->late_capacity, 64, &err);
    }
    if (status != FS_OK) return fs_raise(&err);
    self->late[self->late_count++] = op;
    Py_RETURN_NONE;
}

FS_GETTER(get_store, fs_profiler_object, Py_NewRef(self->into))
FS_GETTER(get_running, fs_profiler_object, PyBool_FromLong(fs_profiler_runs(self)))

static PyObject *get_capture(PyObject *object, void *Py_UNUSED(unused))
{
    const fs_profiler_object *self = (fs_profiler_object *)object;
    if (!self->captures) Py_RETURN_NONE;
    fs_cupti_report report = fs_profiler_runs(self) ? fs_cupti_last() : self->cupti;
    return Py_BuildValue("{s:L,s:L,s:I,s:O}", "dropped", (long long)report.dropped, "taken", (long long)report.taken,
                         "version", report.version, "shared", report.shared ? Py_True : Py_False);
}

static PyObject *get_nvtx(PyObject *object, void *Py_UNUSED(unused))
{
    fs_nvtx_report report = ranges_of_nvtx((fs_profiler_object *)object);
    return fs_nvtx_report_object(&report);
}

static PyMethodDef methods[] = {
    {"start", profiler_start, METH_NOARGS, "Record the ops of all threads. RuntimeError if another profile does."},
    {"stop", profiler_stop, METH_NOARGS,
     "Stop, close open ranges and wait for the devices. RuntimeError if not running."},
    {"restart", profiler_restart, METH_NOARGS,
     "Drop what was recorded so far and record on. RuntimeError if not running."},
    {"split", profiler_split, METH_NOARGS,
     "A Store of what was recorded so far; this one records on, anew. RuntimeError if not running."},
    {"begin_range", profiler_begin_range, METH_VARARGS,
     "begin_range($self, name, is_step=False, flops=nan, bytes=nan, /)\n--\n\n"
     "Open a user annotation on this thread; a token for end_range, None if not running."},
    {"end_range", profiler_end_range, METH_O, "Close the annotation of that token."},
    {"add_op", profiler_add_op, METH_VARARGS,
     "add_op($self, name, duration, /)\n--\n\n"
     "Record an op that ends now on this thread and took so many ns; nothing if not running."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"store", get_store, NULL, "The Store that it records into, to be read once it has stopped.", NULL},
    {"capture", get_capture, NULL,
     "Of CUPTI's capture, None without one: {\"dropped\", \"taken\", \"version\", \"shared\"}.", NULL},
    {"nvtx", get_nvtx, NULL, "Counts of what NVTX was called for: {\"ranges\", \"marks\", \"unmatched\", \"lost\"}.",
     NULL},
    {"running", get_running, NULL, "Whether it records now.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, profiler_new},
    {Py_tp_dealloc, profiler_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc,
     "Profiler(profile_memory=False, ops=True, event_times=True, cupti=False, api_calls=True, may_share=False, "
     "buffer_bytes=0, most_bytes=0, with_stack=False, nvtx=False)\n--\n\nRecords what runs into a store."},
    {0, NULL},
};

int fs_add_profiler(PyObject *module)
{
    return fs_add_type(module, &fs_profiler_type,
                       FS_TYPE_SPEC("flopscope._core.Profiler", fs_profiler_object, 0, slots));
}
