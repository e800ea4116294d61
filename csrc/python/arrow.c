/* Tables for Arrow: arrow_stream() exports columns as a stream, in the capsule that __arrow_c_stream__ returns
 * (https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html). */
#include <string.h>

#include "base/memory.h"
#include "python/core.h"
#include "views/arrow.h"

/* What the columns borrow until the stream exists: the Python objects, arrays of texts, and bools. */
typedef struct {
    Py_ssize_t rows, count;
    fs_arrow_column *columns;
    PyObject **values; /* each owned: a buffer, or a tuple copied from a list, which may change meanwhile */
    void **scratch;    /* two per column */
} arrow_request;

static bool wrong(const char *column, const char *wanted, PyObject *got)
{
    PyErr_Format(PyExc_TypeError, "column %s: expected %s, got %R", column, wanted, got);
    return false;
}

static bool no_memory(void)
{
    PyErr_NoMemory();
    return false;
}

/* Numbers --------------------------------------------------------------------------------------------------------- */

static void release_buffer(void *owner)
{
    if (!Py_IsInitialized()) return; /* finalized: the owner can no longer be released */
    PyGILState_STATE gil = PyGILState_Ensure();
    PyBuffer_Release(owner);
    PyMem_Free(owner);
    PyGILState_Release(gil);
}

