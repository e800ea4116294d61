/* StepTimes: how long the steps of a program took, in µs: those that nothing recorded, and those of this recording.
 *
 *   begin()          end() go_on()     a step amid which a recording ends is of neither kind
 *     |  |  |  |  |  |??|  |  |  |  |
 *      recorded          drained bare  of many bare ones every second is kept, then every fourth, …
 *
 * The end of a recording waits for the devices. The next steps are as long as the host takes to launch them, until
 * the queues are full again where the devices set the pace. */
#include "python/core.h"

#include <math.h>
#include <structmember.h>

#include "base/clock.h"
#include "base/memory.h"

enum { MOST_TIMES = 1 << 16, SLOWEST = 5, DRAINED = 2 };

/* One of the longest steps. */
typedef struct {
    double time;
    long long number, ended; /* ended: in ns since 1970, to find what the program did then */
} slow_step;

typedef struct {
    PyObject_HEAD
    PyObject *clock;   /* NULL: the monotonic one */
    double last;       /* s; when the step before ended; NaN: it tells nothing of this one */
    double latest;     /* us; the time of the latest step */
    double long_from;  /* us; step() tells of steps as long as this */
    long long awaited; /* and of this one and all later ones */
    char recording, off;
    int draining;   /* so many steps are still drained */
    double drained; /* the least of them */
    double *bare, *recorded;
    uint32_t kept, kept_capacity, recorded_count, recorded_capacity;
    long long bare_count, stride;
    slow_step slowest[SLOWEST]; /* the longest first */
    int slow_count;
} times_object;

static bool read_clock(const times_object *self, double *now)
{
    if (self->clock == NULL) {
        *now = 1e-9 * (double)fs_clock_now();
        return true;
    }
    PyObject *value = PyObject_CallNoArgs(self->clock);
    if (value == NULL) return false;
    *now = PyFloat_AsDouble(value);
    Py_DECREF(value);
    return !PyErr_Occurred();
}

static PyObject *times_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"clock", NULL};
    PyObject *clock = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:StepTimes", names, &clock)) return NULL;
    times_object *self = (times_object *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->clock = clock == Py_None ? NULL : Py_XNewRef(clock);
    self->last = self->drained = self->latest = NAN;
    self->long_from = INFINITY;
    self->awaited = LLONG_MAX;
    self->stride = 1;
    return (PyObject *)self;
}

static void times_dealloc(PyObject *object)
{
    times_object *self = (times_object *)object;
    Py_XDECREF(self->clock);
    fs_free(self->bare);
    fs_free(self->recorded);
    fs_free_object(object);
}

static fs_status add_recorded(times_object *self, double time, fs_error *err)
{
    FS_TRY(FS_LIST_ADD(&self->recorded, &self->recorded_count, &self->recorded_capacity, 64, err, time));
    return FS_OK;
}

/* Every second one of those that are kept is dropped where there are too many. */
static fs_status add_bare(times_object *self, double time, fs_error *err)
{
    if (++self->bare_count % self->stride != 0) return FS_OK;
    FS_TRY(FS_LIST_ADD(&self->bare, &self->kept, &self->kept_capacity, 64, err, time));
    if (self->kept < MOST_TIMES) return FS_OK;
    for (uint32_t i = 0; 2 * i + 1 < self->kept; i++) self->bare[i] = self->bare[2 * i + 1];
    self->kept /= 2;
    self->stride *= 2;
    return FS_OK;
}

static void add_slow(times_object *self, double time, long long number)
{
    if (self->slow_count == SLOWEST && time <= self->slowest[SLOWEST - 1].time) return;
    int at = self->slow_count < SLOWEST ? self->slow_count++ : SLOWEST - 1;
    for (; at > 0 && self->slowest[at - 1].time < time; at--) self->slowest[at] = self->slowest[at - 1];
    self->slowest[at] = (slow_step){time, number, fs_clock_unix_now()};
}

static PyObject *times_step(PyObject *object, PyObject *number)
{
    times_object *self = (times_object *)object;
    long long which = PyLong_AsLongLong(number);
    double now;
    fs_status status = FS_OK;
    fs_error err;
    if ((which == -1 && PyErr_Occurred()) || !read_clock(self, &now)) return NULL;
    double time = self->latest = 1e6 * (now - self->last);
    self->last = now;
    if (self->off) Py_RETURN_FALSE;
    bool matters = self->recording || time >= self->long_from || which >= self->awaited;
    if (isnan(time)) return PyBool_FromLong(matters);
    if (self->recording) {
        status = add_recorded(self, time, &err);
    } else if (self->draining > 0) {
        self->draining--;
        self->drained = fmin(self->drained, time);
    } else {
        add_slow(self, time, which);
        status = add_bare(self, time, &err);
    }
    return status == FS_OK ? PyBool_FromLong(matters) : fs_raise(&err);
}

