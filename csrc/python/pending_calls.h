/* The main thread's look for pending calls. */
#ifndef FS_PYTHON_PENDING_CALLS_H
#define FS_PYTHON_PENDING_CALLS_H

/* Let the main thread make its pending calls between two instructions, as soon as it runs Python code. Callable on any
 * thread, without the GIL, after Py_AddPendingCall.
 *
 * Py_AddPendingCall itself does so from Python 3.13 on. Before, it does only on the main thread (COMPUTE_EVAL_BREAKER
 * in ceval.c); of any other, the call waits until the main thread gives up the GIL. */
void fs_look_for_pending_calls(void);

#endif
