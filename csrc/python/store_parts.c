/* One row of part_values for each grouping that has a value of its own: a grouping is added there, and in
 * FS_GROUPING_LIST. */
#include "python/store_parts.h"

#include <string.h>

static const char *const grouping_names[FS_GROUPING_COUNT] = {
#define GROUPING_NAME(NAME, name, prose) [FS_GROUPING_##NAME] = #name,
    FS_GROUPING_LIST(GROUPING_NAME)
#undef GROUPING_NAME
};

bool fs_take_groupings(PyObject *names, uint32_t *groupings)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i));
        uint32_t before = *groupings;
        if (name == NULL) return false;
        for (int j = 0; j < FS_GROUPING_COUNT; j++)
            if (strcmp(grouping_names[j], name) == 0) *groupings |= 1u << j;
        if (*groupings != before) continue;
        PyErr_Format(PyExc_ValueError, "rows cannot be grouped by %R", PyTuple_GET_ITEM(names, i));
        return false;
    }
    return true;
}

static PyObject *name_of(const fs_store *store, uint32_t name)
{
    return name != FS_NONE ? fs_text_object(fs_store_name_text(store, name)) : Py_NewRef(Py_None);
}

typedef PyObject *(*part_value)(const fs_store *store, const fs_table_part *part);

static PyObject *step_of(const fs_store *store, const fs_table_part *part)
{
    return name_of(store, part->step);
}

static PyObject *line_of(const fs_store *store, const fs_table_part *part)
{
    return name_of(store, part->line);
}

static PyObject *stream_of(const fs_store *store, const fs_table_part *part)
{
    if (part->lane == FS_NONE) return Py_NewRef(Py_None);
    fs_lane lane = fs_store_lane(store, part->lane);
    return Py_BuildValue("(iK)", lane.device, (unsigned long long)lane.id);
}

static PyObject *module_of(const fs_store *store, const fs_table_part *part)
{
    (void)store;
    return part->module != FS_NONE ? PyLong_FromUnsignedLong(part->module) : Py_NewRef(Py_None);
}

static const part_value part_values[FS_GROUPING_COUNT] = {
    [FS_GROUPING_STEP] = step_of,
    [FS_GROUPING_STREAM] = stream_of,
    [FS_GROUPING_LINE] = line_of,
    [FS_GROUPING_MODULE] = module_of,
};

static PyObject *values_of(const fs_store *store, const fs_table *table, part_value value_of)
{
    PyObject *list = PyList_New(table->row_count);
    for (uint32_t i = 0; list != NULL && i < table->row_count; i++) {
        fs_table_part part = fs_table_part_of(table, &table->rows[i]);
        PyObject *value = value_of(store, &part);
        if (value == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, value);
    }
    return list;
}

static PyObject *modules_of(const fs_store *store, const fs_table *table)
{
    PyObject *list = PyList_New(table->module_count);
    for (uint32_t i = 0; list != NULL && i < table->module_count; i++) {
        const fs_table_module *module = &table->modules[i];
        long long parent = module->parent != FS_NONE ? (long long)module->parent : -1;
        PyObject *value = Py_BuildValue("(NLk)", name_of(store, module->name), parent, (unsigned long)module->calls);
        if (value == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, value);
    }
    return list;
}

bool fs_put_parts(PyObject *dict, const fs_store *store, const fs_table *table, uint32_t groupings)
{
    bool good = true;
    for (int i = 0; good && i < FS_GROUPING_COUNT; i++) {
        if ((groupings >> i & 1) == 0 || part_values[i] == NULL) continue;
        good = fs_put_column(dict, grouping_names[i], values_of(store, table, part_values[i]));
    }
    if (!good || (groupings >> FS_GROUPING_MODULE & 1) == 0) return good;
    return fs_put_column(dict, "modules", modules_of(store, table));
}
