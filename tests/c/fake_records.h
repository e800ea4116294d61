/* The fake CUPTI's buffers, and the records of GPU work and API calls in them; part of fake_cupti.c. */
#ifndef FS_TESTS_FAKE_RECORDS_H
#define FS_TESTS_FAKE_RECORDS_H

/* Buffers --------------------------------------------------------------------------------------------------------- */

typedef struct fake_job {
    struct fake_job *next;
    fs_cupti_complete complete;
    uint8_t *buffer;
    size_t size, used;
} fake_job;

static void *fake_hand_back(void *context)
{
    fake_job *job = context;
    job->complete(NULL, 0, job->buffer, job->size, job->used);
    free(job);
    return NULL;
}

/* Take the buffer that is being filled, or return NULL without one. The caller holds the lock. */
static fake_job *fake_take_buffer(void)
{
    if (fake_client.buffer == NULL) return NULL;
    fake_job *job = malloc(sizeof *job);
    if (job == NULL) abort();
    *job = (fake_job){NULL, fake_client.complete, fake_client.buffer, fake_client.size, fake_client.used};
    fake_client.buffer = NULL;
    fake_client.used = 0;
    fake_client.unfinished = false;
    return job;
}

/* Complete a buffer. The caller must not hold the lock: the client may call CUPTI from its callback. */
static void fake_give(fake_job *job)
{
    if (job == NULL) return;
    if (!fake.uses_workers) {
        fake_hand_back(job);
        return;
    }
    pthread_mutex_lock(&fake.lock);
    if (fake.worker_count == FAKE_WORKERS) abort();
    if (pthread_create(&fake.workers[fake.worker_count++], NULL, fake_hand_back, job) != 0) abort();
    pthread_mutex_unlock(&fake.lock);
}

static void fake_join_workers(void)
{
    pthread_mutex_lock(&fake.lock);
    while (fake.worker_count > 0) {
        pthread_t worker = fake.workers[--fake.worker_count];
        pthread_mutex_unlock(&fake.lock);
        pthread_join(worker, NULL);
        pthread_mutex_lock(&fake.lock);
    }
    pthread_mutex_unlock(&fake.lock);
}

/* Request a buffer, holding the lock as CUPTI does: a call to CUPTI from the request callback would deadlock. */
static void fake_ask_for_buffer(void)
{
    size_t most = 0;
    fake_client.request(&fake_client.buffer, &fake_client.size, &most);
    fake_client.used = 0;
    if (fake_client.buffer == NULL) fake.refused++;
    if ((uintptr_t)fake_client.buffer % 8 != 0) fake.misaligned++;
    for (size_t at = 0; fake_client.buffer != NULL && fake_client.zeroed && at < fake_client.size; at++)
        if (fake_client.buffer[at] != 0) fake.unclean++;
}

/* Write a record into the current buffer, or into a new one if it is full. */
static void fake_record(const void *record, size_t size, bool finished)
{
    pthread_mutex_lock(&fake.lock);
    while (fake_client.buffer != NULL && fake_client.used + size > fake_client.size) {
        fake_job *full = fake_take_buffer();
        if (fake.is_late) {
            full->next = fake.late;
            fake.late = full;
            continue;
        }
        pthread_mutex_unlock(&fake.lock);
        fake_give(full);
        pthread_mutex_lock(&fake.lock);
    }
    if (fake_client.buffer == NULL && fake_client.request != NULL) fake_ask_for_buffer();
    if (fake_client.buffer == NULL || size > fake_client.size) {
        fake.dropped++;
    } else {
        memcpy(fake_client.buffer + fake_client.used, record, size);
        fake_client.used += size;
        if (!finished) fake_client.unfinished = true;
    }
    pthread_mutex_unlock(&fake.lock);
}

/* Another client that registers its callbacks: it receives flopscope's buffers, and keeps them. */
static uint8_t *fake_kept[64];

static void fake_others_request(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = NULL;
    *size = *most = 0;
}

static void fake_others_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size, (void)valid;
    fake_kept[fake.other_buffers++ % 64] = buffer;
}

void fake_other_client_captures(void)
{
    fake_client.request = fake_others_request;
    fake_client.complete = fake_others_complete;
}

/* Records --------------------------------------------------------------------------------------------------------- */

