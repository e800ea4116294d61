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

bool fs_put_column(PyObject *columns, const char *name, PyObject *column)
{
    bool good = column != NULL && PyDict_SetItemString(columns, name, column) == 0;
    Py_XDECREF(column);
    return good;
}
