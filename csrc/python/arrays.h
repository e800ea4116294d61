/* Records of the core as NumPy arrays, one for each field, and arrays of numbers as buffers. */
#ifndef FS_PYTHON_ARRAYS_H
#define FS_PYTHON_ARRAYS_H

#include <stddef.h>

#include "python/core.h"

/* A field of a record: an int64_t or a double. */
typedef struct {
    const char *name;
    size_t offset;
    bool integer;
} fs_array_field;

#define FS_ARRAY_FIELD(record, type, name) \
    {#name, offsetof(record, name), _Generic((type)0, int64_t: true, double: false)},

/* Return a dict of arrays of the fields of records. */
PyObject *fs_arrays_of(const void *records, uint32_t count, size_t record_size, const fs_array_field *fields,
                       size_t field_count);
#define FS_ARRAYS(records, count, fields) \
    fs_arrays_of(records, count, sizeof *(records), fields, sizeof(fields) / sizeof *(fields))

/* Take a one-dimensional buffer of int64 or float64. On failure, an exception is set that names the array. */
bool fs_take_numbers(PyObject *object, Py_buffer *view, bool integers, const char *name);

#endif
