/* What readers of rows have in common: cells, names and records of a part. Private to the reader of databases. */
#ifndef FS_SOURCES_SQLITE_PARTS_H
#define FS_SOURCES_SQLITE_PARTS_H

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

#endif
