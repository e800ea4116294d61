/* The names of a plane's events and stats, by their ids. Private to the reader of XSpaces. */
#ifndef FS_SOURCES_PROTOBUF_XNAMES_H
#define FS_SOURCES_PROTOBUF_XNAMES_H

#include "base/wire.h"
#include "sources/protobuf/xspace.h"

/* The stats of events that are used. X(NAME, name) */
#define FS_XSTATS(X)                        \
    X(CORRELATION, "correlation_id")        \
    X(KERNEL, "kernel_details")             \
    X(COPY, "memcpy_details")               \
    X(FILL, "Memset_details")               \
    X(FILL_OLD, "memset_details")           \
    X(ALLOCATION, "memalloc_details")       \
    X(FREE, "MemFree_details")              \
    X(RESIDENCY, "MemoryResidency_details") \
    X(GRAPH, "cuda_graph_id")               \
    X(GRAPH_NODE, "cuda_graph_node_id")     \
    X(REPLAY, "cuda_graph_exec_id")         \
    X(STEP, "step_num")                     \
    X(OP, "hlo_op")                         \
    X(MODULE, "hlo_module")                 \
    X(PROGRAM, "program_id")

typedef enum {
#define FS_XSTAT_ENUM(NAME, name) FS_XSTAT_##NAME,
    FS_XSTATS(FS_XSTAT_ENUM)
#undef FS_XSTAT_ENUM
        FS_XSTAT_COUNT /* any other */
} fs_xstat_key;

/* The numbers in a text such as "regs:32 static_shared:0 grid:8,1,1 block:256,1,1". X(NAME, word, column) */
#define FS_XDETAILS(X)                           \
    X(REGISTERS, "regs", REGISTERS)              \
    X(STATIC, "static_shared", STATIC_SHARED)    \
    X(DYNAMIC, "dynamic_shared", DYNAMIC_SHARED) \
    X(GRID_X, "grid", GRID_X)                    \
    X(GRID_Y, "", GRID_Y)                        \
    X(GRID_Z, "", GRID_Z)                        \
    X(BLOCK_X, "block", BLOCK_X)                 \
    X(BLOCK_Y, "", BLOCK_Y)                      \
    X(BLOCK_Z, "", BLOCK_Z)                      \
    X(SIZE, "size", BYTES)                       \
    X(FROM, "kind_src", FROM)                    \
    X(TO, "kind_dst", TO)                        \
    X(BYTES, "num_bytes", BYTES)                 \
    X(KIND, "kind", FROM)

typedef enum {
#define FS_XDETAIL_ENUM(NAME, word, column) FS_XDETAIL_##NAME,
    FS_XDETAILS(FS_XDETAIL_ENUM)
#undef FS_XDETAIL_ENUM
        FS_XDETAIL_COUNT
} fs_xdetail;

/* -1: not in the text. Kinds of memory are numbers of rows.h. */
typedef struct {
    int64_t values[FS_XDETAIL_COUNT];
} fs_xdetails;

typedef struct {
    int64_t id;
    fs_text name, shown; /* shown: display_name; of HLO's text "%dot.1 = f32[] …" else what it begins with, "dot.1" */
    fs_wire about;       /* of an event: its description, which may have stats */
    uint64_t program;    /* of which an event of a TPU runs an instruction; 0: unknown */
    uint32_t details;    /* of a stat's name: index in details; FS_NONE: none */
    uint8_t key;         /* of a stat: an fs_xstat_key */
    bool frame;          /* of an event: a call of Python */
} fs_xname;

typedef struct {
    fs_xname *items; /* by id, and the last of equal ids counts */
    uint32_t count, capacity;
} fs_xname_list;

struct fs_xnames {
    fs_xname_list events, stats;
    fs_xdetails *details;
    uint32_t detail_count, detail_capacity;
};

/* Return the name with an id; NULL: none. */
const fs_xname *fs_xname_of(const fs_xname_list *list, int64_t id);

/* Read the numbers of a text. */
void fs_xdetails_read(fs_text text, fs_xdetails *details);

/* Read a stat. An id without a name has the key FS_XSTAT_COUNT and an empty name. FS_VALUE_ERROR. */
fs_status fs_xstat_read(const fs_xnames *names, fs_wire wire, fs_xstat *stat, const fs_xname **name,
                        const fs_xname **referred, fs_error *err);

/* A part of the events of a line. */
typedef struct {
    uint32_t plane, line;
    fs_wire wire; /* fields of the line */
} fs_xchunk;

/* Add the events of the chunks to rows, by several threads. */
fs_status fs_xevents_read(fs_xspace *space, const fs_xchunk *chunks, uint32_t count, fs_error *err);

#endif
