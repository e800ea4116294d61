/* The minimum overhead of CUPTI: a client that requests records and discards them. Any further overhead is flopscope's.
 *
 * Uses flopscope's declarations (csrc/sources/cupti/abi.h), so that CUPTI's headers are not needed. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sources/cupti/abi.h"

enum { BUFFER_BYTES = 4 << 20, MOST_BUFFERS = 64 };

static fs_cupti_functions cupti;
static uint8_t *pool[MOST_BUFFERS];
static int pooled;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *subscriber;

static void request(uint8_t **buffer, size_t *size, size_t *most_records)
{
    pthread_mutex_lock(&lock);
    *buffer = pooled > 0 ? pool[--pooled] : aligned_alloc(8, BUFFER_BYTES);
    pthread_mutex_unlock(&lock);
    *size = BUFFER_BYTES;
    *most_records = 0;
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size, (void)valid;
    pthread_mutex_lock(&lock);
    if (pooled < MOST_BUFFERS) pool[pooled++] = buffer;
    else free(buffer);
    pthread_mutex_unlock(&lock);
}

static uint64_t own_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Records that callbacks make themselves. */
typedef struct {
    uint64_t start, end;
    uint32_t function, correlation;
} call_record;

enum { RECORDS = 1 << 16 };
static _Thread_local struct {
    call_record *records;
    uint32_t count;
} called;

static void note_call(void *context, int domain, uint32_t function, const void *data)
{
    const fs_cupti_callback_data *call = data;
    (void)context;
    if (domain != FS_CUPTI_DRIVER_DOMAIN && domain != FS_CUPTI_RUNTIME_DOMAIN) return;
    if (call->site == FS_CUPTI_API_ENTER) {
        *call->kept = own_clock();
        return;
    }
    if (called.records == NULL) called.records = malloc(RECORDS * sizeof *called.records);
    called.records[called.count++ % RECORDS] = (call_record){*call->kept, own_clock(), function, call->correlation};
}

int floor_load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return -1;
#define FIND(field, symbol, parameters) *(void **)&cupti.field = dlsym(library, #symbol);
    FS_CUPTI_SYMBOLS(FIND)
    FS_CUPTI_OPTIONAL_SYMBOLS(FIND)
    return cupti.enable == NULL ? -1 : 0;
}

/* What floor_start() asks for besides: bits of ASKED in recording.py, from the second on. */
enum { DRIVER = 2, SYNCHRONIZATION = 4, OVERHEAD = 8, SYSTEM_IDS = 16, OWN_CLOCK = 32, CALLBACKS = 64 };
static unsigned asked;
static char excluded[1024]; /* beginnings of names, separated by blanks */

void floor_ask(unsigned bits, const char *without)
{
    asked = bits;
    strncpy(excluded, without, sizeof excluded - 1);
}

static int is_excluded(const char *name)
{
    for (const char *at = excluded; *at != 0;) {
        size_t length = strcspn(at, " ");
        if (strncmp(name, at, length) == 0) return 1;
        at += length + (at[length] == ' ');
    }
    return 0;
}

