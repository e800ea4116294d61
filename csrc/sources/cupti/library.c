/* A library is loaded once and never unloaded; fs_driver and fs_cupti are set only when every needed function was
 * found, so nobody tests a function that is not optional. Where CUPTI's headers are at hand, the assertions below
 * compare our copies of its structs and numbers with them. */
#include "sources/cupti/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fork.h"
#include "sources/cupti/cupti.h"

#if __has_include(<cupti.h>) && __has_include(<cuda.h>)
#include <cupti.h>
#if CUPTI_API_VERSION >= 130000 /* the first version with all of them */
#define CHECK_NUMBER(ours, theirs, number) _Static_assert((int)ours == (int)theirs, #theirs);
FS_CUPTI_NUMBERS(CHECK_NUMBER)
#undef CHECK_NUMBER
#define CHECK(ours, field, theirs, their_field) \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field), #theirs "." #their_field)
CHECK(fs_cupti_kernel, registers, CUpti_ActivityKernel9, registersPerThread);
CHECK(fs_cupti_kernel, start, CUpti_ActivityKernel9, start);
CHECK(fs_cupti_kernel, device, CUpti_ActivityKernel9, deviceId);
CHECK(fs_cupti_kernel, grid, CUpti_ActivityKernel9, gridX);
CHECK(fs_cupti_kernel, block, CUpti_ActivityKernel9, blockX);
CHECK(fs_cupti_kernel, static_shared, CUpti_ActivityKernel9, staticSharedMemory);
CHECK(fs_cupti_kernel, correlation, CUpti_ActivityKernel9, correlationId);
CHECK(fs_cupti_kernel, name, CUpti_ActivityKernel9, name);
CHECK(fs_cupti_kernel, graph_node, CUpti_ActivityKernel9, graphNodeId);
CHECK(fs_cupti_kernel, graph, CUpti_ActivityKernel9, graphId);
CHECK(fs_cupti_kernel, cluster, CUpti_ActivityKernel9, clusterX);
CHECK(fs_cupti_memcpy, bytes, CUpti_ActivityMemcpy5, bytes);
CHECK(fs_cupti_memcpy, correlation, CUpti_ActivityMemcpy5, correlationId);
CHECK(fs_cupti_memcpy, graph_node, CUpti_ActivityMemcpy5, graphNodeId);
CHECK(fs_cupti_memcpy, graph, CUpti_ActivityMemcpy5, graphId);
CHECK(fs_cupti_memcpy_peer, correlation, CUpti_ActivityMemcpyPtoP4, correlationId);
CHECK(fs_cupti_memcpy_peer, graph_node, CUpti_ActivityMemcpyPtoP4, graphNodeId);
CHECK(fs_cupti_memcpy_peer, graph, CUpti_ActivityMemcpyPtoP4, graphId);
CHECK(fs_cupti_memset, correlation, CUpti_ActivityMemset4, correlationId);
CHECK(fs_cupti_memset, memory, CUpti_ActivityMemset4, memoryKind);
CHECK(fs_cupti_memset, graph_node, CUpti_ActivityMemset4, graphNodeId);
CHECK(fs_cupti_memset, graph, CUpti_ActivityMemset4, graphId);
CHECK(fs_cupti_api, start, CUpti_ActivityAPI, start);
CHECK(fs_cupti_api, thread, CUpti_ActivityAPI, threadId);
CHECK(fs_cupti_api, correlation, CUpti_ActivityAPI, correlationId);
CHECK(fs_cupti_synchronization, stream, CUpti_ActivitySynchronization2, streamId);
CHECK(fs_cupti_overhead, process, CUpti_ActivityOverhead3, objectId);
CHECK(fs_cupti_overhead, start, CUpti_ActivityOverhead3, start);
CHECK(fs_cupti_callback_data, function, CUpti_CallbackData, functionName);
CHECK(fs_cupti_callback_data, arguments, CUpti_CallbackData, functionParams);
CHECK(fs_cupti_subscriber, taken_by_size, CUpti_SubscriberParams, oldSubscriberSize);
#undef CHECK
#endif
#endif

const fs_cupti_functions *fs_cupti;
const fs_driver_functions *fs_driver;

static fs_cupti_functions cupti_functions;
static fs_driver_functions driver_functions;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

typedef struct {
    size_t offset;
    const char *name;
} symbol;

static const symbol cupti_symbols[] = {
#define SYMBOL(field, symbol, parameters) {offsetof(fs_cupti_functions, field), #symbol},
    FS_CUPTI_SYMBOLS(SYMBOL)
#undef SYMBOL
};
static const symbol optional_symbols[] = {
#define SYMBOL(field, symbol, parameters) {offsetof(fs_cupti_functions, field), #symbol},
    FS_CUPTI_OPTIONAL_SYMBOLS(SYMBOL)
#undef SYMBOL
};
static const symbol driver_symbols[] = {
#define SYMBOL(field, symbol, parameters) {offsetof(fs_driver_functions, field), #symbol},
    FS_DRIVER_SYMBOLS(SYMBOL)
#undef SYMBOL
};
#define COUNT(list) (sizeof(list) / sizeof *(list))

/* Resolve the functions; returns the name of the first that is missing from the library, or NULL. */
static const char *find_symbols(void *library, const symbol *symbols, size_t count, void *functions)
{
    const char *missing = NULL;
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL && missing == NULL) missing = symbols[i].name;
        __builtin_memcpy((char *)functions + symbols[i].offset, &address, sizeof address);
    }
    return missing;
}

