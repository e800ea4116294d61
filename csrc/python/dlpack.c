/* DLPack export and import (https://dmlc.github.io/dlpack/latest/python_spec.html), for version 1.0 and the unversioned
 * form before it. The structures are DLPack's ABI. */
#include <stdlib.h>

#include "base/lock.h"
#include "base/search.h"
#include "kernels/cuda_device.h"
#include "python/core.h"

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };
enum { DL_READ_ONLY = 1, DL_COPIED = 2 };
enum { DL_MAJOR = 1, DL_MINOR = 0 };

typedef struct {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed dl_managed;
struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(dl_managed *self);
};

typedef struct dl_versioned dl_versioned;
struct dl_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(dl_versioned *self);
    uint64_t flags;
    dl_tensor tensor;
};

static const char plain_name[] = "dltensor", versioned_name[] = "dltensor_versioned";

/* Export -------------------------------------------------------------------------------------------------------- */

/* One allocation holds either managed form and the tensor that it keeps alive. A deleter may be called twice, for
 * example by a consumer that does not rename the capsule, and must not release anything twice. A deleted export
 * therefore stays allocated and marked until SPARE_EXPORTS others have been deleted after it. */
typedef struct export export;
struct export {
    union {
        dl_managed plain;
        dl_versioned versioned;
    } managed; /* first: deleters receive its address */
    fs_tensor tensor;
    bool alive;
    export *next; /* the next deleted export, the oldest first */
};

enum { SPARE_EXPORTS = 256 };

static struct {
    fs_lock lock; /* consumers may delete on any thread, without the GIL */
    export *first, *last;
    int count;
} spare;

static export *take_export(void)
{
    export *taken = NULL;
    fs_lock_take(&spare.lock);
    if (spare.count >= SPARE_EXPORTS) {
        taken = spare.first;
        spare.first = taken->next;
        spare.count--;
    }
    fs_lock_give(&spare.lock);
    if (taken == NULL) taken = malloc(sizeof *taken);
    if (taken != NULL) *taken = (export){.alive = true};
    return taken;
}

static void drop_export(export *exported)
{
    fs_lock_take(&spare.lock);
    bool alive = exported->alive;
    exported->alive = false;
    fs_lock_give(&spare.lock);
    if (!alive) return;
    fs_tensor_release(&exported->tensor);
    fs_lock_take(&spare.lock);
    exported->next = NULL;
    if (spare.count++ > 0) spare.last->next = exported;
    else spare.first = exported;
    spare.last = exported;
    fs_lock_give(&spare.lock);
}

static void delete_plain(dl_managed *managed)
{
    if (managed != NULL) drop_export((export *)(void *)managed);
}

static void delete_versioned(dl_versioned *managed)
{
    if (managed != NULL) drop_export((export *)(void *)managed);
}

static void capsule_dropped(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, plain_name)) {
        delete_plain(PyCapsule_GetPointer(capsule, plain_name));
    } else if (PyCapsule_IsValid(capsule, versioned_name)) {
        delete_versioned(PyCapsule_GetPointer(capsule, versioned_name));
    }
}

static PyObject *make_capsule(const fs_tensor *tensor, bool versioned, bool copied)
{
    export *exported = take_export();
    if (exported == NULL) return PyErr_NoMemory();
    fs_tensor_share(&exported->tensor, tensor);
    bool read_only = tensor->storage->read_only;
    dl_tensor *tensor_view = versioned ? &exported->managed.versioned.tensor : &exported->managed.plain.tensor;
    *tensor_view = (dl_tensor){
        .data = tensor->data,
        .device = {tensor->device.kind == FS_CUDA ? DL_CUDA : DL_CPU, tensor->device.index},
        .ndim = tensor->ndim,
        .dtype = {(uint8_t)fs_dtypes[tensor->dtype].dl_code, (uint8_t)(8 * fs_dtypes[tensor->dtype].size), 1},
        .shape = exported->tensor.shape,
        .strides = exported->tensor.strides,
    };
    if (versioned) {
        exported->managed.versioned.version.major = DL_MAJOR;
        exported->managed.versioned.version.minor = DL_MINOR;
        exported->managed.versioned.flags = (read_only ? DL_READ_ONLY : 0) | (copied ? DL_COPIED : 0);
        exported->managed.versioned.context = exported;
        exported->managed.versioned.deleter = delete_versioned;
    } else {
        exported->managed.plain.context = exported;
        exported->managed.plain.deleter = delete_plain;
    }
    PyObject *capsule = PyCapsule_New(exported, versioned ? versioned_name : plain_name, capsule_dropped);
    if (capsule == NULL) drop_export(exported);
    return capsule;
}

