/* cuBLASLt is loaded by the first matrix product. `loaded` is set, with release order, after every function was found;
 * a reader that sees it needs no lock. Where cuBLASLt's header is at hand, the assertions compare our copies of its
 * numbers and structs with it. */
#include "kernels/cublaslt.h"

#include <dlfcn.h>
#include <pthread.h>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define CHECK_NUMBER(ours, theirs, number) _Static_assert((int)ours == (int)theirs, #theirs);
FS_CUBLASLT_NUMBERS(CHECK_NUMBER)
#undef CHECK_NUMBER
_Static_assert(sizeof(fs_lt_algorithm) == sizeof(cublasLtMatmulAlgo_t), "cublasLtMatmulAlgo_t");
_Static_assert(sizeof(fs_lt_heuristic) == sizeof(cublasLtMatmulHeuristicResult_t), "cublasLtMatmulHeuristicResult_t");
_Static_assert(offsetof(fs_lt_heuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state), "state");
#endif

static fs_library_finder library_finder;
static const fs_cublaslt *loaded; /* set once, when all of `functions` are */
static fs_cublaslt functions;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

void fs_cuda_set_library_finder(fs_library_finder finder)
{
    library_finder = finder;
}

static const struct {
    size_t offset;
    const char *name;
} symbols[] = {
#define SYMBOL(field, symbol, result, parameters) {offsetof(fs_cublaslt, field), #symbol},
    FS_CUBLASLT_SYMBOLS(SYMBOL)
#undef SYMBOL
};

static fs_status find_symbols(void *library, const char *path, fs_error *err)
{
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address)
            return fs_fail(err, FS_RUNTIME_ERROR,
                           "%s lacks the function %s: install cuBLAS 12 or 13 (pip install nvidia-cublas)", path,
                           symbols[i].name);
        __builtin_memcpy((char *)&functions + symbols[i].offset, &address, sizeof address);
    }
    return FS_OK;
}

/* Load `path`, if a finder returned one, else the loader's default. The lock is held. */
static fs_status load(const char *path, const fs_error *not_found, fs_error *err)
{
    const char *const names[] = {path, "libcublasLt.so.13", "libcublasLt.so.12"};
    const char *reason = NULL;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = names[i][0] ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
        if (library) {
            FS_TRY(find_symbols(library, names[i], err));
            __atomic_store_n(&loaded, &functions, __ATOMIC_RELEASE);
            return FS_OK;
        }
        if (names[i][0] && !reason) reason = dlerror();
    }
    return fs_fail(err, FS_RUNTIME_ERROR,
                   "matrix products on CUDA need cuBLASLt, which could not be loaded (%.400s): "
                   "pip install nvidia-cublas, or put libcublasLt.so.13 on the loader's path",
                   not_found->status != FS_OK ? not_found->message
                   : reason                   ? reason
                                              : "no reason given");
}

fs_status fs_cublaslt_get(const fs_cublaslt **library, fs_error *err)
{
    char path[4096] = "";
    fs_error not_found = {FS_OK, ""};

    *library = __atomic_load_n(&loaded, __ATOMIC_ACQUIRE);
    if (*library) return FS_OK;
    /* Before locking: the finder may run Python, and another thread may hold the GIL while it waits for the lock. */
    if (library_finder && library_finder("cublasLt", path, sizeof path, &not_found) != FS_OK) path[0] = '\0';
    pthread_mutex_lock(&loading);
    fs_status status = loaded ? FS_OK : load(path, &not_found, err);
    pthread_mutex_unlock(&loading);
    if (status == FS_OK) *library = &functions;
    return status;
}
