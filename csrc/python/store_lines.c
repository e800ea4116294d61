/* Where the program was, by line, as columns. */
#include "accounting/lines.h"
#include "python/store_type.h"

static PyObject *names_of(const fs_stacks *stacks, const fs_lines *lines, bool inside)
{
    PyObject *list = PyList_New(lines->count);
    for (uint32_t i = 0; list != NULL && i < lines->count; i++) {
        const fs_line *line = &lines->lines[i];
        PyObject *text = fs_text_object(fs_stacks_text(stacks, inside ? line->inside : line->line));
        if (text == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, text);
    }
    return list;
}

static PyObject *groups_of_lines(const fs_lines *lines)
{
    PyObject *list = PyList_New(lines->count);
    for (uint32_t i = 0; list != NULL && i < lines->count; i++)
        PyList_SET_ITEM(list, i, PyUnicode_InternFromString(fs_line_group_names[lines->lines[i].group]));
    return list;
}

/* cause -1: the time; -2: the CPU time. */
static PyObject *times_of(const fs_lines *lines, int cause)
{
    int64_t *times = PyMem_Malloc((lines->count + (size_t)1) * sizeof *times);
    if (times == NULL) return PyErr_NoMemory();
    for (uint32_t i = 0; i < lines->count; i++) {
        const fs_line *line = &lines->lines[i];
        times[i] = cause == -1 ? line->time : cause == -2 ? line->cpu : line->idle[cause];
    }
    PyObject *array = fs_array_of_int64(times, lines->count);
    PyMem_Free(times);
    return array;
}

static PyObject *idle_of_lines(const fs_lines *lines)
{
    PyObject *dict = PyDict_New();
    for (int cause = 0; dict != NULL && cause < FS_IDLE_CAUSE_COUNT; cause++)
        if (!fs_put_column(dict, fs_idle_cause_names[cause], times_of(lines, cause))) Py_CLEAR(dict);
    return dict;
}

static PyObject *sums_of_groups(const fs_lines *lines)
{
    PyObject *dict = PyDict_New();
    for (int i = 0; dict != NULL && i < FS_LINE_GROUP_COUNT; i++) {
        const fs_line_sums *sums = &lines->groups[i];
        if (sums->threads == 0) continue;
        PyObject *tuple = Py_BuildValue("(IILLLL)", sums->processes, sums->threads, (long long)sums->time,
                                        (long long)sums->cpu, (long long)sums->begin, (long long)sums->end);
        if (!fs_put_column(dict, fs_line_group_names[i], tuple)) Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *result_of(const fs_stacks *stacks, const fs_lines *lines)
{
    PyObject *result = PyDict_New();
    bool good =
        result != NULL && fs_put_column(result, "group", groups_of_lines(lines)) &&
        fs_put_column(result, "line", names_of(stacks, lines, false)) &&
        fs_put_column(result, "inside", names_of(stacks, lines, true)) &&
        fs_put_column(result, "time", times_of(lines, -1)) && fs_put_column(result, "cpu", times_of(lines, -2)) &&
        fs_put_column(result, "idle", idle_of_lines(lines)) && fs_put_column(result, "groups", sums_of_groups(lines));
    if (!good) Py_CLEAR(result);
    return result;
}

static fs_status build(const fs_store *store, uint32_t first_step, fs_lines *lines, fs_error *err)
{
    const fs_table_options options = {.brief = true, .works = true};
    fs_table *table = NULL;
    fs_accounting accounting = {0};
    bool idle = fs_store_count(store) > 0 && fs_store_stacks(store)->count > 0;
    fs_status status = idle ? fs_table_build(store, &options, &table, err) : FS_OK;
    if (status == FS_OK && idle) status = fs_accounting_list(&accounting, store, table, err);
    if (status == FS_OK) status = fs_lines_build(lines, store, idle ? &accounting : NULL, first_step, err);
    fs_accounting_clear(&accounting);
    fs_table_destroy(table);
    return status;
}

PyObject *fs_store_object_lines(PyObject *object, PyObject *args)
{
    const fs_store *store = ((fs_store_object *)object)->store;
    unsigned int first_step = 0;
    fs_lines lines = {0};
    fs_error err;
    fs_long_work work;
    if (!PyArg_ParseTuple(args, "|I:lines", &first_step)) return NULL;
    fs_long_work_begin(&work);
    fs_status status = build(store, first_step, &lines, &err);
    fs_long_work_end(&work);
    PyObject *result = status == FS_OK ? result_of(fs_store_stacks(store), &lines) : fs_raise(&err);
    fs_lines_clear(&lines);
    return result;
}
