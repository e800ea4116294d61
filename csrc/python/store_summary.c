/* Store's summaries: how well the devices were used, what the steps' time went to, how kernels were launched; each a
 * dict of lists, one for each column. */
#include <stddef.h>

#include "base/memory.h"
#include "base/saturate.h"
#include "python/store_type.h"
#include "summaries/efficiency.h"
#include "summaries/launches.h"
#include "summaries/steps.h"

/* A column of doubles: where a row holds them, and how many of them make one that is shown. */
typedef struct {
    const char *name;
    size_t offset;
    double divisor;
} column;

static PyObject *doubles(const char *rows, uint32_t count, size_t row_size, const column *from)
{
    PyObject *list = PyList_New(count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        double value = *(const double *)(const void *)(rows + i * row_size + from->offset);
        PyObject *number = PyFloat_FromDouble(value / from->divisor);
        if (number == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, number);
    }
    return list;
}

/* Rows that begin with the number of their device. */
static PyObject *device_columns(const void *rows, uint32_t count, size_t row_size, const column *columns, size_t used)
{
    PyObject *result = PyDict_New(), *devices = PyList_New(count);
    for (uint32_t i = 0; devices != NULL && i < count; i++) {
        PyObject *device = PyLong_FromLong(*(const int *)(const void *)((const char *)rows + i * row_size));
        if (device == NULL) Py_CLEAR(devices);
        else PyList_SET_ITEM(devices, i, device);
    }
    if (result == NULL) {
        Py_XDECREF(devices);
        return NULL;
    }
    bool good = fs_put_column(result, "device", devices);
    for (size_t i = 0; good && i < used; i++) {
        good = fs_put_column(result, columns[i].name, doubles(rows, count, row_size, &columns[i]));
    }
    if (!good) Py_CLEAR(result);
    return result;
}

PyObject *fs_store_object_gpu_summary(PyObject *object, PyObject *args)
{
    static const column columns[] = {
#define EFFICIENCY_COLUMN(name, prose) {#name, offsetof(fs_efficiency, name), 1},
        FS_EFFICIENCY_LIST(EFFICIENCY_COLUMN)
#undef EFFICIENCY_COLUMN
    };
    fs_store_object *self = (fs_store_object *)object;
    const char *step = NULL;
    fs_efficiency *rows = NULL;
    uint32_t count = 0;
    fs_status status;
    fs_error err;
    if (!PyArg_ParseTuple(args, "|z:gpu_summary", &step)) return NULL;
    fs_long_work work;
    fs_long_work_begin(&work);
    status = fs_efficiency_of(self->store, step, &rows, &count, &err);
    fs_long_work_end(&work);
    if (status != FS_OK) return fs_raise(&err);
    PyObject *result = device_columns(rows, count, sizeof *rows, columns, sizeof columns / sizeof *columns);
    fs_free(rows);
    return result;
}

PyObject *fs_store_object_launch_summary(PyObject *object, PyObject *unused)
{
    static const column columns[] = {
#define LAUNCH_COLUMN(name, divisor, prose) {#name, offsetof(fs_launch_statistics, name), divisor},
        FS_LAUNCH_LIST(LAUNCH_COLUMN)
#undef LAUNCH_COLUMN
    };
    (void)unused;
    fs_store_object *self = (fs_store_object *)object;
    fs_launch_statistics *rows = NULL;
    uint32_t count = 0;
    fs_status status;
    fs_error err;
    fs_long_work work;
    fs_long_work_begin(&work);
    status = fs_launches_of(self->store, &rows, &count, &err);
    fs_long_work_end(&work);
    if (status != FS_OK) return fs_raise(&err);
    PyObject *result = device_columns(rows, count, sizeof *rows, columns, sizeof columns / sizeof *columns);
    fs_free(rows);
    return result;
}

static PyObject *step_name(const fs_store *store, const fs_step *step)
{
    if (step->name == FS_NONE) Py_RETURN_NONE;
    return fs_text_object(fs_store_name_text(store, step->name));
}

/* ns of one part of each step, or of the whole step. */
static PyObject *step_times(const fs_steps *steps, int part)
{
    PyObject *list = PyList_New(steps->count);
    for (uint32_t i = 0; list != NULL && i < steps->count; i++) {
        const fs_step *step = &steps->steps[i];
        PyObject *time = PyLong_FromLongLong(part < FS_STEP_PART_COUNT ? step->parts[part]
                                                                       : fs_sub_saturated(step->end, step->begin));
        if (time == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, time);
    }
    return list;
}

PyObject *fs_store_object_step_breakdown(PyObject *object, PyObject *unused)
{
    (void)unused;
    fs_store_object *self = (fs_store_object *)object;
    fs_steps steps;
    fs_status status;
    fs_error err;
    fs_long_work work;
    fs_long_work_begin(&work);
    status = fs_steps_break_down(&steps, self->store, &err);
    fs_long_work_end(&work);
    if (status != FS_OK) return fs_raise(&err);
    PyObject *result = PyDict_New(), *names = PyList_New(steps.count);
    for (uint32_t i = 0; names != NULL && i < steps.count; i++) {
        PyObject *name = step_name(self->store, &steps.steps[i]);
        if (name == NULL) Py_CLEAR(names);
        else PyList_SET_ITEM(names, i, name);
    }
    bool good = result != NULL && fs_put_column(result, "step", names);
    if (result == NULL) Py_XDECREF(names);
    for (int part = 0; good && part < FS_STEP_PART_COUNT; part++) {
        good = fs_put_column(result, fs_step_part_names[part], step_times(&steps, part));
    }
    if (good) good = fs_put_column(result, "total", step_times(&steps, FS_STEP_PART_COUNT));
    if (!good) Py_CLEAR(result);
    fs_steps_clear(&steps);
    return result;
}
