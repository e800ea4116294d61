/* Range: a part of a program between __enter__ and __exit__, the base of record_function(); and the profile that
 * records ranges. The GIL guards all state. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "python/launch_hook.h"
#include "python/profiler.h"
#include "python/roofline.h"
#include "python/task.h"
#include "store/signature.h"

#include <structmember.h>

/* The profiler that records ranges, and the number of its recording. A range that began in an earlier recording is not
 * closed in a later one, whose events have the same indices. */
static fs_profiler_object *target;
static uint64_t recording, recordings;

/* An entry that is not yet closed. */
typedef struct {
    uint64_t recording; /* 0: the entry was not recorded */
    unsigned long thread;
    const PyObject *context; /* compared, never dereferenced: the context of the task that entered; NULL outside of
                              * any */
    uint32_t index;
} entry;

enum { OWN_ENTRIES = 2 };

typedef struct {
    PyObject_HEAD
    PyObject *name, *flops, *bytes, *unit; /* as passed */
    const char *text;                      /* of the name, which owns it */
    fs_given_work work;
    bool is_function; /* the work depends on the arguments of the decorated function */
    entry own[OWN_ENTRIES], *entries;
    size_t count, capacity;
} range_object;

/* Arguments ----------------------------------------------------------------------------------------------------- */

static bool take_name(range_object *self, PyObject *name)
{
    Py_ssize_t size;
    if (!PyUnicode_Check(name))
        return fs_refuse(PyExc_TypeError, "a range's name must be a string, not %s", Py_TYPE(name)->tp_name);
    const char *text = PyUnicode_AsUTF8AndSize(name, &size);
    if (text == NULL) return false;
    if (strlen(text) != (size_t)size)
        return fs_refuse(PyExc_ValueError, "a range's name cannot contain the character NUL: %R", name);
    self->text = text;
    Py_XSETREF(self->name, Py_NewRef(name));
    return true;
}

/* NaN if the argument is None. A function is called for each call of the decorated function. */
static bool take_work(range_object *self, PyObject *value, const char *what, double *work)
{
    *work = NAN;
    if (value == Py_None) return true;
    if (PyCallable_Check(value)) {
        self->is_function = true;
        return true;
    }
    *work = PyFloat_AsDouble(value);
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
        return fs_refuse(PyExc_TypeError, "%s of the range %R must be a number, a function or None, not %s", what,
                         self->name, Py_TYPE(value)->tp_name);
    }
    if (*work >= 0 && *work <= FS_MOST_WORK) return true;
    return fs_refuse(PyExc_ValueError, "%s of the range %R must be a finite number of at least 0, not %R", what,
                     self->name, value);
}

static bool take_unit(range_object *self, PyObject *value)
{
    memset(self->work.unit, 0, sizeof self->work.unit);
    if (value == Py_None) return true;
    const char *name = fs_unit_text(value);
    if (name == NULL) return false;
    if (self->flops == Py_None)
        return fs_refuse(PyExc_ValueError, "unit=%R of the range %R needs flops=, the FLOPs that the unit executes",
                         value, self->name);
    strncpy(self->work.unit, name, sizeof self->work.unit - 1);
    return true;
}

static int range_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "args", "flops", "bytes", "unit", NULL};
    range_object *self = (range_object *)object;
    PyObject *name, *ignored, *flops = Py_None, *bytes = Py_None, *unit = Py_None;
    if (!fs_parse_arguments(args, kwargs, "O|O$OOO:record_function", names, &name, &ignored, &flops, &bytes, &unit))
        return -1;
    if (self->entries == NULL) {
        self->entries = self->own;
        self->capacity = OWN_ENTRIES;
    }
    self->is_function = false;
    if (!take_name(self, name) || !take_work(self, flops, "flops", &self->work.flops) ||
        !take_work(self, bytes, "bytes", &self->work.bytes))
        return -1;
    Py_XSETREF(self->flops, Py_NewRef(flops));
    Py_XSETREF(self->bytes, Py_NewRef(bytes));
    Py_XSETREF(self->unit, Py_NewRef(unit));
    return take_unit(self, unit) ? 0 : -1;
}

/* Entering and leaving ------------------------------------------------------------------------------------------ */

static bool is_made(const range_object *self)
{
    if (self->unit != NULL) return true;
    return fs_refuse(PyExc_RuntimeError, "the range is not initialized: call its __init__()");
}

static bool may_enter(const range_object *self)
{
    if (!is_made(self)) return false;
    if (self->is_function)
        return fs_refuse(
            PyExc_TypeError,
            "the work of the range %R is a function of the arguments of the function that it decorates; in a "
            "`with` statement use numbers",
            self->name);
    return true;
}

static bool make_room(range_object *self)
{
    if (self->count < self->capacity) return true;
    bool own = self->entries == self->own;
    entry *more = fs_realloc(own ? NULL : self->entries, 2 * self->capacity * sizeof *more);
    if (more == NULL) {
        PyErr_NoMemory();
        return false;
    }
    if (own) memcpy(more, self->own, sizeof self->own);
    self->entries = more;
    self->capacity *= 2;
    return true;
}

static PyObject *range_enter(PyObject *object, PyObject *Py_UNUSED(unused))
{
    range_object *self = (range_object *)object;
    entry now = {.thread = PyThread_get_thread_ident(), .context = fs_task_context()};
    fs_error err;
    if (!may_enter(self)) return NULL;
    if (target != NULL) fs_task_look();
    if (!make_room(self)) return NULL;
    if (target != NULL && fs_profiler_runs(target)) {
        bool has_work = !isnan(self->work.flops) || !isnan(self->work.bytes);
        if (fs_recorder_begin_range(target->recorder, FS_EVENT_RANGE, self->text, has_work ? &self->work : NULL,
                                    &now.index, &err) != FS_OK)
            return fs_raise(&err);
        now.recording = recording;
    }
    self->entries[self->count++] = now;
    return Py_NewRef(object);
}

