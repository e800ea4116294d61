/* Profiler: a store and the source of native launches that fills it, and its table as Python's lists and arrays. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "python/core.h"
#include "sources/native.h"
#include "store/signature.h"
#include "table/table.h"

typedef struct {
    PyObject_HEAD
    fs_store *store;
    fs_recorder *recorder;
    bool profile_memory, running;
} profiler_object;

static PyObject *profiler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"profile_memory", NULL};
    int profile_memory = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p:Profiler", names, &profile_memory)) return NULL;
    profiler_object *self = (profiler_object *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->profile_memory = profile_memory;
    fs_error err;
    if (fs_store_create(&self->store, &err) != FS_OK ||
        fs_recorder_create(&self->recorder, self->store, profile_memory, &err) != FS_OK) {
        Py_DECREF(self);
        return fs_raise(&err);
    }
    return (PyObject *)self;
}

static fs_status stop_recorder(profiler_object *self, fs_error *err)
{
    fs_status status;
    self->running = false;
    Py_BEGIN_ALLOW_THREADS status = fs_recorder_stop(self->recorder, err);
    Py_END_ALLOW_THREADS return status;
}

static void profiler_dealloc(PyObject *object)
{
    profiler_object *self = (profiler_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->running) stop_recorder(self, NULL);
    fs_recorder_destroy(self->recorder);
    fs_store_destroy(self->store);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *profiler_start(PyObject *object, PyObject *unused)
{
    (void)unused;
    profiler_object *self = (profiler_object *)object;
    fs_error err;
    if (fs_recorder_start(self->recorder, &err) != FS_OK) return fs_raise(&err);
    self->running = true;
    Py_RETURN_NONE;
}

static PyObject *profiler_stop(PyObject *object, PyObject *unused)
{
    (void)unused;
    profiler_object *self = (profiler_object *)object;
    fs_error err;
    if (!self->running) {
        PyErr_SetString(PyExc_RuntimeError, "this profile is not running: it was never started, or stopped before");
        return NULL;
    }
    if (stop_recorder(self, &err) != FS_OK) return fs_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *profiler_begin_range(PyObject *object, PyObject *name)
{
    profiler_object *self = (profiler_object *)object;
    fs_error err;
    uint32_t index;
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(name, &size);
    if (text == NULL) return NULL;
    if (strlen(text) != (size_t)size) {
        PyErr_SetString(PyExc_ValueError, "the name of a range holds no NUL");
        return NULL;
    }
    if (!self->running) Py_RETURN_NONE;
    if (fs_recorder_begin_range(self->recorder, text, &index, &err) != FS_OK) return fs_raise(&err);
    return PyLong_FromUnsignedLong(index);
}

static PyObject *profiler_end_range(PyObject *object, PyObject *index)
{
    profiler_object *self = (profiler_object *)object;
    unsigned long at = PyLong_AsUnsignedLong(index);
    if (at == (unsigned long)-1 && PyErr_Occurred()) return NULL;
    if (at >= fs_store_count(self->store)) {
        PyErr_Format(PyExc_ValueError, "no event %lu: the profile has %lu", at,
                     (unsigned long)fs_store_count(self->store));
        return NULL;
    }
    fs_recorder_end_range(self->recorder, (uint32_t)at);
    Py_RETURN_NONE;
}

/* Peaks: {"cpu": {"flops": {unit: FLOP/s}, "bandwidth": bytes/s, "launch_ns": ns}, "cuda:0": …} ----------------------
 */

typedef struct {
    fs_table_options options;
    fs_peaks peaks[FS_MAX_CUDA_DEVICES + 1];
} table_request;

static bool take_rate(PyObject *mapping, const char *key, double *rate)
{
    PyObject *value = PyMapping_GetItemString(mapping, key);
    if (value == NULL) {
        PyErr_Clear();
        return true;
    }
    if (value != Py_None) *rate = PyFloat_AsDouble(value);
    Py_DECREF(value);
    return !PyErr_Occurred();
}

static bool take_peaks(PyObject *given, fs_peaks *peaks)
{
    fs_peaks_unknown(peaks);
    if (!take_rate(given, "bandwidth", &peaks->bandwidth) || !take_rate(given, "launch_ns", &peaks->launch_ns))
        return false;
    PyObject *flops = PyMapping_GetItemString(given, "flops");
    if (flops == NULL) return false;
    bool good = true;
    for (int unit = 0; good && unit < FS_UNIT_COUNT; unit++) {
        good = take_rate(flops, fs_units[unit].name, &peaks->flops[unit]);
    }
    Py_DECREF(flops);
    return good;
}

