/* What an XSpace holds besides its events, as objects of Python. */
#ifndef FS_PYTHON_XSPACE_FACTS_H
#define FS_PYTHON_XSPACE_FACTS_H

#include "python/core.h"
#include "sources/protobuf/xspace.h"

/* Return a new dict: "planes" (dicts of "name", "device", "stats" by name, and "lines": name, role, start and number of
 * events), "modules" (name and bytes of each HloProto) and "remarks" (kind and text). NULL with an exception set. */
PyObject *fs_xspace_object(const fs_xspace *space);

#endif
