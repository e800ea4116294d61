/* Overhead of profiling, which has no thread of its own. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_OVERHEADS_H
#define FS_SOURCES_KINETO_OVERHEADS_H

#include "sources/kineto/hosts.h"

/* Put each overhead on the thread of the shortest event around it. Once nested; then nest again. */
fs_status fs_join_place_overheads(fs_join *join, fs_error *err);

#endif