static bool take_all_peaks(PyObject *given, table_request *request)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    int used = 0;
    while (PyDict_Next(given, &at, &name, &value)) {
        const char *text = PyUnicode_AsUTF8(name);
        if (text == NULL) return false;
        if (used > FS_MAX_CUDA_DEVICES) break;
        fs_peaks *peaks = &request->peaks[used++];
        if (!take_peaks(value, peaks)) return false;
        int index = -1;
        if (strcmp(text, "cpu") == 0) request->options.cpu_peaks = peaks;
        else if (sscanf(text, "cuda:%d", &index) == 1 && index >= 0 && index < FS_MAX_CUDA_DEVICES) {
            request->options.cuda_peaks[index] = peaks;
        }
    }
    return true;
}

/* The table's columns ------------------------------------------------------------------------------------------- */

static PyObject *shape_object(const fs_argument *argument)
{
    PyObject *shape = PyList_New(argument->ndim);
    for (int d = 0; shape != NULL && d < argument->ndim; d++) {
        PyObject *size = PyLong_FromLongLong(argument->shape[d]);
        if (size == NULL) Py_CLEAR(shape);
        else PyList_SET_ITEM(shape, d, size);
    }
    return shape;
}

static PyObject *dtype_object(const fs_argument *argument)
{
    return PyUnicode_FromString(fs_dtypes[argument->dtype].name);
}

/* One value for each argument that was given to the op. */
static PyObject *argument_list(const fs_store *store, const fs_row *row, PyObject *(*value_of)(const fs_argument *))
{
    PyObject *list = PyList_New(0);
    if (list == NULL || row->signature == FS_NONE) return list;
    fs_signature signature;
    fs_span bytes = fs_store_signature_bytes(store, row->signature);
    fs_signature_decode(bytes.bytes, bytes.size, &signature);
    for (int i = 0; i < signature.argument_count; i++) {
        if (signature.arguments[i].role == FS_ARGUMENT_OUT) continue;
        PyObject *value = value_of(&signature.arguments[i]);
        if (value == NULL || PyList_Append(list, value) < 0) {
            Py_XDECREF(value);
            Py_CLEAR(list);
            return NULL;
        }
        Py_DECREF(value);
    }
    return list;
}

static PyObject *key_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return PyUnicode_DecodeUTF8(row->key, (Py_ssize_t)strlen(row->key), "replace");
}

static PyObject *overload_of(const fs_store *store, const fs_row *row)
{
    (void)store, (void)row;
    return PyUnicode_FromString("");
}

static PyObject *device_type_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return PyUnicode_FromString(row->on_device ? "cuda" : "cpu");
}

static PyObject *annotation_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return PyBool_FromLong(row->is_user_annotation);
}

static PyObject *count_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return PyLong_FromLongLong(row->count);
}

static PyObject *top_level_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return PyBool_FromLong(row->top_level);
}

static PyObject *shapes_of(const fs_store *store, const fs_row *row)
{
    return argument_list(store, row, shape_object);
}

static PyObject *dtypes_of(const fs_store *store, const fs_row *row)
{
    return argument_list(store, row, dtype_object);
}

static PyObject *bound_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return PyUnicode_FromString(fs_bound_names[row->bound]);
}

static PyObject *timing_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return PyUnicode_FromString(fs_timing_names[row->timing]);
}

static bool put(PyObject *columns, const char *name, PyObject *column)
{
    bool good = column != NULL && PyDict_SetItemString(columns, name, column) == 0;
    Py_XDECREF(column);
    return good;
}

typedef PyObject *(*row_value)(const fs_store *store, const fs_row *row);

static PyObject *list_of(const fs_store *store, const fs_table *table, row_value value_of)
{
    PyObject *list = PyList_New(table->row_count);
    for (uint32_t i = 0; list != NULL && i < table->row_count; i++) {
        PyObject *value = value_of(store, &table->rows[i]);
        if (value == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, value);
    }
    return list;
}

/* The numeric columns: where a row holds them, and how they are shown. */
enum {
#define UNIT_ENUM(unit, text, divisor) UNIT_##unit,
    FS_COLUMN_UNITS(UNIT_ENUM)
#undef UNIT_ENUM
};

