/* Store's table: the rows of a store as Python's lists and arrays. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "accounting/accounting.h"
#include "base/clock.h"
#include "python/arrays.h"
#include "python/core.h"
#include "python/roofline.h"
#include "python/store_methods.h"
#include "store/accelerator.h"
#include "store/signature.h"
#include "store/torch_signature.h"
#include "table/table.h"
#include "timeline/memory.h"
#include "timeline/timeline.h"
#include "work/category.h"

/* Timeline --------------------------------------------------------------------------------------------------------- */

/* What is drawn of a store, as Python's objects. A timeline and changes of memory as dicts; their columns become
 * NumPy's arrays without a copy. */

static PyObject *name_of(const fs_store *store, uint32_t name)
{
    return name != FS_NONE ? fs_text_object(fs_store_name_text(store, name)) : Py_NewRef(Py_None);
}

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
    return FS_LIST_OF(label, timeline->labels, timeline->label_count,
                      Py_BuildValue("(sNNN)", fs_event_kind_names[label->kind], name_of(store, label->name),
                                    number_of(label->row), launch_tuple(store, label->signature)));
}

/* (role, device, thread or stream or None, depth, number of blocks) of each lane. */
static PyObject *lane_list(const fs_timeline *timeline)
{
    return FS_LIST_OF(lane, timeline->lanes, timeline->lane_count,
                      Py_BuildValue("(siNik)", fs_lane_role_names[lane->role], (int)lane->device,
                                    lane->has_id ? PyLong_FromUnsignedLongLong(lane->id) : Py_NewRef(Py_None),
                                    (int)lane->depth, (unsigned long)lane->count));
}

/* (name, begin, end) of each step of the program. */
static PyObject *step_list(const fs_store *store, const fs_steps *steps)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < steps->count; i++) {
        const fs_step *step = &steps->steps[i];
        if (step->name == FS_NONE) continue;
        if (!fs_append(list, Py_BuildValue("(NLL)", fs_text_object(fs_store_name_text(store, step->name)),
                                           (long long)step->begin, (long long)step->end)))
            Py_CLEAR(list);
    }
    return list;
}

/* Put a column of `from` with `count` rows into the result, and take its memory. */
#define TAKE_COLUMN(type, name, prose)                                                                            \
    if (good) {                                                                                                   \
        good = fs_put_column(result, #name, fs_array_taking(from->name, (Py_ssize_t)count, FS_ARRAY_TYPE(type))); \
        from->name = NULL;                                                                                        \
    }

/* Return a dict, or NULL with an exception set. The columns are taken from the struct, which is cleared as before. */
static PyObject *timeline_object(const fs_store *store, fs_timeline *from, const fs_accounting *accounting)
{
    int64_t begin, end;
    uint32_t count = from->block_count;
    fs_store_window(store, &begin, &end);
    PyObject *result = Py_BuildValue(
        "{s:N,s:N,s:N,s:L,s:L,s:k,s:k,s:k,s:k,s:k,s:k}", "lanes", lane_list(from), "labels", label_list(store, from),
        "steps", step_list(store, &accounting->steps), "begin", (long long)begin, "merged_ns",
        (long long)from->merged_ns, "events", (unsigned long)from->event_count, "idle", (unsigned long)from->idle_count,
        "open", (unsigned long)from->open_count, "unplaced", (unsigned long)from->unplaced_count, "deep",
        (unsigned long)from->deep_count, "memory", (unsigned long)from->memory_count);
    bool good = result != NULL;
    FS_TIMELINE_COLUMN_LIST(TAKE_COLUMN)
    if (!good) Py_CLEAR(result);
    return result;
}

static PyObject *memory_changes_object(const fs_store *store, fs_memory_changes *from)
{
    int64_t begin, end;
    uint32_t count = from->count;
    fs_store_window(store, &begin, &end);
    PyObject *result = Py_BuildValue("{s:L,s:k}", "begin", (long long)begin, "unplaced", (unsigned long)from->unplaced);
    bool good = result != NULL;
    FS_MEMORY_COLUMN_LIST(TAKE_COLUMN)
    if (!good) Py_CLEAR(result);
    return result;
}
#undef TAKE_COLUMN

/* Parts of rows ---------------------------------------------------------------------------------------------------- */

/* What separates the rows of a table further than their names, and how much of its work is known, as Python's objects.
 * One row of part_values for each grouping that has a value of its own: a grouping is added there, and in
 * FS_GROUPING_LIST. */

static const char *const grouping_names[FS_GROUPING_COUNT] = {
#define GROUPING_NAME(NAME, name, prose) [FS_GROUPING_##NAME] = #name,
    FS_GROUPING_LIST(GROUPING_NAME)
#undef GROUPING_NAME
};

/* Read a tuple of names of FS_GROUPING_LIST. Raises ValueError. */
static bool take_groupings(PyObject *names, uint32_t *groupings)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i));
        uint32_t before = *groupings;
        if (name == NULL) return false;
        for (int j = 0; j < FS_GROUPING_COUNT; j++)
            if (strcmp(grouping_names[j], name) == 0) *groupings |= 1u << j;
        if (*groupings != before) continue;
        return fs_refuse(PyExc_ValueError, "rows cannot be grouped by %R", PyTuple_GET_ITEM(names, i));
    }
    return true;
}

