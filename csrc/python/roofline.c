/* The roofline for Python: the type Roof, and the functions that compute one and rate a time against it. */
#include "python/roofline.h"

#include <math.h>
#include <string.h>

/* Peaks: {"flops": {unit: FLOP/s}, "bandwidth": bytes/s, "l2_bandwidth": bytes/s, "launch_ns": ns, "kernel_ns": ns} */

static bool take_rate(PyObject *mapping, const char *key, double *rate)
{
    PyObject *value = PyMapping_GetItemString(mapping, key);
    if (value == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_KeyError)) return false;
        PyErr_Clear();
        return true;
    }
    if (value != Py_None) *rate = PyFloat_AsDouble(value);
    Py_DECREF(value);
    return !PyErr_Occurred();
}

bool fs_take_peaks(PyObject *object, fs_peaks *peaks)
{
    fs_peaks_unknown(peaks);
    if (!take_rate(object, "bandwidth", &peaks->bandwidth) ||
        !take_rate(object, "l2_bandwidth", &peaks->l2_bandwidth) ||
        !take_rate(object, "launch_ns", &peaks->launch_ns) || !take_rate(object, "kernel_ns", &peaks->kernel_ns))
        return false;
    PyObject *flops = PyMapping_GetItemString(object, "flops");
    if (flops == NULL) return false;
    bool good = true;
    for (int unit = 0; good && unit < FS_UNIT_COUNT; unit++) {
        good = take_rate(flops, fs_units[unit].name, &peaks->flops[unit]);
    }
    Py_DECREF(flops);
    return good;
}

/* Units ------------------------------------------------------------------------------------------------------------ */

const char *fs_unit_text(PyObject *object)
{
    const char *name = PyUnicode_Check(object) ? PyUnicode_AsUTF8(object) : NULL;
    if (PyErr_Occurred()) return NULL;
    if (name != NULL && fs_unit_find(name) != FS_UNIT_NONE) return name;
    PyObject *known = PyUnicode_FromString("");
    for (int unit = 0; known != NULL && unit < FS_UNIT_COUNT; unit++) {
        PyObject *more = PyUnicode_FromFormat("%U%s%s", known, unit > 0 ? ", " : "", fs_units[unit].name);
        Py_SETREF(known, more);
    }
    if (known != NULL) PyErr_Format(PyExc_ValueError, "unit=%R is not a compute unit; the units are %U", object, known);
    Py_XDECREF(known);
    return NULL;
}

PyObject *fs_unit_object(fs_unit unit)
{
    if (unit == FS_UNIT_NONE) Py_RETURN_NONE;
    return PyUnicode_FromString(fs_units[unit].name);
}

/* Roof ------------------------------------------------------------------------------------------------------------- */

static PyStructSequence_Field roof_fields[] = {
    {"compute_ns", "minimum time of the FLOPs; NaN if they or their peak are unknown"},
    {"memory_ns", "minimum time of the bytes; NaN if they or their peak are unknown"},
    {"least_ns", "minimum time of the work"},
    {"launch_ns", "time of as many empty launches, measured between CUDA events"},
    {"kernel_ns", "time of as many minimal kernels, as the profiler records them"},
    {"unit", "the compute unit that executes the FLOPs; None if there are no FLOPs or the unit is unknown"},
    {"unit_flops", "FLOPs that the unit executes"},
    {"partial", "whether only the FLOPs or only the bytes are known"},
    {"launches", "how many launches do the work"},
    {NULL, NULL},
};
static PyStructSequence_Desc roof_description = {
    .name = "flopscope._core.Roof",
    .doc = "The minimum times of some work at the peaks: the result of roof() and of a Profiler's tables, and an "
           "argument of rate().",
    .fields = roof_fields,
    .n_in_sequence = 9,
};
static PyTypeObject *roof_type;

PyObject *fs_roof_object(const fs_roof *roof)
{
    PyObject *object = PyStructSequence_New(roof_type);
    PyObject *values[] = {
        PyFloat_FromDouble(roof->compute_ns), PyFloat_FromDouble(roof->memory_ns), PyFloat_FromDouble(roof->least_ns),
        PyFloat_FromDouble(roof->launch_ns),  PyFloat_FromDouble(roof->kernel_ns), fs_unit_object(roof->unit),
        PyFloat_FromDouble(roof->unit_flops), PyBool_FromLong(roof->partial),      PyFloat_FromDouble(roof->launches),
    };
    bool good = object != NULL;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        good = good && values[i] != NULL;
        if (object != NULL) PyStructSequence_SetItem(object, (Py_ssize_t)i, values[i]);
        else Py_XDECREF(values[i]);
    }
    if (!good) Py_CLEAR(object);
    return object;
}

