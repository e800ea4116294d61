/* Tensors as Python objects, and calls of ops that return them. The type itself is in tensor_type.c. */
#include "python/core.h"
#include "python/task.h"

PyTypeObject *fs_tensor_type;

PyObject *fs_wrap_tensor(fs_tensor *tensor)
{
    fs_tensor_object *object = PyObject_New(fs_tensor_object, fs_tensor_type);
    if (object == NULL) {
        fs_tensor_release(tensor);
        return NULL;
    }
    object->tensor = *tensor;
    tensor->storage = NULL;
    return (PyObject *)object;
}

/* The work from which releasing the GIL pays off. */
static bool takes_long(const fs_call *call)
{
    enum { MANY_ELEMENTS = 1 << 15 };
    const fs_tensor *x = call->in[0] ? call->in[0] : call->in[1];
    if (x == NULL) return true; /* a creation: its allocation may wait for the device */
    return x->device.kind == FS_CUDA || fs_tensor_count(x) > MANY_ELEMENTS ||
           (call->in[1] != NULL && fs_tensor_count(call->in[1]) > MANY_ELEMENTS);
}

PyObject *fs_run_call(const fs_call *call, PyObject *in_place)
{
    fs_error err;
    fs_tensor result;
    fs_status status;
    fs_task_look();
    if (takes_long(call)) {
        status = FS_LONG_WORK(fs_op_run(call, &result, &err));
    } else {
        status = fs_op_run(call, &result, &err);
    }
    if (status != FS_OK) return fs_raise(&err);
    if (in_place == NULL) return fs_wrap_tensor(&result);
    fs_tensor_release(&result);
    return Py_NewRef(in_place);
}
