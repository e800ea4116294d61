/* A CUPTI and a CUDA driver without a GPU, under their real names. Functions with the prefix fake_ report the work of
 * an imaginary GPU; everything else behaves as NVIDIA's headers specify: one subscriber, buffers requested and
 * completed through callbacks, records of the enabled kinds only.
 *
 * Included by a C test, or compiled as a shared library (cc -shared -fPIC, with -DcuptiXyz=absent to leave a function
 * out) and loaded in the place of both libraries. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sources/cupti/abi.h"

enum {
    FAKE_INVALID_PARAMETER = 1,
    FAKE_NOT_INITIALIZED = 15,
    FAKE_KINDS = 64,
    FAKE_FUNCTIONS = 64,
    FAKE_FAILURES = 16,
    FAKE_WORKERS = 256,
    FAKE_DEVICES = 2,
};

/* What fake_set() sets: X(name, at first, description) */
#define FAKE_SETTINGS(X)                                                                                \
    X(version, 130001, "of CUPTI")                                                                      \
    X(uses_workers, 0, "complete buffers on CUPTI's own threads")                                       \
    X(is_late, 0, "complete full buffers on the next flush only")                                       \
    X(wakes_by, 0,                                                                                      \
      "what brings counters back after cuptiFinalize(): 0 a subscription, 1 any kind of activity that " \
      "is enabled, 2 that of kernels, 3 nothing but kernels being recorded")                            \
    X(cold, 0, "the program has not initialized CUDA; \"intruded\" counts the calls that would")        \
    X(fitting, 32, "metrics that fit the pass of PM sampling")                                          \
    X(record_bytes, 4 << 10, "of a sample in the hardware buffer")                                      \
    X(passes, 1, "that a configuration of the Range Profiler needs")                                    \
    X(twins, 0, "a sampled kernel is of two modules")

/* What fake_count() returns: X(name) */
/* clang-format off */
#define FAKE_COUNTERS(X)                                                                                   \
    X(subscribed) X(finalized) X(abandoned) X(refused) X(dropped) X(enabled)     \
    X(calls) X(misaligned) X(unclean) X(overtaken) X(retained) X(pushed) X(waited) X(system_threads)       \
    X(own_clock) X(other_buffers) X(intruded) X(initialized) X(told_launches)                              \
    X(sessions) X(open) X(windows) X(hosts) X(profilers) X(range_passes) X(room)
/* clang-format on */

static struct {
    pthread_mutex_t lock; /* held while requesting a buffer, as CUPTI does */
    bool taken;
    char taken_by[128];
    struct {
        char function[48];
        int code;
    } failures[FAKE_FAILURES];
    int failing_kinds[FAKE_KINDS];                  /* 0: no failure */
    bool active[FAKE_DEVICES], other[FAKE_DEVICES]; /* contexts: primary ones, and others */
    uint32_t grid[3], block[3], cluster[3], registers, static_shared, dynamic_shared, graph;
    uint64_t graph_node;
    pthread_t workers[FAKE_WORKERS];
    int worker_count;
    struct fake_job *late; /* full buffers that the next flush completes */
    bool detached;         /* by cuptiFinalize(), and not back */
#define FAKE_SETTING(name, first, prose) long name;
    FAKE_SETTINGS(FAKE_SETTING)
#undef FAKE_SETTING
#define FAKE_COUNTER(name) long name;
    FAKE_COUNTERS(FAKE_COUNTER)
#undef FAKE_COUNTER
} fake;

/* What cuptiFinalize() resets. */
static struct fake_client {
    fs_cupti_callback callback;
    void *callback_context;
    bool callbacks[4][FAKE_FUNCTIONS]; /* by domain */
    fs_cupti_request request;
    fs_cupti_complete complete;
    uint64_t (*clock)(void);
    bool kinds[FAKE_KINDS], silent[4][FAKE_FUNCTIONS]; /* disabled functions, by domain */
    bool zeroed;                                       /* the client promised zeroed buffers */
    uint8_t *buffer;                                   /* being filled */
    size_t size, used;
    bool unfinished; /* it holds a record without an end */
} fake_client;

/* Controls ------------------------------------------------------------------------------------------------------- */

/* The state of a process that never used CUPTI, on a machine with two devices. */
__attribute__((constructor)) void fake_reset(void)
{
    memset(&fake, 0, sizeof fake);
    pthread_mutex_init(&fake.lock, NULL);
    memset(&fake_client, 0, sizeof fake_client);
    fake.active[0] = fake.active[1] = true;
#define FAKE_FIRST(name, first, prose) fake.name = first;
    FAKE_SETTINGS(FAKE_FIRST)
#undef FAKE_FIRST
}

