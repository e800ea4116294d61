/* Ops of the recording profile that are one launch. */
#ifndef FS_PYTHON_LAUNCH_HOOK_H
#define FS_PYTHON_LAUNCH_HOOK_H

#include "python/core.h"

#include "base/status.h"
#include "store/signature.h"

/* What a kernel does with a pointer, as flags: READ and WRITTEN of flopscope/record/triton_ir.py. */
enum { FS_POINTER_READ = 1, FS_POINTER_WRITTEN = 2 };

/* Begin an op that is one launch on this thread. *token: for fs_launch_end; 0 if no profile records. */
fs_status fs_launch_begin(const char *name, const fs_given_work *work, uint64_t *token, fs_error *err);
void fs_launch_end(uint64_t token);

#endif
