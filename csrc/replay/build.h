/* What a replay is made from. Private to csrc/replay. */
#ifndef FS_REPLAY_BUILD_H
#define FS_REPLAY_BUILD_H

#include "replay/replay.h"
#include "summaries/intervals.h"

/* The end of what did not happen; the longest time that is taken for one, so that sums of them fit. */
#define FS_REPLAY_NEVER INT64_MIN
#define FS_REPLAY_LONGEST ((int64_t)1 << 50)

static inline int64_t fs_later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

typedef struct {
    fs_replay *replay;
    const fs_store *store;
    int64_t begin, end;        /* of the steps on the host, in ns of the store */
    uint32_t *places;          /* by event: its call, itself or around it, or that of its work; FS_NONE */
    uint32_t *sequences;       /* by thread; undefined of those without calls */
    fs_intervals found;        /* the calls, then the works by start; tags are events */
    fs_intervals backlog;      /* work launched before the steps, by start since these begin */
    fs_intervals starts, ends; /* of works since the steps begin; tags are works */
} fs_replay_builder;

/* Find what calls and works wait for. */
fs_status fs_replay_link(fs_replay_builder *of, fs_error *err);

#endif
