/* DatabaseReader: reads the rows of a profiler's database into a Store. */
#include <string.h>

#include "base/fork.h"
#include "base/memory.h"
#include "python/core.h"
#include "python/store_object.h"
#include "sources/kineto/json_scan.h"
#include "sources/protobuf/xspace.h"
#include "sources/sqlite/query.h"
#include "sources/sqlite/rows.h"

/* Facts of XSpace -------------------------------------------------------------------------------------------------- */

/* What an XSpace holds besides its events, as objects of Python. */

static PyObject *text_object(fs_text text)
{
    return PyUnicode_DecodeUTF8(text.bytes, (Py_ssize_t)text.size, "replace");
}

static PyObject *value_object(const fs_xvalue *value)
{
    switch (value->type) {
    case FS_XINTEGER:
        return PyLong_FromLongLong(value->integer);
    case FS_XUNSIGNED:
        return PyLong_FromUnsignedLongLong((unsigned long long)value->integer);
    case FS_XREAL:
        return PyFloat_FromDouble(value->real);
    case FS_XTEXT:
        return text_object(value->text);
    default:
        Py_RETURN_NONE;
    }
}

static PyObject *plane_object(const fs_xplane *plane)
{
    static const char *const roles[] = {
        [FS_XLINE_LEFT_OUT] = "left out", [FS_XLINE_STREAM] = "stream", [FS_XLINE_OPS] = "ops",
        [FS_XLINE_STEPS] = "steps",       [FS_XLINE_THREAD] = "thread", [FS_XLINE_CALLS] = "thread",
    };
    PyObject *stats = PyDict_New(), *lines = PyList_New(0);
    bool made = stats != NULL && lines != NULL;
    for (uint32_t i = 0; made && i < plane->stat_count; i++)
        made = fs_put(stats, text_object(plane->stats[i].name), value_object(&plane->stats[i].value));
    for (uint32_t i = 0; made && i < plane->line_count; i++) {
        const fs_xline *line = &plane->lines[i];
        made = fs_append(lines, Py_BuildValue("(NsLL)", text_object(line->name), roles[line->role],
                                              (long long)line->start, (long long)line->events));
    }
    if (made)
        return Py_BuildValue("{sNsLsNsN}", "name", text_object(plane->name), "device",
                             plane->role == FS_XPLANE_DEVICE ? (long long)plane->device : -1LL, "stats", stats, "lines",
                             lines);
    Py_XDECREF(stats);
    Py_XDECREF(lines);
    return NULL;
}

/* Return a new dict: "planes" (dicts of "name", "device", "stats" by name, and "lines": name, role, start and number of
 * events), "modules" (name and bytes of each HloProto) and "remarks" (kind and text). NULL with an exception set. */
static PyObject *xspace_object(const fs_xspace *space)
{
    static const char *const kinds[] = {
        [FS_XREMARK_ERROR] = "error", [FS_XREMARK_WARNING] = "warning", [FS_XREMARK_HOST] = "host"};
    PyObject *planes = PyList_New(0), *modules = PyList_New(0), *remarks = PyList_New(0);
    bool made = planes != NULL && modules != NULL && remarks != NULL;
    for (uint32_t i = 0; made && i < space->plane_count; i++) made = fs_append(planes, plane_object(&space->planes[i]));
    for (uint32_t i = 0; made && i < space->module_count; i++) {
        const fs_xmodule *module = &space->modules[i];
        made = fs_append(modules, Py_BuildValue("(Ny#)", text_object(module->name), module->proto.bytes,
                                                (Py_ssize_t)module->proto.size));
    }
    for (uint32_t i = 0; made && i < space->remark_count; i++) {
        const fs_xremark *remark = &space->remarks[i];
        made = fs_append(remarks, Py_BuildValue("(sN)", kinds[remark->kind], text_object(remark->text)));
    }
    if (made) return Py_BuildValue("{sNsNsN}", "planes", planes, "modules", modules, "remarks", remarks);
    Py_XDECREF(planes);
    Py_XDECREF(modules);
    Py_XDECREF(remarks);
    return NULL;
}

