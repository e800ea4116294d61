/* The accounting of a table's time as dicts of NumPy arrays, and what is asked of single events beside it. */
#include <string.h>

#include "accounting/accounting.h"
#include "python/arrays.h"
#include "python/store_type.h"
#include "store/event.h"
#include "store/torch_signature.h"

#define CELL_FIELD(type, name, prose) FS_ARRAY_FIELD(fs_cell, type, name)
#define GAP_FIELD(type, name, prose) FS_ARRAY_FIELD(fs_gap, type, name)
#define PAIR_FIELD(type, name, prose) FS_ARRAY_FIELD(fs_pair, type, name)
#define LAUNCHED_FIELD(type, name, prose) FS_ARRAY_FIELD(fs_launched, type, name)
#define LAUNCHING_FIELD(type, name, prose) FS_ARRAY_FIELD(fs_launching, type, name)
static const fs_array_field launching_fields[] = {FS_LAUNCHING_LIST(LAUNCHING_FIELD)};
static const fs_array_field cell_fields[] = {FS_CELL_LIST(CELL_FIELD)};
static const fs_array_field gap_fields[] = {FS_GAP_LIST(GAP_FIELD)};
static const fs_array_field pair_fields[] = {FS_PAIR_LIST(PAIR_FIELD)};
static const fs_array_field launched_fields[] = {FS_LAUNCHED_LIST(LAUNCHED_FIELD)};

static PyObject *step_tuple(const fs_store *store, const fs_step *step, const fs_host_step *host)
{
    PyObject *name = step->name == FS_NONE ? Py_NewRef(Py_None) : fs_text_object(fs_store_name_text(store, step->name));
    PyObject *events = PyDict_New();
    for (int kind = 0; events != NULL && kind < FS_EVENT_KIND_COUNT; kind++) {
        if (fs_event_kind_on_device[kind]) continue;
        PyObject *number = PyLong_FromLongLong(host->events[kind]);
        if (!fs_put_column(events, fs_event_kind_names[kind], number)) Py_CLEAR(events);
    }
    return Py_BuildValue("(NLLLLNL)", name, (long long)step->begin, (long long)step->end,
                         (long long)fs_sub_saturated(step->host_end, step->host_begin), (long long)host->waits, events,
                         (long long)host->described);
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

static int64_t sm_count_of(const fs_device_facts *facts)
{
    return facts->sm_count;
}

/* Compute capability 9.0 as 90; -1: unknown. */
static int64_t capability_of(const fs_device_facts *facts)
{
    return facts->compute_major < 0 || facts->compute_minor < 0 ? -1 : 10 * facts->compute_major + facts->compute_minor;
}

/* A fact of each device that worked, by index. */
static PyObject *facts_of(const fs_store *store, const fs_accounting *accounting,
                          int64_t (*of)(const fs_device_facts *facts))
{
    PyObject *result = PyDict_New();
    bool known[FS_DEVICE_LIMIT] = {false};
    for (uint32_t i = 0; result != NULL && i < accounting->cell_count; i++) {
        int device = (int)accounting->cells[i].device;
        if (device < 0 || known[device]) continue;
        known[device] = true;
        fs_device_facts facts = fs_store_device(store, device);
        PyObject *key = PyLong_FromLong(device);
        PyObject *value = PyLong_FromLongLong((long long)of(&facts));
        if (key == NULL || value == NULL || PyDict_SetItem(result, key, value) < 0) Py_CLEAR(result);
        Py_XDECREF(key);
        Py_XDECREF(value);
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

static PyObject *argument_tuple(const fs_torch_argument *argument)
{
    if (argument->type != FS_TORCH_TENSOR)
        return Py_BuildValue("(OOON)", Py_None, Py_None, Py_None, fs_text_object(argument->text));
    const fs_torch_tensor *tensor = &argument->tensor;
    return Py_BuildValue("(sNNs)", fs_torch_dtypes[tensor->dtype].name,
                         fs_integers_object(tensor->shape, tensor->ndim, 1),
                         fs_integers_object(tensor->strides, tensor->ndim, 1), "");
}

/* The innermost of an event and those around it with that name (NULL: any), or FS_NONE. */
static uint32_t named_event(const fs_store *store, uint32_t event, const char *name)
{
    uint32_t at;
    for (int depth = 0; event != FS_NONE && depth < FS_MOST_ENCLOSING; depth++) {
        const fs_chunk *chunk = fs_event_chunk(store, event, &at);
        if (name == NULL) return event;
        if (chunk->name[at] != FS_NONE && strcmp(fs_store_name_text(store, chunk->name[at]), name) == 0) return event;
        uint32_t next = fs_event_kind_on_device[chunk->kind[at]] ? chunk->launcher[at] : chunk->parent[at];
        event = next < event ? next : FS_NONE;
    }
    return FS_NONE;
}

PyObject *fs_store_object_arguments(PyObject *object, PyObject *args)
{
    const fs_store *store = ((fs_store_object *)object)->store;
    unsigned long index;
    const char *name = NULL;
    if (!PyArg_ParseTuple(args, "k|z:arguments", &index, &name)) return NULL;
    if (index >= fs_store_count(store))
        return PyErr_Format(PyExc_IndexError, "there is no event %lu: the profile has %lu", index,
                            (unsigned long)fs_store_count(store));
    uint32_t event = named_event(store, (uint32_t)index, name);
    uint32_t signature = event != FS_NONE ? FS_EVENT_AT(store, event, signature) : FS_NONE;
    if (signature == FS_NONE) Py_RETURN_NONE;
    fs_span bytes = fs_store_signature_bytes(store, signature);
    fs_torch_call call;
    if (!fs_torch_decode(bytes.bytes, bytes.size, &call)) Py_RETURN_NONE;
    PyObject *list = PyList_New(call.count);
    for (uint32_t i = 0; list != NULL && i < call.count; i++) {
        PyObject *item = argument_tuple(&call.arguments[i]);
        if (item == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, item);
    }
    return list;
}

PyObject *fs_accounting_object(const fs_store *store, const fs_accounting *accounting)
{
    PyObject *result = PyDict_New();
    bool good = result != NULL && fs_put_column(result, "steps", steps_of(store, accounting)) &&
                fs_put_column(result, "sm_counts", facts_of(store, accounting, sm_count_of)) &&
                fs_put_column(result, "capabilities", facts_of(store, accounting, capability_of)) &&
                fs_put_column(result, "launch_median", PyFloat_FromDouble(accounting->launch_median / 1000)) &&
                fs_put_column(result, "cells", FS_ARRAYS(accounting->cells, accounting->cell_count, cell_fields)) &&
                fs_put_column(result, "gaps", FS_ARRAYS(accounting->gaps, accounting->gap_count, gap_fields)) &&
                fs_put_column(result, "pairs", FS_ARRAYS(accounting->pairs, accounting->pair_count, pair_fields)) &&
                fs_put_column(result, "launched",
                              FS_ARRAYS(accounting->launched, accounting->launched_count, launched_fields)) &&
                fs_put_column(result, "launching",
                              FS_ARRAYS(accounting->launching, accounting->launching_count, launching_fields));
    if (!good) Py_CLEAR(result);
    return result;
}
