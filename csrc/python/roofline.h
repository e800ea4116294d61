/* Peaks, units and roofs as Python has them. */
#ifndef FS_PYTHON_ROOFLINE_H
#define FS_PYTHON_ROOFLINE_H

#include "python/core.h"
#include "roofline/roofline.h"

/* Read {"flops": {unit: FLOP/s}, "bandwidth": bytes/s, "launch_ns": ns, "kernel_ns": ns}; what is absent or None is
 * unknown. False with an exception set. */
bool fs_take_peaks(PyObject *given, fs_peaks *peaks);

/* The name of a compute unit; NULL with a ValueError that lists them for anything else. */
const char *fs_unit_text(PyObject *given);
/* Its name, or None. */
PyObject *fs_unit_object(fs_unit unit);

/* A _core.Roof. */
PyObject *fs_roof_object(const fs_roof *roof);

#endif