static bool take_roof(PyObject *object, fs_roof *roof)
{
    if (!Py_IS_TYPE(object, roof_type))
        return fs_refuse(PyExc_TypeError, "expected a Roof, not %s", Py_TYPE(object)->tp_name);
    double *numbers[] = {&roof->compute_ns, &roof->memory_ns, &roof->least_ns, &roof->launch_ns, &roof->kernel_ns};
    for (Py_ssize_t i = 0; i < 5; i++) *numbers[i] = PyFloat_AsDouble(PyStructSequence_GetItem(object, i));
    PyObject *unit = PyStructSequence_GetItem(object, 5);
    const char *name = unit == Py_None ? NULL : PyUnicode_AsUTF8(unit);
    if (PyErr_Occurred()) return false;
    roof->unit = name == NULL ? FS_UNIT_NONE : fs_unit_find(name);
    roof->unit_flops = PyFloat_AsDouble(PyStructSequence_GetItem(object, 6));
    roof->partial = PyStructSequence_GetItem(object, 7) == Py_True;
    roof->launches = PyFloat_AsDouble(PyStructSequence_GetItem(object, 8));
    return !PyErr_Occurred();
}

/* Functions -------------------------------------------------------------------------------------------------------- */

static PyObject *roof(PyObject *Py_UNUSED(module), PyObject *args)
{
    double launches = 1;
    PyObject *unit, *peaks;
    fs_peaks limits;
    fs_work work = fs_work_unknown;
    work.stated = true;
    if (!PyArg_ParseTuple(args, "ddOO!|d:roof", &work.flops, &work.bytes_moved, &unit, &PyDict_Type, &peaks, &launches))
        return NULL;
    if (unit != Py_None) {
        const char *name = fs_unit_text(unit);
        if (name == NULL) return NULL;
        work.unit.preferred = work.unit.fallback = fs_unit_find(name);
    }
    if (!fs_take_peaks(peaks, &limits)) return NULL;
    fs_roof one = fs_roof_of(&work, &limits);
    one.launch_ns *= launches;
    one.kernel_ns *= launches;
    one.launches = launches;
    return fs_roof_object(&one);
}

static bool take_timing(const char *name, fs_timing *timing)
{
    for (int i = 0; i < FS_TIMING_COUNT; i++) {
        *timing = (fs_timing)i;
        if (strcmp(fs_timing_names[i], name) == 0) return true;
    }
    return fs_refuse(PyExc_ValueError, "unknown timing source %s", name);
}

static PyObject *rate(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object;
    double flops, bytes, us, empty_us = NAN;
    const char *source;
    fs_roof roof = fs_roof_unknown;
    fs_timing timing;
    if (!PyArg_ParseTuple(args, "Oddds|d:rate", &object, &flops, &bytes, &us, &source, &empty_us)) return NULL;
    if (!take_roof(object, &roof) || !take_timing(source, &timing)) return NULL;
    if (!isnan(empty_us)) roof.launch_ns = roof.kernel_ns = empty_us * 1e3;
    fs_rating rating = fs_roof_rate(&roof, flops, bytes, us * 1e3, timing);
    return Py_BuildValue("{s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:s}", "tflops_per_s", rating.tflops_per_s, "gbytes_per_s",
                         rating.gbytes_per_s, "arithmetic_intensity", rating.arithmetic_intensity, "pct_peak_flops",
                         rating.pct_peak_flops, "pct_peak_bandwidth", rating.pct_peak_bandwidth, "pct_roofline",
                         rating.pct_roofline, "roofline_time", rating.roofline_time / 1e3, "headroom",
                         rating.headroom / 1e3, "bound", fs_bounds[rating.bound].name);
}

static PyMethodDef functions[] = {
    {"roof", roof, METH_VARARGS,
     "roof($module, flops, bytes, unit, peaks, launches=1, /)\n--\n\nReturn the Roof of declared work. NaN: unknown. "
     "unit: the compute unit that executes the FLOPs, or None for any. peaks: one device's, as for Profiler.table()."},
    {"rate", rate, METH_VARARGS,
     "rate($module, roof, flops, bytes, us, timing_source, empty_us=nan, /)\n--\n\nRate the time of work, in µs, "
     "against its roof. Return a dict of the rates, shares in percent, roofline_time and headroom in µs, and bound. "
     "empty_us: the time of an empty call, if it differs from the roof's launch."},
    {NULL, NULL, 0, NULL},
};

int fs_add_roofline(PyObject *module)
{
    if (roof_type == NULL) roof_type = PyStructSequence_NewType(&roof_description);
    if (roof_type == NULL || PyModule_AddObjectRef(module, "Roof", (PyObject *)roof_type) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
