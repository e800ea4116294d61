/* Methods of Store on counter samples; each is documented where store_type.c lists it. */
#ifndef FS_PYTHON_STORE_SAMPLES_H
#define FS_PYTHON_STORE_SAMPLES_H

#include "python/store_type.h"

PyObject *fs_store_object_add_samples(PyObject *self, PyObject *args);
PyObject *fs_store_object_samples(PyObject *self, PyObject *unused);

/* Add the list of known metrics to the module. */
int fs_add_metrics(PyObject *module);

#endif
