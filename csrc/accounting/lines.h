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

/* X(name, prose): times of a line, in ns */
#define FS_LINE_TIME_LIST(X)                                         \
    X(time, "with what it called in the program")                    \
    X(own, "without; in what it called of libraries, too")           \
    X(cpu, "CPU time, with what it called; of times that are known") \
    X(own_cpu, "CPU time without")

typedef struct {
    uint32_t group;
    uint32_t line;   /* name in the stacks: a line of the program, */
    uint32_t inside; /* and where it was: in a line of the program that it called; else the innermost line of all, of a
                      * library; the same: it called none */
#define FS_LINE_TIME(name, prose) int64_t name;
    FS_LINE_TIME_LIST(FS_LINE_TIME)
#undef FS_LINE_TIME
    int64_t idle[FS_IDLE_CAUSE_COUNT]; /* ns in which a device was idle, for a cause, until this thread launched
                                        * again, while it was in this line itself; of several devices, their sum */
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

/* Sum up the stacks of a store in [begin, end). `accounting` (fs_accounting_list; NULL: none) tells when devices were
 * idle, of which times of more than `least` ns in the steps from `first_step` on count. FS_OUT_OF_MEMORY.
 * fs_lines_clear also accepts a zeroed struct. */
fs_status fs_lines_build(fs_lines *lines, const fs_store *store, const fs_accounting *accounting, uint32_t first_step,
                         int64_t least, int64_t begin, int64_t end, fs_error *err);
void fs_lines_clear(fs_lines *lines);

#endif