/* Database reader -------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    fs_rows *rows;
    bool busy; /* in use, possibly without the GIL */
} reader_object;

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    fs_error err;
    if (!fs_parse_arguments(args, kwargs, ":DatabaseReader", names)) return NULL;
    reader_object *self = (reader_object *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    if (fs_rows_create(&self->rows, &err) == FS_OK) return (PyObject *)self;
    Py_DECREF(self);
    return fs_raise(&err);
}

static void reader_dealloc(PyObject *object)
{
    fs_rows_destroy(((reader_object *)object)->rows);
    fs_free_object(object);
}

/* Return false, with an exception set, while another thread uses the reader and after it has finished. */
static bool may_read(const reader_object *self)
{
    if (self->rows != NULL && !self->busy) return true;
    return fs_refuse(PyExc_RuntimeError, "this reader is in use, has finished, or was interrupted");
}

/* Discard a partial result. */
static void end(reader_object *self)
{
    fs_rows_destroy(self->rows);
    self->rows = NULL;
}

/* Find a name in a list; -1 with an exception set if it is not there. */
static int place_of(PyObject *name, const char *const *names, int count, const char *what)
{
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    for (int i = 0; text != NULL && i < count; i++)
        if (strcmp(text, names[i]) == 0) return i;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%R is no %s of a database's rows", name, what);
    return -1;
}

/* Parse the names of columns, each at most once. */
static bool parse_columns(PyObject *names, uint8_t columns[FS_CELL_COUNT], uint32_t *count)
{
    bool used[FS_CELL_COUNT] = {false};
    PyObject *items = PySequence_Fast(names, "columns must be a sequence");
    if (items == NULL) return false;
    *count = 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++) {
        int place = place_of(PySequence_Fast_GET_ITEM(items, i), fs_row_column_names, FS_CELL_COUNT, "column");
        if (place >= 0 && used[place])
            PyErr_Format(PyExc_ValueError, "column %s is given twice", fs_row_column_names[place]);
        if (place < 0 || used[place]) break;
        used[place] = true;
        columns[(*count)++] = (uint8_t)place;
    }
    Py_DECREF(items);
    return !PyErr_Occurred();
}

/* Rows from Python ------------------------------------------------------------------------------------------------- */

/* Convert a value: an integer, a real, a text, or the bytes of a payload. Anything else, and a number out of range, is
 * missing. */
static bool take_value(PyObject *value, bool payload, fs_cell *cell)
{
    cell->type = FS_IS_MISSING;
    if (PyLong_Check(value)) {
        int overflow;
        cell->integer = PyLong_AsLongLongAndOverflow(value, &overflow);
        cell->real = (double)cell->integer;
        if (overflow == 0) cell->type = FS_IS_INTEGER;
    } else if (PyFloat_Check(value)) {
        double real = PyFloat_AS_DOUBLE(value);
        if (!(real > -0x1p62 && real < 0x1p62)) return true;
        cell->integer = (int64_t)real;
        cell->real = real;
        cell->type = FS_IS_INTEGER;
    } else if (PyUnicode_Check(value)) {
        Py_ssize_t size;
        cell->text = PyUnicode_AsUTF8AndSize(value, &size);
        if (cell->text == NULL) return false;
        cell->size = (size_t)size;
        cell->type = FS_IS_TEXT;
    } else if (payload && PyBytes_Check(value)) {
        cell->text = PyBytes_AS_STRING(value);
        cell->size = (size_t)PyBytes_GET_SIZE(value);
        cell->type = FS_IS_TEXT;
    }
    return true;
}

static bool add_row(reader_object *self, uint32_t part, fs_row_kind kind, const uint8_t *columns, uint32_t count,
                    PyObject *row, fs_cell *cells)
{
    fs_error err;
    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != (Py_ssize_t)count)
        return fs_refuse(PyExc_ValueError, "a row must be a tuple of %u values, one for each column, not %R", count,
                         row);
    for (uint32_t i = 0; i < count; i++)
        if (!take_value(PyTuple_GET_ITEM(row, (Py_ssize_t)i), columns[i] == FS_CELL_PAYLOAD, &cells[columns[i]]))
            return false;
    if (fs_rows_add(self->rows, part, kind, cells, &err) == FS_OK) return true;
    fs_raise(&err);
    return false;
}

