/* Store: the events of a profile or of a trace, to be read. What reads them lies in a file for each kind of result;
 * store_type.c lets nothing change a store meanwhile. */
#ifndef FS_PYTHON_STORE_OBJECT_H
#define FS_PYTHON_STORE_OBJECT_H

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

#endif
