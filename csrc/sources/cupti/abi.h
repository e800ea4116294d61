/* The part of CUPTI used for capturing, declared here so that its header is needed neither to build nor to run: a
 * package built without CUDA still captures other CUDA code in its process. Names, numbers and layouts are those of
 * NVIDIA's cupti_activity.h and cupti_callbacks.h, CUDA 12.0 to 13; newer records only grow at their end. If that
 * header is available, library.c checks that they agree. */
#ifndef FS_SOURCES_CUPTI_ABI_H
#define FS_SOURCES_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

/* X(name here, NVIDIA's name, number) */
#define FS_CUPTI_NUMBERS(X)                                                        \
    X(FS_CUPTI_SUCCESS, CUPTI_SUCCESS, 0)                                          \
    X(FS_CUPTI_ERROR_TAKEN, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, 39)    \
    X(FS_CUPTI_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY, 1)                              \
    X(FS_CUPTI_MEMSET, CUPTI_ACTIVITY_KIND_MEMSET, 2)                              \
    X(FS_CUPTI_DRIVER, CUPTI_ACTIVITY_KIND_DRIVER, 4)                              \
    X(FS_CUPTI_RUNTIME, CUPTI_ACTIVITY_KIND_RUNTIME, 5)                            \
    X(FS_CUPTI_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 10)                  \
    X(FS_CUPTI_OVERHEAD, CUPTI_ACTIVITY_KIND_OVERHEAD, 17)                         \
    X(FS_CUPTI_MEMCPY_PEER, CUPTI_ACTIVITY_KIND_MEMCPY2, 22)                       \
    X(FS_CUPTI_SYNCHRONIZATION, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, 38)           \
    X(FS_CUPTI_FLUSH_FORCED, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED, 1)                  \
    X(FS_CUPTI_THREAD_DEFAULT, CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT, 0)           \
    X(FS_CUPTI_THREAD_SYSTEM, CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM, 1)             \
    X(FS_CUPTI_OBJECT_THREAD, CUPTI_ACTIVITY_OBJECT_THREAD, 2)                     \
    X(FS_CUPTI_ZEROED_BUFFERS, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, 5)  \
    X(FS_CUPTI_THREAD_BUFFERS, CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, 9)  \
    X(FS_CUPTI_DRIVER_DOMAIN, CUPTI_CB_DOMAIN_DRIVER_API, 1)                       \
    X(FS_CUPTI_RUNTIME_DOMAIN, CUPTI_CB_DOMAIN_RUNTIME_API, 2)                     \
    X(FS_CUPTI_RESOURCE_DOMAIN, CUPTI_CB_DOMAIN_RESOURCE, 3)                       \
    X(FS_CUPTI_CONTEXT_CREATED, CUPTI_CBID_RESOURCE_CONTEXT_CREATED, 1)            \
    X(FS_CUPTI_MODULE_PROFILED, CUPTI_CBID_RESOURCE_MODULE_PROFILED, 8)            \
    X(FS_CUPTI_GRAPH_DESTROYED, CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING, 10)    \
    X(FS_CUPTI_NODE_STARTS, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATE_STARTING, 12)     \
    X(FS_CUPTI_NODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, 13)            \
    X(FS_CUPTI_NODE_DESTROYED, CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING, 14) \
    X(FS_CUPTI_NODE_LINKED, CUPTI_CBID_RESOURCE_GRAPHNODE_DEPENDENCY_CREATED, 15)  \
    X(FS_CUPTI_EXEC_DESTROYED, CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING, 19) \
    X(FS_CUPTI_NODE_CLONED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, 20)              \
    X(FS_CUPTI_API_ENTER, CUPTI_API_ENTER, 0)                                      \
    X(FS_CUPTI_API_EXIT, CUPTI_API_EXIT, 1)

/* CUPTI_CBID_RESOURCE_GRAPH_NODE_UPDATED and CUPTI_CBID_RESOURCE_GRAPH_NODE_SET_PARAMS, of CUDA 13.0 and later. */
enum { FS_CUPTI_NODE_UPDATED = 22, FS_CUPTI_NODE_SET = 23 };

