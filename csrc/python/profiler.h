/* Profiler: what records into a Store while it runs. */
#ifndef FS_PYTHON_PROFILER_H
#define FS_PYTHON_PROFILER_H

#include "python/frames.h"
#include "python/store_object.h"
#include "sources/cupti/cupti.h"
#include "sources/native.h"
#include "sources/nvtx/nvtx.h"
#include "store/extend.h"

typedef struct {
    PyObject_HEAD
    fs_store_object *into; /* what it records into; owned */
    fs_recorder *recorder;
    fs_recorder_options options;
    fs_cupti_options cupti_options;
    fs_cupti_report cupti; /* of the capture that ended */
    bool captures;         /* by CUPTI */
    uint32_t recording;    /* counts what begins anew: the tokens of ranges hold it */
    fs_late_op *late;      /* ops that are inserted when it ends */
    uint32_t late_count, late_capacity;
    bool with_stack;
    bool nvtx;             /* records ranges of NVTX, unless another does */
    bool hears_nvtx;       /* while it does */
    fs_nvtx_report ranges; /* of NVTX, once they are no longer recorded */
    fs_frames *frames;     /* while it runs with stacks */
    int64_t frames_lost;   /* calls of functions that could not be kept */
} fs_profiler_object;

extern PyTypeObject *fs_profiler_type;

/* Return the counts as a dict. */
PyObject *fs_nvtx_report_object(const fs_nvtx_report *report);

/* Whether the profile runs, in this process: a forked child has no part in it. */
bool fs_profiler_runs(const fs_profiler_object *self);

#endif
