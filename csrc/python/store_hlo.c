/* Store.join_hlo: the instructions of HLO for the kernels that they launched. */
#include <string.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/memory.h"
#include "base/text.h"
#include "python/store_methods.h"
#include "sources/cupti/watch.h"
#include "store/event.h"
#include "work/hlo/join.h"

/* Replays ---------------------------------------------------------------------------------------------------------- */

/* Store.join_replays: the ops of captured graphs for the kernels of their replays. */

#define REPLAY_COUNTS(X) X(tied) X(graphs) X(launches) X(works) X(matched) X(owned) X(unseen) X(ambiguous)

/* Add the captures of a tuple of Stores. */
static fs_status add_captures(fs_captures *captures, PyObject *stores, fs_error *err)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(stores); i++)
        FS_TRY(fs_captures_add(captures, ((fs_store_object *)PyTuple_GET_ITEM(stores, i))->store, err));
    return FS_OK;
}

static bool are_stores(const fs_store_object *self, PyObject *stores)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(stores); i++) {
        fs_store_object *one = (fs_store_object *)PyTuple_GET_ITEM(stores, i);
        if (!PyObject_TypeCheck(one, fs_store_type) || one == self)
            return fs_refuse(PyExc_TypeError, "captures must be other Stores");
        if (!fs_store_object_is_stopped(one, "captures") || !fs_store_object_may_change(one)) return false;
    }
    return true;
}

/* What to add to the times of a store for those of fs_clock_now. */
static int64_t shift_of(const fs_store_object *self)
{
    if (!self->recorded) return 0;
    return self->clock_base != 0 ? self->clock_base - fs_clock_unix_offset() : FS_MISSING;
}

/* Replace a store by the one that was made of it, unless that failed. */
static fs_status take_joined(fs_status status, fs_store **store, fs_store *joined)
{
    fs_store *unused = status == FS_OK ? *store : joined;
    if (status == FS_OK) *store = joined;
    fs_store_destroy(unused);
    return status;
}

/* Replace the events of a store by those with the ops of replays. Without any, its captures are those of later ones. */
static fs_status join_replays(fs_store_object *self, fs_captures *captures, PyObject *stores, bool watched,
                              fs_replay_report *report, fs_error *err)
{
    fs_store *joined = NULL;
    if (!fs_replays_exist(self->store)) {
        if (!watched || fs_watch_state().kept == 0) return FS_OK;
        FS_TRY(fs_captures_add(captures, self->store, err));
        return fs_watch_learn(self->store, shift_of(self), captures, err);
    }
    fs_status status = fs_store_create(&joined, err);
    if (status == FS_OK) status = add_captures(captures, stores, err);
    if (status == FS_OK)
        status = fs_captures_add(captures, self->store, err); /* it may have recorded the capture too */
    if (status == FS_OK)
        status = watched ? fs_watch_join(self->store, shift_of(self), captures, joined, report, err)
                         : fs_replays_join(self->store, captures, joined, report, err);
    return take_joined(status, &self->store, joined);
}

PyObject *fs_store_object_join_replays(PyObject *object, PyObject *args)
{
    fs_store_object *self = (fs_store_object *)object;
    PyObject *stores;
    int watched = 0;
    fs_captures captures = {0};
    fs_replay_report report = {0};
    fs_error err;
    if (!PyArg_ParseTuple(args, "O!|p:join_replays", &PyTuple_Type, &stores, &watched)) return NULL;
    if (!fs_store_object_is_stopped(self, "replays") || !fs_store_object_may_change(self)) return NULL;
    if (!are_stores(self, stores)) return NULL;
    if (self->lost != NULL) return PyErr_Format(PyExc_ValueError, "the events of a Profiler are joined when it stops");
    /* With the GIL: nothing changes the captures meanwhile. */
    fs_status status = join_replays(self, &captures, stores, watched, &report, &err);
    PyObject *result = status == FS_OK ? FS_COUNTS(&report, REPLAY_COUNTS) : fs_raise(&err);
    fs_captures_clear(&captures);
    return result;
}

