/* Declarations shared by the files of the binding. Only this folder includes Python.h, and only numpy.c NumPy's
 * headers. */
#ifndef FS_PYTHON_CORE_H
#define FS_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/interrupt.h"
#include "ops/op.h"

/* Raise the recorded error. Always returns NULL. */
PyObject *fs_raise(const fs_error *err);

/* Raise an exception as PyErr_Format does, and be false. */
#define fs_refuse(...) ((void)PyErr_Format(__VA_ARGS__), false)

/* Long work without the GIL that Ctrl-C can interrupt. Signal handlers run from time to time on the working thread. If
 * one raises, polls of base/interrupt.h end the work with FS_INTERRUPTED, and fs_raise keeps the handler's
 * exception. */
typedef struct {
    fs_interrupt interrupt;
    PyThreadState *thread; /* state saved when the GIL was released */
} fs_long_work;

void fs_long_work_begin(fs_long_work *work);
void fs_long_work_end(fs_long_work *work);

/* The status of one call, as long work. */
#define FS_LONG_WORK(call)          \
    __extension__({                 \
        fs_long_work work_;         \
        fs_long_work_begin(&work_); \
        fs_status status_ = (call); \
        fs_long_work_end(&work_);   \
        status_;                    \
    })

/* The value of a call that runs without the GIL, but is no long work: Ctrl-C waits for its end. */
#define FS_WITHOUT_GIL(call)                          \
    __extension__({                                   \
        PyThreadState *thread_ = PyEval_SaveThread(); \
        __typeof__(call) result_ = (call);            \
        PyEval_RestoreThread(thread_);                \
        result_;                                      \
    })

/* Return None after FS_OK, else raise the recorded error. */
PyObject *fs_none_or_raise(fs_status status, const fs_error *err);

/* Save the current exception and restore it. Code that may run with an exception set (a deallocator, a profile
 * function) uses this around calls into Python. An exception that those calls leave set is reported as unraisable. */
typedef struct {
    PyObject *type, *value, *traceback; /* owned; all NULL if no exception was set */
} fs_pending;

fs_pending fs_pending_take(void);
void fs_pending_put(fs_pending pending);

/* Tensor ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    fs_tensor tensor;
} fs_tensor_object;

extern PyTypeObject *fs_tensor_type;

static inline int fs_is_tensor(PyObject *object)
{
    return Py_IS_TYPE(object, fs_tensor_type);
}

/* Wrap *tensor in a new Tensor, which takes ownership; *tensor is zeroed on return, even if memory is exhausted. */
PyObject *fs_wrap_tensor(fs_tensor *tensor);

/* Run a call, without the GIL if it may take long. Return a new Tensor, `in_place` itself, or NULL with an exception
 * set. */
PyObject *fs_run_call(const fs_call *call, PyObject *in_place);

/* As PyArg_ParseTupleAndKeywords(), for a format that ends in ":name"; the error for an unknown keyword argument names
 * the argument that was probably meant. */
int fs_parse_arguments(PyObject *args, PyObject *kwargs, const char *format, char **names, ...);

/* Return "; did you mean 'out'?" with the known names that are most alike, or an empty string. NULL with an
 * exception set if memory is exhausted. */
PyObject *fs_did_you_mean(PyObject *name, PyObject *const *known, Py_ssize_t count);

/* Argument parsing. On failure each sets an exception that names the op and the value, and returns false. */
bool fs_parse_dtype(PyObject *object, fs_dtype *dtype);
bool fs_parse_device(PyObject *object, fs_device *device); /* NULL and None mean the default device */
bool fs_parse_shape(PyObject *object, int *ndim, int64_t *shape);
bool fs_default_device(fs_device *device);
PyObject *fs_device_object(fs_device device); /* "cuda:0" */

/* default_device() and set_default_device(). */
PyObject *fs_get_default_device(PyObject *module, PyObject *unused);
PyObject *fs_set_default_device(PyObject *module, PyObject *device);

/* Add the type to the module under its own name. The type is created once and kept: `type`, a static variable, outlives
 * the module, so a module that is imported again has the same types. Return -1 with an exception set on failure. */
int fs_add_type(PyObject *module, PyTypeObject **type, PyType_Spec *spec);

/* The spec of a type whose objects are the struct `object`, with a full name and flags besides the usual ones. */
#define FS_TYPE_SPEC(full_name, object, more_flags, type_slots) \
    &(PyType_Spec){.name = full_name,                           \
                   .basicsize = sizeof(object),                 \
                   .flags = Py_TPFLAGS_DEFAULT | (more_flags),  \
                   .slots = type_slots}

/* End the deallocator of such a type. */
void fs_free_object(PyObject *object);

/* A getter, whose value is an expression of `self`, a pointer to the struct. */
#define FS_GETTER(name, object, value)                              \
    static PyObject *name(PyObject *self_, void *Py_UNUSED(unused)) \
    {                                                               \
        object *self = (object *)self_;                             \
        return value;                                               \
    }

/* Return a name of the store as a string. Bytes that are not UTF-8, as in kernel names of other libraries, become
 * U+FFFD.
 */
PyObject *fs_text_object(const char *text);

/* Return a tuple of strings, or NULL with an exception set. */
PyObject *fs_names_object(const char *const *names, Py_ssize_t count);

