/* Copies all of a store but its events, for a store that will have others between them. */
#ifndef FS_STORE_COPY_H
#define FS_STORE_COPY_H

#include "store/store.h"

/* Add the names, signatures, lanes, devices and the window of another store to an empty one, with the same ids.
 * FS_OUT_OF_MEMORY. */
fs_status fs_store_copy_ids(fs_store *into, const fs_store *from, fs_error *err);

/* Let each event's `forward`, of which the copy still has the index in `from`, be the copy of that event. moved: by
 * event of `from`, its index in `into`. */
void fs_store_copy_forwards(fs_store *into, const fs_store *from, const uint32_t *moved);

#endif