/* CUgraphNodeType, of cuda.h. */
enum { FS_CUPTI_NODE_KERNEL = 0, FS_CUPTI_NODE_COPY = 1, FS_CUPTI_NODE_FILL = 2 };

enum {
#define FS_CUPTI_ENUM(ours, theirs, number) ours = number,
    FS_CUPTI_NUMBERS(FS_CUPTI_ENUM)
#undef FS_CUPTI_ENUM
};

/* The oldest API version with these record layouts: CUDA 12.0. */
enum { FS_CUPTI_LEAST_VERSION = 19 };

#define FS_CUPTI_RECORD __attribute__((packed, aligned(8)))

typedef struct FS_CUPTI_RECORD {
    int32_t kind;
} fs_cupti_record;

typedef struct FS_CUPTI_RECORD {
    int32_t kind;
    uint8_t cache_config, shared_memory_config;
    uint16_t registers;
    int32_t cache_requested, cache_executed;
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3];
    int32_t static_shared, dynamic_shared;
    uint32_t local_per_thread, local_total, correlation;
    int64_t grid_id;
    const char *name;
    void *reserved;
    uint64_t queued, submitted;
    uint8_t launch_type, carveout_requested, carveout, padding;
    uint32_t shared_executed;
    uint64_t graph_node;
    int32_t shared_limit;
    uint32_t graph;
    void *access_policy;
    uint32_t channel;
    int32_t channel_type;
    uint32_t cluster[3];
} fs_cupti_kernel;

typedef struct FS_CUPTI_RECORD {
    int32_t kind;
    uint8_t copy_kind, from, to, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation, runtime_correlation, pad;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
} fs_cupti_memcpy;

typedef struct FS_CUPTI_RECORD {
    int32_t kind;
    uint8_t copy_kind, from, to, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, from_device, from_context, to_device, to_context, correlation;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
} fs_cupti_memcpy_peer;

typedef struct FS_CUPTI_RECORD {
    int32_t kind;
    uint32_t value;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
    uint16_t flags, memory;
    uint32_t pad;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
} fs_cupti_memset;

typedef struct FS_CUPTI_RECORD {
    int32_t kind;
    uint32_t function; /* callback id */
    uint64_t start, end;
    uint32_t process, thread, correlation, returned;
} fs_cupti_api;

typedef struct FS_CUPTI_RECORD {
    int32_t kind, type;
    uint64_t start, end;
    uint32_t correlation, context, stream, event;
} fs_cupti_synchronization;

typedef struct FS_CUPTI_RECORD {
    int32_t kind, overhead, object;
    uint32_t process, thread, other; /* a union: these members are valid if object is FS_CUPTI_OBJECT_THREAD */
    uint64_t start, end;
} fs_cupti_overhead;

/* Arguments of a callback for an API call. */
typedef struct {
    int32_t site;
    const char *function;
    const void *arguments; /* a struct of them, in their order */
    void *returned;
    const char *symbol;
    void *context;
    uint32_t context_id;
    uint64_t *kept; /* a number of the client's, from the entry to the exit of a call */
    uint32_t correlation;
} fs_cupti_callback_data;

/* Arguments of a callback for a graph. */
typedef struct {
    void *graph, *original_graph, *node, *original_node;
    int32_t node_type;
    void *dependency, *executable;
} fs_cupti_graph;

/* Of a callback for a module of code. */
typedef struct {
    uint32_t id;
    size_t size;
    const char *cubin;
} fs_cupti_module;

typedef struct {
    void *context, *stream;
    const void *descriptor; /* of a graph or a node: fs_cupti_graph; of a module: fs_cupti_module */
} fs_cupti_resource;

typedef struct {
    size_t size;
    const char *name; /* of this client */
    char *taken_by;   /* name of the current subscriber, if the result is FS_CUPTI_ERROR_TAKEN */
    size_t taken_by_size;
} fs_cupti_subscriber;

typedef void (*fs_cupti_callback)(void *context, int domain, uint32_t function, const void *data);
typedef void (*fs_cupti_request)(uint8_t **buffer, size_t *size, size_t *most_records);
typedef void (*fs_cupti_complete)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

/* Functions, all returning 0 or an error code: X(field, symbol, parameters). Those in the second list are optional:
 * only newer versions of CUPTI have them. */
