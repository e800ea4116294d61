/* SteadyGrowth: how much a process has grown at a steady rate, as it does by the records of torch's profiler, which
 * does not say how much it has recorded. Records grow as long as ops run, while the data of a program comes at once or
 * in its own time. So the rate is the least one of several parts of the last two thirds of the time; the size of a part
 * is its least, as tensors come and go.
 *
 *   size                    ▁▂▂▃▃▃▇▇  data that came at once: other parts did not grow so
 *         begin ····· | 1 | 2 | 3 | 4 | 5 | 6 | now */
#include "python/core.h"

#include <math.h>

#include "base/memory.h"

enum { PARTS = 6, MOST_SAMPLES = 1000 };

/* The least size in bytes of an interval, and when that began, in s. */
typedef struct {
    double time, size;
} sample;

typedef struct {
    PyObject_HEAD
    double steady, interval; /* s */
    sample *samples;
    uint32_t count, capacity;
} growth_object;

static PyObject *growth_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"steady", NULL};
    double steady;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "d:SteadyGrowth", names, &steady)) return NULL;
    growth_object *self = (growth_object *)type->tp_alloc(type, 0);
    if (self != NULL) self->steady = steady;
    return (PyObject *)self;
}

static void growth_dealloc(PyObject *object)
{
    fs_free(((growth_object *)object)->samples);
    fs_free_object(object);
}

/* Two intervals become one, but for the first sample, where the growth began. */
static void thin_out(growth_object *self, double lasted)
{
    uint32_t kept = 1;
    for (uint32_t i = 1; i + 1 < self->count; i += 2, kept++) {
        const sample a = self->samples[i], b = self->samples[i + 1];
        self->samples[kept] = (sample){a.time, a.size < b.size ? a.size : b.size};
    }
    self->count = kept;
    self->interval = 2 * lasted / MOST_SAMPLES;
}

/* The least growth of a part, in bytes; 0 where one has no sample. */
static double least_growth(const growth_object *self, double now, double part)
{
    double least[PARTS], growth = INFINITY;
    for (int i = 0; i < PARTS; i++) least[i] = INFINITY;
    for (uint32_t i = 0; i < self->count; i++) {
        double place = floor((self->samples[i].time - now) / part) + PARTS;
        int at = place < 0 ? -1 : place < PARTS ? (int)place : PARTS - 1;
        if (at >= 0) least[at] = fmin(least[at], self->samples[i].size);
    }
    for (int i = 1; i < PARTS; i++) growth = fmin(growth, least[i] - least[i - 1]);
    return growth > 0 && growth < INFINITY ? growth : 0;
}

static PyObject *growth_look(PyObject *object, PyObject *args)
{
    growth_object *self = (growth_object *)object;
    double now, size;
    fs_error err;
    if (!PyArg_ParseTuple(args, "dd:look", &now, &size)) return NULL;
    if (FS_LIST_ROOM(&self->samples, self->count, &self->capacity, 64, &err) != FS_OK) return fs_raise(&err);
    sample *last = &self->samples[self->count > 0 ? self->count - 1 : 0];
    if (self->count > 0 && now - last->time < self->interval) last->size = fmin(last->size, size);
    else self->samples[self->count++] = (sample){now, size};
    sample first = self->samples[0];
    double lasted = now - first.time, part = lasted * 2 / 3 / PARTS;
    if (lasted < self->steady || lasted <= 0) return PyFloat_FromDouble(0);
    double growth = least_growth(self, now, part);
    if (self->count > MOST_SAMPLES) thin_out(self, lasted);
    return PyFloat_FromDouble(fmin(growth / part * lasted, fmax(size - first.size, 0)));
}

static PyMethodDef growth_methods[] = {
    {"look", growth_look, METH_VARARGS,
     "look($self, now, size, /)\n--\n\nReturn the bytes by which the process has grown steadily since the first look. "
     "now: in s. size: its own, in bytes."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot growth_slots[] = {
    {Py_tp_new, growth_new},
    {Py_tp_dealloc, growth_dealloc},
    {Py_tp_methods, growth_methods},
    {Py_tp_doc, "SteadyGrowth(steady)\n--\n\nHow much a process grows steadily; steady: s from which growth is so."},
    {0, NULL},
};

int fs_add_steady_growth(PyObject *module)
{
    static PyTypeObject *type;
    return fs_add_type(module, &type, FS_TYPE_SPEC("flopscope._core.SteadyGrowth", growth_object, 0, growth_slots));
}
