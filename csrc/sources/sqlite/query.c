/* A file is hostile until shown otherwise: the connection is read-only, its schema is not trusted, and the authorizer
 * allows selecting and reading columns and nothing else. Each query has a part of its own, so queries run on threads
 * without locks; a batch with any that fills what the parts share runs on one thread. A row that is too long is skipped
 * by its rowid and counted. A query that fails has a problem, and the others go on. */
#include "sources/sqlite/query.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/lock.h"
#include "base/parallel.h"
#include "base/search.h"
#include "base/unused.h"

/* fs_sqlite is set once, after every function was found in a version that is new enough and was built for threads; from
 * then on it can be used without a test. Python's own library is preferred by the caller, so that a process has one
 * SQLite. */

const fs_sqlite_functions *fs_sqlite;

static fs_sqlite_functions functions;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

/* The first version with SQLITE_DBCONFIG_DEFENSIVE and with PRAGMA table_xinfo. */
enum { OLDEST = 3026000 };

static const struct {
    size_t offset;
    const char *name;
} symbols[] = {
#define SYMBOL(field, result, parameters) {offsetof(fs_sqlite_functions, field), "sqlite3_" #field},
    FS_SQLITE_FUNCTIONS(SYMBOL)
#undef SYMBOL
};

static fs_status load(const char *path, fs_error *err)
{
    void *library = dlopen(path[0] != '\0' ? path : NULL, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "no library of SQLite could be loaded (%s)", dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "%s has no function %s", path, symbols[i].name);
        __builtin_memcpy((char *)&functions + symbols[i].offset, &address, sizeof address);
    }
    int version = functions.libversion_number();
    if (version < OLDEST) return fs_fail(err, FS_RUNTIME_ERROR, "SQLite %d is older than %d", version, OLDEST);
    if (functions.threadsafe() == 0) return fs_fail(err, FS_RUNTIME_ERROR, "SQLite was built without threads");
    fs_sqlite = &functions;
    return FS_OK;
}

fs_status fs_sqlite_load(const char *path, fs_error *err)
{
    pthread_mutex_lock(&loading);
    fs_status status = fs_sqlite != NULL ? FS_OK : load(path, err);
    pthread_mutex_unlock(&loading);
    return status;
}

typedef struct {
    fs_rows *rows;
    const char *uri;
    fs_query *query;
    uint32_t part;
    sqlite3 *database;
    fs_status status;
    fs_error *err; /* of this query */
} running;

/* Queries may select and read columns; everything else, such as calling a function, is denied. */
static int authorize(void *FS_UNUSED(context), int action, const char *FS_UNUSED(a), const char *FS_UNUSED(b),
                     const char *FS_UNUSED(c), const char *FS_UNUSED(d))
{
    return action == SQLITE_SELECT || action == SQLITE_READ ? SQLITE_OK : SQLITE_DENY;
}

/* Called every so many steps of SQLite's virtual machine, also while a query has no rows yet: whether to stop. */
enum { STEPS = 100000 };

static int should_stop(void *FS_UNUSED(context))
{
    return fs_interrupted();
}

static void set_problem(running *run)
{
    snprintf(run->query->problem, sizeof run->query->problem, "%s", fs_sqlite->errmsg(run->database));
}

