/* One function for each kind of record turns it into one event; the caches before the store are direct-mapped, and a
 * miss costs a look-up. A status other than FS_OK means that the record is lost, and the caller counts it; records from
 * outside the capture, and of functions that nobody wants, are FS_OK and make no event. A time of 0 is CUPTI's way to
 * say that there is none. */
#include "sources/cupti/records.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/memory.h"

/* A buffer is in one of three places: in the free list, in the list of those that CUPTI holds, or in the hands of the
 * thread that takes or returns it. It knows the generation of its pool: one that comes back after its pool was closed
 * is freed, and counts for no other pool. The lock is held for list operations only; allocation and zeroing, which take
 * longer, are outside. */

enum { SMALL_BYTES = 64 << 10, HEADER_BYTES = 64 };

/* Header before each buffer's bytes. */
typedef struct buffer {
    struct buffer *next; /* in the free list, or in the list of buffers held by CUPTI */
    uint32_t generation; /* of the pool that allocated it */
    bool keeps;
} buffer;

_Static_assert(sizeof(buffer) <= HEADER_BYTES, "the bytes behind the header stay aligned");

static struct {
    fs_lock lock;
    buffer *free, *out;
    size_t buffer_bytes, most_bytes, bytes;
    uint32_t generation;
    bool open;
} pool;

static uint8_t *bytes_of(buffer *head)
{
    return (uint8_t *)head + HEADER_BYTES;
}

/* Allocate a buffer; the caller adds it to the pool. */
static buffer *make(size_t size, bool keeps)
{
    buffer *created = fs_calloc(1, HEADER_BYTES + size);
    if (created != NULL) *created = (buffer){.generation = pool.generation, .keeps = keeps};
    return created;
}

fs_status fs_cupti_buffers_open(size_t buffer_bytes, size_t most_bytes, fs_error *err)
{
    fs_status status = FS_OK;
    fs_lock_take(&pool.lock);
    pool.buffer_bytes = buffer_bytes > 0 ? buffer_bytes : FS_CUPTI_BUFFER_BYTES;
    pool.most_bytes = most_bytes > 0 ? most_bytes : FS_CUPTI_MOST_BYTES;
    pool.bytes = 0;
    pool.generation++;
    pool.open = true;
    for (int i = 0; i < FS_CUPTI_FIRST_BUFFERS && pool.bytes + pool.buffer_bytes <= pool.most_bytes; i++) {
        buffer *created = make(pool.buffer_bytes, true);
        if (created == NULL) {
            status = fs_no_memory(err);
            break;
        }
        /* Touch the pages now, not while the program is being timed. */
        memset(bytes_of(created), 0, pool.buffer_bytes);
        created->next = pool.free;
        pool.free = created;
        pool.bytes += pool.buffer_bytes;
    }
    fs_lock_give(&pool.lock);
    if (status != FS_OK) fs_cupti_buffers_close();
    return status;
}

uint8_t *fs_cupti_buffer_take(size_t *size)
{
    fs_lock_take(&pool.lock);
    buffer *taken = pool.free;
    *size = pool.buffer_bytes;
    if (taken != NULL) pool.free = taken->next;
    bool may_grow = taken == NULL && pool.bytes + pool.buffer_bytes <= pool.most_bytes;
    if (may_grow) pool.bytes += pool.buffer_bytes;
    fs_lock_give(&pool.lock);

    if (may_grow) taken = make(*size, true); /* outside the lock, because it is slow */
    bool failed = may_grow && taken == NULL;
    if (taken == NULL) taken = make(*size = SMALL_BYTES, false);

    fs_lock_take(&pool.lock);
    if (failed) pool.bytes -= pool.buffer_bytes;
    if (taken != NULL) {
        taken->next = pool.out;
        pool.out = taken;
    }
    fs_lock_give(&pool.lock);
    if (taken == NULL) *size = 0;
    return taken == NULL ? NULL : bytes_of(taken);
}

