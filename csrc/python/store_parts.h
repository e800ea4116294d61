/* What separates the rows of a table further than their names, and how much of its work is known, as Python's
 * objects. */
#ifndef FS_PYTHON_STORE_PARTS_H
#define FS_PYTHON_STORE_PARTS_H

#include "python/core.h"
#include "table/table.h"

/* Read a tuple of names of FS_GROUPING_LIST. Raises ValueError. */
bool fs_take_groupings(PyObject *names, uint32_t *groupings);

/* Put a list for each of these groupings into the dict, with a value for each row, None if unknown: "step", "line",
 * "stream" (device and stream), "module" (index); and "modules": (name, index of the parent or -1, calls). */
bool fs_put_parts(PyObject *dict, const fs_store *store, const fs_table *table, uint32_t groupings);

/* Return what is known of the table's work, by time: a dict of shares, and of what the shares leave out. */
PyObject *fs_coverage_object(const fs_store *store, const fs_table *table);

#endif
