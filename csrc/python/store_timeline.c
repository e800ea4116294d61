/* Store's timeline and changes of memory, in columns of raw numbers. */
#include "python/store_parts.h"
#include "python/store_type.h"
#include "store/signature.h"
#include "timeline/memory.h"
#include "timeline/timeline.h"

static PyObject *number_of(uint32_t id)
{
    return PyLong_FromLongLong(id == FS_NONE ? -1 : (long long)id);
}

static PyObject *launch_tuple(const fs_store *store, uint32_t signature)
{
    fs_launch launch;
    if (signature == FS_NONE || !fs_launch_decode(fs_store_signature_bytes(store, signature).bytes, &launch))
        Py_RETURN_NONE;
    if (launch.grid[0] == 0) Py_RETURN_NONE;
    return Py_BuildValue("((kkk)(kkk)kkk)", (unsigned long)launch.grid[0], (unsigned long)launch.grid[1],
                         (unsigned long)launch.grid[2], (unsigned long)launch.block[0], (unsigned long)launch.block[1],
                         (unsigned long)launch.block[2], (unsigned long)launch.registers,
                         (unsigned long)launch.static_shared + launch.dynamic_shared, (unsigned long)launch.graph);
}

/* (kind, name or None, row or -1, launch or None) of each label. */
static PyObject *label_list(const fs_store *store, const fs_timeline *timeline)
{
    PyObject *list = PyList_New(timeline->label_count);
    for (uint32_t i = 0; list != NULL && i < timeline->label_count; i++) {
        const fs_timeline_label *label = &timeline->labels[i];
        PyObject *name =
            label->name == FS_NONE ? Py_NewRef(Py_None) : fs_text_object(fs_store_name_text(store, label->name));
        PyObject *tuple = Py_BuildValue("(sNNN)", fs_event_kind_names[label->kind], name, number_of(label->row),
                                        launch_tuple(store, label->signature));
        if (tuple == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, tuple);
    }
    return list;
}

/* (role, device, thread or stream or None, depth, number of blocks) of each lane. */
static PyObject *lane_list(const fs_timeline *timeline)
{
    PyObject *list = PyList_New(timeline->lane_count);
    for (uint32_t i = 0; list != NULL && i < timeline->lane_count; i++) {
        const fs_timeline_lane *lane = &timeline->lanes[i];
        PyObject *id = lane->has_id ? PyLong_FromUnsignedLongLong(lane->id) : Py_NewRef(Py_None);
        PyObject *tuple = Py_BuildValue("(siNik)", fs_lane_role_names[lane->role], (int)lane->device, id,
                                        (int)lane->depth, (unsigned long)lane->count);
        if (tuple == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, tuple);
    }
    return list;
}

/* (name, begin, end) of each step of the program. */
static PyObject *step_list(const fs_store *store, const fs_steps *steps)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < steps->count; i++) {
        const fs_step *step = &steps->steps[i];
        if (step->name == FS_NONE) continue;
        PyObject *tuple = Py_BuildValue("(NLL)", fs_text_object(fs_store_name_text(store, step->name)),
                                        (long long)step->begin, (long long)step->end);
        if (tuple == NULL || PyList_Append(list, tuple) < 0) Py_CLEAR(list);
        Py_XDECREF(tuple);
    }
    return list;
}

static PyObject *result_of(const fs_store *store, const fs_timeline *timeline, const fs_accounting *accounting)
{
    int64_t begin, end;
    fs_store_window(store, &begin, &end);
    PyObject *result =
        Py_BuildValue("{s:N,s:N,s:N,s:L,s:L,s:k,s:k,s:k,s:k,s:k,s:k}", "lanes", lane_list(timeline), "labels",
                      label_list(store, timeline), "steps", step_list(store, &accounting->steps), "begin",
                      (long long)begin, "merged_ns", (long long)timeline->merged_ns, "events",
                      (unsigned long)timeline->event_count, "idle", (unsigned long)timeline->idle_count, "open",
                      (unsigned long)timeline->open_count, "unplaced", (unsigned long)timeline->unplaced_count, "deep",
                      (unsigned long)timeline->deep_count, "memory", (unsigned long)timeline->memory_count);
    bool good = result != NULL;
#define PUT_COLUMN(type, name, prose)                                                    \
    good = good && fs_put_column(result, #name,                                          \
                                 PyBytes_FromStringAndSize((const char *)timeline->name, \
                                                           (Py_ssize_t)(timeline->block_count * sizeof(type))));
    FS_TIMELINE_COLUMN_LIST(PUT_COLUMN)
#undef PUT_COLUMN
    if (!good) Py_CLEAR(result);
    return result;
}