fs_status fs_store_object_join_watched(fs_store **store, fs_error *err)
{
    fs_captures captures = {0};
    fs_replay_report report;
    fs_store *joined;
    if (fs_watch_state().kept == 0 || !fs_replays_exist(*store)) return FS_OK;
    FS_TRY(fs_store_create(&joined, err));
    fs_status status = fs_captures_add(&captures, *store, err);
    if (status == FS_OK) status = fs_watch_join(*store, 0, &captures, joined, &report, err);
    fs_captures_clear(&captures);
    return take_joined(status, store, joined);
}

/* Watching --------------------------------------------------------------------------------------------------------- */

static PyObject *watch_start(PyObject *Py_UNUSED(module), PyObject *args)
{
    int evict = 0;
    fs_error err;
    if (!PyArg_ParseTuple(args, "|p:watch_start", &evict)) return NULL;
    return fs_none_or_raise(FS_WITHOUT_GIL(fs_watch_start(evict, &err)), &err);
}

static PyObject *watch_stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    Py_BEGIN_ALLOW_THREADS fs_watch_stop();
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *watch_launches(PyObject *Py_UNUSED(module), PyObject *on)
{
    int wanted = PyObject_IsTrue(on);
    if (wanted < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS fs_watch_log(wanted);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *watch_forget(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    fs_watch_forget();
    Py_RETURN_NONE;
}

#define WATCH_COUNTS(X) X(kept) X(nodes) X(resolved) X(lost) X(launches) X(launches_lost)

static PyObject *watch_state(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    fs_watch_report report = fs_watch_state();
    PyObject *state = FS_COUNTS(&report, WATCH_COUNTS);
    if (state != NULL && !fs_put_column(state, "on", PyBool_FromLong(fs_watch_is_on()))) Py_CLEAR(state);
    return state;
}

static PyObject *watch_is_on(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(fs_watch_is_on());
}

static PyObject *watch_resolve(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object;
    long long begin, end, shift;
    int64_t found;
    fs_error err;
    if (!PyArg_ParseTuple(args, "O!LLL:watch_resolve", fs_store_type, &object, &begin, &end, &shift)) return NULL;
    fs_store_object *store = (fs_store_object *)object;
    if (!fs_store_object_is_stopped(store, "events") || !fs_store_object_may_change(store)) return NULL;
    if (fs_watch_resolve(store->store, begin, end, shift, &found, &err) != FS_OK) return fs_raise(&err);
    return PyLong_FromLongLong(found);
}

static PyObject *host_clock(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyLong_FromLongLong(fs_clock_now());
}

static PyMethodDef functions[] = {
    {"watch_start", watch_start, METH_VARARGS,
     "watch_start(evict=False): watch graphs being captured, in the place of an idle client of CUPTI without a name. "
     "RuntimeError says why it cannot."},
    {"watch_stop", watch_stop, METH_NOARGS, "Watch no more; what is known stays."},
    {"watch_launches", watch_launches, METH_O,
     "watch_launches(on): log launches of watched graphs, or no more, for recordings without the ids of nodes."},
    {"watch_forget", watch_forget, METH_NOARGS, "Forget all nodes and launches of graphs."},
    {"watch_state", watch_state, METH_NOARGS,
     "{\"on\", \"kept\", \"nodes\", \"resolved\", \"lost\", \"launches\", \"launches_lost\"}."},
    {"watch_is_on", watch_is_on, METH_NOARGS, "Whether graphs are watched."},
    {"watch_resolve", watch_resolve, METH_VARARGS,
     "watch_resolve(store, begin, end, shift): find in a recording, whose times are shift ns less than those of "
     "clock(), "
     "what was open when nodes were created; how many were found."},
    {"clock", host_clock, METH_NOARGS, "Host time of events, in ns."},
    {NULL, NULL, 0, NULL},
};

int fs_add_replays(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}

/* Store hlo -------------------------------------------------------------------------------------------------------- */

/* The modules of a call, and what is found in them by name. */
typedef struct {
    PyObject *names; /* tuple of (name, text) */
    fs_hlo_module *modules;
    uint32_t **first; /* by module and text: the first instruction of that name, or FS_NONE; NULL: not listed yet */
    uint32_t count;
    fs_hlo_given *given;
    uint32_t given_count, given_capacity;
} joining;

static void clear(joining *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->modules != NULL) fs_hlo_clear(&all->modules[i]);
        if (all->first != NULL) fs_free(all->first[i]);
    }
    fs_free(all->modules);
    fs_free(all->first);
    fs_free(all->given);
}

