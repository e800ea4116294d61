/* The minimum overhead of CUPTI: a client that requests records and discards them. Any further overhead is flopscope's.
 *
 * Uses flopscope's declarations (csrc/sources/cupti/abi.h), so that CUPTI's headers are not needed. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

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

static void ignore(void *context, int domain, uint32_t function, const void *data)
{
    (void)context, (void)domain, (void)function, (void)data;
}

int floor_load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return -1;
#define FIND(field, symbol, parameters) *(void **)&cupti.field = dlsym(library, #symbol);
    FS_CUPTI_SYMBOLS(FIND)
    return cupti.enable == NULL ? -1 : 0;
}

/* Enable records of kernels, and of API calls. Return 0 or CUPTI's error. */
int floor_start(int api_calls)
{
    int code = cupti.subscribe(&subscriber, ignore, NULL);
    if (code == FS_CUPTI_SUCCESS) code = cupti.register_callbacks(request, complete);
    if (code == FS_CUPTI_SUCCESS) code = cupti.enable(FS_CUPTI_KERNEL);
    if (code == FS_CUPTI_SUCCESS && api_calls) code = cupti.enable(FS_CUPTI_RUNTIME);
    return code;
}

void floor_stop(void)
{
    cupti.flush(FS_CUPTI_FLUSH_FORCED);
    cupti.disable(FS_CUPTI_KERNEL);
    cupti.disable(FS_CUPTI_RUNTIME);
    cupti.unsubscribe(subscriber);
    cupti.finalize();
}
