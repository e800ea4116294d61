/* Store's collectives and streams: dicts of lists, one for each column. */
#include <stddef.h>

#include "base/memory.h"
#include "python/store_type.h"
#include "summaries/collective_calls.h"
#include "summaries/collectives.h"
#include "summaries/streams.h"

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
        PyObject *list = PyList_New(count);
        for (uint32_t row = 0; list != NULL && row < count; row++) {
            const void *at = (const char *)rows + row * row_size;
            PyObject *value = columns[i].value(store, at, columns[i].offset, columns[i].divisor);
            if (value == NULL) Py_CLEAR(list);
            else PyList_SET_ITEM(list, row, value);
        }
        if (!fs_put_column(result, columns[i].name, list)) Py_CLEAR(result);
    }
    return result;
}

static PyObject *number(const fs_store *store, const void *row, size_t offset, double divisor)
{
    (void)store;
    return PyFloat_FromDouble(*(const double *)(const void *)((const char *)row + offset) / divisor);
}

/* None where it is "". */
static PyObject *text(const fs_store *store, const void *row, size_t offset, double divisor)
{
    (void)store, (void)divisor;
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
INTEGER_OF(collective_sequence, fs_collective_row, row->recorded.sequence == FS_MISSING, row->recorded.sequence)
INTEGER_OF(collective_group_size, fs_collective_row, row->recorded.group_size <= 0, row->recorded.group_size)
INTEGER_OF(call_start, fs_collective_call, false, row->start)
INTEGER_OF(call_sequence, fs_collective_call, row->recorded.sequence == FS_MISSING, row->recorded.sequence)
INTEGER_OF(call_ran, fs_collective_call, false, row->ran)
INTEGER_OF(stream_device, fs_stream_row, false, row->device)
INTEGER_OF(stream_id, fs_stream_row, row->whole, row->stream)
#undef INTEGER_OF

static PyObject *collective_kind(const fs_store *store, const void *item, size_t offset, double divisor)
{
    (void)store, (void)offset, (void)divisor;
    return PyUnicode_FromString(fs_collective_kind_names[((const fs_collective_row *)item)->kind]);
}

static PyObject *call_kind(const fs_store *store, const void *item, size_t offset, double divisor)
{
    (void)store, (void)offset, (void)divisor;
    return PyUnicode_FromString(fs_collective_kind_names[((const fs_collective_call *)item)->kind]);
}

static PyObject *collective_kernel(const fs_store *store, const void *item, size_t offset, double divisor)
{
    (void)offset, (void)divisor;
    const fs_collective_row *row = item;
    if (row->name == FS_NONE) Py_RETURN_NONE;
    return fs_text_object(fs_store_name_text(store, row->name));
}

/* Compute the rows of a summary without the GIL. The caller releases them with fs_free. */
typedef fs_status rows_of(const fs_store *store, void **rows, uint32_t *count, fs_error *err);

#define ROWS_OF(name, row_type, function)                                                     \
    static fs_status name(const fs_store *store, void **rows, uint32_t *count, fs_error *err) \
    {                                                                                         \
        row_type *found = NULL;                                                               \
        fs_status status = function(store, &found, count, err);                               \
        *rows = found;                                                                        \
        return status;                                                                        \
    }
ROWS_OF(collective_rows, fs_collective_row, fs_collectives_of)
ROWS_OF(call_rows, fs_collective_call, fs_collective_calls_of)
ROWS_OF(stream_rows, fs_stream_row, fs_streams_of)
#undef ROWS_OF

static PyObject *read_columns(PyObject *object, rows_of *compute, size_t row_size, const column *columns, size_t used)
{
    const fs_store *store = ((fs_store_object *)object)->store;
    void *rows = NULL;
    uint32_t count = 0;
    fs_error err;
    fs_long_work work;
    fs_long_work_begin(&work);
    fs_status status = compute(store, &rows, &count, &err);
    fs_long_work_end(&work);
    if (status != FS_OK) return fs_raise(&err);
    PyObject *result = columns_of(store, rows, count, row_size, columns, used);
    fs_free(rows);
    return result;
}

PyObject *fs_store_object_collectives(PyObject *object, PyObject *unused)
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
        {"kernel", collective_kernel, 0, 1},
    };
    (void)unused;
    PyObject *result =
        read_columns(object, collective_rows, sizeof(fs_collective_row), columns, sizeof columns / sizeof *columns);
    int64_t begin, end;
    fs_store_window(((fs_store_object *)object)->store, &begin, &end);
    return result == NULL ? NULL : Py_BuildValue("(NL)", result, (long long)begin);
}

PyObject *fs_store_object_collective_calls(PyObject *object, PyObject *unused)
{
    static const column columns[] = {
        {"collective", call_kind, 0, 1},
        {"group", text, offsetof(fs_collective_call, recorded.group), 1},
        {"ranks", text, offsetof(fs_collective_call, recorded.ranks), 1},
        {"start", call_start, 0, 1},
        {"sequence", call_sequence, 0, 1},
        {"ran", call_ran, 0, 1},
    };
    (void)unused;
    return read_columns(object, call_rows, sizeof(fs_collective_call), columns, sizeof columns / sizeof *columns);
}

PyObject *fs_store_object_stream_summary(PyObject *object, PyObject *unused)
{
    static const column columns[] = {{"device", stream_device, 0, 1},
                                     {"stream", stream_id, 0, 1},
#define NUMBER_COLUMN(name, divisor, prose) {#name, number, offsetof(fs_stream_row, name), divisor},
                                     FS_STREAM_LIST(NUMBER_COLUMN)
#undef NUMBER_COLUMN
    };
    (void)unused;
    return read_columns(object, stream_rows, sizeof(fs_stream_row), columns, sizeof columns / sizeof *columns);
}