/* Read the modules. Returns false with a Python exception, whose text begins with the name of the module. */
static bool read_modules(joining *all)
{
    all->count = (uint32_t)PyTuple_GET_SIZE(all->names);
    all->modules = fs_calloc((size_t)all->count + 1, sizeof *all->modules);
    all->first = fs_calloc((size_t)all->count + 1, sizeof *all->first);
    if (all->modules == NULL || all->first == NULL) return PyErr_NoMemory() != NULL;
    for (uint32_t i = 0; i < all->count; i++) {
        const char *name;
        Py_buffer text;
        fs_error err;
        fs_long_work work;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(all->names, i), "ss*;modules must be (name, text)", &name, &text))
            return false;
        fs_long_work_begin(&work);
        fs_hlo_module *module = &all->modules[i];
        fs_status status = fs_hlo_is_proto(text.buf, (size_t)text.len)
                               ? fs_hlo_read_proto(module, text.buf, (size_t)text.len, &err)
                               : fs_hlo_read_text(module, text.buf, (size_t)text.len, &err);
        fs_long_work_end(&work);
        PyBuffer_Release(&text);
        if (status == FS_VALUE_ERROR)
            return PyErr_Format(PyExc_ValueError, "%.200s: %.800s", name, err.message) != NULL;
        if (status != FS_OK) return fs_raise(&err) != NULL;
    }
    return true;
}

/* Find the instruction of that name in a module. */
static uint32_t find_instruction(joining *all, uint32_t index, const char *name)
{
    const fs_hlo_module *module = &all->modules[index];
    uint32_t text = fs_intern_find(&module->texts, name, strlen(name));
    if (text == UINT32_MAX) return FS_NONE;
    if (all->first[index] == NULL) {
        uint32_t *first = all->first[index] = fs_malloc(((size_t)module->texts.count + 1) * sizeof *first);
        if (first == NULL) return FS_NONE;
        memset(first, 0xff, module->texts.count * sizeof *first);
        for (uint32_t i = module->instruction_count; i-- > 0;)
            if (module->instructions[i].name != FS_NONE) first[module->instructions[i].name] = i;
    }
    return all->first[index][text];
}

/* Return whether a profiler's name of a module is that of a given one, perhaps without the number of the program, or
 * that number alone. */
static bool is_module(const char *given, const char *name)
{
    size_t size = strlen(name);
    if (*name == '(') return fs_text_ends(fs_text_of(given), name);
    return *name == 0 || (strncmp(given, name, size) == 0 && (given[size] == 0 || given[size] == '('));
}

/* Find an instruction by the names of its module ("": any) and itself; none if several modules have one of that name
 * and no number of a program tells which, as the versions of a function for several shapes do. */
static fs_hlo_given find_given(joining *all, uint32_t event, const char *module, const char *name)
{
    const fs_hlo_given none = {event, FS_NONE, FS_NONE};
    fs_hlo_given only = none;
    bool several = false;
    for (uint32_t i = 0; i < all->count; i++) {
        const char *given = PyUnicode_AsUTF8(PyTuple_GET_ITEM(PyTuple_GET_ITEM(all->names, i), 0));
        if (given == NULL) PyErr_Clear();
        if (given == NULL || !is_module(given, module)) continue;
        uint32_t found = find_instruction(all, i, name);
        if (found == FS_NONE) continue;
        several = only.module != FS_NONE;
        only = (fs_hlo_given){event, i, found};
        if (several || strchr(module, '(') != NULL) break;
    }
    return several ? none : only;
}

