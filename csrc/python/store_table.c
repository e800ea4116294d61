/* Store's table: the rows of a store as Python's lists and arrays. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "accounting/accounting.h"
#include "base/clock.h"
#include "python/store_type.h"
#include "python/roofline.h"
#include "python/store_parts.h"
#include "python/store_timeline.h"
#include "store/accelerator.h"
#include "store/signature.h"
#include "store/torch_signature.h"
#include "table/table.h"
#include "work/category.h"

/* Peaks by device: {"cpu": …, "cuda:0": …}, as Store.device_name() calls them ----------------------------------- */

static bool take_device_peaks(PyObject *name, PyObject *values, fs_peaks *peaks, fs_table_options *options)
{
    const char *text = PyUnicode_AsUTF8(name);
    int index = -1;
    if (text == NULL || !fs_take_peaks(values, peaks)) return false;
    if (strcmp(text, "cpu") == 0) options->cpu_peaks = peaks;
    else if (sscanf(text, "%*[a-z]:%d", &index) == 1 && index >= 0 && index < FS_MAX_CUDA_DEVICES) {
        options->cuda_peaks[index] = peaks;
    }
    return true;
}

/* Reading a device's peaks may run Python code that changes the dict, so iterate over a list of its items. */
bool fs_take_all_peaks(PyObject *values, fs_table_request *request)
{
    PyObject *items = PyDict_Items(values);
    Py_ssize_t count = items != NULL ? PyList_GET_SIZE(items) : 0;
    if (count > FS_MAX_CUDA_DEVICES + 1) count = FS_MAX_CUDA_DEVICES + 1;
    bool good = items != NULL;
    for (Py_ssize_t i = 0; good && i < count; i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        good = take_device_peaks(PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1), &request->peaks[i],
                                 &request->options);
    }
    Py_XDECREF(items);
    return good;
}

/* The table's columns ------------------------------------------------------------------------------------------- */

/* What a table shows of an argument. */
typedef struct {
    const int64_t *shape;
    uint32_t ndim;
    const char *dtype;
} shown_argument;

static PyObject *shape_object(const shown_argument *argument)
{
    PyObject *shape = PyList_New(argument->ndim);
    for (uint32_t d = 0; shape != NULL && d < argument->ndim; d++) {
        PyObject *size = PyLong_FromLongLong(argument->shape[d]);
        if (size == NULL) Py_CLEAR(shape);
        else PyList_SET_ITEM(shape, d, size);
    }
    return shape;
}

static PyObject *dtype_object(const shown_argument *argument)
{
    return PyUnicode_InternFromString(argument->dtype);
}

typedef PyObject *(*argument_value)(const shown_argument *);

static bool append_argument(PyObject *list, argument_value value_of, shown_argument argument)
{
    PyObject *value = value_of(&argument);
    bool good = value != NULL && PyList_Append(list, value) == 0;
    Py_XDECREF(value);
    return good;
}

/* One value for each argument of the op. */
static PyObject *argument_list(const fs_store *store, const fs_row *row, argument_value value_of)
{
    PyObject *list = PyList_New(0);
    if (list == NULL || row->signature == FS_NONE) return list;
    fs_signature signature;
    fs_torch_call torch;
    fs_span bytes = fs_store_signature_bytes(store, row->signature);
    fs_signature_decode(bytes.bytes, bytes.size, &signature);
    fs_torch_decode(bytes.bytes, bytes.size, &torch);
    bool good = true;
    for (int i = 0; good && i < signature.argument_count; i++) {
        const fs_argument *argument = &signature.arguments[i];
        if (argument->role == FS_ARGUMENT_OUT) continue;
        shown_argument shown = {argument->shape, argument->ndim, fs_dtypes[argument->dtype].name};
        good = append_argument(list, value_of, shown);
    }
    for (uint32_t i = 0; good && i < torch.count; i++) {
        const fs_torch_tensor *tensor = &torch.arguments[i].tensor; /* of no dims where it is none */
        bool is_tensor = torch.arguments[i].type == FS_TORCH_TENSOR;
        const char *dtype = is_tensor ? fs_torch_dtypes[tensor->dtype].name : fs_dtypes[FS_DTYPE_NONE].name;
        good = append_argument(list, value_of, (shown_argument){tensor->shape, tensor->ndim, dtype});
    }
    if (!good) Py_CLEAR(list);
    return list;
}