/* Return a tuple of the values times scale; None for NULL, or NULL with an exception set. */
PyObject *fs_integers_object(const int64_t *values, Py_ssize_t count, int64_t scale);

/* A new list or tuple of as many items, each a new reference from an expression of its index `i`. NULL with an
 * exception set if one is NULL, and no further item is made. */
#define FS_LIST(i, count, item) FS_SEQUENCE_(PyList, i, count, item)
#define FS_TUPLE(i, count, item) FS_SEQUENCE_(PyTuple, i, count, item)
/* The same of a list of records, to which the expression has the pointer `one`. */
#define FS_LIST_OF(one, records, count, item)                   \
    FS_LIST(i_, count, __extension__({                          \
                __typeof__(&(records)[0]) one = &(records)[i_]; \
                item;                                           \
            }))
#define FS_SEQUENCE_(type, i, count, item)                                          \
    __extension__({                                                                 \
        PyObject *made_ = type##_New((Py_ssize_t)(count));                          \
        for (__typeof__((count) + 0) i = 0; made_ != NULL && i < (count); i += 1) { \
            PyObject *item_ = (item);                                               \
            if (item_ == NULL) Py_CLEAR(made_);                                     \
            else type##_SET_ITEM(made_, (Py_ssize_t)i, item_);                      \
        }                                                                           \
        made_;                                                                      \
    })

/* Add a constant to the module, and take over its reference. Return -1 with an exception set on failure, and if the
 * value is NULL. */
int fs_add_constant(PyObject *module, const char *name, PyObject *value);

/* Return bytes of int64 or doubles as a column of a table (flopscope.results.columns.Numbers), without NumPy, whose
 * import would take longer than making and printing a table. Steals the reference; NULL is an exception that is set. */
PyObject *fs_numbers_object(PyObject *bytes, bool integers);

/* Put a column into a dict, and take over its reference. Return false with an exception set on failure, and if the
 * column is NULL. */
bool fs_put_column(PyObject *columns, const char *name, PyObject *column);

/* Put a value under any key into a dict, and take over both references; likewise. */
bool fs_put(PyObject *dict, PyObject *key, PyObject *value);

/* A dict of counts, for reports: FS_COUNTS(of, LIST) is that of the fields of a record that LIST names as X(name). */
typedef struct {
    const char *name;
    int64_t count;
} fs_count;

PyObject *fs_counts_object(const fs_count *counts, size_t count);

#define FS_COUNT_OF_REPORT(name) {#name, (int64_t)report_->name},
#define FS_COUNTS(of, LIST)                                          \
    __extension__({                                                  \
        __typeof__(of) report_ = (of);                               \
        const fs_count counts_[] = {LIST(FS_COUNT_OF_REPORT)};       \
        fs_counts_object(counts_, sizeof counts_ / sizeof *counts_); \
    })

/* Append an item to a list, likewise. */
bool fs_append(PyObject *list, PyObject *item);

/* The files that add Python types and functions to the module by fs_add_NAME, -1 with an exception set on failure, in
 * this order: numpy also registers NumPy's BLAS with the CPU backend, and what follows the store needs its type. */
/* clang-format off */
#define FS_BINDING_LIST(X)                                                                                        \
    X(numpy) X(tensor) X(ops) X(dlpack) X(store) X(profiler) X(counters) X(stack_sampler) X(step_times)           \
    X(steady_growth) X(range) X(launch_hook) X(trace_reader) X(database_reader) X(device) X(work) X(hlo) X(measure) \
    X(roofline) X(facts) X(replay) X(testing) X(nvtx)
/* clang-format on */
#define FS_BINDING_PART(name) int fs_add_##name(PyObject *module);
FS_BINDING_LIST(FS_BINDING_PART)
#undef FS_BINDING_PART

/* numpy.c ---------------------------------------------------------------------------------------------------------- */

/* Import NumPy if it is not yet imported. Return false with an exception set on failure. */
bool fs_have_numpy(void);
/* Return the elements as an array: zero-copy on the CPU, except that bfloat16, which NumPy lacks, widens to float32. */
PyObject *fs_tensor_to_numpy(PyObject *tensor, bool copy);
/* Copy `values` into a 1-D array of doubles or int64. */
PyObject *fs_array_of_doubles(const double *values, Py_ssize_t count);
PyObject *fs_array_of_int64(const int64_t *values, Py_ssize_t count);
/* Return a 1-D array that owns `values`, a block of base/memory.h, which is freed also on failure. */
typedef enum { FS_ARRAY_INT64, FS_ARRAY_UINT64, FS_ARRAY_INT32, FS_ARRAY_UINT32 } fs_array_type;
PyObject *fs_array_taking(void *values, Py_ssize_t count, fs_array_type type);
#define FS_ARRAY_TYPE(type)        \
    _Generic((type)0,              \
        int64_t: FS_ARRAY_INT64,   \
        uint64_t: FS_ARRAY_UINT64, \
        int32_t: FS_ARRAY_INT32,   \
        uint32_t: FS_ARRAY_UINT32)

/* dlpack.c --------------------------------------------------------------------------------------------------------- */

PyObject *fs_tensor_dlpack(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *fs_tensor_dlpack_device(PyObject *self, PyObject *unused);

/* Return an op by name, for Python's operators. */
PyObject *fs_call_binary(const fs_op *op, PyObject *a, PyObject *b);
PyObject *fs_call_unary(const fs_op *op, PyObject *x);

#endif