/* Take over which events run which of the instructions [(module, name)]. Returns false with a Python exception. */
static bool read_given(joining *all, PyObject *events, PyObject *places, PyObject *instructions)
{
    Py_ssize_t count = PyList_GET_SIZE(instructions), known = PySequence_Fast_GET_SIZE(events);
    fs_error err;
    if (PySequence_Fast_GET_SIZE(places) != known)
        return PyErr_SetString(PyExc_ValueError, "events and places must have the same length"), false;
    fs_hlo_given *found = fs_malloc(((size_t)count + 1) * sizeof *found);
    if (found == NULL) return PyErr_NoMemory() != NULL;
    bool good = true;
    for (Py_ssize_t i = 0; good && i < count; i++) {
        const char *module, *name;
        good = PyArg_ParseTuple(PyList_GET_ITEM(instructions, i), "ss;instructions must be (module, name)", &module,
                                &name);
        if (good) found[i] = find_given(all, 0, module, name);
    }
    for (Py_ssize_t i = 0; good && i < known; i++) {
        unsigned long event = PyLong_AsUnsignedLong(PySequence_Fast_GET_ITEM(events, i));
        long place = PyLong_AsLong(PySequence_Fast_GET_ITEM(places, i));
        good = !PyErr_Occurred();
        if (!good || place < 0 || place >= count || found[place].module == FS_NONE || event >= FS_NONE) continue;
        good = FS_LIST_ROOM(&all->given, all->given_count, &all->given_capacity, 1024, &err) == FS_OK;
        if (!good) FS_IGNORE(fs_raise(&err));
        else
            all->given[all->given_count++] =
                (fs_hlo_given){(uint32_t)event, found[place].module, found[place].instruction};
    }
    fs_free(found);
    return good;
}

/* Take over which work runs which instruction from the ranges of NVTX around its launch. Returns false with a Python
 * exception. */
static bool read_thunks(joining *all, const fs_store *store)
{
    fs_error err;
    for (uint32_t event = 0; event < fs_store_count(store); event++) {
        fs_hlo_thunk thunk;
        if (!fs_event_kind_on_device[FS_EVENT_AT(store, event, kind)] || !fs_hlo_thunk_of(store, event, &thunk))
            continue;
        fs_hlo_given only = find_given(all, event, thunk.module, thunk.instruction);
        if (only.module == FS_NONE) continue;
        if (FS_LIST_ROOM(&all->given, all->given_count, &all->given_capacity, 1024, &err) != FS_OK)
            return fs_raise(&err) != NULL;
        all->given[all->given_count++] = only;
    }
    return true;
}

#define JOINED_COUNTS(X) \
    X(works) X(by_name) X(by_order) X(guessed) X(kernel_ns) X(tied_ns) X(executions) X(instructions)

/* Replace the events of the store by those with instructions, if any work is tied. */
static PyObject *join(fs_store_object *self, const joining *all)
{
    fs_store *joined = NULL;
    fs_hlo_report report = {0};
    fs_error err;
    fs_long_work work;
    fs_status status = fs_store_create(&joined, &err);
    self->changing = true;
    self->generation = fs_fork_generation();
    fs_long_work_begin(&work);
    if (status == FS_OK)
        status =
            fs_hlo_join(self->store, all->modules, all->count, all->given, all->given_count, joined, &report, &err);
    fs_long_work_end(&work);
    self->changing = false;
    if (status != FS_OK) {
        fs_store_destroy(joined);
        return fs_raise(&err);
    }
    fs_store *unused = report.instructions > 0 ? self->store : joined;
    if (report.instructions > 0) self->store = joined;
    fs_store_destroy(unused);
    return FS_COUNTS(&report, JOINED_COUNTS);
}

PyObject *fs_store_object_join_hlo(PyObject *object, PyObject *args)
{
    fs_store_object *self = (fs_store_object *)object;
    joining all = {0};
    PyObject *events = NULL, *places = NULL, *instructions = NULL, *result = NULL;
    if (!PyArg_ParseTuple(args, "O!|OOO!:join_hlo", &PyTuple_Type, &all.names, &events, &places, &PyList_Type,
                          &instructions))
        return NULL;
    if (!fs_store_object_is_stopped(self, "kernels") || !fs_store_object_may_change(self)) return NULL;
    bool good = read_modules(&all);
    if (good && instructions != NULL) {
        PyObject *first = PySequence_Fast(events, "events must be a sequence");
        PyObject *second = first != NULL ? PySequence_Fast(places, "places must be a sequence") : NULL;
        good = second != NULL && read_given(&all, first, second, instructions);
        Py_XDECREF(first);
        Py_XDECREF(second);
    }
    if (good && instructions == NULL) good = read_thunks(&all, self->store);
    if (good && fs_store_object_may_change(self)) result = join(self, &all);
    clear(&all);
    return result;
}
