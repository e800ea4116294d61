/* Conversion of Python's arguments to the core's values, and of the core's errors to Python's exceptions. */
#include "python/core.h"

#include <stdatomic.h>
#include <string.h>

#include "kernels/cuda_device.h"

/* Return a message with the characters escaped that a terminal would interpret: it may name what a file holds. */
static PyObject *printable(const char *message)
{
    PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
    for (Py_ssize_t i = 0; text != NULL && i < PyUnicode_GET_LENGTH(text); i++) {
        Py_UCS4 character = PyUnicode_READ_CHAR(text, i);
        if (Py_UNICODE_ISPRINTABLE(character)) continue;
        PyObject *one = PyUnicode_FromOrdinal((int)character);
        PyObject *code = PyUnicode_FromFormat(character < 256 ? "\\x%02x" : "\\u%04x", (unsigned)character);
        PyObject *more = one != NULL && code != NULL ? PyUnicode_Replace(text, one, code, -1) : NULL;
        Py_XDECREF(one);
        Py_XDECREF(code);
        Py_SETREF(text, more);
    }
    return text;
}

PyObject *fs_raise(const fs_error *err)
{
    static const char *const names[FS_STATUS_COUNT] = {
#define STATUS_EXCEPTION(name, exception, prose) [FS_##name] = exception,
        FS_STATUS_LIST(STATUS_EXCEPTION)
#undef STATUS_EXCEPTION
    };
    if (err->status == FS_INTERRUPTED && PyErr_Occurred()) return NULL;
    PyObject *builtins = PyEval_GetBuiltins();
    PyObject *type = PyDict_GetItemString(builtins, names[err->status]);
    PyObject *text = printable(err->message);
    if (text != NULL) PyErr_SetObject(type ? type : PyExc_RuntimeError, text);
    Py_XDECREF(text);
    return NULL;
}

PyObject *fs_none_or_raise(fs_status status, const fs_error *err)
{
    return status == FS_OK ? Py_NewRef(Py_None) : fs_raise(err);
}

/* Code that holds the GIL meanwhile, such as a finalizer's, is Python code, which handles signals itself. */
static bool hear_signals(void *context)
{
    fs_long_work *work = context;
    if (PyGILState_Check()) return false;
    PyEval_RestoreThread(work->thread);
    bool raised = PyErr_CheckSignals() < 0;
    work->thread = PyEval_SaveThread();
    return raised;
}

void fs_long_work_begin(fs_long_work *work)
{
    fs_interrupt_open(&work->interrupt, hear_signals, work);
    work->thread = PyEval_SaveThread();
}

void fs_long_work_end(fs_long_work *work)
{
    PyEval_RestoreThread(work->thread);
    fs_interrupt_close(&work->interrupt);
}

fs_pending fs_pending_take(void)
{
    fs_pending pending = {NULL, NULL, NULL};
#if PY_VERSION_HEX >= 0x030c0000
    pending.value = PyErr_GetRaisedException();
#else
    PyErr_Fetch(&pending.type, &pending.value, &pending.traceback);
#endif
    return pending;
}

void fs_pending_put(fs_pending pending)
{
    if (PyErr_Occurred()) PyErr_WriteUnraisable(NULL);
#if PY_VERSION_HEX >= 0x030c0000
    PyErr_SetRaisedException(pending.value);
#else
    PyErr_Restore(pending.type, pending.value, pending.traceback);
#endif
}

PyObject *fs_did_you_mean(PyObject *name, PyObject *const *known, Py_ssize_t count)
{
    PyObject *module = PyImport_ImportModule("flopscope.support.suggest"), *names = PyTuple_New(count), *text = NULL;
    for (Py_ssize_t i = 0; names != NULL && i < count; i++) PyTuple_SET_ITEM(names, i, Py_NewRef(known[i]));
    if (module != NULL && names != NULL) text = PyObject_CallMethod(module, "did_you_mean", "OO", name, names);
    Py_XDECREF(names);
    Py_XDECREF(module);
    if (text != NULL) return text;
    PyErr_Clear(); /* the error that it would have been part of counts */
    return PyUnicode_FromString("");
}

/* Replace the error for an unknown keyword argument, if there is one, by one that says what was meant. */
static void explain_keyword(PyObject *kwargs, const char *function, char **names)
{
    PyObject *name, *known = PyList_New(0);
    for (char **each = names; known != NULL && *each != NULL; each++) {
        if (!fs_append(known, PyUnicode_FromString(*each))) Py_CLEAR(known);
    }
    for (Py_ssize_t at = 0; known != NULL && PyDict_Next(kwargs, &at, &name, NULL);) {
        if (!PyUnicode_Check(name) || PySequence_Contains(known, name) != 0) continue;
        PyObject *hint = fs_did_you_mean(name, PySequence_Fast_ITEMS(known), PyList_GET_SIZE(known));
        if (hint != NULL)
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R%U", function, name, hint);
        Py_XDECREF(hint);
        break;
    }
    Py_XDECREF(known);
}

