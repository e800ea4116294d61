/* TraceReader: a recorded trace's text, to the store of a Profiler. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/fork.h"
#include "python/profiler.h"
#include "sources/json_scan.h"
#include "sources/kineto.h"

typedef struct {
    PyObject_HEAD
    fs_kineto *kineto;
    bool busy; /* perhaps without the GIL */
} reader_object;

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    fs_error err;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":TraceReader", names)) return NULL;
    reader_object *self = (reader_object *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    if (fs_kineto_create(&self->kineto, &err) == FS_OK) return (PyObject *)self;
    Py_DECREF(self);
    return fs_raise(&err);
}

static void reader_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    fs_kineto_destroy(((reader_object *)object)->kineto);
    type->tp_free(object);
    Py_DECREF(type);
}

/* False, with an exception set, while another thread uses it and after it has finished. */
static bool may_read(const reader_object *self)
{
    if (self->kineto != NULL && !self->busy) return true;
    PyErr_SetString(PyExc_RuntimeError, "this reader is in use, has finished, or was interrupted");
    return false;
}

/* What was read in part, and not to its end, is of no use. */
static void end(reader_object *self)
{
    fs_kineto_destroy(self->kineto);
    self->kineto = NULL;
}

static PyObject *reader_feed(PyObject *object, PyObject *given)
{
    reader_object *self = (reader_object *)object;
    Py_buffer text;
    fs_error err;
    fs_status status;
    /* To get the buffer may run Python code, which may use this reader: it is looked at afterwards. */
    if (PyObject_GetBuffer(given, &text, PyBUF_SIMPLE) < 0) return NULL;
    if (!may_read(self)) {
        PyBuffer_Release(&text);
        return NULL;
    }
    self->busy = true;
    fs_long_work work;
    fs_long_work_begin(&work);
    status = fs_kineto_feed(self->kineto, text.buf, (size_t)text.len, &err);
    fs_long_work_end(&work);
    self->busy = false;
    PyBuffer_Release(&text);
    if (status == FS_INTERRUPTED) end(self);
    if (status != FS_OK) return fs_raise(&err);
    Py_RETURN_NONE;
}

static int64_t read_buffer(void *context, int64_t offset, char *to, size_t size, fs_error *err)
{
    const Py_buffer *text = context;
    (void)err;
    if (offset >= text->len) return 0;
    if ((int64_t)size > text->len - offset) size = (size_t)(text->len - offset);
    memcpy(to, (const char *)text->buf + offset, size);
    return (int64_t)size;
}

static int64_t read_file(void *context, int64_t offset, char *to, size_t size, fs_error *err)
{
    ssize_t count;
    do count = pread(*(int *)context, to, size, offset);
    while (count < 0 && errno == EINTR);
    if (count < 0) {
        FS_IGNORE(fs_fail(err, FS_RUNTIME_ERROR, "cannot read at byte %lld: %s", (long long)offset, strerror(errno)));
    }
    return count;
}

