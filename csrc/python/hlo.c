/* Modules of HLO, for Python: the work of their schedules, and what was read of them. */

#include "base/memory.h"
#include "python/core.h"
#include "work/hlo/cost.h"
#include "work/hlo/remarks.h"

/* What is made of a module: texts are converted once. */
typedef struct {
    const fs_hlo_module *module;
    fs_hlo_remarks remarks; /* made if they are shown */
    PyObject **texts;       /* by id; NULL: not yet */
    PyObject **sources;     /* by frame */
} shown;

/* Return a new reference: None for FS_NONE, NULL with an exception set on failure. */
static PyObject *text_of(const shown *of, uint32_t text)
{
    if (text == FS_NONE) return Py_NewRef(Py_None);
    if (of->texts[text] == NULL) of->texts[text] = fs_text_object(fs_hlo_text(of->module, text));
    return Py_XNewRef(of->texts[text]);
}

/* "train.py:12" */
static PyObject *source_of(const shown *of, uint32_t id)
{
    if (id == FS_NONE || of->module->frames[id].file == FS_NONE) return Py_NewRef(Py_None);
    if (of->sources[id] == NULL) {
        const fs_hlo_frame *frame = &of->module->frames[id];
        PyObject *file = text_of(of, frame->file);
        if (file != NULL)
            of->sources[id] =
                frame->line > 0 ? PyUnicode_FromFormat("%U:%lld", file, (long long)frame->line) : Py_NewRef(file);
        Py_XDECREF(file);
    }
    return Py_XNewRef(of->sources[id]);
}

static bool begin(shown *of, const fs_hlo_module *module)
{
    of->module = module;
    of->texts = PyMem_Calloc(module->texts.count + (size_t)1, sizeof *of->texts);
    of->sources = PyMem_Calloc(module->frame_count + (size_t)1, sizeof *of->sources);
    if (of->texts == NULL || of->sources == NULL) PyErr_NoMemory();
    return of->texts != NULL && of->sources != NULL;
}

static void end(shown *of)
{
    for (uint32_t i = 0; of->texts != NULL && i < of->module->texts.count; i++) Py_XDECREF(of->texts[i]);
    for (uint32_t i = 0; of->sources != NULL && i < of->module->frame_count; i++) Py_XDECREF(of->sources[i]);
    PyMem_Free(of->texts);
    PyMem_Free(of->sources);
    fs_hlo_remarks_clear(&of->remarks);
}

/* Read a text or the bytes of one. false with an exception set on failure. */
static bool read_module(PyObject *text, fs_hlo_module *module)
{
    Py_buffer bytes;
    fs_error err;
    fs_long_work work;
    if (!PyArg_Parse(text, "s*", &bytes)) return false;
    fs_long_work_begin(&work);
    bool proto = fs_hlo_is_proto(bytes.buf, (size_t)bytes.len);
    fs_status status = proto ? fs_hlo_read_proto(module, bytes.buf, (size_t)bytes.len, &err)
                             : fs_hlo_read_text(module, bytes.buf, (size_t)bytes.len, &err);
    fs_long_work_end(&work);
    PyBuffer_Release(&bytes);
    if (status != FS_OK) fs_raise(&err);
    return status == FS_OK;
}

/* The schedule's work -----------------------------------------------------------------------------------------------*/

enum { CALLS, FLOPS, PRODUCT_FLOPS, BYTES_READ, BYTES_WRITTEN, NUMBERS };
static const char *const number_names[] = {"calls", "flops", "product_flops", "bytes_read", "bytes_written"};

static PyObject *numbers_of(const fs_hlo_step *steps, uint32_t count, int which)
{
    double *numbers = fs_malloc((count + (size_t)1) * sizeof *numbers);
    if (numbers == NULL) return PyErr_NoMemory();
    for (uint32_t i = 0; i < count; i++) {
        const fs_hlo_work *work = &steps[i].work;
        double each[] = {1, work->work.flops, work->product_flops, work->work.bytes_read, work->work.bytes_written};
        numbers[i] = steps[i].calls * each[which];
    }
    PyObject *array = fs_array_of_doubles(numbers, count);
    fs_free(numbers);
    return array;
}

