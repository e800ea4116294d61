/* Tensor: the Python type over fs_tensor. */
#include <string.h>

#include "python/core.h"

#define TENSOR(object) (&((fs_tensor_object *)(object))->tensor)

static void tensor_dealloc(PyObject *self)
{
    fs_tensor_release(TENSOR(self));
    fs_free_object(self);
}

/* Attributes ---------------------------------------------------------------------------------------------------- */

FS_GETTER(get_shape, fs_tensor_object, fs_integers_object(self->tensor.shape, self->tensor.ndim, 1))
FS_GETTER(get_strides, fs_tensor_object, fs_integers_object(self->tensor.strides, self->tensor.ndim, 1))
FS_GETTER(get_dtype, fs_tensor_object, PyUnicode_FromString(fs_dtypes[self->tensor.dtype].name))
FS_GETTER(get_device, fs_tensor_object, fs_device_object(self->tensor.device))
FS_GETTER(get_nbytes, fs_tensor_object, PyLong_FromSize_t(fs_tensor_nbytes(&self->tensor)))
FS_GETTER(get_size, fs_tensor_object, PyLong_FromLongLong(fs_tensor_count(&self->tensor)))
FS_GETTER(get_ndim, fs_tensor_object, PyLong_FromLong(self->tensor.ndim))
FS_GETTER(get_data, fs_tensor_object, PyLong_FromVoidPtr(self->tensor.data))

static PyObject *get_transposed(PyObject *self, void *Py_UNUSED(unused))
{
    fs_tensor view;
    fs_tensor_share(&view, TENSOR(self));
    for (int d = 0; d < view.ndim; d++) {
        view.shape[d] = TENSOR(self)->shape[view.ndim - 1 - d];
        view.strides[d] = TENSOR(self)->strides[view.ndim - 1 - d];
    }
    return fs_wrap_tensor(&view);
}

/* Version 3, https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html. Work is queued on the legacy
 * default stream, which the protocol numbers 1. */
static PyObject *get_cuda_array_interface(PyObject *self, void *Py_UNUSED(unused))
{
    const fs_tensor *tensor = TENSOR(self);
    static const char letters[] = {[FS_DL_INT] = 'i', [FS_DL_UINT] = 'u', [FS_DL_FLOAT] = 'f', [FS_DL_BOOL] = 'b'};
    const fs_dtype_row *dtype = &fs_dtypes[tensor->dtype];
    if (tensor->device.kind != FS_CUDA || dtype->format == NULL)
        return PyErr_Format(PyExc_AttributeError,
                            "a %s tensor on %s has no __cuda_array_interface__; share it through DLPack",
                            fs_dtypes[tensor->dtype].name, tensor->device.kind == FS_CUDA ? "CUDA" : "the CPU");
    PyObject *shape = fs_integers_object(tensor->shape, tensor->ndim, 1);
    PyObject *strides =
        shape ? fs_integers_object(tensor->strides, tensor->ndim, (int64_t)fs_dtypes[tensor->dtype].size) : NULL;
    if (strides == NULL) {
        Py_XDECREF(shape);
        return NULL;
    }
    char type[] = {dtype->size > 1 ? '<' : '|', letters[dtype->dl_code], (char)('0' + dtype->size), 0};
    unsigned long long address = fs_tensor_count(tensor) ? (unsigned long long)(uintptr_t)tensor->data : 0;
    return Py_BuildValue("{s:N,s:s,s:(KO),s:N,s:i,s:i}", "shape", shape, "typestr", type, "data", address,
                         tensor->storage->read_only ? Py_True : Py_False, "strides", strides, "version", 3, "stream",
                         1);
}

