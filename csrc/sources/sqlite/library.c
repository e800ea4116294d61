/* fs_sqlite is set once, after every function was found in a version that is new enough and was built for threads; from
 * then on it can be used without a test. Python's own library is preferred by the caller, so that a process has one
 * SQLite. */
#include "sources/sqlite/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

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
