/* The accounting of a table's time as dicts of NumPy arrays, and what is asked of single events beside it. */
#include <string.h>

#include "accounting/accounting.h"
#include "accounting/late.h"
#include "accounting/lines.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "python/arrays.h"
#include "python/store_methods.h"
#include "store/alike.h"
#include "store/event.h"
#include "store/torch_signature.h"

/* Lines ------------------------------------------------------------------------------------------------------------ */

/* Where the program was, by line, as columns. */

static PyObject *names_of(const fs_stacks *stacks, const fs_lines *lines, bool inside)
{
    return FS_LIST_OF(line, lines->lines, lines->count,
                      fs_text_object(fs_stacks_text(stacks, inside ? line->inside : line->line)));
}

static PyObject *groups_of_lines(const fs_lines *lines)
{
    return FS_LIST_OF(line, lines->lines, lines->count, PyUnicode_InternFromString(fs_line_group_names[line->group]));
}

/* The column of the int64_t at an offset of each line. */
static PyObject *times_of(const fs_lines *lines, size_t at)
{
    int64_t *times = PyMem_Malloc((lines->count + (size_t)1) * sizeof *times);
    if (times == NULL) return PyErr_NoMemory();
    for (uint32_t i = 0; i < lines->count; i++) memcpy(&times[i], (const char *)&lines->lines[i] + at, sizeof times[i]);
    PyObject *array = fs_array_of_int64(times, lines->count);
    PyMem_Free(times);
    return array;
}

static PyObject *idle_of_lines(const fs_lines *lines)
{
    PyObject *dict = PyDict_New();
    for (size_t cause = 0; dict != NULL && cause < FS_IDLE_CAUSE_COUNT; cause++)
        if (!fs_put_column(dict, fs_idle_cause_names[cause],
                           times_of(lines, offsetof(fs_line, idle) + cause * sizeof(int64_t))))
            Py_CLEAR(dict);
    return dict;
}

