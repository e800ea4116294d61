/* Store.join_replays: the ops of captured graphs for the kernels of their replays. */
#include "python/store_type.h"
#include "sources/graphs/replays.h"

static PyObject *report_object(const fs_replay_report *report)
{
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "graphs", (long long)report->graphs, "launches",
                         (long long)report->launches, "works", (long long)report->works, "matched",
                         (long long)report->matched, "owned", (long long)report->owned, "unseen",
                         (long long)report->unseen, "ambiguous", (long long)report->ambiguous, "estimated",
                         (long long)report->estimated);
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

PyObject *fs_store_object_join_replays(PyObject *object, PyObject *args)
{
    fs_store_object *self = (fs_store_object *)object;
    PyObject *stores;
    fs_captures captures = {0};
    fs_replay_report report = {0};
    fs_store *joined = NULL;
    fs_error err;
    if (!PyArg_ParseTuple(args, "O!:join_replays", &PyTuple_Type, &stores)) return NULL;
    if (!fs_store_object_is_stopped(self, "replays") || !fs_store_object_may_change(self)) return NULL;
    if (!are_stores(self, stores)) return NULL;
    if (!fs_replays_exist(self->store)) return report_object(&report);
    fs_status status = fs_store_create(&joined, &err); /* with the GIL: nothing changes the captures meanwhile */
    if (status == FS_OK) status = add_captures(&captures, stores, &err);
    if (status == FS_OK) status = fs_replays_join(self->store, &captures, joined, &report, &err);
    fs_captures_clear(&captures);
    if (status != FS_OK) {
        fs_store_destroy(joined);
        return fs_raise(&err);
    }
    fs_store *before = self->store;
    self->store = joined;
    fs_store_destroy(before);
    return report_object(&report);
}
