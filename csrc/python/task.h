/* The task of an event loop that a thread runs: events that a coroutine has open do not enclose those of other
 * tasks. */
#ifndef FS_PYTHON_TASK_H
#define FS_PYTHON_TASK_H

#include "python/core.h"

/* Notify the observer of ops, if any, when this thread has switched tasks. Costs two loads otherwise. */
void fs_task_look(void);

/* Return the context (contextvars) of this thread, borrowed: each task has its own. NULL outside of any. */
PyObject *fs_task_context(void);

#endif
