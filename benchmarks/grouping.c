/* Times fs_table_build on stores of ops, each with one API call that launches one kernel.
 * Prints one line of key=value pairs per table. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "ops/dtype.h"
#include "ops/tensor.h"
#include "store/signature.h"
#include "table/table.h"

enum { EVENTS_PER_OP = 3, ROUNDS = 15, LARGE_ROUNDS = 5, LARGE = 3000000 };

static const uint32_t sizes[] = {10000, 100000, 600000, 1000000, 3000000, 10000000};
enum { SIZES = sizeof sizes / sizeof *sizes };

typedef struct {
    fs_store *store;
    uint32_t ops;
    int64_t device_ns; /* of all kernels */
} workload;

static void require(fs_status status, const fs_error *err)
{
    if (status == FS_OK) return;
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

static uint32_t add_signature(fs_store *store)
{
    int64_t shape[] = {1024};
    uint64_t bytes[FS_SIGNATURE_MAX_BYTES / 8];
    fs_signature signature = {.device_kind = FS_CUDA, .argument_count = 3};
    for (int i = 0; i < 3; i++) {
        signature.arguments[i] = (fs_argument){.role = i == 2 ? FS_ARGUMENT_OUT : FS_ARGUMENT_IN,
                                               .dtype = FS_FLOAT32,
                                               .ndim = 1,
                                               .same_as = FS_SAME_AS_NONE,
                                               .dense = 1,
                                               .shape = shape};
    }
    uint32_t id;
    fs_error err;
    require(fs_store_signature(store, bytes, fs_signature_encode(&signature, bytes), &id, &err), &err);
    return id;
}

static workload make_workload(uint32_t events)
{
    workload made = {.ops = events / EVENTS_PER_OP};
    fs_error err;
    require(fs_store_create(&made.store, &err), &err);
    uint32_t add, launch, kernel, thread, stream;
    require(fs_store_name(made.store, "flopscope::add", &add, &err), &err);
    require(fs_store_name(made.store, "cudaLaunchKernel", &launch, &err), &err);
    require(fs_store_name(made.store, "add_kernel", &kernel, &err), &err);
    require(fs_store_thread_lane(made.store, &thread, &err), &err);
    require(fs_store_device_lane(made.store, 0, 0, &stream, &err), &err);
    uint32_t signature = add_signature(made.store);
    int64_t now = 0;
    for (uint32_t i = 0; i < made.ops; i++, now += 10000) {
        uint32_t op;
        fs_event event = fs_event_missing;
        event.start = now;
        event.duration = 5000 + rand() % 3000;
        event.name = add;
        event.signature = signature;
        event.lane = thread;
        require(fs_store_append(made.store, &event, &op, &err), &err);
        event = fs_event_missing;
        event.kind = FS_EVENT_RUNTIME;
        event.start = now + 1000;
        event.duration = 2000 + rand() % 1000;
        event.name = launch;
        event.parent = op;
        event.lane = thread;
        event.correlation = i;
        require(fs_store_append(made.store, &event, NULL, &err), &err);
        event = fs_event_missing;
        event.kind = FS_EVENT_KERNEL;
        event.timing = FS_TIMING_CUPTI;
        event.start = now + 4000;
        event.duration = 1000 + rand() % 2000;
        event.name = kernel;
        event.launcher = op;
        event.lane = stream;
        event.device = 0;
        event.correlation = i;
        require(fs_store_append(made.store, &event, NULL, &err), &err);
        made.device_ns += event.duration;
    }
    return made;
}

static bool is_right(const fs_table *table, const workload *work)
{
    double flops = 0;
    for (uint32_t i = 0; i < table->row_count; i++) {
        if (table->rows[i].count != work->ops) return false;
        if (!isnan(table->rows[i].flops)) flops += table->rows[i].flops;
    }
    return table->row_count == EVENTS_PER_OP && table->self_device_ns == work->device_ns && flops == 1024.0 * work->ops;
}

static void time_table(const workload *work, const fs_table_options *options, bool keep)
{
    fs_table *table;
    fs_error err;
    int64_t start = fs_clock_now();
    require(fs_table_build(work->store, options, &table, &err), &err);
    int64_t ns = fs_clock_now() - start;
    if (!is_right(table, work)) {
        fprintf(stderr, "the table of %u ops is wrong: %u rows, %lld ns on the device, not %lld\n", work->ops,
                table->row_count, (long long)table->self_device_ns, (long long)work->device_ns);
        exit(1);
    }
    if (keep) printf("events=%u ns=%lld\n", work->ops * EVENTS_PER_OP, (long long)ns);
    fs_table_destroy(table);
}

int main(void)
{
    fs_peaks peaks;
    fs_peaks_unknown(&peaks);
    peaks.flops[FS_UNIT_FP32] = 60e12;
    peaks.bandwidth = 4e12;
    peaks.launch_ns = 600;
    fs_table_options options = {.cuda_peaks = {&peaks}};
    workload works[SIZES];
    for (int i = 0; i < SIZES; i++) works[i] = make_workload(sizes[i]);
    for (int round = -1; round < ROUNDS; round++) {
        for (int i = 0; i < SIZES; i++) {
            if (round < LARGE_ROUNDS || sizes[i] < LARGE) time_table(&works[i], &options, round >= 0);
        }
    }
    for (int i = 0; i < SIZES; i++) fs_store_destroy(works[i].store);
    return 0;
}
