/* Store: the events of a profile or of a trace. */
#include "base/fork.h"
#include "python/store_methods.h"
#include "store/accelerator.h"
#include "store/event.h"
#include "store/extend.h"
#include "store/passes.h"
#include "store/signature.h"
#include "store/step_marks.h"
#include "store/torch_signature.h"
#include "table/table.h"

static PyObject *store_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    if (!fs_parse_arguments(args, kwargs, ":Store", names)) return NULL;
    return (PyObject *)fs_store_object_create();
}

static void store_dealloc(PyObject *object)
{
    fs_store_destroy(((fs_store_object *)object)->store);
    fs_free_object(object);
}

/* A forked child has no readers. */
static PyObject *read_stopped(PyObject *object, PyObject *args, const char *what, PyCFunction method)
{
    fs_store_object *self = (fs_store_object *)object;
    uint32_t generation = fs_fork_generation();
    if (!fs_store_object_is_stopped(self, what)) return NULL;
    if (self->readers_generation != generation) self->readers = 0;
    self->readers_generation = generation;
    self->readers++;
    PyObject *result = method(object, args);
    if (self->readers_generation == generation) self->readers--;
    return result;
}

#define READING_METHOD(method, what)                                       \
    static PyObject *reading_##method(PyObject *object, PyObject *args)    \
    {                                                                      \
        return read_stopped(object, args, what, fs_store_object_##method); \
    }
FS_STORE_READERS(READING_METHOD)

static PyObject *extend_from(PyObject *object, PyObject *args)
{
    PyObject *argument;
    long long shift = 0;
    if (!PyArg_ParseTuple(args, "O!|L:extend", fs_store_type, &argument, &shift)) return NULL;
    fs_store_object *self = (fs_store_object *)object, *from = (fs_store_object *)argument;
    fs_error err;
    if (!fs_store_object_is_stopped(self, "events") || !fs_store_object_may_change(self)) return NULL;
    if (!fs_store_object_is_stopped(from, "events") || !fs_store_object_may_change(from)) return NULL;
    if (self == from || self->lost != NULL)
        return PyErr_Format(PyExc_ValueError,
                            "a Store can only be extended by another one, and not if a Profiler owns it");
    if (fs_store_count(self->store) == 0) self->clock_base = from->clock_base;
    self->recorded = self->recorded || from->recorded;
    fs_status status = fs_store_extend(self->store, from->store, shift, &err); /* with the GIL */
    if (status == FS_OK) Py_RETURN_NONE;
    fs_store_object_empty(self);
    return fs_raise(&err);
}

FS_GETTER(get_event_count, fs_store_object, PyLong_FromUnsignedLong(fs_store_count(self->store)))

static PyObject *get_begin(PyObject *object, void *Py_UNUSED(unused))
{
    int64_t begin, end;
    fs_store_window(((fs_store_object *)object)->store, &begin, &end);
    return PyLong_FromLongLong(begin);
}

FS_GETTER(get_nbytes, fs_store_object, PyLong_FromLongLong(fs_store_nbytes(self->store)))
FS_GETTER(get_dropped, fs_store_object, PyLong_FromLongLong(fs_store_object_dropped(self)))
FS_GETTER(get_running, fs_store_object, PyBool_FromLong(fs_store_object_is_filled(self)))

/* "cpu", or torch's type of the device with its index: "cuda:0". */
static PyObject *device_name(const fs_store *store, int device)
{
    if (device < 0) return PyUnicode_InternFromString("cpu");
    return PyUnicode_FromFormat("%s:%d", fs_accelerators[fs_store_accelerator(store)].type, device);
}

static PyObject *get_device_name(PyObject *object, PyObject *argument)
{
    long device = PyLong_AsLong(argument);
    if (device == -1 && PyErr_Occurred()) return NULL;
    if (device < INT_MAX) return device_name(((fs_store_object *)object)->store, device < 0 ? -1 : (int)device);
    return PyErr_Format(PyExc_ValueError, "there is no device %ld", device);
}

static const fs_accelerator_facts *accelerator_of(const fs_store_object *self)
{
    return &fs_accelerators[fs_store_accelerator(self->store)];
}

FS_GETTER(get_accelerator, fs_store_object, PyUnicode_InternFromString(accelerator_of(self)->name))
FS_GETTER(get_matrix_units, fs_store_object, PyUnicode_InternFromString(accelerator_of(self)->matrix))
FS_GETTER(get_device_type, fs_store_object, PyUnicode_InternFromString(accelerator_of(self)->type))

static int add_device(PyObject *names, PyObject *name)
{
    int status = name == NULL ? -1 : PySet_Add(names, name);
    Py_XDECREF(name);
    return status;
}

/* The devices that ran ops, whose peaks a table needs. Without any, ranges with declared work ran on the CPU. */
static PyObject *get_devices(PyObject *object, void *Py_UNUSED(unused))
{
    const fs_store *store = ((fs_store_object *)object)->store;
    PyObject *names = PySet_New(NULL);
    bool declared = false;
    for (uint32_t i = 0; names != NULL && i < fs_store_signature_count(store); i++) {
        fs_signature signature;
        fs_span bytes = fs_store_signature_bytes(store, i);
        declared = declared || fs_signature_kind_of(bytes.bytes) == FS_SIGNATURE_WORK;
        if (fs_signature_kind_of(bytes.bytes) != FS_SIGNATURE_CALL) continue;
        fs_signature_decode(bytes.bytes, bytes.size, &signature);
        int device = signature.device_kind == FS_CUDA ? signature.device_index : -1;
        if (add_device(names, device_name(store, device)) < 0) Py_CLEAR(names);
    }
    for (uint32_t i = 0; names != NULL && i < fs_store_lane_count(store); i++) {
        fs_lane lane = fs_store_lane(store, i);
        if (lane.on_device && add_device(names, device_name(store, lane.device)) < 0) Py_CLEAR(names);
    }
    if (names != NULL && declared && PySet_GET_SIZE(names) == 0 && add_device(names, device_name(store, -1)) < 0)
        Py_CLEAR(names);
    return names;
}

/* The devices' names by index, from the source. */
static PyObject *get_device_names(PyObject *object, void *Py_UNUSED(unused))
{
    const fs_store *store = ((fs_store_object *)object)->store;
    PyObject *names = PyDict_New();
    for (int i = 0; names != NULL && i < FS_DEVICE_LIMIT; i++) {
        fs_device_facts facts = fs_store_device(store, i);
        if (facts.name[0] == 0) continue;
        if (!fs_put(names, PyLong_FromLong(i), fs_text_object(facts.name))) Py_CLEAR(names);
    }
    return names;
}

static PyObject *get_has_frames(PyObject *object, void *Py_UNUSED(unused))
{
    const fs_store *store = ((fs_store_object *)object)->store;
    for (uint32_t i = 0; i < fs_store_count(store); i++)
        if (FS_EVENT_AT(store, i, kind) == FS_EVENT_FRAME) Py_RETURN_TRUE;
    Py_RETURN_FALSE;
}

static PyObject *get_has_modules(PyObject *object, void *Py_UNUSED(unused))
{
    bool found;
    fs_error err;
    if (fs_table_finds_modules(((fs_store_object *)object)->store, &found, &err) != FS_OK) return fs_raise(&err);
    return PyBool_FromLong(found);
}

static PyObject *get_has_shapes(PyObject *object, void *Py_UNUSED(unused))
{
    const fs_store *store = ((fs_store_object *)object)->store;
    for (uint32_t id = 0; id < fs_store_signature_count(store); id++) {
        fs_span bytes = fs_store_signature_bytes(store, id);
        fs_torch_call call;
        if (fs_signature_kind_of(bytes.bytes) == FS_SIGNATURE_CALL) Py_RETURN_TRUE;
        if (fs_torch_decode(bytes.bytes, bytes.size, &call) && call.count > 0) Py_RETURN_TRUE;
    }
    Py_RETURN_FALSE;
}

static PyObject *undo_step(PyObject *object, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL) return NULL;
    fs_step_marks_undo(((fs_store_object *)object)->store, text);
    Py_RETURN_NONE;
}