typedef PyObject *(*part_value)(const fs_store *store, fs_table_part part);

static PyObject *step_of(const fs_store *store, fs_table_part part)
{
    return name_of(store, part.step);
}

static PyObject *line_of(const fs_store *store, fs_table_part part)
{
    return name_of(store, part.line);
}

static PyObject *stream_of(const fs_store *store, fs_table_part part)
{
    if (part.lane == FS_NONE) return Py_NewRef(Py_None);
    fs_lane lane = fs_store_lane(store, part.lane);
    return Py_BuildValue("(iK)", lane.device, (unsigned long long)lane.id);
}

static PyObject *module_of(const fs_store *Py_UNUSED(store), fs_table_part part)
{
    return part.module != FS_NONE ? PyLong_FromUnsignedLong(part.module) : Py_NewRef(Py_None);
}

static const part_value part_values[FS_GROUPING_COUNT] = {
    [FS_GROUPING_STEP] = step_of,
    [FS_GROUPING_STREAM] = stream_of,
    [FS_GROUPING_LINE] = line_of,
    [FS_GROUPING_MODULE] = module_of,
};

static PyObject *values_of(const fs_store *store, const fs_table *table, part_value value_of)
{
    return FS_LIST_OF(row, table->rows, table->row_count, value_of(store, fs_table_part_of(table, row)));
}

static PyObject *modules_of(const fs_store *store, const fs_table *table)
{
    return FS_LIST_OF(
        module, table->modules, table->module_count,
        Py_BuildValue("(NNk)", name_of(store, module->name), number_of(module->parent), (unsigned long)module->calls));
}

/* Put a list for each of these groupings into the dict, with a value for each row, None if unknown: "step", "line",
 * "stream" (device and stream), "module" (index); and "modules": (name, index of the parent or -1, calls). */
static bool put_parts(PyObject *dict, const fs_store *store, const fs_table *table, uint32_t groupings)
{
    bool good = true;
    for (int i = 0; good && i < FS_GROUPING_COUNT; i++) {
        if ((groupings >> i & 1) == 0 || part_values[i] == NULL) continue;
        good = fs_put_column(dict, grouping_names[i], values_of(store, table, part_values[i]));
    }
    if (!good || (groupings >> FS_GROUPING_MODULE & 1) == 0) return good;
    return fs_put_column(dict, "modules", modules_of(store, table));
}

/* Coverage --------------------------------------------------------------------------------------------------------- */

/* Store's table: how much of the work is known, and from where. */

static PyObject *share(double part, double whole)
{
    return PyFloat_FromDouble(whole > 0 ? part / whole : (double)NAN);
}

static PyObject *time_list(const fs_unmodelled *times, uint32_t count)
{
    return FS_LIST_OF(entry, times, count,
                      Py_BuildValue("(Nd)", fs_text_object(entry->key), (double)entry->ns / 1000.0));
}

