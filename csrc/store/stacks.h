/* Sampled stacks: where the threads of a program were, at instants one or two milliseconds apart.
 *
 *   names   "train.py(12): step"                    a line of a function
 *   stacks  [ parent | name | program? ] …          a tree; the id of a stack is that of its innermost frame
 *   runs    [ thread | begin | end | cpu | stack ] … a thread was seen in one stack from begin to end
 *
 * A run covers the time since the thread was seen before, so the runs of a thread are disjoint and leave out nothing
 * while it is sampled. Times are those of the store's events. */
#ifndef FS_STORE_STACKS_H
#define FS_STORE_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/intern.h"
#include "base/status.h"

typedef struct fs_store fs_store;

enum { FS_MOST_STACK_DEPTH = 256 };

typedef struct {
    uint32_t parent;  /* the calling frame; FS_NONE: the outermost */
    uint32_t name;    /* id in names */
    uint32_t program; /* 1: a line of the program; 0: of Python, of an installed package */
} fs_stack;

typedef struct {
    int64_t begin, end; /* ns */
    int64_t cpu;        /* ns of the thread's CPU time in it; FS_MISSING: unknown */
    int64_t process;    /* id of the operating system */
    uint64_t thread;    /* likewise; that of a process's main thread is the process's */
    uint32_t stack;
} fs_stack_run;

typedef struct {
    fs_intern names;  /* texts */
    fs_intern stacks; /* fs_stack */
    fs_stack_run *runs;
    uint32_t count, capacity;
} fs_stacks; /* zeroed: empty */

void fs_stacks_clear(fs_stacks *stacks);

/* Return the id of a line, and of a frame within another. FS_OUT_OF_MEMORY. */
fs_status fs_stacks_name(fs_stacks *stacks, const char *text, uint32_t *name, fs_error *err);
fs_status fs_stacks_push(fs_stacks *stacks, uint32_t parent, uint32_t name, bool program, uint32_t *id, fs_error *err);

/* Append a run, which must not end before it begins. FS_OUT_OF_MEMORY. */
fs_status fs_stacks_add(fs_stacks *stacks, const fs_stack_run *run, fs_error *err);

const char *fs_stacks_text(const fs_stacks *stacks, uint32_t name);
fs_stack fs_stacks_get(const fs_stacks *stacks, uint32_t id);

/* Return the innermost line of the program in a stack, or the stack itself if it has none. */
uint32_t fs_stacks_line(const fs_stacks *stacks, uint32_t id);

/* How paths of source files are read: each is a list of folders with their separators, and NULL. */
typedef struct {
    const char *const *launchers; /* their frames, and the callers of these, are left out */
    const char *const *hidden;    /* their frames are left out, and the threads that begin with one */
    const char *const *libraries; /* their frames are not the program's */
    const char *const *shortened; /* names begin below the first of these that fits */
} fs_stack_folders;

/* Append the runs of `from`, `shift` ns later, which lie in [begin, end) of `to`'s clock, at least in part. Without
 * folders (NULL), names and the program's lines stay as they are. FS_OUT_OF_MEMORY leaves a part of them in `to`. */
fs_status fs_stacks_append(fs_stacks *to, const fs_stacks *from, const fs_stack_folders *folders, int64_t shift,
                           int64_t begin, int64_t end, fs_error *err);

/* The sampled stacks of a store. */
fs_stacks *fs_store_stacks(const fs_store *store);

/* The log ---------------------------------------------------------------------------------------------------------- */

/* Sampled stacks of a process in a file that grows while it runs, and is read after its end, however it ended.
 *
 *   record   kind (4 bytes) | size (4 bytes) | the text of a name, an fs_stack or an fs_stack_run
 *
 * Names and stacks come in the order of their ids, before what refers to them. Only the machine that wrote it reads
 * it. */

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
