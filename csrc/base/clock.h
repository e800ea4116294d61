/* The host clock of all events: CLOCK_MONOTONIC, in integer nanoseconds. */
#ifndef FS_BASE_CLOCK_H
#define FS_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t fs_clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* What to add to that clock for the time since 1970. */
static inline int64_t fs_clock_unix_offset(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - fs_clock_now();
}

#endif
