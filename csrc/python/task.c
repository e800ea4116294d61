/* To ask asyncio at each event would cost more than the event. The interpreter's context_ver changes whenever another
 * context runs, and a task runs in its own, so the question is asked only when that number, the thread or the observer
 * has changed. Asking runs Python code, after which the observer may be another one. */
#include "python/task.h"

#include "ops/observer.h"

/* The context in which this thread was observed last. The interpreter increments context_ver whenever it enters or
 * leaves a context, and each asyncio task runs in its own: an unchanged number means the same task. */
static _Thread_local struct {
    uint64_t thread, version, observer;
} last;

PyObject *fs_task_context(void)
{
    return PyThreadState_Get()->context;
}

/* Return the current task of the event loop on this thread, or 0. Any exception is cleared and counts as no task. */
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
    if (observer == NULL ||
        (last.version == thread->context_ver && last.thread == thread->id && last.observer == observer->serial))
        return;
    last.thread = thread->id;
    last.version = thread->context_ver;
    last.observer = observer->serial;
    uint64_t task = running_task();
    observer = fs_observer_enter(); /* the lookup of the task ran Python code */
    if (observer == NULL) return;
    observer->task(observer->context, task);
    fs_observer_leave();
}