/* A contiguous array of the type. */
static bool share_numbers(fs_arrow_column *column, PyObject *values, Py_ssize_t rows)
{
    Py_buffer *buffer = PyMem_Malloc(sizeof *buffer);
    if (buffer == NULL) return no_memory();
    if (PyObject_GetBuffer(values, buffer, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0) {
        PyMem_Free(buffer);
        return false;
    }
    column->values = buffer->buf;
    column->owner = buffer;
    column->release = release_buffer;
    const char *formats = column->type == FS_ARROW_FLOAT64 ? "d" : "lq";
    const char *format = buffer->format != NULL ? buffer->format : "B";
    bool fits = buffer->ndim == 1 && buffer->itemsize == 8 && strlen(format) == 1 && strchr(formats, *format) != NULL;
    if (!fits) return wrong(column->name, column->type == FS_ARROW_FLOAT64 ? "doubles" : "64-bit integers", values);
    if (buffer->shape[0] == rows) return true;
    PyErr_Format(PyExc_ValueError, "column %s has %zd values for %zd rows", column->name, buffer->shape[0], rows);
    return false;
}

static bool take_numbers(fs_arrow_column *column, PyObject *values, Py_ssize_t rows, void **scratch)
{
    (void)scratch;
    if (!PyTuple_CheckExact(values)) return share_numbers(column, values, rows);
    union {
        int64_t whole;
        double real;
    } *copy = fs_malloc((size_t)(rows ? rows : 1) * sizeof *copy);
    if (copy == NULL) return no_memory();
    column->values = copy;
    column->owner = copy;
    column->release = fs_free;
    for (Py_ssize_t i = 0; i < rows; i++) {
        PyObject *value = PyTuple_GET_ITEM(values, i);
        if (column->type == FS_ARROW_INT64) copy[i].whole = PyLong_AsLongLong(value);
        else copy[i].real = value == Py_None ? Py_NAN : PyFloat_AsDouble(value);
        if (!PyErr_Occurred()) continue;
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
        return wrong(column->name, column->type == FS_ARROW_INT64 ? "an integer" : "a number or None", value);
    }
    return true;
}

/* Types that are copied -------------------------------------------------------------------------------------------- */

static bool take_bools(fs_arrow_column *column, PyObject *values, Py_ssize_t rows, void **scratch)
{
    uint8_t *bools = scratch[0] = PyMem_Malloc((size_t)(rows ? rows : 1));
    if (bools == NULL) return no_memory();
    column->values = bools;
    for (Py_ssize_t i = 0; i < rows; i++) {
        int truth = PyObject_IsTrue(PyTuple_GET_ITEM(values, i));
        if (truth < 0) return false;
        bools[i] = (uint8_t)truth;
    }
    return true;
}

static bool take_text(const fs_arrow_column *column, PyObject *value, fs_arrow_text *text)
{
    if (!PyUnicode_Check(value)) return wrong(column->name, "a string", value);
    Py_ssize_t size;
    text->bytes = PyUnicode_AsUTF8AndSize(value, &size);
    text->size = size;
    return text->bytes != NULL;
}

static bool take_texts(fs_arrow_column *column, PyObject *values, Py_ssize_t rows, void **scratch)
{
    fs_arrow_text *texts = scratch[0] = PyMem_Malloc((size_t)(rows ? rows : 1) * sizeof *texts);
    if (texts == NULL) return no_memory();
    column->values = texts;
    for (Py_ssize_t i = 0; i < rows; i++) {
        PyObject *value = PyTuple_GET_ITEM(values, i);
        texts[i] = (fs_arrow_text){NULL, 0};
        if (value != Py_None && !take_text(column, value, &texts[i])) return false;
    }
    return true;
}

static bool take_lists(fs_arrow_column *column, PyObject *values, Py_ssize_t rows, void **scratch)
{
    int64_t *ends = scratch[1] = PyMem_Malloc((size_t)(rows + 1) * sizeof *ends);
    if (ends == NULL) return no_memory();
    column->ends = ends;
    ends[0] = 0;
    for (Py_ssize_t i = 0; i < rows; i++) {
        PyObject *list = PyTuple_GET_ITEM(values, i);
        if (!PyList_Check(list)) return wrong(column->name, "a list of strings", list);
        ends[i + 1] = ends[i] + PyList_GET_SIZE(list);
    }
    fs_arrow_text *texts = scratch[0] = PyMem_Malloc((size_t)(ends[rows] ? ends[rows] : 1) * sizeof *texts);
    if (texts == NULL) return no_memory();
    column->values = texts;
    for (Py_ssize_t i = 0; i < rows; i++) {
        PyObject *list = PyTuple_GET_ITEM(values, i);
        for (Py_ssize_t j = 0; j < PyList_GET_SIZE(list); j++) {
            if (!take_text(column, PyList_GET_ITEM(list, j), &texts[ends[i] + j])) return false;
        }
    }
    return true;
}

/* Parse the column's name, type and values. The values stay valid until the request ends. */
static bool parse_column(PyObject *argument, fs_arrow_column *column, PyObject **values, Py_ssize_t rows)
{
    const char *type;
    PyObject *list;
    if (!PyTuple_Check(argument) || !PyArg_ParseTuple(argument, "ssO:arrow_stream", &column->name, &type, &list)) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "a column must be a tuple (name, type, values), not %R", argument);
        return false;
    }
    column->type = FS_ARROW_TYPE_COUNT;
    for (fs_arrow_type i = 0; i < FS_ARROW_TYPE_COUNT; i++) {
        if (strcmp(type, fs_arrow_type_names[i]) == 0) column->type = i;
    }
    if (column->type == FS_ARROW_TYPE_COUNT) {
        PyErr_Format(PyExc_ValueError, "column %s: unknown type \"%s\"", column->name, type);
        return false;
    }
    bool number = column->type == FS_ARROW_INT64 || column->type == FS_ARROW_FLOAT64;
    if (number && PyObject_CheckBuffer(list)) return (*values = Py_NewRef(list)) != NULL;
    if (!PyList_Check(list)) return wrong(column->name, "a list", list);
    *values = PyList_AsTuple(list);
    if (*values == NULL || PyTuple_GET_SIZE(*values) == rows) return *values != NULL;
    PyErr_Format(PyExc_ValueError, "column %s has %zd values for %zd rows", column->name, PyTuple_GET_SIZE(*values),
                 rows);
    return false;
}

