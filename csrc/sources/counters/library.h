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

#endif
