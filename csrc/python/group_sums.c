/* sum_rows(): the columns of a table come as one matrix of integers and one of doubles, a row of the matrix for each
 * column in the order of summed_columns, so tables made of lists by hand are summed as those of a store. */
#include "table/group_sums.h"

#include "python/arrays.h"

#define SUM_FIELD(type, name, prose) FS_ARRAY_FIELD(fs_group_sum, type, name)
static const fs_array_field sum_fields[] = {FS_GROUP_SUM_LIST(SUM_FIELD)};

#define COLUMN_NAME(name) #name,
static const char *const integer_names[] = {FS_SUMMED_INTEGERS(COLUMN_NAME)};
static const char *const number_names[] = {FS_SUMMED_NUMBERS(COLUMN_NAME)};

enum { INTEGERS, NUMBERS, GROUPS, PARENTS, VIEW_COUNT };

static const struct {
    const char *name;
    bool integers;
    int dimensions;
} inputs[VIEW_COUNT] = {
    [INTEGERS] = {"integers", true, 2},
    [NUMBERS] = {"numbers", false, 2},
    [GROUPS] = {"groups", true, 1},
    [PARENTS] = {"parents", true, 1},
};

static bool fits(const Py_buffer *view, Py_ssize_t columns, Py_ssize_t rows, const char *name)
{
    if (view->shape[0] == columns && view->shape[1] == rows && rows < UINT32_MAX) return true;
    return fs_refuse(PyExc_ValueError, "%s has %zd columns of %zd rows, not %zd of %zd", name, view->shape[0],
                     view->shape[1], columns, rows);
}

static PyObject *sums_of(const fs_group_request *request)
{
    fs_error err;
    bool has_left = false;
    fs_group_sum *sums = PyMem_Malloc((request->group_count + (size_t)1) * sizeof *sums);
    if (sums == NULL) return PyErr_NoMemory();
    fs_status status = fs_group_sums(request, sums, &has_left, &err);
    PyObject *result = status == FS_OK ? FS_ARRAYS(sums, request->group_count + has_left, sum_fields) : fs_raise(&err);
    PyMem_Free(sums);
    return result;
}

static PyObject *sum_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *arrays[VIEW_COUNT], *result = NULL;
    Py_buffer views[VIEW_COUNT];
    int on_device, taken = 0;
    double device_time;
    if (!PyArg_ParseTuple(args, "OOOOpd:sum_rows", &arrays[INTEGERS], &arrays[NUMBERS], &arrays[GROUPS],
                          &arrays[PARENTS], &on_device, &device_time))
        return NULL;
    int wanted = arrays[PARENTS] == Py_None ? PARENTS : VIEW_COUNT;
    while (taken < wanted && fs_take_numbers(arrays[taken], &views[taken], inputs[taken].integers,
                                             inputs[taken].dimensions, inputs[taken].name))
        taken++;
    Py_ssize_t rows = taken > GROUPS ? views[GROUPS].shape[0] : 0;
    if (taken == wanted && fits(&views[INTEGERS], FS_SUMMED_INTEGER_COUNT, rows, inputs[INTEGERS].name) &&
        fits(&views[NUMBERS], FS_SUMMED_NUMBER_COUNT, rows, inputs[NUMBERS].name)) {
        bool nested = wanted > PARENTS;
        fs_group_request request = {.row_count = (uint32_t)rows,
                                    .group_count = nested ? (uint32_t)views[PARENTS].shape[0] : 1,
                                    .integers = views[INTEGERS].buf,
                                    .numbers = views[NUMBERS].buf,
                                    .groups = views[GROUPS].buf,
                                    .parents = nested ? views[PARENTS].buf : NULL,
                                    .on_device = on_device,
                                    .device_time = device_time};
        result = sums_of(&request);
    }
    while (taken > 0) PyBuffer_Release(&views[--taken]);
    return result;
}

static PyMethodDef functions[] = {
    {"sum_rows", sum_rows, METH_VARARGS,
     "sum_rows($module, integers, numbers, groups, parents, on_device, device_time, /)\n--\n\nReturn the sums of rows "
     "by group as arrays: csrc/table/group_sums.h.\n\n"
     "integers, numbers: matrices of the columns that summed_columns names. groups: the group of each row, -1 for "
     "none. parents: the group around each group, which precedes it, or -1; None to sum all rows of group 0."},
    {NULL, NULL, 0, NULL},
};

int fs_add_group_sums(PyObject *module)
{
    PyObject *names = Py_BuildValue("(NN)", fs_names_object(integer_names, FS_SUMMED_INTEGER_COUNT),
                                    fs_names_object(number_names, FS_SUMMED_NUMBER_COUNT));
    if (fs_add_constant(module, "summed_columns", names) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
