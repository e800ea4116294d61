/* Helpers for Python objects, shared by the files of the binding. */
#include <string.h>

#include "python/core.h"

int fs_add_type(PyObject *module, PyTypeObject **type, PyType_Spec *spec)
{
    if (*type == NULL) *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (*type == NULL) return -1;
    return PyModule_AddObjectRef(module, strrchr(spec->name, '.') + 1, (PyObject *)*type);
}

PyObject *fs_text_object(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject *fs_names_object(const char *const *names, Py_ssize_t count)
{
    return FS_TUPLE(i, count, PyUnicode_FromString(names[i]));
}

PyObject *fs_integers_object(const int64_t *values, Py_ssize_t count, int64_t scale)
{
    if (values == NULL) return Py_NewRef(Py_None);
    return FS_TUPLE(i, count, PyLong_FromLongLong(values[i] * scale));
}

int fs_add_constant(PyObject *module, const char *name, PyObject *value)
{
    int status = value != NULL ? PyModule_AddObjectRef(module, name, value) : -1;
    Py_XDECREF(value);
    return status;
}

bool fs_put_column(PyObject *columns, const char *name, PyObject *column)
{
    bool good = column != NULL && PyDict_SetItemString(columns, name, column) == 0;
    Py_XDECREF(column);
    return good;
}