static PyObject *scan(reader_object *self, fs_kineto_read read, void *context, int64_t size)
{
    fs_error err;
    fs_status status;
    self->busy = true;
    fs_long_work work;
    fs_long_work_begin(&work);
    status = fs_kineto_scan(self->kineto, read, context, size, &err);
    fs_long_work_end(&work);
    self->busy = false;
    if (status == FS_INTERRUPTED) end(self);
    if (status != FS_OK) return fs_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *reader_scan_file(PyObject *object, PyObject *args)
{
    reader_object *self = (reader_object *)object;
    int fd;
    long long size;
    if (!PyArg_ParseTuple(args, "iL:scan_file", &fd, &size) || !may_read(self)) return NULL;
    return scan(self, read_file, &fd, size);
}

static PyObject *reader_scan_bytes(PyObject *object, PyObject *given)
{
    reader_object *self = (reader_object *)object;
    Py_buffer text;
    if (PyObject_GetBuffer(given, &text, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *done = may_read(self) ? scan(self, read_buffer, &text, text.len) : NULL;
    PyBuffer_Release(&text);
    return done;
}

static PyObject *report_object(const fs_kineto *kineto, const fs_kineto_report *report)
{
    size_t size;
    const char *head = fs_kineto_head(kineto, &size);
    const struct {
        const char *name;
        int64_t count;
    } counts[] = {
        {"bytes", report->bytes},
        {"events", report->events},
        {"kept", report->kept},
        {"without_time", report->without_time},
        {"unknown", report->unknown},
        {"too_many", report->too_many},
        {"contradicting", report->contradicting},
        {"overlapping", report->overlapping},
        {"process", report->process},
    };
    PyObject *object = Py_BuildValue("{s:N,s:N,s:y#}", "truncated", PyBool_FromLong(report->truncated), "first_unknown",
                                     fs_text_object(report->first_unknown), "head", head, (Py_ssize_t)size);
    for (size_t i = 0; object != NULL && i < sizeof counts / sizeof *counts; i++) {
        if (!fs_put_column(object, counts[i].name, PyLong_FromLongLong(counts[i].count))) Py_CLEAR(object);
    }
    return object;
}

static PyObject *reader_finish(PyObject *object, PyObject *args)
{
    reader_object *self = (reader_object *)object;
    PyObject *given;
    fs_kineto_report report = {.base = 0};
    fs_error err;
    fs_status status;
    if (!PyArg_ParseTuple(args, "O!:finish", fs_profiler_type, &given) || !may_read(self)) return NULL;
    fs_profiler_object *profiler = (fs_profiler_object *)given;
    if (!fs_profiler_is_stopped(profiler, "store") || !fs_profiler_may_change(profiler)) return NULL;
    if (fs_store_count(profiler->store) > 0) {
        PyErr_SetString(PyExc_ValueError, "a trace is read into a new Profiler; this one has events");
        return NULL;
    }
    profiler->generation = fs_fork_generation();
    self->busy = profiler->changing = true;
    fs_long_work work;
    fs_long_work_begin(&work);
    status = fs_kineto_finish(self->kineto, profiler->store, &report, &err);
    fs_long_work_end(&work);
    self->busy = profiler->changing = false;
    if (status != FS_OK) fs_profiler_empty(profiler);
    profiler->recorded = status == FS_OK;
    profiler->clock_base = report.base;
    PyObject *result = status == FS_OK ? report_object(self->kineto, &report) : fs_raise(&err);
    end(self);
    return result;
}

static PyMethodDef methods[] = {
    {"feed", reader_feed, METH_O, "Read on in the text. ValueError names the byte where it is no trace."},
    {"scan_file", reader_scan_file, METH_VARARGS,
     "scan_file($self, fd, size, /)\n--\n\nRead the whole text from a file, by several threads."},
    {"scan_bytes", reader_scan_bytes, METH_O, "Read the whole text from memory, by several threads."},
    {"finish", reader_finish, METH_VARARGS,
     "finish($self, profiler, /)\n--\n\nThe text is over: put its events into a new Profiler. What was read and left "
     "out, and \"head\": the members beside the events, as JSON."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "TraceReader()\n--\n\nReads the text of a trace: feed() it in parts or scan it whole, then finish()."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "flopscope._core.TraceReader",
    .basicsize = sizeof(reader_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

/* For tests of the scanner: a text's tokens, and where and why they end. */
static PyObject *json_tokens(PyObject *module, PyObject *given)
{
    static const char *const names[FS_SCAN_TOKEN_COUNT] = {
#define TOKEN_NAME(NAME, name) #name,
        FS_SCAN_TOKEN_LIST(TOKEN_NAME)
#undef TOKEN_NAME
    };
    char *text, *padded;
    Py_ssize_t size;
    (void)module;
    if (PyBytes_AsStringAndSize(given, &text, &size) < 0) return NULL;
    if ((padded = PyMem_Calloc(1, (size_t)size + 1 + FS_SCAN_PADDING)) == NULL) return PyErr_NoMemory();
    memcpy(padded, text, (size_t)size);
    padded[size] = '\n'; /* so that a number at the end is known to end */
    fs_scan_pull pull;
    fs_scan_token token;
    fs_scan_span span = {"", 0, false};
    fs_scan_status status;
    PyObject *tokens = PyList_New(0);
    fs_scan_pull_begin(&pull, padded, (size_t)size + 1);
    while (tokens != NULL && (status = fs_scan_next(&pull, &token, &span)) == FS_SCAN_GOOD) {
        char *plain = PyMem_Malloc(span.size + 1);
        bool has_text = token >= FS_SCAN_KEY;
        size_t length = 0;
        if (plain != NULL && has_text) length = fs_scan_unescape(&span, plain);
        PyObject *pair = plain == NULL
                             ? PyErr_NoMemory()
                             : Py_BuildValue("(sy#)", names[token], has_text ? plain : "", (Py_ssize_t)length);
        PyMem_Free(plain);
        if (pair == NULL || PyList_Append(tokens, pair) < 0) Py_CLEAR(tokens);
        Py_XDECREF(pair);
    }
    const char *expected = pull.scan.expected != NULL ? pull.scan.expected : "more";
    PyObject *result = tokens == NULL ? NULL
                                      : Py_BuildValue("(Nsns)", tokens, status == FS_SCAN_MORE ? "more" : "bad",
                                                      (Py_ssize_t)(pull.scan.at - padded), expected);
    PyMem_Free(padded);
    return result;
}

static PyMethodDef functions[] = {
    {"_json_tokens", json_tokens, METH_O, "_json_tokens(text): ([(token, text)], how it ends, where, expected)."},
    {NULL, NULL, 0, NULL},
};

int fs_add_trace_reader(PyObject *module)
{
    static PyTypeObject *type;
    return fs_add_type(module, &type, &spec) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
