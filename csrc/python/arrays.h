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

/* Return a dict of arrays of the fields of records: FS_ARRAYS(records, count, LIST) of those that LIST names as
 * X(type, name, prose). */
PyObject *fs_arrays_of(const void *records, uint32_t count, size_t record_size, const fs_array_field *fields,
                       size_t field_count);
#define FS_ARRAY_FIELD(type, name, prose) \
    {#name, offsetof(record_type_, name), _Generic((type)0, int64_t: true, double: false)},
#define FS_ARRAYS(records, count, LIST)                                                                \
    __extension__({                                                                                    \
        typedef __typeof__(*(records)) record_type_;                                                   \
        static const fs_array_field fields_[] = {LIST(FS_ARRAY_FIELD)};                                \
        fs_arrays_of(records, count, sizeof(record_type_), fields_, sizeof fields_ / sizeof *fields_); \
    })

/* Take a one-dimensional buffer of int64 or float64. On failure, an exception is set that names the array. */
bool fs_take_numbers(PyObject *object, Py_buffer *view, bool integers, const char *name);

#endif
