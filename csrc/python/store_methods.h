/* The methods of Store that read it or join two, for store_type.c. */
#ifndef FS_PYTHON_STORE_METHODS_H
#define FS_PYTHON_STORE_METHODS_H

#include "python/store_object.h"

struct fs_accounting;

/* Each is documented where store_type.c lists it, which calls them while nothing changes the store. */
PyObject *fs_store_object_table(PyObject *self, PyObject *args);
PyObject *fs_store_object_accounting(PyObject *self, PyObject *args);
PyObject *fs_store_object_timeline(PyObject *self, PyObject *args);
PyObject *fs_store_object_enclosing(PyObject *self, PyObject *args);
PyObject *fs_store_object_arguments(PyObject *self, PyObject *args);
PyObject *fs_store_object_alike(PyObject *self, PyObject *args);
PyObject *fs_store_object_events(PyObject *self, PyObject *unused);
PyObject *fs_store_object_gpu_summary(PyObject *self, PyObject *args);
PyObject *fs_store_object_step_breakdown(PyObject *self, PyObject *unused);
PyObject *fs_store_object_phases(PyObject *self, PyObject *args);
PyObject *fs_store_object_launch_summary(PyObject *self, PyObject *unused);
PyObject *fs_store_object_collectives(PyObject *self, PyObject *unused);
PyObject *fs_store_object_collective_calls(PyObject *self, PyObject *unused);
PyObject *fs_store_object_stream_summary(PyObject *self, PyObject *unused);
PyObject *fs_store_object_write_trace(PyObject *self, PyObject *args);
PyObject *fs_store_object_lines(PyObject *self, PyObject *args);
PyObject *fs_store_object_names(PyObject *self, PyObject *unused);
PyObject *fs_store_object_named_calls(PyObject *self, PyObject *args);
PyObject *fs_store_object_late_within(PyObject *self, PyObject *args);
PyObject *fs_store_object_late_spent(PyObject *self, PyObject *args);
PyObject *fs_store_object_trace_text(PyObject *self, PyObject *args);
PyObject *fs_store_object_add_samples(PyObject *self, PyObject *args);
PyObject *fs_store_object_samples(PyObject *self, PyObject *unused);
PyObject *fs_store_object_join_replays(PyObject *self, PyObject *args);
PyObject *fs_store_object_join_hlo(PyObject *self, PyObject *args);

/* Return an accounting as a dict of steps, cells, gaps and pairs, or NULL with an exception set. */
PyObject *fs_accounting_object(const fs_store *store, const struct fs_accounting *accounting);

/* Replace a stopped recording by one in which replays of watched graphs have their ops. */
fs_status fs_store_object_join_watched(fs_store **store, fs_error *err);

/* Constants and functions that go with them. */
int fs_add_replays(PyObject *module);
int fs_add_columns(PyObject *module);
int fs_add_metrics(PyObject *module);

#endif
