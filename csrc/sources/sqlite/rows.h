/* Rows of a profiler's database, in the words of this header, become the events of a store.
 *
 *   database ── a query per table ──► cells ──► records ── join ──► store
 *               (query.h, or any other reader of rows)     (kineto/join.h: the same links and nesting as for a trace)
 *
 * Whoever reads a format writes its queries so that their columns are columns of this list; what a format lacks is left
 * out. So one set of rules places kernels, copies, API calls and ranges, whatever the file. */
#ifndef FS_SOURCES_SQLITE_ROWS_H
#define FS_SOURCES_SQLITE_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

/* X(NAME, name, description) */
#define FS_ROW_KIND_LIST(X)                                                                                         \
    X(STRING, string, "a text that others name by its id: space, id, name")                                         \
    X(DOMAIN, domain, "the name of a domain of ranges: process, domain, name")                                      \
    X(DEVICE, device, "the index, in id, of a device as numbered by a process: process, device, id")                \
    X(KERNEL, kernel, "a kernel on a device")                                                                       \
    X(COPY, copy, "a copy on a device")                                                                             \
    X(FILL, fill, "a fill on a device")                                                                             \
    X(REPLAY, replay, "a replay of a CUDA graph whose nodes were not recorded")                                     \
    X(SYNC, sync, "the host waiting for a device")                                                                  \
    X(CALL, call, "an API call")                                                                                    \
    X(RANGE, range, "a range of NVTX or roctx, which may name an op of torch")                                      \
    X(SPAN, span, "a call of a library, such as cuBLAS or MPI")                                                     \
    X(OVERHEAD, overhead, "time of the profiler")                                                                   \
    X(NODE, node, "a node added to a CUDA graph")                                                                   \
    X(FIELD, field, "a field of the payloads of a schema: domain, id of the schema, name, type, value: its offset") \
    X(MEMORY, memory, "memory allocated or freed: start, device unless the host's, bytes, type, address")           \
    X(METRIC, metric, "a sample of a device's counter: start or end, device, id of the metric, value")              \
    X(FRAME, frame, "a call of a function of Python")                                                               \
    X(STEP, step, "a step of a loop")

typedef enum {
#define FS_ROW_ENUM(NAME, name, prose) FS_ROW_##NAME,
    FS_ROW_KIND_LIST(FS_ROW_ENUM)
#undef FS_ROW_ENUM
        FS_ROW_KIND_COUNT
} fs_row_kind;

/* X(NAME, name, description). Times are ns. A name is a text, or the id of a STRING. */
#define FS_ROW_COLUMN_LIST(X)                                                               \
    X(START, start, "ns")                                                                   \
    X(END, end, "ns")                                                                       \
    X(PROCESS, process, "process id")                                                       \
    X(THREAD, thread, "thread id")                                                          \
    X(END_THREAD, end_thread, "thread on which a range ended")                              \
    X(DEVICE, device, "as the process numbers it")                                          \
    X(STREAM, stream, "stream id")                                                          \
    X(CONTEXT, context, "context id")                                                       \
    X(CORRELATION, correlation, "links a call to the work that it launched")                \
    X(NAME, name, "name of the event")                                                      \
    X(TEXT, text, "name, instead of `name` where both are given")                           \
    X(MESSAGE, message, "JSON with a member \"message\", which is the name")                \
    X(SPACE, space, "of a name's or a string's id: ids are unique in a space")              \
    X(ID, id, "of a string or device")                                                      \
    X(DOMAIN, domain, "of a range; 0: none")                                                \
    X(TYPE, type, "NVTX: 59 pushed, 60 started; of memory: 0 allocated, 1 freed; a sync's") \
    X(BYTES, bytes, "of a copy, a fill or a change of memory")                              \
    X(COPY_KIND, copy_kind, "1 host to device, 2 device to host, … as in CUPTI")            \
    X(FROM, from, "kind of memory: 0 pageable, 1 pinned, 2 device, … 7 host")               \
    X(TO, to, "kind of memory")                                                             \
    X(GRID_X, grid_x, "blocks")                                                             \
    X(GRID_Y, grid_y, "blocks")                                                             \
    X(GRID_Z, grid_z, "blocks")                                                             \
    X(BLOCK_X, block_x, "threads")                                                          \
    X(BLOCK_Y, block_y, "threads")                                                          \
    X(BLOCK_Z, block_z, "threads")                                                          \
    X(CLUSTER_X, cluster_x, "blocks")                                                       \
    X(CLUSTER_Y, cluster_y, "blocks")                                                       \
    X(CLUSTER_Z, cluster_z, "blocks")                                                       \
    X(REGISTERS, registers, "per thread")                                                   \
    X(STATIC_SHARED, static_shared, "bytes per block")                                      \
    X(DYNAMIC_SHARED, dynamic_shared, "bytes per block")                                    \
    X(GRAPH, graph, "id of the CUDA graph that launched the work")                          \
    X(GRAPH_NODE, graph_node, "id of a graph's node")                                       \
    X(ORIGINAL, original, "of a node: the node it was cloned from")                         \
    X(ADDRESS, address, "of memory")                                                        \
    X(PAYLOAD, payload, "of a range: bytes, of a schema")                                   \
    X(VALUE, value, "of a metric")                                                          \
    X(MODULE, module, "of XLA, whose instruction a kernel runs: a text")                    \
    X(INSTRUCTION, instruction, "that a kernel runs: a text")

