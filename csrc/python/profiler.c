/* Profiler: a store, and the sources that fill it while it runs. */
#include "python/profiler.h"

#include <math.h>
#include <string.h>

#include "store/signature.h"

bool fs_profiler_is_stopped(const fs_profiler_object *self, const char *what)
{
    if (self->running) {
        PyErr_Format(PyExc_RuntimeError, "the profile is still running; stop it before asking for its %s", what);
    }
    return !self->running;
}

int64_t fs_profiler_dropped(const fs_profiler_object *self)
{
    return fs_recorder_lost(self->recorder);
}

static PyObject *profiler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"profile_memory", "ops", "event_times", NULL};
    int profile_memory = 0, ops = 1, event_times = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|ppp:Profiler", names, &profile_memory, &ops, &event_times))
        return NULL;
    fs_profiler_object *self = (fs_profiler_object *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->options = (fs_recorder_options){.ops = ops, .profile_memory = profile_memory, .event_times = event_times};
    fs_error err;
    if (fs_store_create(&self->store, &err) != FS_OK ||
        fs_recorder_create(&self->recorder, self->store, &self->options, &err) != FS_OK) {
        Py_DECREF(self);
        return fs_raise(&err);
    }
    return (PyObject *)self;
}

static fs_status stop_recorder(fs_profiler_object *self, fs_error *err)
{
    fs_status status;
    self->running = false;
    Py_BEGIN_ALLOW_THREADS status = fs_recorder_stop(self->recorder, err);
    Py_END_ALLOW_THREADS return status;
}

static void profiler_dealloc(PyObject *object)
{
    fs_profiler_object *self = (fs_profiler_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->running) stop_recorder(self, NULL);
    fs_recorder_destroy(self->recorder);
    fs_store_destroy(self->store);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *profiler_start(PyObject *object, PyObject *unused)
{
    (void)unused;
    fs_profiler_object *self = (fs_profiler_object *)object;
    fs_error err;
    if (fs_recorder_start(self->recorder, &err) != FS_OK) return fs_raise(&err);
    self->running = true;
    Py_RETURN_NONE;
}

static PyObject *profiler_stop(PyObject *object, PyObject *unused)
{
    (void)unused;
    fs_profiler_object *self = (fs_profiler_object *)object;
    fs_error err;
    if (!self->running) {
        PyErr_SetString(PyExc_RuntimeError, "this profile is not running: it was never started, or stopped before");
        return NULL;
    }
    if (stop_recorder(self, &err) != FS_OK) return fs_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *profiler_begin_range(PyObject *object, PyObject *args)
{
    fs_profiler_object *self = (fs_profiler_object *)object;
    const char *name;
    int is_step = 0;
    fs_given_work work = {NAN, NAN};
    fs_error err;
    uint32_t index;
    if (!PyArg_ParseTuple(args, "s|pdd:begin_range", &name, &is_step, &work.flops, &work.bytes)) return NULL;
    if (!self->running) Py_RETURN_NONE;
    bool said = !isnan(work.flops) || !isnan(work.bytes);
    fs_event_kind kind = is_step ? FS_EVENT_STEP : FS_EVENT_RANGE;
    if (fs_recorder_begin_range(self->recorder, kind, name, said ? &work : NULL, &index, &err) != FS_OK)
        return fs_raise(&err);
    return PyLong_FromUnsignedLong(index);
}

static PyObject *profiler_end_range(PyObject *object, PyObject *index)
{
    fs_profiler_object *self = (fs_profiler_object *)object;
    unsigned long at = PyLong_AsUnsignedLong(index);
    if (at == (unsigned long)-1 && PyErr_Occurred()) return NULL;
    if (at >= fs_store_count(self->store)) {
        PyErr_Format(PyExc_ValueError, "no event %lu: the profile has %lu", at,
                     (unsigned long)fs_store_count(self->store));
        return NULL;
    }
    fs_recorder_end_range(self->recorder, (uint32_t)at);
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
    return PyBool_FromLong(((fs_profiler_object *)object)->running);
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
        PyObject *name = fs_device_object((fs_device){(fs_device_kind)signature.device_kind, signature.device_index});
        if (name == NULL || PySet_Add(names, name) < 0) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyMethodDef methods[] = {
    {"start", profiler_start, METH_NOARGS, "Record the ops of all threads. RuntimeError if another profile does."},
    {"stop", profiler_stop, METH_NOARGS,
     "Stop, close open ranges and wait for the devices. RuntimeError if not running."},
    {"begin_range", profiler_begin_range, METH_VARARGS,
     "begin_range($self, name, is_step=False, flops=nan, bytes=nan, /)\n--\n\n"
     "Open a user annotation on this thread; its index, None if not running."},
    {"end_range", profiler_end_range, METH_O, "Close the annotation of that index."},
    {"table", fs_profiler_table, METH_VARARGS,
     "table($self, by_shape, peaks, /)\n--\n\n(columns, meta) of the grouped events; peaks by device name."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"event_count", get_event_count, NULL, "Events recorded.", NULL},
    {"nbytes", get_nbytes, NULL, "Memory that the events take, in bytes.", NULL},
    {"dropped", get_dropped, NULL, "Events that could not be kept.", NULL},
    {"running", get_running, NULL, "Whether it records now.", NULL},
    {"devices", get_devices, NULL, "Names of the devices that ran ops.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, profiler_new},
    {Py_tp_dealloc, profiler_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, "Profiler(profile_memory=False, ops=True, event_times=True)\n--\n\nRecords what runs into a store."},
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
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    int status = type != NULL ? PyModule_AddObjectRef(module, "Profiler", type) : -1;
    Py_XDECREF(type);
    return status == 0 ? fs_add_columns(module) : -1;
}
