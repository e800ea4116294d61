/* The work of torch's ops, for Python. */
#include <string.h>

#include "store/signature.h"
#include "python/roofline.h"
#include "store/torch_signature.h"
#include "work/aten/products.h"
#include "work/category.h"
#include "work/libraries/libraries.h"
#include "work/libraries/traffic.h"
#include "work/registered.h"
#include "work/work.h"

enum { MAX_NDIM = 64 };

/* Read a sequence of integers. Return their number, or -1 with an exception set. */
static int integers_of(PyObject *sequence, int64_t *values)
{
    Py_ssize_t count = PySequence_Size(sequence);
    if (count > MAX_NDIM)
        PyErr_Format(PyExc_ValueError, "%zd dimensions, but at most %d are supported", count, MAX_NDIM);
    if (count < 0 || count > MAX_NDIM) return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        values[i] = item != NULL ? PyLong_AsLongLong(item) : 0;
        Py_XDECREF(item);
        if (PyErr_Occurred()) return -1;
    }
    return (int)count;
}

/* Return an item of a sequence, None if the sequence is too short. A new reference. */
static PyObject *item_of(PyObject *sequence, Py_ssize_t index)
{
    if (sequence != Py_None && index < PySequence_Size(sequence)) return PySequence_GetItem(sequence, index);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static bool is_nested(PyObject *dims)
{
    if (!PyList_Check(dims) || PyList_GET_SIZE(dims) == 0) return false;
    return PyList_Check(PyList_GET_ITEM(dims, 0));
}

static bool add_tensor(fs_torch_builder *builder, fs_torch_dtype dtype, PyObject *dims, PyObject *strides)
{
    int64_t shape[MAX_NDIM], steps[MAX_NDIM];
    fs_error err;
    int ndim = integers_of(dims, shape), known = 0;
    if (ndim < 0 || (strides != Py_None && (known = integers_of(strides, steps)) < 0)) return false;
    fs_torch_tensor tensor = {(uint8_t)dtype, (uint32_t)ndim, shape, known == ndim ? steps : NULL};
    if (fs_torch_add_tensor(builder, &tensor, &err) == FS_OK) return true;
    fs_raise(&err);
    return false;
}

/* types: the dtype of each tensor, or a text: none is known. */
static bool add_list(fs_torch_builder *builder, PyObject *dims, PyObject *types, PyObject *strides)
{
    fs_error err;
    if (fs_torch_add_list(builder, &err) != FS_OK) return fs_raise(&err), false;
    for (Py_ssize_t i = 0; i < PySequence_Size(dims); i++) {
        PyObject *shape = PySequence_GetItem(dims, i), *steps = item_of(strides, i);
        const char *name =
            PyList_Check(types) && i < PyList_GET_SIZE(types) ? PyUnicode_AsUTF8(PyList_GET_ITEM(types, i)) : "";
        bool added = shape != NULL && steps != NULL && name != NULL &&
                     add_tensor(builder, fs_torch_dtype_find(name, strlen(name)), shape, steps);
        Py_XDECREF(shape);
        Py_XDECREF(steps);
        if (!added) return false;
    }
    fs_torch_end_list(builder);
    return !PyErr_Occurred(); /* the error of a length */
}

/* Read one argument as Kineto writes it. */
static bool add_argument(fs_torch_builder *builder, PyObject *dims, PyObject *type, PyObject *strides,
                         PyObject *concrete)
{
    if (PyList_Check(type)) return add_list(builder, dims, type, strides);
    const char *name = type == Py_None ? "" : PyUnicode_AsUTF8(type);
    const char *text = concrete == Py_None ? "" : PyUnicode_AsUTF8(concrete);
    fs_error err;
    if (name == NULL || text == NULL) return false;
    fs_torch_dtype dtype = fs_torch_dtype_find(name, strlen(name));
    if (is_nested(dims) || strcmp(name, "TensorList") == 0) return add_list(builder, dims, type, strides);
    Py_ssize_t ndim = PySequence_Size(dims);
    if (ndim < 0) return false;
    if (ndim > 0 || dtype != FS_TORCH_DTYPE_NONE) return add_tensor(builder, dtype, dims, strides);
    fs_torch_type scalar = strcmp(name, "ScalarList") == 0 || strncmp(name, "GenericList", strlen("GenericList")) == 0
                               ? FS_TORCH_SCALAR_LIST
                               : FS_TORCH_SCALAR;
    fs_status status = *name != 0 || *text != 0 ? fs_torch_add_text(builder, scalar, text, strlen(text), &err)
                                                : fs_torch_add_nothing(builder, &err);
    if (status != FS_OK) fs_raise(&err);
    return status == FS_OK;
}

static bool build(fs_torch_builder *builder, PyObject *dims, PyObject *types, PyObject *strides, PyObject *concrete)
{
    fs_error err;
    bool good = fs_torch_begin(builder, &err) == FS_OK;
    if (!good) fs_raise(&err);
    for (Py_ssize_t i = 0; good && i < PySequence_Size(dims); i++) {
        PyObject *items[] = {item_of(dims, i), item_of(types, i), item_of(strides, i), item_of(concrete, i)};
        good = items[0] != NULL && items[1] != NULL && items[2] != NULL && items[3] != NULL &&
               add_argument(builder, items[0], items[1], items[2], items[3]);
        for (int k = 0; k < 4; k++) Py_XDECREF(items[k]);
    }
    return good && !PyErr_Occurred();
}

static PyObject *work_of_torch(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *name;
    PyObject *dims, *types, *strides = Py_None, *concrete = Py_None, *result = NULL;
    fs_torch_builder builder = {NULL, 0, 0, 0};
    fs_torch_call call;
    int shortened = 0;
    if (!PyArg_ParseTuple(args, "sOO|OOp:_work_of_torch", &name, &dims, &types, &strides, &concrete, &shortened))
        return NULL;
    if (build(&builder, dims, types, strides, concrete)) {
        fs_torch_decode(builder.words, fs_torch_size(&builder), &call);
        call.shortened = shortened != 0;
        fs_work work = fs_work_of_torch(name, &call);
        result = Py_BuildValue("{s:d,s:d,s:d,s:d,s:N,s:d,s:d,s:N,s:N,s:z,s:N}", "flops", work.flops, "bytes_read",
                               work.bytes_read, "bytes_written", work.bytes_written, "bytes_moved", work.bytes_moved,
                               "of_launched", PyBool_FromLong(work.needs == FS_NEEDS_ELEMENTS), "list_elements",
                               work.list_elements, "item", work.item, "at_most", PyBool_FromLong(work.at_most), "unit",
                               fs_unit_object(work.unit.preferred), "expected", fs_work_expected(name, &call),
                               "has_rule", PyBool_FromLong(fs_work_has_rule(name)));
    }
    fs_torch_builder_clear(&builder);
    return result;
}

/* Rules from Python ------------------------------------------------------------------------------------------------ */

static PyObject *rule_of_python; /* called with (name, arguments, launch or None); returns three numbers and a unit
                                  * ("": none), or None; with (name, None, None), whether there is a rule */

/* (dtype, shape, strides or None) */
static PyObject *tensor_object(const fs_torch_tensor *tensor)
{
    return Py_BuildValue("(sNN)", fs_torch_dtypes[tensor->dtype].name,
                         fs_integers_object(tensor->shape, tensor->ndim, 1),
                         fs_integers_object(tensor->strides, tensor->ndim, 1));
}

/* Return the tuple of a tensor, a list of such tuples, the text of a scalar, or None. */
static PyObject *argument_object(const fs_torch_argument *argument)
{
    fs_torch_tensor tensor;
    const int64_t *at = argument->list;
    switch ((fs_torch_type)argument->type) {
    case FS_TORCH_TENSOR:
        return tensor_object(&argument->tensor);
    case FS_TORCH_TENSOR_LIST:
        return FS_LIST(i, argument->count, (fs_torch_next_tensor(&at, &tensor), tensor_object(&tensor)));
    case FS_TORCH_SCALAR:
    case FS_TORCH_SCALAR_LIST:
        return PyUnicode_DecodeUTF8(argument->text, (Py_ssize_t)strlen(argument->text), "replace");
    case FS_TORCH_NOTHING:
        break;
    }
    Py_RETURN_NONE;
}

PyObject *fs_torch_arguments_object(const fs_torch_call *call)
{
    return FS_LIST(i, call->count, argument_object(&call->arguments[i]));
}

/* (grid, block) */
static PyObject *launch_object(const fs_launch *launch)
{
    return Py_BuildValue("((III)(III))", launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0],
                         launch->block[1], launch->block[2]);
}

