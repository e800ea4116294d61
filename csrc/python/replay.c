/* The type Replay: a store's steps, simulated with changes. Arrays of what may be changed go out, and arrays of changes
 * of the same lengths come in. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "python/arrays.h"
#include "python/store_object.h"
#include "replay/replay.h"

#include <structmember.h> /* after Python.h */

typedef struct {
    PyObject_HEAD
    fs_replay replay;
} replay_object;

static PyTypeObject *replay_type;

static fs_replay *replay_of(PyObject *object)
{
    return &((replay_object *)object)->replay;
}

/* Arrays ----------------------------------------------------------------------------------------------------------- */

/* Take an array of changes with one number for each item. None: the view stays empty. */
static bool take_changes(PyObject *object, Py_buffer *view, const char *format, Py_ssize_t count, const char *name)
{
    if (object == NULL || object == Py_None) return true;
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) return false;
    if (strcmp(view->format, format) == 0 && view->ndim == 1 && view->shape[0] == count) return true;
    return fs_refuse(PyExc_ValueError, "%s must be an array of %zd numbers of type '%s'", name, count, format);
}

static void release(Py_buffer *views, int count)
{
    for (int i = 0; i < count; i++)
        if (views[i].obj != NULL) PyBuffer_Release(&views[i]);
}

/* A field of works, or of calls: an integer of 1, 4 or 8 bytes. */
typedef struct {
    bool of_works;
    size_t offset, size;
} field;

#define FIELD(of_works, record, name) &(field){of_works, offsetof(record, name), sizeof((record *)0)->name}

static PyObject *get_column(PyObject *object, void *closure)
{
    const fs_replay *of = replay_of(object);
    const field *one = closure;
    uint32_t count = one->of_works ? of->work_count : of->call_count;
    const char *from = (one->of_works ? (const char *)of->works : (const char *)of->calls) + one->offset;
    size_t each = one->of_works ? sizeof *of->works : sizeof *of->calls;
    int64_t *values = fs_calloc(count + (size_t)1, sizeof *values);
    if (values == NULL) return PyErr_NoMemory();
    for (uint32_t i = 0; i < count; i++) memcpy(&values[i], from + i * each, one->size); /* little endian */
    return fs_array_taking(values, (Py_ssize_t)count, FS_ARRAY_INT64);
}

/* Methods ---------------------------------------------------------------------------------------------------------- */

static PyObject *run(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"work_factor", "gone", "host_factor", "event_ns", NULL};
    const fs_replay *of = replay_of(object);
    PyObject *given[3] = {NULL};
    Py_buffer views[3] = {{0}};
    double ns = NAN, event_ns = of->event_ns;
    fs_error err;
    if (!fs_parse_arguments(args, kwargs, "|$OOOd:run", names, &given[0], &given[1], &given[2], &event_ns)) return NULL;
    Py_ssize_t works = of->work_count, calls = of->call_count;
    bool good = take_changes(given[0], &views[0], "d", works, names[0]) &&
                take_changes(given[1], &views[1], "B", calls, names[1]) &&
                take_changes(given[2], &views[2], "d", calls, names[2]);
    fs_replay_edit edit = {views[0].buf, views[1].buf, views[2].buf, event_ns, false, false};
    fs_status status = good ? FS_LONG_WORK(fs_replay_run(of, &edit, &ns, &err)) : FS_OK;
    release(views, 3);
    if (!good) return NULL;
    return status == FS_OK ? PyFloat_FromDouble(ns) : fs_raise(&err);
}

static PyObject *fit(PyObject *object, PyObject *args)
{
    double event_ns, ns;
    int host_alone = 0;
    fs_error err;
    if (!PyArg_ParseTuple(args, "d|p:fit", &ns, &host_alone)) return NULL;
    if (FS_LONG_WORK(fs_replay_fit(replay_of(object), ns, host_alone, &event_ns, &err)) != FS_OK) return fs_raise(&err);
    return isnan(event_ns) ? Py_NewRef(Py_None) : PyFloat_FromDouble(event_ns);
}