static const struct {
    const char *text;
    double divisor;
} column_units[] = {
#define UNIT_ROW(unit, text, divisor) [UNIT_##unit] = {text, divisor},
    FS_COLUMN_UNITS(UNIT_ROW)
#undef UNIT_ROW
};

static const struct {
    const char *name, *prose;
    size_t offset;
    int unit;
    bool integer;
} numeric_columns[] = {
#define FS_COLUMN(type, name, unit, prose) \
    {#name, prose, offsetof(fs_row, name), UNIT_##unit, _Generic((type)0, int64_t: true, double: false)},
#include "table/columns.def"
#undef FS_COLUMN
};
enum { NUMERIC_COLUMNS = sizeof numeric_columns / sizeof *numeric_columns };

/* Integers stay integers unless their unit is scaled: ns become µs. */
static PyObject *numbers_of(const fs_table *table, int column)
{
    Py_ssize_t count = table->row_count;
    double divisor = column_units[numeric_columns[column].unit].divisor;
    bool integer = numeric_columns[column].integer, stays = integer && divisor == 1;
    union {
        int64_t whole;
        double real;
    } *values = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *values);
    if (values == NULL) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        memcpy(&values[i], (const char *)&table->rows[i] + numeric_columns[column].offset, sizeof *values);
        if (!stays) values[i].real = (integer ? (double)values[i].whole : values[i].real) / divisor;
    }
    PyObject *array = stays ? fs_array_of_int64(&values->whole, count) : fs_array_of_doubles(&values->real, count);
    PyMem_Free(values);
    return array;
}

static PyObject *columns_of(const fs_store *store, const fs_table *table)
{
    PyObject *columns = PyDict_New();
    if (columns == NULL) return NULL;
    bool good = put(columns, "key", list_of(store, table, key_of)) &&
                put(columns, "overload_name", list_of(store, table, overload_of)) &&
                put(columns, "device_type", list_of(store, table, device_type_of)) &&
                put(columns, "is_user_annotation", list_of(store, table, annotation_of)) &&
                put(columns, "count", list_of(store, table, count_of)) &&
                put(columns, "input_shapes", list_of(store, table, shapes_of)) &&
                put(columns, "input_dtypes", list_of(store, table, dtypes_of)) &&
                put(columns, "bound", list_of(store, table, bound_of)) &&
                put(columns, "timing_source", list_of(store, table, timing_of));
    for (int i = 0; good && i < NUMERIC_COLUMNS; i++) {
        good = put(columns, numeric_columns[i].name, numbers_of(table, i));
    }
    if (!good) Py_CLEAR(columns);
    return columns;
}

static PyObject *share(double part, double whole)
{
    return PyFloat_FromDouble(whole > 0 ? part / whole : (double)NAN);
}

static PyObject *unmodelled_list(const fs_table *table)
{
    PyObject *list = PyList_New(table->unmodelled_count);
    for (uint32_t i = 0; list != NULL && i < table->unmodelled_count; i++) {
        const fs_unmodelled *entry = &table->unmodelled[i];
        PyObject *pair = Py_BuildValue("(sd)", entry->key, (double)entry->ns / 1000.0);
        if (pair == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, pair);
    }
    return list;
}

