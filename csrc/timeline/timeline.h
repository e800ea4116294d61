/* A timeline: the events of a store as lanes of blocks that do not overlap, for drawing.
 *
 *   store ── lanes ──► tracks: the events of one thread or stream      sorted, then stacked into lanes by depth
 *   lanes ── blocks ─► blocks: one event each, or several short ones   so that their number stays below a limit
 *
 * Events without a start, events that nest or overlap too deeply, and changes of memory are left out and counted. */
#ifndef FS_TIMELINE_TIMELINE_H
#define FS_TIMELINE_TIMELINE_H

#include "accounting/accounting.h"
#include "store/store.h"
#include "table/table.h"

/* What a lane holds. X(NAME, name, prose) */
#define FS_LANE_ROLE_LIST(X)                                                      \
    X(IDLE, idle, "idle time of a device; the depth is the cause, fs_idle_cause") \
    X(ANNOTATION, annotation, "ranges and steps on a device or across threads")   \
    X(WORK, work, "work of a device")                                             \
    X(WAIT, wait, "waits for a device")                                           \
    X(HOST, host, "ops, ranges, API calls and Python calls of a thread")          \
    X(OVERHEAD, overhead, "time spent on profiling itself or on loading code")

typedef enum {
#define FS_LANE_ROLE_ENUM(NAME, name, prose) FS_LANE_##NAME,
    FS_LANE_ROLE_LIST(FS_LANE_ROLE_ENUM)
#undef FS_LANE_ROLE_ENUM
        FS_LANE_ROLE_COUNT
} fs_lane_role;

extern const char *const fs_lane_role_names[FS_LANE_ROLE_COUNT];

/* The lanes of one thread or stream; deeper events are left out. */
enum { FS_TIMELINE_DEPTH = 64, FS_TIMELINE_OVERLAP = 16 };

typedef struct {
    uint64_t id;   /* thread or stream */
    bool has_id;   /* false: of no single thread or stream */
    int8_t device; /* -1: the host */
    uint8_t role;
    uint8_t depth;
    uint32_t first, count; /* blocks */
} fs_timeline_lane;

/* Events of one label have their name, kind, launch and row in common. */
typedef fs_table_call fs_timeline_label;

/* X(type, name, prose): a column by block. */
#define FS_TIMELINE_COLUMN_LIST(X)                                                                           \
    X(int64_t, start, "ns")                                                                                  \
    X(int64_t, duration, "ns; of several events, from the start of the first to the end of the last")        \
    X(int64_t, busy, "ns; of several events, the sum of their durations")                                    \
    X(int64_t, bytes, "of a copy or a fill")                                                                 \
    X(uint32_t, label, "index of a label, of several events that of the longest; FS_NONE: idle time")        \
    X(uint32_t, row, "of the op to which the work of a device belongs, or FS_NONE")                          \
    X(uint32_t, link, "block of: the launch of work, the forward op of a backward op, the work after a gap") \
    X(uint32_t, count, "events")

typedef struct {
#define FS_TIMELINE_FIELD(type, name, prose) type *name;
    FS_TIMELINE_COLUMN_LIST(FS_TIMELINE_FIELD)
#undef FS_TIMELINE_FIELD
    uint32_t block_count;
    fs_timeline_lane *lanes;
    uint32_t lane_count;
    fs_timeline_label *labels;
    uint32_t label_count;
    uint32_t event_count;    /* in the blocks, idle times included */
    int64_t merged_ns;       /* shorter events were merged, within as much time; 0: none were */
    uint32_t open_count;     /* in the blocks: events without an end, drawn until the last known time */
    uint32_t unplaced_count; /* left out: without a start */
    uint32_t deep_count;     /* left out: nested or overlapping too deeply */
    uint32_t memory_count;   /* left out: changes of memory */
    uint32_t idle_count;     /* idle times in the blocks */
} fs_timeline;

/* Draw a store of at most about `limit` blocks. The table must list its works and its calls, the accounting its idle
 * times (fs_accounting_list). The table's works are freed as soon as they are read. FS_OUT_OF_MEMORY. */
fs_status fs_timeline_build(fs_timeline *timeline, const fs_store *store, fs_table *table,
                            const fs_accounting *accounting, uint32_t limit, fs_error *err);
void fs_timeline_clear(fs_timeline *timeline);

#endif
