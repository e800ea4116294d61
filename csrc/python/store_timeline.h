/* What is drawn of a store, as Python's objects. */
#ifndef FS_PYTHON_STORE_TIMELINE_H
#define FS_PYTHON_STORE_TIMELINE_H

#include "python/core.h"
#include "timeline/memory.h"
#include "timeline/timeline.h"

/* Return a dict, or NULL with an exception set. The columns are taken from the struct, which is cleared as before. */
PyObject *fs_timeline_object(const fs_store *store, fs_timeline *timeline, const fs_accounting *accounting);
PyObject *fs_memory_changes_object(const fs_store *store, fs_memory_changes *changes);

#endif
