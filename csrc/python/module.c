/* The module flopscope._core. */
#include <string.h>

#include "kernels/cuda_device.h"
#include "python/core.h"
#include "base/memory.h"
#include "sources/cupti/cupti.h"

/* Find NVIDIA's libraries as cuda-pathfinder does: those already loaded, wheels, conda, the system. */
static fs_status find_library(const char *name, char *path, size_t size, fs_error *err)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *finder = PyImport_ImportModule("flopscope.support.package");
    PyObject *location = finder ? PyObject_CallMethod(finder, "find_library", "s", name) : NULL;
    const char *text = location ? PyUnicode_AsUTF8(location) : NULL;
    fs_status status = FS_OK;
    if (text != NULL && strlen(text) < size) {
        strcpy(path, text);
    } else {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        PyObject *message = value ? PyObject_Str(value) : NULL;
        const char *why = message ? PyUnicode_AsUTF8(message) : NULL;
        status = fs_fail(err, FS_RUNTIME_ERROR, "%s", why ? why : "the path of an NVIDIA library is too long");
        Py_XDECREF(message);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
        PyErr_Clear();
    }
    Py_XDECREF(location);
    Py_XDECREF(finder);
    PyGILState_Release(gil);
    return status;
}

/* The public names of this module: the ops and this list. */
static int add_public_names(PyObject *module)
{
    static const char *const names[] = {"Op",
                                        "Tensor",
                                        "default_device",
                                        "empty",
                                        "empty_cache",
                                        "from_dlpack",
                                        "from_numpy",
                                        "manual_seed",
                                        "memory_allocated",
                                        "memory_reserved",
                                        "num_threads",
                                        "set_default_device",
                                        "set_num_threads",
                                        "synchronize"};
    PyObject *all = PyObject_GetAttrString(module, "ops");
    PyObject *copy = all ? PySequence_List(all) : NULL;
    Py_XDECREF(all);
    for (size_t i = 0; copy != NULL && i < sizeof names / sizeof *names; i++) {
        if (!fs_append(copy, PyUnicode_FromString(names[i]))) Py_CLEAR(copy);
    }
    int status = copy ? PyModule_AddObjectRef(module, "__all__", copy) : -1;
    Py_XDECREF(copy);
    return status;
}

/* The core's state, the observer of ops and the types belong to the process, and code that calls Python from any thread
 * (PyGILState_Ensure) enters the main interpreter. Other interpreters are therefore rejected before anything changes.
 * Python 3.12 and later reject them too, unless their check is disabled. */
static bool is_main_interpreter(void)
{
    if (PyInterpreterState_Get() == PyInterpreterState_Main()) return true;
    return fs_refuse(PyExc_ImportError,
                     "flopscope supports only the main interpreter: import it there, not in a subinterpreter");
}

/* The GIL guards the binding's state, and code that reads the stacks of other threads needs them to stand still. A
 * free-threaded Python enables the GIL for this module (Py_mod_gil) before it runs exec_module, unless it is forced
 * off. */
static bool has_gil(void)
{
#ifdef Py_GIL_DISABLED
    PyObject *ask = PySys_GetObject("_is_gil_enabled"), *enabled = ask ? PyObject_CallNoArgs(ask) : NULL;
    bool without = enabled == Py_False;
    Py_XDECREF(enabled);
    if (enabled == NULL && PyErr_Occurred()) return false;
    if (without)
        return fs_refuse(PyExc_ImportError,
                         "flopscope does not support running without the GIL, which guards the state of its C core: "
                         "start Python without PYTHON_GIL=0 and -X gil=0, and importing flopscope enables the GIL");
#endif
    return true;
}

static int exec_module(PyObject *module)
{
    static bool keeps_contexts;
    if (!is_main_interpreter() || !has_gil()) return -1;
    fs_cuda_set_library_finder(find_library);
    /* Registered to run before the exit handlers of C and after all of Python's. */
    if (!keeps_contexts && Py_AtExit(fs_driver_keep_contexts) == 0) keeps_contexts = true;
#define ADD(name) \
    if (fs_add_##name(module) < 0) return -1;
    FS_BINDING_LIST(ADD)
#undef ADD
    return add_public_names(module);
}

/* empty() is not an op: it does no work and records no event. */
static PyObject *empty(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"shape", "dtype", "device", NULL};
    PyObject *shape_object, *dtype_object = NULL, *device_object = NULL;
    fs_dtype dtype = FS_FLOAT32;
    fs_device device;
    int ndim;
    int64_t shape[FS_MAX_DIMS];
    fs_tensor tensor;
    fs_error err;
    if (!fs_parse_arguments(args, kwargs, "O|$OO:empty", names, &shape_object, &dtype_object, &device_object) ||
        !fs_parse_shape(shape_object, &ndim, shape) || (dtype_object && !fs_parse_dtype(dtype_object, &dtype)) ||
        !fs_parse_device(device_object, &device))
        return NULL;
    if (fs_tensor_empty(&tensor, dtype, device, ndim, shape, &err) != FS_OK) return fs_raise(&err);
    return fs_wrap_tensor(&tensor);
}

/* The GIL: threads of Python's that call CUDA without it wait for it between two calls. */
static int hold_threads(void)
{
    return (int)PyGILState_Ensure();
}

static void release_threads(int held)
{
    PyGILState_Release((PyGILState_STATE)held);
}

/* Load the driver once per process. Later calls do nothing. */
static PyObject *load_cupti(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *path = NULL, *driver = NULL;
    fs_error err;
    if (!PyArg_ParseTuple(args, "|zz:load_cupti", &path, &driver)) return NULL;
    fs_cupti_hold_threads_by(hold_threads, release_threads);
    return fs_none_or_raise(FS_WITHOUT_GIL(fs_cupti_load(path, driver, &err)), &err);
}

static PyObject *load_driver(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *path = NULL;
    fs_error err;
    if (!PyArg_ParseTuple(args, "|z:load_driver", &path)) return NULL;
    return fs_none_or_raise(fs_driver_load(path, &err), &err);
}

static PyObject *cuda_is_here(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(FS_WITHOUT_GIL(fs_cupti_has_device()));
}

static PyObject *trim_memory(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    Py_BEGIN_ALLOW_THREADS fs_memory_trim();
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"load_driver", load_driver, METH_VARARGS,
     "load_driver($module, path=None, /)\n--\n\nLoad the CUDA driver. Raise RuntimeError if it is unavailable."},
    {"load_cupti", load_cupti, METH_VARARGS,
     "load_cupti($module, path=None, driver=None, /)\n--\n\nLoad CUPTI and the CUDA driver. Without a path, the loader "
     "searches for them. Raise RuntimeError naming the missing library."},
    {"cuda_is_here", cuda_is_here, METH_NOARGS,
     "Return whether the loaded CUDA driver has a device. Initialises the driver."},
    {"trim_memory", trim_memory, METH_NOARGS, "Return freed memory to the system."},
    {"empty", (PyCFunction)(void (*)(void))empty, METH_VARARGS | METH_KEYWORDS,
     "empty($module, shape, *, dtype=\"float32\", device=None)\n--\n\nReturn a tensor with uninitialized elements. "
     "Records no event.\n\n"
     "shape is an integer or a sequence of at most 8 integers. Without a device, the default device is used.\nRaises "
     "ValueError, TypeError, MemoryError or RuntimeError (CUDA is unavailable), naming the invalid value."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, exec_module},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_USED}, /* see has_gil() */
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "flopscope._core", .m_doc = "The C core of flopscope.", .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