/* Return the link to a buffer held by CUPTI, of this pool or an earlier one; NULL if it belongs to another client. */
static buffer **find_out(const uint8_t *bytes)
{
    for (buffer **link = &pool.out; *link != NULL; link = &(*link)->next)
        if (bytes_of(*link) == bytes) return link;
    return NULL;
}

fs_cupti_buffer_use fs_cupti_buffer_use_of(const uint8_t *bytes)
{
    fs_lock_take(&pool.lock);
    buffer **link = find_out(bytes);
    fs_cupti_buffer_use use = link == NULL ? FS_CUPTI_FOREIGN : (*link)->keeps ? FS_CUPTI_KEEP : FS_CUPTI_DROP;
    fs_lock_give(&pool.lock);
    return use;
}

void fs_cupti_buffer_give(uint8_t *bytes, size_t valid)
{
    fs_lock_take(&pool.lock);
    buffer **link = find_out(bytes), *returned = link == NULL ? NULL : *link;
    if (returned != NULL) *link = returned->next;
    fs_lock_give(&pool.lock);
    if (returned == NULL) return;
    memset(bytes, 0, valid);
    fs_lock_take(&pool.lock);
    bool stays = returned->generation == pool.generation && pool.open && returned->keeps;
    if (stays) {
        returned->next = pool.free;
        pool.free = returned;
    }
    fs_lock_give(&pool.lock);
    if (!stays) fs_free(returned);
}

int64_t fs_cupti_buffers_close(void)
{
    int64_t out = 0;
    fs_lock_take(&pool.lock);
    buffer *free_ones = pool.free;
    for (const buffer *at = pool.out; at != NULL; at = at->next) out += at->generation == pool.generation;
    pool.free = NULL;
    pool.open = false;
    fs_lock_give(&pool.lock);
    while (free_ones != NULL) {
        buffer *next = free_ones->next;
        fs_free(free_ones);
        free_ones = next;
    }
    return out;
}

/* Names ------------------------------------------------------------------------------------------------------------ */

/* Frequent calls whose times are of no interest; torch.profiler skips the same ones. */
static const char *const noise[] = {
    "cudaGetDevice",       "cudaSetDevice",   "cudaGetLastError",
    "cudaPeekAtLastError", "cudaEventCreate", "cudaEventCreateWithFlags",
    "cudaEventDestroy",
};

/* Prefixes of recorded driver functions: launches (Triton, cuBLAS and Numba use the driver), copies, waiting, memory
 * and code. */
static const char *const wanted[] = {
    "cuLaunch",
    "cuGraphLaunch",
    "cuMemcpy",
    "cuMemset",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemCreate",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemPrefetchAsync",
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuEventSynchronize",
    "cuModuleLoad",
    "cuLibraryLoad",
    "cuMulticast",
};

static const char *const overheads[] = {
    [1] = "Driver Compiler",
    [2] = "Buffer Flush",
    [3] = "Instrumentation",
    [4] = "Resource",
    [5] = "Runtime Triggered Module Loading",
    [6] = "Lazy Function Loading",
    [7] = "Command Buffer Full",
    [8] = "Activity Buffer Request",
    [9] = "UVM Activity Init",
};

static const char *const synchronizations[] = {
    /* Kineto's names */
    "Unknown Sync", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync",
};

static const char *const copies[] = {
    "<unknown>", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP",
};

static const char *const memories[] = {
    "Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static",
};

#define COUNT(list) (sizeof(list) / sizeof *(list))
#define NAMED(list, index) ((size_t)(index) < COUNT(list) && list[index] != NULL ? list[index] : "Unrecognized")

/* Return whether a runtime function is too frequent to record, and whether a driver function is recorded besides those
 * of the runtime. Both take the name without its version ("cudaGetDevice"). */
static bool is_noise(const char *name)
{
    for (size_t i = 0; i < COUNT(noise); i++)
        if (strcmp(name, noise[i]) == 0) return true;
    return false;
}

