/* Records, and the piece of a trace that contains them. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_RECORDS_H
#define FS_SOURCES_KINETO_RECORDS_H

#include "base/intern.h"
#include "base/lock.h"
#include "sources/kineto/json_scan.h"
#include "sources/kineto/kineto.h"
#include "sources/kineto/mend.h"
#include "sources/kineto/stacks.h"
#include "store/signature.h"
#include "store/store.h"
#include "store/torch_signature.h"

/* Counter tracks of a trace: events of phase "C". Private to the trace source.
 *
 *   {"ph": "C", "name": "dram_bytes_read", "pid": 0, "ts": 1.5, "args": {"GB/s": 4100.25}}
 *
 * The process is the device. A value holds from its event to the next one of its series; the last one of a series is
 * left out, as nothing tells its end. Names of CUPTI and of the store's metrics become those metrics: values under
 * "GB/s" and "%" are rates and shares, and others what was counted until the next event. All other series keep their
 * name (and key, unless it is "value" or there is only one) and are levels. */

enum { FS_SERIES = 8 };

/* The series of one event, in thousandths. */
typedef struct {
    fs_scan_span keys[FS_SERIES];
    int64_t values[FS_SERIES];
    int count;
    bool missing; /* it marks the end of what was counted: it has a member "missing" */
} fs_counter_series;

/* Points of all series; zeroed if there are none. */
typedef struct {
    struct fs_counter_point *points;
    uint32_t count, capacity;
    fs_intern names; /* "name" or "name\nkey" */
} fs_counter_points;

/* Read the "args" of an event. */
fs_scan_status fs_counters_read(fs_scan *scan, fs_counter_series *series);

/* Keep the points of an event. FS_OUT_OF_MEMORY. */
fs_status fs_counters_keep(fs_counter_points *points, const fs_scan_span *name, int64_t device, int64_t start,
                           const fs_counter_series *series, fs_error *err);
void fs_counters_clear(fs_counter_points *points);

/* Add the points of the pieces of a trace to the store. FS_OUT_OF_MEMORY. */
fs_status fs_counters_join(fs_counter_points *const *pieces, uint32_t count, fs_store *store, fs_error *err);

/* Upper limit for amounts (bytes, elements and the like). Sums of a few such numbers, and products with an element's
 * size, do not overflow. */
#define FS_MOST_AMOUNT (INT64_C(1) << 53)

/* An event as recorded in the trace. */
typedef struct {
    int64_t start, duration; /* ns; duration: FS_MISSING if unknown */
    int64_t external;        /* "External id"; -1: none */
    union {
        int64_t bytes;
        int64_t node;      /* of an op: fs_record_node */
        uint32_t launcher; /* of an API call in the store: the owner, in the store, of the work that it launched */
    };
    uint32_t name, signature, lane; /* ids of the piece; after joining, of the store. A change of memory has the index
                                     * of its state as its signature. */
    uint32_t correlation;
    union {
        uint32_t index; /* event id in the store */
        uint32_t mark;  /* of marked device work that is not in the store yet: like name */
    };
    int8_t device;
    uint8_t kind;
    uint8_t graph;          /* of an op or an annotation: FS_EVENT_REPLAYED, which takes no time, … */
    bool communication : 1; /* an annotation of a collective: it ends on another thread */
    bool marked : 1;        /* work of a graph with an annotation of its capture */
    bool shared : 1;        /* an API call whose correlation, or an op whose "External id", is not unique */
} fs_record;

/* Reading takes as much memory as its records: without padding. */
_Static_assert(sizeof(fs_record) == 56, "a record has no padding but its last byte");

/* The autograd node of an op: its "Sequence number", and 0 for an op of the forward pass, which made the node, or the
 * "Fwd thread id" (1, 2, …: numbers of torch's own) for an op of the backward pass, which runs it. 0: none. */
enum { FS_NODE_THREAD_BITS = 16 };

static inline int64_t fs_record_node(int64_t sequence, int64_t thread)
{
    if (sequence < 0 || sequence >= INT64_C(1) << 46 || thread < 0 || thread >> FS_NODE_THREAD_BITS != 0) return 0;
    return (sequence + 1) << FS_NODE_THREAD_BITS | thread;
}

static inline bool fs_record_is_backward(const fs_record *record)
{
    return record->kind == FS_EVENT_OP && (record->node & ((1 << FS_NODE_THREAD_BITS) - 1)) != 0;
}

enum { FS_RECORD_BLOCK = FS_BLOCK(584, 8) }; /* 64 blocks fill a huge page; a piece leaves half of one empty */

typedef struct fs_record_block {
    struct fs_record_block *next;
    uint32_t count;
    fs_record records[FS_RECORD_BLOCK];
} fs_record_block;

/* The memory of the records of a trace, shared by its pieces. An all-zero struct is an empty pool. */
typedef struct fs_record_slab fs_record_slab;
typedef struct {
    fs_lock lock;
    fs_record_slab *slabs;
    fs_record_block *free;
} fs_record_pool;

void fs_record_pool_clear(fs_record_pool *pool);

/* The key of a lane: host threads are identified by process and thread, streams by device, stream and process. */
typedef struct {
    int64_t device; /* -1: a host thread */
    int64_t thread; /* or stream */
    int64_t process;
} fs_record_lane;

/* Position of the reading in the structure of the trace. */
typedef enum {
    FS_PIECE_START,   /* before the first bracket */
    FS_PIECE_MEMBERS, /* in the top-level object */
    FS_PIECE_EVENTS,  /* in the array of events */
    FS_PIECE_END      /* after the last bracket */
} fs_piece_state;

typedef struct {
    /* The window: text[0 … size) holds the bytes of the trace from `offset`; those before `done` have been read. */
    char *text;
    size_t size, capacity, done;
    int64_t offset;
    int64_t until; /* stop before an event that begins here or later */
    fs_piece_state state;
    bool top_array;        /* the trace is an array of events */
    bool stopped;          /* reached `until` */
    bool whole;            /* the window holds the rest of the text */
    bool seen_events;      /* "traceEvents" has begun */
    bool marked;           /* has marked work of devices */
    bool guessed;          /* not yet confirmed that the piece began at the start of an event */
    uint32_t accelerators; /* of which the events are evidence: bits, as store/accelerator.h has them */

    fs_record_pool *pool;
    fs_record_block *first, *last;
    fs_intern names;           /* as spelled in the text, without quotes */
    fs_intern calls;           /* arguments as spelled in the text */
    uint32_t *call_signatures; /* by id in calls: id in signatures */
    uint32_t call_capacity;
    fs_intern signatures, lanes;
    fs_memory_state *states; /* of changes of memory */
    uint32_t state_count, state_capacity;
    uint32_t last_lane;
    fs_record_lane last_lane_key;
    fs_torch_builder builder;
    fs_mended mended;
    char *scratch; /* buffer for one text */
    size_t scratch_capacity;

    fs_counter_points counters;
    fs_stack_points stacks;

    fs_intern head; /* members besides the events, as "key": value */
    size_t head_bytes;
    int64_t window_begin, window_end; /* the trace's own span; FS_MISSING */
    fs_kineto_report report;
} fs_piece;

/* Add a record, uninitialised, to a piece. FS_OUT_OF_MEMORY. Several threads may, each to its own piece. */
fs_status fs_piece_add_record(fs_piece *piece, fs_record **record, fs_error *err);
/* Give the piece's records back to the pool. */
void fs_piece_drop_records(fs_piece *piece);

#endif