static PyObject *key_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return fs_text_object(row->key);
}

static PyObject *overload_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return row->overload != NULL ? fs_text_object(row->overload) : PyUnicode_InternFromString("");
}

static PyObject *device_type_of(const fs_store *store, const fs_row *row)
{
    return PyUnicode_InternFromString(row->on_device ? fs_accelerators[fs_store_accelerator(store)].type : "cpu");
}

static PyObject *annotation_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return PyBool_FromLong(row->is_user_annotation);
}

static PyObject *count_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return PyLong_FromLongLong(row->count);
}

static PyObject *top_level_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return PyBool_FromLong(row->top_level);
}

static PyObject *shapes_of(const fs_store *store, const fs_row *row)
{
    return argument_list(store, row, shape_object);
}

static PyObject *dtypes_of(const fs_store *store, const fs_row *row)
{
    return argument_list(store, row, dtype_object);
}

static PyObject *bound_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return PyUnicode_InternFromString(fs_bounds[row->bound].name);
}

static PyObject *source_object(fs_source source)
{
    return source != FS_SOURCE_NONE ? PyUnicode_InternFromString(fs_source_names[source]) : Py_NewRef(Py_None);
}

static PyObject *bytes_source_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return source_object(row->bytes_source);
}

static PyObject *flops_source_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return source_object(row->flops_source);
}

static PyObject *unit_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return fs_unit_object(row->roof.unit);
}

static PyObject *timing_of(const fs_store *store, const fs_row *row)
{
    (void)store;
    return PyUnicode_InternFromString(fs_timing_names[row->timing]);
}

/* The names of the frames that the row's events lie in, innermost first. */
static PyObject *stack_of(const fs_store *store, const fs_table *table, const fs_row *row)
{
    uint32_t depth;
    const uint32_t *names = fs_table_stack(table, row, &depth);
    PyObject *stack = PyList_New(depth);
    for (uint32_t i = 0; stack != NULL && i < depth; i++) {
        PyObject *text = fs_text_object(fs_store_name_text(store, names[i]));
        if (text == NULL) Py_CLEAR(stack);
        else PyList_SET_ITEM(stack, i, text);
    }
    return stack;
}

static PyObject *stacks_of(const fs_store *store, const fs_table *table)
{
    PyObject *list = PyList_New(table->row_count);
    for (uint32_t i = 0; list != NULL && i < table->row_count; i++) {
        PyObject *stack = stack_of(store, table, &table->rows[i]);
        if (stack == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, stack);
    }
    return list;
}

typedef PyObject *(*row_value)(const fs_store *store, const fs_row *row);

static PyObject *list_of(const fs_store *store, const fs_table *table, row_value value_of)
{
    PyObject *list = PyList_New(table->row_count);
    for (uint32_t i = 0; list != NULL && i < table->row_count; i++) {
        PyObject *value = value_of(store, &table->rows[i]);
        if (value == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, value);
    }
    return list;
}

/* The categories of the rows, by their names: names recur in rows of several shapes, so the last few are kept. */
static PyObject *categories_of(const fs_table *table)
{
    enum { KEPT = 256 };
    struct {
        const char *key;
        bool on_device;
        fs_category category;
    } kept[KEPT] = {{NULL, false, FS_CATEGORY_OTHER}};
    PyObject *list = PyList_New(table->row_count);
    for (uint32_t i = 0; list != NULL && i < table->row_count; i++) {
        const fs_row *row = &table->rows[i];
        fs_category category = (fs_category)row->category;
        size_t place = ((uintptr_t)row->key >> 3 ^ (uintptr_t)row->key >> 11) % KEPT;
        if (category == FS_CATEGORY_OF_FAMILY &&
            (kept[place].key != row->key || kept[place].on_device != row->on_device)) {
            kept[place].key = row->key;
            kept[place].on_device = row->on_device;
            kept[place].category = fs_category_of(row->key, row->on_device);
        }
        if (category == FS_CATEGORY_OF_FAMILY) category = kept[place].category;
        PyObject *name = PyUnicode_InternFromString(fs_categories[category].name);
        if (name == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, name);
    }
    return list;
}

