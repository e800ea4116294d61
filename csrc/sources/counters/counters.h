/* Hardware counters, through CUPTI. Of one kernel or call by its Range Profiler (ranges.h), of a running program by PM
 * sampling (sampling.h).
 *
 *   library    loads libcupti; what its refusals mean
 *   chips.def  the metrics of each generation of chips by what they count
 *   plan       the metrics that one pass over a chip can count, and their values; needs no GPU
 *   sampling   PM sampling of a device, decoded by a thread of its own, into a store
 *   ranges     counts of what runs between two calls
 *
 * Opening anything initializes CUPTI's profiler, which does nothing if it is, and keeps CUPTI in the process until that
 * is closed. The profiler is never deinitialized: other clients may use it, and CUPTI does not count them. No clock and
 * no setting of the GPU is changed; CUPTI itself holds the clocks while it counts. */
#ifndef FS_SOURCES_COUNTERS_COUNTERS_H
#define FS_SOURCES_COUNTERS_COUNTERS_H

#include "base/status.h"

/* Load CUPTI's interfaces of counters from `path` (NULL or "": search with the loader), once per process.
 * FS_RUNTIME_ERROR names what is missing or too old. Needs neither a driver nor a GPU. */
fs_status fs_counters_load(const char *path, fs_error *err);

#endif
