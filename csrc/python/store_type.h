/* Store: the events of a profile or of a trace, to be read. What reads them lies in a file for each result;
 * store_type.c lets nothing change a store meanwhile.
 */
#ifndef FS_PYTHON_STORE_TYPE_H
#define FS_PYTHON_STORE_TYPE_H

#include "python/core.h"
#include "store/store.h"

typedef struct {
    PyObject_HEAD
    fs_store *store;
    int64_t dropped;                     /* records that were lost, without those that `lost` counts */
    int64_t (*lost)(const void *source); /* of the Profiler that fills it; NULL: none does */
    const void *source;
    bool filled;                 /* a Profiler records into it, */
    bool changing;               /* or starts, stops or reads a trace into it, perhaps without the GIL */
    uint32_t generation;         /* of the process that does */
    int readers;                 /* calls that read it, perhaps without the GIL: nothing may change it */
    uint32_t readers_generation; /* of the process that they run in */
    bool profile_memory;
    bool recorded;      /* its events were read from a trace, */
    int64_t clock_base; /* whose times count from that Unix time, ns */
} fs_store_object;

struct fs_accounting;

extern PyTypeObject *fs_store_type;

/* Return a Store without events, or NULL with an exception set. */
fs_store_object *fs_store_object_create(void);

/* Return whether a Profiler of this process records into the store. A forked child does not. */
bool fs_store_object_is_filled(const fs_store_object *self);

/* Return false, with an exception that names the method `what`, while a Profiler records into the store. */
bool fs_store_object_is_stopped(const fs_store_object *self, const char *what);

/* Return false, with an exception set, while another call starts, stops, fills or reads the store: some calls release
 * the GIL, some run Python code. */
bool fs_store_object_may_change(const fs_store_object *self);

/* Drop all events of a store that no Profiler fills; without memory for an empty one they stay. */
void fs_store_object_empty(fs_store_object *self);

/* Records that were lost, by any source. */
static inline int64_t fs_store_object_dropped(const fs_store_object *self)
{
    return self->dropped + (self->lost != NULL ? self->lost(self->source) : 0);
}

/* Methods of Store; each is documented where store_type.c lists it, which calls them while nothing changes the store.
 */
PyObject *fs_store_object_table(PyObject *self, PyObject *args);
PyObject *fs_store_object_enclosing(PyObject *self, PyObject *args);
PyObject *fs_store_object_arguments(PyObject *self, PyObject *args);
PyObject *fs_store_object_events(PyObject *self, PyObject *unused);
PyObject *fs_store_object_gpu_summary(PyObject *self, PyObject *args);
PyObject *fs_store_object_step_breakdown(PyObject *self, PyObject *unused);
PyObject *fs_store_object_launch_summary(PyObject *self, PyObject *unused);
PyObject *fs_store_object_collectives(PyObject *self, PyObject *unused);
PyObject *fs_store_object_collective_calls(PyObject *self, PyObject *unused);
PyObject *fs_store_object_stream_summary(PyObject *self, PyObject *unused);
PyObject *fs_store_object_write_trace(PyObject *self, PyObject *args);
PyObject *fs_store_object_lines(PyObject *self, PyObject *args);
PyObject *fs_store_object_names(PyObject *self, PyObject *unused);
PyObject *fs_store_object_named_calls(PyObject *self, PyObject *args);
PyObject *fs_store_object_idle_calls(PyObject *self, PyObject *args);
PyObject *fs_store_object_waiting_calls(PyObject *self, PyObject *args);
PyObject *fs_store_object_late_within(PyObject *self, PyObject *args);
PyObject *fs_store_object_late_spent(PyObject *self, PyObject *args);
PyObject *fs_store_object_trace_frames(PyObject *self, PyObject *unused);
PyObject *fs_store_object_trace_ranges(PyObject *self, PyObject *args);
PyObject *fs_store_object_trace_samples(PyObject *self, PyObject *unused);
PyObject *fs_store_object_join_replays(PyObject *self, PyObject *args);
PyObject *fs_store_object_join_hlo(PyObject *self, PyObject *args);

/* Return an accounting as a dict of steps, cells, gaps and pairs, or NULL with an exception set. */
PyObject *fs_accounting_object(const fs_store *store, const struct fs_accounting *accounting);

/* Replace a stopped recording by one in which replays of watched graphs have their ops. */
fs_status fs_store_object_join_watched(fs_store **store, fs_error *err);

/* Constants and functions that go with them. */
int fs_add_replays(PyObject *module);
int fs_add_columns(PyObject *module);

#endif