/* One empty list for all rows. */
static PyObject *list_of_nothing(const fs_table *table)
{
    PyObject *nothing = PyList_New(0), *list = nothing ? PyList_New(table->row_count) : NULL;
    for (uint32_t i = 0; list != NULL && i < table->row_count; i++) PyList_SET_ITEM(list, i, Py_NewRef(nothing));
    Py_XDECREF(nothing);
    return list;
}

/* The numeric columns: where a row holds them, and how they are shown. */
enum {
#define UNIT_ENUM(unit, text, divisor) UNIT_##unit,
    FS_COLUMN_UNITS(UNIT_ENUM)
#undef UNIT_ENUM
};

static const struct {
    const char *text;
    double divisor;
} column_units[] = {
#define UNIT_ROW(unit, text, divisor) [UNIT_##unit] = {text, divisor},
    FS_COLUMN_UNITS(UNIT_ROW)
#undef UNIT_ROW
};

static const struct {
    const char *name, *prose;
    size_t offset;
    int unit;
    bool integer;
} numeric_columns[] = {
#define FS_COLUMN(type, name, unit, prose) \
    {#name, prose, offsetof(fs_row, name), UNIT_##unit, _Generic((type)0, int64_t: true, double: false)},
#include "table/columns.def"
#undef FS_COLUMN
};
enum { NUMERIC_COLUMNS = sizeof numeric_columns / sizeof *numeric_columns };

/* What torch's arithmetic adds to a total time: where the row has it, or -1. */
static ptrdiff_t rounding_of(int column)
{
    size_t offset = numeric_columns[column].offset;
    if (offset == offsetof(fs_row, cpu_time_total)) return offsetof(fs_row, cpu_rounding);
    return offset == offsetof(fs_row, device_time_total) ? (ptrdiff_t)offsetof(fs_row, device_rounding) : -1;
}

/* Integers stay integers unless their unit is scaled: ns become µs. */
static bool stays_integer(int column)
{
    return numeric_columns[column].integer && column_units[numeric_columns[column].unit].divisor == 1;
}

static PyObject *numbers_of(const fs_table *table, int column, ptrdiff_t rounding)
{
    Py_ssize_t count = table->row_count;
    double divisor = column_units[numeric_columns[column].unit].divisor;
    bool integer = numeric_columns[column].integer, stays = stays_integer(column);
    union {
        int64_t whole;
        double real;
    } *values = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *values);
    if (values == NULL) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        const fs_row *row = &table->rows[i];
        memcpy(&values[i], (const char *)row + numeric_columns[column].offset, sizeof *values);
        if (stays) continue;
        values[i].real = (integer ? (double)values[i].whole : values[i].real) / divisor;
        if (rounding >= 0) values[i].real += *(const double *)(const void *)((const char *)row + rounding);
    }
    PyObject *numbers = fs_numbers_object(values, count, stays);
    PyMem_Free(values);
    return numbers;
}

static PyObject *columns_of(const fs_store *store, const fs_table *table, const fs_table_options *options)
{
    bool by_shape = options->by_shape, by_dtype = by_shape || (options->groupings >> FS_GROUPING_DTYPE & 1) != 0;
    PyObject *columns = PyDict_New();
    if (columns == NULL) return NULL;
    bool good =
        fs_put_column(columns, "key", list_of(store, table, key_of)) &&
        fs_put_column(columns, "overload_name", list_of(store, table, overload_of)) &&
        fs_put_column(columns, "device_type", list_of(store, table, device_type_of)) &&
        fs_put_column(columns, "is_user_annotation", list_of(store, table, annotation_of)) &&
        fs_put_column(columns, "count", list_of(store, table, count_of)) &&
        fs_put_column(columns, "input_shapes", by_shape ? list_of(store, table, shapes_of) : list_of_nothing(table)) &&
        fs_put_column(columns, "input_dtypes", by_dtype ? list_of(store, table, dtypes_of) : list_of_nothing(table)) &&
        fs_put_column(columns, "unit", list_of(store, table, unit_of)) &&
        fs_put_column(columns, "bytes_source", list_of(store, table, bytes_source_of)) &&
        fs_put_column(columns, "flops_source", list_of(store, table, flops_source_of)) &&
        fs_put_column(columns, "bound", list_of(store, table, bound_of)) &&
        fs_put_column(columns, "timing_source", list_of(store, table, timing_of));
    for (int i = 0; good && i < NUMERIC_COLUMNS; i++) {
        good = fs_put_column(columns, numeric_columns[i].name, numbers_of(table, i, rounding_of(i)));
    }
    good = good && fs_put_column(columns, "category", categories_of(table));
    if (!good) Py_CLEAR(columns);
    return columns;
}

