/* The numbers of a table's column, without NumPy, whose import would take longer than making and printing a table. A
 * column never changes. Equal values are stored once, with a stride of 0: most columns of a large table hold a single
 * value. NumPy and pandas read a column through the buffer protocol, without a copy. */
#include <string.h>

#include "python/core.h"

typedef union {
    int64_t whole;
    double real;
} number;

typedef struct {
    PyObject_HEAD
    bool integers;
    Py_ssize_t count, stride; /* in bytes: 8, or 0 where all values are equal */
    number *values;
} numbers_object;

static PyTypeObject *numbers_type;

static numbers_object *empty_column(Py_ssize_t count, bool integers)
{
    numbers_object *self = PyObject_New(numbers_object, numbers_type);
    if (self == NULL) return NULL;
    self->integers = integers;
    self->count = count;
    self->stride = sizeof(number);
    self->values = PyMem_Malloc((size_t)(count ? count : 1) * sizeof(number));
    if (self->values != NULL) return self;
    Py_DECREF(self);
    PyErr_NoMemory();
    return NULL;
}

/* Keep one value if all are equal, bit by bit. */
static PyObject *shortened(numbers_object *self)
{
    Py_ssize_t rest = self->count - 1;
    if (rest > 0 && memcmp(self->values, self->values + 1, (size_t)rest * sizeof(number)) == 0) {
        number *one = PyMem_Realloc(self->values, sizeof(number));
        if (one != NULL) self->values = one;
        self->stride = 0;
    }
    return (PyObject *)self;
}

PyObject *fs_numbers_object(const void *values, Py_ssize_t count, bool integers)
{
    numbers_object *self = empty_column(count, integers);
    if (self == NULL) return NULL;
    memcpy(self->values, values, (size_t)count * sizeof(number));
    return shortened(self);
}

static number value_at(const numbers_object *self, Py_ssize_t index)
{
    return self->values[self->stride ? index : 0];
}

static PyObject *object_of(const numbers_object *self, Py_ssize_t index)
{
    number value = value_at(self, index);
    return self->integers ? PyLong_FromLongLong(value.whole) : PyFloat_FromDouble(value.real);
}

static Py_ssize_t length(PyObject *object)
{
    return ((numbers_object *)object)->count;
}

static PyObject *item(PyObject *object, Py_ssize_t index)
{
    const numbers_object *self = (numbers_object *)object;
    if (index >= 0 && index < self->count) return object_of(self, index);
    return PyErr_Format(PyExc_IndexError, "row %zd of a column of %zd", index, self->count);
}

static PyObject *tolist(PyObject *object, PyObject *Py_UNUSED(unused))
{
    const numbers_object *self = (numbers_object *)object;
    PyObject *list = PyList_New(self->count), *value = NULL;
    for (Py_ssize_t i = 0; list != NULL && i < self->count; i++) {
        if (self->stride == 0 && i > 0) Py_INCREF(value);
        else value = object_of(self, i);
        if (value == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, value);
    }
    return list;
}

static PyObject *chosen(PyObject *object, PyObject *rows)
{
    const numbers_object *self = (numbers_object *)object;
    PyObject *list = PySequence_Tuple(rows);
    numbers_object *found = list ? empty_column(PyTuple_GET_SIZE(list), self->integers) : NULL;
    for (Py_ssize_t i = 0; found != NULL && i < found->count; i++) {
        Py_ssize_t row = PyNumber_AsSsize_t(PyTuple_GET_ITEM(list, i), PyExc_IndexError);
        if (row < 0 && !PyErr_Occurred()) row += self->count;
        if (row >= 0 && row < self->count) {
            found->values[i] = value_at(self, row);
        } else {
            if (!PyErr_Occurred()) PyErr_Format(PyExc_IndexError, "row %zd of a column of %zd", row, self->count);
            Py_CLEAR(found);
        }
    }
    Py_XDECREF(list);
    return found != NULL ? shortened(found) : NULL;
}

static PyObject *reduce(PyObject *object, PyObject *unused)
{
    const numbers_object *self = (numbers_object *)object;
    return Py_BuildValue("O(NO)", numbers_type, tolist(object, unused), self->integers ? Py_True : Py_False);
}

static PyObject *new_numbers(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"values", "integers", NULL};
    PyObject *values;
    int integers;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!p:Numbers", names, &PyList_Type, &values, &integers)) return NULL;
    numbers_object *self = empty_column(PyList_GET_SIZE(values), integers);
    for (Py_ssize_t i = 0; self != NULL && i < self->count && i < PyList_GET_SIZE(values); i++) {
        PyObject *value = PyList_GET_ITEM(values, i);
        if (integers) self->values[i].whole = PyLong_AsLongLong(value);
        else self->values[i].real = PyFloat_AsDouble(value);
        if (PyErr_Occurred()) Py_CLEAR(self);
    }
    return self != NULL ? shortened(self) : NULL;
}

static int get_buffer(PyObject *object, Py_buffer *view, int flags)
{
    numbers_object *self = (numbers_object *)object;
    bool any_strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES &&
                       (flags & (PyBUF_C_CONTIGUOUS | PyBUF_F_CONTIGUOUS | PyBUF_ANY_CONTIGUOUS) & ~PyBUF_STRIDES) == 0;
    view->obj = NULL;
    if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE || (self->stride == 0 && self->count > 1 && !any_strides)) {
        PyErr_SetString(PyExc_BufferError, "a column is read-only, and not contiguous where its values are equal");
        return -1;
    }
    *view = (Py_buffer){.buf = self->values,
                        .obj = Py_NewRef(object),
                        .len = self->count * (Py_ssize_t)sizeof(number),
                        .itemsize = sizeof(number),
                        .readonly = 1,
                        .ndim = 1,
                        .format = flags & PyBUF_FORMAT ? (self->integers ? "l" : "d") : NULL,
                        .shape = flags & PyBUF_ND ? &self->count : NULL,
                        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? &self->stride : NULL};
    return 0;
}

static void dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyMem_Free(((numbers_object *)object)->values);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"tolist", tolist, METH_NOARGS, "Return the numbers as a list."},
    {"chosen", chosen, METH_O, "chosen($self, rows, /)\n--\n\nReturn the numbers of these rows, as a column."},
    {"__reduce__", reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Numbers(values, integers)\n--\n\nA column of int64 or float64, which never changes."},
    {Py_tp_new, new_numbers},
    {Py_tp_dealloc, dealloc},
    {Py_tp_methods, methods},
    {Py_sq_length, length},
    {Py_sq_item, item},
    {Py_bf_getbuffer, get_buffer},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "flopscope._core.Numbers",
    .basicsize = sizeof(numbers_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int fs_add_numbers(PyObject *module)
{
    return fs_add_type(module, &numbers_type, &spec);
}
