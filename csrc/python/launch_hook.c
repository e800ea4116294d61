/* LaunchHook: what Triton calls before and after each launch while something records.
 *
 *   metadata ─► Python's `work`, if the kernel states something or is new ─┐
 *           └─► the tensors of the launch, found in a frame above ─────────┴─► an op of the recorder, an event of torch
 *
 * A kernel that states nothing is launched often and quickly, so all that its launch needs is done here. Nothing here
 * raises into the program's launch but what is no Exception. The GIL guards all state; each thread has one launch. */
#include "python/launch_hook.h"

#include <math.h>
#include <string.h>

#include "store/launch_name.h"

#include <frameobject.h>
#include <structmember.h>

enum { MOST_FRAMES = 10, MOST_TENSORS = 64, MOST_NESTED = 8 };

/* What is known of a kernel, as a tuple: its name, the name of its launches, what it does with its pointers. */
enum { KERNEL_NAME, OP_NAME, USES, KNOWN_COUNT };

typedef struct {
    PyObject_HEAD
    PyObject *code;    /* of the function whose frame has the arguments; None: off */
    PyObject *kernels; /* dict by handle: tuples (str, str, bytes or None) */
    PyObject *work;    /* called with metadata: (name, flops, bytes, unit), or None */
    PyObject *failed;  /* called with metadata and an exception */
    PyObject *record;  /* makes an event of torch from a name; None: torch does not record */
} hook_object;

/* Names that are looked up at each launch. X(name) */
#define NAMES(X) \
    X(base)      \
    X(bound_args) X(data) X(data_ptr) X(extras) X(f_locals) X(function) X(is_contiguous) X(name) X(nbytes) X(stride)

static struct {
#define NAME(name) PyObject *name;
    NAMES(NAME)
#undef NAME
} names;

/* The launch of a thread. */
static _Thread_local struct {
    uint64_t token; /* 0: none */
    PyObject *event;
} open_launch;

/* Tensors ------------------------------------------------------------------------------------------------------- */

typedef struct {
    unsigned long long address;
    double bytes;
    unsigned use; /* FS_POINTER_… */
} memory;

typedef struct {
    const char *uses; /* of each pointer */
    Py_ssize_t use_count, used;
    memory found[MOST_TENSORS];
    int count;
} tensors;

static bool is_plain(PyObject *value)
{
    return PyLong_Check(value) || PyFloat_Check(value) || PyUnicode_Check(value) || value == Py_None;
}

/* Return an attribute, NULL without an exception if there is none. */
static PyObject *attribute(PyObject *of, PyObject *name)
{
    PyObject *found = PyObject_GetAttr(of, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    return found;
}

/* The bytes of a tensor without the repetitions that a stride of 0 makes; -1: unknown, or an exception. */
static double bytes_of(PyObject *tensor, PyObject *nbytes)
{
    double bytes = PyFloat_AsDouble(nbytes);
    PyObject *whole = PyErr_Occurred() ? NULL : PyObject_CallMethodNoArgs(tensor, names.is_contiguous);
    Py_XDECREF(whole);
    if (whole == Py_True) return bytes;
    PyObject *strides = whole == NULL ? NULL : PyObject_CallMethodNoArgs(tensor, names.stride), *shape = NULL;
    if (strides == NULL || !PyTuple_Check(strides)) goto failed;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(strides); i++) {
        if (PyLong_AsLongLong(PyTuple_GET_ITEM(strides, i)) != 0) continue;
        if (shape == NULL && (shape = PyObject_GetAttrString(tensor, "shape")) == NULL) goto failed;
        PyObject *length = PySequence_GetItem(shape, i);
        double times = length != NULL ? PyFloat_AsDouble(length) : -1;
        Py_XDECREF(length);
        if (times > 1) bytes /= times;
    }
    Py_DECREF(strides);
    Py_XDECREF(shape);
    return PyErr_Occurred() ? -1 : bytes;
failed:
    Py_XDECREF(strides);
    Py_XDECREF(shape);
    return -1;
}

