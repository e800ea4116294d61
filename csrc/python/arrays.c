/* NumPy's arrays are read through the buffer protocol and made by numpy.c, so this file does not need its headers. A
 * buffer that was taken holds its array's memory until it is released. */
#include "python/arrays.h"

#include <string.h>

static PyObject *array_of(const void *records, uint32_t count, size_t record_size, const fs_array_field *of)
{
    union {
        int64_t whole;
        double real;
    } *values = PyMem_Malloc((count + (size_t)1) * sizeof *values);
    if (values == NULL) return PyErr_NoMemory();
    for (uint32_t i = 0; i < count; i++) {
        memcpy(&values[i], (const char *)records + i * record_size + of->offset, sizeof *values);
    }
    PyObject *array =
        of->integer ? fs_array_of_int64(&values->whole, count) : fs_array_of_doubles(&values->real, count);
    PyMem_Free(values);
    return array;
}

PyObject *fs_arrays_of(const void *records, uint32_t count, size_t record_size, const fs_array_field *fields,
                       size_t field_count)
{
    PyObject *result = PyDict_New();
    for (size_t i = 0; result != NULL && i < field_count; i++) {
        if (!fs_put_column(result, fields[i].name, array_of(records, count, record_size, &fields[i]))) Py_CLEAR(result);
    }
    return result;
}

bool fs_take_numbers(PyObject *object, Py_buffer *view, bool integers, const char *name)
{
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) return false;
    const char *format = view->format != NULL ? view->format : "B";
    bool fits = integers ? strcmp(format, "l") == 0 || strcmp(format, "q") == 0 : strcmp(format, "d") == 0;
    if (fits && view->itemsize == 8 && view->ndim == 1) return true;
    PyErr_Format(PyExc_TypeError, "%s must be a one-dimensional array of %s", name, integers ? "int64" : "float64");
    PyBuffer_Release(view);
    return false;
}
