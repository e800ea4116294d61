/* Inserts ranges that became known when they had ended, such as those of a library that tells how long it compiled. */
#ifndef FS_STORE_INSERT_H
#define FS_STORE_INSERT_H

#include "store/store.h"

/* An op of the host. Those of a lane nest. */
typedef struct {
    int64_t start, end;
    uint32_t name, lane;
    uint32_t open; /* the event that was open on the lane at its end, or FS_NONE: it or one around it is the parent */
} fs_late_op;

/* Copy a recording that has just ended into an empty store, each op before the first event that began after it, as if
 * it had been appended at its start; what began within it on its lane is within it. `from` has no samples, and its
 * calls are not attributed yet. Sorts `ops`. FS_OUT_OF_MEMORY; FS_INTERRUPTED. */
fs_status fs_store_insert(const fs_store *from, fs_late_op *ops, uint32_t count, fs_store *into, fs_error *err);

#endif