/* Add a tensor, whose address is known; false if its size is unknown, or an exception is set. */
static bool add_tensor(tensors *to, PyObject *tensor)
{
    PyObject *nbytes = attribute(tensor, names.nbytes), *base = NULL;
    if (nbytes == NULL && !PyErr_Occurred() && (base = attribute(tensor, names.base)) != NULL) {
        tensor = base; /* a tensor read as one of another dtype */
        nbytes = attribute(tensor, names.nbytes);
    }
    double bytes = nbytes != NULL ? bytes_of(tensor, nbytes) : -1;
    PyObject *address = bytes >= 0 ? PyObject_CallMethodNoArgs(tensor, names.data_ptr) : NULL;
    unsigned long long at = address != NULL ? PyLong_AsUnsignedLongLong(address) : 0;
    Py_XDECREF(nbytes);
    Py_XDECREF(base);
    Py_XDECREF(address);
    if (PyErr_Occurred() || bytes < 0 || to->used == to->use_count) return false;
    unsigned use = (unsigned char)to->uses[to->used++];
    int i = 0;
    while (i < to->count && to->found[i].address != at) i++;
    if (i == MOST_TENSORS) return false;
    if (i == to->count) to->found[to->count++] = (memory){at, 0, 0};
    to->found[i].bytes = fmax(to->found[i].bytes, bytes);
    to->found[i].use |= use;
    return true;
}

/* Add what has memory in an argument: a tensor, that of a descriptor, or those of a tuple. */
static bool add_argument(tensors *to, PyObject *value, int depth)
{
    if (is_plain(value)) return true;
    if (PyTuple_Check(value)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++)
            if (depth == MOST_NESTED || !add_argument(to, PyTuple_GET_ITEM(value, i), depth + 1)) return false;
        return true;
    }
    if (PyObject_HasAttr(value, names.data_ptr)) return add_tensor(to, value);
    PyObject *base = attribute(value, names.base);
    bool added = base == NULL || !PyObject_HasAttr(base, names.data_ptr) || add_tensor(to, base);
    Py_XDECREF(base);
    return added && !PyErr_Occurred();
}

/* The most bytes that a kernel moves which reads and writes each of its tensors once at most; NaN: unknown, or an
 * exception is set. */
static double most_bytes(PyObject *uses, PyObject *arguments)
{
    tensors all = {.uses = PyBytes_AS_STRING(uses), .use_count = PyBytes_GET_SIZE(uses)};
    Py_ssize_t at = 0;
    PyObject *value;
    double total = 0;
    if (!PyDict_Check(arguments)) return NAN;
    while (PyDict_Next(arguments, &at, NULL, &value))
        if (!add_argument(&all, value, 0)) return NAN;
    if (all.used != all.use_count || all.used == 0) return NAN;
    for (int i = 0; i < all.count; i++) {
        bool read = (all.found[i].use & FS_POINTER_READ) != 0, written = (all.found[i].use & FS_POINTER_WRITTEN) != 0;
        total += all.found[i].bytes * (read + written);
    }
    return total;
}

/* Frames -------------------------------------------------------------------------------------------------------- */