static PyObject *sums_of_groups(const fs_lines *lines)
{
    PyObject *dict = PyDict_New();
    for (int i = 0; dict != NULL && i < FS_LINE_GROUP_COUNT; i++) {
        const fs_line_sums *sums = &lines->groups[i];
        if (sums->threads == 0) continue;
        PyObject *tuple = Py_BuildValue("(IILLLL)", sums->processes, sums->threads, (long long)sums->time,
                                        (long long)sums->cpu, (long long)sums->begin, (long long)sums->end);
        if (!fs_put_column(dict, fs_line_group_names[i], tuple)) Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *result_of(const fs_stacks *stacks, const fs_lines *lines)
{
    PyObject *result = PyDict_New();
    bool good = result != NULL && fs_put_column(result, "group", groups_of_lines(lines)) &&
                fs_put_column(result, "line", names_of(stacks, lines, false)) &&
                fs_put_column(result, "inside", names_of(stacks, lines, true)) &&
#define PUT(name, prose) fs_put_column(result, #name, times_of(lines, offsetof(fs_line, name))) &&
                FS_LINE_TIME_LIST(PUT)
#undef PUT
                    fs_put_column(result, "idle", idle_of_lines(lines)) &&
                fs_put_column(result, "groups", sums_of_groups(lines));
    if (!good) Py_CLEAR(result);
    return result;
}

static fs_status build(const fs_store *store, uint32_t first_step, int64_t least, int64_t begin, int64_t end,
                       fs_lines *lines, fs_error *err)
{
    const fs_table_options options = {.brief = true, .works = true};
    fs_table *table = NULL;
    fs_accounting accounting = {0};
    bool idle = begin == INT64_MIN && fs_store_count(store) > 0 && fs_store_stacks(store)->count > 0;
    fs_status status = idle ? fs_table_build(store, &options, &table, err) : FS_OK;
    if (status == FS_OK && idle) status = fs_accounting_list(&accounting, store, table, err);
    if (status == FS_OK)
        status = fs_lines_build(lines, store, idle ? &accounting : NULL, first_step, least, begin, end, err);
    fs_accounting_clear(&accounting);
    fs_table_destroy(table);
    return status;
}

PyObject *fs_store_object_lines(PyObject *object, PyObject *args)
{
    const fs_store_object *self = (fs_store_object *)object;
    const fs_store *store = self->store;
    unsigned int first_step = 0;
    long long least = 0, begin = INT64_MIN, end = INT64_MAX;
    fs_lines lines = {0};
    fs_error err;
    if (!PyArg_ParseTuple(args, "|ILLL:lines", &first_step, &least, &begin, &end)) return NULL;
    int64_t base = self->recorded ? self->clock_base : fs_clock_unix_offset();
    if (begin != INT64_MIN) begin = fs_sub_saturated(begin, base);
    if (end != INT64_MAX) end = fs_sub_saturated(end, base);
    fs_status status = FS_LONG_WORK(build(store, first_step, least, begin, end, &lines, &err));
    PyObject *result = status == FS_OK ? result_of(fs_store_stacks(store), &lines) : fs_raise(&err);
    fs_lines_clear(&lines);
    return result;
}

/* Late launches ---------------------------------------------------------------------------------------------------- */

/* Store's calls by name, and what its host did before late launches. Names are chosen by a byte for each, so that
 * patterns of names stay in Python. */
/* Check that there is a flag for each name, and `more`. */
static bool are_flags(const fs_store *store, Py_ssize_t size, Py_ssize_t more)
{
    Py_ssize_t wanted = (Py_ssize_t)fs_store_name_count(store) + more;
    if (size == wanted) return true;
    return fs_refuse(PyExc_ValueError, "%zd flags for %zd names: there must be as many", size, wanted);
}

static PyObject *sums_of(fs_status status, fs_late_sums *sums, const fs_error *err)
{
    PyObject *result = status == FS_OK ? FS_ARRAYS(sums->items, sums->count, FS_LATE_SUM_LIST) : fs_raise(err);
    fs_free(sums->items);
    return result;
}

/* What is asked of calls by name besides their times: "waiting": which of them waited; "growing": which make a tensor
 * longer and longer; "device", "cpu": what idled. */
static fs_status find_calls(fs_named_calls *calls, const fs_store *store, const uint8_t *names, const char *asked,
                            fs_error *err)
{
    if (*asked == 0) return fs_named_calls_find(calls, store, names, err);
    if (strcmp(asked, "growing") == 0) return fs_growing_calls_find(calls, store, names, err);
    if (strcmp(asked, "waiting") == 0) return fs_waiting_calls_find(calls, store, names, err);
    return fs_idle_calls_find(calls, store, names, strcmp(asked, "device") == 0, err);
}

PyObject *fs_store_object_named_calls(PyObject *object, PyObject *args)
{
    const fs_store *store = ((fs_store_object *)object)->store;
    const uint8_t *names;
    const char *asked = "";
    Py_ssize_t size;
    fs_named_calls calls = {0};
    fs_error err;
    if (!PyArg_ParseTuple(args, "y#|s:named_calls", &names, &size, &asked) || !are_flags(store, size, 0)) return NULL;
    fs_status status = FS_LONG_WORK(find_calls(&calls, store, names, asked, &err));
    PyObject *result = status == FS_OK ? FS_ARRAYS(calls.items, calls.count, FS_NAMED_CALL_LIST) : fs_raise(&err);
    fs_free(calls.items);
    return result;
}

PyObject *fs_store_object_late_within(PyObject *object, PyObject *args)
{
    const fs_store *store = ((fs_store_object *)object)->store;
    const uint8_t *names;
    Py_ssize_t size;
    unsigned int first_step;
    fs_late_sums sums;
    fs_error err;
    if (!PyArg_ParseTuple(args, "Iy#:late_within", &first_step, &names, &size) || !are_flags(store, size, 0))
        return NULL;
    fs_status status = FS_LONG_WORK(fs_late_within(&sums, store, first_step, names, &err));
    return sums_of(status, &sums, &err);
}

PyObject *fs_store_object_late_spent(PyObject *object, PyObject *args)
{
    const fs_store *store = ((fs_store_object *)object)->store;
    Py_ssize_t ops, other;
    fs_late_request request;
    long long least;
    fs_late_sums sums;
    fs_error err;
    if (!PyArg_ParseTuple(args, "ILy#y#:late_spent", &request.first_step, &least, &request.ops, &ops, &request.other,
                          &other))
        return NULL;
    if (!are_flags(store, ops, 1) || !are_flags(store, other, 0)) return NULL;
    request.least = least;
    fs_status status = FS_LONG_WORK(fs_late_spent(&sums, store, &request, &err));
    return sums_of(status, &sums, &err);
}

/* Store accounting ------------------------------------------------------------------------------------------------- */

static PyObject *step_tuple(const fs_store *store, const fs_step *step, const fs_host_step *host)
{
    PyObject *name = step->name == FS_NONE ? Py_NewRef(Py_None) : fs_text_object(fs_store_name_text(store, step->name));
    PyObject *events = PyDict_New();
    for (int kind = 0; events != NULL && kind < FS_EVENT_KIND_COUNT; kind++) {
        if (fs_event_kind_on_device[kind]) continue;
        PyObject *number = PyLong_FromLongLong(host->events[kind]);
        if (!fs_put_column(events, fs_event_kind_names[kind], number)) Py_CLEAR(events);
    }
    return Py_BuildValue("(NLLLLLNL)", name, (long long)step->begin, (long long)step->end, (long long)step->host_begin,
                         (long long)fs_sub_saturated(step->host_end, step->host_begin), (long long)host->waits, events,
                         (long long)host->described);
}

static PyObject *steps_of(const fs_store *store, const fs_accounting *accounting)
{
    return FS_LIST(i, accounting->steps.count, step_tuple(store, &accounting->steps.steps[i], &accounting->hosts[i]));
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
        if (!fs_put(result, PyLong_FromLong(device), PyLong_FromLongLong(of(&facts)))) Py_CLEAR(result);
    }
    return result;
}

static bool is_event(const fs_store *store, unsigned long index)
{
    unsigned long count = fs_store_count(store);
    return index < count || fs_refuse(PyExc_IndexError, "there is no event %lu: the profile has %lu", index, count);
}

PyObject *fs_store_object_enclosing(PyObject *object, PyObject *args)
{
    const fs_store *store = ((fs_store_object *)object)->store;
    unsigned long index;
    if (!PyArg_ParseTuple(args, "k:enclosing", &index)) return NULL;
    if (!is_event(store, index)) return NULL;
    PyObject *list = PyList_New(0);
    uint32_t event = (uint32_t)index, at;
    for (int depth = 0; list != NULL && event != FS_NONE && depth < FS_MOST_ENCLOSING; depth++) {
        const fs_chunk *chunk = fs_event_chunk(store, event, &at);
        const char *name = chunk->name[at] == FS_NONE ? "" : fs_store_name_text(store, chunk->name[at]);
        if (!fs_append(list, Py_BuildValue("(sN)", fs_event_kind_names[chunk->kind[at]], fs_text_object(name))))
            Py_CLEAR(list);
        event = fs_event_around(chunk, at, event);
    }
    return list;
}

static PyObject *next_shape(const int64_t **at)
{
    fs_torch_tensor tensor;
    fs_torch_next_tensor(at, &tensor);
    return fs_integers_object(tensor.shape, tensor.ndim, 1);
}

/* The shapes of the tensors of a list: "[(2, 3), (2, 1)]". */
static PyObject *shapes_text(const fs_torch_argument *argument)
{
    const int64_t *at = argument->list;
    PyObject *shapes = FS_LIST(i, argument->count, next_shape(&at));
    PyObject *text = shapes != NULL ? PyObject_Repr(shapes) : NULL;
    Py_XDECREF(shapes);
    return text;
}

static PyObject *argument_tuple(const fs_torch_argument *argument)
{
    if (argument->type == FS_TORCH_TENSOR_LIST)
        return Py_BuildValue("(OOON)", Py_None, Py_None, Py_None, shapes_text(argument));
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
        event = fs_event_around(chunk, at, event);
    }
    return FS_NONE;
}

