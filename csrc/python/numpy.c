/* The only file that uses NumPy's C API: arrays to and from tensors, and NumPy's BLAS. NumPy is imported on first use,
 * as it would take most of the time of `import flopscope`. */
#include <string.h>

#include "base/memory.h"
#include "python/core.h"

#define NPY_NO_DEPRECATED_API NPY_1_21_API_VERSION
#define NPY_TARGET_VERSION NPY_1_21_API_VERSION
#include <numpy/arrayobject.h>

/* NumPy lacks the dtypes without a format. */
#define NPY_BFLOAT16 NPY_NOTYPE
#define NPY_FLOAT8_E4M3FN NPY_NOTYPE
#define NPY_FLOAT8_E5M2 NPY_NOTYPE
static const int type_numbers[FS_DTYPE_COUNT] = {
#define TYPE_NUMBER(NAME, ...) NPY_##NAME,
    FS_DTYPE_LIST(TYPE_NUMBER)
#undef TYPE_NUMBER
};

/* PyArray_ImportNumPyAPI() is not used: it prints the exception of the import, exits the process for SystemExit, and
 * replaces even a KeyboardInterrupt by ImportError. */
bool fs_have_numpy(void)
{
    return PyArray_API != NULL || _import_array() == 0;
}

static PyObject *array_over(PyObject *owner, const fs_tensor *tensor)
{
    npy_intp shape[FS_MAX_DIMS], strides[FS_MAX_DIMS];
    for (int d = 0; d < tensor->ndim; d++) {
        shape[d] = tensor->shape[d];
        strides[d] = tensor->strides[d] * (npy_intp)fs_dtypes[tensor->dtype].size;
    }
    int flags = tensor->storage->read_only ? 0 : NPY_ARRAY_WRITEABLE;
    PyObject *array = PyArray_New(&PyArray_Type, tensor->ndim, shape, type_numbers[tensor->dtype], strides,
                                  tensor->data, 0, flags, NULL);
    if (array == NULL) return NULL;
    PyArray_UpdateFlags((PyArrayObject *)array, NPY_ARRAY_UPDATE_ALL);
    if (PyArray_SetBaseObject((PyArrayObject *)array, Py_NewRef(owner)) == 0) return array;
    Py_DECREF(array);
    return NULL;
}

/* Return the tensor on the host in a dtype that NumPy has. A new reference, possibly to `object` itself. */
static PyObject *on_host(PyObject *object)
{
    const fs_tensor *tensor = &((fs_tensor_object *)object)->tensor;
    PyObject *method = PyUnicode_FromString("to");
    PyObject *dtype = PyUnicode_FromString(fs_dtypes[tensor->dtype].format ? fs_dtypes[tensor->dtype].name : "float32");
    PyObject *device = PyUnicode_FromString("cpu");
    PyObject *host = method && dtype && device ? PyObject_CallMethodObjArgs(object, method, dtype, device, NULL) : NULL;
    Py_XDECREF(method);
    Py_XDECREF(dtype);
    Py_XDECREF(device);
    if (host == NULL || fs_is_tensor(host)) return host;
    PyErr_Format(PyExc_TypeError, "Tensor.to() was overridden: it returned a %.100s, not a Tensor",
                 Py_TYPE(host)->tp_name);
    Py_DECREF(host);
    return NULL;
}

PyObject *fs_tensor_to_numpy(PyObject *object, bool copy)
{
    PyObject *host = fs_have_numpy() ? on_host(object) : NULL;
    if (host == NULL) return NULL;
    PyObject *array = array_over(host, &((fs_tensor_object *)host)->tensor);
    bool shared = host == object;
    Py_DECREF(host);
    if (array == NULL || !copy || !shared) return array;
    PyObject *copied = PyArray_NewCopy((PyArrayObject *)array, NPY_CORDER);
    Py_DECREF(array);
    return copied;
}

static fs_dtype dtype_of(PyArrayObject *array)
{
    PyArray_Descr *descr = PyArray_DESCR(array);
    if (!PyArray_ISNBO(descr->byteorder)) return FS_DTYPE_NONE;
    const char *dot = strrchr(descr->typeobj->tp_name, '.'); /* ml_dtypes.bfloat16 */
    const char *name = dot ? dot + 1 : descr->typeobj->tp_name;
    for (fs_dtype dtype = 0; dtype < FS_DTYPE_COUNT; dtype++) {
        if (type_numbers[dtype] == NPY_NOTYPE ? strcmp(name, fs_dtypes[dtype].name) == 0
                                              : PyArray_EquivTypenums(descr->type_num, type_numbers[dtype]))
            return dtype;
    }
    return FS_DTYPE_NONE;
}

