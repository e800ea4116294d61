/* What the files of the binding share. Only this folder includes Python.h, and only numpy.c NumPy's headers. */
#ifndef FS_PYTHON_CORE_H
#define FS_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/interrupt.h"
#include "ops/op.h"

/* Raise what the record holds; always NULL. */
PyObject *fs_raise(const fs_error *err);

/* Long work without the GIL, which hears Ctrl-C: signal handlers run now and then on the thread that does it. Where one
 * raises, polls of base/interrupt.h end the work with FS_INTERRUPTED, and fs_raise keeps what was raised. */
typedef struct {
    fs_interrupt interrupt;
    PyThreadState *thread; /* released */
} fs_long_work;

void fs_long_work_begin(fs_long_work *work);
void fs_long_work_end(fs_long_work *work);

/* The exception that is set, taken away and put back: code that may be called with one set (a deallocator, a profile
 * function) calls no Python code meanwhile. What that code leaves set is reported as unraisable. */
typedef struct {
    PyObject *type, *value, *traceback; /* owned; all NULL: none was set */
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

/* A Tensor that takes over *tensor (zeroed on return), also when there is no memory for it. */
PyObject *fs_wrap_tensor(fs_tensor *tensor);

/* Run a call, the GIL released where it takes long; a new Tensor, `in_place` itself, or NULL with an exception set. */
PyObject *fs_run_call(const fs_call *call, PyObject *in_place);

/* Arguments: each sets an exception that names the op and what was given, and returns false. */
bool fs_parse_dtype(PyObject *object, fs_dtype *dtype);
bool fs_parse_device(PyObject *object, fs_device *device); /* NULL and None: the default device */
bool fs_parse_shape(PyObject *object, int *ndim, int64_t *shape);
bool fs_default_device(fs_device *device);
PyObject *fs_device_object(fs_device device); /* "cuda:0" */

/* default_device() and set_default_device(). */
PyObject *fs_get_default_device(PyObject *module, PyObject *unused);
PyObject *fs_set_default_device(PyObject *module, PyObject *device);

/* Add the type to the module by its own name. It is made once and kept: `type`, which is static, outlives the module,
 * so that a module that is imported anew has the same types. -1 with an exception set on failure. */
int fs_add_type(PyObject *module, PyTypeObject **type, PyType_Spec *spec);

/* A name of the store as a string: what is no UTF-8 in it, as a kernel of another library may be called, becomes
 * U+FFFD.
 */
PyObject *fs_text_object(const char *text);

/* Put a column, whose reference it takes over, into a dict; false with an exception set, as where the column is NULL.
 */
bool fs_put_column(PyObject *columns, const char *name, PyObject *column);

/* Python's types and functions of each file; each adds its own to the module, -1 with an exception set on failure. */
int fs_add_tensor(PyObject *module);
int fs_add_ops(PyObject *module);
int fs_add_dlpack(PyObject *module);
int fs_add_store(PyObject *module);
int fs_add_profiler(PyObject *module); /* after the store */
int fs_add_range(PyObject *module); /* after the profiler */
int fs_add_trace_reader(PyObject *module); /* after the store */
int fs_add_testing(PyObject *module);      /* after the store */
int fs_add_device(PyObject *module);
int fs_add_work(PyObject *module);
int fs_add_measure(PyObject *module);
int fs_add_roofline(PyObject *module);
int fs_add_numpy(PyObject *module); /* and gives the CPU backend its BLAS */

/* numpy.c ---------------------------------------------------------------------------------------------------------- */

/* Import NumPy unless that is done; false with an exception set. */
bool fs_have_numpy(void);
/* The tensor's elements as an array: zero-copy on the CPU (bfloat16, which NumPy lacks, widens to float32). */
PyObject *fs_tensor_to_numpy(PyObject *tensor, bool copy);
/* A 1-D array of doubles or int64 that copies `values`. */
PyObject *fs_array_of_doubles(const double *values, Py_ssize_t count);
PyObject *fs_array_of_int64(const int64_t *values, Py_ssize_t count);

/* dlpack.c --------------------------------------------------------------------------------------------------------- */

PyObject *fs_tensor_dlpack(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *fs_tensor_dlpack_device(PyObject *self, PyObject *unused);

/* arrow.c ---------------------------------------------------------------------------------------------------------- */

/* arrow_stream(rows, [(name, type, values), …]): a capsule of an Arrow stream. An array of numbers is not copied. */
PyObject *fs_arrow_capsule(PyObject *module, PyObject *args);

/* An op by name, for Python's operators. */
PyObject *fs_call_binary(const fs_op *op, PyObject *a, PyObject *b);
PyObject *fs_call_unary(const fs_op *op, PyObject *x);

#endif
