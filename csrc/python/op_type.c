/* Op: a row of the op table as a Python callable. Vector call arguments are converted directly to an fs_call. */
#include "python/core.h"

#include <stddef.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    const fs_op *op;
} op_object;

enum { MAX_PARAMETERS = 6 };

/* The parameters of each form in order, as FS_FORM_LIST declares them; those after "*" are keyword-only. */
typedef struct {
    PyObject *names[MAX_PARAMETERS]; /* interned */
    int count, positional;
} parameters;

static parameters form_parameters[FS_FORM_COUNT];
static const char *const form_signatures[FS_FORM_COUNT] = {
#define FORM_SIGNATURE(NAME, text_signature) text_signature,
    FS_FORM_LIST(FORM_SIGNATURE)
#undef FORM_SIGNATURE
};

/* Parse "(x, axis=None, *, out=None)". */
static int read_parameters(const char *text, parameters *result)
{
    result->count = 0;
    result->positional = -1;
    for (const char *at = text + 1; *at != 0 && *at != ')';) {
        size_t length = strcspn(at, ",=)");
        if (*at == '*') {
            result->positional = result->count;
        } else {
            PyObject *name = PyUnicode_FromStringAndSize(at, (Py_ssize_t)length);
            if (name == NULL) return -1;
            PyUnicode_InternInPlace(&name);
            result->names[result->count++] = name;
        }
        at += strcspn(at, ",)");
        at += strspn(at, ", ");
    }
    if (result->positional < 0) result->positional = result->count;
    return 0;
}

static void refuse_keyword(const fs_op *op, PyObject *name)
{
    PyObject *hint = fs_did_you_mean(name, form_parameters[op->form].names, form_parameters[op->form].count);
    if (hint != NULL)
        PyErr_Format(PyExc_TypeError, "%s%s has no argument %R%U", op->name, form_signatures[op->form], name, hint);
    Py_XDECREF(hint);
}

/* Sort the vector call's arguments by parameter. Missing ones are NULL. */
static bool sort_arguments(const fs_op *op, PyObject *const *args, size_t nargsf, PyObject *keywords,
                           PyObject *values[MAX_PARAMETERS])
{
    const parameters *wanted = &form_parameters[op->form];
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    if (count > wanted->positional) {
        bool shape = PyUnicode_CompareWithASCIIString(wanted->names[0], "shape") == 0;
        return fs_refuse(PyExc_TypeError, "%s%s takes at most %d positional argument%s, not %zd%s", op->name,
                         form_signatures[op->form], wanted->positional, wanted->positional == 1 ? "" : "s", count,
                         shape ? "; a shape is one tuple, such as (1024, 1024)" : "");
    }
    for (Py_ssize_t i = 0; i < count; i++) values[i] = args[i];
    for (Py_ssize_t i = count; i < wanted->count; i++) values[i] = NULL;
    Py_ssize_t named = keywords ? PyTuple_GET_SIZE(keywords) : 0;
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *name = PyTuple_GET_ITEM(keywords, k);
        int at = 0;
        while (at < wanted->count && PyUnicode_Compare(wanted->names[at], name) != 0) at++;
        if (at == wanted->count) return refuse_keyword(op, name), false;
        if (values[at] != NULL)
            return fs_refuse(PyExc_TypeError, "%s%s got multiple values for %R", op->name, form_signatures[op->form],
                             name);
        values[at] = args[count + k];
    }
    return true;
}

static bool missing(const fs_op *op, PyObject *const *values, int required)
{
    for (int i = 0; i < required; i++) {
        if (values[i] != NULL) continue;
        PyErr_Format(PyExc_TypeError, "%s%s is missing its argument '%U'", op->name, form_signatures[op->form],
                     form_parameters[op->form].names[i]);
        return true;
    }
    return false;
}

/* Return the name of an object's type with its module, such as "torch.Tensor"; without it for Python's own types. */
static PyObject *type_name(PyObject *object)
{
    const char *name = Py_TYPE(object)->tp_name;
    PyObject *module = strchr(name, '.') ? NULL : PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__module__");
    if (module == NULL || !PyUnicode_Check(module) || PyUnicode_CompareWithASCIIString(module, "builtins") == 0) {
        PyErr_Clear();
        Py_XDECREF(module);
        return PyUnicode_FromString(name);
    }
    PyObject *whole = PyUnicode_FromFormat("%U.%s", module, name);
    Py_DECREF(module);
    return whole;
}

