/* What only tests use. Events put into a Store from Python: no GPU is needed to tell a table or a trace what a GPU did.
 * And the tokens of the JSON scanner, and what is read where a frame is said to be. */
#include <string.h>

#include "python/stack_reader.h"
#include "python/store_object.h"
#include "sources/kineto/json_scan.h"
#include "store/collective.h"
#include "store/event.h"
#include "store/signature.h"

static bool kind_named(const char *name, uint8_t *kind)
{
    for (int i = 0; i < FS_EVENT_KIND_COUNT; i++) {
        if (strcmp(fs_event_kind_names[i], name) != 0) continue;
        *kind = (uint8_t)i;
        return true;
    }
    return fs_refuse(PyExc_ValueError, "no kind of event is called %s", name);
}

static uint32_t id_of(PyObject *value)
{
    return value == Py_None ? FS_NONE : (uint32_t)PyLong_AsUnsignedLong(value);
}

/* An event that encloses another, or that it ran for, came before it. */
static bool is_known(const fs_store *store, uint32_t index)
{
    if (index == FS_NONE || index < fs_store_count(store)) return true;
    return fs_refuse(PyExc_ValueError, "no event %u: the profile has %u", index, fs_store_count(store));
}

static bool is_device(int device, int least)
{
    if (device >= least && device < FS_DEVICE_LIMIT) return true;
    return fs_refuse(PyExc_ValueError, "no device %d: there may be %d", device, FS_DEVICE_LIMIT);
}

/* An unsigned number of a dict, 0 where it has none. */
static uint64_t number(PyObject *dict, const char *key)
{
    PyObject *value = PyDict_GetItemString(dict, key);
    return value == NULL ? 0 : PyLong_AsUnsignedLongLong(value);
}

static void three(PyObject *dict, const char *key, uint32_t *values)
{
    PyObject *list = PyDict_GetItemString(dict, key);
    if (list != NULL) PyArg_ParseTuple(list, "III", &values[0], &values[1], &values[2]);
}

static fs_collective_text text_of(PyObject *dict, const char *key)
{
    PyObject *value = PyDict_GetItemString(dict, key);
    Py_ssize_t size = 0;
    const char *text = value == NULL ? NULL : PyUnicode_AsUTF8AndSize(value, &size);
    return (fs_collective_text){text, (size_t)size};
}

static int64_t number_or_missing(PyObject *dict, const char *key)
{
    PyObject *value = PyDict_GetItemString(dict, key);
    return value == NULL ? FS_MISSING : PyLong_AsLongLong(value);
}

static fs_collective collective_of(PyObject *fields)
{
    fs_collective recorded = fs_collective_missing;
    recorded.in_elements = number_or_missing(fields, "in_elements");
    recorded.out_elements = number_or_missing(fields, "out_elements");
    recorded.sequence = number_or_missing(fields, "sequence");
    recorded.group_size = (int32_t)number(fields, "group_size");
#define TAKE_TEXT(name, longest, prose) recorded.name = text_of(fields, #name);
    FS_COLLECTIVE_TEXT_LIST(TAKE_TEXT)
#undef TAKE_TEXT
    return recorded;
}

static fs_status launch_id(fs_store *store, PyObject *fields, uint32_t *id, fs_error *err)
{
    _Alignas(8) char bytes[FS_LAUNCH_BYTES + FS_COLLECTIVE_MAX_BYTES];
    size_t size = FS_LAUNCH_BYTES;
    PyObject *recorded = PyDict_GetItemString(fields, "collective");
    fs_launch launch = {
        .registers = (uint32_t)number(fields, "registers"),
        .static_shared = (uint32_t)number(fields, "static_shared"),
        .dynamic_shared = (uint32_t)number(fields, "dynamic_shared"),
        .graph = (uint32_t)number(fields, "graph"),
        .graph_node = number(fields, "graph_node"),
        .context = (uint32_t)number(fields, "context"),
    };
    three(fields, "grid", launch.grid);
    three(fields, "block", launch.block);
    three(fields, "cluster", launch.cluster);
    fs_launch_encode(&launch, bytes);
    if (recorded != NULL) {
        fs_collective collective = collective_of(recorded);
        size = fs_collective_encode(&collective, bytes);
    }
    return fs_store_signature(store, bytes, size, id, err);
}

