/* What the reader of databases holds between the rows and the store. Private to it. */
#ifndef FS_SOURCES_SQLITE_TABLES_H
#define FS_SOURCES_SQLITE_TABLES_H

#include "sources/kineto/arguments.h"
#include "sources/kineto/piece.h"
#include "sources/sqlite/id_map.h"
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

/* Rows read by one thread. The piece has no text, only records. */
typedef struct {
    fs_piece piece;
    uint32_t *string_names; /* by id in strings: id in piece.names plus 1; 0: not yet looked up */
    fs_graph_node *nodes;
    fs_graph_work *work;
    fs_metric_sample *samples;
    fs_record **open; /* ranges that had not ended */
    uint32_t node_count, node_capacity, work_count, work_capacity, open_count, open_capacity, sample_count,
        sample_capacity;
    fs_rows_report report;
} fs_part;

struct fs_rows {
    fs_intern strings;    /* texts that rows name by id, and names of domains */
    fs_id_map string_ids; /* (id, space of the database) → id in strings */
    fs_id_map domains;    /* (process, domain) → id in strings */
    fs_id_map devices;    /* (process, device) → index of the device */
    fs_part **parts;
    uint32_t part_count;
};

#endif