int fs_parse_arguments(PyObject *args, PyObject *kwargs, const char *format, char **names, ...)
{
    va_list values;
    va_start(values, names);
    int good = PyArg_VaParseTupleAndKeywords(args, kwargs, format, names, values);
    va_end(values);
    if (good || kwargs == NULL || !PyErr_ExceptionMatches(PyExc_TypeError)) return good;
    fs_pending pending = fs_pending_take();
    explain_keyword(kwargs, strchr(format, ':') + 1, names);
    if (PyErr_Occurred()) {
        Py_XDECREF(pending.type);
        Py_XDECREF(pending.value);
        Py_XDECREF(pending.traceback);
    } else {
        fs_pending_put(pending);
    }
    return 0;
}

bool fs_parse_dtype(PyObject *object, fs_dtype *dtype)
{
    const char *name = NULL;
    if (PyUnicode_Check(object)) {
        Py_ssize_t size;
        name = PyUnicode_AsUTF8AndSize(object, &size);
        if (name == NULL) return false;
        *dtype = strlen(name) == (size_t)size ? fs_dtype_find(name) : FS_DTYPE_NONE;
        if (*dtype != FS_DTYPE_NONE) return true;
    }
    return fs_refuse(name ? PyExc_ValueError : PyExc_TypeError, "unknown dtype %R; supported are %s (as strings)",
                     object, fs_dtype_names);
}

/* The default device: the one set, else the first GPU, else the CPU. Packed into one integer for atomic access; -1: not
 * yet determined. */
static atomic_int default_device = -1;

bool fs_default_device(fs_device *device)
{
    int packed = atomic_load(&default_device);
    if (packed < 0) {
        int count = 0;
        fs_error err;
        packed = fs_cuda_device_count(&count, &err) == FS_OK && count > 0 ? FS_CUDA : FS_CPU;
        atomic_store(&default_device, packed);
    }
    *device = (fs_device){.kind = (fs_device_kind)(packed & 0xff), .index = packed >> 8};
    return true;
}

static bool cuda_device(PyObject *object, int index, fs_device *device)
{
    int count = 0;
    fs_error err;
    if (fs_cuda_device_count(&count, &err) != FS_OK) {
        fs_raise(&err);
        return false;
    }
    if (index >= count)
        return fs_refuse(PyExc_RuntimeError, "unknown device %R: CUDA has %d device%s", object, count,
                         count == 1 ? "" : "s");
    *device = (fs_device){.kind = FS_CUDA, .index = index};
    return true;
}

bool fs_parse_device(PyObject *object, fs_device *device)
{
    if (object == NULL || object == Py_None) return fs_default_device(device);
    Py_ssize_t size = 0;
    const char *text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &size) : NULL;
    if (text == NULL && PyErr_Occurred()) return false;
    if (text != NULL && strlen(text) != (size_t)size) text = ""; /* names contain no NUL */
    if (text != NULL && strcmp(text, "cpu") == 0) {
        *device = (fs_device){.kind = FS_CPU};
        return true;
    }
    if (text != NULL && strcmp(text, "cuda") == 0) return cuda_device(object, 0, device);
    if (text != NULL && strncmp(text, "cuda:", 5) == 0 && text[5] >= '0' && text[5] <= '9') {
        char *end;
        long index = strtol(text + 5, &end, 10);
        if (*end == 0 && index < 256) return cuda_device(object, (int)index, device);
    }
    return fs_refuse(text ? PyExc_ValueError : PyExc_TypeError,
                     "unknown device %R; use \"cpu\", \"cuda\" or \"cuda:N\"", object);
}

bool fs_parse_shape(PyObject *object, int *ndim, int64_t *shape)
{
    if (PyIndex_Check(object) && !PySequence_Check(object)) {
        *ndim = 1;
        shape[0] = PyNumber_AsSsize_t(object, PyExc_OverflowError);
        return shape[0] != -1 || !PyErr_Occurred();
    }
    PyObject *items = PySequence_Fast(object, "the shape must be an integer or a sequence of integers");
    /* A list may change while an item's __index__() runs. A tuple cannot. */
    PyObject *sizes = items != NULL ? PySequence_Tuple(items) : NULL;
    Py_XDECREF(items);
    if (sizes == NULL) return false;
    Py_ssize_t count = PyTuple_GET_SIZE(sizes);
    if (count > FS_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "a tensor has at most %d dimensions, not %zd", FS_MAX_DIMS, count);
        Py_DECREF(sizes);
        return false;
    }
    for (Py_ssize_t d = 0; d < count; d++) {
        shape[d] = PyNumber_AsSsize_t(PyTuple_GET_ITEM(sizes, d), PyExc_OverflowError);
        if (shape[d] == -1 && PyErr_Occurred()) {
            Py_DECREF(sizes);
            return false;
        }
    }
    *ndim = (int)count;
    Py_DECREF(sizes);
    return true;
}

PyObject *fs_device_object(fs_device device)
{
    char text[16];
    return PyUnicode_FromString(fs_device_text(device, text));
}

PyObject *fs_set_default_device(PyObject *Py_UNUSED(module), PyObject *object)
{
    fs_device device;
    if (object == Py_None) {
        atomic_store(&default_device, -1);
        Py_RETURN_NONE;
    }
    if (!fs_parse_device(object, &device)) return NULL;
    atomic_store(&default_device, (int)device.kind | device.index << 8);
    Py_RETURN_NONE;
}

PyObject *fs_get_default_device(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    fs_device device;
    return fs_default_device(&device) ? fs_device_object(device) : NULL;
}