static void drop_array(fs_storage *storage)
{
    if (!Py_IsInitialized()) return; /* finalized: the owner can no longer be released */
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)storage->owner);
    PyGILState_Release(gil);
}

/* Return a tensor that shares the array's memory. Steals a reference. */
static PyObject *share_array(PyArrayObject *array)
{
    fs_tensor tensor;
    fs_error err;
    int64_t shape[FS_MAX_DIMS], strides[FS_MAX_DIMS];
    fs_dtype dtype = dtype_of(array);
    int ndim = PyArray_NDIM(array);
    bool even = PyArray_ISALIGNED(array);
    for (int d = 0; d < ndim && ndim <= FS_MAX_DIMS; d++) {
        npy_intp step = PyArray_STRIDE(array, d), item = (npy_intp)PyArray_ITEMSIZE(array);
        even &= step % item == 0;
        shape[d] = PyArray_DIM(array, d);
        strides[d] = step / item;
    }
    if (dtype == FS_DTYPE_NONE || ndim > FS_MAX_DIMS || !even) {
        if (dtype == FS_DTYPE_NONE) {
            PyErr_Format(PyExc_TypeError, "from_numpy: unsupported dtype %R; supported are %s",
                         (PyObject *)PyArray_DESCR(array), fs_dtype_names);
        } else if (ndim > FS_MAX_DIMS) {
            PyErr_Format(PyExc_ValueError, "from_numpy: a tensor has at most %d dimensions, not %d", FS_MAX_DIMS, ndim);
        } else {
            PyErr_SetString(PyExc_ValueError, "from_numpy: the array's elements are not aligned; pass array.copy()");
        }
        Py_DECREF(array);
        return NULL;
    }
    fs_status status = fs_tensor_foreign(&tensor, dtype, (fs_device){.kind = FS_CPU}, ndim, shape, strides,
                                         PyArray_DATA(array), !PyArray_ISWRITEABLE(array), drop_array, array, &err);
    return status == FS_OK ? fs_wrap_tensor(&tensor) : fs_raise(&err);
}

/* Make a dense copy on a device, without an event. */
static PyObject *send(PyObject *host, fs_device device)
{
    const fs_tensor *tensor = &((fs_tensor_object *)host)->tensor;
    const fs_backend *backend = fs_backend_of(device);
    fs_tensor sent;
    fs_error err;
    if (fs_tensor_empty(&sent, tensor->dtype, device, tensor->ndim, tensor->shape, &err) != FS_OK)
        return fs_raise(&err);
    fs_status status =
        FS_WITHOUT_GIL(backend->from_host(device, sent.data, tensor->data, fs_tensor_nbytes(tensor), &err));
    if (status == FS_OK) return fs_wrap_tensor(&sent);
    fs_tensor_release(&sent);
    return fs_raise(&err);
}

static PyObject *from_numpy(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"array", "device", NULL};
    PyObject *object, *where = NULL;
    fs_device device = {.kind = FS_CPU};
    if (!fs_parse_arguments(args, kwargs, "O|O:from_numpy", names, &object, &where)) return NULL;
    if (where != NULL && where != Py_None && !fs_parse_device(where, &device)) return NULL;
    if (!fs_have_numpy()) return NULL;
    if (fs_is_tensor(object))
        return PyErr_Format(PyExc_TypeError,
                            "from_numpy: the argument is a flopscope Tensor already; x.to(device) moves it");
    PyArrayObject *array = (PyArrayObject *)PyArray_FROM_O(object);
    if (array == NULL) return NULL;
    if (device.kind != FS_CPU && !PyArray_IS_C_CONTIGUOUS(array)) {
        PyObject *dense = PyArray_NewCopy(array, NPY_CORDER);
        Py_DECREF(array);
        if (dense == NULL) return NULL;
        array = (PyArrayObject *)dense;
    }
    PyObject *host = share_array(array);
    if (host == NULL || device.kind == FS_CPU) return host;
    PyObject *sent = send(host, device);
    Py_DECREF(host);
    return sent;
}

/* Equal values are stored once, with a stride of 0: most columns of a large table hold a single value. */
static PyObject *array_of(int type, const void *values, Py_ssize_t count)
{
    if (!fs_have_numpy()) return NULL;
    const char *bytes = values;
    bool same = count > 1 && memcmp(bytes, bytes + 8, (size_t)(count - 1) * 8) == 0;
    npy_intp size = count, one = 1, stride = 0;
    PyObject *array = PyArray_SimpleNew(1, same ? &one : &size, type);
    if (array == NULL) return NULL;
    memcpy(PyArray_DATA((PyArrayObject *)array), values, (size_t)(same ? 1 : count) * 8);
    if (!same) return array;
    PyObject *view =
        PyArray_New(&PyArray_Type, 1, &size, type, &stride, PyArray_DATA((PyArrayObject *)array), 0, 0, NULL);
    if (view == NULL) Py_DECREF(array);
    else if (PyArray_SetBaseObject((PyArrayObject *)view, array) < 0) Py_CLEAR(view);
    return view;
}

