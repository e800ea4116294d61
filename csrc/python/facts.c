/* The facts of the core's tables, which Python, and from there the pages, take from here. Each is a constant of the
 * module: a tuple of names, or a dict of records by name, in the order of the core's table. */
#include "accounting/accounting.h"
#include "device/peaks.h"
#include "python/core.h"
#include "python/roofline.h"
#include "store/event.h"
#include "store/torch_signature.h"
#include "work/category.h"
#include "work/collective_sizes.h"

static PyStructSequence_Field dtype_fields[] = {
    {"bytes", "bytes of an element"},
    {"kind", "float, float8, float4, integer or complex"},
    {"kineto", "name in torch's traces"},
    {"c10", "name that c10::toString returns"},
    {"number", "number of c10::ScalarType"},
    {"unit", "compute unit of arithmetic; None: none has a peak"},
    {"product_unit", "compute unit of matrix products, likewise"},
    {NULL, NULL},
};
static PyStructSequence_Field bound_fields[] = {
    {"meaning", "what bounds the time"},
    {"part", "part of the accounting; \"\": that of the larger term of the roofline"},
    {"terminal", "colour on terminals, as rich names it; \"\": none"},
    {"light", "colour on white paper"},
    {"dark", "colour on dark paper"},
    {NULL, NULL},
};
static PyStructSequence_Field part_fields[] = {
    {"label", "name in legends"},
    {"gloss", "what it is, beside a bar"},
    {"noun", "what it is, in a sentence"},
    {"meaning", "what it is, as a sentence"},
    {"change", "name in comparisons; \"\": none of its own"},
    {"hatch", "hatch in plots, as matplotlib names it; \"\": none"},
    {"light", "colour on white paper"},
    {"dark", "colour on dark paper"},
    {NULL, NULL},
};

/* The types of records. Their name is where Python's types find them. */
static PyStructSequence_Desc kinds[] = {
    {"flopscope._core.Dtype", "What is known of a dtype.", dtype_fields, 7},
    {"flopscope._core.Bound", "What is known of a bound.", bound_fields, 5},
    {"flopscope._core.Part", "What is known of a part of the accounting.", part_fields, 8},
};
enum { DTYPE, BOUND, PART, KINDS };
static PyTypeObject *types[KINDS];

/* Put a record into a dict. Steals the tuple of its values; false with an exception set, if that is NULL too. */
static bool put_record(PyObject *all, const char *name, int kind, PyObject *values)
{
    PyObject *record = values != NULL ? PyObject_CallOneArg((PyObject *)types[kind], values) : NULL;
    Py_XDECREF(values);
    return fs_put_column(all, name, record);
}

static PyObject *dtypes_object(void)
{
    static const char *const kind_names[] = {[FS_TORCH_FLOAT] = "float",
                                             [FS_TORCH_FLOAT8] = "float8",
                                             [FS_TORCH_FLOAT4] = "float4",
                                             [FS_TORCH_INTEGER] = "integer",
                                             [FS_TORCH_COMPLEX] = "complex"};
    PyObject *all = PyDict_New();
    for (unsigned i = 0; all != NULL && i < FS_TORCH_DTYPE_COUNT; i++) {
        const fs_torch_dtype_row *row = &fs_torch_dtypes[i];
        PyObject *values = Py_BuildValue("(isssiNN)", row->size, kind_names[row->kind], row->kineto, row->c10,
                                         row->number, fs_unit_object(fs_unit_of_plain(i).preferred),
                                         fs_unit_object(fs_unit_of_product(i).preferred));
        if (!put_record(all, row->name, DTYPE, values)) Py_CLEAR(all);
    }
    return all;
}

static PyObject *bounds_object(void)
{
    PyObject *all = PyDict_New();
    for (int i = 0; all != NULL && i < FS_BOUND_COUNT; i++) {
        const fs_bound_row *row = &fs_bounds[i];
        PyObject *values = Py_BuildValue("(sssss)", row->meaning, row->part, row->terminal,
                                         fs_colours[row->colour].light, fs_colours[row->colour].dark);
        if (!put_record(all, row->name, BOUND, values)) Py_CLEAR(all);
    }
    return all;
}

static PyObject *work_sources_object(void)
{
    PyObject *all = PyDict_New();
    for (int i = FS_SOURCE_NONE + 1; all != NULL && i < FS_SOURCE_COUNT; i++)
        if (!fs_put_column(all, fs_source_names[i], PyUnicode_FromString(fs_source_meanings[i]))) Py_CLEAR(all);
    return all;
}