/* The Python side handles a rule's own exceptions. Any exception here ends the table: it is Ctrl-C or a bug in
 * flopscope. */
static bool ask_python(const char *name, const fs_torch_call *call, fs_work *work)
{
    bool known = false;
    PyGILState_STATE gil = PyGILState_Ensure();
    if (PyErr_Occurred()) { /* from an earlier call: the table ends soon */
        PyGILState_Release(gil);
        return false;
    }
    bool probe = call == NULL; /* only whether there is a rule */
    PyObject *rule = Py_XNewRef(rule_of_python), *arguments = NULL, *launch = NULL;
    if (rule != NULL) arguments = probe ? Py_NewRef(Py_None) : fs_torch_arguments_object(call);
    if (arguments != NULL) launch = probe || call->launch == NULL ? Py_NewRef(Py_None) : launch_object(call->launch);
    if (launch == NULL) Py_CLEAR(arguments);
    PyObject *text = arguments != NULL ? PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace") : NULL;
    PyObject *result = text != NULL ? PyObject_CallFunctionObjArgs(rule, text, arguments, launch, NULL) : NULL;
    if (result != NULL && probe) known = result == Py_True;
    if (result != NULL && result != Py_None && !probe) {
        const char *unit;
        known = PyArg_ParseTuple(result, "ddds", &work->flops, &work->bytes_read, &work->bytes_written, &unit);
        work->bytes_moved = work->bytes_read + work->bytes_written;
        if (known) work->unit.preferred = work->unit.fallback = fs_unit_find(unit);
        work->stated = true;
    }
    if (PyErr_Occurred() && !fs_interrupt_stop()) PyErr_WriteUnraisable(rule);
    Py_XDECREF(result);
    Py_XDECREF(text);
    Py_XDECREF(arguments);
    Py_XDECREF(launch);
    Py_XDECREF(rule);
    PyGILState_Release(gil);
    return known;
}

