/* Puts joined records into the store. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_APPEND_H
#define FS_SOURCES_KINETO_APPEND_H

#include "sources/kineto/owners.h"

/* Append the nested hosts. Their records then have their indices. FS_OUT_OF_MEMORY. */
fs_status fs_join_append_hosts(fs_join *join, fs_error *err);
/* Append the records of devices and the host's waits for them, after the launchers are known. FS_OUT_OF_MEMORY. */
fs_status fs_join_append_devices(fs_owners *owners, fs_error *err);

#endif