static PyObject *append(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"store",  "kind",   "name",   "start", "duration", "parent", "launcher", "correlation",
                            "thread", "device", "stream", "bytes", "launch",   "timing", NULL};
    PyObject *into;
    const char *kind, *name = NULL, *timing = NULL;
    PyObject *start = Py_None, *duration = Py_None, *parent = Py_None, *launcher = Py_None, *correlation = Py_None;
    PyObject *launch = Py_None;
    unsigned long long thread = 1, stream = 7;
    int device = -1;
    long long bytes = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!s|zOOOOOKiKLOz:_append", names, fs_store_type, &into, &kind,
                                     &name, &start, &duration, &parent, &launcher, &correlation, &thread, &device,
                                     &stream, &bytes, &launch, &timing))
        return NULL;
    fs_store_object *self = (fs_store_object *)into;
    fs_event event = fs_event_missing;
    fs_error err = {0};
    uint32_t index = FS_NONE;
    if (!kind_named(kind, &event.kind)) return NULL;
    if (start != Py_None) event.start = PyLong_AsLongLong(start);
    if (duration != Py_None) event.duration = PyLong_AsLongLong(duration);
    event.parent = id_of(parent);
    event.launcher = id_of(launcher);
    event.correlation = id_of(correlation);
    event.device = (int8_t)device;
    event.bytes = bytes;
    event.timing = device >= 0 ? FS_TIMING_CUPTI : FS_TIMING_CPU;
    for (int i = 0; timing != NULL && i < FS_TIMING_COUNT; i++)
        if (strcmp(fs_timing_names[i], timing) == 0) event.timing = (uint8_t)i;
    if (PyErr_Occurred() || !is_known(self->store, event.parent) || !is_known(self->store, event.launcher) ||
        !is_device(device, -1) || !fs_store_object_may_change(self))
        return NULL;

    bool on_device = device >= 0 && event.kind != FS_EVENT_MEMORY;
    fs_status status = on_device ? fs_store_device_lane(self->store, device, stream, &event.lane, &err)
                                 : fs_store_thread_lane_of(self->store, thread, &event.lane, &err);
    if (status == FS_OK && name != NULL) status = fs_store_name(self->store, name, &event.name, &err);
    if (status == FS_OK && launch != Py_None) status = launch_id(self->store, launch, &event.signature, &err);
    if (status == FS_OK) status = fs_store_append(self->store, &event, &index, &err);
    if (PyErr_Occurred()) return NULL;
    return status == FS_OK ? PyLong_FromUnsignedLong(index) : fs_raise(&err);
}