PyObject *fs_store_object_arguments(PyObject *object, PyObject *args)
{
    const fs_store *store = ((fs_store_object *)object)->store;
    unsigned long index;
    const char *name = NULL;
    if (!PyArg_ParseTuple(args, "k|z:arguments", &index, &name)) return NULL;
    if (!is_event(store, index)) return NULL;
    uint32_t event = named_event(store, (uint32_t)index, name);
    uint32_t signature = event != FS_NONE ? FS_EVENT_AT(store, event, signature) : FS_NONE;
    if (signature == FS_NONE) Py_RETURN_NONE;
    fs_span bytes = fs_store_signature_bytes(store, signature);
    fs_torch_call call;
    if (!fs_torch_decode(bytes.bytes, bytes.size, &call)) Py_RETURN_NONE;
    return FS_LIST(i, call.count, argument_tuple(&call.arguments[i]));
}

PyObject *fs_store_object_alike(PyObject *object, PyObject *args)
{
    const fs_store *store = ((fs_store_object *)object)->store;
    PyObject *events;
    int arguments, around;
    Py_buffer view;
    fs_error err;
    if (!PyArg_ParseTuple(args, "Opp:alike", &events, &arguments, &around)) return NULL;
    if (!fs_take_numbers(events, &view, true, "events")) return NULL;
    fs_alike_request request = {view.buf, (uint32_t)(view.len / view.itemsize), arguments != 0, around != 0};
    uint32_t group_count = 0;
    int64_t *groups = fs_malloc_huge((request.count + (size_t)1) * sizeof *groups);
    int64_t *firsts = fs_malloc_huge((request.count + (size_t)1) * sizeof *firsts);
    fs_status status = groups == NULL || firsts == NULL ? fs_no_memory(&err) : FS_OK;
    if (status == FS_OK) status = FS_LONG_WORK(fs_alike_find(store, &request, groups, firsts, &group_count, &err));
    PyBuffer_Release(&view);
    PyObject *places = status == FS_OK ? fs_array_of_int64(firsts, group_count) : fs_raise(&err);
    fs_free(firsts);
    if (places != NULL) return Py_BuildValue("(NN)", places, fs_array_taking(groups, request.count, FS_ARRAY_INT64));
    fs_free(groups);
    return NULL;
}

