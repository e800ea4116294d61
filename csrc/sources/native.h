/* The recorder of native launches: observes the op layer and appends events to a store. If no better source provides
 * the device time of an op on CUDA, it is the time between two marks (CUDA events) around its work. */
#ifndef FS_SOURCES_NATIVE_H
#define FS_SOURCES_NATIVE_H

#include "store/signature.h"
#include "store/store.h"

typedef struct fs_recorder fs_recorder;

typedef struct {
    bool ops;            /* append an event for every op */
    bool profile_memory; /* append an event for every change of memory */
    bool event_times;    /* measure the device time of ops on CUDA with events around them; implies ops */
} fs_recorder_options;

/* Create a stopped recorder. `store` must outlive it. FS_OUT_OF_MEMORY. */
fs_status fs_recorder_create(fs_recorder **recorder, fs_store *store, const fs_recorder_options *options,
                             fs_error *err);
void fs_recorder_destroy(fs_recorder *recorder); /* the recorder must be stopped; accepts NULL */

/* Start observing the ops of all threads. FS_RUNTIME_ERROR if another recorder is running. */
fs_status fs_recorder_start(fs_recorder *recorder, fs_error *err);

/* Stop observing, close open events, wait for the devices and append their times. The caller must not hold a lock that
 * a running op needs. The recorder is stopped even on error; device times that failed count as lost. */
fs_status fs_recorder_stop(fs_recorder *recorder, fs_error *err);

/* Begin a user annotation (FS_EVENT_RANGE or FS_EVENT_STEP), or an op that is one launch (FS_EVENT_OP), on the calling
 * thread. `work` (NULL: none) is its work. */
fs_status fs_recorder_begin_range(fs_recorder *recorder, fs_event_kind kind, const char *name,
                                  const fs_given_work *work, uint32_t *index, fs_error *err);
void fs_recorder_end_range(fs_recorder *recorder, uint32_t index);

/* Return the store of the running recorder, or NULL, which no recorder leaves before fs_recording_release. */
fs_store *fs_recording_hold(void);
void fs_recording_release(void);

/* Let a stopped recorder go on with another store, as its own is replaced. */
void fs_recorder_move(fs_recorder *recorder, fs_store *store);

/* Return the number of events lost because memory was exhausted or a device time failed. */
int64_t fs_recorder_lost(const fs_recorder *recorder);

#endif