/* Return a list of what an expression of the instruction `one` gives for each step. */
#define TEXTS(value)                                                                         \
    FS_LIST(i, count, __extension__({                                                        \
                const fs_hlo_instruction *one = &module->instructions[steps[i].instruction]; \
                value;                                                                       \
            }))

static PyObject *columns_of(const fs_hlo_module *module, const fs_hlo_step *steps, uint32_t count)
{
    shown of = {0};
    PyObject *columns = begin(&of, module) ? PyDict_New() : NULL;
    bool good = columns != NULL && fs_put_column(columns, "module", text_of(&of, module->name)) &&
                fs_put_column(columns, "name", TEXTS(text_of(&of, one->name))) &&
                fs_put_column(columns, "opcode", TEXTS(text_of(&of, one->opcode))) &&
                fs_put_column(columns, "scope", TEXTS(text_of(&of, one->op_name))) &&
                fs_put_column(columns, "source", TEXTS(source_of(&of, one->frame)));
    for (int k = 0; good && k < NUMBERS; k++)
        good = fs_put_column(columns, number_names[k], numbers_of(steps, count, k));
    end(&of);
    if (!good) Py_CLEAR(columns);
    return columns;
}

static PyObject *work_of_hlo(PyObject *Py_UNUSED(self), PyObject *text)
{
    fs_hlo_module module = {0};
    fs_hlo_step *steps = NULL;
    uint32_t count = 0;
    fs_error err;
    if (!read_module(text, &module)) return NULL;
    fs_status status = FS_LONG_WORK(fs_hlo_schedule(&module, &steps, &count, &err));
    PyObject *columns = status == FS_OK ? columns_of(&module, steps, count) : fs_raise(&err);
    fs_free(steps);
    fs_hlo_clear(&module);
    return columns;
}

/* What was read, for tests ------------------------------------------------------------------------------------------*/

static const char *const type_names[] = {
#define FS_HLO_TYPE(NAME, text, bits) text,
    FS_HLO_TYPES(FS_HLO_TYPE)
#undef FS_HLO_TYPE
};
static const char *const attribute_names[] = {
#define FS_HLO_ATTRIBUTE(NAME, text) #NAME,
    FS_HLO_ATTRIBUTES(FS_HLO_ATTRIBUTE)
#undef FS_HLO_ATTRIBUTE
};

static PyObject *integers_of(const fs_hlo_module *module, fs_hlo_list list)
{
    static const int64_t none = 0;
    return fs_integers_object(list.count > 0 ? module->numbers + list.first : &none, list.count, 1);
}

/* (type, sizes, layout, space, parts, bytes) */
static PyObject *shape_of(const fs_hlo_module *module, uint32_t id)
{
    const fs_hlo_shape *shape = &module->shapes[id];
    PyObject *parts = FS_TUPLE(i, shape->parts.count, shape_of(module, module->shape_parts[shape->parts.first + i]));
    if (parts == NULL) return NULL;
    return Py_BuildValue("(sNNLNd)", type_names[shape->type], integers_of(module, shape->sizes),
                         integers_of(module, shape->layout), (long long)shape->space, parts, fs_hlo_bytes(module, id));
}

/* Return the names of a part of a list of ids of a table, None for FS_NONE. */
#define NAMES(ids, list, table) \
    FS_TUPLE(i, (list).count,   \
             text_of(of, (ids)[(list).first + i] == FS_NONE ? FS_NONE : (table)[(ids)[(list).first + i]].name))

static PyObject *attributes_of(const fs_hlo_module *module, fs_hlo_list list)
{
    PyObject *all = PyDict_New();
    for (uint32_t i = list.first; all != NULL && i < list.first + list.count; i++) {
        const fs_hlo_attribute *attribute = &module->attributes[i];
        if (!fs_put_column(all, attribute_names[attribute->key], integers_of(module, attribute->values))) Py_CLEAR(all);
    }
    return all;
}