static PyObject *mark_passes(PyObject *object, PyObject *Py_UNUSED(unused))
{
    fs_store_object *self = (fs_store_object *)object;
    uint32_t count;
    fs_error err;
    if (!fs_store_object_is_stopped(self, "passes") || !fs_store_object_may_change(self)) return NULL;
    if (fs_passes_mark(self->store, &count, &err) != FS_OK) return fs_raise(&err); /* with the GIL */
    return PyLong_FromUnsignedLong(count);
}

static PyMethodDef methods[] = {
    {"table", reading_table, METH_VARARGS,
     "table($self, by_shape, stack_n, peaks, cpu_alone=False, groupings=(), brief=False, /)\n--\n\n"
     "(columns, meta) of the grouped events, by their stack_n innermost frames too; peaks by device name. cpu_alone: "
     "the program is known to have used no GPU. groupings: what else separates rows. brief: no statistics of single "
     "times and no coverage."},
    {"accounting", reading_accounting, METH_VARARGS,
     "accounting($self, by_shape, stack_n, peaks, cpu_alone=False, groupings=(), brief=False, window=..., /)\n--\n\n"
     "The same with the accounting in meta. window: of the time between, in us, instead of the steps."},
    {"timeline", reading_timeline, METH_VARARGS,
     "timeline($self, by_shape, stack_n, peaks, cpu_alone, groupings, brief, blocks, /)\n--\n\n"
     "The same with the timeline too, of at most about so many blocks, and the changes of memory, if there are any; "
     "columns in integers."},
    {"enclosing", reading_enclosing, METH_VARARGS,
     "enclosing($self, event, /)\n--\n\n(kind, name) of the event and of up to 511 that enclose it, innermost first."},
    {"device_name", get_device_name, METH_O,
     "device_name($self, device, /)\n--\n\nThe name of a device by its index, such as \"cuda:0\"; -1: \"cpu\"."},
    {"arguments", reading_arguments, METH_VARARGS,
     "arguments($self, event, name=None, /)\n--\n\n(dtype, shape, strides, text) of each argument of a torch op, or of "
     "the innermost op of that name around it; None where they were not recorded. Strides are None if missing; what is "
     "not a tensor has its text alone."},
    {"alike", reading_alike, METH_VARARGS,
     "alike($self, events, arguments, around, /)\n--\n\n(places, numbers): number events of one name, with equal "
     "arguments and within events of equal names where these are true, alike: 0, 1, 2, … in order of the first of "
     "each, "
     "and its place among the events."},
    {"events", reading_events, METH_NOARGS,
     "(columns, names, kinds, begin): each event in integers, what name and kind count in, the window's begin in ns."},
    {"gpu_summary", reading_gpu_summary, METH_VARARGS,
     "gpu_summary($self, step=None, /)\n--\n\nHow well each device was used, in percent; in steps of that name."},
    {"step_breakdown", reading_step_breakdown, METH_NOARGS, "What the time of each step went to, in ns."},
    {"phases", reading_phases, METH_VARARGS,
     "phases($self, begin, end, /)\n--\n\n{phase: (ns of the host, ns of devices)} of what began in that time, in ns: "
     "csrc/summaries/phases.h."},
    {"launch_summary", reading_launch_summary, METH_NOARGS,
     "How the kernels of each device were launched, times in µs."},
    {"collectives", reading_collectives, METH_NOARGS,
     "(columns, begin): each kernel of communication, start in ns, other times in µs, sizes in bytes, bandwidths in "
     "GB/s; the window's begin in ns."},
    {"collective_calls", reading_collective_calls, METH_NOARGS,
     "Each call of a collective that was recorded with its arguments, start in ns; ran: whether its work is recorded."},
    {"stream_summary", reading_stream_summary, METH_NOARGS,
     "How long each stream worked, beside others, and communicated, times in µs; stream None: the whole device."},
    {"samples", reading_samples, METH_NOARGS,
     "[(device, metric, kind, unit, start, end, value)]: the counter samples of each track, times in ns."},
    {"add_samples", fs_store_object_add_samples, METH_VARARGS,
     "add_samples($self, device, metric, start, end, value, /)\n--\n\nAppend samples to a track, in order of start, "
     "times in ns; how many were left out because they overlap or are not finite."},
    {"undo_step", undo_step, METH_O,
     "Make ranges of the steps of a name, amid which the recording began or ended. Not while it grows."},
    {"mark_passes", mark_passes, METH_NOARGS,
     "Append a step for each pass of a program that marks none, found by the repetition of its launches; how many."},
    {"extend", extend_from, METH_VARARGS,
     "extend($self, other, shift=0, /)\n--\n\nAppend the events of a later recording of the process, shift ns later."},
    {"join_replays", fs_store_object_join_replays, METH_VARARGS,
     "join_replays($self, captures, watched=False, /)\n--\n\nGive the kernels of replayed graphs the ops of the "
     "captures, a tuple of Stores, or of the graphs watched in this process. Return counts."},
    {"join_hlo", fs_store_object_join_hlo, METH_VARARGS,
     "join_hlo($self, modules, events=(), places=(), instructions=[], /)\n--\n\nGive kernels the instructions of HLO "
     "that launched them. modules: (name, text or protobuf) of each; events[i] is known to run "
     "instructions[places[i]], (module, name); without any, XLA's ranges of NVTX tell. Return counts."},
    {"write_trace", reading_write_trace, METH_VARARGS,
     "write_trace($self, write, version, members='', peaks=None, /)\n--\n\n"
     "Call write(bytes) with the pieces of a Chrome trace; how many events without a time it leaves out. peaks: as for "
     "table(); None: no work and no rates of events."},
    {"names", reading_names, METH_NOARGS, "The names of the events, which ids count in."},
    {"named_calls", reading_named_calls, METH_VARARGS,
     "named_calls($self, names, asked='', /)\n--\n\nReturn the host's events of some names, in order of start: "
     "csrc/accounting/late.h. names: a byte for each name, 0 to leave its events out. asked: \"device\", \"cpu\": with "
     "what the devices, or the CPU, idled; \"waiting\": only the API calls within which work of a device ended; "
     "\"growing\": with what they make longer and longer."},
    {"late_within", reading_late_within, METH_VARARGS,
     "late_within($self, first_step, names, /)\n--\n\nReturn the idle time before late launches in which calls of "
     "some names ran, by the name of the op that launched."},
    {"late_spent", reading_late_spent, METH_VARARGS,
     "late_spent($self, first_step, least, ops, other, /)\n--\n\nReturn what the host was in during idle times of more "
     "than `least` ns before late launches of some ops. ops has one byte more: of launches outside of ops."},
    {"lines", reading_lines, METH_VARARGS,
     "lines($self, first_step=0, least=0, begin=..., end=..., /)\n--\n\nWhere the sampled threads were, by line of the "
     "program "
     "and innermost line: columns of \"group\", \"line\", \"inside\",\n\"time\" and \"cpu\" (ns), \"idle\" (by cause: "
     "ns in which a "
     "device waited for the thread for more than `least` ns, in steps from the first on), and\n\"groups\": (processes, "
     "threads, time, cpu, "
     "begin, end) of each. begin, end: in ns since 1970; of a part, idle times are 0."},
    {"trace_text", reading_trace_text, METH_VARARGS,
     "trace_text($self, what, base=-1, /)\n--\n\nReturn its \"ranges\", on this process's clock, or its \"samples\" of "
     "counters and stacks, as events of a Chrome trace whose times count from that Unix time in ns (-1: from that of "
     "the "
     "store): one per line, separated by commas. \"frames\": the member \"stackFrames\", which the samples of stacks "
     "refer to; b\"\" if there are none."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"has_modules", get_has_modules, NULL, "Whether there are modules: ranges or Python calls that bear their names.",
     NULL},
    {"event_count", get_event_count, NULL, "Events recorded.", NULL},
    {"begin", get_begin, NULL, "When recording began, in ns; the least int64 if unknown.", NULL},
    {"nbytes", get_nbytes, NULL, "Memory that the events take, in bytes.", NULL},
    {"dropped", get_dropped, NULL, "Events that could not be kept.", NULL},
    {"running", get_running, NULL, "Whether a Profiler records into it now.", NULL},
    {"devices", get_devices, NULL, "Names of the devices that ran ops.", NULL},
    {"accelerator", get_accelerator, NULL, "The kind of its devices: \"cuda\", \"hip\", \"mtia\", …", NULL},
    {"matrix_units", get_matrix_units, NULL, "What multiplies matrices in its devices: \"tensor cores\".", NULL},
    {"device_type", get_device_type, NULL, "torch's type of its devices, which is \"cuda\" for \"hip\".", NULL},
    {"device_names", get_device_names, NULL, "What the drivers call the devices that are known, by index.", NULL},
    {"has_frames", get_has_frames, NULL, "Whether there are Python calls.", NULL},
    {"has_shapes", get_has_shapes, NULL, "Whether it is known what any op was called with.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, store_new},
    {Py_tp_dealloc, store_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_doc, "Store()\n--\n\nThe events of a profile or of a trace."},
    {0, NULL},
};

int fs_add_store(PyObject *module)
{
    PyType_Spec *spec = FS_TYPE_SPEC("flopscope._core.Store", fs_store_object, 0, slots);
    if (fs_add_type(module, &fs_store_type, spec) < 0 || fs_add_columns(module) < 0) return -1;
    if (fs_add_metrics(module) < 0 || fs_add_replays(module) < 0) return -1;
    const char *types[FS_ACCELERATOR_COUNT];
    for (int i = 0; i < FS_ACCELERATOR_COUNT; i++) types[i] = fs_accelerators[i].type;
    return fs_add_constant(module, "device_types", fs_names_object(types, FS_ACCELERATOR_COUNT));
}