static bool open_database(running *run)
{
    static const struct {
        int option, value;
    } options[] = {
        {SQLITE_DBCONFIG_DEFENSIVE, 1},
        {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
        {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
        {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
        {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
    };
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX;
    if (fs_sqlite->open_v2(run->uri, &run->database, flags, NULL) != SQLITE_OK) return false;
    /* An option that this version of SQLite does not know is refused without effect. */
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        (void)fs_sqlite->db_config(run->database, options[i].option, options[i].value, (int *)NULL);
    fs_sqlite->limit(run->database, SQLITE_LIMIT_LENGTH, FS_MOST_VALUE);
    (void)fs_sqlite->exec(run->database, "PRAGMA cell_size_check=ON; PRAGMA mmap_size=0", NULL, NULL, NULL);
    fs_sqlite->set_authorizer(run->database, authorize, NULL);
    fs_sqlite->progress_handler(run->database, STEPS, should_stop, NULL);
    return true;
}

/* Reals that are whole numbers count as such: SQLite makes them of integers too large for it. */
static void take_real(double real, fs_cell *cell)
{
    if (!(real > -0x1p62 && real < 0x1p62)) return;
    cell->type = FS_IS_INTEGER;
    cell->real = real;
    cell->integer = (int64_t)real;
}

/* Bytes count only as a payload: a name that is stored as bytes is none. */
static void take_bytes(sqlite3_stmt *statement, int column, fs_cell *cell)
{
    cell->text = fs_sqlite->column_blob(statement, column);
    cell->size = (size_t)fs_sqlite->column_bytes(statement, column);
    if (cell->text != NULL) cell->type = FS_IS_TEXT;
}

static void take_cell(sqlite3_stmt *statement, int column, bool payload, fs_cell *cell)
{
    cell->type = FS_IS_MISSING;
    switch (fs_sqlite->column_type(statement, column)) {
    case SQLITE_INTEGER:
        cell->type = FS_IS_INTEGER;
        cell->integer = fs_sqlite->column_int64(statement, column);
        cell->real = (double)cell->integer;
        break;
    case SQLITE_FLOAT:
        take_real(fs_sqlite->column_double(statement, column), cell);
        break;
    case SQLITE_BLOB:
        if (payload) take_bytes(statement, column, cell);
        break;
    case SQLITE_TEXT:
        cell->text = (const char *)fs_sqlite->column_text(statement, column);
        cell->size = (size_t)fs_sqlite->column_bytes(statement, column);
        if (cell->text != NULL) cell->type = FS_IS_TEXT;
        break;
    default:
        break;
    }
}

/* Add the rows up to the end or an error, whose code is returned. *last receives the rowid of the last row. */
static int step_rows(running *run, sqlite3_stmt *statement, bool numbered, fs_cell *cells, int64_t *last)
{
    const fs_query *query = run->query;
    for (;;) {
        int code = fs_sqlite->step(statement);
        if (code != SQLITE_ROW) return code;
        if (run->query->row_count++ % FS_POLL_ROUNDS == 0) {
            run->status = fs_interrupt_poll(run->err);
            if (run->status != FS_OK) return SQLITE_DONE;
        }
        if (numbered) *last = fs_sqlite->column_int64(statement, 0);
        for (uint32_t i = 0; i < query->column_count; i++)
            take_cell(statement, (int)i + numbered, query->columns[i] == FS_CELL_PAYLOAD, &cells[query->columns[i]]);
        run->status = fs_rows_add(run->rows, run->part, query->kind, cells, run->err);
        if (run->status != FS_OK) return SQLITE_DONE;
    }
}

/* Return the rowid of the row that could not be read: the first after the last; false if there is none. */
static bool find_next(const running *run, int64_t *last)
{
    sqlite3_stmt *statement = NULL;
    bool found = false;
    if (run->query->next == NULL) return false;
    if (fs_sqlite->prepare_v2(run->database, run->query->next, -1, &statement, NULL) != SQLITE_OK) return false;
    fs_sqlite->bind_int64(statement, 1, *last);
    if (fs_sqlite->step(statement) == SQLITE_ROW) {
        found = true;
        *last = fs_sqlite->column_int64(statement, 0);
    }
    fs_sqlite->finalize(statement);
    return found;
}

static void run_statement(running *run, sqlite3_stmt *statement)
{
    const fs_query *query = run->query;
    fs_cell cells[FS_CELL_COUNT] = {{FS_IS_MISSING, 0, 0, NULL, 0}};
    bool numbered = fs_sqlite->column_count(statement) == (int)query->column_count + 1;
    int64_t last = query->after;
    for (;;) {
        if (numbered) {
            fs_sqlite->bind_int64(statement, 1, last);
            fs_sqlite->bind_int64(statement, 2, query->until);
        }
        int code = step_rows(run, statement, numbered, cells, &last);
        if (code == SQLITE_DONE) return;
        if (code != SQLITE_TOOBIG || !numbered || !find_next(run, &last)) break;
        run->query->too_long++;
        fs_sqlite->reset(statement);
    }
    set_problem(run);
}

static void run_query(running *run)
{
    sqlite3_stmt *statement = NULL;
    if (fs_sqlite->prepare_v2(run->database, run->query->sql, -1, &statement, NULL) == SQLITE_OK)
        run_statement(run, statement);
    else set_problem(run);
    fs_sqlite->finalize(statement);
}

enum { AT_ONCE = 64 };

typedef struct {
    fs_rows *rows;
    const char *uri;
    fs_query *queries;
    uint32_t first;
    fs_status *statuses;
    fs_error *errors;
    /* Connections that no thread uses: opening one reads the schema, whose length is that of all tables. */
    fs_lock lock;
    uint32_t idle_count;
    sqlite3 *idle[AT_ONCE];
} all_queries;

static sqlite3 *take_idle(all_queries *all)
{
    return FS_LOCKED(&all->lock, all->idle_count > 0 ? all->idle[--all->idle_count] : NULL);
}

static void keep_idle(all_queries *all, sqlite3 *database)
{
    fs_lock_take(&all->lock);
    all->idle[all->idle_count++] = database;
    fs_lock_give(&all->lock);
}

/* Run queries on one connection. */
static void run_some(void *context, int64_t begin, int64_t end)
{
    all_queries *all = context;
    running run = {all->rows, all->uri, &all->queries[begin], 0, take_idle(all), FS_OK, NULL};
    bool is_open = run.database != NULL || open_database(&run);
    for (int64_t i = begin; i < end; i++) {
        run.query = &all->queries[i];
        run.part = all->first + (uint32_t)i;
        run.status = FS_OK;
        run.err = &all->errors[i];
        if (is_open) run_query(&run);
        else set_problem(&run);
        all->statuses[i] = run.status;
    }
    if (is_open) keep_idle(all, run.database);
    else fs_sqlite->close(run.database);
}

/* Whether the rows of a query change what the parts share, so that one thread must add them. */
static bool is_shared(const fs_query *query)
{
    return query->kind == FS_ROW_STRING || query->kind == FS_ROW_DOMAIN || query->kind == FS_ROW_DEVICE ||
           query->kind == FS_ROW_FIELD;
}

/* Run the next queries, at most AT_ONCE. */
static fs_status run_batch(all_queries *all, uint32_t count, fs_error *err)
{
    fs_status statuses[AT_ONCE] = {FS_OK};
    fs_error errors[AT_ONCE];
    all->statuses = statuses;
    all->errors = errors;
    FS_TRY(fs_rows_open_parts(all->rows, count, &all->first, err));
    if (FS_ANY(i, count, is_shared(&all->queries[i]))) run_some(all, 0, count);
    else fs_parallel_for(count, 1, run_some, all);
    FS_TRY(fs_interrupt_poll(err));
    for (uint32_t i = 0; i < count; i++) FS_TRY(fs_status_of(statuses[i], &errors[i], err));
    return FS_OK;
}

fs_status fs_queries_run(fs_rows *rows, const char *uri, fs_query *queries, uint32_t count, fs_error *err)
{
    if (fs_sqlite == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "SQLite's library is not loaded");
    all_queries all = {.rows = rows, .uri = uri};
    fs_status status = FS_OK;
    for (uint32_t first = 0; first < count && status == FS_OK; first += AT_ONCE) {
        all.queries = queries + first;
        status = run_batch(&all, count - first < AT_ONCE ? count - first : AT_ONCE, err);
    }
    while (all.idle_count > 0) fs_sqlite->close(all.idle[--all.idle_count]);
    return status;
}