/* Times are in ns by fake_now()'s clock; end 0: it has not ended. Kinds that are not enabled are not recorded. */
#define FAKE_RECORD(type, KIND, ...)                                                                    \
    do {                                                                                                \
        fs_cupti_##type record_ = {.kind = FS_CUPTI_##KIND, .start = start, .end = end, ##__VA_ARGS__}; \
        if (fake_client.kinds[FS_CUPTI_##KIND]) fake_record(&record_, sizeof record_, end != 0);        \
    } while (0)

#define FAKE_WORK(type, KIND, on, ...)                                                                         \
    FAKE_RECORD(type, KIND, .device = (on), .context = (on) + 1, .stream = stream, .correlation = correlation, \
                .graph = fake.graph, .graph_node = fake.graph_node, __VA_ARGS__)

/* `name` must outlive the profile, as CUPTI's names do. */
void fake_kernel(const char *name, uint64_t start, uint64_t end, uint32_t device, uint32_t stream, uint32_t correlation)
{
#define FAKE_SIZES(sizes, type) {(type)fake.sizes[0], (type)fake.sizes[1], (type)fake.sizes[2]}
    FAKE_WORK(kernel, KERNEL, device, .name = name, .completed = end, .registers = (uint16_t)fake.registers,
              .static_shared = (int32_t)fake.static_shared, .dynamic_shared = (int32_t)fake.dynamic_shared,
              .grid = FAKE_SIZES(grid, int32_t), .block = FAKE_SIZES(block, int32_t),
              .cluster = FAKE_SIZES(cluster, uint32_t));
#undef FAKE_SIZES
}

void fake_copy(int copy_kind, int from, int to, uint64_t bytes, uint64_t start, uint64_t end, uint32_t device,
               uint32_t stream, uint32_t correlation)
{
    FAKE_WORK(memcpy, MEMCPY, device, .copy_kind = (uint8_t)copy_kind, .from = (uint8_t)from, .to = (uint8_t)to,
              .bytes = bytes);
}

void fake_copy_peer(uint64_t bytes, uint64_t start, uint64_t end, uint32_t from_device, uint32_t to_device,
                    uint32_t stream, uint32_t correlation)
{
    FAKE_WORK(memcpy_peer, MEMCPY_PEER, from_device, .copy_kind = 10, .from = 3, .to = 3, .bytes = bytes,
              .from_device = from_device, .to_device = to_device, .from_context = from_device + 1,
              .to_context = to_device + 1);
}

void fake_fill(int memory, uint64_t bytes, uint64_t start, uint64_t end, uint32_t device, uint32_t stream,
               uint32_t correlation)
{
    FAKE_WORK(memset, MEMSET, device, .memory = (uint16_t)memory, .bytes = bytes);
}

/* Record an API call by its full name ("cudaLaunchKernel_v7000"); names of the driver API begin with "cu" and a
 * capital. */
void fake_call(const char *function, uint64_t start, uint64_t end, uint32_t thread, uint32_t correlation)
{
    bool runtime = strncmp(function, "cuda", 4) == 0;
    uint32_t id = fake_function(function);
    int kind = runtime ? FS_CUPTI_RUNTIME : FS_CUPTI_DRIVER;
    fs_cupti_api record = {kind, id, start, end, (uint32_t)getpid(), thread, correlation, 0};
    if (!fake_client.kinds[kind] || fake_client.silent[runtime ? FS_CUPTI_RUNTIME_DOMAIN : FS_CUPTI_DRIVER_DOMAIN][id])
        return;
    __atomic_fetch_add(&fake.calls, 1, __ATOMIC_RELAXED);
    fake_record(&record, sizeof record, end != 0);
}

/* Record a call of a function whose id has no name in CUPTI. */
void fake_unnamed_call(uint32_t function, uint64_t start, uint64_t end, uint32_t thread, uint32_t correlation)
{
    FAKE_RECORD(api, RUNTIME, .function = function, .thread = thread, .correlation = correlation);
}

void fake_synchronization(int type, uint64_t start, uint64_t end, uint32_t correlation)
{
    FAKE_RECORD(synchronization, SYNCHRONIZATION, .type = type, .correlation = correlation);
}

/* Record overhead of a thread, or of no thread (0). */
void fake_overhead(int kind, uint64_t start, uint64_t end, uint32_t thread)
{
    FAKE_RECORD(overhead, OVERHEAD, .overhead = kind, .object = thread != 0 ? FS_CUPTI_OBJECT_THREAD : 3,
                .thread = thread);
}

/* Record an event of a kind that no client enabled. */
enum { FAKE_UNKNOWN = 60 };
typedef struct {
    int32_t kind, rest[13];
} fake_unknown_record;

void fake_unknown(void)
{
    fake_record(&(fake_unknown_record){.kind = FAKE_UNKNOWN}, sizeof(fake_unknown_record), true);
}

#endif
