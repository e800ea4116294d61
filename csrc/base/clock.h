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

/* Nanoseconds since 1970. */
static inline int64_t fs_clock_unix_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* What to add to fs_clock_now for the time since 1970. Of several readings of both clocks, the one that took least
 * counts: the thread may be interrupted in between. */
static inline int64_t fs_clock_unix_offset(void)
{
    enum { READINGS = 5 };
    int64_t shortest = INT64_MAX, offset = 0;
    for (int i = 0; i < READINGS; i++) {
        int64_t before = fs_clock_now(), unix_time = fs_clock_unix_now(), took = fs_clock_now() - before;
        if (took >= shortest) continue;
        shortest = took;
        offset = unix_time - before - took / 2;
    }
    return offset;
}

#endif
