/* Store.join_replays: the ops of captured graphs for the kernels of their replays. */
#include "base/clock.h"
#include "python/store_type.h"
#include "sources/cupti/watch.h"

static PyObject *report_object(const fs_replay_report *report)
{
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "annotated", (long long)report->annotated, "tied",
                         (long long)report->tied, "graphs", (long long)report->graphs, "launches",
                         (long long)report->launches, "works", (long long)report->works, "matched",
                         (long long)report->matched, "owned", (long long)report->owned, "unseen",
                         (long long)report->unseen, "ambiguous", (long long)report->ambiguous);
}

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
        if (!PyObject_TypeCheck(one, fs_store_type) || one == self) {
            PyErr_SetString(PyExc_TypeError, "captures must be other Stores");
            return false;
        }
        if (!fs_store_object_is_stopped(one, "captures") || !fs_store_object_may_change(one)) return false;
    }
    return true;
}

/* Add the names of nodes by their ids. Returns false with a Python exception. */
static bool add_names(fs_captures *captures, PyObject *names)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    fs_error err;
    while (names != NULL && PyDict_Next(names, &at, &key, &value)) {
        unsigned long long id = PyLong_AsUnsignedLongLong(key);
        const char *name = PyErr_Occurred() ? NULL : PyUnicode_AsUTF8(value);
        if (name == NULL) return false;
        if (fs_captures_add_mark(captures, id, name, &err) != FS_OK) return fs_raise(&err) != NULL;
    }
    fs_captures_sort(captures);
    return true;
}

/* What to add to the times of a store for those of fs_clock_now. */
static int64_t shift_of(const fs_store_object *self)
{
    if (!self->recorded) return 0;
    return self->clock_base != 0 ? self->clock_base - fs_clock_unix_offset() : FS_MISSING;
}

/* Replace the events of a store by those with the ops of replays. */
static fs_status join(fs_store_object *self, fs_captures *captures, PyObject *stores, bool watched,
                      fs_replay_report *report, fs_error *err)
{
    fs_store *joined = NULL;
    fs_status status = fs_store_create(&joined, err);
    if (status == FS_OK) status = add_captures(captures, stores, err);
    if (status == FS_OK)
        status = fs_captures_add(captures, self->store, err); /* it may have recorded the capture too */
    if (status == FS_OK)
        status = watched ? fs_watch_join(self->store, shift_of(self), captures, joined, report, err)
                         : fs_replays_join(self->store, captures, joined, report, err);
    if (status != FS_OK) {
        fs_store_destroy(joined);
        return status;
    }
    fs_store *before = self->store;
    self->store = joined;
    fs_store_destroy(before);
    return FS_OK;
}

PyObject *fs_store_object_join_replays(PyObject *object, PyObject *args)
{
    fs_store_object *self = (fs_store_object *)object;
    PyObject *stores, *names = NULL;
    int watched = 0;
    fs_captures captures = {0};
    fs_replay_report report = {0};
    fs_error err;
    if (!PyArg_ParseTuple(args, "O!|pO!:join_replays", &PyTuple_Type, &stores, &watched, &PyDict_Type, &names))
        return NULL;
    if (!fs_store_object_is_stopped(self, "replays") || !fs_store_object_may_change(self)) return NULL;
    if (!are_stores(self, stores)) return NULL;
    if (self->lost != NULL) {
        PyErr_SetString(PyExc_ValueError, "the events of a Profiler are joined when it stops");
        return NULL;
    }
    if (!fs_replays_exist(self->store)) return report_object(&report);
    /* With the GIL: nothing changes the captures meanwhile. */
    PyObject *result = NULL;
    if (add_names(&captures, names))
        result =
            join(self, &captures, stores, watched, &report, &err) == FS_OK ? report_object(&report) : fs_raise(&err);
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
    if (status != FS_OK) {
        fs_store_destroy(joined);
        return status;
    }
    fs_store_destroy(*store);
    *store = joined;
    return FS_OK;
}

/* Watching --------------------------------------------------------------------------------------------------------- */

static PyObject *watch_start(PyObject *module, PyObject *args)
{
    int evict = 0;
    fs_error err;
    fs_status status;
    (void)module;
    if (!PyArg_ParseTuple(args, "|p:watch_start", &evict)) return NULL;
    Py_BEGIN_ALLOW_THREADS status = fs_watch_start(evict, &err);
    Py_END_ALLOW_THREADS if (status != FS_OK) return fs_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *watch_stop(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    fs_watch_stop();
    Py_RETURN_NONE;
}

static PyObject *watch_launches(PyObject *module, PyObject *on)
{
    (void)module;
    int wanted = PyObject_IsTrue(on);
    if (wanted < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS fs_watch_log(wanted);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *watch_forget(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    fs_watch_forget();
    Py_RETURN_NONE;
}

static PyObject *watch_state(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    fs_watch_report report = fs_watch_state();
    return Py_BuildValue("{s:N,s:L,s:L,s:L,s:L,s:L}", "on", PyBool_FromLong(fs_watch_is_on()), "nodes",
                         (long long)report.nodes, "resolved", (long long)report.resolved, "lost",
                         (long long)report.lost, "launches", (long long)report.launches, "launches_lost",
                         (long long)report.launches_lost);
}

static PyObject *watch_is_on(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(fs_watch_is_on());
}

static PyObject *watch_resolve(PyObject *module, PyObject *args)
{
    PyObject *object;
    long long begin, end, shift;
    int64_t found;
    fs_error err;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!LLL:watch_resolve", fs_store_type, &object, &begin, &end, &shift)) return NULL;
    fs_store_object *store = (fs_store_object *)object;
    if (!fs_store_object_is_stopped(store, "events") || !fs_store_object_may_change(store)) return NULL;
    if (fs_watch_resolve(store->store, begin, end, shift, &found, &err) != FS_OK) return fs_raise(&err);
    return PyLong_FromLongLong(found);
}

static PyObject *host_clock(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
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
     "{\"on\", \"nodes\", \"resolved\", \"lost\", \"launches\", \"launches_lost\"}."},
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