static PyObject *replay_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"store", "begins", "ends", NULL};
    PyObject *store, *begins, *ends, *self = NULL;
    Py_buffer views[2] = {{0}};
    fs_error err;
    if (!fs_parse_arguments(args, kwargs, "O!OO:Replay", names, fs_store_type, &store, &begins, &ends)) return NULL;
    const fs_store_object *of = (fs_store_object *)store;
    if (!fs_store_object_is_stopped(of, "replay") || !fs_store_object_may_change(of)) return NULL;
    bool good = fs_take_numbers(begins, &views[0], true, "begins") && fs_take_numbers(ends, &views[1], true, "ends");
    if (good && views[0].len != views[1].len)
        good = fs_refuse(PyExc_ValueError, "there must be as many ends as begins");
    if (good) self = type->tp_alloc(type, 0);
    uint32_t count = (uint32_t)(views[0].len / 8);
    if (self != NULL && /* with the GIL */
        fs_replay_build(replay_of(self), of->store, views[0].buf, views[1].buf, count, &err) != FS_OK) {
        Py_CLEAR(self);
        fs_raise(&err);
    }
    release(views, 2);
    return self;
}

static void replay_dealloc(PyObject *self)
{
    fs_replay_clear(replay_of(self));
    fs_free_object(self);
}

static PyMethodDef methods[] = {
    {"run", (PyCFunction)(void (*)(void))run, METH_VARARGS | METH_KEYWORDS,
     "run($self, *, work_factor=None, gone=None, host_factor=None, event_ns=...)\n--\n\n"
     "Return the ns that a step takes with changes. work_factor: float64 by work, of its time; 0: it is gone. gone: "
     "uint8 by call:\nit takes no time and does not wait. host_factor: float64 by call, of the host's time before it "
     "and "
     "of its own. event_ns: what recording an event cost the host; that of fit(), or else 0."},
    {"fit", fit, METH_VARARGS,
     "fit($self, bare_ns, host_alone=False, /)\n--\n\nFind and keep the least ns that recording an event cost, if a "
     "step takes bare_ns without a recording; host_alone:\nwith devices that take no time. None: no cost gives that "
     "time."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"work_event", get_column, NULL, "By work: its event.", FIELD(true, fs_replay_work, event)},
    {"work_call", get_column, NULL, "By work: the call that launched it.", FIELD(true, fs_replay_work, call)},
    {"call_event", get_column, NULL, "By call: its event, or 2**32 - 1.", FIELD(false, fs_replay_call, event)},
    {"call_begin", get_column, NULL, "By call: when it began, ns since `begin`.", FIELD(false, fs_replay_call, begin)},
    {"call_gap", get_column, NULL, "By call: ns of the host before it.", FIELD(false, fs_replay_call, gap)},
    {"call_own", get_column, NULL, "By call: ns of its own, without waiting.", FIELD(false, fs_replay_call, own)},
    {"call_kind", get_column, NULL, "By call: its place in Replay.kinds.", FIELD(false, fs_replay_call, kind)},
    {"call_sequence", get_column, NULL, "By call: its threads.", FIELD(false, fs_replay_call, sequence)},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"begin", T_LONGLONG, offsetof(replay_object, replay.begin), READONLY, "When the steps begin, ns of the store."},
    {"recorded", T_DOUBLE, offsetof(replay_object, replay.recorded), READONLY, "The ns of a step as recorded."},
    {"replayed", T_DOUBLE, offsetof(replay_object, replay.replayed), READONLY, "The same of the replay, unchanged."},
    {"usable", T_BOOL, offsetof(replay_object, replay.usable), READONLY,
     "Whether these differ by at most 3 %, and the launches were recorded."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, replay_new},
    {Py_tp_dealloc, replay_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {Py_tp_doc, "Replay(store, begins, ends)\n--\n\nConsecutive steps, from begins[i] to ends[i] on the host in ns of "
                "the store, to be simulated with changes: csrc/replay/replay.h."},
    {0, NULL},
};

int fs_add_replay(PyObject *module)
{
    if (fs_add_type(module, &replay_type, FS_TYPE_SPEC("flopscope._core.Replay", replay_object, 0, slots)) < 0)
        return -1;
    PyObject *dict = replay_type->tp_dict;
    return fs_put_column(dict, "kinds", fs_names_object(fs_replay_kind_names, FS_REPLAY_KIND_COUNT)) ? 0 : -1;
}