/* A local variable of the innermost frame of that code; NULL without an exception if there is none near. */
static PyObject *variable_of(PyObject *code, PyObject *name)
{
    PyFrameObject *frame = PyEval_GetFrame();
    PyObject *found = NULL;
    Py_XINCREF(frame);
    for (int i = 0; frame != NULL && i < MOST_FRAMES; i++) {
        PyCodeObject *of = PyFrame_GetCode(frame);
        bool same = (PyObject *)of == code;
        Py_DECREF(of);
        if (same) {
#if PY_VERSION_HEX >= 0x030c0000
            found = PyFrame_GetVar(frame, name);
            if (found == NULL && PyErr_ExceptionMatches(PyExc_NameError)) PyErr_Clear();
#else
            PyObject *locals = PyObject_GetAttr((PyObject *)frame, names.f_locals);
            found = locals != NULL ? Py_XNewRef(PyDict_GetItemWithError(locals, name)) : NULL;
            Py_XDECREF(locals);
#endif
            break;
        }
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return found;
}

/* Launches ------------------------------------------------------------------------------------------------------ */

static void close_launch(void)
{
    PyObject *event = open_launch.event;
    open_launch.event = NULL;
    if (event != NULL) {
        PyObject *ended = PyObject_CallMethod(event, "__exit__", "OOO", Py_None, Py_None, Py_None);
        Py_XDECREF(ended);
        Py_DECREF(event);
    }
    if (open_launch.token != 0) fs_launch_end(open_launch.token);
    open_launch.token = 0;
}

static bool record_event(PyObject *record, const char *name, const fs_given_work *work)
{
    char text[FS_LAUNCH_NAME_BYTES];
    fs_launch_name_write(work, text, sizeof text);
    PyObject *full = PyUnicode_FromFormat("%s %s", name, text);
    PyObject *event = full != NULL ? PyObject_CallOneArg(record, full) : NULL;
    PyObject *begun = event != NULL ? PyObject_CallMethod(event, "__enter__", NULL) : NULL;
    Py_XDECREF(full);
    Py_XDECREF(begun);
    if (begun != NULL) open_launch.event = event;
    else Py_XDECREF(event);
    return begun != NULL;
}

static bool open_with(const hook_object *self, const char *name, const fs_given_work *work)
{
    if (isnan(work->flops) && isnan(work->bytes)) return true;
    fs_error err;
    if (fs_launch_begin(name, work, &open_launch.token, &err) != FS_OK) {
        fs_raise(&err);
        return false;
    }
    return self->record == Py_None || record_event(self->record, name, work);
}

static double number_or_nan(PyObject *value)
{
    return value == Py_None ? (double)NAN : PyFloat_AsDouble(value);
}

/* Let Python tell the work of a launch. Return 1 if it is known, 0 if not, -1 with an exception. */
static int open_by_python(const hook_object *self, PyObject *metadata)
{
    const char *name, *unit;
    PyObject *flops, *bytes, *found = PyObject_CallOneArg(self->work, metadata);
    if (found == NULL) return -1;
    int opened = found == Py_None ? 0 : -1;
    if (opened < 0 && PyArg_ParseTuple(found, "sOOz", &name, &flops, &bytes, &unit)) {
        fs_given_work work = {number_or_nan(flops), number_or_nan(bytes), "", FS_LAUNCH_STATED};
        if (unit != NULL) strncpy(work.unit, unit, sizeof work.unit - 1);
        if (!PyErr_Occurred() && open_with(self, name, &work)) opened = 1;
    }
    Py_DECREF(found);
    return opened;
}

/* The launch of a kernel that states no work. known: an entry of `kernels`. */
static bool open_by_tensors(const hook_object *self, PyObject *name, PyObject *known)
{
    PyObject *uses = PyTuple_GET_ITEM(known, USES);
    if (!PyBytes_Check(uses)) return true;
    bool renamed = PyUnicode_Compare(name, PyTuple_GET_ITEM(known, KERNEL_NAME)) != 0;
    const char *text = PyErr_Occurred() ? NULL : PyUnicode_AsUTF8(renamed ? name : PyTuple_GET_ITEM(known, OP_NAME));
    PyObject *arguments = text != NULL ? variable_of(self->code, names.bound_args) : NULL;
    if (arguments == NULL) return !PyErr_Occurred();
    fs_given_work work = {NAN, most_bytes(uses, arguments), "", FS_LAUNCH_AT_MOST};
    Py_DECREF(arguments);
    return !PyErr_Occurred() && open_with(self, text, &work);
}

/* What is known of a kernel by now; borrowed, NULL without an exception if nothing is. */
static PyObject *known_of(const hook_object *self, PyObject *data)
{
    PyObject *handle = PyDict_Check(data) ? PyDict_GetItemWithError(data, names.function) : NULL;
    PyObject *known = handle != NULL ? PyDict_GetItemWithError(self->kernels, handle) : NULL;
    return known != NULL && PyTuple_Check(known) && PyTuple_GET_SIZE(known) == KNOWN_COUNT ? known : NULL;
}

static bool open_launch_of(const hook_object *self, PyObject *metadata)
{
    PyObject *extras = PyObject_GetAttr(metadata, names.extras), *data, *known, *name;
    Py_ssize_t more = extras != NULL ? PyObject_Size(extras) : -1;
    Py_XDECREF(extras);
    if (more < 0 || (data = PyObject_GetAttr(metadata, names.data)) == NULL) return false;
    known = more == 0 ? known_of(self, data) : NULL;
    if (known == NULL) {
        Py_DECREF(data);
        int told = PyErr_Occurred() ? -1 : open_by_python(self, metadata);
        if (told != 0) return told > 0;
        if ((data = PyObject_GetAttr(metadata, names.data)) == NULL) return false;
        known = known_of(self, data);
    }
    bool opened = !PyErr_Occurred();
    if (known != NULL && (name = PyDict_GetItemWithError(data, names.name)) != NULL)
        opened = open_by_tensors(self, name, known);
    Py_DECREF(data);
    return opened;
}

/* Hand an Exception to Python; others go on. */
static PyObject *give_up(const hook_object *self, PyObject *metadata)
{
    PyObject *kind, *problem, *trace;
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
    PyErr_Fetch(&kind, &problem, &trace);
    PyErr_NormalizeException(&kind, &problem, &trace);
    PyObject *told = PyObject_CallFunctionObjArgs(self->failed, metadata, problem, NULL);
    Py_XDECREF(kind);
    Py_XDECREF(problem);
    Py_XDECREF(trace);
    return told;
}

static PyObject *hook_enter(PyObject *object, PyObject *metadata)
{
    const hook_object *self = (hook_object *)object;
    if (self->code == Py_None) Py_RETURN_NONE;
    close_launch(); /* of a launch that failed */
    PyErr_Clear();
    if (metadata != Py_None && !open_launch_of(self, metadata)) return give_up(self, metadata);
    Py_RETURN_NONE;
}

static PyObject *hook_exit(PyObject *object, PyObject *metadata)
{
    close_launch();
    if (PyErr_Occurred()) return give_up((hook_object *)object, metadata);
    Py_RETURN_NONE;
}

/* Life ---------------------------------------------------------------------------------------------------------- */

static int hook_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *arguments[] = {"kernels", "work", "failed", NULL};
    hook_object *self = (hook_object *)object;
    PyObject *kernels, *work, *failed;
    if (!fs_parse_arguments(args, kwargs, "O!OO:LaunchHook", arguments, &PyDict_Type, &kernels, &work, &failed))
        return -1;
    Py_XSETREF(self->kernels, Py_NewRef(kernels));
    Py_XSETREF(self->work, Py_NewRef(work));
    Py_XSETREF(self->failed, Py_NewRef(failed));
    Py_XSETREF(self->code, Py_NewRef(Py_None));
    Py_XSETREF(self->record, Py_NewRef(Py_None));
    return 0;
}

