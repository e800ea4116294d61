/* Store.join_hlo: the instructions of HLO for the kernels that they launched. */
#include <string.h>

#include "base/fork.h"
#include "base/list.h"
#include "base/memory.h"
#include "python/store_type.h"
#include "store/event.h"
#include "work/hlo/join.h"
#include "work/hlo/thunks.h"

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

/* Return whether a profiler's name of a module is that of a given one, perhaps without the number of the program. */
static bool is_module(const char *given, const char *name)
{
    size_t size = strlen(name);
    return *name == 0 || (strncmp(given, name, size) == 0 && (given[size] == 0 || given[size] == '('));
}

/* Find an instruction by the names of its module ("": any) and itself. */
static fs_hlo_given find_given(joining *all, const char *module, const char *name)
{
    for (uint32_t i = 0; i < all->count; i++) {
        const char *given = PyUnicode_AsUTF8(PyTuple_GET_ITEM(PyTuple_GET_ITEM(all->names, i), 0));
        if (given == NULL) PyErr_Clear();
        if (given == NULL || !is_module(given, module)) continue;
        uint32_t found = find_instruction(all, i, name);
        if (found != FS_NONE) return (fs_hlo_given){0, i, found};
    }
    return (fs_hlo_given){0, FS_NONE, FS_NONE};
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
        if (good) found[i] = find_given(all, module, name);
    }
    for (Py_ssize_t i = 0; good && i < known; i++) {
        unsigned long event = PyLong_AsUnsignedLong(PySequence_Fast_GET_ITEM(events, i));
        long place = PyLong_AsLong(PySequence_Fast_GET_ITEM(places, i));
        good = !PyErr_Occurred();
        if (!good || place < 0 || place >= count || found[place].module == FS_NONE || event >= FS_NONE) continue;
        good = FS_LIST_ROOM(&all->given, all->given_count, &all->given_capacity, 1024, "kernels", &err) == FS_OK;
        if (!good) FS_IGNORE(fs_raise(&err));
        else
            all->given[all->given_count++] =
                (fs_hlo_given){(uint32_t)event, found[place].module, found[place].instruction};
    }
    fs_free(found);
    return good;
}

/* Find the instruction that a range names; none if several modules have one of that name, as the versions of a function
 * for several shapes do. */
static fs_hlo_given find_only(joining *all, uint32_t event, const fs_hlo_thunk *thunk)
{
    fs_hlo_given only = {event, FS_NONE, FS_NONE};
    for (uint32_t i = 0; i < all->count; i++) {
        const char *given = PyUnicode_AsUTF8(PyTuple_GET_ITEM(PyTuple_GET_ITEM(all->names, i), 0));
        if (given == NULL) PyErr_Clear();
        if (given == NULL || !is_module(given, thunk->module)) continue;
        uint32_t found = find_instruction(all, i, thunk->instruction);
        if (found == FS_NONE) continue;
        if (only.module != FS_NONE) return (fs_hlo_given){event, FS_NONE, FS_NONE};
        only = (fs_hlo_given){event, i, found};
    }
    return only;
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
        fs_hlo_given only = find_only(all, event, &thunk);
        if (only.module == FS_NONE) continue;
        if (FS_LIST_ROOM(&all->given, all->given_count, &all->given_capacity, 1024, "kernels", &err) != FS_OK)
            return fs_raise(&err) != NULL;
        all->given[all->given_count++] = only;
    }
    return true;
}

static PyObject *report_object(const fs_hlo_report *report)
{
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "works", (long long)report->works, "by_name",
                         (long long)report->by_name, "by_order", (long long)report->by_order, "guessed",
                         (long long)report->guessed, "kernel_ns", (long long)report->kernel_ns, "tied_ns",
                         (long long)report->tied_ns, "executions", (long long)report->executions, "instructions",
                         (long long)report->instructions);
}

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
    return report_object(&report);
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