static PyObject *reader_add(PyObject *object, PyObject *args)
{
    reader_object *self = (reader_object *)object;
    PyObject *kind_name, *column_names, *rows;
    uint8_t columns[FS_CELL_COUNT];
    uint32_t count, part;
    fs_error err;
    if (!PyArg_ParseTuple(args, "OOO!:add", &kind_name, &column_names, &PyList_Type, &rows)) return NULL;
    int kind = place_of(kind_name, fs_row_kind_names, FS_ROW_KIND_COUNT, "kind");
    if (kind < 0 || !parse_columns(column_names, columns, &count) || !may_read(self)) return NULL;
    fs_cell cells[FS_CELL_COUNT] = {{FS_IS_MISSING, 0, 0, NULL, 0}};
    if (fs_rows_open_parts(self->rows, 1, &part, &err) != FS_OK) return fs_raise(&err);
    self->busy = true;
    bool added = true;
    for (Py_ssize_t i = 0; added && i < PyList_GET_SIZE(rows); i++)
        added = add_row(self, part, (fs_row_kind)kind, columns, count, PyList_GET_ITEM(rows, i), cells);
    self->busy = false;
    if (!added) return NULL;
    Py_RETURN_NONE;
}

/* Queries ---------------------------------------------------------------------------------------------------------- */

static bool parse_query(PyObject *item, fs_query *query)
{
    PyObject *kind_name, *columns;
    long long after, until;
    memset(query, 0, sizeof *query);
    if (!PyTuple_Check(item)) return fs_refuse(PyExc_TypeError, "a query must be a tuple, not %R", item);
    if (!PyArg_ParseTuple(item, "OszLLO:query", &kind_name, &query->sql, &query->next, &after, &until, &columns))
        return false;
    int kind = place_of(kind_name, fs_row_kind_names, FS_ROW_KIND_COUNT, "kind");
    if (kind < 0 || !parse_columns(columns, query->columns, &query->column_count)) return false;
    query->kind = (fs_row_kind)kind;
    query->after = after;
    query->until = until;
    return true;
}

static PyObject *results_of(const fs_query *queries, Py_ssize_t count)
{
    return FS_LIST_OF(query, queries, count,
                      Py_BuildValue("(LLN)", (long long)query->row_count, (long long)query->too_long,
                                    fs_text_object(query->problem)));
}

static PyObject *reader_read(PyObject *object, PyObject *args)
{
    reader_object *self = (reader_object *)object;
    PyObject *items;
    const char *uri;
    fs_error err;
    if (!PyArg_ParseTuple(args, "sO!:read", &uri, &PyList_Type, &items) || !may_read(self)) return NULL;
    PyObject *kept = PyList_AsTuple(items); /* keeps the texts of the queries, and their number */
    if (kept == NULL) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(kept);
    fs_query *queries = PyMem_Calloc((size_t)count + 1, sizeof *queries);
    bool parsed = queries != NULL;
    if (!parsed) PyErr_NoMemory();
    for (Py_ssize_t i = 0; parsed && i < count; i++) parsed = parse_query(PyTuple_GET_ITEM(kept, i), &queries[i]);
    PyObject *results = NULL;
    if (parsed) {
        self->busy = true;
        fs_status status = FS_LONG_WORK(fs_queries_run(self->rows, uri, queries, (uint32_t)count, &err));
        self->busy = false;
        if (status == FS_INTERRUPTED) end(self);
        results = status == FS_OK ? results_of(queries, count) : fs_raise(&err);
    }
    PyMem_Free(queries);
    Py_DECREF(kept);
    return results;
}

static PyObject *reader_read_xspace(PyObject *object, PyObject *bytes)
{
    reader_object *self = (reader_object *)object;
    Py_buffer view;
    fs_xspace space;
    fs_error err;
    if (!may_read(self) || PyObject_GetBuffer(bytes, &view, PyBUF_SIMPLE) != 0) return NULL;
    self->busy = true;
    fs_status status = FS_LONG_WORK(fs_xspace_read(&space, view.buf, (size_t)view.len, self->rows, &err));
    self->busy = false;
    PyObject *facts = status == FS_OK ? xspace_object(&space) : fs_raise(&err);
    if (status != FS_OK) end(self);
    else fs_xspace_clear(&space);
    PyBuffer_Release(&view);
    return facts;
}