static PyObject *profiler_table(PyObject *object, PyObject *args)
{
    profiler_object *self = (profiler_object *)object;
    int by_shape;
    PyObject *peaks;
    if (!PyArg_ParseTuple(args, "pO!:table", &by_shape, &PyDict_Type, &peaks)) return NULL;
    if (self->running) {
        PyErr_SetString(PyExc_RuntimeError, "the profile is still running; stop it before asking for its table");
        return NULL;
    }
    table_request *request = PyMem_Calloc(1, sizeof *request);
    if (request == NULL) return PyErr_NoMemory();
    request->options.by_shape = by_shape;
    fs_table *table = NULL;
    fs_error err;
    PyObject *result = NULL;
    if (!take_all_peaks(peaks, request)) goto done;
    fs_status status;
    int64_t began = fs_clock_now();
    Py_BEGIN_ALLOW_THREADS status = fs_table_build(self->store, &request->options, &table, &err);
    Py_END_ALLOW_THREADS double seconds = (double)(fs_clock_now() - began) / 1e9;
    if (status != FS_OK) {
        fs_raise(&err);
        goto done;
    }
    PyObject *columns = columns_of(self->store, table);
    PyObject *top_level = list_of(self->store, table, top_level_of);
    if (columns == NULL || top_level == NULL) {
        Py_XDECREF(columns);
        Py_XDECREF(top_level);
        goto done;
    }
    result = Py_BuildValue("(N{s:N,s:d,s:d,s:O,s:O,s:O,s:k,s:L,s:d,s:{s:N,s:N,s:N}})", columns, "top_level", top_level,
                           "self_cpu_time_total", (double)table->self_cpu_ns / 1000.0, "self_device_time_total",
                           (double)table->self_device_ns / 1000.0, "has_memory", table->has_memory ? Py_True : Py_False,
                           "has_device", table->has_device ? Py_True : Py_False, "profile_memory",
                           self->profile_memory ? Py_True : Py_False, "open_events", (unsigned long)table->open_events,
                           "dropped", (long long)fs_recorder_lost(self->recorder), "grouping_seconds", seconds,
                           "coverage", "bytes", share(table->bytes_known_ns, table->modelled_base_ns), "flops",
                           share(table->flops_known_ns, table->modelled_base_ns), "unmodelled", unmodelled_list(table));
done:
    fs_table_destroy(table);
    PyMem_Free(request);
    return result;
}

static PyObject *get_event_count(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(fs_store_count(((profiler_object *)object)->store));
}

static PyObject *get_nbytes(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(fs_store_nbytes(((profiler_object *)object)->store));
}

static PyObject *get_dropped(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(fs_recorder_lost(((profiler_object *)object)->recorder));
}

static PyObject *get_running(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((profiler_object *)object)->running);
}

/* Which devices ran ops: their peaks are asked for. */
static PyObject *get_devices(PyObject *object, void *unused)
{
    (void)unused;
    const fs_store *store = ((profiler_object *)object)->store;
    PyObject *names = PySet_New(NULL);
    for (uint32_t i = 0; names != NULL && i < fs_store_signature_count(store); i++) {
        fs_signature signature;
        fs_span bytes = fs_store_signature_bytes(store, i);
        fs_signature_decode(bytes.bytes, bytes.size, &signature);
        PyObject *name = fs_device_object((fs_device){(fs_device_kind)signature.device_kind, signature.device_index});
        if (name == NULL || PySet_Add(names, name) < 0) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyMethodDef methods[] = {
    {"start", profiler_start, METH_NOARGS, "Record the ops of all threads. RuntimeError if another profile does."},
    {"stop", profiler_stop, METH_NOARGS,
     "Stop, close open ranges and wait for the devices. RuntimeError if not running."},
    {"begin_range", profiler_begin_range, METH_O,
     "Open a user annotation on this thread; its index, None if not running."},
    {"end_range", profiler_end_range, METH_O, "Close the annotation of that index."},
    {"table", profiler_table, METH_VARARGS,
     "table($self, by_shape, peaks, /)\n--\n\n(columns, meta) of the grouped events; peaks by device name."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"event_count", get_event_count, NULL, "Events recorded.", NULL},
    {"nbytes", get_nbytes, NULL, "Memory that the events take, in bytes.", NULL},
    {"dropped", get_dropped, NULL, "Events that could not be kept.", NULL},
    {"running", get_running, NULL, "Whether it records now.", NULL},
    {"devices", get_devices, NULL, "Names of the devices that ran ops.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, profiler_new},
    {Py_tp_dealloc, profiler_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, "Profiler(profile_memory=False)\n--\n\nRecords native ops into a store."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "flopscope._core.Profiler",
    .basicsize = sizeof(profiler_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int fs_add_profiler(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    PyObject *columns = PyList_New(NUMERIC_COLUMNS);
    int status = type != NULL && columns != NULL ? 0 : -1;
    for (int i = 0; status == 0 && i < NUMERIC_COLUMNS; i++) {
        PyObject *column = Py_BuildValue("(sss)", numeric_columns[i].name, column_units[numeric_columns[i].unit].text,
                                         numeric_columns[i].prose);
        if (column == NULL) status = -1;
        else PyList_SET_ITEM(columns, i, column);
    }
    if (status == 0) status = PyModule_AddObjectRef(module, "numeric_columns", columns);
    if (status == 0) status = PyModule_AddObjectRef(module, "Profiler", type);
    Py_XDECREF(columns);
    Py_XDECREF(type);
    return status;
}
