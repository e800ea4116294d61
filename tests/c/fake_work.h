/* Records of GPU work and API calls for the fake CUPTI; part of fake_cupti.c. Times are in ns by fake_now()'s clock.
 * Kinds that are not enabled are not recorded. */
#ifndef FS_TESTS_FAKE_WORK_H
#define FS_TESTS_FAKE_WORK_H

/* Record a kernel. `name` must outlive the profile, as CUPTI's names do. end 0: the kernel has not ended. */
void fake_kernel(const char *name, uint64_t start, uint64_t end, uint32_t device, uint32_t stream, uint32_t correlation)
{
    fs_cupti_kernel record = {.kind = FS_CUPTI_KERNEL};
    if (!fake.kinds[FS_CUPTI_KERNEL]) return;
    record.name = name;
    record.start = start, record.end = end, record.completed = end;
    record.device = device, record.context = device + 1, record.stream = stream, record.correlation = correlation;
    record.registers = (uint16_t)fake.registers;
    record.static_shared = (int32_t)fake.static_shared, record.dynamic_shared = (int32_t)fake.dynamic_shared;
    record.graph = fake.graph, record.graph_node = fake.graph_node;
    for (int d = 0; d < 3; d++) {
        record.grid[d] = (int32_t)fake.grid[d];
        record.block[d] = (int32_t)fake.block[d];
        record.cluster[d] = fake.cluster[d];
    }
    fake_record(&record, sizeof record, end != 0);
}

void fake_copy(int copy_kind, int from, int to, uint64_t bytes, uint64_t start, uint64_t end, uint32_t device,
               uint32_t stream, uint32_t correlation)
{
    fs_cupti_memcpy record = {.kind = FS_CUPTI_MEMCPY};
    if (!fake.kinds[FS_CUPTI_MEMCPY]) return;
    record.copy_kind = (uint8_t)copy_kind, record.from = (uint8_t)from, record.to = (uint8_t)to;
    record.bytes = bytes, record.start = start, record.end = end;
    record.device = device, record.context = device + 1, record.stream = stream, record.correlation = correlation;
    record.graph = fake.graph, record.graph_node = fake.graph_node;
    fake_record(&record, sizeof record, end != 0);
}

void fake_copy_peer(uint64_t bytes, uint64_t start, uint64_t end, uint32_t from_device, uint32_t to_device,
                    uint32_t stream, uint32_t correlation)
{
    fs_cupti_memcpy_peer record = {.kind = FS_CUPTI_MEMCPY_PEER};
    if (!fake.kinds[FS_CUPTI_MEMCPY_PEER]) return;
    record.copy_kind = 10, record.from = record.to = 3;
    record.bytes = bytes, record.start = start, record.end = end;
    record.device = record.from_device = from_device, record.to_device = to_device;
    record.context = record.from_context = from_device + 1, record.to_context = to_device + 1;
    record.stream = stream, record.correlation = correlation;
    record.graph = fake.graph, record.graph_node = fake.graph_node;
    fake_record(&record, sizeof record, end != 0);
}

void fake_fill(int memory, uint64_t bytes, uint64_t start, uint64_t end, uint32_t device, uint32_t stream,
               uint32_t correlation)
{
    fs_cupti_memset record = {.kind = FS_CUPTI_MEMSET};
    if (!fake.kinds[FS_CUPTI_MEMSET]) return;
    record.memory = (uint16_t)memory, record.bytes = bytes, record.start = start, record.end = end;
    record.device = device, record.context = device + 1, record.stream = stream, record.correlation = correlation;
    record.graph = fake.graph, record.graph_node = fake.graph_node;
    fake_record(&record, sizeof record, end != 0);
}

/* Record an API call by its full name ("cudaLaunchKernel_v7000"); names of the driver API begin with "cu" and a
 * capital. */
void fake_call(const char *function, uint64_t start, uint64_t end, uint32_t thread, uint32_t correlation)
{
    bool runtime = strncmp(function, "cuda", 4) == 0;
    uint32_t id = fake_function(function);
    fs_cupti_api record = {.kind = runtime ? FS_CUPTI_RUNTIME : FS_CUPTI_DRIVER, .function = id};
    int domain = runtime ? FS_CUPTI_RUNTIME_DOMAIN : FS_CUPTI_DRIVER_DOMAIN;
    if (!fake.kinds[record.kind] || fake.silent[domain][id]) return;
    record.start = start, record.end = end, record.process = (uint32_t)getpid();
    record.thread = thread, record.correlation = correlation;
    __atomic_fetch_add(&fake.calls, 1, __ATOMIC_RELAXED);
    fake_record(&record, sizeof record, end != 0);
}

/* Record a call of a function whose id has no name in CUPTI. */
void fake_unnamed_call(uint32_t function, uint64_t start, uint64_t end, uint32_t thread, uint32_t correlation)
{
    fs_cupti_api record = {.kind = FS_CUPTI_RUNTIME, .function = function, .start = start, .end = end};
    record.thread = thread, record.correlation = correlation;
    fake_record(&record, sizeof record, true);
}

void fake_synchronization(int type, uint64_t start, uint64_t end, uint32_t correlation)
{
    fs_cupti_synchronization record = {.kind = FS_CUPTI_SYNCHRONIZATION, .type = type, .start = start, .end = end};
    record.correlation = correlation;
    if (fake.kinds[FS_CUPTI_SYNCHRONIZATION]) fake_record(&record, sizeof record, end != 0);
}

/* Record overhead of a thread, or of no thread (0). */
void fake_overhead(int kind, uint64_t start, uint64_t end, uint32_t thread)
{
    fs_cupti_overhead record = {.kind = FS_CUPTI_OVERHEAD, .overhead = kind, .start = start, .end = end};
    record.object = thread != 0 ? FS_CUPTI_OBJECT_THREAD : 3;
    record.thread = thread;
    if (fake.kinds[FS_CUPTI_OVERHEAD]) fake_record(&record, sizeof record, end != 0);
}

/* Record an event of a kind that no client enabled. */
void fake_unknown(void)
{
    struct {
        int32_t kind, rest[13];
    } record = {.kind = 60};
    fake_record(&record, sizeof record, true);
}

#endif
