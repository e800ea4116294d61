/* Store's summaries: how well the devices were used, what the steps' time went to, how kernels were launched; each a
 * dict of lists, one for each column. */
#include <stddef.h>

#include "base/memory.h"
#include "base/saturate.h"
#include "python/store_methods.h"
#include "store/event.h"
#include "summaries/collective_calls.h"
#include "summaries/collectives.h"
#include "summaries/efficiency.h"
#include "summaries/launches.h"
#include "summaries/phases.h"
#include "summaries/steps.h"
#include "summaries/streams.h"

/* Events ----------------------------------------------------------------------------------------------------------- */

/* Store's events: each one of a store, as columns of integers. */

static int64_t id_of(uint32_t id)
{
    return id == FS_NONE ? -1 : (int64_t)id;
}

/* X(name, value): of the event `at` of a chunk. Ids that are not known are -1, times FS_MISSING; a resource is a
 * thread's id or a stream. */
#define EVENT_VALUES(X)                                                       \
    X(kind, chunk->kind[at])                                                  \
    X(name, id_of(chunk->name[at]))                                           \
    X(start, chunk->start[at])                                                \
    X(duration, chunk->duration[at])                                          \
    X(bytes, chunk->bytes[at])                                                \
    X(parent, id_of(chunk->parent[at]))                                       \
    X(launcher, id_of(chunk->launcher[at]))                                   \
    X(correlation, id_of(chunk->correlation[at]))                             \
    X(device, chunk->device[at])                                              \
    X(on_device, fs_event_lies_on_device(chunk->kind[at], chunk->device[at])) \
    X(resource, chunk->lane[at] == FS_NONE ? -1 : (int64_t)fs_store_lane(store, chunk->lane[at]).id)

enum {
#define VALUE_ENUM(name, value) VALUE_##name,
    EVENT_VALUES(VALUE_ENUM)
#undef VALUE_ENUM
        VALUE_COUNT
};

static const char *const value_names[] = {
#define VALUE_NAME(name, value) #name,
    EVENT_VALUES(VALUE_NAME)
#undef VALUE_NAME
};

