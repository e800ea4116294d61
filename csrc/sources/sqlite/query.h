/* Runs queries on a database file, several at once, and adds their rows. The file is only read, and nothing in it is
 * run: no view, trigger, virtual table, function or extension. */
#ifndef FS_SOURCES_SQLITE_QUERY_H
#define FS_SOURCES_SQLITE_QUERY_H

#include "base/status.h"
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

/* SQLite's library, found at run time: the one that Python's own sqlite3 module uses. Private to the reader of
 * databases.
 *
 * SQLite guarantees that these functions and numbers do not change (sqlite.org/capi3ref.html, sqlite.org/lts.html), so
 * they are declared here instead of taking its header. */

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;

enum {
    SQLITE_OK = 0,
    SQLITE_TOOBIG = 18,
    SQLITE_ROW = 100,
    SQLITE_DONE = 101,
    SQLITE_OPEN_READONLY = 0x1,
    SQLITE_OPEN_URI = 0x40,
    SQLITE_OPEN_NOMUTEX = 0x8000,
    SQLITE_INTEGER = 1,
    SQLITE_FLOAT = 2,
    SQLITE_TEXT = 3,
    SQLITE_BLOB = 4,
    SQLITE_LIMIT_LENGTH = 0,
    SQLITE_DBCONFIG_ENABLE_TRIGGER = 1003,
    SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION = 1005,
    SQLITE_DBCONFIG_DEFENSIVE = 1010,
    SQLITE_DBCONFIG_ENABLE_VIEW = 1015,
    SQLITE_DBCONFIG_TRUSTED_SCHEMA = 1017,
    SQLITE_DENY = 1,
    SQLITE_READ = 20,
    SQLITE_SELECT = 21
};

typedef int (*sqlite3_authorizer)(void *, int, const char *, const char *, const char *, const char *);

/* X(field, result, parameters): the function sqlite3_<field> */
#define FS_SQLITE_FUNCTIONS(X)                                                         \
    X(libversion_number, int, (void))                                                  \
    X(threadsafe, int, (void))                                                         \
    X(open_v2, int, (const char *, sqlite3 **, int, const char *))                     \
    X(close, int, (sqlite3 *))                                                         \
    X(errmsg, const char *, (sqlite3 *))                                               \
    X(db_config, int, (sqlite3 *, int, ...))                                           \
    X(limit, int, (sqlite3 *, int, int))                                               \
    X(set_authorizer, int, (sqlite3 *, sqlite3_authorizer, void *))                    \
    X(progress_handler, void, (sqlite3 *, int, int (*)(void *), void *))               \
    X(exec, int, (sqlite3 *, const char *, void *, void *, char **))                   \
    X(prepare_v2, int, (sqlite3 *, const char *, int, sqlite3_stmt **, const char **)) \
    X(bind_int64, int, (sqlite3_stmt *, int, long long))                               \
    X(step, int, (sqlite3_stmt *))                                                     \
    X(reset, int, (sqlite3_stmt *))                                                    \
    X(finalize, int, (sqlite3_stmt *))                                                 \
    X(column_count, int, (sqlite3_stmt *))                                             \
    X(column_type, int, (sqlite3_stmt *, int))                                         \
    X(column_int64, long long, (sqlite3_stmt *, int))                                  \
    X(column_double, double, (sqlite3_stmt *, int))                                    \
    X(column_text, const unsigned char *, (sqlite3_stmt *, int))                       \
    X(column_blob, const void *, (sqlite3_stmt *, int))                                \
    X(column_bytes, int, (sqlite3_stmt *, int))

typedef struct {
#define FS_SQLITE_FIELD(field, result, parameters) result(*field) parameters;
    FS_SQLITE_FUNCTIONS(FS_SQLITE_FIELD)
#undef FS_SQLITE_FIELD
} fs_sqlite_functions;

/* NULL until a library is loaded. */
extern const fs_sqlite_functions *fs_sqlite;

/* Load the functions from a library, or from one that it depends on; "" is the program itself. FS_RUNTIME_ERROR if
 * the library is not found, lacks a function, is older than 3.26 or was built without threads. Once loaded, they
 * stay. */
fs_status fs_sqlite_load(const char *path, fs_error *err);

#endif