static PyGetSetDef tensor_getset[] = {
    {"shape", get_shape, NULL, "Sizes of the axes.", NULL},
    {"strides", get_strides, NULL, "Steps along the axes, in elements.", NULL},
    {"dtype", get_dtype, NULL, "Name of the element type: \"float32\".", NULL},
    {"device", get_device, NULL, "\"cpu\" or \"cuda:N\".", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of the elements.", NULL},
    {"size", get_size, NULL, "Number of elements.", NULL},
    {"ndim", get_ndim, NULL, "Number of axes.", NULL},
    {"data_ptr", get_data, NULL, "Address of the first element, on its device.", NULL},
    {"T", get_transposed, NULL, "A view with the axes reversed. Moves nothing.", NULL},
    {"__cuda_array_interface__", get_cuda_array_interface, NULL,
     "CUDA memory of the tensor, for other libraries (version 3).", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* Methods ------------------------------------------------------------------------------------------------------- */

static PyObject *tensor_numpy(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return fs_tensor_to_numpy(self, false);
}

static PyObject *tensor_array(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dtype", "copy", NULL};
    PyObject *dtype = Py_None, *copy = Py_None;
    if (!fs_parse_arguments(args, kwargs, "|OO:__array__", names, &dtype, &copy)) return NULL;
    const fs_tensor *tensor = TENSOR(self);
    bool must_copy = tensor->device.kind == FS_CUDA || fs_dtypes[tensor->dtype].format == NULL;
    if (copy == Py_False && must_copy) {
        char text[200];
        return PyErr_Format(PyExc_ValueError, "a %s cannot become a NumPy array without a copy",
                            fs_tensor_text(tensor, text, sizeof text));
    }
    if (dtype == Py_None) return fs_tensor_to_numpy(self, copy == Py_True);
    PyObject *array = fs_tensor_to_numpy(self, false);
    PyObject *astype = array ? PyObject_GetAttrString(array, "astype") : NULL;
    PyObject *arguments = astype ? PyTuple_Pack(1, dtype) : NULL;
    PyObject *named = arguments ? Py_BuildValue("{s:O}", "copy", copy == Py_True ? Py_True : Py_False) : NULL;
    PyObject *cast = named ? PyObject_Call(astype, arguments, named) : NULL;
    if (cast != NULL && cast != array && copy == Py_False) {
        PyErr_Format(PyExc_ValueError, "a %s tensor cannot become an array of %R without a copy",
                     fs_dtypes[tensor->dtype].name, dtype);
        Py_CLEAR(cast);
    }
    Py_XDECREF(named);
    Py_XDECREF(arguments);
    Py_XDECREF(astype);
    Py_XDECREF(array);
    return cast;
}

static PyObject *tensor_item(PyObject *self, PyObject *Py_UNUSED(unused))
{
    if (fs_tensor_count(TENSOR(self)) != 1) {
        char text[200];
        return PyErr_Format(PyExc_ValueError, "item() needs a tensor of one element, not a %s",
                            fs_tensor_text(TENSOR(self), text, sizeof text));
    }
    PyObject *array = fs_tensor_to_numpy(self, false);
    if (array == NULL) return NULL;
    PyObject *item = PyObject_CallMethod(array, "item", NULL);
    Py_DECREF(array);
    return item;
}

/* Run one step of to(): `call` on the tensor in *object, which the result replaces. */
static bool convert_step(PyObject **object, fs_call call)
{
    call.in[0] = TENSOR(*object);
    PyObject *next = fs_run_call(&call, NULL);
    Py_SETREF(*object, next);
    return next != NULL;
}

static PyObject *tensor_to(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"", "", "dtype", "device", NULL};
    PyObject *arguments[2] = {NULL, NULL}, *dtype_object = NULL, *device_object = NULL;
    if (!fs_parse_arguments(args, kwargs, "|OO$OO:to", names, &arguments[0], &arguments[1], &dtype_object,
                            &device_object))
        return NULL;
    for (int i = 0; i < 2; i++) {
        if (arguments[i] == NULL) continue;
        const char *text = PyUnicode_Check(arguments[i]) ? PyUnicode_AsUTF8(arguments[i]) : "";
        if (text == NULL) return NULL;
        bool is_device = strcmp(text, "cpu") == 0 || strncmp(text, "cuda", 4) == 0;
        PyObject **place = is_device ? &device_object : &dtype_object;
        if (*place != NULL)
            return PyErr_Format(PyExc_TypeError, "to() got multiple values for the %s: %R and %R",
                                is_device ? "device" : "dtype", *place, arguments[i]);
        *place = arguments[i];
    }
    fs_dtype dtype = TENSOR(self)->dtype;
    fs_device device = TENSOR(self)->device;
    if (dtype_object != NULL && !fs_parse_dtype(dtype_object, &dtype)) return NULL;
    if (device_object != NULL && !fs_parse_device(device_object, &device)) return NULL;
    bool casts = dtype != TENSOR(self)->dtype, moves = !fs_device_equal(device, TENSOR(self)->device);
    bool widens = fs_dtypes[dtype].size > fs_dtypes[TENSOR(self)->dtype].size;
    PyObject *object = Py_NewRef(self);
    fs_call cast = {.op = fs_op_find("cast"), .dtype = dtype};
    fs_call move = {.op = fs_op_find("copy"), .device = device, .to_device = true};
    /* Copy in the narrower dtype. */
    if (casts && !(moves && widens) && !convert_step(&object, cast)) return NULL;
    if (moves && !convert_step(&object, move)) return NULL;
    if (casts && moves && widens && !convert_step(&object, cast)) return NULL;
    return object;
}

static PyMethodDef tensor_methods[] = {
    {"numpy", tensor_numpy, METH_NOARGS,
     "numpy($self)\n--\n\nReturn the elements as a NumPy array, which on the CPU shares the tensor's memory and from "
     "CUDA is a copy.\n"
     "bfloat16 and float8, which NumPy lacks, widen to float32."},
    {"item", tensor_item, METH_NOARGS,
     "item($self)\n--\n\nReturn the only element as a Python number. Raise ValueError for any other number of "
     "elements."},
    {"to", (PyCFunction)(void (*)(void))tensor_to, METH_VARARGS | METH_KEYWORDS,
     "to($self, *dtype_or_device, dtype=None, device=None)\n--\n\nReturn the tensor in that dtype and on that device, "
     "or itself if\n"
     "nothing changes. Runs `cast`, `copy` (between devices), or both."},
    {"__array__", (PyCFunction)(void (*)(void))tensor_array, METH_VARARGS | METH_KEYWORDS,
     "Implement NumPy's array protocol."},
    {"__dlpack__", (PyCFunction)(void (*)(void))fs_tensor_dlpack, METH_VARARGS | METH_KEYWORDS,
     "Implement the DLPack protocol."},
    {"__dlpack_device__", fs_tensor_dlpack_device, METH_NOARGS, "Return the DLPack device type and number."},
    {NULL, NULL, 0, NULL},
};

static PyObject *tensor_repr(PyObject *self)
{
    enum { SHOWN = 1000 };
    char text[200];
    fs_tensor_text(TENSOR(self), text, sizeof text);
    if (fs_tensor_count(TENSOR(self)) > SHOWN) return PyUnicode_FromFormat("tensor(%s)", text);
    PyObject *array = fs_tensor_to_numpy(self, false);
    PyObject *values = array ? PyObject_Str(array) : NULL;
    PyObject *repr = values ? PyUnicode_FromFormat("tensor(%s)\n%U", text, values) : NULL;
    Py_XDECREF(array);
    Py_XDECREF(values);
    return repr;
}

static Py_ssize_t tensor_length(PyObject *self)
{
    if (TENSOR(self)->ndim > 0) return TENSOR(self)->shape[0];
    PyErr_SetString(PyExc_TypeError, "a tensor without axes has no len()");
    return -1;
}

static int tensor_bool(PyObject *self)
{
    PyObject *item = tensor_item(self, NULL);
    int truth = item ? PyObject_IsTrue(item) : -1;
    Py_XDECREF(item);
    return truth;
}

static PyObject *tensor_float(PyObject *self)
{
    PyObject *item = tensor_item(self, NULL);
    PyObject *number = item ? PyNumber_Float(item) : NULL;
    Py_XDECREF(item);
    return number;
}

/* Operators: X(slot, op) */
/* clang-format off */
#define BINARY_OPERATORS(X)           \
    X(nb_add, "add")                  \
    X(nb_subtract, "sub")             \
    X(nb_multiply, "mul")             \
    X(nb_true_divide, "div")          \
    X(nb_matrix_multiply, "matmul")   \
    X(nb_inplace_add, "add_")         \
    X(nb_inplace_subtract, "sub_")    \
    X(nb_inplace_multiply, "mul_")    \
    X(nb_inplace_true_divide, "div_")
/* clang-format on */
#define BINARY_OPERATOR(slot, name)                            \
    static PyObject *operator_##slot(PyObject *a, PyObject *b) \
    {                                                          \
        return fs_call_binary(fs_op_find(name), a, b);         \
    }
BINARY_OPERATORS(BINARY_OPERATOR)

static PyObject *operator_nb_power(PyObject *a, PyObject *b, PyObject *modulus)
{
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return fs_call_binary(fs_op_find("pow"), a, b);
}

static PyObject *operator_nb_inplace_power(PyObject *a, PyObject *b, PyObject *modulus)
{
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return fs_call_binary(fs_op_find("pow_"), a, b);
}

static PyObject *operator_nb_negative(PyObject *x)
{
    return fs_call_unary(fs_op_find("neg"), x);
}

static PyObject *operator_nb_absolute(PyObject *x)
{
    return fs_call_unary(fs_op_find("abs"), x);
}

/* Buffer protocol ----------------------------------------------------------------------------------------------- */

static bool is_fortran_order(const fs_tensor *tensor)
{
    fs_tensor reversed = *tensor;
    for (int d = 0; d < tensor->ndim; d++) {
        reversed.shape[d] = tensor->shape[tensor->ndim - 1 - d];
        reversed.strides[d] = tensor->strides[tensor->ndim - 1 - d];
    }
    return fs_tensor_is_dense(&reversed);
}

/* Whether the tensor's layout satisfies the flags. */
static bool is_laid_out(const fs_tensor *tensor, int flags)
{
    bool c_order = (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS || (flags & PyBUF_STRIDES) != PyBUF_STRIDES;
    if (c_order) return fs_tensor_is_dense(tensor);
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS) return is_fortran_order(tensor);
    if ((flags & PyBUF_ANY_CONTIGUOUS) != PyBUF_ANY_CONTIGUOUS) return true;
    return fs_tensor_is_dense(tensor) || is_fortran_order(tensor);
}

static int tensor_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    const fs_tensor *tensor = TENSOR(self);
    view->obj = NULL;
    const char *problem = NULL;
    char lacks[80];
    if (tensor->device.kind != FS_CPU) problem = "its memory is on a GPU; x.to(\"cpu\") copies it";
    else if (fs_dtypes[tensor->dtype].format == NULL) {
        snprintf(lacks, sizeof lacks, "the buffer protocol has no %s; x.to(\"float32\") widens it",
                 fs_dtypes[tensor->dtype].name);
        problem = lacks;
    } else if ((flags & PyBUF_WRITABLE) && tensor->storage->read_only) problem = "its memory is read-only";
    else if (!is_laid_out(tensor, flags)) problem = "it is not contiguous";
    if (problem != NULL) {
        char text[200];
        PyErr_Format(PyExc_BufferError, "a %s cannot provide this buffer: %s",
                     fs_tensor_text(tensor, text, sizeof text), problem);
        return -1;
    }
    Py_ssize_t *sizes = PyMem_Malloc(2 * FS_MAX_DIMS * sizeof *sizes), item = (Py_ssize_t)fs_dtypes[tensor->dtype].size;
    if (sizes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int d = 0; d < tensor->ndim; d++) {
        sizes[d] = tensor->shape[d];
        sizes[FS_MAX_DIMS + d] = tensor->strides[d] * item;
    }
    *view = (Py_buffer){
        .buf = tensor->data,
        .obj = Py_NewRef(self),
        .len = (Py_ssize_t)fs_tensor_nbytes(tensor),
        .itemsize = item,
        .readonly = tensor->storage->read_only,
        .ndim = tensor->ndim,
        .internal = sizes,
        .format = flags & PyBUF_FORMAT ? (char *)fs_dtypes[tensor->dtype].format : NULL,
        .shape = flags & PyBUF_ND ? sizes : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? sizes + FS_MAX_DIMS : NULL,
    };
    return 0;
}

static void tensor_release_buffer(PyObject *Py_UNUSED(self), Py_buffer *view)
{
    PyMem_Free(view->internal);
}

#define OPERATOR_SLOT(slot, name) {Py_##slot, operator_##slot},
static PyType_Slot tensor_slots[] = {
    {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_repr, tensor_repr},
    {Py_tp_getset, tensor_getset},
    {Py_tp_methods, tensor_methods},
    {Py_tp_doc, "A typed, strided view of memory on one device.\n\nCreated by empty, zeros, ones, full, rand, randn, "
                "from_numpy and from_dlpack."},
    {Py_sq_length, tensor_length},
    {Py_nb_bool, tensor_bool},
    {Py_nb_float, tensor_float},
    {Py_nb_power, operator_nb_power},
    {Py_nb_inplace_power, operator_nb_inplace_power},
    {Py_nb_negative, operator_nb_negative},
    {Py_nb_absolute, operator_nb_absolute},
    BINARY_OPERATORS(OPERATOR_SLOT){Py_bf_getbuffer, tensor_get_buffer},
    {Py_bf_releasebuffer, tensor_release_buffer},
    {0, NULL},
};

int fs_add_tensor(PyObject *module)
{
    unsigned flags = Py_TPFLAGS_DISALLOW_INSTANTIATION;
    PyType_Spec *spec = FS_TYPE_SPEC("flopscope.Tensor", fs_tensor_object, flags, tensor_slots);
    if (fs_add_type(module, &fs_tensor_type, spec) < 0) return -1;
    /* NumPy's scalars and arrays defer to Tensor's operators. */
    return PyObject_SetAttrString((PyObject *)fs_tensor_type, "__array_ufunc__", Py_None);
}