static fs_status build(const fs_store *store, const fs_table_options *options, uint32_t limit, fs_table **table,
                       fs_accounting *accounting, fs_timeline *timeline, fs_error *err)
{
    FS_TRY(fs_table_build(store, options, table, err));
    FS_TRY(fs_accounting_list(accounting, store, *table, err));
    return fs_timeline_build(timeline, store, *table, accounting, limit, err);
}

PyObject *fs_store_object_timeline(PyObject *object, PyObject *args)
{
    fs_store_object *self = (fs_store_object *)object;
    int by_shape;
    Py_ssize_t stack_n, limit;
    PyObject *groupings;
    fs_table_options options = {.brief = true, .works = true, .calls = true};
    if (!PyArg_ParseTuple(args, "pnO!n:timeline", &by_shape, &stack_n, &PyTuple_Type, &groupings, &limit)) return NULL;
    if (stack_n < 0 || limit < 1)
        return PyErr_Format(PyExc_ValueError, "a timeline has at least 1 block and 0 frames; got %zd and %zd", limit,
                            stack_n);
    options.by_shape = by_shape;
    options.stack_depth = stack_n < UINT32_MAX ? (uint32_t)stack_n : UINT32_MAX;
    if (!fs_take_groupings(groupings, &options.groupings)) return NULL;
    fs_table *table = NULL;
    fs_accounting accounting = {0};
    fs_timeline timeline = {0};
    fs_error err;
    fs_long_work work;
    fs_long_work_begin(&work);
    uint32_t most = limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX;
    fs_status status = build(self->store, &options, most, &table, &accounting, &timeline, &err);
    fs_long_work_end(&work);
    PyObject *result = status == FS_OK ? result_of(self->store, &timeline, &accounting) : fs_raise(&err);
    fs_timeline_clear(&timeline);
    fs_accounting_clear(&accounting);
    fs_table_destroy(table);
    return result;
}

static PyObject *changes_of(const fs_store *store, const fs_memory_changes *changes)
{
    int64_t begin, end;
    fs_store_window(store, &begin, &end);
    PyObject *result =
        Py_BuildValue("{s:L,s:k}", "begin", (long long)begin, "unplaced", (unsigned long)changes->unplaced);
    bool good = result != NULL;
#define PUT_COLUMN(type, name, prose)                                                   \
    good = good && fs_put_column(result, #name,                                         \
                                 PyBytes_FromStringAndSize((const char *)changes->name, \
                                                           (Py_ssize_t)(changes->count * sizeof(type))));
    FS_MEMORY_COLUMN_LIST(PUT_COLUMN)
#undef PUT_COLUMN
    if (!good) Py_CLEAR(result);
    return result;
}

PyObject *fs_store_object_memory(PyObject *object, PyObject *args)
{
    fs_store_object *self = (fs_store_object *)object;
    int by_shape;
    fs_table_options options = {.brief = true, .calls = true};
    if (!PyArg_ParseTuple(args, "p:memory", &by_shape)) return NULL;
    options.by_shape = by_shape;
    fs_table *table = NULL;
    fs_memory_changes changes = {0};
    fs_error err;
    fs_long_work work;
    fs_long_work_begin(&work);
    fs_status status = fs_table_build(self->store, &options, &table, &err);
    if (status == FS_OK) status = fs_memory_list(&changes, self->store, table, &err);
    fs_long_work_end(&work);
    PyObject *result = status == FS_OK ? changes_of(self->store, &changes) : fs_raise(&err);
    fs_memory_clear(&changes);
    fs_table_destroy(table);
    return result;
}
