/* Hardware counters: Sampler (PM sampling into a Store), Counting (the Range Profiler), and the tables of chips. */
#include <math.h>
#include <string.h>

#include "python/store_object.h"
#include "sources/counters/library.h"
#include "sources/counters/pc_sampling.h"
#include "sources/counters/plan.h"
#include "sources/counters/ranges.h"
#include "sources/counters/sampling.h"
#include "sources/cupti/cupti.h"

/* Sampler ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    fs_sampler *sampler;   /* NULL before open() */
    bool opening, started; /* open() runs, perhaps without the GIL; start() was called */
    fs_sampler_options options;
} sampler_object;

static PyTypeObject *sampler_type;

static PyObject *sampler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"device", "interval_ns", "most_samples", "window", "begins_live", NULL};
    int device = 0, begins_live = 0;
    long long interval_ns = 0;
    unsigned most_samples = 0, window = 0;
    if (!fs_parse_arguments(args, kwargs, "|iLIIp:Sampler", names, &device, &interval_ns, &most_samples, &window,
                            &begins_live))
        return NULL;
    sampler_object *self = (sampler_object *)type->tp_alloc(type, 0);
    if (self != NULL) self->options = (fs_sampler_options){device, interval_ns, most_samples, window, begins_live, 0};
    return (PyObject *)self;
}

static void sampler_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    fs_sampler_destroy(((sampler_object *)object)->sampler);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *sampler_open(PyObject *object, PyObject *Py_UNUSED(unused))
{
    sampler_object *self = (sampler_object *)object;
    fs_sampler *sampler = NULL;
    fs_error err;
    if (self->sampler != NULL || self->opening)
        return PyErr_Format(PyExc_RuntimeError, "this sampler was opened before");
    self->opening = true;
    fs_status status = FS_WITHOUT_GIL(fs_sampler_open(&sampler, &self->options, &err));
    self->opening = false;
    self->sampler = sampler;
    return fs_none_or_raise(status, &err);
}

static PyObject *sampler_start(PyObject *object, PyObject *unused)
{
    sampler_object *self = (sampler_object *)object;
    fs_error err;
    if (self->started || self->opening) return PyErr_Format(PyExc_RuntimeError, "this sampler was started before");
    if (self->sampler == NULL) {
        PyObject *opened = sampler_open(object, unused);
        if (opened == NULL) return NULL;
        Py_DECREF(opened);
    }
    self->started = true;
    return fs_none_or_raise(FS_WITHOUT_GIL(fs_sampler_start(self->sampler, &err)), &err);
}

static bool was_started(const sampler_object *self)
{
    if (self->sampler == NULL) PyErr_SetString(PyExc_RuntimeError, "this sampler was never started");
    return self->sampler != NULL;
}

static PyObject *sampler_stop(PyObject *object, PyObject *Py_UNUSED(unused))
{
    sampler_object *self = (sampler_object *)object;
    fs_error err;
    if (!was_started(self)) return NULL;
    return fs_none_or_raise(FS_WITHOUT_GIL(fs_sampler_stop(self->sampler, &err)), &err);
}

static PyObject *sampler_pour(PyObject *object, PyObject *args)
{
    sampler_object *self = (sampler_object *)object;
    PyObject *into;
    long long begin = INT64_MIN, end = INT64_MAX;
    fs_error err;
    if (!PyArg_ParseTuple(args, "O!|LL:pour", fs_store_type, &into, &begin, &end)) return NULL;
    fs_store_object *store = (fs_store_object *)into;
    if (!was_started(self) || !fs_store_object_is_stopped(store, "samples") || !fs_store_object_may_change(store))
        return NULL;
    int64_t base = store->recorded ? store->clock_base : FS_MISSING;
    return fs_none_or_raise(fs_sampler_pour(self->sampler, store->store, base, begin, end, &err), &err);
}