static fs_status load_driver(const char *path, fs_error *err)
{
    if (path == NULL || path[0] == '\0') path = "libcuda.so.1";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "no NVIDIA driver could be loaded (%s)", dlerror());
    const char *missing = find_symbols(library, driver_symbols, COUNT(driver_symbols), &driver_functions);
    if (missing != NULL)
        return fs_fail(err, FS_RUNTIME_ERROR, "%s has no function %s: update the driver", path, missing);
    fs_driver = &driver_functions;
    return FS_OK;
}

static const char install[] = "install it with pip install nvidia-cuda-cupti (nvidia-cuda-cupti-cu12 for CUDA 12)";

static fs_status load_cupti(const char *path, fs_error *err)
{
    const char *const names[] = {path, "libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    bool named = path != NULL && path[0] != '\0';
    char reason[400] = ""; /* of the first attempt, copied because the next dlopen() overwrites it */
    void *library = NULL;
    size_t at = named ? 0 : 1, end = named ? 1 : COUNT(names);
    uint32_t version = 0;
    for (; library == NULL && at < end; at++) {
        library = dlopen(names[at], RTLD_NOW | RTLD_LOCAL);
        const char *why = library == NULL ? dlerror() : NULL;
        if (why != NULL && reason[0] == '\0') snprintf(reason, sizeof reason, "%s", why);
    }
    if (library == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI could not be loaded (%s): %s", reason, install);
    path = names[at - 1];
    const char *missing = find_symbols(library, cupti_symbols, COUNT(cupti_symbols), &cupti_functions);
    if (missing != NULL) return fs_fail(err, FS_RUNTIME_ERROR, "%s has no function %s: %s", path, missing, install);
    find_symbols(library, optional_symbols, COUNT(optional_symbols), &cupti_functions);
    if (cupti_functions.version(&version) != FS_CUPTI_SUCCESS || version < FS_CUPTI_LEAST_VERSION)
        return fs_fail(err, FS_RUNTIME_ERROR,
                       "%s has CUPTI API version %u, but capturing needs %d (CUDA 12.0) or later: %s", path, version,
                       FS_CUPTI_LEAST_VERSION, install);
    fs_cupti = &cupti_functions;
    return FS_OK;
}

fs_status fs_driver_load(const char *path, fs_error *err)
{
    pthread_mutex_lock(&loading);
    fs_status status = fs_driver == NULL ? load_driver(path, err) : FS_OK;
    pthread_mutex_unlock(&loading);
    return status;
}

fs_status fs_cupti_load(const char *path, const char *driver, fs_error *err)
{
    fs_status status = fs_driver_load(driver, err);
    pthread_mutex_lock(&loading);
    if (status == FS_OK && fs_cupti == NULL) status = load_cupti(path, err);
    pthread_mutex_unlock(&loading);
    return status;
}

/* A forked child has no CUDA if its parent initialized the driver; asking again crashes where CUPTI is attached. */
bool fs_cupti_has_device(void)
{
    static atomic_uint initialized_in; /* the generation of the process, and 1; 0: in none */
    unsigned nowhere = 0, here = fs_fork_generation() + 1;
    int count = 0;
    if (fs_driver == NULL) return false;
    if (!atomic_compare_exchange_strong(&initialized_in, &nowhere, here) && nowhere != here) return false;
    return fs_driver->init(0) == 0 && fs_driver->device_count(&count) == 0 && count > 0;
}

void fs_driver_keep_contexts(void)
{
    fs_driver_functions functions = driver_functions;
    void *library = fs_driver == NULL ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) : NULL;
    int count = 0;
    if (fs_driver == NULL && library == NULL) return; /* CUDA is not in use */
    if (library != NULL && find_symbols(library, driver_symbols, COUNT(driver_symbols), &functions) != NULL) return;
    if (functions.device_count(&count) != 0) return; /* not initialized, or a forked child */
    for (int i = 0; i < count; i++) {
        int device = 0, active = 0;
        unsigned flags = 0;
        void *context = NULL;
        if (functions.device(&device, i) != 0 || functions.primary_state(device, &flags, &active) != 0) continue;
        if (active) functions.primary_retain(&context, device);
    }
}

fs_status fs_cupti_fail(int code, const char *doing, fs_error *err)
{
    const char *text = NULL;
    if (fs_cupti->result_text(code, &text) != FS_CUPTI_SUCCESS || text == NULL) text = "unknown error";
    return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI failed while %s: %s (%d)", doing, text, code);
}

char *fs_cupti_demangle(const char *symbol_name)
{
    static char *(*demangle)(const char *, char *, size_t *, int *);
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    static int looked;
    int status = 0;
    if (symbol_name[0] != '_' || symbol_name[1] != 'Z') return NULL;
    pthread_mutex_lock(&once);
    if (!looked) { /* from the C++ library that CUDA code usually loads; without it names stay mangled */
        void *address = dlsym(RTLD_DEFAULT, "__cxa_demangle");
        void *library = address == NULL ? dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL) : NULL;
        if (library != NULL) address = dlsym(library, "__cxa_demangle");
        __builtin_memcpy(&demangle, &address, sizeof address);
        looked = 1;
    }
    pthread_mutex_unlock(&once);
    return demangle == NULL ? NULL : demangle(symbol_name, NULL, NULL, &status);
}
