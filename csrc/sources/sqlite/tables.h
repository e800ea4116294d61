/* What the reader of databases holds between the rows and the store. Private to it. */
#ifndef FS_SOURCES_SQLITE_TABLES_H
#define FS_SOURCES_SQLITE_TABLES_H

#include "base/id_map.h"
#include "sources/kineto/arguments.h"
#include "sources/kineto/piece.h"
#include "sources/nccl.h"
#include "sources/sqlite/rows.h"

/* A node of a CUDA graph, as the thread that made it recorded it. */
typedef struct {
    int64_t process, thread, start, end;
    int64_t node, original; /* original: the node it was cloned from; 0: none */
} fs_graph_node;

/* Work of a node. The record stays where it is until the reader is destroyed. */
typedef struct {
    int64_t process, node;
    fs_record *record;
} fs_graph_work;

/* The layout of a payload of NVTX: where the fields are that are used. */
typedef enum { FS_PAYLOAD_COMMUNICATOR, FS_PAYLOAD_SIZE, FS_PAYLOAD_RANKS, FS_PAYLOAD_FIELD_COUNT } fs_payload_field;

typedef struct {
    uint32_t offsets[FS_PAYLOAD_FIELD_COUNT];
    uint8_t widths[FS_PAYLOAD_FIELD_COUNT]; /* bytes; 0: it lacks the field */
} fs_payload;

/* A range of NCCL. The record, which tells the lane and the event, stays where it is until the reader is destroyed. */
typedef struct {
    fs_record *record;
    fs_nccl_call call;
} fs_recorded_call;

/* A change of memory. The record stays where it is until the reader is destroyed. */
typedef struct {
    int64_t process, address;
    fs_record *record;
} fs_allocation;

/* Work that runs an instruction of XLA. The record stays where it is until the reader is destroyed. */
typedef struct {
    fs_record *record;
    uint32_t instruction; /* in the part's instructions */
} fs_tied_work;

/* Rows read by one thread. The piece has no text, only records. */
typedef struct {
    fs_piece piece;
    uint32_t *string_names; /* by id in strings: id in piece.names plus 1; 0: not yet looked up */
    uint32_t string_count;  /* their number: strings that are read later have none */
    fs_graph_node *nodes;
    fs_graph_work *work;
    fs_metric_sample *samples;
    fs_record **open; /* ranges that had not ended */
    fs_recorded_call *calls;
    fs_allocation *allocations;
    fs_tied_work *ties;
    fs_intern instructions; /* as in fs_rows_ties */
    bool frees_unsized;     /* a free among the allocations lacks its size */
    uint32_t allocation_count, allocation_capacity;
    uint32_t node_count, node_capacity, work_count, work_capacity, open_count, open_capacity, sample_count,
        sample_capacity, call_count, call_capacity, tie_count, tie_capacity;
    fs_rows_report report;
} fs_part;

struct fs_rows {
    fs_intern strings;     /* texts that rows name by id, and names of domains */
    fs_id_map string_ids;  /* (id, space of the database) → id in strings */
    fs_id_map domains;     /* (process, domain) → id in strings */
    fs_id_map devices;     /* (process, device) → index of the device */
    fs_id_map payload_ids; /* (schema, domain) → index in payloads */
    fs_payload *payloads;
    uint32_t payload_count, payload_capacity;
    fs_part **parts;
    uint32_t part_count;
    fs_record_pool pool; /* the records of the parts */
    bool unites;
};

#endif
