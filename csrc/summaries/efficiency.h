/* Efficiency of each device over a profile or one of its steps, as defined by PyTorch's TensorBoard plugin. */
#ifndef FS_SUMMARIES_EFFICIENCY_H
#define FS_SUMMARIES_EFFICIENCY_H

#include "store/store.h"

/* In percent; NaN where an input is missing. "the time" is the time of the steps, or of the whole profile if it has
 * none. X(name, prose) */
#define FS_EFFICIENCY_LIST(X)                                                                                        \
    X(gpu_utilization, "share of the time during which a kernel ran")                                                \
    X(sm_efficiency, "time-weighted mean of min(blocks of all running kernels / SMs, 1)")                            \
    X(achieved_occupancy, "mean occupancy of the kernels, estimated from their launches and weighted by their time") \
    X(tensor_core_time, "share of kernel time in kernels whose names indicate tensor cores")                         \
    X(matrix_time, "share of kernel time in kernels whose names indicate matrix products without tensor cores")      \
    X(idle, "share of the time during which the device ran no kernel, copy or fill")

typedef struct {
    int device;
#define FS_EFFICIENCY_FIELD(name, prose) double name;
    FS_EFFICIENCY_LIST(FS_EFFICIENCY_FIELD)
#undef FS_EFFICIENCY_FIELD
} fs_efficiency;

/* Compute one row per device that has work, in ascending order. `step` restricts the time to steps of that name; NULL:
 * all. An interval between two CUDA events counts as a kernel of unknown name and launch. Errors: FS_VALUE_ERROR lists
 * the steps if none has that name; FS_OUT_OF_MEMORY. Release the rows with fs_free. */
fs_status fs_efficiency_of(const fs_store *store, const char *step, fs_efficiency **rows, uint32_t *count,
                           fs_error *err);

#endif