PyObject *fs_array_of_doubles(const double *values, Py_ssize_t count)
{
    return array_of(NPY_FLOAT64, values, count);
}

PyObject *fs_array_of_int64(const int64_t *values, Py_ssize_t count)
{
    return array_of(NPY_INT64, values, count);
}

static void free_values(PyObject *owner)
{
    fs_free(PyCapsule_GetPointer(owner, NULL));
}

PyObject *fs_array_taking(void *values, Py_ssize_t count, fs_array_type type)
{
    static const int numbers[] = {NPY_INT64, NPY_UINT64, NPY_INT32, NPY_UINT32};
    PyObject *owner = PyCapsule_New(values, NULL, free_values), *array = NULL;
    if (owner == NULL) {
        fs_free(values);
        return NULL;
    }
    npy_intp shape = count;
    if (fs_have_numpy()) array = PyArray_SimpleNewFromData(1, &shape, numbers[type], values);
    if (array == NULL) {
        Py_DECREF(owner);
        return NULL;
    }
    if (PyArray_SetBaseObject((PyArrayObject *)array, owner) == 0) return array;
    Py_DECREF(array);
    return NULL;
}

/* BLAS ---------------------------------------------------------------------------------------------------------- */

/* Wrap a rows × columns matrix in foreign memory as an array. `transposed` swaps the strides. */
static PyObject *matrix(void *data, fs_dtype dtype, int64_t rows, int64_t columns, int64_t ld, bool transposed)
{
    npy_intp item = (npy_intp)fs_dtypes[dtype].size, shape[2] = {rows, columns};
    npy_intp strides[2] = {transposed ? item : ld * item, transposed ? ld * item : item};
    PyObject *array =
        PyArray_New(&PyArray_Type, 2, shape, type_numbers[dtype], strides, data, 0, NPY_ARRAY_WRITEABLE, NULL);
    if (array != NULL) PyArray_UpdateFlags((PyArrayObject *)array, NPY_ARRAY_UPDATE_ALL);
    return array;
}

static fs_status multiply(const fs_matmul *call, fs_error *err)
{
    fs_status status = FS_OK;
    PyGILState_STATE gil = PyGILState_Ensure();
    bool ready = fs_have_numpy();
    PyObject *a =
        !ready ? NULL : matrix((void *)call->a, call->dtype, call->m, call->k, call->a_ld, call->a_transposed);
    PyObject *b = !a ? NULL : matrix((void *)call->b, call->dtype, call->k, call->n, call->b_ld, call->b_transposed);
    PyObject *out = !b ? NULL : matrix(call->out, call->dtype, call->m, call->n, call->out_ld, false);
    PyObject *product = !out ? NULL : PyArray_MatrixProduct2(a, b, (PyArrayObject *)out);
    if (product == NULL) {
        status = fs_fail(err, PyErr_ExceptionMatches(PyExc_MemoryError) ? FS_OUT_OF_MEMORY : FS_RUNTIME_ERROR,
                         "NumPy's matrix product of %lld x %lld and %lld x %lld failed", (long long)call->m,
                         (long long)call->k, (long long)call->k, (long long)call->n);
        PyErr_Clear();
    }
    Py_XDECREF(product);
    Py_XDECREF(out);
    Py_XDECREF(b);
    Py_XDECREF(a);
    PyGILState_Release(gil);
    return status;
}

static PyMethodDef functions[] = {
    {"from_numpy", (PyCFunction)(void (*)(void))from_numpy, METH_VARARGS | METH_KEYWORDS,
     "from_numpy($module, array, device=\"cpu\")\n--\n\nReturn a Tensor of a NumPy array's elements. Other arguments "
     "are converted with np.asarray.\n\n"
     "On the CPU the tensor shares the array's memory, whatever its strides; a read-only array makes a read-only\n"
     "tensor. On CUDA the tensor is a dense copy. Records no event.\n\n"
     "Raises TypeError for an unsupported dtype, ValueError for more than 8 axes or unaligned elements."},
    {NULL, NULL, 0, NULL},
};

int fs_add_numpy(PyObject *module)
{
    fs_cpu_set_blas(multiply);
    return PyModule_AddFunctions(module, functions);
}
