/* Sampled stacks of a process in a file that grows while it runs, and is read after its end, however it ended.
 *
 *   record   kind (4 bytes) | size (4 bytes) | the text of a name, an fs_stack or an fs_stack_run
 *
 * Names and stacks come in the order of their ids, before what refers to them. Only the machine that wrote it reads
 * it. */
#ifndef FS_STORE_STACK_LOG_H
#define FS_STORE_STACK_LOG_H

#include "store/stacks.h"

/* What of some stacks is in the log. Zeroed: nothing. */
typedef struct {
    uint32_t names, stacks;
} fs_stack_log;

/* Append what is new, and all runs, which are then dropped. FS_OUT_OF_MEMORY; FS_RUNTIME_ERROR if it cannot be
 * written. */
fs_status fs_stack_log_write(fs_stack_log *log, fs_stacks *stacks, int file, fs_error *err);

/* Append the runs of a log, of which the end may be missing, to empty stacks. Impossible records end it.
 * FS_OUT_OF_MEMORY. */
fs_status fs_stack_log_read(fs_stacks *stacks, const char *bytes, size_t size, fs_error *err);

#endif
