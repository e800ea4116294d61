/* TraceReader: reads the text of a recorded trace into a Store. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/memory.h"
#include "python/store_object.h"
#include "sources/kineto/kineto.h"
#include "sources/protobuf/pftrace.h"

typedef struct {
    Py_buffer *buffers;
    fs_kineto_part *parts;
    Py_ssize_t count;
} texts;

typedef struct {
    PyObject_HEAD
    fs_kineto *kineto;
    bool busy;   /* in use, possibly without the GIL */
    texts ahead; /* what threads may still be reading */
} reader_object;

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    fs_error err;
    if (!fs_parse_arguments(args, kwargs, ":TraceReader", names)) return NULL;
    reader_object *self = (reader_object *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    if (fs_kineto_create(&self->kineto, &err) == FS_OK) return (PyObject *)self;
    Py_DECREF(self);
    return fs_raise(&err);
}

static void release(texts *all)
{
    while (all->count > 0) PyBuffer_Release(&all->buffers[--all->count]);
    PyMem_Free(all->buffers);
    PyMem_Free(all->parts);
    *all = (texts){NULL, NULL, 0};
}

/* Acquire the buffers of a sequence. Return false, with an exception set and none acquired, if one has none. */
static bool acquire(PyObject *sequence, texts *all)
{
    PyObject *items = PySequence_Tuple(sequence);
    size_t room = items == NULL ? 0 : (size_t)PyTuple_GET_SIZE(items) + 1;
    *all = (texts){PyMem_Calloc(room, sizeof *all->buffers), PyMem_Calloc(room, sizeof *all->parts), 0};
    bool good = items != NULL && all->buffers != NULL && all->parts != NULL;
    if (items != NULL && !good) PyErr_NoMemory();
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(items); i++) {
        Py_buffer *buffer = &all->buffers[i];
        good = PyObject_GetBuffer(PyTuple_GET_ITEM(items, i), buffer, PyBUF_SIMPLE) == 0;
        if (!good) break;
        all->parts[i] = (fs_kineto_part){buffer->buf, (size_t)buffer->len};
        all->count++;
    }
    Py_XDECREF(items);
    if (!good) release(all);
    return good;
}

/* Discard a partial result. */
static void end(reader_object *self)
{
    fs_kineto_destroy(self->kineto);
    self->kineto = NULL;
    release(&self->ahead);
}

static void reader_dealloc(PyObject *object)
{
    end((reader_object *)object);
    fs_free_object(object);
}

/* Return false, with an exception set, while another thread uses the reader and after it has finished. */
static bool may_read(const reader_object *self)
{
    if (self->kineto != NULL && !self->busy) return true;
    return fs_refuse(PyExc_RuntimeError, "this reader is in use, has finished, or was interrupted");
}

typedef fs_status (*feeding)(fs_kineto *kineto, const fs_kineto_part *parts, size_t count, fs_error *err);

static fs_status feed_text(fs_kineto *kineto, const fs_kineto_part *parts, size_t Py_UNUSED(count), fs_error *err)
{
    return fs_kineto_feed(kineto, parts->text, parts->size, err);
}

static fs_status write_piece(void *context, const char *text, size_t size, fs_error *err)
{
    return fs_kineto_feed(context, text, size, err);
}

static fs_status feed_pftrace(fs_kineto *kineto, const fs_kineto_part *parts, size_t Py_UNUSED(count), fs_error *err)
{
    return fs_pftrace_read(parts->text, parts->size, write_piece, kineto, err);
}

static PyObject *feed(reader_object *self, PyObject *sequence, feeding feed_parts)
{
    texts all, done;
    fs_error err;
    /* Acquiring buffers may run Python code that uses this reader, so its state is checked afterwards. */
    if (!acquire(sequence, &all)) return NULL;
    if (!may_read(self)) {
        release(&all);
        return NULL;
    }
    self->busy = true;
    fs_status status = FS_LONG_WORK(feed_parts(self->kineto, all.parts, (size_t)all.count, &err));
    self->busy = false;
    done = self->ahead;
    self->ahead = all;
    release(&done);
    if (status != FS_OK || feed_parts != fs_kineto_feed_ahead) release(&self->ahead);
    if (status == FS_INTERRUPTED) end(self);
    return fs_none_or_raise(status, &err);
}

static PyObject *feed_whole(PyObject *object, PyObject *argument, feeding feed_parts)
{
    PyObject *one = PyTuple_Pack(1, argument);
    PyObject *done = one == NULL ? NULL : feed((reader_object *)object, one, feed_parts);
    Py_XDECREF(one);
    return done;
}

static PyObject *reader_feed(PyObject *object, PyObject *argument)
{
    return feed_whole(object, argument, feed_text);
}

static PyObject *reader_feed_ahead(PyObject *object, PyObject *argument)
{
    return feed((reader_object *)object, argument, fs_kineto_feed_ahead);
}

static int64_t read_buffer(void *context, int64_t offset, char *to, size_t size, fs_error *Py_UNUSED(err))
{
    const Py_buffer *text = context;
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
    self->busy = true;
    fs_status status = FS_LONG_WORK(fs_kineto_scan(self->kineto, read, context, size, &err));
    self->busy = false;
    if (status == FS_INTERRUPTED) end(self);
    return fs_none_or_raise(status, &err);
}

