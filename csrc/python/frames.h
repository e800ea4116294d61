/* Python stacks: while it runs, every call of a Python function is a FRAME event on the thread that makes it.
 *
 * A frame is named "path/file.py(line): function" as torch.profiler names it: the path below the deepest folder of
 * sys.path that holds it, the function's first line. flopscope's own functions and functions written in C make none. A
 * generator makes one each time it runs until its next yield.
 */
#ifndef FS_PYTHON_FRAMES_H
#define FS_PYTHON_FRAMES_H

#include "python/core.h"
#include "store/store.h"

typedef struct fs_frames fs_frames;

/* Trace all threads of the interpreter, those that start later too, into `store`, which must outlive it. The calls that
 * are in progress begin now. NULL with an exception set: RuntimeError where another profiler has the profile function
 * of any thread (sys.setprofile), which is left to it. Needs the GIL, as all of these do. */
fs_frames *fs_frames_start(fs_store *store);

/* Stop tracing and release it; takes NULL. Calls in progress stay open in the store. *lost (may be NULL) grows by how
 * many calls could not be kept. An exception that is set stays. */
void fs_frames_stop(fs_frames *frames, int64_t *lost);

#endif