/* {name: (arguments as of a registered rule, expected)} */
static PyObject *misfits_of(const fs_store *store, const fs_table *table)
{
    PyObject *dict = PyDict_New();
    for (uint32_t i = 0; dict != NULL && i < table->misfit_count; i++) {
        const fs_misfit *misfit = &table->misfits[i];
        fs_torch_call call;
        fs_span bytes = fs_store_signature_bytes(store, misfit->signature);
        fs_torch_decode(bytes.bytes, bytes.size, &call);
        PyObject *value = Py_BuildValue("(Ns)", fs_torch_arguments_object(&call), misfit->expected);
        if (!fs_put(dict, fs_text_object(misfit->name), value)) Py_CLEAR(dict);
    }
    return dict;
}

/* The shares of the time whose work is known from each source. */
static PyObject *sources_of(const double ns[FS_SOURCE_COUNT], double whole)
{
    PyObject *dict = PyDict_New();
    for (int source = FS_SOURCE_NONE + 1; dict != NULL && source < FS_SOURCE_COUNT; source++) {
        if (ns[source] > 0 && !fs_put_column(dict, fs_source_names[source], share(ns[source], whole))) Py_CLEAR(dict);
    }
    return dict;
}

/* What is known of the work, by time. */
static PyObject *coverage_object(const fs_store *store, const fs_table *table)
{
    return Py_BuildValue("{s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:d}", "bytes_source",
                         sources_of(table->bytes_ns, table->modelled_base_ns), "flops_source",
                         sources_of(table->flops_ns, table->modelled_base_ns), "bytes",
                         share(table->bytes_known_ns, table->modelled_base_ns), "flops",
                         share(table->flops_known_ns, table->modelled_base_ns), "unmodelled",
                         time_list(table->unmodelled, table->unmodelled_count), "estimated",
                         time_list(table->estimated, table->estimated_count), "estimated_flops",
                         time_list(table->flops_estimated, table->flops_estimated_count), "misfits",
                         misfits_of(store, table), "unseen_graphs", (double)table->unseen_graph_ns / 1000.0);
}

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
    return FS_LIST(d, argument->ndim, PyLong_FromLongLong(argument->shape[d]));
}

static PyObject *dtype_object(const shown_argument *argument)
{
    return PyUnicode_InternFromString(argument->dtype);
}

typedef PyObject *(*argument_value)(const shown_argument *);

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
        good = fs_append(list, value_of(&shown));
    }
    for (uint32_t i = 0; good && i < torch.count; i++) {
        const fs_torch_tensor *tensor = &torch.arguments[i].tensor; /* of no dims where it is none */
        bool is_tensor = torch.arguments[i].type == FS_TORCH_TENSOR;
        const char *dtype = is_tensor ? fs_torch_dtypes[tensor->dtype].name : fs_dtypes[FS_DTYPE_NONE].name;
        good = fs_append(list, value_of(&(shown_argument){tensor->shape, tensor->ndim, dtype}));
    }
    if (!good) Py_CLEAR(list);
    return list;
}

static PyObject *source_object(fs_source source)
{
    return source != FS_SOURCE_NONE ? PyUnicode_InternFromString(fs_source_names[source]) : Py_NewRef(Py_None);
}

/* The names of the frames that the row's events lie in, innermost first. */
static PyObject *stack_of(const fs_store *store, const fs_table *table, const fs_row *row)
{
    uint32_t depth;
    const uint32_t *names = fs_table_stack(table, row, &depth);
    return FS_LIST(i, depth, fs_text_object(fs_store_name_text(store, names[i])));
}

/* A list with a value for each row. */
#define VALUES(value) FS_LIST_OF(row, table->rows, table->row_count, value)

/* The last few categories that followed from names: names recur in rows of several shapes. */
enum { KEPT_CATEGORIES = 256 };
typedef struct {
    const char *key;
    bool on_device;
    fs_category category;
} kept_category;

static fs_category category_of_row(const fs_row *row, kept_category *all)
{
    if (row->category != FS_CATEGORY_OF_FAMILY) return (fs_category)row->category;
    kept_category *kept = &all[((uintptr_t)row->key >> 3 ^ (uintptr_t)row->key >> 11) % KEPT_CATEGORIES];
    if (kept->key != row->key || kept->on_device != row->on_device)
        *kept = (kept_category){row->key, row->on_device, fs_category_of(row->key, row->on_device)};
    return kept->category;
}