/* How well an open entry matches this exit: same task, same thread, or another thread, if a range ends on another
 * thread than it began on. An entry outside of any context belongs to no task and matches its thread. */
static int fits(const entry *entered, unsigned long thread, const PyObject *context)
{
    if (entered->thread != thread) return 0;
    return entered->context == context || entered->context == NULL ? 2 : 1;
}

/* The latest of the best matches. */
static entry take_entry(range_object *self)
{
    unsigned long thread = PyThread_get_thread_ident();
    const PyObject *context = fs_task_context();
    size_t at = self->count - 1;
    for (size_t i = self->count; i-- > 0 && fits(&self->entries[at], thread, context) < 2;) {
        if (fits(&self->entries[i], thread, context) > fits(&self->entries[at], thread, context)) at = i;
    }
    entry taken = self->entries[at];
    self->count--;
    memmove(&self->entries[at], &self->entries[at + 1], (self->count - at) * sizeof taken);
    return taken;
}

static PyObject *range_exit(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t count)
{
    (void)count;
    range_object *self = (range_object *)object;
    if (!is_made(self)) return NULL;
    if (self->count == 0)
        return PyErr_Format(PyExc_RuntimeError, "the range %R was exited more often than it was entered", self->name);
    entry ended = take_entry(self);
    if (ended.recording != 0 && ended.recording == recording && fs_profiler_runs(target))
        fs_recorder_end_range(target->recorder, ended.index);
    Py_RETURN_NONE;
}

/* Life ---------------------------------------------------------------------------------------------------------- */

/* clang-format off */
#define HELD(X) X(self->name); X(self->flops); X(self->bytes); X(self->unit);
/* clang-format on */

static int range_traverse(PyObject *object, visitproc visit, void *arg)
{
    range_object *self = (range_object *)object;
    Py_VISIT(Py_TYPE(object));
    HELD(Py_VISIT)
    return 0;
}

static int range_clear(PyObject *object)
{
    range_object *self = (range_object *)object;
    HELD(Py_CLEAR)
    return 0;
}

static void range_dealloc(PyObject *object)
{
    range_object *self = (range_object *)object;
    PyObject_GC_UnTrack(object);
    range_clear(object);
    if (self->entries != self->own) fs_free(self->entries);
    fs_free_object(object);
}

static PyMethodDef methods[] = {
    {"__enter__", range_enter, METH_NOARGS, "Begin the range on this thread if a profile is recording."},
    {"__exit__", (PyCFunction)(void (*)(void))range_exit, METH_FASTCALL, "End the range."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"name", T_OBJECT, offsetof(range_object, name), READONLY, "Name of the range's row."},
    {"flops", T_OBJECT, offsetof(range_object, flops), READONLY, "FLOPs of the work inside, as passed."},
    {"bytes", T_OBJECT, offsetof(range_object, bytes), READONLY, "Bytes that the work moves, as passed."},
    {"unit", T_OBJECT, offsetof(range_object, unit), READONLY, "Compute unit that executes the FLOPs, or None."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, range_init},
    {Py_tp_dealloc, range_dealloc},
    {Py_tp_traverse, range_traverse},
    {Py_tp_clear, range_clear},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, "Range(name, args=None, *, flops=None, bytes=None, unit=None)\n--\n\n"
                "A range of a profile, the base of record_function()."},
    {0, NULL},
};

/* Recording ----------------------------------------------------------------------------------------------------- */

static PyObject *record_into(PyObject *Py_UNUSED(module), PyObject *profiler)
{
    if (profiler != Py_None && !Py_IS_TYPE(profiler, fs_profiler_type))
        return PyErr_Format(PyExc_TypeError, "expected a Profiler or None, not %s", Py_TYPE(profiler)->tp_name);
    recording = profiler == Py_None ? 0 : ++recordings;
    Py_XSETREF(target, profiler == Py_None ? NULL : (fs_profiler_object *)Py_NewRef(profiler));
    Py_RETURN_NONE;
}

static PyObject *is_recording(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(target != NULL && fs_profiler_runs(target));
}

/* Launches ------------------------------------------------------------------------------------------------------ */

fs_status fs_launch_begin(const char *name, const fs_given_work *work, uint64_t *token, fs_error *err)
{
    uint32_t index;
    *token = 0;
    if (target == NULL || !fs_profiler_runs(target)) return FS_OK;
    fs_task_look();
    if (target == NULL || !fs_profiler_runs(target)) return FS_OK;
    FS_TRY(fs_recorder_begin_range(target->recorder, FS_EVENT_OP, name, work, &index, err));
    *token = recording << 32 | index;
    return FS_OK;
}

void fs_launch_end(uint64_t token)
{
    if (token >> 32 == (recording & UINT32_MAX) && target != NULL && fs_profiler_runs(target))
        fs_recorder_end_range(target->recorder, (uint32_t)token);
}

static PyMethodDef functions[] = {
    {"record_into", record_into, METH_O,
     "record_into($module, profiler, /)\n--\n\nRecord ranges into that Profiler from now on, or stop with None. This "
     "begins a new recording, which excludes ranges that are open now."},
    {"is_recording", is_recording, METH_NOARGS,
     "is_recording($module, /)\n--\n\nReturn whether a range entered now would be recorded."},
    {NULL, NULL, 0, NULL},
};

int fs_add_range(PyObject *module)
{
    static PyTypeObject *type;
    unsigned flags = Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC;
    if (fs_add_type(module, &type, FS_TYPE_SPEC("flopscope._core.Range", range_object, flags, slots)) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
