/* Store's counter samples as arrays. */
#include "python/store_samples.h"

#include "python/arrays.h"
#include "store/samples.h"

static PyObject *append(fs_store_object *self, int device, const char *metric, const Py_buffer views[3])
{
    Py_ssize_t count = views[0].len / 8;
    const int64_t *starts = views[0].buf, *ends = views[1].buf;
    const double *values = views[2].buf;
    size_t dropped = 0;
    fs_error err;
    if (views[1].len != views[0].len || views[2].len != views[0].len)
        return PyErr_Format(PyExc_ValueError, "%zd starts, %zd ends and %zd values: they must be as many", count,
                            views[1].len / 8, views[2].len / 8);
    fs_sample *samples = PyMem_Malloc((size_t)(count > 0 ? count : 1) * sizeof *samples);
    if (samples == NULL) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) samples[i] = (fs_sample){starts[i], ends[i], values[i]};
    fs_status status = fs_store_add_samples(self->store, device, metric, samples, (size_t)count, &dropped, &err);
    PyMem_Free(samples);
    return status == FS_OK ? PyLong_FromSize_t(dropped) : fs_raise(&err);
}

PyObject *fs_store_object_add_samples(PyObject *object, PyObject *args)
{
    fs_store_object *self = (fs_store_object *)object;
    static const char *const names[] = {"start", "end", "value"};
    PyObject *arrays[3];
    Py_buffer views[3];
    const char *metric;
    int device, taken = 0;
    if (!PyArg_ParseTuple(args, "isOOO:add_samples", &device, &metric, &arrays[0], &arrays[1], &arrays[2])) return NULL;
    while (taken < 3 && fs_take_numbers(arrays[taken], &views[taken], taken < 2, 1, names[taken])) taken++;
    /* Acquiring a buffer may run Python code that uses the store. */
    bool may = taken == 3 && fs_store_object_is_stopped(self, "samples") && fs_store_object_may_change(self);
    PyObject *result = may ? append(self, device, metric, views) : NULL;
    while (taken > 0) PyBuffer_Release(&views[--taken]);
    return result;
}

static PyObject *track_object(const fs_store *store, const fs_counter_track *track)
{
    int64_t *times = PyMem_Malloc(2 * (size_t)(track->count + 1) * sizeof *times);
    double *values = PyMem_Malloc((size_t)(track->count + 1) * sizeof *values);
    PyObject *result = NULL;
    if (times == NULL || values == NULL) {
        PyErr_NoMemory();
    } else {
        for (uint32_t i = 0; i < track->count; i++) {
            times[i] = track->samples[i].start;
            times[track->count + i] = track->samples[i].end;
            values[i] = track->samples[i].value;
        }
        const fs_metric_row *row = track->metric >= 0 ? &fs_metrics[track->metric] : NULL;
        fs_metric_kind kind = row != NULL ? row->kind : FS_METRIC_LEVEL_KIND;
        result = Py_BuildValue(
            "(iNssNNN)", track->device, fs_text_object(fs_store_name_text(store, track->name)),
            fs_metric_kind_names[kind], row != NULL ? row->unit : "", fs_array_of_int64(times, track->count),
            fs_array_of_int64(times + track->count, track->count), fs_array_of_doubles(values, track->count));
    }
    PyMem_Free(times);
    PyMem_Free(values);
    return result;
}

PyObject *fs_store_object_samples(PyObject *object, PyObject *unused)
{
    (void)unused;
    const fs_store *store = ((fs_store_object *)object)->store;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < fs_store_track_count(store); i++) {
        PyObject *track = track_object(store, fs_store_track(store, i));
        if (track == NULL || PyList_Append(list, track) < 0) Py_CLEAR(list);
        Py_XDECREF(track);
    }
    return list;
}

int fs_add_metrics(PyObject *module)
{
    PyObject *rows = PyList_New(0);
    for (int i = 0; rows != NULL && i < FS_METRIC_COUNT; i++) {
        PyObject *row = Py_BuildValue("(ssss)", fs_metrics[i].name, fs_metrics[i].unit,
                                      fs_metric_kind_names[fs_metrics[i].kind], fs_metrics[i].prose);
        if (row == NULL || PyList_Append(rows, row) < 0) Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return fs_add_constant(module, "counter_metrics", rows);
}
