/* The clock of CUPTI's samples, tied to the store's and to Unix time. Private to the counters. */
#ifndef FS_SOURCES_COUNTERS_ANCHOR_H
#define FS_SOURCES_COUNTERS_ANCHOR_H

#include <stdbool.h>
#include <stdint.h>

/* The same instant by CUPTI's clock, the store's and Unix time. */
typedef struct {
    uint64_t cupti;
    int64_t host, unix_time; /* ns */
} fs_anchor;

/* Read all clocks at once, as often as it takes to be rarely interrupted. */
fs_anchor fs_anchor_take(void);

/* A time of CUPTI's clock by the host's, or by Unix time. CUPTI's may count anything, such as cycles: two instants, one
 * before and one after it, tell its rate. */
int64_t fs_anchor_convert(const fs_anchor *from, const fs_anchor *to, uint64_t time, bool to_unix);

#endif