static bool take_tensor(const fs_op *op, PyObject *object, const fs_tensor **tensor)
{
    if (fs_is_tensor(object)) {
        *tensor = &((fs_tensor_object *)object)->tensor;
        return true;
    }
    PyObject *type = type_name(object);
    if (type != NULL) {
        PyErr_Format(PyExc_TypeError,
                     "%s: expected a flopscope Tensor, not %U; use fs.from_numpy(array) or "
                     "fs.from_dlpack(tensor)",
                     op->name, type);
        Py_DECREF(type);
    }
    return false;
}

static bool take_optional_tensor(const fs_op *op, PyObject *object, const fs_tensor **tensor)
{
    return object == NULL || object == Py_None || take_tensor(op, object, tensor);
}

static bool take_number(const fs_op *op, PyObject *object, double *number)
{
    *number = PyFloat_AsDouble(object);
    if (*number != -1.0 || !PyErr_Occurred()) return true;
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Format(PyExc_TypeError, "%s: expected a number, not %.100s", op->name, Py_TYPE(object)->tp_name);
    }
    return false;
}

static bool take_flag(PyObject *object, bool *flag)
{
    int truth = object == NULL ? 0 : PyObject_IsTrue(object);
    *flag = truth > 0;
    return truth >= 0;
}

/* Accept any object with __float__() that is not an array. NumPy's scalars report no axes. */
static bool is_number(PyObject *object)
{
    if (PyFloat_Check(object) || PyLong_Check(object)) return true;
    const PyNumberMethods *methods = Py_TYPE(object)->tp_as_number;
    if (methods == NULL || (methods->nb_float == NULL && methods->nb_index == NULL)) return false;
    PyObject *axes = PyObject_GetAttrString(object, "ndim");
    bool is_array = axes != NULL && !(PyLong_Check(axes) && PyLong_AsLong(axes) == 0);
    Py_XDECREF(axes);
    PyErr_Clear();
    return !is_array;
}

static bool take_operand(fs_call *call, int place, PyObject *object)
{
    if (fs_is_tensor(object)) return take_tensor(call->op, object, &call->in[place]);
    if (is_number(object)) {
        call->is_scalar[place] = true;
        return take_number(call->op, object, &call->scalar[place]);
    }
    return take_tensor(call->op, object, &call->in[place]);
}

/* `axis` must be the last one. None, if allowed, means all axes. */
static bool take_axis(fs_call *call, PyObject *object, bool none_allowed)
{
    const fs_tensor *x = call->in[0];
    if (none_allowed && (object == NULL || object == Py_None)) {
        call->over_everything = true;
        return true;
    }
    if (object == NULL) return true;
    Py_ssize_t axis = PyNumber_AsSsize_t(object, PyExc_ValueError);
    if (axis == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError) && !PyIndex_Check(object)) {
            PyErr_Format(PyExc_TypeError, "%s: the axis must be an integer, not %.100s", call->op->name,
                         Py_TYPE(object)->tp_name);
        }
        return false;
    }
    if (axis == -1 || axis == x->ndim - 1) return true;
    return fs_refuse(PyExc_ValueError,
                     "%s: axis %zd of %d axes is not the last one; only that%s is supported: "
                     "fs.transpose_copy(x) swaps the last two",
                     call->op->name, axis, x->ndim, none_allowed ? " (or None)" : "");
}

static bool take_out(fs_call *call, PyObject *object)
{
    return take_optional_tensor(call->op, object, &call->out);
}

/* One reader per form converts the arguments to a call. `values` is in the order of FS_FORM_LIST. */
static bool read_UNARY(fs_call *call, PyObject *const *values)
{
    return !missing(call->op, values, 1) && take_tensor(call->op, values[0], &call->in[0]) && take_out(call, values[1]);
}

static bool read_BINARY(fs_call *call, PyObject *const *values)
{
    return !missing(call->op, values, 2) && take_operand(call, 0, values[0]) && take_operand(call, 1, values[1]) &&
           take_out(call, values[2]);
}