static PyObject *categories_of(const fs_table *table)
{
    kept_category kept[KEPT_CATEGORIES] = {{NULL, false, FS_CATEGORY_OTHER}};
    return VALUES(PyUnicode_InternFromString(fs_categories[category_of_row(row, kept)].name));
}

/* One empty list for all rows. */
static PyObject *list_of_nothing(const fs_table *table)
{
    PyObject *nothing = PyList_New(0), *list = nothing ? FS_LIST(i, table->row_count, Py_NewRef(nothing)) : NULL;
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
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, 8 * count);
    if (bytes == NULL) return NULL;
    union {
        int64_t whole;
        double real;
    } *values = (void *)PyBytes_AS_STRING(bytes);
    for (Py_ssize_t i = 0; i < count; i++) {
        const fs_row *row = &table->rows[i];
        memcpy(&values[i], (const char *)row + numeric_columns[column].offset, sizeof *values);
        if (stays) continue;
        values[i].real = (integer ? (double)values[i].whole : values[i].real) / divisor;
        if (rounding >= 0) values[i].real += *(const double *)(const void *)((const char *)row + rounding);
    }
    return fs_numbers_object(bytes, stays);
}

static PyObject *limit_object(fs_occupancy_limit limit)
{
    if (limit == FS_OCCUPANCY_LIMIT_NONE) Py_RETURN_NONE;
    return PyUnicode_InternFromString(fs_occupancy_limit_names[limit]);
}

static PyObject *columns_of(const fs_store *store, const fs_table *table, const fs_table_options *options)
{
    bool by_shape = options->by_shape, by_dtype = by_shape || (options->groupings >> FS_GROUPING_DTYPE & 1) != 0;
    PyObject *columns = PyDict_New();
    if (columns == NULL) return NULL;
    const char *device = fs_accelerators[fs_store_accelerator(store)].type;
    bool good =
        fs_put_column(columns, "key", VALUES(fs_text_object(row->key))) &&
        fs_put_column(columns, "overload_name", VALUES(fs_text_object(row->overload != NULL ? row->overload : ""))) &&
        fs_put_column(columns, "device_type", VALUES(PyUnicode_InternFromString(row->on_device ? device : "cpu"))) &&
        fs_put_column(columns, "is_user_annotation", VALUES(PyBool_FromLong(row->is_user_annotation))) &&
        fs_put_column(columns, "count", VALUES(PyLong_FromLongLong(row->count))) &&
        fs_put_column(columns, "input_shapes",
                      by_shape ? VALUES(argument_list(store, row, shape_object)) : list_of_nothing(table)) &&
        fs_put_column(columns, "input_dtypes",
                      by_dtype ? VALUES(argument_list(store, row, dtype_object)) : list_of_nothing(table)) &&
        fs_put_column(columns, "unit", VALUES(fs_unit_object(row->roof.unit))) &&
        fs_put_column(columns, "bytes_source", VALUES(source_object(row->bytes_source))) &&
        fs_put_column(columns, "flops_source", VALUES(source_object(row->flops_source))) &&
        fs_put_column(columns, "bound", VALUES(PyUnicode_InternFromString(fs_bounds[row->bound].name))) &&
        fs_put_column(columns, "occupancy_limit", VALUES(limit_object(row->occupancy_limit))) &&
        fs_put_column(columns, "timing_source", VALUES(PyUnicode_InternFromString(fs_timing_names[row->timing])));
    for (int i = 0; good && i < NUMERIC_COLUMNS; i++) {
        good = fs_put_column(columns, numeric_columns[i].name, numbers_of(table, i, rounding_of(i)));
    }
    good = good && fs_put_column(columns, "category", categories_of(table));
    if (!good) Py_CLEAR(columns);
    return columns;
}

/* A piece of a device's work, and the rows of its op and of itself; -1: none. */
#define WORK_LIST(X) X(int64_t, event, ) X(int64_t, row, ) X(int64_t, kernel, )
typedef struct {
    int64_t event, row, kernel;
} work_row;

typedef struct {
    work_row *rows;
    uint32_t count;
} work_rows;

