/* The source of native launches: watches the op layer and appends what it sees to a store. On CUDA the device time of
 * an op is the time between two marks (CUDA events) around its work. */
#ifndef FS_SOURCES_NATIVE_H
#define FS_SOURCES_NATIVE_H

#include "store/store.h"

typedef struct fs_recorder fs_recorder;

/* `store` must outlive the recorder. FS_OUT_OF_MEMORY. */
fs_status fs_recorder_create(fs_recorder **recorder, fs_store *store, bool profile_memory, fs_error *err);
void fs_recorder_destroy(fs_recorder *recorder); /* stopped; takes NULL too */

/* Watch the ops of all threads. FS_RUNTIME_ERROR when another recorder does. */
fs_status fs_recorder_start(fs_recorder *recorder, fs_error *err);

/* Stop watching, close what is open, wait for the devices and append their times. Must be called without a lock that a
 * running op needs. Device times that failed are counted as lost and the error told, but the recorder is stopped in
 * any case. */
fs_status fs_recorder_stop(fs_recorder *recorder, fs_error *err);

/* A user annotation on the calling thread. */
fs_status fs_recorder_begin_range(fs_recorder *recorder, const char *name, uint32_t *index, fs_error *err);
void fs_recorder_end_range(fs_recorder *recorder, uint32_t index);

/* Events that could not be kept: no memory for them, or a device time that failed. */
int64_t fs_recorder_lost(const fs_recorder *recorder);

#endif
