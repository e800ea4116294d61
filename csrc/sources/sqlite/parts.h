/* What readers of rows have in common: cells, names and records of a part. Private to the reader of databases. */
#ifndef FS_SOURCES_SQLITE_PARTS_H
#define FS_SOURCES_SQLITE_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sources/sqlite/tables.h"

/* Names longer than this are cut. */
enum { FS_MOST_NAME = 1 << 16 };

static inline int64_t fs_cell_number(const fs_cell *cells, fs_row_column column, int64_t missing)
{
    return cells[column].type == FS_IS_INTEGER ? cells[column].integer : missing;
}

/* A count that fits 32 bits; anything else is missing. */
static inline uint32_t fs_cell_count(const fs_cell *cells, fs_row_column column)
{
    int64_t value = fs_cell_number(cells, column, 0);
    return value > 0 && value <= UINT32_MAX ? (uint32_t)value : 0;
}

/* The record that was added last. */
static inline fs_record *fs_part_last_record(const fs_part *part)
{
    return &part->piece.last->records[part->piece.last->count - 1];
}

/* Take the times of a row; false, and counted, if it has no possible start. */
bool fs_part_take_times(fs_part *part, const fs_cell *cells, fs_record *record);

/* Return the text of a row's name, or the one whose id it gives; no text if there is none. */
fs_span fs_rows_text_of(const fs_rows *rows, const fs_cell *cells, uint32_t *string);

/* Intern a name as the join takes it: as JSON spells it, with doubled backslashes. FS_OUT_OF_MEMORY. */
fs_status fs_part_intern_name(fs_part *part, const char *text, size_t size, uint32_t *id, fs_error *err);

/* Intern the name of a row. Names given by id are looked up once in each part. FS_OUT_OF_MEMORY. */
fs_status fs_part_take_name(const fs_rows *rows, fs_part *part, fs_row_kind kind, const fs_cell *cells, uint32_t *name,
                            fs_error *err);

/* Return the id of a lane of the part, or of the thread of a row. FS_OUT_OF_MEMORY. */
fs_status fs_part_take_lane(fs_part *part, int64_t device, int64_t thread, int64_t process, uint32_t *lane,
                            fs_error *err);
fs_status fs_part_take_thread(fs_part *part, const fs_cell *cells, uint32_t *lane, fs_error *err);

/* Return the index of a device as its process numbers it; the same number if the file does not map it. */
int64_t fs_rows_device_of(const fs_rows *rows, const fs_cell *cells);

/* Add a record. FS_OUT_OF_MEMORY. */
fs_status fs_part_add_record(fs_part *part, const fs_record *record, fs_error *err);

/* Add a range of NVTX or roctx: a RANGE row. FS_OUT_OF_MEMORY. */
fs_status fs_part_keep_range(const fs_rows *rows, fs_part *part, const fs_cell *cells, fs_error *err);

/* The texts with which torch marks its ops by NVTX (torch/csrc/profiler/util.cpp, getNvtxStr; roctx alike):
 *
 *   aten::mm, seq = 12, op_id = 345, sizes = [[16, 128], [128, 64]], input_op_ids = [(340,0), (0,-1)]
 *
 * Each part after the name may be absent. There are no dtypes. Private to the reader of databases. */

typedef struct {
    size_t name_size;  /* of the text's start, which is the name */
    int64_t sequence;  /* number of the autograd node; -1: none */
    const char *sizes; /* the list of shapes, with its brackets; NULL: none */
    size_t sizes_size;
    bool op;       /* an op of torch, as opposed to a user's range */
    bool backward; /* an op of the backward pass that runs the node of that number */
} fs_nvtx_text;

/* Messages of NCCL in databases: its payloads, read by their schemas, for sources/nccl.h. Private to the reader of
 * databases. */

/* Keep a field of a payload's schema: a FIELD row. FS_OUT_OF_MEMORY. */
fs_status fs_rows_keep_field(fs_rows *rows, const fs_cell *cells, fs_error *err);

/* Give the kernels in the store their messages, once the records have indices. FS_OUT_OF_MEMORY; FS_INTERRUPTED. */
fs_status fs_rows_join_nccl(const fs_rows *rows, fs_store *store, fs_rows_report *report, fs_error *err);

#endif
