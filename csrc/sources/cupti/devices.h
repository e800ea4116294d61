/* The devices, by the driver: what it knows of those that worked, and the end of their work. Private to the capture. */
#ifndef FS_SOURCES_CUPTI_DEVICES_H
#define FS_SOURCES_CUPTI_DEVICES_H

#include "store/store.h"

/* Store the facts of each device that has a lane; the driver must be loaded. What it does not tell stays missing.
 * FS_OUT_OF_MEMORY. */
fs_status fs_cupti_describe_devices(fs_store *store, fs_error *err);

/* Wait for the work on every device's primary context; other contexts cannot be listed. Returns the first error; a
 * context with an error has no more work to wait for. */
int fs_devices_wait(void);

/* FS_RUNTIME_ERROR, with the error that fs_devices_wait returned. */
fs_status fs_devices_failed(int failed, fs_error *err);

#endif