static PyObject *remark_of(const shown *of, const fs_hlo_instruction *one)
{
    char text[256];
    bool found = fs_hlo_remark(&of->remarks, (uint32_t)(one - of->module->instructions), text, sizeof text);
    return found ? fs_text_object(text) : Py_NewRef(Py_None);
}

/* The places in the program, the innermost first: (source, function). */
static PyObject *stack_of(const shown *of, uint32_t frame)
{
    PyObject *stack = PyList_New(0);
    for (; stack != NULL && frame != FS_NONE; frame = of->module->frames[frame].parent) {
        if (!fs_append(stack,
                       Py_BuildValue("(NN)", source_of(of, frame), text_of(of, of->module->frames[frame].function))))
            Py_CLEAR(stack);
    }
    return stack;
}

static PyObject *instruction_of(const shown *of, const fs_hlo_instruction *one)
{
    const fs_hlo_module *module = of->module;
    return Py_BuildValue(
        "{s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N}", "name", text_of(of, one->name), "opcode",
        text_of(of, one->opcode), "shape", shape_of(module, one->shape), "operands",
        NAMES(module->operands, one->operands, module->instructions), "called",
        NAMES(module->called, one->called, module->computations), "attributes", attributes_of(module, one->attributes),
        "op_name", text_of(of, one->op_name), "kernel", text_of(of, one->kernel), "stack", stack_of(of, one->frame),
        "target", text_of(of, one->target), "kind", text_of(of, one->kind), "config", text_of(of, one->config),
        "groups", text_of(of, one->groups), "root", PyBool_FromLong(one->root), "remark", remark_of(of, one));
}

/* (name, instructions) */
static PyObject *computation_of(const shown *of, const fs_hlo_computation *one)
{
    PyObject *list =
        FS_LIST(i, one->instructions.count, instruction_of(of, &of->module->instructions[one->instructions.first + i]));
    return list != NULL ? Py_BuildValue("(NN)", text_of(of, one->name), list) : NULL;
}

static PyObject *read_hlo(PyObject *Py_UNUSED(self), PyObject *text)
{
    fs_hlo_module module = {0};
    shown of = {0};
    fs_error err;
    if (!read_module(text, &module)) return NULL;
    bool begun = begin(&of, &module);
    if (begun && fs_hlo_remarks_make(&of.remarks, &module, &err) != FS_OK) fs_raise(&err);
    PyObject *list = NULL, *result = NULL;
    if (of.remarks.module != NULL)
        list = FS_LIST(i, module.computation_count, computation_of(&of, &module.computations[i]));
    if (list != NULL)
        result = Py_BuildValue("{s:N,s:N,s:N,s:I,s:I,s:N}", "name", text_of(&of, module.name), "entry",
                               text_of(&of, module.computations[module.entry].name), "scheduled",
                               PyBool_FromLong(module.scheduled), "partitions", module.partitions, "replicas",
                               module.replicas, "computations", list);
    end(&of);
    fs_hlo_clear(&module);
    return result;
}

static PyObject *count_hlo(PyObject *Py_UNUSED(self), PyObject *text)
{
    fs_hlo_module module = {0};
    if (!read_module(text, &module)) return NULL;
    PyObject *counts = Py_BuildValue("(II)", module.computation_count, module.instruction_count);
    fs_hlo_clear(&module);
    return counts;
}

static PyMethodDef functions[] = {
    {"_count_hlo", count_hlo, METH_O, "_count_hlo(text): return the numbers of computations and instructions."},
    {"_read_hlo", read_hlo, METH_O, "_read_hlo(text): return what was read of a module: for tests."},
    {"_work_of_hlo", work_of_hlo, METH_O,
     "_work_of_hlo(text): return the name of a module, and columns of the instructions of its schedule that run."},
    {NULL, NULL, 0, NULL},
};

int fs_add_hlo(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