static PyObject *times_begin(PyObject *object, PyObject *Py_UNUSED(unused))
{
    times_object *self = (times_object *)object;
    if (!read_clock(self, &self->last)) return NULL;
    self->recording = true;
    self->recorded_count = 0;
    Py_RETURN_NONE;
}

static PyObject *list_of(const double *times, uint32_t first, uint32_t end)
{
    return FS_LIST(i, end > first ? end - first : 0, PyFloat_FromDouble(times[first + i]));
}

static PyObject *times_end(PyObject *object, PyObject *Py_UNUSED(unused))
{
    times_object *self = (times_object *)object;
    PyObject *list = list_of(self->recorded, 0, self->recorded_count);
    self->recording = false;
    self->recorded_count = 0;
    self->last = NAN;
    return list;
}

static PyObject *times_go_on(PyObject *object, PyObject *Py_UNUSED(unused))
{
    times_object *self = (times_object *)object;
    if (!self->recording && !read_clock(self, &self->last)) return NULL;
    self->draining = self->recording ? 0 : DRAINED;
    Py_RETURN_NONE;
}

static PyObject *times_bare(PyObject *object, PyObject *args)
{
    times_object *self = (times_object *)object;
    unsigned int first = 0, end = UINT32_MAX;
    if (!PyArg_ParseTuple(args, "|II:bare", &first, &end)) return NULL;
    return list_of(self->bare, first, end < self->kept ? end : self->kept);
}

FS_GETTER(times_slowest, times_object,
          FS_LIST_OF(one, self->slowest, self->slow_count, Py_BuildValue("[dLL]", one->time, one->number, one->ended)))

static PyMethodDef times_methods[] = {
    {"begin", times_begin, METH_NOARGS, "A recording has begun, between two steps."},
    {"end", times_end, METH_NOARGS,
     "A recording has ended: the step under way is of neither kind. Return the times of its steps."},
    {"go_on", times_go_on, METH_NOARGS, "A step begins; after a recording, with devices that have no work."},
    {"step", times_step, METH_O,
     "step($self, number, /)\n--\n\nA step has ended. Return whether it is recorded, long, or awaited."},
    {"bare", times_bare, METH_VARARGS,
     "bare($self, first=0, end=..., /)\n--\n\nReturn the times that are kept of steps that nothing recorded."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef times_members[] = {
    {"is_recording", T_BOOL, offsetof(times_object, recording), READONLY, "Whether a recording is under way."},
    {"is_off", T_BOOL, offsetof(times_object, off), 0, "Steps are ignored: what records them is unknown."},
    {"latest", T_DOUBLE, offsetof(times_object, latest), READONLY, "The time of the latest step; NaN: unknown."},
    {"long_from", T_DOUBLE, offsetof(times_object, long_from), 0, "The time from which on a step is long."},
    {"awaited", T_LONGLONG, offsetof(times_object, awaited), 0, "The number of a step, which all later ones follow."},
    {"recorded_count", T_UINT, offsetof(times_object, recorded_count), READONLY, "Steps of this recording."},
    {"bare_count", T_LONGLONG, offsetof(times_object, bare_count), READONLY, "Steps that nothing recorded."},
    {"drained", T_DOUBLE, offsetof(times_object, drained), READONLY,
     "The least time of the steps after a recording, which began without work on the devices; NaN without any."},
    {"kept", T_UINT, offsetof(times_object, kept), READONLY, "Those of them whose times are kept."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef times_getset[] = {
    {"slowest", times_slowest, NULL, "Lists of the time, the number and the end in ns since 1970 of the longest steps.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot times_slots[] = {
    {Py_tp_new, times_new},
    {Py_tp_dealloc, times_dealloc},
    {Py_tp_methods, times_methods},
    {Py_tp_members, times_members},
    {Py_tp_getset, times_getset},
    {Py_tp_doc, "StepTimes(clock=None)\n--\n\nHow long steps took, in us. clock: returns the time in s."},
    {0, NULL},
};

int fs_add_step_times(PyObject *module)
{
    static PyTypeObject *type;
    return fs_add_type(module, &type, FS_TYPE_SPEC("flopscope._core.StepTimes", times_object, 0, times_slots));
}
