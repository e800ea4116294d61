/* Changes of memory. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_MEMORY_H
#define FS_SOURCES_KINETO_MEMORY_H

#include "sources/kineto/hosts.h"

/* Append the memory records, after the hosts are in the store. FS_OUT_OF_MEMORY. */
fs_status fs_join_memory(fs_join *join, fs_error *err);

#endif
