/* Profiler, and what the files of it share: life in profiler.c, and a file for each thing that a stopped profile gives.
 */
#ifndef FS_PYTHON_PROFILER_H
#define FS_PYTHON_PROFILER_H

#include "python/core.h"
#include "python/frames.h"
#include "sources/cupti/cupti.h"
#include "sources/native.h"

typedef struct {
    PyObject_HEAD
    fs_store *store;
    fs_recorder *recorder;
    fs_recorder_options options;
    fs_cupti_options cupti_options;
    fs_cupti_report cupti;  /* of the capture that ended */
    bool changing;          /* start(), stop() or restart() is under way, perhaps without the GIL */
    int readers;            /* calls that read the store, perhaps without the GIL: nothing may change it */
    uint32_t readers_generation; /* of the process that they run in */
    bool captures, running; /* captures: by CUPTI */
    uint32_t generation;    /* of the process that it runs in, and of the store that it fills */
    uint32_t store_generation;
    bool with_stack;
    fs_frames *frames;   /* while it runs with stacks */
    int64_t frames_lost; /* calls of functions that could not be kept */
    bool recorded;       /* its events were read from a trace, */
    int64_t clock_base;  /* whose times count from that Unix time, ns */
} fs_profiler_object;

extern PyTypeObject *fs_profiler_type;

/* Whether the profile runs, in this process: a forked child has no part in it. */
bool fs_profiler_runs(const fs_profiler_object *self);

/* False, with an exception that names what was asked for, while the profile runs. */
bool fs_profiler_is_stopped(const fs_profiler_object *self, const char *what);

/* False, with an exception set, while another call starts, stops, fills or reads the profile: some run without the GIL,
 * some call Python code. */
bool fs_profiler_may_change(const fs_profiler_object *self);

/* Drop all events of a profile that does not run; without memory for an empty store they stay. */
void fs_profiler_empty(fs_profiler_object *self);

/* Records that were lost, by any source. */
int64_t fs_profiler_dropped(const fs_profiler_object *self);

/* Methods of Profiler; each is documented where profiler.c lists it. Those that read the profile are called by methods
 * of profiler.c that let nothing change it meanwhile. */
PyObject *fs_profiler_table(PyObject *self, PyObject *args);
PyObject *fs_profiler_events(PyObject *self, PyObject *unused);
PyObject *fs_profiler_gpu_summary(PyObject *self, PyObject *args);
PyObject *fs_profiler_step_breakdown(PyObject *self, PyObject *unused);
PyObject *fs_profiler_launch_summary(PyObject *self, PyObject *unused);
PyObject *fs_profiler_collectives(PyObject *self, PyObject *unused);
PyObject *fs_profiler_stream_summary(PyObject *self, PyObject *unused);
PyObject *fs_profiler_write_trace(PyObject *self, PyObject *args);
PyObject *fs_profiler_append(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *fs_profiler_set_device(PyObject *self, PyObject *args);
PyObject *fs_profiler_set_window(PyObject *self, PyObject *args);

/* Constants that go with them. */
int fs_add_columns(PyObject *module);

#endif
