/* What an XSpace holds besides its events, as objects of Python. */
#include "python/xspace_facts.h"

#include "python/store_type.h"

static PyObject *text_object(fs_xtext text)
{
    return PyUnicode_DecodeUTF8(text.bytes, (Py_ssize_t)text.size, "replace");
}

static PyObject *value_object(const fs_xvalue *value)
{
    switch (value->type) {
    case FS_XINTEGER:
        return PyLong_FromLongLong(value->integer);
    case FS_XUNSIGNED:
        return PyLong_FromUnsignedLongLong((unsigned long long)value->integer);
    case FS_XREAL:
        return PyFloat_FromDouble(value->real);
    case FS_XTEXT:
        return text_object(value->text);
    default:
        Py_RETURN_NONE;
    }
}

/* Set a key of a dict; takes the reference to the value, which may be NULL. */
static bool put(PyObject *dict, fs_xtext name, PyObject *value)
{
    PyObject *key = value != NULL ? text_object(name) : NULL;
    bool done = key != NULL && PyDict_SetItem(dict, key, value) == 0;
    Py_XDECREF(key);
    Py_XDECREF(value);
    return done;
}

/* Append to a list; takes the reference to the item, which may be NULL. */
static bool append(PyObject *list, PyObject *item)
{
    bool done = item != NULL && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return done;
}

static PyObject *plane_object(const fs_xplane *plane)
{
    static const char *const roles[] = {
        [FS_XLINE_LEFT_OUT] = "left out", [FS_XLINE_STREAM] = "stream", [FS_XLINE_OPS] = "ops",
        [FS_XLINE_STEPS] = "steps",       [FS_XLINE_THREAD] = "thread", [FS_XLINE_CALLS] = "thread",
    };
    PyObject *stats = PyDict_New(), *lines = PyList_New(0);
    bool made = stats != NULL && lines != NULL;
    for (uint32_t i = 0; made && i < plane->stat_count; i++)
        made = put(stats, plane->stats[i].name, value_object(&plane->stats[i].value));
    for (uint32_t i = 0; made && i < plane->line_count; i++) {
        const fs_xline *line = &plane->lines[i];
        made = append(lines, Py_BuildValue("(NsLL)", text_object(line->name), roles[line->role], (long long)line->start,
                                           (long long)line->events));
    }
    if (made)
        return Py_BuildValue("{sNsLsNsN}", "name", text_object(plane->name), "device",
                             plane->role == FS_XPLANE_DEVICE ? (long long)plane->device : -1LL, "stats", stats, "lines",
                             lines);
    Py_XDECREF(stats);
    Py_XDECREF(lines);
    return NULL;
}

PyObject *fs_xspace_object(const fs_xspace *space)
{
    static const char *const kinds[] = {
        [FS_XREMARK_ERROR] = "error", [FS_XREMARK_WARNING] = "warning", [FS_XREMARK_HOST] = "host"};
    PyObject *planes = PyList_New(0), *modules = PyList_New(0), *remarks = PyList_New(0);
    bool made = planes != NULL && modules != NULL && remarks != NULL;
    for (uint32_t i = 0; made && i < space->plane_count; i++) made = append(planes, plane_object(&space->planes[i]));
    for (uint32_t i = 0; made && i < space->module_count; i++) {
        const fs_xmodule *module = &space->modules[i];
        made = append(modules, Py_BuildValue("(Ny#)", text_object(module->name), module->proto.bytes,
                                             (Py_ssize_t)module->proto.size));
    }
    for (uint32_t i = 0; made && i < space->remark_count; i++) {
        const fs_xremark *remark = &space->remarks[i];
        made = append(remarks, Py_BuildValue("(sN)", kinds[remark->kind], text_object(remark->text)));
    }
    if (made) return Py_BuildValue("{sNsNsN}", "planes", planes, "modules", modules, "remarks", remarks);
    Py_XDECREF(planes);
    Py_XDECREF(modules);
    Py_XDECREF(remarks);
    return NULL;
}