/* The samples' devices, metrics, starts and ends as arrays of int64, and their values as an array of doubles. */
static PyObject *arrays_of(const fs_metric_sample *samples, uint32_t count)
{
    int64_t *numbers = PyMem_Malloc((4 * (size_t)count + 1) * sizeof *numbers);
    double *values = PyMem_Malloc(((size_t)count + 1) * sizeof *values);
    PyObject *arrays = NULL;
    if (numbers == NULL || values == NULL) PyErr_NoMemory();
    for (uint32_t i = 0; numbers != NULL && values != NULL && i < count; i++) {
        numbers[i] = samples[i].device;
        numbers[count + (size_t)i] = samples[i].metric;
        numbers[2 * (size_t)count + i] = samples[i].start;
        numbers[3 * (size_t)count + i] = samples[i].end;
        values[i] = samples[i].value;
    }
    if (numbers != NULL && values != NULL && fs_have_numpy()) {
        arrays =
            Py_BuildValue("(NNNNN)", fs_array_of_int64(numbers, count), fs_array_of_int64(numbers + count, count),
                          fs_array_of_int64(numbers + 2 * (size_t)count, count),
                          fs_array_of_int64(numbers + 3 * (size_t)count, count), fs_array_of_doubles(values, count));
    }
    PyMem_Free(numbers);
    PyMem_Free(values);
    return arrays;
}

static PyObject *reader_metrics(PyObject *object, PyObject *Py_UNUSED(unused))
{
    reader_object *self = (reader_object *)object;
    fs_metric_sample *samples;
    uint32_t count;
    fs_error err;
    if (!may_read(self)) return NULL;
    self->busy = true;
    fs_status status = FS_LONG_WORK(fs_rows_metrics(self->rows, &samples, &count, &err));
    self->busy = false;
    if (status != FS_OK) return fs_raise(&err);
    PyObject *arrays = arrays_of(samples, count);
    fs_free(samples);
    return arrays;
}

static PyObject *reader_use_library(PyObject *Py_UNUSED(type), PyObject *path)
{
    fs_error err;
    const char *name = PyUnicode_AsUTF8(path);
    if (name == NULL) return NULL;
    if (fs_sqlite_load(name, &err) != FS_OK) return fs_raise(&err);
    return PyLong_FromLong(fs_sqlite->libversion_number());
}

static PyObject *instruction_name(fs_span span)
{
    const char *module = span.bytes, *name = module + strlen(module) + 1;
    return Py_BuildValue("(NN)", fs_text_object(module), fs_text_object(name));
}

/* Instructions as a list of (module, name). */
static PyObject *names_of(const fs_intern *instructions)
{
    return FS_LIST(i, instructions->count, instruction_name(fs_intern_get(instructions, i)));
}

static PyObject *column_of(const int64_t *numbers, uint32_t count)
{
    return fs_numbers_object(PyBytes_FromStringAndSize((const char *)numbers, 8 * (Py_ssize_t)count), true);
}

/* The events that run instructions, and which, as arrays of int64; and the instructions. */
static PyObject *ties_object(const fs_rows *rows)
{
    fs_intern instructions = {0};
    fs_row_tie *ties = NULL;
    uint32_t count = 0;
    fs_error err;
    PyObject *object = NULL;
    fs_status status = fs_rows_ties(rows, &ties, &count, &instructions, &err);
    int64_t *numbers = PyMem_Malloc((2 * (size_t)count + 1) * sizeof *numbers);
    if (status != FS_OK) fs_raise(&err);
    else if (numbers == NULL) PyErr_NoMemory();
    for (uint32_t i = 0; status == FS_OK && numbers != NULL && i < count; i++) {
        numbers[i] = ties[i].event;
        numbers[count + (size_t)i] = ties[i].instruction;
    }
    if (status == FS_OK && numbers != NULL && count == 0) object = Py_NewRef(Py_None);
    else if (status == FS_OK && numbers != NULL)
        object = Py_BuildValue("(NNN)", column_of(numbers, count), column_of(numbers + count, count),
                               names_of(&instructions));
    PyMem_Free(numbers);
    fs_free(ties);
    fs_intern_clear(&instructions);
    return object;
}

