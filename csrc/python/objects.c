/* Helpers for Python objects, shared by the files of the binding. */
#include <string.h>

#include "python/core.h"

int fs_add_type(PyObject *module, PyTypeObject **type, PyType_Spec *spec)
{
    if (*type == NULL) *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (*type == NULL) return -1;
    return PyModule_AddObjectRef(module, strrchr(spec->name, '.') + 1, (PyObject *)*type);
}

void fs_free_object(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
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

bool fs_put(PyObject *dict, PyObject *key, PyObject *value)
{
    bool good = key != NULL && value != NULL && PyDict_SetItem(dict, key, value) == 0;
    Py_XDECREF(key);
    Py_XDECREF(value);
    return good;
}

PyObject *fs_counts_object(const fs_count *counts, size_t count)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < count; i++)
        if (!fs_put_column(dict, counts[i].name, PyLong_FromLongLong(counts[i].count))) Py_CLEAR(dict);
    return dict;
}

bool fs_append(PyObject *list, PyObject *item)
{
    bool good = item != NULL && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return good;
}

/* Equal values, bit by bit, are stored once. */
PyObject *fs_numbers_object(PyObject *bytes, bool integers)
{
    Py_ssize_t size = bytes != NULL ? PyBytes_GET_SIZE(bytes) : 0, count = size / 8;
    if (count > 1 && memcmp(PyBytes_AS_STRING(bytes), PyBytes_AS_STRING(bytes) + 8, (size_t)size - 8) == 0)
        Py_SETREF(bytes, PyBytes_FromStringAndSize(PyBytes_AS_STRING(bytes), 8));
    PyObject *module = bytes != NULL ? PyImport_ImportModule("flopscope.support.core_facts") : NULL, *numbers = NULL;
    if (module != NULL) numbers = PyObject_CallMethod(module, "Numbers", "sOn", integers ? "q" : "d", bytes, count);
    Py_XDECREF(module);
    Py_XDECREF(bytes);
    return numbers;
}