typedef enum {
#define FS_COLUMN_ENUM(NAME, name, prose) FS_CELL_##NAME,
    FS_ROW_COLUMN_LIST(FS_COLUMN_ENUM)
#undef FS_COLUMN_ENUM
        FS_CELL_COUNT
} fs_row_column;

extern const char *const fs_row_kind_names[FS_ROW_KIND_COUNT];
extern const char *const fs_row_column_names[FS_CELL_COUNT];

/* A value; text is not ended by a zero byte. */
typedef enum { FS_IS_MISSING, FS_IS_INTEGER, FS_IS_TEXT } fs_cell_type;

typedef struct {
    fs_cell_type type;
    int64_t integer;
    double real; /* of a number: `integer` before it was rounded toward zero */
    const char *text;
    size_t size;
} fs_cell;

/* Statistics of what was read. */
typedef struct {
    int64_t events;          /* rows that describe an event */
    int64_t kept;            /* events in the store */
    int64_t without_time;    /* omitted: no start, an impossible one, or an op that had not ended */
    int64_t too_many;        /* omitted: device index of FS_DEVICE_LIMIT or more */
    int64_t ops;             /* ops of torch */
    int64_t marks;           /* omitted: instants, categories and domains of NVTX */
    int64_t unnamed;         /* kept, but its name's text is not in the file */
    int64_t overlapping;     /* as in fs_kineto_report */
    int64_t replays;         /* graphs replayed without a record of their kernels */
    int64_t graph_work;      /* kernels, copies and fills of a graph's nodes */
    int64_t changes;         /* of memory */
    int64_t unmatched_frees; /* those that name memory whose allocation is not in the file */
    int64_t messages;        /* kernels of NCCL whose message is known from the ranges */
    int64_t unsized;         /* calls of NCCL whose ranges have no size */
    int64_t captured;        /* those that belong to the op that captured them */
    int64_t process;         /* id of the first process with host threads; -1: none */
    int64_t processes;       /* with host threads or device work */
} fs_rows_report;

/* A sample of a counter of a device. */
typedef struct {
    int64_t start, end; /* ns; start FS_MISSING: it counted since the sample of the same metric before it */
    int32_t device, metric;
    double value; /* in the unit of the metric, such as percent of the peak */
} fs_metric_sample;

typedef struct fs_rows fs_rows;

/* FS_OUT_OF_MEMORY. fs_rows_destroy also accepts NULL. */
fs_status fs_rows_create(fs_rows **rows, fs_error *err);
void fs_rows_destroy(fs_rows *rows);

/* Merge an only child with a parent of its name, as torch's tables do. By default each range counts. */
void fs_rows_unite(fs_rows *rows);

/* Open `count` parts for rows; *first receives the index of the first. Several threads may add rows, each to its own
 * part. Rows of the kinds STRING, DOMAIN, DEVICE and FIELD are added by one thread, before all others. */
fs_status fs_rows_open_parts(fs_rows *rows, uint32_t count, uint32_t *first, fs_error *err);

/* Add a row: FS_CELL_COUNT cells. FS_OUT_OF_MEMORY. */
fs_status fs_rows_add(fs_rows *rows, uint32_t part, fs_row_kind kind, const fs_cell *cells, fs_error *err);

/* Return the samples of all METRIC rows, in order of (device, metric, end), in a block for fs_free. FS_OUT_OF_MEMORY;
 * FS_INTERRUPTED. */
fs_status fs_rows_metrics(const fs_rows *rows, fs_metric_sample **samples, uint32_t *count, fs_error *err);

/* Work of a device and the instruction that it runs. */
typedef struct {
    uint32_t event;       /* of the store */
    uint32_t instruction; /* in a list of them */
} fs_row_tie;

/* After fs_rows_finish: return the work whose rows named an instruction, in order of the events, in a block for
 * fs_free, and add the instructions to an empty list: each is its module, a zero byte, and its name. FS_OUT_OF_MEMORY;
 * FS_INTERRUPTED. */
fs_status fs_rows_ties(const fs_rows *rows, fs_row_tie **ties, uint32_t *count, fs_intern *instructions, fs_error *err);

/* Put the events into an empty store, or another in its place. `head`, as in a trace, is a JSON object with
 * "deviceProperties", followed by zero bytes as json_scan.h asks for. FS_OUT_OF_MEMORY; FS_INTERRUPTED. */
fs_status fs_rows_finish(fs_rows *rows, const char *head, size_t head_size, fs_store **store, fs_rows_report *report,
                         fs_error *err);

#endif