/* Finishing -------------------------------------------------------------------------------------------------------- */

/* clang-format off */
#define REPORTED(X)                                                                             \
    X(events) X(kept) X(without_time) X(too_many) X(ops) X(marks) X(unnamed) X(overlapping)     \
    X(replays) X(graph_work) X(captured) X(messages) X(unsized) X(changes) X(unmatched_frees)   \
    X(process) X(processes)
/* clang-format on */

static PyObject *finish(reader_object *self, fs_store_object *store, const char *head, size_t size)
{
    fs_rows_report report = {.events = 0};
    fs_error err;
    store->generation = fs_fork_generation();
    self->busy = store->changing = true;
    fs_status status = FS_LONG_WORK(fs_rows_finish(self->rows, head, size, &store->store, &report, &err));
    self->busy = store->changing = false;
    if (status != FS_OK) fs_store_object_empty(store);
    store->recorded = status == FS_OK;
    PyObject *result = status == FS_OK ? FS_COUNTS(&report, REPORTED) : fs_raise(&err);
    if (result != NULL && !fs_put_column(result, "instructions", ties_object(self->rows))) Py_CLEAR(result);
    end(self);
    return result;
}

static PyObject *reader_finish(PyObject *object, PyObject *args)
{
    reader_object *self = (reader_object *)object;
    PyObject *argument;
    const char *head;
    Py_ssize_t size;
    long long base;
    if (!PyArg_ParseTuple(args, "O!y#L:finish", fs_store_type, &argument, &head, &size, &base) || !may_read(self))
        return NULL;
    fs_store_object *store = (fs_store_object *)argument;
    if (!fs_store_object_is_stopped(store, "store") || !fs_store_object_may_change(store)) return NULL;
    if (fs_store_count(store->store) > 0 || store->lost != NULL)
        return PyErr_Format(PyExc_ValueError, "a database can only be read into a new Store; this one has events");
    char *padded = PyMem_Calloc((size_t)size + FS_SCAN_PADDING, 1);
    if (padded == NULL) return PyErr_NoMemory();
    memcpy(padded, head, (size_t)size);
    PyObject *result = finish(self, store, padded, (size_t)size);
    PyMem_Free(padded);
    store->clock_base = result != NULL ? base : store->clock_base;
    return result;
}

static PyMethodDef methods[] = {
    {"use_library", reader_use_library, METH_O | METH_CLASS,
     "use_library($type, path, /)\n--\n\nLoad SQLite from a library or one that it depends on, or from the program: "
     "\"\". "
     "Return its version number. Raise RuntimeError if it is unusable."},
    {"add", reader_add, METH_VARARGS,
     "add($self, kind, columns, rows, /)\n--\n\nAdd a list of rows: tuples of values, one for each named column."},
    {"read", reader_read, METH_VARARGS,
     "read($self, uri, queries, /)\n--\n\nAdd the rows of queries on a file, which several threads read: tuples (kind, "
     "sql, sql of the next rowid or None, rowid before the first, last rowid, columns). Return (rows, rows with too "
     "long a value, SQLite's error or \"\") of each."},
    {"read_xspace", reader_read_xspace, METH_O,
     "read_xspace($self, bytes, /)\n--\n\nAdd the events of an XSpace, a recording of XLA's profiler. Return what "
     "else it holds: a dict of \"planes\", \"modules\" and \"remarks\"."},
    {"metrics", reader_metrics, METH_NOARGS,
     "Return the samples of counters in order of device, metric and end, as arrays of devices, metrics, starts, ends "
     "and "
     "values. A start that is not in the file is the least int64."},
    {"finish", reader_finish, METH_VARARGS,
     "finish($self, store, head, base, /)\n--\n\nPut the events into a new Store whose times count from `base`, ns "
     "since "
     "1970. `head` is JSON with \"deviceProperties\". Return counts of what was read."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "DatabaseReader()\n--\n\nA reader of a profiler's database: add() or read() rows, then call finish()."},
    {0, NULL},
};

int fs_add_database_reader(PyObject *module)
{
    static PyTypeObject *type;
    return fs_add_type(module, &type, FS_TYPE_SPEC("flopscope._core.DatabaseReader", reader_object, 0, slots));
}