static PyObject *sampler_report(PyObject *object, void *Py_UNUSED(unused))
{
    sampler_object *self = (sampler_object *)object;
    if (!was_started(self)) return NULL;
    fs_sampler_report report = fs_sampler_last(self->sampler);
    PyObject *metrics = PyList_New(0);
    for (int i = 0; metrics != NULL && i < FS_METRIC_COUNT; i++) {
        if ((report.metrics >> i & 1) == 0) continue;
        if (!fs_append(metrics, PyUnicode_FromString(fs_metrics[i].name))) Py_CLEAR(metrics);
    }
    if (metrics == NULL) return NULL;
    return Py_BuildValue("{s:i,s:I,s:I,s:L,s:L,s:L,s:N}", "device", self->options.device, "samples", report.samples,
                         "overflows", report.overflows, "lost", (long long)report.lost, "first_interval_ns",
                         (long long)report.first_interval_ns, "last_interval_ns", (long long)report.last_interval_ns,
                         "metrics", metrics);
}

static PyMethodDef sampler_methods[] = {
    {"open", sampler_open, METH_NOARGS, "Prepare to sample. RuntimeError says why the counters are unavailable."},
    {"start", sampler_start, METH_NOARGS, "Begin to sample; open before if need be. RuntimeError: CUPTI refused."},
    {"stop", sampler_stop, METH_NOARGS, "End sampling and decode what is left. RuntimeError: what failed meanwhile."},
    {"pour", sampler_pour, METH_VARARGS,
     "pour($self, store, begin=..., end=..., /)\n--\n\nAppend the samples between two times of the store to it."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef sampler_getset[] = {
    {"report", sampler_report, NULL, "What was counted, and what was lost.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot sampler_slots[] = {
    {Py_tp_new, sampler_new},
    {Py_tp_dealloc, sampler_dealloc},
    {Py_tp_methods, sampler_methods},
    {Py_tp_getset, sampler_getset},
    {Py_tp_doc, "Sampler(device=0, interval_ns=0, most_samples=0, window=0, begins_live=False)\n--\n\n"
                "PM sampling of a device; interval 0 adapts."},
    {0, NULL},
};

static PyType_Spec sampler_spec = {
    .name = "flopscope._core.Sampler",
    .basicsize = sizeof(sampler_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = sampler_slots,
};

/* Functions -------------------------------------------------------------------------------------------------------- */

static PyObject *load_counters(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *path = NULL;
    fs_error err;
    if (!PyArg_ParseTuple(args, "|z:load_counters", &path)) return NULL;
    return fs_none_or_raise(FS_WITHOUT_GIL(fs_counters_load(path, &err)), &err);
}

static int group_named(const char *name)
{
    for (int i = 0; i < FS_COUNTER_GROUP_COUNT; i++)
        if (strcmp(fs_counter_group_names[i], name) == 0) return i;
    PyErr_Format(PyExc_ValueError, "there is no group of counters %s", name);
    return -1;
}

static PyObject *counter_chips(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    const char *const *chips;
    size_t count;
    fs_error err;
    if (fs_plan_chips(&chips, &count, &err) != FS_OK) return fs_raise(&err);
    return FS_LIST(i, count, PyUnicode_FromString(chips[i]));
}

static PyObject *counter_plan(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *chip, *group = NULL;
    fs_plan plan;
    fs_error err;
    if (!PyArg_ParseTuple(args, "s|z:counter_plan", &chip, &group)) return NULL;
    int wanted = group != NULL ? group_named(group) : 0;
    if (wanted < 0) return NULL;
    fs_status status = group != NULL ? fs_plan_ranges(&plan, chip, (fs_counter_group)wanted, NULL, &err)
                                     : fs_plan_samples(&plan, chip, NULL, &err);
    if (status != FS_OK) return fs_raise(&err);
    PyObject *names = PyDict_New();
    for (size_t i = 0; names != NULL && i < plan.count; i++) {
        const char *key = group != NULL ? fs_counter_row_at((size_t)plan.keys[i]).name : fs_metrics[plan.keys[i]].name;
        if (!fs_put_column(names, plan.metrics[i], PyUnicode_FromString(key))) Py_CLEAR(names);
    }
    PyObject *result = names != NULL ? Py_BuildValue("(Nn)", names, (Py_ssize_t)plan.passes) : NULL;
    fs_plan_clear(&plan);
    return result;
}

static bool call(PyObject *function)
{
    PyObject *result = PyObject_CallNoArgs(function);
    Py_XDECREF(result);
    return result != NULL;
}

/* Call before(), and then the function as a piece of counted work. */
static bool count_piece(fs_ranges *ranges, size_t index, PyObject *before, PyObject *function)
{
    fs_status status;
    fs_error err;
    if (!call(before)) return false;
    Py_BEGIN_ALLOW_THREADS;
    status = fs_driver_wait(&err);
    if (status == FS_OK) status = fs_ranges_push(ranges, index, &err);
    Py_END_ALLOW_THREADS;
    if (status == FS_OK && !call(function)) return false;
    Py_BEGIN_ALLOW_THREADS;
    if (status == FS_OK) status = fs_driver_wait(&err);
    if (status == FS_OK) status = fs_ranges_pop(ranges, &err);
    Py_END_ALLOW_THREADS;
    if (status != FS_OK) fs_raise(&err);
    return status == FS_OK;
}

/* Call all functions once for each pass. */
static bool count_passes(fs_ranges *ranges, PyObject *before, PyObject *functions)
{
    enum { MOST_PASSES = 64 };
    bool complete = false;
    fs_error err;
    for (int pass = 0; !complete && pass < MOST_PASSES; pass++) {
        fs_status status = FS_WITHOUT_GIL(fs_ranges_begin(ranges, &err));
        bool counted = status == FS_OK;
        for (Py_ssize_t i = 0; counted && i < PyTuple_GET_SIZE(functions); i++)
            counted = count_piece(ranges, (size_t)i, before, PyTuple_GET_ITEM(functions, i));
        if (status == FS_OK && !counted) return false;
        if (status == FS_OK) status = FS_WITHOUT_GIL(fs_ranges_end(ranges, &complete, &err));
        if (status != FS_OK) fs_raise(&err);
        if (status != FS_OK) return false;
    }
    if (!complete) PyErr_Format(PyExc_RuntimeError, "the counters are not complete after %d passes", MOST_PASSES);
    return complete;
}

static PyObject *values_object(const double *values)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < fs_counter_row_count(); i++) {
        if (isnan(values[i])) continue;
        if (!fs_put_column(dict, fs_counter_row_at(i).name, PyFloat_FromDouble(values[i]))) Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *all_values(fs_ranges *ranges, Py_ssize_t count)
{
    fs_error err;
    fs_status status = FS_WITHOUT_GIL(fs_ranges_decode(ranges, &err));
    double *values = PyMem_Malloc(fs_counter_row_count() * sizeof *values);
    PyObject *list = values != NULL ? PyList_New(count) : PyErr_NoMemory();
    for (Py_ssize_t i = 0; status == FS_OK && list != NULL && i < count; i++) {
        status = fs_ranges_take(ranges, (size_t)i, values, &err);
        PyObject *item = status == FS_OK ? values_object(values) : NULL;
        if (item != NULL) PyList_SET_ITEM(list, i, item);
        else if (status == FS_OK) Py_CLEAR(list);
    }
    PyMem_Free(values);
    if (status == FS_OK) return list;
    Py_XDECREF(list);
    return fs_raise(&err);
}

static PyObject *count_calls(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *before, *functions, *result = NULL;
    const char *group;
    int device;
    fs_ranges *ranges = NULL;
    fs_error err;
    if (!PyArg_ParseTuple(args, "isOO!:count_calls", &device, &group, &before, &PyTuple_Type, &functions)) return NULL;
    int wanted = group_named(group);
    Py_ssize_t count = PyTuple_GET_SIZE(functions);
    if (wanted < 0) return NULL;
    if (count == 0) return PyList_New(0);
    fs_status status = FS_WITHOUT_GIL(fs_ranges_open(&ranges, device, (fs_counter_group)wanted, (size_t)count, &err));
    if (status != FS_OK) fs_raise(&err);
    else if (count_passes(ranges, before, functions)) result = all_values(ranges, count);
    PyObject *type, *value, *trace; /* closing may take long, and an exception may be set */
    PyErr_Fetch(&type, &value, &trace);
    Py_BEGIN_ALLOW_THREADS fs_ranges_close(ranges);
    Py_END_ALLOW_THREADS;
    PyErr_Restore(type, value, trace);
    return result;
}

static PyObject *start_pc_sampling(PyObject *Py_UNUSED(module), PyObject *args)
{
    int device, evict = 0;
    unsigned period;
    fs_error err;
    if (!PyArg_ParseTuple(args, "iI|p:start_pc_sampling", &device, &period, &evict)) return NULL;
    return fs_none_or_raise(FS_WITHOUT_GIL(fs_pc_sampling_start(device, period, evict, &err)), &err);
}

static PyObject *line_object(const fs_pc_samples *samples, const fs_pc_row *row)
{
    PyObject *waits = PyDict_New(), *file = row->file != NULL ? fs_text_object(row->file) : Py_NewRef(Py_None);
    for (int k = 0; waits != NULL && k < FS_PC_REASONS; k++) {
        if (row->by_reason[k] == 0) continue;
        if (!fs_put_column(waits, samples->reasons[k], PyLong_FromUnsignedLongLong(row->by_reason[k]))) Py_CLEAR(waits);
    }
    return Py_BuildValue("(NNIKKNs)", fs_text_object(row->kernel != NULL ? row->kernel : ""), file, row->line,
                         row->offset, row->samples, waits, row->instruction);
}

static PyObject *code_object(const uint32_t counts[FS_SASS_KINDS])
{
    PyObject *code = PyDict_New();
    for (int k = 0; code != NULL && k < FS_SASS_KINDS; k++)
        if (counts[k] > 0 && !fs_put_column(code, fs_sass_kinds[k], PyLong_FromUnsignedLong(counts[k]))) Py_CLEAR(code);
    return code;
}

static PyObject *read_sass(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer cubin;
    const char *function;
    char name[FS_SASS_NAME];
    uint32_t counts[FS_SASS_KINDS];
    if (!PyArg_ParseTuple(args, "y*s:read_sass", &cubin, &function)) return NULL;
    fs_sass code = fs_sass_find(cubin.buf, (size_t)cubin.len, function);
    fs_sass_count(&code, counts);
    PyObject *names = PyDict_New();
    for (size_t at = 0; names != NULL && at < code.size; at += 16) {
        fs_sass_name(&code, at, name);
        if (*name != '\0' && !fs_put(names, PyLong_FromSize_t(at), fs_text_object(name))) Py_CLEAR(names);
    }
    PyBuffer_Release(&cubin);
    if (code.bytes != NULL || names == NULL) return Py_BuildValue("(NN)", names, code_object(counts));
    Py_DECREF(names);
    Py_RETURN_NONE;
}

static PyObject *stop_pc_sampling(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    fs_pc_samples samples;
    fs_error err;
    if (FS_WITHOUT_GIL(fs_pc_sampling_stop(&samples, &err)) != FS_OK) return fs_raise(&err);
    PyObject *rows = FS_LIST_OF(row, samples.rows, samples.count, line_object(&samples, row));
    PyObject *codes = rows != NULL ? PyDict_New() : NULL;
    for (uint32_t i = 0; codes != NULL && i < samples.code_count; i++)
        if (!fs_put_column(codes, samples.codes[i].kernel, code_object(samples.codes[i].counts))) Py_CLEAR(codes);
    PyObject *result = codes == NULL ? NULL : Py_BuildValue("(NNKK)", rows, codes, samples.lost, samples.unknown);
    if (codes == NULL) Py_XDECREF(rows);
    fs_pc_samples_clear(&samples);
    return result;
}

static PyObject *device_list(uint64_t devices)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; list != NULL && i < 64; i++) {
        if ((devices >> i & 1) == 0) continue;
        if (!fs_append(list, PyLong_FromLong(i))) Py_CLEAR(list);
    }
    return list;
}

static PyObject *active_devices(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return device_list(fs_driver_active_devices());
}

static PyObject *hold_cupti(PyObject *Py_UNUSED(module), PyObject *args)
{
    int on;
    if (!PyArg_ParseTuple(args, "p:hold_cupti", &on)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    fs_cupti_hold(on);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *watch_contexts(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    fs_cupti_watch_contexts();
    Py_RETURN_NONE;
}

static PyObject *used_devices(PyObject *Py_UNUSED(module), PyObject *args)
{
    double seconds = 0;
    if (!PyArg_ParseTuple(args, "|d:used_devices", &seconds)) return NULL;
    return device_list(FS_WITHOUT_GIL(fs_contexts_devices((int64_t)(seconds * 1e9))));
}

static PyObject *wait_for_devices(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    fs_error err;
    return fs_none_or_raise(FS_WITHOUT_GIL(fs_driver_wait(&err)), &err);
}

static PyMethodDef functions[] = {
    {"load_counters", load_counters, METH_VARARGS,
     "load_counters($module, path=None, /)\n--\n\nLoad CUPTI's interfaces of counters. Raise RuntimeError naming what "
     "is "
     "missing. Needs no GPU."},
    {"counter_chips", counter_chips, METH_NOARGS, "The names of the chips that CUPTI knows."},
    {"counter_plan", counter_plan, METH_VARARGS,
     "counter_plan($module, chip, group=None, /)\n--\n\n({CUPTI's name: what it counts}, passes) of PM sampling, or of "
     "a group of the Range Profiler, on a chip."},
    {"count_calls", count_calls, METH_VARARGS,
     "count_calls($module, device, group, before, functions, /)\n--\n\nCount a group of counters while each of a tuple "
     "of functions runs on a device, after before(); all are called once for each pass. [{name: value}], without those "
     "that the GPU lacks."},
    {"start_pc_sampling", start_pc_sampling, METH_VARARGS,
     "start_pc_sampling($module, device, period, evict=False, /)\n--\n\nBegin to sample where a device's warps are, "
     "every 2^period cycles. evict: in the place of an idle client of CUPTI without a name. RuntimeError says why that "
     "is unavailable."},
    {"read_sass", read_sass, METH_VARARGS,
     "read_sass($module, cubin, function, /)\n--\n\nThe names of a function's instructions in a cubin by their "
     "offsets, where they have one, and how many there are of each kind; None if the code cannot be read."},
    {"stop_pc_sampling", stop_pc_sampling, METH_NOARGS,
     "End it: ([(kernel, file or None, line, offset, samples, {reason: samples}, name of the instruction or '')], "
     "{kernel: {kind of instruction: how many in its code}}, lost samples, samples of unknown kernels)."},
    {"active_devices", active_devices, METH_NOARGS, "The CUDA devices whose primary contexts are in use."},
    {"hold_cupti", hold_cupti, METH_VARARGS,
     "hold_cupti($module, on, /)\n--\n\nKeep CUPTI in the process, or no longer, when a profile ends; calls nest."},
    {"watch_contexts", watch_contexts, METH_NOARGS,
     "Note the devices of the CUDA contexts that are created from now on while a profile captures."},
    {"used_devices", used_devices, METH_VARARGS,
     "used_devices($module, seconds=0, /)\n--\n\nThe CUDA devices of these contexts and of primary contexts; if there "
     "are none, wait for the first. Does not initialize CUDA."},
    {"wait_for_devices", wait_for_devices, METH_NOARGS, "Wait for all work on these devices."},
    {NULL, NULL, 0, NULL},
};

static PyObject *row_tuple(fs_counter_row row)
{
    return Py_BuildValue("(ssss)", row.name, row.unit, row.prose, fs_counter_group_names[row.group]);
}

static int add_tables(PyObject *module)
{
    PyObject *rows = FS_LIST(i, fs_counter_row_count(), row_tuple(fs_counter_row_at(i)));
    if (fs_add_constant(module, "counter_rows", rows) < 0) return -1;
    return fs_add_constant(module, "counter_groups", fs_names_object(fs_counter_group_names, FS_COUNTER_GROUP_COUNT));
}

int fs_add_counters(PyObject *module)
{
    if (fs_add_type(module, &sampler_type, &sampler_spec) < 0 || add_tables(module) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
