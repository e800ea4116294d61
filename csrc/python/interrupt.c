/* The main thread makes its pending calls at its next instruction.
 *
 * Before Python 3.13, Py_AddPendingCall asks for that only if the calling thread may make them itself. A call that
 * another thread adds waits until the main thread takes the GIL again: samples of stacks would all fall into calls that
 * release it. No public function asks. */
#include "python/core.h"

#if PY_VERSION_HEX < 0x030d0000
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#define Py_BUILD_CORE
#undef _PyGC_FINALIZED /* Python.h has another one */
#include <internal/pycore_interp.h>

void fs_interrupt_main_thread(void)
{
    _Py_atomic_store_relaxed(&PyInterpreterState_Main()->ceval.eval_breaker, 1);
}
#else
void fs_interrupt_main_thread(void)
{
}
#endif
