/* The methods of Store that read it or join two, for store_type.c. */
#ifndef FS_PYTHON_STORE_METHODS_H
#define FS_PYTHON_STORE_METHODS_H

#include "python/store_object.h"

struct fs_accounting;

/* What reads a stopped profile: nothing may change the store meanwhile. Each method is documented where store_type.c
 * lists it. X(method, what it gives) */
#define FS_STORE_READERS(X)             \
    X(table, "table")                   \
    X(accounting, "table")              \
    X(timeline, "table")                \
    X(enclosing, "enclosing events")    \
    X(arguments, "arguments")           \
    X(alike, "calls")                   \
    X(events, "events")                 \
    X(gpu_summary, "GPU summary")       \
    X(step_breakdown, "step breakdown") \
    X(phases, "phases")                 \
    X(launch_summary, "launch summary") \
    X(collectives, "collectives")       \
    X(collective_calls, "calls")        \
    X(stream_summary, "stream summary") \
    X(samples, "counter samples")       \
    X(lines, "lines")                   \
    X(names, "names")                   \
    X(named_calls, "calls")             \
    X(late_within, "late launches")     \
    X(late_spent, "late launches")      \
    X(trace_text, "trace")              \
    X(write_trace, "trace")

#define FS_STORE_METHOD(method, what) PyObject *fs_store_object_##method(PyObject *self, PyObject *args);
FS_STORE_READERS(FS_STORE_METHOD)
#undef FS_STORE_METHOD

/* These change it. */
PyObject *fs_store_object_add_samples(PyObject *self, PyObject *args);
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
