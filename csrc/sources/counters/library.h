/* CUPTI's interfaces of counters, loaded once, and what its refusals mean. Private to csrc/sources/counters. */
#ifndef FS_SOURCES_COUNTERS_LIBRARY_H
#define FS_SOURCES_COUNTERS_LIBRARY_H

#include <stdbool.h>

#include "base/status.h"
#include "sources/counters/abi.h"

/* NULL until fs_counters_load succeeds. */
extern const fs_counters_functions *fs_counters;

/* Return FS_RUNTIME_ERROR with the failed step, what CUPTI answered and, where it is known, what to do about it. */
fs_status fs_counters_fail(int code, const char *doing, fs_error *err);

/* Return that if the code is not FS_COUNTERS_SUCCESS. */
fs_status fs_counters_check(int code, const char *doing, fs_error *err);

/* What keeps CUPTI in the process while counters are open: a profile that ends meanwhile does not detach it. */
typedef struct {
    void *subscriber; /* NULL: none was needed */
    bool held;
} fs_counters_hold;

/* Opens something that counts. On failure it leaves nothing open that a second try would meet. */
typedef fs_status (*fs_counters_opener)(void *what, fs_error *err);

/* Initialize CUPTI's profiler and open. A capture that ends detaches CUPTI from the process, which then answers
 * FS_COUNTERS_ASLEEP; it comes back with a subscription or, if that is not enough, with an activity kind that is
 * enabled for a moment. So each is tried in turn, while the answer is that. fs_counters_release ends the hold of a
 * success; a failure leaves none. */
fs_status fs_counters_open(fs_counters_hold *hold, fs_counters_opener open, void *what, fs_error *err);
void fs_counters_release(fs_counters_hold *hold);

/* Hardware counters, through CUPTI. Of one kernel or call by its Range Profiler (ranges.h), of a running program by PM
 * sampling (sampling.h).
 *
 *   library    loads libcupti; what its refusals mean
 *   chips.def  the metrics of each generation of chips by what they count
 *   plan       the metrics that one pass over a chip can count, and their values; needs no GPU
 *   sampling   PM sampling of a device, decoded by a thread of its own, into a store
 *   ranges     counts of what runs between two calls
 *   pc_sampling   where the warps of kernels are, and what they wait for
 *
 * Opening anything initializes CUPTI's profiler, which does nothing if it is, and keeps CUPTI in the process until that
 * is closed. The profiler is never deinitialized: other clients may use it, and CUPTI does not count them. No clock and
 * no setting of the GPU is changed; CUPTI itself holds the clocks while it counts. */

/* Load CUPTI's interfaces of counters from `path` (NULL or "": search with the loader), once per process.
 * FS_RUNTIME_ERROR names what is missing or too old. Needs neither a driver nor a GPU. */
fs_status fs_counters_load(const char *path, fs_error *err);

#endif