static bool is_wanted(const char *name)
{
    for (size_t i = 0; i < COUNT(wanted); i++)
        if (strncmp(name, wanted[i], strlen(wanted[i])) == 0) return true;
    return false;
}

/* Write an API function's name without its version, at most `size` bytes; "" if CUPTI does not know it. */
static void function_name(int domain, uint32_t function, char *name, size_t size)
{
    const char *found = NULL;
    name[0] = '\0';
    if (fs_cupti->callback_name(domain, function, &found) != FS_CUPTI_SUCCESS || found == NULL) return;
    snprintf(name, size, "%s", found);
    /* "cudaLaunchKernel_ptsz_v7000": remove the CUDA version of the function ("cuMemAlloc_v2" is a separate function)
     * and, before it, the suffix of the variant for per-thread default streams. */
    size_t length = strlen(name), digits = 0;
    while (digits < length && isdigit((unsigned char)name[length - 1 - digits])) digits++;
    if (digits >= 4 && length > digits + 2 && strncmp(name + length - digits - 2, "_v", 2) == 0)
        name[length -= digits + 2] = '\0';
    if (length > 5 && (strcmp(name + length - 5, "_ptsz") == 0 || strcmp(name + length - 5, "_ptds") == 0))
        name[length - 5] = '\0';
    if (strcmp(name, "INVALID") == 0) name[0] = '\0';
}

/* Get the store's name id of an API function; FS_NONE if it makes no event. */
static fs_status function_id(fs_cupti_parser *parser, int domain, uint32_t function, uint32_t *id)
{
    char name[128];
    uint32_t unkept = 0;
    uint32_t *known =
        function < FS_CUPTI_FUNCTIONS ? &parser->functions[domain == FS_CUPTI_RUNTIME_DOMAIN][function] : &unkept;
    if (*known == 0) {
        bool runtime = domain == FS_CUPTI_RUNTIME_DOMAIN;
        function_name(domain, function, name, sizeof name);
        if (name[0] == '\0') snprintf(name, sizeof name, "%s function %u", runtime ? "cuda" : "cu", function);
        if (runtime ? is_noise(name) : !is_wanted(name)) {
            *known = FS_NONE;
        } else {
            FS_TRY(fs_store_name(parser->store, name, known, NULL));
            ++*known;
        }
    }
    *id = *known == FS_NONE ? FS_NONE : *known - 1;
    return FS_OK;
}

static fs_status symbol_name(fs_cupti_parser *parser, const char *symbol, uint32_t *name)
{
    if (symbol == NULL) symbol = "<unknown kernel>";
    size_t place = ((uintptr_t)symbol >> 4) % FS_CUPTI_NAME_CACHE;
    if (parser->names[place].symbol == symbol && strcmp(parser->names[place].text, symbol) == 0) {
        *name = parser->names[place].name;
        return FS_OK;
    }
    uint32_t kept;
    char *readable = fs_cupti_demangle(symbol);
    fs_status status = fs_store_name(parser->store, readable != NULL ? readable : symbol, name, NULL);
    free(readable);
    if (status == FS_OK) status = fs_intern_text(&parser->symbols, symbol, &kept, NULL);
    if (status != FS_OK) return status;
    parser->names[place].symbol = symbol;
    parser->names[place].text = fs_intern_get(&parser->symbols, kept).bytes;
    parser->names[place].name = *name;
    return FS_OK;
}

/* Launches and lanes ----------------------------------------------------------------------------------------------- */

static fs_status launch_id(fs_cupti_parser *parser, const fs_launch *launch, uint32_t *signature)
{
    uint64_t hash = launch->graph_node;
    const uint32_t *words = (const uint32_t *)launch;
    for (size_t i = 0; i < offsetof(fs_launch, graph_node) / sizeof *words; i++)
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
    size_t place = (hash >> 40) % FS_CUPTI_LAUNCH_CACHE;
    if (parser->launches[place].signature != 0 &&
        memcmp(&parser->launches[place].launch, launch, sizeof *launch) == 0) {
        *signature = parser->launches[place].signature - 1;
        return FS_OK;
    }
    _Alignas(8) char bytes[FS_LAUNCH_BYTES];
    fs_launch_encode(launch, bytes);
    FS_TRY(fs_store_signature(parser->store, bytes, sizeof bytes, signature, NULL));
    parser->launches[place].launch = *launch;
    parser->launches[place].signature = *signature + 1;
    return FS_OK;
}

