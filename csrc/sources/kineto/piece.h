/* A piece of a trace's text, and the records that it holds. Private to the trace source.
 *
 * A piece is read through a window that moves along the text; it stops before the first event that begins at or after
 * its end. Ids are the piece's own: pieces are read by several threads, and joined in join.c.
 */
#ifndef FS_SOURCES_KINETO_PIECE_H
#define FS_SOURCES_KINETO_PIECE_H

#include "base/intern.h"
#include "sources/kineto/json_scan.h"
#include "sources/kineto/kineto.h"
#include "store/torch_signature.h"

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

void fs_piece_init(fs_piece *piece, int64_t offset, int64_t until, fs_piece_state state);
void fs_piece_clear(fs_piece *piece);

/* Room for `size` more bytes in the window, after what is in it: piece->text + piece->size. What was read leaves it. */
fs_status fs_piece_room(fs_piece *piece, size_t size, fs_error *err);
/* Read on, with `size` bytes put there; as far as whole events, or members, are there. */
fs_status fs_piece_read(fs_piece *piece, size_t size, fs_error *err);

/* The byte of the trace that the reading stands at. */
static inline int64_t fs_piece_at(const fs_piece *piece)
{
    return piece->offset + (int64_t)piece->done;
}

/* Read the piece's part of a text by `read`; of a piece in FS_PIECE_EVENTS, from the first place on that looks as if an
 * event began there, unless `exact`. *start: where it began, -1 where there was no such place. The window of a piece
 * that has stopped or failed is released. An exact piece takes at most 128 MB for its window, any other 8 MB: an event
 * that is larger fails with FS_VALUE_ERROR. */
fs_status fs_piece_scan(fs_piece *piece, fs_kineto_read read, void *context, bool exact, int64_t *start, fs_error *err);

/* event.c: the event at scan->at, whose '{' was seen. FS_SCAN_MORE leaves the piece as it was but for ids. A
 * status other than FS_OK in *status is out of memory. */
fs_scan_status fs_piece_event(fs_piece *piece, fs_scan *scan, fs_status *status, fs_error *err);

/* arguments.c */

/* The members of "args" that an event's record comes from. */
typedef struct {
    fs_scan_span dims, types, strides, concrete; /* arrays as they stand; text NULL: not there */
    int64_t numbers[32];                         /* by FS_ARG_…, where known */
    uint32_t known;                              /* a bit for each */
    uint32_t grid[3], block[3], cluster[3];      /* the first 0: not there */
    fs_scan_span texts[5];                       /* of a collective, and the unit of stated FLOPs */
} fs_event_arguments;

/* X(NAME, key): the integers. */
#define FS_ARG_LIST(X)                                                                                                \
    X(EXTERNAL, "External id")                                                                                        \
    X(EXTERNAL_OLD, "external id")                                                                                    \
    X(CORRELATION, "correlation")                                                                                     \
    X(DEVICE, "device")                                                                                               \
    X(STREAM, "stream")                                                                                               \
    X(CONTEXT, "context")                                                                                             \
    X(BYTES, "bytes")                                                                                                 \
    X(REGISTERS, "registers per thread") X(SHARED, "shared memory") X(GRAPH, "graph id")                              \
        X(GRAPH_NODE, "graph node id") X(MEMORY_BYTES, "Bytes") X(DEVICE_TYPE, "Device Type")                         \
            X(DEVICE_ID, "Device Id") X(FLOPS, "flops") X(BYTES_READ, "bytes read") X(BYTES_WRITTEN, "bytes written") \
                X(IN_ELEMENTS, "In msg nelems") X(OUT_ELEMENTS, "Out msg nelems") X(GROUP_SIZE, "Group size")         \
                    X(SEQUENCE, "Seq")

enum {
#define FS_ARG_ENUM(NAME, key) FS_ARG_##NAME,
    FS_ARG_LIST(FS_ARG_ENUM)
#undef FS_ARG_ENUM
        FS_ARG_COUNT
};

enum { FS_ARG_COLLECTIVE, FS_ARG_DTYPE, FS_ARG_GROUP, FS_ARG_RANKS, FS_ARG_UNIT };

/* Nothing known. */
void fs_arguments_begin(fs_event_arguments *arguments);
/* Read "args", at its '{'. */
fs_scan_status fs_arguments_read(fs_scan *scan, fs_event_arguments *arguments);

static inline bool fs_argument_known(const fs_event_arguments *arguments, int which)
{
    return (arguments->known >> which & 1) != 0;
}

/* What no real amount of bytes, of elements or of the like exceeds: sums of a few such numbers, and products with an
 * element's size, do not overflow. */
#define FS_MOST_AMOUNT (INT64_C(1) << 53)

/* The signature of an op's call, of device work's launch, of a range's stated work, or FS_NONE. */
fs_status fs_arguments_call(fs_piece *piece, const fs_event_arguments *arguments, uint32_t *signature, fs_error *err);
fs_status fs_arguments_launch(fs_piece *piece, const fs_event_arguments *arguments, uint32_t *signature, fs_error *err);
fs_status fs_arguments_stated(fs_piece *piece, const fs_event_arguments *arguments, uint32_t *signature, fs_error *err);

#endif
