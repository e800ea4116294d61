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

#endif