static fs_status stream_lane(fs_cupti_parser *parser, uint32_t device, uint32_t stream, uint32_t *lane)
{
    uint64_t key = ((uint64_t)device << 32 | stream) + 1;
    size_t place = (stream + device * 17) % FS_CUPTI_LANE_CACHE;
    if (parser->streams[place].key != key) {
        FS_TRY(fs_store_device_lane(parser->store, (int)device, stream, &parser->streams[place].lane, NULL));
        parser->streams[place].key = key;
    }
    *lane = parser->streams[place].lane;
    return FS_OK;
}

static fs_status thread_lane(fs_cupti_parser *parser, uint32_t thread, uint32_t *lane)
{
    size_t place = thread % FS_CUPTI_LANE_CACHE;
    if (parser->threads[place].key != (uint64_t)thread + 1) {
        FS_TRY(fs_store_thread_lane_of(parser->store, thread, &parser->threads[place].lane, NULL));
        parser->threads[place].key = (uint64_t)thread + 1;
    }
    *lane = parser->threads[place].lane;
    return FS_OK;
}

/* Records ---------------------------------------------------------------------------------------------------------- */

/* Fill in the members that all records share. */
static fs_event event_of(const fs_cupti_parser *parser, fs_event_kind kind, uint64_t start, uint64_t end)
{
    fs_event event = fs_event_missing;
    event.kind = (uint8_t)kind;
    event.start = (int64_t)start + parser->offset;
    event.duration = end >= start ? (int64_t)(end - start) : 0;
    return event;
}

/* From here on a record is an event; if it cannot be stored, it counts as lost. */
static fs_status append(fs_cupti_parser *parser, const fs_event *event)
{
    return parser->keeps ? fs_store_append(parser->store, event, NULL, NULL) : FS_OUT_OF_MEMORY;
}

/* Append device work that ran on (device, stream). */
static fs_status append_work(fs_cupti_parser *parser, fs_event *event, uint32_t device, uint32_t stream,
                             uint32_t correlation, const fs_launch *launch)
{
    event->device = (int8_t)device;
    event->timing = FS_TIMING_CUPTI;
    event->correlation = correlation;
    FS_TRY(launch_id(parser, launch, &event->signature));
    FS_TRY(stream_lane(parser, device, stream, &event->lane));
    return append(parser, event);
}

static fs_status take_kernel(fs_cupti_parser *parser, const fs_cupti_kernel *record)
{
    fs_event event = event_of(parser, FS_EVENT_KERNEL, record->start, record->end);
    if (record->start == 0 || record->end == 0) return FS_RUNTIME_ERROR; /* it never ended */
    if (event.start < parser->begin) return FS_OK;
    fs_launch launch = {
        .registers = record->registers,
        .static_shared = (uint32_t)record->static_shared,
        .dynamic_shared = (uint32_t)record->dynamic_shared,
        .graph = record->graph,
        .graph_node = record->graph != 0 ? record->graph_node : 0,
        .context = record->context,
    };
    for (int d = 0; d < 3; d++) {
        launch.grid[d] = (uint32_t)record->grid[d];
        launch.block[d] = (uint32_t)record->block[d];
        launch.cluster[d] = record->cluster[d];
    }
    FS_TRY(symbol_name(parser, record->name, &event.name));
    return append_work(parser, &event, record->device, record->stream, record->correlation, &launch);
}