static PyObject *collective_kinds_object(void)
{
    PyObject *all = PyDict_New();
    for (int i = 0; all != NULL && i < FS_COLLECTIVE_KIND_COUNT; i++)
        if (!fs_put_column(all, fs_collective_kind_names[i], PyUnicode_FromString(fs_collective_kind_ends[i])))
            Py_CLEAR(all);
    return all;
}

static PyObject *parts_of(bool bare)
{
    PyObject *all = PyDict_New();
    for (int i = 0; all != NULL && i < FS_PART_COUNT; i++) {
        const fs_part_row *row = &fs_parts[i];
        const fs_part_texts *texts = bare ? &row->bare_texts : &row->texts;
        PyObject *values =
            Py_BuildValue("(ssssssss)", texts->label, texts->gloss, texts->noun, texts->meaning, texts->change,
                          row->hatch, fs_colours[row->colour].light, fs_colours[row->colour].dark);
        if (!put_record(all, row->name, PART, values)) Py_CLEAR(all);
    }
    return all;
}

static PyObject *parts_object(void)
{
    return parts_of(false);
}

static PyObject *bare_parts_object(void)
{
    return parts_of(true);
}

static PyObject *category_tuple(const fs_category_row *row)
{
    return Py_BuildValue("(sids)", row->name, (int)row->colour + 1, row->dark, row->prose);
}

/* (name, number of its series, how much darker it is, description) of each category, in the order of legends. */
static PyObject *categories_object(void)
{
    return FS_TUPLE(i, FS_CATEGORY_COUNT - 1, category_tuple(&fs_categories[i + 1]));
}

/* The colours of series, on white and on dark paper. */
static PyObject *series_object(void)
{
    return FS_TUPLE(i, FS_SERIES_COUNT, Py_BuildValue("(ss)", fs_colours[i].light, fs_colours[i].dark));
}

static PyObject *float_dtypes_object(void)
{
    const char *names[FS_DTYPE_COUNT];
    int count = 0;
    for (fs_dtype dtype = 0; dtype < FS_DTYPE_COUNT; dtype++)
        if (fs_dtype_is_float(dtype)) names[count++] = fs_dtypes[dtype].name;
    return fs_names_object(names, count);
}

static PyObject *compute_units_object(void)
{
    const char *names[FS_UNIT_COUNT];
    for (int unit = 0; unit < FS_UNIT_COUNT; unit++) names[unit] = fs_units[unit].name;
    return fs_names_object(names, FS_UNIT_COUNT);
}

/* {"fp64_tensor": "fp64", …}: of each unit of matrix products, the one that they fall back to. */
static PyObject *fallback_units_object(void)
{
    PyObject *units = PyDict_New();
    for (int i = 0; units != NULL && i < 2 * FS_DTYPE_COUNT; i++) {
        fs_unit_choice choice = fs_unit_choose((fs_dtype)(i / 2), true, i % 2 != 0, FS_CUDA);
        if (choice.preferred == choice.fallback) continue;
        if (!fs_put_column(units, fs_units[choice.preferred].name, fs_unit_object(choice.fallback))) Py_CLEAR(units);
    }
    return units;
}

static const struct {
    const char *name;
    const char *const *names;
    Py_ssize_t count;
} lists[] = {
    {"idle_causes", fs_idle_cause_names, FS_IDLE_CAUSE_COUNT},
    {"idle_parts", fs_idle_cause_parts, FS_IDLE_CAUSE_COUNT},
    {"idle_labels", fs_idle_cause_labels, FS_IDLE_CAUSE_COUNT},
};

static const struct {
    const char *name;
    PyObject *(*make)(void);
} facts[] = {
    {"dtypes", dtypes_object},
    {"float_dtypes", float_dtypes_object},
    {"compute_units", compute_units_object},
    {"fallback_units", fallback_units_object},
    {"bounds", bounds_object},
    {"work_sources", work_sources_object},
    {"collective_kinds", collective_kinds_object},
    {"parts", parts_object},
    {"bare_parts", bare_parts_object},
    {"categories", categories_object},
    {"series", series_object},
};

int fs_add_facts(PyObject *module)
{
    for (int i = 0; i < KINDS; i++) {
        if (types[i] == NULL) types[i] = PyStructSequence_NewType(&kinds[i]);
        if (types[i] == NULL || PyModule_AddType(module, types[i]) < 0) return -1;
    }
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (fs_add_constant(module, facts[i].name, facts[i].make()) < 0) return -1;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (fs_add_constant(module, lists[i].name, fs_names_object(lists[i].names, lists[i].count)) < 0) return -1;
    return fs_add_constant(module, "device_limit", PyLong_FromLong(FS_DEVICE_LIMIT));
}