static bool read_UNARY_IN_PLACE(fs_call *call, PyObject *const *values)
{
    return !missing(call->op, values, 1) && take_tensor(call->op, values[0], &call->in[0]);
}

static bool read_BINARY_IN_PLACE(fs_call *call, PyObject *const *values)
{
    return !missing(call->op, values, 2) && take_tensor(call->op, values[0], &call->in[0]) &&
           take_operand(call, 1, values[1]);
}

static bool read_REDUCE(fs_call *call, PyObject *const *values)
{
    return !missing(call->op, values, 1) && take_tensor(call->op, values[0], &call->in[0]) &&
           take_axis(call, values[1], true) && take_flag(values[2], &call->keepdims) && take_out(call, values[3]);
}

static bool read_VAR(fs_call *call, PyObject *const *values)
{
    call->correction = 1;
    PyObject *const reduction[] = {values[0], values[1], values[2], values[4]};
    return read_REDUCE(call, reduction) && (values[3] == NULL || take_number(call->op, values[3], &call->correction));
}

static bool read_SOFTMAX(fs_call *call, PyObject *const *values)
{
    return !missing(call->op, values, 1) && take_tensor(call->op, values[0], &call->in[0]) &&
           take_axis(call, values[1], false) && take_out(call, values[2]);
}

static bool read_norm(fs_call *call, PyObject *const *values, int tensors)
{
    call->eps = 1e-5;
    if (missing(call->op, values, 1) || !take_tensor(call->op, values[0], &call->in[0])) return false;
    for (int i = 1; i < tensors; i++) {
        if (!take_optional_tensor(call->op, values[i], &call->in[i])) return false;
    }
    if (values[tensors] != NULL && !take_number(call->op, values[tensors], &call->eps)) return false;
    return take_out(call, values[tensors + 1]);
}

static bool read_product(fs_call *call, PyObject *const *values, int tensors)
{
    if (missing(call->op, values, tensors)) return false;
    for (int i = 0; i < tensors; i++) {
        if (!take_tensor(call->op, values[i], &call->in[i])) return false;
    }
    /* Import NumPy, which provides the BLAS, before the product is timed. */
    if (call->in[0]->device.kind == FS_CPU && !fs_have_numpy()) return false;
    return take_flag(values[tensors], &call->allow_tf32) && take_out(call, values[tensors + 1]);
}

/* Forms that share a reader. */
#define SHARED_READER(NAME, call_of_reader)                         \
    static bool read_##NAME(fs_call *call, PyObject *const *values) \
    {                                                               \
        return call_of_reader;                                      \
    }
SHARED_READER(COPY, read_UNARY(call, values))
SHARED_READER(CUMSUM, read_SOFTMAX(call, values))
SHARED_READER(LAYER_NORM, read_norm(call, values, 3))
SHARED_READER(RMS_NORM, read_norm(call, values, 2))
SHARED_READER(MATMUL, read_product(call, values, 2))
SHARED_READER(ADDMM, read_product(call, values, 3))
#undef SHARED_READER

static bool read_CAST(fs_call *call, PyObject *const *values)
{
    return !missing(call->op, values, 2) && take_tensor(call->op, values[0], &call->in[0]) &&
           fs_parse_dtype(values[1], &call->dtype) && take_out(call, values[2]);
}

static bool read_COPY_IN_PLACE(fs_call *call, PyObject *const *values)
{
    return !missing(call->op, values, 2) && take_tensor(call->op, values[0], &call->in[0]) &&
           take_tensor(call->op, values[1], &call->in[1]);
}

/* shape …, dtype, device, out: `out` provides the defaults of the others. */
static bool read_creation(fs_call *call, PyObject *const *values, PyObject *const *keywords)
{
    if (!fs_parse_shape(values[0], &call->ndim, call->shape) || !take_out(call, keywords[2])) return false;
    call->dtype = call->out ? call->out->dtype : FS_FLOAT32;
    if (call->out) call->device = call->out->device;
    if (keywords[0] != NULL && !fs_parse_dtype(keywords[0], &call->dtype)) return false;
    return (call->out != NULL && keywords[1] == NULL) || fs_parse_device(keywords[1], &call->device);
}