PyObject *fs_accounting_object(const fs_store *store, const fs_accounting *accounting)
{
    PyObject *result = PyDict_New();
    bool good = result != NULL && fs_put_column(result, "steps", steps_of(store, accounting)) &&
                fs_put_column(result, "sm_counts", facts_of(store, accounting, sm_count_of)) &&
                fs_put_column(result, "capabilities", facts_of(store, accounting, capability_of)) &&
                fs_put_column(result, "launch_median", PyFloat_FromDouble(accounting->launch_median / 1000)) &&
                fs_put_column(result, "cells", FS_ARRAYS(accounting->cells, accounting->cell_count, FS_CELL_LIST)) &&
                fs_put_column(result, "gaps", FS_ARRAYS(accounting->gaps, accounting->gap_count, FS_GAP_LIST)) &&
                fs_put_column(result, "pairs", FS_ARRAYS(accounting->pairs, accounting->pair_count, FS_PAIR_LIST)) &&
                fs_put_column(result, "launched",
                              FS_ARRAYS(accounting->launched, accounting->launched_count, FS_LAUNCHED_LIST)) &&
                fs_put_column(result, "launching",
                              FS_ARRAYS(accounting->launching, accounting->launching_count, FS_LAUNCHING_LIST));
    if (!good) Py_CLEAR(result);
    return result;
}