/* Chunk after chunk, and of each one column after the other: both are then read and written in their order. */
static fs_status take_values(const fs_store *store, uint32_t count, int64_t *const *values, fs_error *err)
{
    for (uint32_t first = 0; first < count; first += FS_CHUNK_EVENTS) {
        const fs_chunk *chunk = fs_store_chunk(store, first >> FS_CHUNK_BITS);
        uint32_t room = count - first < FS_CHUNK_EVENTS ? count - first : FS_CHUNK_EVENTS;
        FS_POLL(first, err);
#define TAKE_VALUE(name, value) \
    for (uint32_t at = 0; at < room; at++) values[VALUE_##name][first + at] = value;
        EVENT_VALUES(TAKE_VALUE)
#undef TAKE_VALUE
    }
    return FS_OK;
}

static PyObject *name_list(const fs_store *store)
{
    uint32_t count = fs_store_name_count(store);
    return FS_LIST(i, count, fs_text_object(fs_store_name_text(store, i)));
}

PyObject *fs_store_object_names(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return name_list(((fs_store_object *)object)->store);
}

PyObject *fs_store_object_events(PyObject *object, PyObject *Py_UNUSED(unused))
{
    fs_store_object *self = (fs_store_object *)object;
    uint32_t count = fs_store_count(self->store);
    int64_t *values[VALUE_COUNT] = {NULL};
    fs_error err;
    fs_status status = FS_OK;
    for (size_t i = 0; i < VALUE_COUNT && status == FS_OK; i++) {
        values[i] = fs_malloc_huge((count + (size_t)1) * sizeof **values);
        if (values[i] == NULL) status = fs_no_memory(&err);
    }
    if (status == FS_OK) status = FS_LONG_WORK(take_values(self->store, count, values, &err));
    PyObject *columns = status == FS_OK ? PyDict_New() : fs_raise(&err);
    bool good = columns != NULL;
    for (size_t i = 0; i < VALUE_COUNT; i++) {
        if (good) good = fs_put_column(columns, value_names[i], fs_array_taking(values[i], count, FS_ARRAY_INT64));
        else fs_free(values[i]);
    }
    int64_t begin, end;
    fs_store_window(self->store, &begin, &end);
    PyObject *names = good ? name_list(self->store) : NULL;
    PyObject *kinds = names != NULL ? fs_names_object(fs_event_kind_names, FS_EVENT_KIND_COUNT) : NULL;
    if (kinds == NULL) {
        Py_XDECREF(columns);
        Py_XDECREF(names);
        return NULL;
    }
    return Py_BuildValue("(NNNL)", columns, names, kinds, (long long)begin);
}

/* Communication ---------------------------------------------------------------------------------------------------- */

/* Store's collectives and streams: dicts of lists, one for each column. */

/* A function that returns one value of a row as a Python object. `row` has the type of the column's table. */
typedef PyObject *value_of(const fs_store *store, const void *row, size_t offset, double divisor);

typedef struct {
    const char *name;
    value_of *value;
    size_t offset;
    double divisor;
} column;

static PyObject *columns_of(const fs_store *store, const void *rows, uint32_t count, size_t row_size,
                            const column *columns, size_t used)
{
    PyObject *result = PyDict_New();
    for (size_t i = 0; result != NULL && i < used; i++) {
        const column *of = &columns[i];
        PyObject *list =
            FS_LIST(row, count, of->value(store, (const char *)rows + row * row_size, of->offset, of->divisor));
        if (!fs_put_column(result, of->name, list)) Py_CLEAR(result);
    }
    return result;
}

static PyObject *number(const fs_store *Py_UNUSED(store), const void *row, size_t offset, double divisor)
{
    return PyFloat_FromDouble(*(const double *)(const void *)((const char *)row + offset) / divisor);
}

/* None where it is "". */
static PyObject *text(const fs_store *Py_UNUSED(store), const void *row, size_t offset, double Py_UNUSED(divisor))
{
    const fs_collective_text *from = (const void *)((const char *)row + offset);
    if (from->size == 0) Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(from->text, (Py_ssize_t)from->size, "replace");
}

#define INTEGER_OF(function, row_type, is_missing, expression)                                        \
    static PyObject *function(const fs_store *store, const void *item, size_t offset, double divisor) \
    {                                                                                                 \
        (void)store, (void)offset, (void)divisor;                                                     \
        const row_type *row = item;                                                                   \
        if (is_missing) Py_RETURN_NONE;                                                               \
        return PyLong_FromLongLong((long long)(expression));                                          \
    }
INTEGER_OF(collective_device, fs_collective_row, false, row->device)
INTEGER_OF(collective_stream, fs_collective_row, row->lane == FS_NONE, fs_store_lane(store, row->lane).id)
INTEGER_OF(collective_start, fs_collective_row, false, row->start)
INTEGER_OF(collective_occurrence, fs_collective_row, false, row->occurrence)
INTEGER_OF(collective_step_occurrence, fs_collective_row, row->step == FS_NONE, row->step_occurrence)
INTEGER_OF(collective_sequence, fs_collective_row, row->recorded.sequence == FS_MISSING, row->recorded.sequence)
INTEGER_OF(collective_group_size, fs_collective_row, row->recorded.group_size <= 0, row->recorded.group_size)
INTEGER_OF(call_start, fs_collective_call, false, row->start)
INTEGER_OF(call_sequence, fs_collective_call, row->recorded.sequence == FS_MISSING, row->recorded.sequence)
INTEGER_OF(call_ran, fs_collective_call, false, row->ran)
INTEGER_OF(stream_device, fs_stream_row, false, row->device)
INTEGER_OF(efficiency_device, fs_efficiency, false, row->device)
INTEGER_OF(launches_device, fs_launch_statistics, false, row->device)
INTEGER_OF(stream_id, fs_stream_row, row->whole, row->stream)
#undef INTEGER_OF

static PyObject *collective_kind(const fs_store *Py_UNUSED(store), const void *item, size_t Py_UNUSED(offset),
                                 double Py_UNUSED(divisor))
{
    return PyUnicode_FromString(fs_collective_kind_names[((const fs_collective_row *)item)->kind]);
}

static PyObject *call_kind(const fs_store *Py_UNUSED(store), const void *item, size_t Py_UNUSED(offset),
                           double Py_UNUSED(divisor))
{
    return PyUnicode_FromString(fs_collective_kind_names[((const fs_collective_call *)item)->kind]);
}

/* None where there is no name. */
static PyObject *store_name(const fs_store *store, const void *row, size_t offset, double Py_UNUSED(divisor))
{
    uint32_t name = *(const uint32_t *)(const void *)((const char *)row + offset);
    if (name == FS_NONE) Py_RETURN_NONE;
    return fs_text_object(fs_store_name_text(store, name));
}

/* Return the columns of the rows of a type that `compute` lists in `rows` and `count`, without the GIL. */
#define ROWS_OBJECT(store, type, columns, compute)                                                             \
    __extension__({                                                                                            \
        type *rows = NULL;                                                                                     \
        uint32_t count = 0;                                                                                    \
        fs_error err;                                                                                          \
        bool good_ = FS_LONG_WORK(compute) == FS_OK;                                                           \
        PyObject *object_ =                                                                                    \
            good_ ? columns_of(store, rows, count, sizeof *rows, columns, sizeof(columns) / sizeof *(columns)) \
                  : fs_raise(&err);                                                                            \
        fs_free(rows);                                                                                         \
        object_;                                                                                               \
    })

PyObject *fs_store_object_collectives(PyObject *object, PyObject *Py_UNUSED(unused))
{
    static const column columns[] = {
        {"collective", collective_kind, 0, 1},
        {"name", text, offsetof(fs_collective_row, recorded.name), 1},
        {"group", text, offsetof(fs_collective_row, recorded.group), 1},
        {"group_size", collective_group_size, 0, 1},
        {"ranks", text, offsetof(fs_collective_row, recorded.ranks), 1},
        {"dtype", text, offsetof(fs_collective_row, recorded.dtype), 1},
        {"device", collective_device, 0, 1},
        {"stream", collective_stream, 0, 1},
        {"start", collective_start, 0, 1},
#define NUMBER_COLUMN(name, divisor, prose) {#name, number, offsetof(fs_collective_row, name), divisor},
        FS_COLLECTIVE_COLUMN_LIST(NUMBER_COLUMN)
#undef NUMBER_COLUMN
            {"occurrence", collective_occurrence, 0, 1},
        {"sequence", collective_sequence, 0, 1},
        {"kernel", store_name, offsetof(fs_collective_row, name), 1},
        {"step", store_name, offsetof(fs_collective_row, step), 1},
        {"step_occurrence", collective_step_occurrence, 0, 1},
    };
    const fs_store *store = ((fs_store_object *)object)->store;
    PyObject *result = ROWS_OBJECT(store, fs_collective_row, columns, fs_collectives_of(store, &rows, &count, &err));
    int64_t begin, end;
    fs_store_window(store, &begin, &end);
    return result == NULL ? NULL : Py_BuildValue("(NL)", result, (long long)begin);
}

PyObject *fs_store_object_collective_calls(PyObject *object, PyObject *Py_UNUSED(unused))
{
    static const column columns[] = {
        {"collective", call_kind, 0, 1},
        {"group", text, offsetof(fs_collective_call, recorded.group), 1},
        {"ranks", text, offsetof(fs_collective_call, recorded.ranks), 1},
        {"start", call_start, 0, 1},
        {"sequence", call_sequence, 0, 1},
        {"ran", call_ran, 0, 1},
    };
    const fs_store *store = ((fs_store_object *)object)->store;
    return ROWS_OBJECT(store, fs_collective_call, columns, fs_collective_calls_of(store, &rows, &count, &err));
}

PyObject *fs_store_object_stream_summary(PyObject *object, PyObject *Py_UNUSED(unused))
{
    static const column columns[] = {{"device", stream_device, 0, 1},
                                     {"stream", stream_id, 0, 1},
#define NUMBER_COLUMN(name, divisor, prose) {#name, number, offsetof(fs_stream_row, name), divisor},
                                     FS_STREAM_LIST(NUMBER_COLUMN)
#undef NUMBER_COLUMN
    };
    const fs_store *store = ((fs_store_object *)object)->store;
    return ROWS_OBJECT(store, fs_stream_row, columns, fs_streams_of(store, &rows, &count, &err));
}

/* Devices, launches and steps -------------------------------------------------------------------------------------- */

PyObject *fs_store_object_gpu_summary(PyObject *object, PyObject *args)
{
    static const column columns[] = {{"device", efficiency_device, 0, 1},
#define EFFICIENCY_COLUMN(name, prose) {#name, number, offsetof(fs_efficiency, name), 1},
                                     FS_EFFICIENCY_LIST(EFFICIENCY_COLUMN)
#undef EFFICIENCY_COLUMN
    };
    const fs_store *store = ((fs_store_object *)object)->store;
    const char *step = NULL;
    if (!PyArg_ParseTuple(args, "|z:gpu_summary", &step)) return NULL;
    return ROWS_OBJECT(store, fs_efficiency, columns, fs_efficiency_of(store, step, &rows, &count, &err));
}

PyObject *fs_store_object_launch_summary(PyObject *object, PyObject *Py_UNUSED(unused))
{
    static const column columns[] = {{"device", launches_device, 0, 1},
#define LAUNCH_COLUMN(name, divisor, prose) {#name, number, offsetof(fs_launch_statistics, name), divisor},
                                     FS_LAUNCH_LIST(LAUNCH_COLUMN)
#undef LAUNCH_COLUMN
    };
    const fs_store *store = ((fs_store_object *)object)->store;
    return ROWS_OBJECT(store, fs_launch_statistics, columns, fs_launches_of(store, &rows, &count, &err));
}

static PyObject *step_name(const fs_store *store, const fs_step *step)
{
    if (step->name == FS_NONE) Py_RETURN_NONE;
    return fs_text_object(fs_store_name_text(store, step->name));
}

/* ns of one part of a step, or of the whole step. */
static PyObject *step_time(const fs_step *step, int part)
{
    return PyLong_FromLongLong(part < FS_STEP_PART_COUNT ? step->parts[part]
                                                         : fs_sub_saturated(step->end, step->begin));
}

PyObject *fs_store_object_step_breakdown(PyObject *object, PyObject *Py_UNUSED(unused))
{
    const fs_store *store = ((fs_store_object *)object)->store;
    fs_steps steps;
    fs_error err;
    if (FS_LONG_WORK(fs_steps_break_down(&steps, store, &err)) != FS_OK) return fs_raise(&err);
    PyObject *result = PyDict_New();
    bool good =
        result != NULL && fs_put_column(result, "step", FS_LIST(i, steps.count, step_name(store, &steps.steps[i])));
    for (int part = 0; good && part <= FS_STEP_PART_COUNT; part++) {
        const char *name = part < FS_STEP_PART_COUNT ? fs_step_part_names[part] : "total";
        good = fs_put_column(result, name, FS_LIST(i, steps.count, step_time(&steps.steps[i], part)));
    }
    if (!good) Py_CLEAR(result);
    fs_steps_clear(&steps);
    return result;
}

/* {phase: (ns of the host, ns of devices)} */
PyObject *fs_store_object_phases(PyObject *object, PyObject *args)
{
    long long begin, end;
    fs_phase_times times[FS_PHASE_COUNT];
    fs_error err;
    if (!PyArg_ParseTuple(args, "LL:phases", &begin, &end)) return NULL;
    if (FS_LONG_WORK(fs_phases_sum(times, ((fs_store_object *)object)->store, begin, end, &err)) != FS_OK)
        return fs_raise(&err);
    PyObject *result = PyDict_New();
    for (int i = 0; result != NULL && i < FS_PHASE_COUNT; i++) {
        PyObject *both = Py_BuildValue("(LL)", (long long)times[i].host, (long long)times[i].device);
        if (!fs_put_column(result, fs_phase_names[i], both)) Py_CLEAR(result);
    }
    return result;
}
