/* A timeline and changes of memory as dicts; their columns become NumPy's arrays without a copy. */
#include "python/store_timeline.h"

#include "python/core.h"
#include "store/signature.h"

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

/* Put a column into a dict, and take its memory. */
#define PUT_COLUMN(result, of, count, type, name) \
    (fs_put_column(result, #name, fs_array_taking((of)->name, (Py_ssize_t)(count), FS_ARRAY_TYPE(type))))

PyObject *fs_timeline_object(const fs_store *store, fs_timeline *timeline, const fs_accounting *accounting)
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
#define TAKE_COLUMN(type, name, prose)                                          \
    if (good) {                                                                 \
        good = PUT_COLUMN(result, timeline, timeline->block_count, type, name); \
        timeline->name = NULL;                                                  \
    }
    FS_TIMELINE_COLUMN_LIST(TAKE_COLUMN)
#undef TAKE_COLUMN
    if (!good) Py_CLEAR(result);
    return result;
}

PyObject *fs_memory_changes_object(const fs_store *store, fs_memory_changes *changes)
{
    int64_t begin, end;
    fs_store_window(store, &begin, &end);
    PyObject *result =
        Py_BuildValue("{s:L,s:k}", "begin", (long long)begin, "unplaced", (unsigned long)changes->unplaced);
    bool good = result != NULL;
#define TAKE_COLUMN(type, name, prose)                                  \
    if (good) {                                                         \
        good = PUT_COLUMN(result, changes, changes->count, type, name); \
        changes->name = NULL;                                           \
    }
    FS_MEMORY_COLUMN_LIST(TAKE_COLUMN)
#undef TAKE_COLUMN
    if (!good) Py_CLEAR(result);
    return result;
}
