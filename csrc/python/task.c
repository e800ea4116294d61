#include "python/task.h"

#include "ops/observer.h"

/* What this thread was seen in last. The interpreter counts context_ver up whenever it enters or leaves a context, and
 * each task of asyncio runs in one: while the number is the same, so is the task. */
static _Thread_local struct {
    uint64_t thread, version, observer;
} seen;

PyObject *fs_task_context(void)
{
    return PyThreadState_Get()->context;
}

/* The task of the event loop that runs on this thread, or 0. Any exception is dropped: there is no task then. */
static uint64_t running_task(void)
{
    PyObject *name = PyUnicode_FromString("asyncio"), *module = name ? PyImport_GetModule(name) : NULL;
    PyObject *loop = module ? PyObject_CallMethod(module, "_get_running_loop", NULL) : NULL, *task = NULL;
    if (loop != NULL && loop != Py_None) task = PyObject_CallMethod(module, "current_task", "O", loop);
    uint64_t key = task == NULL || task == Py_None ? 0 : (uint64_t)(uintptr_t)task;
    if (PyErr_Occurred()) PyErr_Clear();
    Py_XDECREF(task);
    Py_XDECREF(loop);
    Py_XDECREF(module);
    Py_XDECREF(name);
    return key;
}

void fs_task_look(void)
{
    const fs_observer *observer = fs_observer_get();
    const PyThreadState *thread = PyThreadState_Get();
    if (observer == NULL || (seen.version == thread->context_ver && seen.thread == thread->id &&
                             seen.observer == observer->serial))
        return;
    seen.thread = thread->id;
    seen.version = thread->context_ver;
    seen.observer = observer->serial;
    uint64_t task = running_task();
    observer = fs_observer_enter(); /* to ask for the task ran Python code */
    if (observer == NULL) return;
    observer->task(observer->context, task);
    fs_observer_leave();
}