#define FS_CUPTI_SYMBOLS(X)                                                                      \
    X(version, cuptiGetVersion, (uint32_t *))                                                    \
    X(result_text, cuptiGetResultString, (int, const char **))                                   \
    X(callback_name, cuptiGetCallbackName, (int domain, uint32_t function, const char **))       \
    X(subscribe, cuptiSubscribe, (void **, fs_cupti_callback, void *))                           \
    X(unsubscribe, cuptiUnsubscribe, (void *))                                                   \
    X(enable_callback, cuptiEnableCallback, (uint32_t, void *, int domain, uint32_t function))   \
    X(enable_domain, cuptiEnableDomain, (uint32_t, void *, int domain))                          \
    X(register_callbacks, cuptiActivityRegisterCallbacks, (fs_cupti_request, fs_cupti_complete)) \
    X(enable, cuptiActivityEnable, (int kind))                                                   \
    X(disable, cuptiActivityDisable, (int kind))                                                 \
    X(next_record, cuptiActivityGetNextRecord, (uint8_t *, size_t valid, fs_cupti_record **))    \
    X(dropped, cuptiActivityGetNumDroppedRecords, (void *, uint32_t, size_t *))                  \
    X(flush, cuptiActivityFlushAll, (uint32_t flag))                                             \
    X(timestamp, cuptiGetTimestamp, (uint64_t *))                                                \
    X(set_thread_ids, cuptiSetThreadIdType, (int))                                               \
    X(finalize, cuptiFinalize, (void))

#define FS_CUPTI_OPTIONAL_SYMBOLS(X)                                                                   \
    X(subscribe_named, cuptiSubscribe_v2, (void **, fs_cupti_callback, void *, fs_cupti_subscriber *)) \
    X(set_clock, cuptiActivityRegisterTimestampCallback, (uint64_t (*)(void)))                         \
    X(set_attribute, cuptiActivitySetAttribute, (int, size_t *, void *))                               \
    X(graph_node_id, cuptiGetGraphNodeId, (void *, uint64_t *))                                        \
    X(device_id, cuptiGetDeviceId, (void *context, uint32_t *))                                        \
    X(graph_id, cuptiGetGraphId, (void *, uint32_t *))                                                 \
    X(graph_exec_id, cuptiGetGraphExecId, (void *, uint32_t *))                                        \
    X(enable_driver, cuptiActivityEnableDriverApi, (uint32_t function, uint8_t on))                    \
    X(enable_runtime, cuptiActivityEnableRuntimeApi, (uint32_t function, uint8_t on))

/* Functions of the CUDA driver: synchronizing contexts, and device properties. */
#define FS_DRIVER_SYMBOLS(X)                                               \
    X(init, cuInit, (unsigned))                                            \
    X(driver_version, cuDriverGetVersion, (int *))                         \
    X(device_count, cuDeviceGetCount, (int *))                             \
    X(device, cuDeviceGet, (int *, int))                                   \
    X(device_name, cuDeviceGetName, (char *, int, int))                    \
    X(device_memory, cuDeviceTotalMem_v2, (size_t *, int))                 \
    X(device_attribute, cuDeviceGetAttribute, (int *, int, int))           \
    X(primary_state, cuDevicePrimaryCtxGetState, (int, unsigned *, int *)) \
    X(primary_retain, cuDevicePrimaryCtxRetain, (void **, int))            \
    X(primary_release, cuDevicePrimaryCtxRelease_v2, (int))                \
    X(context_push, cuCtxPushCurrent_v2, (void *))                         \
    X(context_pop, cuCtxPopCurrent_v2, (void **))                          \
    X(context_wait, cuCtxSynchronize, (void))

typedef struct {
#define FS_CUPTI_FIELD(field, symbol, parameters) int(*field) parameters;
    FS_CUPTI_SYMBOLS(FS_CUPTI_FIELD)
    FS_CUPTI_OPTIONAL_SYMBOLS(FS_CUPTI_FIELD) /* NULL if missing */
} fs_cupti_functions;

typedef struct {
    FS_DRIVER_SYMBOLS(FS_CUPTI_FIELD)
#undef FS_CUPTI_FIELD
} fs_driver_functions;

#endif
