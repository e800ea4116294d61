/* CUDA support of measure(): an L2 flush, a mark, the time of one call between events, and a graph of calls. Intervals
 * of what was measured, and the errors of results. */
#include "base/confidence.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/tolerance.h"
#include "kernels/measure.h"
#include "ops/backend.h"
#include "python/arrays.h"

static const char graph_name[] = "flopscope.graph";

static bool parse_cuda(PyObject *where, fs_device *device)
{
    if (!fs_parse_device(where, device)) return false;
    if (device->kind == FS_CUDA) return true;
    return fs_refuse(PyExc_ValueError, "device=\"cpu\" is not a CUDA device, which this function needs");
}

static PyObject *queue(PyObject *where, fs_status (*work)(fs_device device, fs_error *err))
{
    fs_device device;
    fs_error err;
    if (!parse_cuda(where, &device)) return NULL;
    return fs_none_or_raise(work(device, &err), &err);
}

/* Ctrl-C interrupts the wait: a kernel may never end. */
static PyObject *measure_wait(PyObject *Py_UNUSED(module), PyObject *where)
{
    fs_device device;
    fs_error err;
    bool done = false;
    if (!parse_cuda(where, &device)) return NULL;
    while (!done) {
        if (FS_WITHOUT_GIL(fs_cuda_measure_wait(device, 0.1, &done, &err)) != FS_OK) return fs_raise(&err);
        if (!done && PyErr_CheckSignals() < 0) return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *measure_flush(PyObject *Py_UNUSED(module), PyObject *where)
{
    return queue(where, fs_cuda_measure_flush);
}

static PyObject *measure_disturb(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *where;
    int loaded;
    fs_device device;
    fs_error err;
    if (!PyArg_ParseTuple(args, "Op:measure_disturb", &where, &loaded) || !parse_cuda(where, &device)) return NULL;
    return fs_none_or_raise(FS_WITHOUT_GIL(fs_cuda_measure_disturb(device, loaded != 0, &err)), &err);
}

static PyObject *measure_mark(PyObject *Py_UNUSED(module), PyObject *where)
{
    return queue(where, fs_cuda_measure_mark);
}

/* Run the call between its two events. The device is released in any case. Return false with an exception set on
 * failure. */
static bool call_between(fs_device device, PyObject *function, fs_mark **from, fs_mark **to)
{
    const fs_backend *backend = fs_backend_of(device);
    fs_error err;
    fs_status status = backend->mark_take(device, from, &err);
    PyObject *result = status == FS_OK ? PyObject_CallNoArgs(function) : NULL;
    if (result != NULL) status = backend->mark_take(device, to, &err);
    fs_cuda_measure_release();
    if (status != FS_OK) fs_raise(&err);
    bool good = result != NULL && status == FS_OK;
    Py_XDECREF(result); /* after the device is released: a deallocator may wait for it */
    return good;
}

static PyObject *measure_call(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *where, *function;
    double seconds;
    fs_device device;
    fs_error err;
    fs_status status = FS_OK;
    fs_mark *from = NULL, *to = NULL;
    int64_t ns = 0;
    if (!PyArg_ParseTuple(args, "OOd:measure_call", &where, &function, &seconds) || !parse_cuda(where, &device))
        return NULL;
    if (seconds > 0 && fs_cuda_measure_hold(device, seconds, &err) != FS_OK) return fs_raise(&err);
    bool good = call_between(device, function, &from, &to);
    if (good) status = FS_WITHOUT_GIL(fs_backend_of(device)->mark_elapsed(device, from, to, &ns, &err));
    if (from != NULL) fs_backend_of(device)->mark_give(device, from);
    if (to != NULL) fs_backend_of(device)->mark_give(device, to);
    if (!good) return NULL;
    if (status != FS_OK) return fs_raise(&err);
    return Py_BuildValue("(LN)", (long long)ns, PyBool_FromLong(seconds > 0 && fs_cuda_measure_gave_up()));
}

static void free_graph(PyObject *capsule)
{
    fs_cuda_graph_free(PyCapsule_GetPointer(capsule, graph_name));
}

static PyObject *measure_graph(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *where, *function;
    int calls;
    fs_device device;
    fs_error err;
    fs_cuda_graph *graph;
    if (!PyArg_ParseTuple(args, "OOi:measure_graph", &where, &function, &calls) || !parse_cuda(where, &device))
        return NULL;
    if (fs_cuda_graph_begin(device, &err) != FS_OK) return fs_raise(&err);
    bool good = true;
    for (int i = 0; good && i < calls; i++) {
        PyObject *result = PyObject_CallNoArgs(function);
        good = result != NULL;
        Py_XDECREF(result);
    }
    fs_status status = fs_cuda_graph_end(&graph, &err);
    if (!good) { /* report the function's exception rather than the graph's */
        fs_cuda_graph_free(graph);
        return NULL;
    }
    if (status != FS_OK) return fs_raise(&err);
    PyObject *capsule = PyCapsule_New(graph, graph_name, free_graph);
    if (capsule == NULL) fs_cuda_graph_free(graph);
    return capsule;
}

static PyObject *measure_replay(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    fs_error err;
    fs_cuda_graph *graph = PyCapsule_GetPointer(capsule, graph_name);
    if (graph == NULL) return NULL;
    return fs_none_or_raise(fs_cuda_graph_launch(graph, &err), &err);
}

typedef fs_status interval_of(const double *, size_t, double, fs_interval *, fs_error *);

/* Return the numbers of a sequence, to be freed, or NULL with an exception set. */
static double *parse_samples(PyObject *numbers, size_t *count)
{
    PyObject *items = PySequence_Tuple(numbers);
    if (items == NULL) return NULL;
    *count = (size_t)PyTuple_GET_SIZE(items);
    double *samples = fs_malloc((*count ? *count : 1) * sizeof *samples);
    if (samples == NULL) PyErr_NoMemory();
    for (size_t i = 0; samples != NULL && i < *count; i++) {
        samples[i] = PyFloat_AsDouble(PyTuple_GET_ITEM(items, (Py_ssize_t)i));
        if (samples[i] == -1 && PyErr_Occurred()) fs_free(samples), samples = NULL;
    }
    Py_DECREF(items);
    return samples;
}

static PyObject *interval(PyObject *args, interval_of *of)
{
    PyObject *numbers;
    double confidence;
    size_t count;
    fs_interval found;
    fs_error err;
    if (!PyArg_ParseTuple(args, "Od", &numbers, &confidence)) return NULL;
    double *samples = parse_samples(numbers, &count);
    if (samples == NULL) return NULL;
    fs_status status = of(samples, count, confidence, &found, &err);
    fs_free(samples);
    return status == FS_OK ? Py_BuildValue("ddd", found.value, found.low, found.high) : fs_raise(&err);
}

static PyObject *median_interval(PyObject *Py_UNUSED(module), PyObject *args)
{
    return interval(args, fs_median_interval);
}

static PyObject *ratio_interval(PyObject *Py_UNUSED(module), PyObject *args)
{
    return interval(args, fs_ratio_interval);
}

enum { MOST_ARRAYS = 16 };

/* Take arrays of as many float64 from a sequence. Return how many were taken, -1 with an exception set. */
static int take_arrays(PyObject *sequence, int least, Py_buffer *views)
{
    int count = 0, given = (int)Py_MIN(PyTuple_GET_SIZE(sequence), MOST_ARRAYS);
    bool good = given >= least || fs_refuse(PyExc_TypeError, "%d arrays are too few", given);
    while (good && count < given) {
        good = fs_take_numbers(PyTuple_GET_ITEM(sequence, count), &views[count], false, "each array");
        if (!good) break;
        count++;
        if (views[count - 1].len != views[0].len) good = fs_refuse(PyExc_ValueError, "the arrays differ in length");
    }
    if (good) return count;
    while (count > 0) PyBuffer_Release(&views[--count]);
    return -1;
}

static PyObject *tolerance(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { CHANGED = 4 };
    PyObject *arrays;
    Py_buffer views[MOST_ARRAYS];
    const double *changed[MOST_ARRAYS];
    long long columns;
    fs_exact exact = {.changed = changed};
    if (!PyArg_ParseTuple(args, "O!Ld:tolerance", &PyTuple_Type, &arrays, &columns, &exact.ulp)) return NULL;
    int count = take_arrays(arrays, CHANGED, views);
    if (count < 0) return NULL;
    exact.values = views[2].buf;
    exact.given = views[3].buf;
    exact.columns = columns > 0 ? columns : 1;
    exact.rows = views[0].shape[0] / exact.columns;
    exact.changed_count = count - CHANGED;
    for (int i = CHANGED; i < count; i++) changed[i - CHANGED] = views[i].buf;
    FS_WITHOUT_GIL((fs_tolerance(&exact, views[0].buf, views[1].buf), 0));
    while (count > 0) PyBuffer_Release(&views[--count]);
    Py_RETURN_NONE;
}

static PyObject *deviation(PyObject *Py_UNUSED(module), PyObject *arrays)
{
    Py_buffer views[MOST_ARRAYS];
    int count = take_arrays(arrays, 4, views);
    if (count < 0) return NULL;
    fs_exact exact = {.values = views[0].buf, .given = views[1].buf, .rows = views[0].shape[0], .columns = 1};
    fs_deviation found = FS_WITHOUT_GIL(fs_deviation_of(&exact, views[2].buf, views[3].buf));
    while (count > 0) PyBuffer_Release(&views[--count]);
    return Py_BuildValue("(LLd)", (long long)found.wrong, (long long)found.place, found.error);
}

static PyMethodDef functions[] = {
    {"tolerance", tolerance, METH_VARARGS,
     "tolerance($module, arrays, columns, ulp, /)\n--\n\nWrite what is allowed of each element. arrays, of float64: "
     "the largest errors that are allowed and what rounding the inputs once changes, which are written; the exact "
     "result; that in a dtype, whose distance of 1 to the next number is ulp; the exact results for inputs that differ "
     "by a rounding. columns: the length of the last dimension."},
    {"deviation", deviation, METH_VARARGS,
     "deviation($module, values, given, allowed, found, /)\n--\n\nReturn (wrong, place, error): how many elements of "
     "found differ by more than is allowed, and where and by how much one does most, over what is allowed."},
    {"median_interval", median_interval, METH_VARARGS,
     "median_interval($module, samples, confidence, /)\n--\n\nReturn (median, low, high): the bootstrap percentile "
     "interval; NaN where unknown. Correlated samples count as fewer."},
    {"ratio_interval", ratio_interval, METH_VARARGS,
     "ratio_interval($module, ratios, confidence, /)\n--\n\nReturn (ratio, low, high): a confidence sequence, valid at "
     "any number of pairs; NaN where unknown."},
    {"measure_wait", measure_wait, METH_O,
     "measure_wait($module, device, /)\n--\n\nWait for all streams of a CUDA device."},
    {"measure_flush", measure_flush, METH_O,
     "measure_flush($module, device, /)\n--\n\nQueue the kernel flopscope_flush_l2, which fills the L2 cache with "
     "unrelated data."},
    {"measure_disturb", measure_disturb, METH_VARARGS,
     "measure_disturb($module, device, loaded, /)\n--\n\nFlush the L2 cache and fill shared memory with NaN. loaded: "
     "queue some milliseconds of work on a stream of its own, too."},
    {"measure_mark", measure_mark, METH_O,
     "measure_mark($module, device, /)\n--\n\nQueue the kernel flopscope_measure_mark, which does nothing."},
    {"measure_call", measure_call, METH_VARARGS,
     "measure_call($module, device, function, hold, /)\n--\n\nReturn (ns, gave_up): the time between two CUDA events "
     "around function(). The device waits until the call has returned, but at most `hold` seconds; gave_up: the call "
     "took longer."},
    {"measure_graph", measure_graph, METH_VARARGS,
     "measure_graph($module, device, function, calls, /)\n--\n\nCapture the work that flopscope's ops launch in that "
     "many calls of function() as a CUDA graph."},
    {"measure_replay", measure_replay, METH_O,
     "measure_replay($module, graph, /)\n--\n\nQueue a graph that measure_graph() returned."},
    {NULL, NULL, 0, NULL},
};

int fs_add_measure(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