static PyObject *set_device(PyObject *Py_UNUSED(module), PyObject *args)
{
    fs_device_facts facts = fs_device_facts_missing;
    PyObject *into, *fields, *value;
    fs_error err;
    int device;
    if (!PyArg_ParseTuple(args, "O!iO!:_set_device", fs_store_type, &into, &device, &PyDict_Type, &fields)) return NULL;
    fs_store_object *self = (fs_store_object *)into;
    if (!is_device(device, 0) || !fs_store_object_may_change(self)) return NULL;
    value = PyDict_GetItemString(fields, "name");
    const char *text = value == NULL ? "" : PyUnicode_AsUTF8(value);
    if (text == NULL) return NULL;
    strncpy(facts.name, text, sizeof facts.name - 1);
#define TAKE_FACT(name, trace_name, prose) \
    if ((value = PyDict_GetItemString(fields, #name)) != NULL) facts.name = PyLong_AsLongLong(value);
    FS_DEVICE_FACT_LIST(TAKE_FACT)
#undef TAKE_FACT
    if (PyErr_Occurred()) return NULL;
    if (fs_store_set_device(self->store, device, &facts, &err) != FS_OK) return fs_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *set_window(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *into;
    long long begin, end;
    if (!PyArg_ParseTuple(args, "O!LL:_set_window", fs_store_type, &into, &begin, &end)) return NULL;
    if (!fs_store_object_may_change((fs_store_object *)into)) return NULL;
    fs_store_set_window(((fs_store_object *)into)->store, begin, end);
    Py_RETURN_NONE;
}

/* A text's tokens, and where and why they end. */
static PyObject *json_tokens(PyObject *Py_UNUSED(module), PyObject *bytes)
{
    static const char *const names[FS_SCAN_TOKEN_COUNT] = {
#define TOKEN_NAME(NAME, name) #name,
        FS_SCAN_TOKEN_LIST(TOKEN_NAME)
#undef TOKEN_NAME
    };
    char *text, *padded;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(bytes, &text, &size) < 0) return NULL;
    if ((padded = PyMem_Calloc(1, (size_t)size + 1 + FS_SCAN_PADDING)) == NULL) return PyErr_NoMemory();
    memcpy(padded, text, (size_t)size);
    padded[size] = '\n'; /* so that a number at the end is known to end */
    fs_scan_pull pull;
    fs_scan_token token;
    fs_scan_span span = {"", 0, false};
    fs_scan_status status;
    PyObject *tokens = PyList_New(0);
    fs_scan_pull_begin(&pull, padded, (size_t)size + 1);
    while (tokens != NULL && (status = fs_scan_next(&pull, &token, &span)) == FS_SCAN_GOOD) {
        char *plain = PyMem_Malloc(span.size + 1);
        bool has_text = token >= FS_SCAN_KEY;
        size_t length = 0;
        if (plain != NULL && has_text) length = fs_scan_unescape(&span, plain);
        PyObject *pair = plain == NULL
                             ? PyErr_NoMemory()
                             : Py_BuildValue("(sy#)", names[token], has_text ? plain : "", (Py_ssize_t)length);
        PyMem_Free(plain);
        if (pair == NULL || PyList_Append(tokens, pair) < 0) Py_CLEAR(tokens);
        Py_XDECREF(pair);
    }
    const char *expected = pull.scan.expected != NULL ? pull.scan.expected : "more";
    PyObject *result = tokens == NULL ? NULL
                                      : Py_BuildValue("(Nsns)", tokens, status == FS_SCAN_MORE ? "more" : "bad",
                                                      (Py_ssize_t)(pull.scan.at - padded), expected);
    PyMem_Free(padded);
    return result;
}

static PyObject *stack_depth(PyObject *module, PyObject *address)
{
    fs_python_thread thread = {.frame = PyLong_AsVoidPtr(address)};
    static fs_code_place places[FS_MOST_STACK_DEPTH];
    (void)module;
    return thread.frame == NULL && PyErr_Occurred() ? NULL : PyLong_FromLong(fs_read_stack(&thread, places));
}

static PyMethodDef functions[] = {
    {"_append", (PyCFunction)(void (*)(void))append, METH_VARARGS | METH_KEYWORDS,
     "_append(store, kind, ...): append an event; its index."},
    {"_set_device", set_device, METH_VARARGS, "_set_device(store, index, facts): what is known of a device."},
    {"_set_window", set_window, METH_VARARGS, "_set_window(store, begin, end): when recording began and ended, in ns."},
    {"_stack_depth", stack_depth, METH_O, "_stack_depth(address): of the frames there; -1: there are none."},
    {"_json_tokens", json_tokens, METH_O, "_json_tokens(text): ([(token, text)], how it ends, where, expected)."},
    {NULL, NULL, 0, NULL},
};

int fs_add_testing(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