void fake_set(const char *name, long value)
{
#define FAKE_SET(setting, first, prose) \
    if (strcmp(name, #setting) == 0) fake.setting = value;
    FAKE_SETTINGS(FAKE_SET)
#undef FAKE_SET
    if (fake.cold) memset(fake.active, 0, sizeof fake.active);
}

/* Return a counter by its name, or -1 if there is no such counter. */
long fake_count(const char *name)
{
#define FAKE_COUNT(counter) \
    if (strcmp(name, #counter) == 0) return fake.counter;
    FAKE_COUNTERS(FAKE_COUNT)
#undef FAKE_COUNT
    return -1;
}

static int fake_answer(const char *function)
{
    for (int i = 0; i < FAKE_FAILURES; i++)
        if (strcmp(fake.failures[i].function, function) == 0) return fake.failures[i].code;
    return 0;
}

/* Let `function` fail with `code` from now on; 0 makes it work again. */
void fake_fail(const char *function, int code)
{
    for (int i = 0; i < FAKE_FAILURES; i++) {
        if (fake.failures[i].function[0] != '\0' && strcmp(fake.failures[i].function, function) != 0) continue;
        strncpy(fake.failures[i].function, function, sizeof fake.failures[i].function - 1);
        fake.failures[i].code = code;
        return;
    }
    abort();
}

/* Let another client, named `by`, subscribe to CUPTI; NULL ends its subscription. */
void fake_take(const char *by)
{
    fake.taken = by != NULL;
    strncpy(fake.taken_by, by != NULL ? by : "", sizeof fake.taken_by - 1);
}

static bool fake_is_attached(void)
{
    return !fake.detached || (fake.wakes_by == 3 && fake_client.kinds[FS_CUPTI_KERNEL]);
}

void fake_set_active(int device, int active)
{
    fake.active[device] = active;
}

/* Set the launch parameters of the kernels from now on. */
void fake_set_launch(uint32_t grid_x, uint32_t block_x, uint32_t registers, uint32_t static_shared,
                     uint32_t dynamic_shared)
{
    memcpy(fake.grid, (const uint32_t[3]){grid_x, 2, 3}, sizeof fake.grid);
    memcpy(fake.block, (const uint32_t[3]){block_x, 4, 1}, sizeof fake.block);
    fake.registers = registers;
    fake.static_shared = static_shared;
    fake.dynamic_shared = dynamic_shared;
}

/* Set the CUDA graph and node that launch the next work; graph 0: no graph. */
void fake_set_graph(uint32_t graph, uint64_t node)
{
    fake.graph = graph;
    fake.graph_node = node;
}

/* Return the time in ns of the clock that records use. */
uint64_t fake_now(void)
{
    struct timespec now;
    if (fake_client.clock != NULL) return fake_client.clock();
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* API functions by domain and id. The names are NVIDIA's, the ids (positions in the table) are the fake's own. */
static const char *const fake_names[4][16] = {
    [FS_CUPTI_DRIVER_DOMAIN] = {"INVALID", "cuInit", "cuDriverGetVersion", "cuLaunchKernel", "cuLaunchKernel_ptsz",
                                "cuMemAlloc_v2", "cuCtxGetCurrent", "cuCtxSynchronize", "cuGraphLaunch",
                                "cuMemcpyDtoH_v2_ptds", "cuLaunchKernelEx", "cuGraphExecUpdate_v2",
                                "cuGraphLaunch_ptsz"},
    [FS_CUPTI_RUNTIME_DOMAIN] = {"INVALID", "cudaDriverGetVersion_v3020", "cudaLaunchKernel_v7000",
                                 "cudaLaunchKernel_ptsz_v7000", "cudaMemcpyAsync_v3020", "cudaMemcpy_ptds_v7000",
                                 "cudaGetDevice_v3020", "cudaEventCreate_v3020", "cudaDeviceSynchronize_v3020",
                                 "cudaGraphLaunch_v10000", "cudaMemcpy2DToArray_v3020", "cudaStreamWaitEvent_v3020"},
};

/* Return the id of an API function by its full name. */
uint32_t fake_function(const char *name)
{
    for (int domain = 1; domain <= 2; domain++)
        for (uint32_t id = 1; fake_names[domain][id] != NULL; id++)
            if (strcmp(fake_names[domain][id], name) == 0) return id;
    abort();
}

#include "tests/c/fake_records.h"

/* CUPTI ---------------------------------------------------------------------------------------------------------- */

int cuptiGetVersion(uint32_t *version)
{
    *version = (uint32_t)fake.version;
    return fake_answer("cuptiGetVersion");
}

int cuptiGetResultString(int code, const char **text)
{
    *text = code == FS_CUPTI_ERROR_TAKEN   ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
            : code == FAKE_NOT_INITIALIZED ? "CUPTI_ERROR_NOT_INITIALIZED"
                                           : "CUPTI_ERROR_FAKE";
    return fake_answer("cuptiGetResultString");
}

int cuptiGetCallbackName(int domain, uint32_t function, const char **name)
{
    *name = function < 16 ? fake_names[domain][function] : NULL;
    return *name != NULL ? 0 : FAKE_INVALID_PARAMETER;
}

int cuptiSubscribe(void **subscriber, fs_cupti_callback callback, void *context)
{
    int code = fake_answer("cuptiSubscribe");
    if (code != 0) return code;
    if (fake.taken || fake_client.callback != NULL) return FS_CUPTI_ERROR_TAKEN;
    fake_client.callback = callback;
    fake_client.callback_context = context;
    if (fake.wakes_by == 0) fake.detached = false;
    fake.subscribed++;
    *subscriber = &fake;
    return 0;
}

int cuptiSubscribe_v2(void **subscriber, fs_cupti_callback callback, void *context, fs_cupti_subscriber *parameters)
{
    int code = cuptiSubscribe(subscriber, callback, context);
    if (parameters->size < sizeof *parameters) return FAKE_INVALID_PARAMETER;
    if (code == FS_CUPTI_ERROR_TAKEN && parameters->taken_by != NULL)
        strncpy(parameters->taken_by, fake.taken_by, parameters->taken_by_size); /* may lack a terminator */
    return code;
}

int cuptiEnableDomain(uint32_t on, void *subscriber, int domain)
{
    if (subscriber != &fake) return FAKE_INVALID_PARAMETER;
    for (int i = 1; i < FAKE_FUNCTIONS; i++)
        __atomic_store_n(&fake_client.callbacks[domain][i], on != 0, __ATOMIC_RELAXED);
    return 0;
}

int cuptiUnsubscribe(void *subscriber)
{
    if (subscriber != &fake) return FAKE_INVALID_PARAMETER;
    __atomic_store_n(&fake_client.callback, NULL, __ATOMIC_RELAXED);
    for (int domain = FS_CUPTI_DRIVER_DOMAIN; domain <= FS_CUPTI_RESOURCE_DOMAIN; domain++)
        cuptiEnableDomain(0, subscriber, domain);
    return 0;
}

int cuptiEnableCallback(uint32_t on, void *subscriber, int domain, uint32_t function)
{
    bool resource = domain == FS_CUPTI_RESOURCE_DOMAIN;
    if (resource && function >= FS_CUPTI_NODE_UPDATED && fake.version < 130000) return FAKE_INVALID_PARAMETER;
    if (subscriber != &fake || (domain != FS_CUPTI_DRIVER_DOMAIN && !resource) || function == 0 ||
        function >= FAKE_FUNCTIONS)
        return FAKE_INVALID_PARAMETER;
    int code = fake_answer("cuptiEnableCallback");
    if (code == 0) __atomic_store_n(&fake_client.callbacks[domain][function], on != 0, __ATOMIC_RELAXED);
    return code;
}

/* A node is its id, and so is a graph, executable or not. */
int cuptiGetGraphNodeId(void *node, uint64_t *id)
{
    if (node == (void *)UINTPTR_MAX) abort(); /* undefined */
    *id = (uint64_t)(uintptr_t)node;
    return fake_answer("cuptiGetGraphNodeId");
}

int cuptiGetGraphId(void *graph, uint32_t *id)
{
    *id = (uint32_t)(uintptr_t)graph;
    return fake_answer("cuptiGetGraphId");
}

int cuptiGetGraphExecId(void *graph, uint32_t *id)
{
    *id = (uint32_t)(uintptr_t)graph;
    return fake_answer("cuptiGetGraphExecId");
}

int cuptiGetDeviceId(void *context, uint32_t *device)
{
    for (uint32_t i = 0; i < FAKE_DEVICES; i++) {
        *device = i;
        if (context == &fake.active[i] || context == &fake.other[i]) return 0;
    }
    return FAKE_INVALID_PARAMETER;
}

int cuptiActivityRegisterCallbacks(fs_cupti_request request, fs_cupti_complete complete)
{
    int code = fake_answer("cuptiActivityRegisterCallbacks");
    if (code != 0) return code;
    fake_client.request = request;
    fake_client.complete = complete;
    return 0;
}

int cuptiActivityEnable(int kind)
{
    if (fake.failing_kinds[kind] != 0) return fake.failing_kinds[kind];
    if (fake.wakes_by <= 1 || (fake.wakes_by == 2 && kind == FS_CUPTI_KERNEL)) fake.detached = false;
    if (!fake_client.kinds[kind]) fake.enabled++;
    fake_client.kinds[kind] = true;
    return 0;
}

int cuptiActivityDisable(int kind)
{
    if (fake_client.kinds[kind]) fake.enabled--;
    fake_client.kinds[kind] = false;
    return 0;
}

int cuptiActivityEnableDriverApi(uint32_t function, uint8_t on)
{
    fake_client.silent[FS_CUPTI_DRIVER_DOMAIN][function] = !on;
    return 0;
}

int cuptiActivityEnableRuntimeApi(uint32_t function, uint8_t on)
{
    fake_client.silent[FS_CUPTI_RUNTIME_DOMAIN][function] = !on;
    return 0;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, fs_cupti_record **record)
{
    static const size_t sizes[FAKE_KINDS] = {[FS_CUPTI_KERNEL] = sizeof(fs_cupti_kernel),
                                             [FS_CUPTI_MEMCPY] = sizeof(fs_cupti_memcpy),
                                             [FS_CUPTI_MEMCPY_PEER] = sizeof(fs_cupti_memcpy_peer),
                                             [FS_CUPTI_MEMSET] = sizeof(fs_cupti_memset),
                                             [FS_CUPTI_RUNTIME] = sizeof(fs_cupti_api),
                                             [FS_CUPTI_DRIVER] = sizeof(fs_cupti_api),
                                             [FS_CUPTI_SYNCHRONIZATION] = sizeof(fs_cupti_synchronization),
                                             [FS_CUPTI_OVERHEAD] = sizeof(fs_cupti_overhead),
                                             [FAKE_UNKNOWN] = sizeof(fake_unknown_record)};
    uint8_t *at = buffer;
    if (*record != NULL) at = (uint8_t *)*record + sizes[(*record)->kind];
    if (at >= buffer + valid) return 12; /* CUPTI_ERROR_MAX_LIMIT_REACHED */
    *record = (fs_cupti_record *)(void *)at;
    return 0;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped)
{
    (void)context, (void)stream;
    int code = fake_answer("cuptiActivityGetNumDroppedRecords");
    if (code != 0) return code;
    pthread_mutex_lock(&fake.lock);
    *dropped = (size_t)fake.dropped;
    fake.dropped = 0;
    pthread_mutex_unlock(&fake.lock);
    return 0;
}

int cuptiActivityFlushAll(uint32_t flag)
{
    fake_job *job = NULL, *late = NULL;
    pthread_mutex_lock(&fake.lock);
    late = fake.late;
    fake.late = NULL;
    if (flag == FS_CUPTI_FLUSH_FORCED || !fake_client.unfinished) job = fake_take_buffer();
    pthread_mutex_unlock(&fake.lock);
    while (late != NULL) {
        fake_job *next = late->next;
        fake_give(late);
        late = next;
    }
    fake_give(job);
    fake_join_workers();
    return fake_answer("cuptiActivityFlushAll");
}

int cuptiGetTimestamp(uint64_t *time)
{
    *time = fake_now();
    return fake_answer("cuptiGetTimestamp");
}

int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void))
{
    int code = fake_answer("cuptiActivityRegisterTimestampCallback");
    if (code != 0) return code;
    if (clock == NULL) return FAKE_INVALID_PARAMETER;
    if (fake.enabled > 0) fake.overtaken++; /* records with both clocks would be mixed */
    fake_client.clock = clock;
    fake.own_clock = 1;
    return 0;
}

int cuptiActivitySetAttribute(int attribute, size_t *size, void *value)
{
    int code = fake_answer("cuptiActivitySetAttribute");
    if (code == 0 && *size != 1) code = FAKE_INVALID_PARAMETER;
    if (code == 0 && attribute == FS_CUPTI_ZEROED_BUFFERS) fake_client.zeroed = *(uint8_t *)value;
    return code;
}

int cuptiSetThreadIdType(int type)
{
    fake.system_threads = type == FS_CUPTI_THREAD_SYSTEM;
    return 0;
}

static void fake_counters_finalized(void);

/* Reset to the state of a process that never used CUPTI; a buffer that is being filled is lost. */
int cuptiFinalize(void)
{
    fake_join_workers();
    fake_counters_finalized();
    fake.finalized++;
    fake.detached = true;
    fake.taken = false;
    if (fake_client.buffer != NULL) fake.abandoned++;
    fake_client = (struct fake_client){0};
    fake.enabled = fake.system_threads = fake.own_clock = 0;
    return 0;
}

/* Callbacks ------------------------------------------------------------------------------------------------------ */

static bool fake_tell(int domain, uint32_t function, const void *data)
{
    fs_cupti_callback callback = __atomic_load_n(&fake_client.callback, __ATOMIC_RELAXED);
    if (callback == NULL) return false;
    if (!__atomic_load_n(&fake_client.callbacks[domain][function], __ATOMIC_RELAXED)) return false;
    callback(fake_client.callback_context, domain, function, data);
    return true;
}

/* Tell of a call of the driver, by its full name, at entry and exit, as every API function does. Return how often it
 * was told. */
static long fake_tell_call(const char *function, const char *public_name, uint32_t graph)
{
    void *arguments[] = {(void *)(uintptr_t)graph, NULL};
    fs_cupti_callback_data data = {.site = 0, .function = public_name, .arguments = arguments};
    long told = 0;
    for (; data.site <= FS_CUPTI_API_EXIT; data.site++)
        told += fake_tell(FS_CUPTI_DRIVER_DOMAIN, fake_function(function), &data);
    return told;
}

/* Let the driver launch an executable graph, a number of times; `function`: cuGraphLaunch or cuGraphLaunch_ptsz. */
void fake_launch_graph(const char *function, uint32_t id, long times)
{
    while (times-- > 0)
        __atomic_fetch_add(&fake.told_launches, fake_tell_call(function, "cuGraphLaunch", id), __ATOMIC_RELAXED);
}

/* Let an executable graph be updated by a call of which nothing else is told. */
void fake_update(uint32_t id)
{
    fake_tell_call("cuGraphExecUpdate_v2", "cuGraphExecUpdate", id);
}

/* Let a graph be destroyed. Members that such a callback does not have are undefined. */
void fake_graph(uint32_t function, uint32_t id)
{
    void *handle = (void *)(uintptr_t)id, *undefined = (void *)UINTPTR_MAX;
    bool executable = function == FS_CUPTI_EXEC_DESTROYED;
    fs_cupti_graph graph = {.graph = executable ? undefined : handle,
                            .original_graph = undefined,
                            .node = undefined,
                            .original_node = undefined,
                            .executable = executable ? handle : undefined};
    fake_tell(FS_CUPTI_RESOURCE_DOMAIN, function, &(fs_cupti_resource){.descriptor = &graph});
}

static void fake_tell_node(uint32_t function, uint64_t node, uint64_t original, uint64_t dependency, int type)
{
    void *undefined = (void *)UINTPTR_MAX;
    bool copies = function == FS_CUPTI_NODE_CLONED || function == FS_CUPTI_NODE_UPDATED;
    fs_cupti_graph graph = {
        .graph = (void *)(uintptr_t)(node >> 32),
        .node = (void *)(uintptr_t)node,
        .original_node = copies ? (void *)(uintptr_t)original : undefined,
        .dependency = function == FS_CUPTI_NODE_LINKED ? (void *)(uintptr_t)dependency : undefined,
        .node_type = type,
    };
    fake_tell(FS_CUPTI_RESOURCE_DOMAIN, function, &(fs_cupti_resource){.descriptor = &graph});
}

/* Let a node of a graph be created, cloned, …: callbacks of the resource domain. As CUPTI of CUDA 13.0 does, a
 * clone is created first, and a node's type is told as its creation starts, and not again. */
void fake_graph_node(uint32_t function, uint64_t node, uint64_t original, int type)
{
    bool clones = function == FS_CUPTI_NODE_CLONED;
    if (clones || function == FS_CUPTI_NODE_CREATED) fake_tell_node(FS_CUPTI_NODE_STARTS, node, 0, 0, type);
    if (clones) fake_tell_node(FS_CUPTI_NODE_CREATED, node, 0, 0, 0);
    fake_tell_node(function, node, original, 0, 0);
}

/* Let a node depend on another one of its graph. */
void fake_link(uint64_t node, uint64_t dependency)
{
    fake_tell_node(FS_CUPTI_NODE_LINKED, node, 0, dependency, 0);
}

/* Let the program create a context: the primary one of the device, or another. */
void fake_context(int device, int primary)
{
    bool *context = primary ? &fake.active[device] : &fake.other[device];
    fake.cold = false;
    *context = true;
    fake_tell(FS_CUPTI_RESOURCE_DOMAIN, FS_CUPTI_CONTEXT_CREATED, &(fs_cupti_resource){.context = context});
}

#include "tests/c/fake_driver.h"
#include "tests/c/fake_counters.h"