/* The accounting, and the total times as an Analysis reads them: without torch's rounding. */
static PyObject *accounting_of(const fs_store *store, const fs_table *table, const fs_accounting *accounting)
{
    PyObject *result = fs_accounting_object(store, accounting), *totals = result != NULL ? PyDict_New() : NULL;
    bool good = totals != NULL;
    for (int i = 0; good && i < NUMERIC_COLUMNS; i++)
        if (rounding_of(i) >= 0) good = fs_put_column(totals, numeric_columns[i].name, numbers_of(table, i, -1));
    if (good) good = PyDict_SetItemString(result, "totals", totals) == 0;
    Py_XDECREF(totals);
    if (!good) Py_CLEAR(result);
    return result;
}

/* What is computed for one call of table(). */
typedef struct {
    fs_table_request request;
    bool accounts;
    bool of_window;     /* and not of the steps */
    int64_t begin, end; /* of the window, in ns since the profile began */
    uint32_t blocks;    /* of the timeline; 0: none */
    fs_table *table;
    fs_accounting accounting;
    fs_timeline timeline;
    fs_memory_changes changes;
    double seconds; /* how long grouping took */
} made;

static fs_status make(made *all, const fs_store *store, fs_error *err)
{
    int64_t began = fs_clock_now();
    FS_TRY(fs_table_build(store, &all->request.options, &all->table, err));
    bool draws = all->blocks > 0;
    if (draws) FS_TRY(fs_accounting_list(&all->accounting, store, all->table, err));
    else if (all->of_window)
        FS_TRY(fs_accounting_of_window(&all->accounting, store, all->table, all->begin, all->end, err));
    else if (all->accounts) FS_TRY(fs_accounting_build(&all->accounting, store, all->table, err));
    all->seconds = (double)(fs_clock_now() - began) / 1e9;
    if (draws) FS_TRY(fs_timeline_build(&all->timeline, store, all->table, &all->accounting, all->blocks, err));
    return draws && all->table->has_memory ? fs_memory_list(&all->changes, store, all->table, err) : FS_OK;
}

static void clear(made *all)
{
    fs_memory_clear(&all->changes);
    fs_timeline_clear(&all->timeline);
    fs_accounting_clear(&all->accounting);
    fs_table_destroy(all->table);
    PyMem_Free(all);
}

/* (columns, meta) */
static PyObject *result_of(fs_store_object *self, made *all)
{
    const fs_store *store = self->store;
    const fs_table *table = all->table;
    const fs_table_options *options = &all->request.options;
    PyObject *columns = columns_of(store, table, options), *top_level = list_of(store, table, top_level_of);
    if (columns == NULL || top_level == NULL) {
        Py_XDECREF(columns);
        Py_XDECREF(top_level);
        return NULL;
    }
    PyObject *coverage = fs_coverage_object(store, table);
    PyObject *result = Py_BuildValue(
        "(N{s:N,s:N,s:O,s:d,s:d,s:O,s:O,s:O,s:k,s:L,s:d,s:N})", columns, "top_level", top_level, "roof",
        fs_roof_object(&table->whole), "device_unseen", table->device_unseen ? Py_True : Py_False,
        "self_cpu_time_total", (double)table->self_cpu_ns / 1000.0, "self_device_time_total",
        (double)table->self_device_ns / 1000.0, "has_memory", table->has_memory ? Py_True : Py_False, "has_device",
        table->has_device ? Py_True : Py_False, "profile_memory", self->profile_memory ? Py_True : Py_False,
        "open_events", (unsigned long)table->open_events, "dropped", (long long)fs_store_object_dropped(self),
        "grouping_seconds", all->seconds, "coverage", coverage);
    if (result == NULL) return NULL;
    PyObject *meta = PyTuple_GET_ITEM(result, 1);
    bool good = options->stack_depth == 0 || fs_put_column(meta, "stacks", stacks_of(store, table));
    good = good && (options->groupings == 0 || fs_put_parts(meta, store, table, options->groupings));
    good = good && (!all->accounts || fs_put_column(meta, "accounting", accounting_of(store, table, &all->accounting)));
    good = good && (all->blocks == 0 ||
                    fs_put_column(meta, "timeline", fs_timeline_object(store, &all->timeline, &all->accounting)));
    good = good &&
           (all->changes.count == 0 || fs_put_column(meta, "memory", fs_memory_changes_object(store, &all->changes)));
    if (!good) Py_CLEAR(result);
    return result;
}

