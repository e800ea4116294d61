/* Joins recordings of one process that were made one after the other.
 *
 *   store   [ events of the first recording | events of the second | … ]
 *   ids of names, signatures and lanes are shared; parents, launchers and forward ops stay within a recording
 *
 * The time between two recordings was not recorded. Sums over events remain right; the start and end of recording are
 * missing, and what divides by the time from the first event to the last one is meaningless. */
#ifndef FS_STORE_EXTEND_H
#define FS_STORE_EXTEND_H

#include "store/store.h"

/* Append the events and counter samples of another store, which nothing changes meanwhile, `shift` ns later. They lose
 * their correlations, as both may use the same numbers; launchers remain. Devices without facts get those of `from`.
 * FS_OUT_OF_MEMORY leaves a part of them in `store`. */
fs_status fs_store_extend(fs_store *store, const fs_store *from, int64_t shift, fs_error *err);

/* Insertion -------------------------------------------------------------------------------------------------------- */

/* Inserts ranges that became known when they had ended, such as those of a library that tells how long it compiled. */

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

/* Copies ----------------------------------------------------------------------------------------------------------- */

/* Copies all of a store but its events, for a store that will have others between them. */

/* Add the names, signatures, lanes, devices and the window of another store to an empty one, with the same ids.
 * FS_OUT_OF_MEMORY. */
fs_status fs_store_copy_ids(fs_store *into, const fs_store *from, fs_error *err);

/* Give an event of `into` the name and the signature of an event of `from`. FS_OUT_OF_MEMORY. */
fs_status fs_store_copy_words(fs_store *into, const fs_store *from, uint32_t index, fs_event *event, fs_error *err);

/* Let each event's `forward`, of which the copy still has the index in `from`, be the copy of that event. moved: by
 * event of `from`, its index in `into`. */
void fs_store_copy_forwards(fs_store *into, const fs_store *from, const uint32_t *moved);

#endif
