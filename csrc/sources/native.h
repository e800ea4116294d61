/* The source of native launches: watches the op layer and appends what it sees to a store. Where no better source tells
 * the device time of an op on CUDA, it is the time between two marks (CUDA events) around its work. */
#ifndef FS_SOURCES_NATIVE_H
#define FS_SOURCES_NATIVE_H

#include "store/signature.h"
#include "store/store.h"

typedef struct fs_recorder fs_recorder;

typedef struct {
    bool ops;            /* append an event for every op */
    bool profile_memory; /* and for every change of memory */
    bool event_times;    /* and the device time of ops on CUDA, by events around them; implies ops */
} fs_recorder_options;

/* `store` must outlive the recorder. FS_OUT_OF_MEMORY. */
fs_status fs_recorder_create(fs_recorder **recorder, fs_store *store, const fs_recorder_options *options,
                             fs_error *err);
void fs_recorder_destroy(fs_recorder *recorder); /* stopped; takes NULL too */

/* Watch the ops of all threads. FS_RUNTIME_ERROR when another recorder does. */
fs_status fs_recorder_start(fs_recorder *recorder, fs_error *err);

/* Stop watching, close what is open, wait for the devices and append their times. Must be called without a lock that a
 * running op needs. Device times that failed are counted as lost and the error told, but the recorder is stopped in
 * any case. */
fs_status fs_recorder_stop(fs_recorder *recorder, fs_error *err);

/* A user annotation (FS_EVENT_RANGE or FS_EVENT_STEP) on the calling thread; `work` (NULL: not said) is what the
 * program says that it does as a whole. */
fs_status fs_recorder_begin_range(fs_recorder *recorder, fs_event_kind kind, const char *name,
                                  const fs_given_work *work, uint32_t *index, fs_error *err);
void fs_recorder_end_range(fs_recorder *recorder, uint32_t index);

/* Events that could not be kept: no memory for them, or a device time that failed. */
int64_t fs_recorder_lost(const fs_recorder *recorder);

#endif