static bool read_CREATE(fs_call *call, PyObject *const *values)
{
    return !missing(call->op, values, 1) && read_creation(call, values, values + 1);
}

static bool read_CREATE_FULL(fs_call *call, PyObject *const *values)
{
    call->is_scalar[1] = true;
    return !missing(call->op, values, 2) && take_number(call->op, values[1], &call->scalar[1]) &&
           read_creation(call, values, values + 2);
}

static bool read_FILL_IN_PLACE(fs_call *call, PyObject *const *values)
{
    call->is_scalar[1] = true;
    return !missing(call->op, values, 2) && take_tensor(call->op, values[0], &call->in[0]) &&
           take_number(call->op, values[1], &call->scalar[1]);
}

static bool read_RANDOM_IN_PLACE(fs_call *call, PyObject *const *values)
{
    call->is_scalar[1] = call->is_scalar[2] = true;
    return !missing(call->op, values, 3) && take_tensor(call->op, values[0], &call->in[0]) &&
           take_number(call->op, values[1], &call->scalar[1]) && take_number(call->op, values[2], &call->scalar[2]);
}

static bool (*const readers[FS_FORM_COUNT])(fs_call *, PyObject *const *) = {
#define FORM_READER(NAME, text_signature) [FS_FORM_##NAME] = read_##NAME,
    FS_FORM_LIST(FORM_READER)
#undef FORM_READER
};

static bool is_in_place(const fs_op *op)
{
    return op->name[strlen(op->name) - 1] == '_';
}

static PyObject *op_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *keywords)
{
    const fs_op *op = ((op_object *)self)->op;
    PyObject *values[MAX_PARAMETERS];
    fs_call call = {.op = op};
    if (!sort_arguments(op, args, nargsf, keywords, values) || !readers[op->form](&call, values)) return NULL;
    return fs_run_call(&call, is_in_place(op) ? values[0] : NULL);
}

static PyObject *op_repr(PyObject *self)
{
    const fs_op *op = ((op_object *)self)->op;
    return PyUnicode_FromFormat("<op flopscope.%s%s>", op->name, form_signatures[op->form]);
}

FS_GETTER(op_name, op_object, PyUnicode_FromString(self->op->name))

static PyObject *op_module(PyObject *Py_UNUSED(self), void *Py_UNUSED(unused))
{
    return PyUnicode_FromString("flopscope");
}

static const char *dtype_prose(const fs_op *op)
{
    switch (op->form) {
    case FS_FORM_COPY:
    case FS_FORM_CAST:
    case FS_FORM_COPY_IN_PLACE:
    case FS_FORM_FILL_IN_PLACE:
        return "Supports any dtype.";
    case FS_FORM_CREATE:
    case FS_FORM_CREATE_FULL:
        return "Allocated on the default device unless `device` is given.";
    case FS_FORM_MATMUL:
    case FS_FORM_ADDMM:
        return FS_PRODUCTS_TEXT;
    default:
        return "Supports float64, float32, float16 and bfloat16; all inputs must have the same dtype and device.";
    }
}

static PyObject *op_doc(PyObject *self, void *Py_UNUSED(unused))
{
    const fs_op *op = ((op_object *)self)->op;
    static const char *const rules[] = {[FS_FLOPS_NONE] = "0",
                                        [FS_FLOPS_PER_OUTPUT] = "1 per output element",
                                        [FS_FLOPS_PER_INPUT] = "%d per input element",
                                        [FS_FLOPS_MATMUL] = "2 m n k"};
    char flops[64];
    PyOS_snprintf(flops, sizeof flops, rules[op->flops], (int)op->flops_each);
    bool affine = op->form == FS_FORM_LAYER_NORM || op->form == FS_FORM_RMS_NORM;
    return PyUnicode_FromFormat("%s%s\n\n%s.\n\n%s FLOPs: %s%s.\nRaises TypeError, ValueError, MemoryError or "
                                "RuntimeError (from CUDA), naming the shapes, dtypes and devices.",
                                op->name, form_signatures[op->form], op->prose, dtype_prose(op), flops,
                                affine ? ", and 1 more for each of weight and bias" : "");
}