static PyObject *set_work_rule(PyObject *Py_UNUSED(module), PyObject *rule)
{
    Py_XSETREF(rule_of_python, rule == Py_None ? NULL : Py_NewRef(rule));
    fs_work_set_rule(rule == Py_None ? NULL : ask_python);
    Py_RETURN_NONE;
}

static PyObject *loader_of_python; /* called without arguments */

static void ask_loader(void)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *loader = PyErr_Occurred() ? NULL : Py_XNewRef(loader_of_python);
    PyObject *done = loader != NULL ? PyObject_CallNoArgs(loader) : NULL;
    if (PyErr_Occurred() && !fs_interrupt_stop()) PyErr_WriteUnraisable(loader);
    Py_XDECREF(done);
    Py_XDECREF(loader);
    PyGILState_Release(gil);
}

static PyObject *set_rule_loader(PyObject *Py_UNUSED(module), PyObject *loader)
{
    Py_XSETREF(loader_of_python, loader == Py_None ? NULL : Py_NewRef(loader));
    fs_work_set_loader(loader == Py_None ? NULL : ask_loader);
    Py_RETURN_NONE;
}

/* For tests of the rules, and for the documentation. */
static PyObject *library_rules(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    PyObject *list = PyList_New(0);
    for (const fs_aten_rule *row = fs_library_rules; list != NULL && row->name != NULL; row++) {
        fs_schema schema;
        bool sound = fs_schema_parse(row->arguments, &schema) && fs_schema_is_sound(&schema);
        if (!fs_append(list, Py_BuildValue("(ssO)", row->name, row->arguments, sound ? Py_True : Py_False)))
            Py_CLEAR(list);
    }
    return list;
}

/* Append the names of rows to a list; those of torch's ops with their namespace. */
static bool append_names(PyObject *list, const fs_aten_rule *rows)
{
    for (const fs_aten_rule *row = rows; row->name != NULL; row++) {
        PyObject *name = PyUnicode_FromFormat("%s%s", strchr(row->name, ':') == NULL ? "aten::" : "", row->name);
        if (!fs_append(list, name)) return false;
    }
    return true;
}

static PyObject *ruled_ops(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    PyObject *list = PyList_New(0);
    if (list != NULL && (!append_names(list, fs_aten_product_rules) || !append_names(list, fs_aten_element_rules) ||
                         !append_names(list, fs_library_rules)))
        Py_CLEAR(list);
    return list;
}

static PyObject *category_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *name;
    int on_device = 0;
    if (!PyArg_ParseTuple(args, "U|p:category_of", &name, &on_device)) return NULL;
    PyObject *bytes = PyUnicode_AsEncodedString(name, "utf-8", "replace"); /* hostile names have half pairs */
    if (bytes == NULL) return NULL;
    fs_category category = fs_category_of(PyBytes_AS_STRING(bytes), on_device);
    Py_DECREF(bytes);
    return PyUnicode_InternFromString(fs_categories[category].name);
}

static PyMethodDef functions[] = {
    {"category_of", category_of, METH_VARARGS,
     "category_of($module, name, on_device=False, /)\n--\n\nReturn the category of an op or a range or, on_device, of "
     "a kernel, copy or fill by its name: one of those in categories."},
    {"_library_rules", library_rules, METH_NOARGS,
     "_library_rules(): (name, argument list, whether it can be parsed) of each rule for an op of another library than "
     "torch."},
    {"_ruled_ops", ruled_ops, METH_NOARGS, "_ruled_ops(): the names of the ops that have a built-in rule."},
    {"_set_rule_loader", set_rule_loader, METH_O,
     "_set_rule_loader(loader): call loader() once, before the work of an op of another library is asked for."},
    {"_set_work_rule", set_work_rule, METH_O,
     "_set_work_rule(rule): call rule(name, arguments) before the built-in rules for the work of torch's ops. None: "
     "stop."},
    {"_work_of_torch", work_of_torch, METH_VARARGS,
     "_work_of_torch(name, dims, types, strides=None, concrete=None, shortened=False): return the work of one call. "
     "Arguments are as in Kineto; the type of a list of tensors may be a list of theirs."},
    {NULL, NULL, 0, NULL},
};

int fs_add_work(PyObject *module)
{
    if (fs_add_constant(module, "most_work", PyFloat_FromDouble(FS_MOST_WORK)) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
