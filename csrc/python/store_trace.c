/* Store's trace: its events as a Chrome trace, handed to Python in pieces. */
#include "python/store_type.h"
#include "python/roofline.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "views/chrome_trace.h"

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

static fs_status write_samples(fs_json *out, const fs_store *store, int64_t process, int64_t shift, fs_error *err)
{
    (void)process, (void)shift;
    FS_TRY(fs_trace_samples(out, store, 0, err));
    return fs_trace_stack_samples(out, store, 0, err);
}

PyObject *fs_store_object_trace_samples(PyObject *object, PyObject *unused)
{
    (void)unused;
    return text_of(((fs_store_object *)object)->store, write_samples, 0, 0);
}

static fs_status write_frames(fs_json *out, const fs_store *store, int64_t process, int64_t shift, fs_error *err)
{
    (void)process, (void)shift;
    return fs_trace_stack_frames(out, store, err);
}

PyObject *fs_store_object_trace_frames(PyObject *object, PyObject *unused)
{
    (void)unused;
    return text_of(((fs_store_object *)object)->store, write_frames, 0, 0);
}

PyObject *fs_store_object_trace_ranges(PyObject *object, PyObject *args)
{
    long long base;
    if (!PyArg_ParseTuple(args, "L:trace_ranges", &base)) return NULL;
    const fs_store *store = ((fs_store_object *)object)->store;
    return text_of(store, fs_trace_ranges, getpid(), fs_clock_unix_offset() - base);
}
