/* Store's events: each one of a store, as columns of integers. */
#include "python/store_type.h"
#include "store/event.h"

static int64_t id_of(uint32_t id)
{
    return id == FS_NONE ? -1 : (int64_t)id;
}

/* X(name, value): of `event`. Ids that are not known are -1, times FS_MISSING; a resource is a thread's id or a stream.
 */
#define EVENT_VALUES(X)                                             \
    X(kind, event.kind)                                             \
    X(name, id_of(event.name))                                      \
    X(start, event.start)                                           \
    X(duration, event.duration)                                     \
    X(bytes, event.bytes)                                           \
    X(parent, id_of(event.parent))                                  \
    X(launcher, id_of(event.launcher))                              \
    X(correlation, id_of(event.correlation))                        \
    X(device, event.device)                                         \
    X(on_device, fs_event_lies_on_device(event.kind, event.device)) \
    X(resource, event.lane == FS_NONE ? -1 : (int64_t)fs_store_lane(store, event.lane).id)

enum {
#define VALUE_ENUM(name, value) VALUE_##name,
    EVENT_VALUES(VALUE_ENUM)
#undef VALUE_ENUM
        VALUE_COUNT
};

static const char *const value_names[] = {
#define VALUE_NAME(name, value) #name,
    EVENT_VALUES(VALUE_NAME)
#undef VALUE_NAME
};

/* Column after column, `count` long. */
static fs_status take_values(const fs_store *store, uint32_t count, int64_t *values, fs_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        FS_POLL(i, err);
        fs_event event;
        fs_store_get(store, i, &event);
#define TAKE_VALUE(name, value) values[(size_t)VALUE_##name * count + i] = value;
        EVENT_VALUES(TAKE_VALUE)
#undef TAKE_VALUE
    }
    return FS_OK;
}

static PyObject *name_list(const fs_store *store)
{
    uint32_t count = fs_store_name_count(store);
    PyObject *list = PyList_New(count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *text = fs_text_object(fs_store_name_text(store, i));
        if (text == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, text);
    }
    return list;
}

PyObject *fs_store_object_names(PyObject *object, PyObject *unused)
{
    (void)unused;
    return name_list(((fs_store_object *)object)->store);
}

PyObject *fs_store_object_events(PyObject *object, PyObject *unused)
{
    (void)unused;
    fs_store_object *self = (fs_store_object *)object;
    uint32_t count = fs_store_count(self->store);
    int64_t *values = PyMem_Malloc(((size_t)VALUE_COUNT * count + 1) * sizeof *values);
    if (values == NULL) return PyErr_NoMemory();
    fs_error err;
    fs_long_work work;
    fs_long_work_begin(&work);
    fs_status status = take_values(self->store, count, values, &err);
    fs_long_work_end(&work);
    if (status != FS_OK) {
        PyMem_Free(values);
        return fs_raise(&err);
    }
    PyObject *columns = PyDict_New();
    bool good = columns != NULL;
    for (size_t i = 0; good && i < VALUE_COUNT; i++) {
        good = fs_put_column(columns, value_names[i], fs_array_of_int64(values + i * count, count));
    }
    PyMem_Free(values);
    int64_t begin, end;
    fs_store_window(self->store, &begin, &end);
    PyObject *names = good ? name_list(self->store) : NULL;
    PyObject *kinds = names != NULL ? fs_names_object(fs_event_kind_names, FS_EVENT_KIND_COUNT) : NULL;
    if (kinds == NULL) {
        Py_XDECREF(columns);
        Py_XDECREF(names);
        return NULL;
    }
    return Py_BuildValue("(NNNL)", columns, names, kinds, (long long)begin);
}
