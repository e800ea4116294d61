/* Profiler, and what the files of it share: life in profiler.c, and a file for each thing that a stopped profile gives. */
#ifndef FS_PYTHON_PROFILER_H
#define FS_PYTHON_PROFILER_H

#include "python/core.h"
#include "sources/native.h"

typedef struct {
    PyObject_HEAD
    fs_store *store;
    fs_recorder *recorder;
    fs_recorder_options options;
    bool running;
} fs_profiler_object;

/* False, with an exception that names what was asked for, while the profile runs. */
bool fs_profiler_is_stopped(const fs_profiler_object *self, const char *what);

/* Records that were lost, by any source. */
int64_t fs_profiler_dropped(const fs_profiler_object *self);

/* Methods of Profiler; each is documented where profiler.c lists it. */
PyObject *fs_profiler_table(PyObject *self, PyObject *args);

/* Constants that go with them. */
int fs_add_columns(PyObject *module);

#endif