/* As csrc/sources/cupti/records.c has it. */
static int is_wanted(const char *name)
{
    static const char *const wanted[] = {
        "cuLaunch",          "cuGraphLaunch",      "cuMem",        "cuCtxSynchronize", "cuStreamSynchronize",
        "cuStreamWaitEvent", "cuEventSynchronize", "cuModuleLoad", "cuLibraryLoad",    "cuMulticast"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (strncmp(name, wanted[i], strlen(wanted[i])) == 0) return 1;
    return 0;
}

static int is_noise(const char *name)
{
    static const char *const noise[] = {"cudaGetDevice_", "cudaSetDevice_", "cudaGetLastError", "cudaPeekAtLastError"};
    for (size_t i = 0; i < sizeof noise / sizeof *noise; i++)
        if (strncmp(name, noise[i], strlen(noise[i])) == 0) return 1;
    return 0;
}

/* Enable what was asked for. Functions can be excluded only from a kind that is enabled. */
static int enable_more(void)
{
    static const struct {
        unsigned bit;
        int kind;
    } kinds[] = {{DRIVER, FS_CUPTI_DRIVER}, {SYNCHRONIZATION, FS_CUPTI_SYNCHRONIZATION}, {OVERHEAD, FS_CUPTI_OVERHEAD}};
    int code = FS_CUPTI_SUCCESS;
    if (asked & SYSTEM_IDS) cupti.set_thread_ids(FS_CUPTI_THREAD_SYSTEM);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && code == FS_CUPTI_SUCCESS; i++)
        if (asked & kinds[i].bit) code = cupti.enable(kinds[i].kind);
    for (int domain = FS_CUPTI_DRIVER_DOMAIN; domain <= FS_CUPTI_RUNTIME_DOMAIN; domain++) {
        int driver = domain == FS_CUPTI_DRIVER_DOMAIN;
        for (uint32_t function = 1; driver ? asked & DRIVER : excluded[0] != 0; function++) {
            const char *name = NULL;
            if (cupti.callback_name(domain, function, &name) != FS_CUPTI_SUCCESS || name == NULL) break;
            if (driver && !is_wanted(name) && cupti.enable_driver != NULL) cupti.enable_driver(function, 0);
            if (!driver && is_excluded(name) && cupti.enable_runtime != NULL) cupti.enable_runtime(function, 0);
        }
    }
    return code;
}

/* Enable records of kernels and of API calls, and callbacks around cudaLaunchKernel, after setting one attribute (-1:
 * none) to a value of `size` bytes. Return 0 or CUPTI's error. */
int floor_start(int kernels, int api_calls, int callbacks, int attribute, size_t size, uint64_t value)
{
    int code = cupti.subscribe(&subscriber, note_call, NULL);
    if (code == FS_CUPTI_SUCCESS && attribute >= 0) code = cupti.set_attribute(attribute, &size, &value);
    if (code == FS_CUPTI_SUCCESS && (asked & OWN_CLOCK) && cupti.set_clock != NULL) code = cupti.set_clock(own_clock);
    if (code == FS_CUPTI_SUCCESS) code = cupti.register_callbacks(request, complete);
    if (code == FS_CUPTI_SUCCESS && kernels) code = cupti.enable(FS_CUPTI_KERNEL);
    if (code == FS_CUPTI_SUCCESS && api_calls) code = cupti.enable(FS_CUPTI_RUNTIME);
    if (code == FS_CUPTI_SUCCESS) code = enable_more();
    for (int domain = FS_CUPTI_DRIVER_DOMAIN; domain <= FS_CUPTI_RUNTIME_DOMAIN && (asked & CALLBACKS); domain++)
        for (uint32_t function = 1; function < 1000; function++) {
            const char *name = NULL;
            if (cupti.callback_name(domain, function, &name) != FS_CUPTI_SUCCESS || name == NULL) break;
            if (domain == FS_CUPTI_DRIVER_DOMAIN ? is_wanted(name) : !is_noise(name))
                cupti.enable_callback(1, subscriber, domain, function);
        }
    for (uint32_t function = 1; code == FS_CUPTI_SUCCESS && callbacks && function < 1000; function++) {
        const char *name = NULL;
        if (cupti.callback_name(FS_CUPTI_RUNTIME_DOMAIN, function, &name) != FS_CUPTI_SUCCESS) break;
        if (strcmp(name, "cudaLaunchKernel_v7000") == 0)
            code = cupti.enable_callback(1, subscriber, FS_CUPTI_RUNTIME_DOMAIN, function);
    }
    return code;
}

void floor_stop(void)
{
    cupti.flush(FS_CUPTI_FLUSH_FORCED);
    cupti.disable(FS_CUPTI_KERNEL);
    cupti.disable(FS_CUPTI_RUNTIME);
    cupti.disable(FS_CUPTI_DRIVER);
    cupti.disable(FS_CUPTI_SYNCHRONIZATION);
    cupti.disable(FS_CUPTI_OVERHEAD);
    cupti.set_thread_ids(FS_CUPTI_THREAD_DEFAULT);
    cupti.unsubscribe(subscriber);
    cupti.finalize();
}
