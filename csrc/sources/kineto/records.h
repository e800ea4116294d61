/* The records that a piece of a trace holds, and the piece. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_RECORDS_H
#define FS_SOURCES_KINETO_RECORDS_H

#include "base/intern.h"
#include "sources/kineto/json_scan.h"
#include "sources/kineto/kineto.h"
#include "store/torch_signature.h"

/* What no real amount of bytes, of elements or of the like exceeds: sums of a few such numbers, and products with an
 * element's size, do not overflow. */
#define FS_MOST_AMOUNT (INT64_C(1) << 53)

/* An event as the trace tells it. */
typedef struct {
    int64_t start, duration; /* ns; the duration is FS_MISSING where there is none */
    int64_t external;        /* "External id", -1 for none */
    union {
        int64_t bytes;
        uint32_t launcher; /* of an API call that is in the store: of the work that it launched, in the store too */
    };
    uint32_t name, signature, lane; /* ids of the piece; after joining, of the store */
    uint32_t correlation;
    uint32_t index; /* in the store, once it is there */
    int8_t device;
    uint8_t kind;
    bool communication; /* an annotation of a collective: it ends on another thread */
    bool shared;        /* an API call whose correlation, an op whose "External id" another one has too */
} fs_record;

enum { FS_RECORD_BLOCK = FS_BLOCK(4096, 8) };

typedef struct fs_record_block {
    struct fs_record_block *next;
    uint32_t count;
    fs_record records[FS_RECORD_BLOCK];
} fs_record_block;

/* What a lane's bytes hold: host threads are told by process and thread, streams by device, stream and process. */
typedef struct {
    int64_t device; /* -1 of a thread */
    int64_t thread; /* or stream */
    int64_t process;
} fs_record_lane;

/* Where in the trace's structure the reading stands. */
typedef enum {
    FS_PIECE_START,   /* before the first bracket */
    FS_PIECE_MEMBERS, /* in the object at the top */
    FS_PIECE_EVENTS,  /* in the array of events */
    FS_PIECE_END      /* after the last bracket */
} fs_piece_state;

typedef struct {
    /* The window: text[0 … size), the bytes from `offset` of the trace on; what is before `done` has been read. */
    char *text;
    size_t size, capacity, done;
    int64_t offset;
    int64_t until; /* stop before an event that begins here or later */
    fs_piece_state state;
    bool top_array;   /* the events are the whole trace */
    bool stopped;     /* at `until` */
    bool seen_events; /* "traceEvents" began */
    bool guessed;     /* where it began is not yet known to be the start of an event */

    fs_record_block *first, *last;
    fs_intern names;           /* as the text spells them, quotes left off */
    fs_intern calls;           /* arguments as the text spells them */
    uint32_t *call_signatures; /* by id in calls: id in signatures */
    uint32_t call_capacity;
    fs_intern signatures, lanes;
    uint32_t last_lane;
    fs_record_lane last_lane_key;
    fs_torch_builder builder;
    char *scratch; /* room for one text */
    size_t scratch_capacity;

    fs_intern head; /* members beside the events: "key": value as they stand */
    size_t head_bytes;
    int64_t window_begin, window_end; /* of the trace's own span, FS_MISSING */
    fs_kineto_report report;
} fs_piece;

#endif
