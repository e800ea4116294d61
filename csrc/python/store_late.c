/* Store's calls by name, and what its host did before late launches. Names are chosen by a byte for each, so that
 * patterns of names stay in Python. */
#include "accounting/late.h"

#include "base/memory.h"
#include "python/arrays.h"
#include "python/store_type.h"

#define CALL_FIELD(type, name, prose) FS_ARRAY_FIELD(fs_named_call, type, name)
#define SUM_FIELD(type, name, prose) FS_ARRAY_FIELD(fs_late_sum, type, name)
static const fs_array_field call_fields[] = {FS_NAMED_CALL_LIST(CALL_FIELD)};
static const fs_array_field sum_fields[] = {FS_LATE_SUM_LIST(SUM_FIELD)};

/* Check that there is a flag for each name, and `more`. */
static bool are_flags(const fs_store *store, Py_ssize_t size, Py_ssize_t more)
{
    Py_ssize_t wanted = (Py_ssize_t)fs_store_name_count(store) + more;
    if (size == wanted) return true;
    PyErr_Format(PyExc_ValueError, "%zd flags for %zd names: there must be as many", size, wanted);
    return false;
}

static PyObject *sums_of(fs_status status, fs_late_sums *sums, const fs_error *err)
{
    PyObject *result = status == FS_OK ? FS_ARRAYS(sums->items, sums->count, sum_fields) : fs_raise(err);
    fs_free(sums->items);
    return result;
}

/* What is asked of calls by name besides their times. */
enum { ASK_NOTHING, ASK_IDLE, ASK_IDLE_CPU, ASK_WAITING };

static PyObject *calls_of(const fs_store *store, const uint8_t *names, Py_ssize_t size, int asked)
{
    fs_named_calls calls = {0};
    fs_error err;
    fs_long_work work;
    if (!are_flags(store, size, 0)) return NULL;
    fs_long_work_begin(&work);
    fs_status status = asked == ASK_NOTHING   ? fs_named_calls_find(&calls, store, names, &err)
                       : asked == ASK_WAITING ? fs_waiting_calls_find(&calls, store, names, &err)
                                              : fs_idle_calls_find(&calls, store, names, asked == ASK_IDLE, &err);
    fs_long_work_end(&work);
    PyObject *result = status == FS_OK ? FS_ARRAYS(calls.items, calls.count, call_fields) : fs_raise(&err);
    fs_free(calls.items);
    return result;
}

PyObject *fs_store_object_named_calls(PyObject *object, PyObject *args)
{
    const uint8_t *names;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "y#:named_calls", &names, &size)) return NULL;
    return calls_of(((fs_store_object *)object)->store, names, size, ASK_NOTHING);
}

PyObject *fs_store_object_idle_calls(PyObject *object, PyObject *args)
{
    const uint8_t *names;
    Py_ssize_t size;
    int on_device;
    if (!PyArg_ParseTuple(args, "y#p:idle_calls", &names, &size, &on_device)) return NULL;
    return calls_of(((fs_store_object *)object)->store, names, size, on_device ? ASK_IDLE : ASK_IDLE_CPU);
}

PyObject *fs_store_object_waiting_calls(PyObject *object, PyObject *args)
{
    const uint8_t *names;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "y#:waiting_calls", &names, &size)) return NULL;
    return calls_of(((fs_store_object *)object)->store, names, size, ASK_WAITING);
}

PyObject *fs_store_object_late_within(PyObject *object, PyObject *args)
{
    const fs_store *store = ((fs_store_object *)object)->store;
    const uint8_t *names;
    Py_ssize_t size;
    unsigned int first_step;
    fs_late_sums sums;
    fs_error err;
    fs_long_work work;
    if (!PyArg_ParseTuple(args, "Iy#:late_within", &first_step, &names, &size) || !are_flags(store, size, 0))
        return NULL;
    fs_long_work_begin(&work);
    fs_status status = fs_late_within(&sums, store, first_step, names, &err);
    fs_long_work_end(&work);
    return sums_of(status, &sums, &err);
}

PyObject *fs_store_object_late_spent(PyObject *object, PyObject *args)
{
    const fs_store *store = ((fs_store_object *)object)->store;
    Py_ssize_t ops, other;
    fs_late_request request;
    long long least;
    fs_late_sums sums;
    fs_error err;
    fs_long_work work;
    if (!PyArg_ParseTuple(args, "ILy#y#:late_spent", &request.first_step, &least, &request.ops, &ops, &request.other,
                          &other))
        return NULL;
    if (!are_flags(store, ops, 1) || !are_flags(store, other, 0)) return NULL;
    request.least = least;
    fs_long_work_begin(&work);
    fs_status status = fs_late_spent(&sums, store, &request, &err);
    fs_long_work_end(&work);
    return sums_of(status, &sums, &err);
}