/* The consumer will work on `stream`. flopscope works on the legacy default stream, which is ordered with all but
 * non-blocking streams. -1: the consumer synchronizes by itself. */
static bool hand_over(const fs_tensor *tensor, PyObject *stream)
{
    long wanted = stream == Py_None ? 1 : PyLong_AsLong(stream);
    if (wanted == -1 && PyErr_Occurred()) return false;
    if (tensor->device.kind != FS_CUDA || wanted == -1 || wanted == 1) return true;
    fs_error err;
    fs_status status = FS_WITHOUT_GIL(fs_backend_of(tensor->device)->synchronize(tensor->device, &err));
    if (status != FS_OK) fs_raise(&err);
    return status == FS_OK;
}

PyObject *fs_tensor_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    if (!fs_parse_arguments(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &version, &device, &copy)) {
        return NULL;
    }
    const fs_tensor *tensor = &((fs_tensor_object *)self)->tensor;
    int major = 0, minor = 0, type = 0, id = 0;
    if ((version != Py_None && !PyTuple_Check(version)) || (device != Py_None && !PyTuple_Check(device)))
        return PyErr_Format(PyExc_TypeError, "__dlpack__: max_version and dl_device must be pairs of integers");
    if (copy != Py_None && !PyBool_Check(copy))
        return PyErr_Format(PyExc_TypeError, "__dlpack__: copy must be True, False or None, not %R", copy);
    if (version != Py_None && !PyArg_ParseTuple(version, "ii", &major, &minor)) return NULL;
    if (device != Py_None) {
        if (!PyArg_ParseTuple(device, "ii", &type, &id)) return NULL;
        if (type != (tensor->device.kind == FS_CUDA ? DL_CUDA : DL_CPU) || id != tensor->device.index)
            return PyErr_Format(PyExc_BufferError, "the tensor is on %s; move it with x.to(device) before sharing it",
                                tensor->device.kind == FS_CUDA ? "CUDA" : "the CPU");
    }
    if (tensor->storage->read_only && major < 1 && copy != Py_True)
        return PyErr_Format(PyExc_BufferError,
                            "the tensor is read-only, which DLPack before 1.0 cannot express; share a copy");
    if (!hand_over(tensor, stream)) return NULL;
    if (copy != Py_True) return make_capsule(tensor, major >= 1, false);
    fs_call call = {.op = fs_op_find("copy"), .in = {tensor}};
    PyObject *copied = fs_run_call(&call, NULL);
    if (copied == NULL) return NULL;
    PyObject *capsule = make_capsule(&((fs_tensor_object *)copied)->tensor, major >= 1, true);
    Py_DECREF(copied);
    return capsule;
}

PyObject *fs_tensor_dlpack_device(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const fs_tensor *tensor = &((fs_tensor_object *)self)->tensor;
    return Py_BuildValue("(ii)", tensor->device.kind == FS_CUDA ? DL_CUDA : DL_CPU, tensor->device.index);
}

/* Import -------------------------------------------------------------------------------------------------------- */

/* Foreign deleters may run Python code, so they need the GIL and no exception set. The last tensor of a memory may be
 * released on any thread, and while an exception propagates. */
#define CALL_DELETER(managed)                                          \
    do {                                                               \
        /* finalized: the owner can no longer be released */           \
        if ((managed)->deleter == NULL || !Py_IsInitialized()) return; \
        PyGILState_STATE gil = PyGILState_Ensure();                    \
        fs_pending pending = fs_pending_take();                        \
        (managed)->deleter(managed);                                   \
        fs_pending_put(pending);                                       \
        PyGILState_Release(gil);                                       \
    } while (0)

