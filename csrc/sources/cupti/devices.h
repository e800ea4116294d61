/* What the driver knows of the devices that worked. */
#ifndef FS_SOURCES_CUPTI_DEVICES_H
#define FS_SOURCES_CUPTI_DEVICES_H

#include "store/store.h"

/* Store the facts of each device that has a lane; the driver must be loaded. What it does not tell stays missing.
 * FS_OUT_OF_MEMORY. */
fs_status fs_cupti_describe_devices(fs_store *store, fs_error *err);

#endif