static PyObject *reader_scan_file(PyObject *object, PyObject *args)
{
    reader_object *self = (reader_object *)object;
    int fd;
    long long size;
    if (!PyArg_ParseTuple(args, "iL:scan_file", &fd, &size) || !may_read(self)) return NULL;
    return scan(self, read_file, &fd, size);
}

static PyObject *reader_scan_bytes(PyObject *object, PyObject *argument)
{
    reader_object *self = (reader_object *)object;
    Py_buffer text;
    if (PyObject_GetBuffer(argument, &text, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *done = may_read(self) ? scan(self, read_buffer, &text, text.len) : NULL;
    PyBuffer_Release(&text);
    return done;
}

/* clang-format off */
#define COUNTED(X)                                                                              \
    X(bytes) X(events) X(kept) X(without_time) X(unknown) X(metadata) X(understood) X(too_many) \
    X(mended) X(without_duration) X(contradicting) X(guessed) X(overlapping) X(process)
/* clang-format on */

static PyObject *report_object(const fs_kineto *kineto, const fs_kineto_report *report)
{
    size_t size;
    const char *head = fs_kineto_head(kineto, &size);
    PyObject *object = FS_COUNTS(report, COUNTED);
    bool good = object != NULL && fs_put_column(object, "truncated", PyBool_FromLong(report->truncated)) &&
                fs_put_column(object, "first_unknown", fs_text_object(report->first_unknown)) &&
                fs_put_column(object, "head", PyBytes_FromStringAndSize(head, (Py_ssize_t)size));
    if (!good) Py_CLEAR(object);
    return object;
}

static PyObject *reader_finish(PyObject *object, PyObject *args)
{
    reader_object *self = (reader_object *)object;
    PyObject *argument;
    fs_kineto_report report = {.base = 0};
    fs_error err;
    if (!PyArg_ParseTuple(args, "O!:finish", fs_store_type, &argument) || !may_read(self)) return NULL;
    fs_store_object *store = (fs_store_object *)argument;
    if (!fs_store_object_is_stopped(store, "store") || !fs_store_object_may_change(store)) return NULL;
    if (fs_store_count(store->store) > 0 || store->lost != NULL)
        return PyErr_Format(PyExc_ValueError,
                            store->lost != NULL
                                ? "a trace can only be read into a new Store; this one belongs to a Profiler"
                                : "a trace can only be read into a new Store; this one has events");
    store->generation = fs_fork_generation();
    self->busy = store->changing = true;
    fs_status status = FS_LONG_WORK(fs_kineto_finish(self->kineto, store->store, &report, &err));
    self->busy = store->changing = false;
    if (status != FS_OK) fs_store_object_empty(store);
    store->recorded = status == FS_OK;
    store->clock_base = report.base;
    PyObject *result = status == FS_OK ? report_object(self->kineto, &report) : fs_raise(&err);
    end(self);
    return result;
}

static PyObject *reader_feed_pftrace(PyObject *self, PyObject *bytes)
{
    return feed_whole(self, bytes, feed_pftrace);
}

static PyObject *reader_packed(PyObject *Py_UNUSED(type), PyObject *argument)
{
    Py_buffer bytes;
    fs_pftrace_packed *packed;
    uint32_t count;
    fs_error err;
    if (PyObject_GetBuffer(argument, &bytes, PyBUF_SIMPLE) < 0) return NULL;
    fs_status status = FS_LONG_WORK(fs_pftrace_list_packed(bytes.buf, (size_t)bytes.len, &packed, &count, &err));
    PyBuffer_Release(&bytes);
    if (status != FS_OK) return fs_raise(&err);
    PyObject *list = FS_LIST_OF(one, packed, count,
                                Py_BuildValue("(nnnn)", (Py_ssize_t)one->begin, (Py_ssize_t)one->end,
                                              (Py_ssize_t)one->content, (Py_ssize_t)one->content_end));
    fs_free(packed);
    return list;
}

static PyMethodDef methods[] = {
    {"feed_pftrace", reader_feed_pftrace, METH_O,
     "feed_pftrace($self, bytes, /)\n--\n\nRead a whole trace of Perfetto, without compressed packets."},
    {"packed", reader_packed, METH_O | METH_CLASS,
     "packed($type, bytes, /)\n--\n\nReturn where a trace of Perfetto has compressed packets: begin and end of each, "
     "and "
     "of what is compressed."},
    {"feed", reader_feed, METH_O,
     "Read the next part of the text. Raise ValueError naming the byte of a syntax error."},
    {"feed_ahead", reader_feed_ahead, METH_O,
     "Do the same for the parts in a sequence, and return while threads may still read them, which must not change "
     "before the next call. That call raises what is wrong with this text."},
    {"scan_file", reader_scan_file, METH_VARARGS,
     "scan_file($self, fd, size, /)\n--\n\nRead the whole text from a file, with several threads."},
    {"scan_bytes", reader_scan_bytes, METH_O, "Read the whole text from memory, with several threads."},
    {"finish", reader_finish, METH_VARARGS,
     "finish($self, store, /)\n--\n\nEnd the text and put its events into a new Store. Return the counts of events "
     "read and skipped, and \"head\": the other members as JSON."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "TraceReader()\n--\n\nA reader of a trace's text: feed() parts or scan all of it, then call finish()."},
    {0, NULL},
};

int fs_add_trace_reader(PyObject *module)
{
    static PyTypeObject *type;
    return fs_add_type(module, &type, FS_TYPE_SPEC("flopscope._core.TraceReader", reader_object, 0, slots));
}
