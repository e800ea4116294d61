/* Python stacks: while tracing runs, every call of a Python function is a FRAME event on its thread.
 *
 * A frame is named "path/file.py(line): function" as in torch.profiler: the path relative to the deepest folder of
 * sys.path that contains it, and the function's first line. flopscope's own functions and functions written in C are
 * not recorded. A generator records one event each time it runs until its next yield.
 */
#ifndef FS_PYTHON_FRAMES_H
#define FS_PYTHON_FRAMES_H

#include "python/core.h"
#include "store/store.h"

typedef struct fs_frames fs_frames;

/* Trace all threads of the interpreter, including later ones, into `store`, which must outlive the tracer. Calls in
 * progress begin now. Return NULL with an exception set: RuntimeError if another profiler uses the profile function of
 * any thread (sys.setprofile), which is left unchanged. The caller holds the GIL, as for all functions here. */
fs_frames *fs_frames_start(fs_store *store);

/* Stop tracing and release the tracer; NULL is allowed. Calls in progress stay open in the store. *lost (may be NULL)
 * increases by the number of calls that could not be recorded. An exception that is set is kept. */
void fs_frames_stop(fs_frames *frames, int64_t *lost);

#endif
