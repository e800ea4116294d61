/* The accounting of a table's time as dicts of NumPy arrays. */
#include <stddef.h>
#include <string.h>

#include "accounting/accounting.h"
#include "python/store_type.h"
#include "store/event.h"

typedef struct {
    const char *name;
    size_t offset;
    bool integer;
} field;

#define CELL_FIELD(type, name, prose) {#name, offsetof(fs_cell, name), _Generic((type)0, int64_t: true, double: false)},
#define GAP_FIELD(type, name, prose) {#name, offsetof(fs_gap, name), true},
#define PAIR_FIELD(type, name, prose) {#name, offsetof(fs_pair, name), true},
static const field cell_fields[] = {FS_CELL_LIST(CELL_FIELD)};
static const field gap_fields[] = {FS_GAP_LIST(GAP_FIELD)};
static const field pair_fields[] = {FS_PAIR_LIST(PAIR_FIELD)};

static PyObject *array_of(const void *rows, uint32_t count, size_t row_size, const field *of)
{
    union {
        int64_t whole;
        double real;
    } *values = PyMem_Malloc((count + (size_t)1) * sizeof *values);
    if (values == NULL) return PyErr_NoMemory();
    for (uint32_t i = 0; i < count; i++) {
        memcpy(&values[i], (const char *)rows + i * row_size + of->offset, sizeof *values);
    }
    PyObject *array =
        of->integer ? fs_array_of_int64(&values->whole, count) : fs_array_of_doubles(&values->real, count);
    PyMem_Free(values);
    return array;
}

static PyObject *arrays_of(const void *rows, uint32_t count, size_t row_size, const field *fields, size_t field_count)
{
    PyObject *result = PyDict_New();
    for (size_t i = 0; result != NULL && i < field_count; i++) {
        if (!fs_put_column(result, fields[i].name, array_of(rows, count, row_size, &fields[i]))) Py_CLEAR(result);
    }
    return result;
}

#define ARRAYS(rows, count, fields) arrays_of(rows, count, sizeof *(rows), fields, sizeof(fields) / sizeof *(fields))

static PyObject *step_tuple(const fs_store *store, const fs_step *step, const fs_host_step *host)
{
    PyObject *name = step->name == FS_NONE ? Py_NewRef(Py_None) : fs_text_object(fs_store_name_text(store, step->name));
    PyObject *events = PyDict_New();
    for (int kind = 0; events != NULL && kind < FS_EVENT_KIND_COUNT; kind++) {
        if (fs_event_kind_on_device[kind]) continue;
        PyObject *number = PyLong_FromLongLong(host->events[kind]);
        if (!fs_put_column(events, fs_event_kind_names[kind], number)) Py_CLEAR(events);
    }
    return Py_BuildValue("(NLLLLN)", name, (long long)step->begin, (long long)step->end,
                         (long long)fs_sub_saturated(step->host_end, step->host_begin), (long long)host->waits, events);
}

static PyObject *steps_of(const fs_store *store, const fs_accounting *accounting)
{
    PyObject *list = PyList_New(accounting->steps.count);
    for (uint32_t i = 0; list != NULL && i < accounting->steps.count; i++) {
        PyObject *step = step_tuple(store, &accounting->steps.steps[i], &accounting->hosts[i]);
        if (step == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, step);
    }
    return list;
}

/* The multiprocessors of each device that worked. */
static PyObject *sm_counts(const fs_store *store, const fs_accounting *accounting)
{
    PyObject *result = PyDict_New();
    bool known[FS_DEVICE_LIMIT] = {false};
    for (uint32_t i = 0; result != NULL && i < accounting->cell_count; i++) {
        int device = (int)accounting->cells[i].device;
        if (device < 0 || known[device]) continue;
        known[device] = true;
        PyObject *key = PyLong_FromLong(device);
        PyObject *count = PyLong_FromLongLong((long long)fs_store_device(store, device).sm_count);
        if (key == NULL || count == NULL || PyDict_SetItem(result, key, count) < 0) Py_CLEAR(result);
        Py_XDECREF(key);
        Py_XDECREF(count);
    }
    return result;
}

PyObject *fs_store_object_enclosing(PyObject *object, PyObject *args)
{
    const fs_store *store = ((fs_store_object *)object)->store;
    unsigned long index;
    if (!PyArg_ParseTuple(args, "k:enclosing", &index)) return NULL;
    if (index >= fs_store_count(store))
        return PyErr_Format(PyExc_IndexError, "there is no event %lu: the profile has %lu", index,
                            (unsigned long)fs_store_count(store));
    PyObject *list = PyList_New(0);
    uint32_t event = (uint32_t)index, at;
    for (int depth = 0; list != NULL && event != FS_NONE && depth < FS_MOST_ENCLOSING; depth++) {
        const fs_chunk *chunk = fs_event_chunk(store, event, &at);
        const char *name = chunk->name[at] == FS_NONE ? "" : fs_store_name_text(store, chunk->name[at]);
        PyObject *item = Py_BuildValue("(sN)", fs_event_kind_names[chunk->kind[at]], fs_text_object(name));
        if (item == NULL || PyList_Append(list, item) < 0) Py_CLEAR(list);
        Py_XDECREF(item);
        uint32_t next = fs_event_kind_on_device[chunk->kind[at]] ? chunk->launcher[at] : chunk->parent[at];
        event = next < event ? next : FS_NONE;
    }
    return list;
}

PyObject *fs_accounting_object(const fs_store *store, const fs_accounting *accounting)
{
    PyObject *result = PyDict_New();
    bool good = result != NULL && fs_put_column(result, "steps", steps_of(store, accounting)) &&
                fs_put_column(result, "sm_counts", sm_counts(store, accounting)) &&
                fs_put_column(result, "launch_median", PyFloat_FromDouble(accounting->launch_median / 1000)) &&
                fs_put_column(result, "cells", ARRAYS(accounting->cells, accounting->cell_count, cell_fields)) &&
                fs_put_column(result, "gaps", ARRAYS(accounting->gaps, accounting->gap_count, gap_fields)) &&
                fs_put_column(result, "pairs", ARRAYS(accounting->pairs, accounting->pair_count, pair_fields));
    if (!good) Py_CLEAR(result);
    return result;
}

int fs_add_accounting_names(PyObject *module)
{
    if (fs_add_constant(module, "work_classes", fs_names_object(fs_work_class_names, FS_WORK_CLASS_COUNT)) < 0)
        return -1;
    if (fs_add_constant(module, "idle_parts", fs_names_object(fs_idle_cause_parts, FS_IDLE_CAUSE_COUNT)) < 0) return -1;
    if (fs_add_constant(module, "idle_labels", fs_names_object(fs_idle_cause_labels, FS_IDLE_CAUSE_COUNT)) < 0)
        return -1;
    return fs_add_constant(module, "idle_causes", fs_names_object(fs_idle_cause_names, FS_IDLE_CAUSE_COUNT));
}
