/* Runs queries on a database file, several at once, and adds their rows. The file is only read, and nothing in it is
 * run: no view, trigger, virtual table, function or extension. */
#ifndef FS_SOURCES_SQLITE_QUERY_H
#define FS_SOURCES_SQLITE_QUERY_H

#include "sources/sqlite/rows.h"

/* Texts and other values longer than this are not read. */
enum { FS_MOST_VALUE = 64 << 20 };

typedef struct {
    fs_row_kind kind;
    const char *sql;       /* SELECT …; if it has parameters, ?1 is `after` and ?2 `until` */
    const char *next;      /* after a row with too long a value: selects the rowid of the first row after ?1; or NULL */
    int64_t after, until;  /* rowids: the rows after the first, up to the second */
    uint32_t column_count; /* of the result, after the rowid, which comes first if the query has parameters */
    uint8_t columns[FS_CELL_COUNT]; /* an fs_row_column each */
    /* Results. */
    int64_t row_count;
    int64_t too_long;  /* rows omitted because a value is longer than FS_MOST_VALUE */
    char problem[160]; /* why reading ended early, in SQLite's words; "": it did not */
} fs_query;

/* Run the queries, those of strings, domains and devices one after the other. `uri` is SQLite's name of the file. An
 * error of a query ends that query and is its `problem`. FS_RUNTIME_ERROR without fs_sqlite_load; FS_OUT_OF_MEMORY;
 * FS_INTERRUPTED. */
fs_status fs_queries_run(fs_rows *rows, const char *uri, fs_query *queries, uint32_t count, fs_error *err);

#endif
