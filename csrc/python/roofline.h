/* Conversion of peaks, units and roofs between Python and the core. */
#ifndef FS_PYTHON_ROOFLINE_H
#define FS_PYTHON_ROOFLINE_H

#include "python/core.h"
#include "table/table.h"

/* Read {"flops": {unit: FLOP/s}, "bandwidth": bytes/s, "l2_bandwidth": bytes/s, "launch_ns": ns, "kernel_ns": ns}. A
 * missing key or None is unknown. Return false with an exception set on failure. */
bool fs_take_peaks(PyObject *object, fs_peaks *peaks);

/* The options of a table with room for the peaks that they point to. */
typedef struct {
    fs_table_options options;
    fs_peaks peaks[FS_MAX_CUDA_DEVICES + 1];
} fs_table_request;

/* Read a dict of peaks by device: {"cpu": …, "cuda:0": …}. Return false with an exception set on failure. */
bool fs_take_all_peaks(PyObject *values, fs_table_request *request);

/* Return the name of a compute unit. For an unknown one, return NULL with a ValueError that lists the units. */
const char *fs_unit_text(PyObject *object);
/* Return the unit's name, or None. */
PyObject *fs_unit_object(fs_unit unit);

/* Return a new _core.Roof. */
PyObject *fs_roof_object(const fs_roof *roof);

struct fs_torch_call;

/* Return a list of the arguments of a call of torch: (dtype, shape, strides or None) of a tensor, a list of these, the
 * text of a scalar, or None. */
PyObject *fs_torch_arguments_object(const struct fs_torch_call *call);

#endif