/* One reader per type. Texts are borrowed from lists that Python code could change. They are read last, when no more
 * Python code runs before the stream is created. */
static const struct {
    bool (*take)(fs_arrow_column *column, PyObject *values, Py_ssize_t rows, void **scratch);
    bool borrows;
} takers[FS_ARROW_TYPE_COUNT] = {
    [FS_ARROW_INT64] = {take_numbers, false}, [FS_ARROW_FLOAT64] = {take_numbers, false},
    [FS_ARROW_BOOL] = {take_bools, false},    [FS_ARROW_TEXT] = {take_texts, true},
    [FS_ARROW_TEXTS] = {take_lists, true},
};

/* Read the columns of a tuple. */
static bool take_columns(PyObject *argument, arrow_request *request)
{
    for (Py_ssize_t i = 0; i < request->count; i++) {
        if (!parse_column(PyTuple_GET_ITEM(argument, i), &request->columns[i], &request->values[i], request->rows))
            return false;
    }
    for (int borrows = 0; borrows < 2; borrows++) {
        for (Py_ssize_t i = 0; i < request->count; i++) {
            fs_arrow_column *column = &request->columns[i];
            if (takers[column->type].borrows != (bool)borrows) continue;
            if (!takers[column->type].take(column, request->values[i], request->rows, &request->scratch[2 * i]))
                return false;
        }
    }
    return true;
}

static void drop_capsule(PyObject *capsule)
{
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    if (stream == NULL) return;
    if (stream->release != NULL) stream->release(stream);
    fs_free(stream);
}

static PyObject *make_capsule(arrow_request *request)
{
    fs_error err;
    struct ArrowArrayStream *stream = fs_calloc(1, sizeof *stream);
    if (stream == NULL) return PyErr_NoMemory();
    fs_status status = fs_arrow_stream(stream, request->rows, request->columns, (size_t)request->count, &err);
    request->count = 0; /* the stream now owns what the columns owned */
    if (status == FS_OK) {
        PyObject *capsule = PyCapsule_New(stream, "arrow_array_stream", drop_capsule);
        if (capsule != NULL) return capsule;
        stream->release(stream);
    } else {
        fs_raise(&err);
    }
    fs_free(stream);
    return NULL;
}

PyObject *fs_arrow_capsule(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *argument, *result = NULL;
    arrow_request request = {0};
    if (!PyArg_ParseTuple(args, "nO!:arrow_stream", &request.rows, &PyList_Type, &argument)) return NULL;
    if (request.rows < 0) return PyErr_Format(PyExc_ValueError, "a table cannot have %zd rows", request.rows);
    PyObject *columns = PyList_AsTuple(argument);
    if (columns == NULL) return NULL;
    size_t count = (size_t)PyTuple_GET_SIZE(columns);
    request.columns = PyMem_Calloc(count ? count : 1, sizeof *request.columns);
    request.values = PyMem_Calloc(count ? count : 1, sizeof *request.values);
    request.scratch = PyMem_Calloc(count ? 2 * count : 1, sizeof *request.scratch);
    if (request.columns == NULL || request.values == NULL || request.scratch == NULL) {
        PyErr_NoMemory();
    } else {
        request.count = (Py_ssize_t)count;
        if (take_columns(columns, &request)) result = make_capsule(&request);
    }
    for (Py_ssize_t i = 0; i < request.count; i++) {
        if (request.columns[i].release != NULL) request.columns[i].release(request.columns[i].owner);
    }
    for (size_t i = 0; request.scratch != NULL && i < 2 * count; i++) PyMem_Free(request.scratch[i]);
    for (size_t i = 0; request.values != NULL && i < count; i++) Py_XDECREF(request.values[i]);
    PyMem_Free(request.columns);
    PyMem_Free(request.values);
    PyMem_Free(request.scratch);
    Py_DECREF(columns);
    return result;
}