/* List the works of devices while the table has them. */
static fs_status list_works(const fs_table *table, work_rows *works, fs_error *err)
{
    uint32_t count = table->has_device ? table->work_count : 0;
    FS_TRY(FS_NEW(&works->rows, count, err));
    works->count = count;
    for (uint32_t i = 0; i < count; i++) {
        const fs_table_work *work = &table->works[i];
        works->rows[i] = (work_row){work->event, fs_row_number(work->row), fs_row_number(work->own_row)};
    }
    return FS_OK;
}

/* The accounting, and the total times as an Analysis reads them: without torch's rounding. */
static PyObject *accounting_of(const fs_store *store, const fs_table *table, const fs_accounting *accounting,
                               const work_rows *works)
{
    PyObject *result = fs_accounting_object(store, accounting), *totals = result != NULL ? PyDict_New() : NULL;
    bool good = totals != NULL;
    for (int i = 0; good && i < NUMERIC_COLUMNS; i++)
        if (rounding_of(i) >= 0) good = fs_put_column(totals, numeric_columns[i].name, numbers_of(table, i, -1));
    if (good) good = PyDict_SetItemString(result, "totals", totals) == 0;
    Py_XDECREF(totals);
    good = good && fs_put_column(result, "works", FS_ARRAYS(works->rows, works->count, WORK_LIST));
    if (!good) Py_CLEAR(result);
    return result;
}

/* What is asked besides the rows. */
typedef struct {
    bool accounts;
    bool of_window;     /* and not of the steps */
    int64_t begin, end; /* of the window, in ns since the profile began */
    uint32_t blocks;    /* of the timeline; 0: none */
} question;

/* What is computed for one call. */
typedef struct {
    fs_table_request request;
    question asked;
    fs_table *table;
    fs_accounting accounting;
    work_rows works;
    fs_timeline timeline;
    fs_memory_changes changes;
    double seconds; /* how long grouping took */
} made;

static fs_status make(made *all, const fs_store *store, fs_error *err)
{
    const question *asked = &all->asked;
    int64_t began = fs_clock_now();
    FS_TRY(fs_table_build(store, &all->request.options, &all->table, err));
    bool draws = asked->blocks > 0;
    if (draws) FS_TRY(fs_accounting_list(&all->accounting, store, all->table, err));
    else if (asked->of_window)
        FS_TRY(fs_accounting_of_window(&all->accounting, store, all->table, asked->begin, asked->end, err));
    else if (asked->accounts) FS_TRY(fs_accounting_build(&all->accounting, store, all->table, err));
    all->seconds = (double)(fs_clock_now() - began) / 1e9;
    if (draws || asked->accounts) FS_TRY(list_works(all->table, &all->works, err));
    if (draws) FS_TRY(fs_timeline_build(&all->timeline, store, all->table, &all->accounting, asked->blocks, err));
    return draws && all->table->has_memory ? fs_memory_list(&all->changes, store, all->table, err) : FS_OK;
}

static void clear(made *all)
{
    fs_memory_clear(&all->changes);
    fs_timeline_clear(&all->timeline);
    fs_accounting_clear(&all->accounting);
    fs_free(all->works.rows);
    fs_table_destroy(all->table);
    PyMem_Free(all);
}

/* (columns, meta) */
static PyObject *result_of(fs_store_object *self, made *all)
{
    const fs_store *store = self->store;
    const fs_table *table = all->table;
    const fs_table_options *options = &all->request.options;
    PyObject *columns = columns_of(store, table, options), *top_level = VALUES(PyBool_FromLong(row->top_level));
    if (columns == NULL || top_level == NULL) {
        Py_XDECREF(columns);
        Py_XDECREF(top_level);
        return NULL;
    }
    PyObject *coverage = coverage_object(store, table);
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
    bool good = options->stack_depth == 0 || fs_put_column(meta, "stacks", VALUES(stack_of(store, table, row)));
    good = good && (options->groupings == 0 || put_parts(meta, store, table, options->groupings));
    good = good && (!all->asked.accounts ||
                    fs_put_column(meta, "accounting", accounting_of(store, table, &all->accounting, &all->works)));
    good = good && (all->asked.blocks == 0 ||
                    fs_put_column(meta, "timeline", timeline_object(store, &all->timeline, &all->accounting)));
    good =
        good && (all->changes.count == 0 || fs_put_column(meta, "memory", memory_changes_object(store, &all->changes)));
    if (!good) Py_CLEAR(result);
    return result;
}

