/* Which task of an event loop a thread runs: what a coroutine holds open does not enclose what others do. */
#ifndef FS_PYTHON_TASK_H
#define FS_PYTHON_TASK_H

#include "python/core.h"

/* Where ops are observed, tell the observer if this thread runs another task than it did. Costs two loads where it does
 * not. */
void fs_task_look(void);

/* The context (of contextvars) that this thread is in, borrowed: each task has its own. NULL outside of any. */
PyObject *fs_task_context(void);

#endif