static void drop_plain(fs_storage *storage)
{
    dl_managed *managed = storage->owner;
    CALL_DELETER(managed);
}

static void drop_versioned(fs_storage *storage)
{
    dl_versioned *managed = storage->owner;
    CALL_DELETER(managed);
}

static fs_dtype dtype_of(const dl_tensor *source)
{
    for (fs_dtype dtype = 0; dtype < FS_DTYPE_COUNT; dtype++) {
        if (fs_dtypes[dtype].dl_code == source->dtype.code && 8 * fs_dtypes[dtype].size == source->dtype.bits &&
            source->dtype.lanes == 1)
            return dtype;
    }
    return FS_DTYPE_NONE;
}

static bool is_on_gpu(const dl_tensor *source)
{
    return source->device.type == DL_CUDA || source->device.type == DL_CUDA_MANAGED;
}

static bool check_device(const dl_tensor *source)
{
    if (source->device.type == DL_CPU || source->device.type == DL_CUDA_HOST) return true;
    if (!is_on_gpu(source))
        return fs_refuse(PyExc_ValueError,
                         "from_dlpack: the tensor is on DLPack's device type %d; supported are the CPU (1) "
                         "and CUDA (2)",
                         source->device.type);
    int count = 0;
    fs_error err;
    if (fs_cuda_device_count(&count, &err) != FS_OK) return fs_raise(&err) != NULL;
    if (source->device.id >= 0 && source->device.id < count) return true;
    return fs_refuse(PyExc_ValueError,
                     "from_dlpack: the tensor is on CUDA device %d, but the number of CUDA devices is %d",
                     source->device.id, count);
}

/* fs_tensor_foreign checks the sizes of the shape. Here only whether there are any elements. */
static bool is_empty(const dl_tensor *source)
{
    return FS_ANY(d, source->ndim, source->shape[d] == 0);
}

static bool check_data(const dl_tensor *source)
{
    const fs_dtype_row *dtype = &fs_dtypes[dtype_of(source)];
    uintptr_t address = (uintptr_t)source->data;
    if (is_empty(source)) return true;
    if (source->data == NULL) {
        PyErr_SetString(PyExc_BufferError, "from_dlpack: the tensor has elements, but its data pointer is NULL");
    } else if (source->byte_offset > UINTPTR_MAX - address) {
        PyErr_Format(PyExc_BufferError, "from_dlpack: byte_offset %llu reaches beyond the address space",
                     (unsigned long long)source->byte_offset);
    } else if ((address + source->byte_offset) % dtype->size != 0) {
        PyErr_Format(PyExc_BufferError,
                     "from_dlpack: the data of the %s tensor are not aligned: the address %p is not a multiple of %zu; "
                     "share a copy",
                     dtype->name, (void *)(address + source->byte_offset), dtype->size);
    } else {
        return true;
    }
    return false;
}

/* Check that the tensor can be imported; false with an exception set. */
static bool check_given(const dl_tensor *source)
{
    if (dtype_of(source) == FS_DTYPE_NONE)
        return fs_refuse(PyExc_TypeError, "from_dlpack: unsupported dtype: DLPack type code %d of %d bits and %d lanes",
                         source->dtype.code, source->dtype.bits, source->dtype.lanes);
    if (source->ndim < 0 || source->ndim > FS_MAX_DIMS)
        return fs_refuse(PyExc_ValueError, "from_dlpack: a tensor has at most %d dimensions, not %d", FS_MAX_DIMS,
                         source->ndim);
    if (source->ndim > 0 && source->shape == NULL)
        return fs_refuse(PyExc_BufferError, "from_dlpack: the tensor has %d dimensions, but its shape is NULL",
                         source->ndim);
    return check_device(source) && check_data(source);
}

static PyObject *take_tensor(const dl_tensor *source, bool read_only, void (*drop)(fs_storage *), void *owner)
{
    fs_error err;
    fs_tensor tensor;
    bool on_gpu = is_on_gpu(source);
    fs_device device = {on_gpu ? FS_CUDA : FS_CPU, on_gpu ? source->device.id : 0};
    void *data = (void *)((uintptr_t)source->data + source->byte_offset); /* may be invalid if there are no elements */
    fs_status status = fs_tensor_foreign(&tensor, dtype_of(source), device, source->ndim, source->shape,
                                         source->strides, data, read_only, drop, owner, &err);
    return status == FS_OK ? fs_wrap_tensor(&tensor) : fs_raise(&err);
}