static fs_status take_copy(fs_cupti_parser *parser, const fs_cupti_memcpy *record, uint32_t correlation, uint32_t graph,
                           uint64_t graph_node)
{
    char name[64];
    fs_event event = event_of(parser, FS_EVENT_MEMCPY, record->start, record->end);
    if (record->start == 0 || record->end == 0) return FS_RUNTIME_ERROR;
    if (event.start < parser->begin) return FS_OK;
    fs_launch launch = {.graph = graph, .graph_node = graph != 0 ? graph_node : 0, .context = record->context};
    event.bytes = (int64_t)record->bytes;
    snprintf(name, sizeof name, "Memcpy %s (%s -> %s)", NAMED(copies, record->copy_kind), NAMED(memories, record->from),
             NAMED(memories, record->to));
    FS_TRY(fs_store_name(parser->store, name, &event.name, NULL));
    return append_work(parser, &event, record->device, record->stream, correlation, &launch);
}

static fs_status take_fill(fs_cupti_parser *parser, const fs_cupti_memset *record)
{
    char name[64];
    fs_event event = event_of(parser, FS_EVENT_MEMSET, record->start, record->end);
    if (record->start == 0 || record->end == 0) return FS_RUNTIME_ERROR;
    if (event.start < parser->begin) return FS_OK;
    fs_launch launch = {
        .graph = record->graph, .graph_node = record->graph != 0 ? record->graph_node : 0, .context = record->context};
    event.bytes = (int64_t)record->bytes;
    snprintf(name, sizeof name, "Memset (%s)", NAMED(memories, record->memory));
    FS_TRY(fs_store_name(parser->store, name, &event.name, NULL));
    return append_work(parser, &event, record->device, record->stream, record->correlation, &launch);
}

/* Host events outside the requested time, including the capture's own calls, do not count as lost, whether they have
 * ended or not. */
static bool is_outside(const fs_cupti_parser *parser, const fs_event *event, uint64_t start)
{
    return start != 0 && (event->start < parser->begin || event->start > parser->end);
}

static fs_status take_api(fs_cupti_parser *parser, const fs_cupti_api *record)
{
    fs_event event = event_of(parser, FS_EVENT_RUNTIME, record->start, record->end);
    if (is_outside(parser, &event, record->start)) return FS_OK;
    int domain = record->kind == FS_CUPTI_RUNTIME ? FS_CUPTI_RUNTIME_DOMAIN : FS_CUPTI_DRIVER_DOMAIN;
    FS_TRY(function_id(parser, domain, record->function, &event.name));
    if (event.name == FS_NONE) return FS_OK;
    if (record->start == 0 || record->end == 0) return FS_RUNTIME_ERROR;
    FS_TRY(thread_lane(parser, record->thread, &event.lane));
    event.correlation = record->correlation;
    return append(parser, &event);
}

/* The record has no thread; it is taken from the API call with its correlation. */
static fs_status take_synchronization(fs_cupti_parser *parser, const fs_cupti_synchronization *record)
{
    fs_event event = event_of(parser, FS_EVENT_SYNC, record->start, record->end);
    if (is_outside(parser, &event, record->start)) return FS_OK;
    if (record->start == 0 || record->end == 0) return FS_RUNTIME_ERROR;
    event.correlation = record->correlation;
    FS_TRY(fs_store_name(parser->store, NAMED(synchronizations, record->type), &event.name, NULL));
    return append(parser, &event);
}

static fs_status take_overhead(fs_cupti_parser *parser, const fs_cupti_overhead *record)
{
    fs_event event = event_of(parser, FS_EVENT_OVERHEAD, record->start, record->end);
    uint32_t kind = (uint32_t)record->overhead >> 16;
    if (is_outside(parser, &event, record->start)) return FS_OK;
    if (record->start == 0 || record->end == 0) return FS_RUNTIME_ERROR;
    /* 1 is the driver's compiler; CUPTI's own start at 1 << 16. */
    const char *name = record->overhead == 1 ? overheads[1] : kind > 0 ? NAMED(overheads, kind + 1) : "Unknown";
    FS_TRY(fs_store_name(parser->store, name, &event.name, NULL));
    if (record->object == FS_CUPTI_OBJECT_THREAD) FS_TRY(thread_lane(parser, record->thread, &event.lane));
    return append(parser, &event);
}