/* µs as ns. The largest number stands for those beyond all times. */
static int64_t whole_ns(double us)
{
    return (int64_t)rint(fmax(fmin(1e3 * us, 9e18), -9e18));
}

enum { ARGUMENTS_BEFORE_WINDOW = 8 };

PyObject *fs_store_object_table(PyObject *object, PyObject *args)
{
    fs_store_object *self = (fs_store_object *)object;
    int by_shape, cpu_alone = 0, account = 0, brief = 0;
    Py_ssize_t stack_n, blocks = 0;
    double begin = 0, end = 0; /* of a window, in us */
    PyObject *peaks, *groupings = NULL, *result = NULL;
    if (!PyArg_ParseTuple(args, "pnO!|ppO!pn(dd):table", &by_shape, &stack_n, &PyDict_Type, &peaks, &cpu_alone,
                          &account, &PyTuple_Type, &groupings, &brief, &blocks, &begin, &end))
        return NULL;
    if (stack_n < 0)
        return PyErr_Format(PyExc_ValueError, "a stack is grouped by 0 or more of its frames; got %zd", stack_n);
    if (blocks < 0 || (blocks > 0 && !account))
        return PyErr_Format(PyExc_ValueError, "a timeline needs the accounting, and has 1 block or more; got %zd",
                            blocks);
    if (!isfinite(begin) || !isfinite(end)) {
        char text[80];
        (void)snprintf(text, sizeof text, "got %.15g to %.15g", begin, end);
        return PyErr_Format(PyExc_ValueError, "a window has two finite times in us; %s", text);
    }
    made *all = PyMem_Calloc(1, sizeof *all);
    if (all == NULL) return PyErr_NoMemory();
    fs_table_options *options = &all->request.options;
    options->by_shape = by_shape;
    options->cpu_alone = cpu_alone;
    options->works = all->accounts = account;
    all->of_window = account && PyTuple_GET_SIZE(args) > ARGUMENTS_BEFORE_WINDOW;
    all->begin = whole_ns(begin);
    all->end = whole_ns(end);
    options->calls = blocks > 0;
    options->brief = brief;
    options->stack_depth = stack_n < UINT32_MAX ? (uint32_t)stack_n : UINT32_MAX;
    all->blocks = blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
    bool good = groupings == NULL || fs_take_groupings(groupings, &options->groupings);
    if (good && fs_take_all_peaks(peaks, &all->request)) {
        fs_error err;
        fs_long_work work;
        fs_long_work_begin(&work);
        fs_status status = make(all, self->store, &err);
        fs_long_work_end(&work);
        result = status == FS_OK ? result_of(self, all) : fs_raise(&err);
    }
    clear(all);
    return result;
}

int fs_add_columns(PyObject *module)
{
    PyObject *columns = PyList_New(NUMERIC_COLUMNS);
    for (int i = 0; columns != NULL && i < NUMERIC_COLUMNS; i++) {
        const char *type = stays_integer(i) ? "int64" : "float64";
        PyObject *column = Py_BuildValue("(ssss)", numeric_columns[i].name, column_units[numeric_columns[i].unit].text,
                                         numeric_columns[i].prose, type);
        if (column == NULL) Py_CLEAR(columns);
        else PyList_SET_ITEM(columns, i, column);
    }
    return fs_add_constant(module, "numeric_columns", columns);
}