static PyObject *take_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, versioned_name)) {
        dl_versioned *managed = PyCapsule_GetPointer(capsule, versioned_name);
        if (managed->version.major != DL_MAJOR)
            return PyErr_Format(PyExc_BufferError, "from_dlpack: DLPack %u.%u is not supported, only %d.x",
                                managed->version.major, managed->version.minor, DL_MAJOR);
        if (!check_given(&managed->tensor) || PyCapsule_SetName(capsule, "used_dltensor_versioned") < 0) return NULL;
        return take_tensor(&managed->tensor, managed->flags & DL_READ_ONLY, drop_versioned, managed);
    }
    if (!PyCapsule_IsValid(capsule, plain_name))
        return PyErr_Format(PyExc_ValueError, "from_dlpack: %R holds no tensor, or its tensor was already consumed",
                            capsule);
    dl_managed *managed = PyCapsule_GetPointer(capsule, plain_name);
    if (!check_given(&managed->tensor) || PyCapsule_SetName(capsule, "used_dltensor") < 0) return NULL;
    return take_tensor(&managed->tensor, false, drop_plain, managed);
}

/* Call obj.__dlpack__(stream=…, max_version=(1, 0)), or without max_version if the object does not accept it. */
static PyObject *ask_for_capsule(PyObject *object, bool on_gpu)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    PyObject *empty = PyTuple_New(0), *kwargs = Py_BuildValue("{s:(ii)}", "max_version", DL_MAJOR, DL_MINOR);
    PyObject *capsule = NULL, *stream = on_gpu ? PyLong_FromLong(1) : NULL;
    if (method == NULL || empty == NULL || kwargs == NULL) goto done;
    if (stream != NULL && PyDict_SetItemString(kwargs, "stream", stream) < 0) goto done;
    capsule = PyObject_Call(method, empty, kwargs);
    if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        if (PyDict_DelItemString(kwargs, "max_version") == 0) capsule = PyObject_Call(method, empty, kwargs);
    }
done:
    Py_XDECREF(method);
    Py_XDECREF(empty);
    Py_XDECREF(kwargs);
    Py_XDECREF(stream);
    return capsule;
}

static PyObject *from_dlpack(PyObject *Py_UNUSED(module), PyObject *object)
{
    if (PyCapsule_CheckExact(object)) return take_capsule(object);
    PyObject *where = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    if (where == NULL) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Format(PyExc_TypeError,
                         "from_dlpack: expected an object with __dlpack__, such as a tensor of torch, CuPy or JAX or "
                         "a NumPy array, not %.100s",
                         Py_TYPE(object)->tp_name);
        }
        return NULL;
    }
    PyObject *type = PySequence_GetItem(where, 0);
    long device = type ? PyLong_AsLong(type) : -1;
    Py_DECREF(where);
    Py_XDECREF(type);
    if (device == -1 && PyErr_Occurred()) return NULL;
    PyObject *capsule = ask_for_capsule(object, device == DL_CUDA || device == DL_CUDA_MANAGED);
    if (capsule == NULL) return NULL;
    PyObject *tensor = take_capsule(capsule);
    Py_DECREF(capsule);
    return tensor;
}

static PyMethodDef functions[] = {
    {"from_dlpack", from_dlpack, METH_O,
     "from_dlpack($module, object, /)\n--\n\nReturn a Tensor that shares the memory of another library's tensor "
     "(torch, "
     "CuPy, JAX, NumPy…).\n"
     "Records no event.\n\nRaises TypeError for an object without __dlpack__ or an unsupported dtype, ValueError for a "
     "device that\n"
     "is neither the CPU nor CUDA or an invalid shape or strides, BufferError for data that are NULL or not\n"
     "aligned."},
    {NULL, NULL, 0, NULL},
};

int fs_add_dlpack(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
