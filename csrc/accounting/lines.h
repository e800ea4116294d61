/* Where the program was, by line: sums over sampled stacks (store/stacks.h), and the part of them in which a device had
 * nothing to do. */
#ifndef FS_ACCOUNTING_LINES_H
#define FS_ACCOUNTING_LINES_H

#include "accounting/accounting.h"
#include "store/stacks.h"

/* X(NAME, name, description) */
#define FS_LINE_GROUP_LIST(X)                                \
    X(MAIN, main, "the main thread")                         \
    X(THREADS, threads, "other threads of the same process") \
    X(PROCESSES, processes, "all threads of child processes")

typedef enum {
#define FS_LINE_GROUP_ENUM(NAME, name, prose) FS_LINES_##NAME,
    FS_LINE_GROUP_LIST(FS_LINE_GROUP_ENUM)
#undef FS_LINE_GROUP_ENUM
        FS_LINE_GROUP_COUNT
} fs_line_group;

extern const char *const fs_line_group_names[FS_LINE_GROUP_COUNT];

typedef struct {
    uint32_t group;
    uint32_t line;                     /* name in the stacks: the innermost line of the program, */
    uint32_t inside;                   /* and the innermost line of all, in what it called; the same: it called none */
    int64_t time;                      /* ns */
    int64_t cpu;                       /* ns of CPU time; of times that are known */
    int64_t idle[FS_IDLE_CAUSE_COUNT]; /* ns in which a device was idle, for a cause, until this thread launched
                                        * again; of several devices, their sum */
} fs_line;

/* What a group did in all. */
typedef struct {
    uint32_t threads, processes;
    int64_t time, cpu, begin, end; /* ns */
} fs_line_sums;

typedef struct {
    fs_line *lines; /* in order of first appearance */
    uint32_t count;
    fs_line_sums groups[FS_LINE_GROUP_COUNT];
} fs_lines;

/* Sum up the stacks of a store. `accounting` (fs_accounting_list; NULL: none) tells when devices were idle, of which
 * the steps from `first_step` on count. FS_OUT_OF_MEMORY. fs_lines_clear also accepts a zeroed struct. */
fs_status fs_lines_build(fs_lines *lines, const fs_store *store, const fs_accounting *accounting, uint32_t first_step,
                         fs_error *err);
void fs_lines_clear(fs_lines *lines);

#endif
