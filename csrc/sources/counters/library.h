/* CUPTI's interfaces of counters, loaded once, and what its refusals mean. Private to csrc/sources/counters. */
#ifndef FS_SOURCES_COUNTERS_LIBRARY_H
#define FS_SOURCES_COUNTERS_LIBRARY_H

#include "base/status.h"
#include "sources/counters/abi.h"

/* NULL until fs_counters_load succeeds. */
extern const fs_counters_functions *fs_counters;

/* Return FS_RUNTIME_ERROR with the failed step, what CUPTI answered and, where it is known, what to do about it. */
fs_status fs_counters_fail(int code, const char *doing, fs_error *err);

/* Initialize CUPTI's profiler, which does nothing if it is. A capture that ends detaches CUPTI from the process; then a
 * subscription brings it back, which *subscriber receives (else NULL), to be given back by fs_counters_release. */
fs_status fs_counters_wake(void **subscriber, fs_error *err);
void fs_counters_release(void *subscriber);

#endif
