/* Nesting of events by time, on each thread. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_NEST_H
#define FS_SOURCES_KINETO_NEST_H

#include "sources/kineto/owners.h"

/* Fill in parents, frames, children and ones. FS_OUT_OF_MEMORY. */
fs_status fs_join_nest(fs_join *join, fs_error *err);

/* Profiling overhead, whose records have no thread. Private to the trace source. */

#endif
