/* Ranges of NVTX beside a profile of another profiler, such as torch's, which the module's functions begin and end. The
 * store that they are recorded into lives until then. */
#include "base/clock.h"
#include "base/fork.h"
#include "python/profiler.h"

static fs_store_object *into; /* owned; NULL: none */

PyObject *fs_nvtx_report_object(const fs_nvtx_report *report)
{
    PyObject *counts = PyDict_New();
    bool good = counts != NULL;
#define PUT_COUNT(name, prose) good = good && fs_put_column(counts, #name, PyLong_FromLongLong(report->name));
    FS_NVTX_COUNT_LIST(PUT_COUNT)
#undef PUT_COUNT
    if (!good) Py_CLEAR(counts);
    return counts;
}

static PyObject *inject_nvtx(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(fs_nvtx_inject());
}

static PyObject *begin_nvtx(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    if (into != NULL && into->generation == fs_fork_generation()) Py_RETURN_FALSE;
    Py_CLEAR(into); /* of the parent process */
    fs_store_object *store = fs_store_object_create();
    if (store == NULL) return NULL;
    store->generation = fs_fork_generation();
    store->filled = fs_nvtx_begin(store->store);
    if (store->filled) into = store;
    else Py_DECREF(store);
    return PyBool_FromLong(into != NULL);
}

static PyObject *end_nvtx(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    fs_store_object *store = into;
    into = NULL;
    if (store == NULL) Py_RETURN_NONE;
    if (fs_store_object_is_filled(store)) {
        fs_nvtx_report report = fs_nvtx_end();
        fs_store_end_all(store->store, fs_clock_now());
        store->dropped = report.lost;
    }
    store->filled = false;
    return (PyObject *)store;
}

static PyMethodDef functions[] = {
    {"inject_nvtx", inject_nvtx, METH_NOARGS,
     "inject_nvtx($module, /)\n--\n\nBecome the tool of the libraries that have not called NVTX yet. Return whether "
     "that is so: the environment may name another tool."},
    {"begin_nvtx", begin_nvtx, METH_NOARGS,
     "begin_nvtx($module, /)\n--\n\nRecord the ranges of NVTX without a Profiler. Return false if they are recorded "
     "already."},
    {"end_nvtx", end_nvtx, METH_NOARGS,
     "end_nvtx($module, /)\n--\n\nEnd what begin_nvtx() began, and return a Store of the ranges; None if it did not."},
    {NULL, NULL, 0, NULL},
};

int fs_add_nvtx(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