/* clang-format off */
#define HELD(X) X(self->code); X(self->kernels); X(self->work); X(self->failed); X(self->record);
/* clang-format on */

static int hook_traverse(PyObject *object, visitproc visit, void *arg)
{
    hook_object *self = (hook_object *)object;
    Py_VISIT(Py_TYPE(object));
    HELD(Py_VISIT)
    return 0;
}

static int hook_clear(PyObject *object)
{
    hook_object *self = (hook_object *)object;
    HELD(Py_CLEAR)
    return 0;
}

static void hook_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    hook_clear(object);
    fs_free_object(object);
}

static PyMethodDef methods[] = {
    {"enter", hook_enter, METH_O, "Begin a launch, given its metadata."},
    {"exit", hook_exit, METH_O, "End the launch of this thread."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"code", T_OBJECT, offsetof(hook_object, code), 0,
     "Code of the function whose frame has the arguments of a launch; None: record no launches."},
    {"record", T_OBJECT, offsetof(hook_object, record), 0, "Makes an event of torch from a name; None: no events."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, hook_init},
    {Py_tp_dealloc, hook_dealloc},
    {Py_tp_traverse, hook_traverse},
    {Py_tp_clear, hook_clear},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, "LaunchHook(kernels, work, failed)\n--\n\nThe hooks of Triton's launches while something records."},
    {0, NULL},
};

int fs_add_launch_hook(PyObject *module)
{
    static PyTypeObject *type;
#define INTERN(name) \
    if (names.name == NULL && (names.name = PyUnicode_InternFromString(#name)) == NULL) return -1;
    NAMES(INTERN)
#undef INTERN
    return fs_add_type(module, &type,
                       FS_TYPE_SPEC("flopscope._core.LaunchHook", hook_object, Py_TPFLAGS_HAVE_GC, slots));
}