static fs_status take(fs_cupti_parser *parser, const fs_cupti_record *record)
{
    const void *bytes = record;
    switch (record->kind) {
    case FS_CUPTI_KERNEL:
        return take_kernel(parser, bytes);
    case FS_CUPTI_MEMCPY: {
        const fs_cupti_memcpy *copy = bytes;
        return take_copy(parser, copy, copy->correlation, copy->graph, copy->graph_node);
    }
    case FS_CUPTI_MEMCPY_PEER: { /* begins like any copy record */
        const fs_cupti_memcpy_peer *copy = bytes;
        return take_copy(parser, bytes, copy->correlation, copy->graph, copy->graph_node);
    }
    case FS_CUPTI_MEMSET:
        return take_fill(parser, bytes);
    case FS_CUPTI_RUNTIME:
    case FS_CUPTI_DRIVER:
        return take_api(parser, bytes);
    case FS_CUPTI_SYNCHRONIZATION:
        return take_synchronization(parser, bytes);
    case FS_CUPTI_OVERHEAD:
        return take_overhead(parser, bytes);
    default:
        return FS_OK; /* of a kind that was not requested */
    }
}

void fs_cupti_parser_begin(fs_cupti_parser *parser, fs_store *store, int64_t begin)
{
    int64_t offset = parser->offset;
    fs_cupti_parser_clear(parser);
    parser->store = store;
    parser->begin = begin;
    parser->end = INT64_MAX;
    parser->offset = offset;
}

void fs_cupti_parser_clear(fs_cupti_parser *parser)
{
    fs_intern_clear(&parser->symbols);
    memset(parser, 0, sizeof *parser);
}

void fs_cupti_parse(fs_cupti_parser *parser, uint8_t *bytes, size_t valid, bool keep)
{
    fs_cupti_record *record = NULL;
    parser->keeps = keep;
    while (fs_cupti->next_record(bytes, valid, &record) == FS_CUPTI_SUCCESS) {
        if (take(parser, record) != FS_OK) parser->dropped++;
    }
}

/* CUPTI numbers functions without gaps from 1, so the search ends with the first number without a name. It runs once,
 * and its result never changes. */

static fs_cupti_function_ids functions;
const fs_cupti_function_ids *const fs_cupti_functions_found = &functions;

bool fs_cupti_ids_have(const fs_cupti_ids *ids, uint32_t function)
{
    for (int i = 0; i < ids->count; i++)
        if (ids->ids[i] == function) return true;
    return false;
}

static void add(fs_cupti_ids *ids, uint32_t function)
{
    ids->ids[ids->count++] = function;
}

static bool changes_graphs(const char *name)
{
    return strstr(name, "GraphExecUpdate") != NULL ||
           (strstr(name, "GraphExec") != NULL && strstr(name, "SetParams") != NULL);
}

static void find(void)
{
    char name[128];
    for (int domain = FS_CUPTI_DRIVER_DOMAIN; domain <= FS_CUPTI_RUNTIME_DOMAIN; domain++) {
        bool runtime = domain == FS_CUPTI_RUNTIME_DOMAIN;
        for (uint32_t id = 1; id < FS_CUPTI_FUNCTIONS; id++) {
            function_name(domain, id, name, sizeof name);
            if (name[0] == '\0') break;
            if (changes_graphs(name)) add(&functions.changing[domain], id);
            if (runtime ? is_noise(name) : !is_wanted(name)) add(&functions.unwanted[domain], id);
            if (runtime) continue;
            if (strcmp(name, "cuDriverGetVersion") == 0) functions.driver_version = id;
            if (strcmp(name, "cuGraphLaunch") == 0) add(&functions.launching, id); /* for each kind of default stream */
        }
    }
}

void fs_cupti_find_functions(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
}
