/* Store's trace: its events as a Chrome trace, handed to Python in pieces. */
#include "python/store_methods.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "python/arrays.h"
#include "python/roofline.h"
#include "store/samples.h"
#include "views/chrome_trace.h"

/* Samples of counters ---------------------------------------------------------------------------------------------- */

/* Methods of Store on counter samples; each is documented where store_type.c lists it. Store's counter samples as
 * arrays. */

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
    while (taken < 3 && fs_take_numbers(arrays[taken], &views[taken], taken < 2, names[taken])) taken++;
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

PyObject *fs_store_object_samples(PyObject *object, PyObject *Py_UNUSED(unused))
{
    const fs_store *store = ((fs_store_object *)object)->store;
    return FS_LIST(i, fs_store_track_count(store), track_object(store, fs_store_track(store, i)));
}

static PyObject *metric_tuple(const fs_metric_row *row)
{
    return Py_BuildValue("(ssss)", row->name, row->unit, fs_metric_kind_names[row->kind], row->prose);
}

/* Add the list of known metrics to the module. */
int fs_add_metrics(PyObject *module)
{
    PyObject *rows = FS_LIST(i, FS_METRIC_COUNT, metric_tuple(&fs_metrics[i]));
    return fs_add_constant(module, "counter_metrics", rows);
}

/* Store trace ------------------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject *write;
    fs_long_work work;
} python_sink;

/* An exception stays set in the thread until the caller has the GIL again. */
static fs_status write_piece(void *context, const char *bytes, size_t size, fs_error *err)
{
    python_sink *sink = context;
    PyEval_RestoreThread(sink->work.thread);
    PyObject *piece = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
    PyObject *done = piece != NULL ? PyObject_CallOneArg(sink->write, piece) : NULL;
    fs_status status = done != NULL ? FS_OK : fs_fail(err, FS_RUNTIME_ERROR, "the trace could not be written");
    Py_XDECREF(done);
    Py_XDECREF(piece);
    sink->work.thread = PyEval_SaveThread();
    return status;
}

PyObject *fs_store_object_write_trace(PyObject *object, PyObject *args)
{
    fs_store_object *self = (fs_store_object *)object;
    python_sink sink;
    fs_chrome_trace_options options = {.write = write_piece, .context = &sink, .members = ""};
    PyObject *peaks = Py_None;
    if (!PyArg_ParseTuple(args, "Os|sO:write_trace", &sink.write, &options.version, &options.members, &peaks))
        return NULL;
    fs_table_request *request = NULL;
    if (peaks != Py_None) {
        if (!PyDict_Check(peaks))
            return PyErr_Format(PyExc_TypeError, "peaks must be a dict or None, not %.100s", Py_TYPE(peaks)->tp_name);
        request = PyMem_Calloc(1, sizeof *request);
        if (request == NULL) return PyErr_NoMemory();
        if (!fs_take_all_peaks(peaks, request)) {
            PyMem_Free(request);
            return NULL;
        }
        options.table = &request->options;
    }
    options.pid = getpid();
    options.process = program_invocation_short_name;
    options.dropped = fs_store_object_dropped(self);
    options.clock_offset = self->recorded ? self->clock_base : fs_clock_unix_offset();
    int64_t left_out = 0;
    fs_error err;
    fs_long_work_begin(&sink.work);
    fs_status status = fs_chrome_trace_write(self->store, &options, &left_out, &err);
    fs_long_work_end(&sink.work);
    PyMem_Free(request);
    if (PyErr_Occurred()) return NULL;
    return status == FS_OK ? PyLong_FromLongLong(left_out) : fs_raise(&err);
}

typedef fs_status (*text_writer)(fs_json *out, const fs_store *store, int64_t process, int64_t shift, fs_error *err);

/* Return text that is written without the GIL, less its last two bytes, a comma and a line break. */
static PyObject *text_of(const fs_store *store, text_writer write, int64_t process, int64_t shift)
{
    fs_json out;
    fs_error err;
    fs_long_work work;
    fs_long_work_begin(&work);
    fs_status status = fs_json_init(&out, NULL, NULL, &err);
    if (status == FS_OK) status = write(&out, store, process, shift, &err);
    fs_long_work_end(&work);
    PyObject *text = NULL;
    if (status == FS_OK) text = PyBytes_FromStringAndSize(out.bytes, out.size > 2 ? (Py_ssize_t)out.size - 2 : 0);
    fs_json_clear(&out);
    if (status == FS_OK || PyErr_Occurred()) return text;
    return fs_raise(&err);
}

static fs_status write_samples(fs_json *out, const fs_store *store, int64_t Py_UNUSED(process), int64_t shift,
                               fs_error *err)
{
    FS_TRY(fs_trace_samples(out, store, (uint64_t)shift, err));
    return fs_trace_stack_samples(out, store, (uint64_t)shift, err);
}

static fs_status write_frames(fs_json *out, const fs_store *store, int64_t Py_UNUSED(process), int64_t Py_UNUSED(shift),
                              fs_error *err)
{
    return fs_trace_stack_frames(out, store, err);
}

PyObject *fs_store_object_trace_text(PyObject *object, PyObject *args)
{
    const char *what;
    long long base = -1;
    if (!PyArg_ParseTuple(args, "s|L:trace_text", &what, &base)) return NULL;
    text_writer write = strcmp(what, "ranges") == 0    ? fs_trace_ranges
                        : strcmp(what, "samples") == 0 ? write_samples
                                                       : write_frames;
    int64_t shift = base < 0 ? 0 : fs_clock_unix_offset() - base;
    return text_of(((fs_store_object *)object)->store, write, getpid(), shift);
}
