/* The only file that includes headers of CPython's own: the eval_breaker has no function. */
#define Py_BUILD_CORE
#include "python/pending_calls.h"

#include <Python.h>

#if PY_VERSION_HEX < 0x030d0000
#include <internal/pycore_interp.h>

void fs_look_for_pending_calls(void)
{
    _Py_atomic_store_relaxed(&PyInterpreterState_Main()->ceval.eval_breaker, 1);
}
#else
void fs_look_for_pending_calls(void)
{
}
#endif