FS_GETTER(op_text_signature, op_object, PyUnicode_FromString(form_signatures[self->op->form]))

/* Return what inspect.signature returns for a function with the same parameters. */
static PyObject *op_signature(PyObject *self, void *Py_UNUSED(unused))
{
    const char *text = form_signatures[((op_object *)self)->op->form];
    PyObject *inspect = PyImport_ImportModule("inspect"), *names = inspect ? PyDict_New() : NULL, *result = NULL;
    PyObject *inner = names ? PyUnicode_FromStringAndSize(text + 1, (Py_ssize_t)strlen(text) - 2) : NULL;
    PyObject *code = inner ? PyUnicode_FromFormat("lambda %U: None", inner) : NULL;
    PyObject *twin = code ? PyRun_String(PyUnicode_AsUTF8(code), Py_eval_input, names, names) : NULL;
    if (twin != NULL) result = PyObject_CallMethod(inspect, "signature", "O", twin);
    Py_XDECREF(twin);
    Py_XDECREF(code);
    Py_XDECREF(inner);
    Py_XDECREF(names);
    Py_XDECREF(inspect);
    return result;
}

static PyObject *op_reduce(PyObject *self, PyObject *unused)
{
    (void)unused; /* pickled by name */
    return op_name(self, NULL);
}

static PyGetSetDef op_getset[] = {
    {"__name__", op_name, NULL, NULL, NULL},
    {"__qualname__", op_name, NULL, NULL, NULL},
    {"__module__", op_module, NULL, NULL, NULL},
    {"__doc__", op_doc, NULL, NULL, NULL},
    {"__text_signature__", op_text_signature, NULL, NULL, NULL},
    {"__signature__", op_signature, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef op_methods[] = {
    {"__reduce__", op_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef op_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(op_object, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot op_slots[] = {
    {Py_tp_call, PyVectorcall_Call}, {Py_tp_repr, op_repr},       {Py_tp_getset, op_getset},
    {Py_tp_methods, op_methods},     {Py_tp_members, op_members}, {0, NULL},
};

PyObject *fs_call_binary(const fs_op *op, PyObject *a, PyObject *b)
{
    fs_call call = {.op = op};
    if (op->form == FS_FORM_MATMUL && !fs_have_numpy()) return NULL;
    bool scalars = op->form != FS_FORM_MATMUL;
    if (scalars ? !take_operand(&call, 0, a) || !take_operand(&call, 1, b)
                : !take_tensor(op, a, &call.in[0]) || !take_tensor(op, b, &call.in[1])) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return NULL;
        PyErr_Clear();
        Py_RETURN_NOTIMPLEMENTED;
    }
    return fs_run_call(&call, is_in_place(op) ? a : NULL);
}

PyObject *fs_call_unary(const fs_op *op, PyObject *x)
{
    fs_call call = {.op = op};
    return take_tensor(op, x, &call.in[0]) ? fs_run_call(&call, NULL) : NULL;
}

int fs_add_ops(PyObject *module)
{
    for (int form = 0; form < FS_FORM_COUNT; form++) {
        if (form_parameters[form].count > 0) continue;
        if (read_parameters(form_signatures[form], &form_parameters[form]) == 0) continue;
        form_parameters[form].count = 0; /* out of memory: the next import reads them again */
        return -1;
    }
    static PyTypeObject *type;
    unsigned flags = Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION;
    PyType_Spec *spec = FS_TYPE_SPEC("flopscope.Op", op_object, flags, op_slots);
    PyObject *names = PyList_New(0);
    int status = -1;
    if (names == NULL || fs_add_type(module, &type, spec) < 0) goto done;
    for (int i = 0; i < fs_op_count; i++) {
        op_object *object = PyObject_New(op_object, type);
        if (object == NULL) goto done;
        object->vectorcall = op_call;
        object->op = &fs_ops[i];
        int added = PyModule_AddObjectRef(module, fs_ops[i].name, (PyObject *)object);
        Py_DECREF(object);
        if (added < 0) goto done;
        if (!fs_append(names, PyUnicode_FromString(fs_ops[i].name))) goto done;
    }
    status = PyModule_AddObjectRef(module, "ops", names);
done:
    Py_XDECREF(names);
    return status;
}