/* µs as ns. The largest number stands for those beyond all times. */
static int64_t whole_ns(double us)
{
    return (int64_t)rint(fmax(fmin(1e3 * us, 9e18), -9e18));
}

/* How rows are grouped: the arguments with which each of the three methods begins. */
typedef struct {
    int by_shape, cpu_alone, brief;
    Py_ssize_t stack_n;
    PyObject *peaks, *groupings;
} grouping;

enum { GROUPING_ARGUMENTS = 6 };
#define PARSE_GROUPING(args, by, more, ...)                                                               \
    PyArg_ParseTuple(args, "pnO!|pO!p" more, &(by)->by_shape, &(by)->stack_n, &PyDict_Type, &(by)->peaks, \
                     &(by)->cpu_alone, &PyTuple_Type, &(by)->groupings, &(by)->brief, ##__VA_ARGS__)

static PyObject *answer(fs_store_object *self, const grouping *by, question asked)
{
    PyObject *result = NULL;
    if (by->stack_n < 0)
        return PyErr_Format(PyExc_ValueError, "a stack is grouped by 0 or more of its frames; got %zd", by->stack_n);
    made *all = PyMem_Calloc(1, sizeof *all);
    if (all == NULL) return PyErr_NoMemory();
    all->asked = asked;
    fs_table_options *options = &all->request.options;
    options->by_shape = by->by_shape;
    options->cpu_alone = by->cpu_alone;
    options->works = asked.accounts;
    options->calls = asked.blocks > 0;
    options->brief = by->brief;
    options->stack_depth = by->stack_n < UINT32_MAX ? (uint32_t)by->stack_n : UINT32_MAX;
    bool good = by->groupings == NULL || take_groupings(by->groupings, &options->groupings);
    if (good && fs_take_all_peaks(by->peaks, &all->request)) {
        fs_error err;
        fs_status status = FS_LONG_WORK(make(all, self->store, &err));
        result = status == FS_OK ? result_of(self, all) : fs_raise(&err);
    }
    clear(all);
    return result;
}

PyObject *fs_store_object_table(PyObject *object, PyObject *args)
{
    grouping by = {0};
    if (!PARSE_GROUPING(args, &by, ":table")) return NULL;
    return answer((fs_store_object *)object, &by, (question){0});
}

PyObject *fs_store_object_accounting(PyObject *object, PyObject *args)
{
    grouping by = {0};
    double begin = 0, end = 0; /* of a window, in us */
    if (!PARSE_GROUPING(args, &by, "(dd):accounting", &begin, &end)) return NULL;
    if (!isfinite(begin) || !isfinite(end)) {
        char text[80];
        (void)snprintf(text, sizeof text, "got %.15g to %.15g", begin, end);
        return PyErr_Format(PyExc_ValueError, "a window has two finite times in us; %s", text);
    }
    bool of_window = PyTuple_GET_SIZE(args) > GROUPING_ARGUMENTS;
    return answer((fs_store_object *)object, &by, (question){true, of_window, whole_ns(begin), whole_ns(end), 0});
}

PyObject *fs_store_object_timeline(PyObject *object, PyObject *args)
{
    grouping by = {0};
    Py_ssize_t blocks = 0;
    if (!PARSE_GROUPING(args, &by, "n:timeline", &blocks)) return NULL;
    if (blocks < 1) return PyErr_Format(PyExc_ValueError, "a timeline has 1 block or more; got %zd", blocks);
    uint32_t most = blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
    return answer((fs_store_object *)object, &by, (question){.accounts = true, .blocks = most});
}

int fs_add_columns(PyObject *module)
{
    PyObject *columns =
        FS_LIST(i, NUMERIC_COLUMNS,
                Py_BuildValue("(ssss)", numeric_columns[i].name, column_units[numeric_columns[i].unit].text,
                              numeric_columns[i].prose, stays_integer(i) ? "int64" : "float64"));
    return fs_add_constant(module, "numeric_columns", columns);
}
