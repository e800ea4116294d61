/* How well a profile, or one step of it, used each device: the numbers of PyTorch's TensorBoard plugin. */
#ifndef FS_SUMMARIES_EFFICIENCY_H
#define FS_SUMMARIES_EFFICIENCY_H

#include "store/store.h"

/* In percent, NaN where a fact is missing; "the time" is that of the steps, or of the whole profile where it has none.
 * X(name, prose) */
#define FS_EFFICIENCY_LIST(X)                                                                                         \
    X(gpu_utilization, "of the time in which a kernel ran")                                                           \
    X(sm_efficiency, "the mean over the time of min(blocks of all running kernels / SMs, 1)")                         \
    X(achieved_occupancy, "the mean over the kernels, by their time, of the occupancy estimated from their launches") \
    X(tensor_core_time, "of the kernels' time in kernels that by their name use the tensor cores")                    \
    X(matrix_time, "of the kernels' time in kernels that by their name multiply matrices without the tensor cores")   \
    X(idle, "of the time in which the device had no work: no kernel, no copy, no fill")

typedef struct {
    int device;
#define FS_EFFICIENCY_FIELD(name, prose) double name;
    FS_EFFICIENCY_LIST(FS_EFFICIENCY_FIELD)
#undef FS_EFFICIENCY_FIELD
} fs_efficiency;

/* A row per device that worked, ascending. `step`: the steps of that name only, NULL for all. The time between two CUDA
 * events counts as a kernel of unknown name and launch. FS_VALUE_ERROR names the steps where none is called so;
 * FS_OUT_OF_MEMORY. Release the rows with fs_free. */
fs_status fs_efficiency_of(const fs_store *store, const char *step, fs_efficiency **rows, uint32_t *count,
                           fs_error *err);

#endif
