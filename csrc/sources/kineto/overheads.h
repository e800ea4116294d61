/* Profiling overhead, whose records have no thread. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_OVERHEADS_H
#define FS_SOURCES_KINETO_OVERHEADS_H

#include "sources/kineto/hosts.h"

/* Assign each overhead to the thread of the shortest event around it. Call after nesting; then nest again.
 * FS_OUT_OF_MEMORY. */
fs_status fs_join_place_overheads(fs_join *join, fs_error *err);

#endif
