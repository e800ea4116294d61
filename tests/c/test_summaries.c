/* Summaries of stores built by hand, beside what Python's tests compare with timelines of moments: how collectives are
 * recorded, launches, what is unknown of devices, and failing allocations. Expected numbers are derived here. */
#include "store/collective.h"
#include "store/torch_signature.h"
#include "summaries/collectives.h"
#include "summaries/efficiency.h"
#include "summaries/intervals.h"
#include "summaries/launches.h"
#include "summaries/steps.h"
#include "summaries/streams.h"
#include "tests/c/events.h"

/* Recorded collectives --------------------------------------------------------------------------------------------- */

static uint64_t room[(FS_LAUNCH_BYTES + FS_COLLECTIVE_MAX_BYTES) / 8 + 1];

static fs_collective_text text(const char *from)
{
    return (fs_collective_text){from, strlen(from)};
}

static bool is(fs_collective_text text, const char *expected)
{
    return text.size == strlen(expected) && strcmp(text.text, expected) == 0;
}

static fs_collective some(void)
{
    fs_collective recorded = {
        .in_elements = 1 << 20, .out_elements = (int64_t)1 << 40, .sequence = 7, .group_size = 4096};
    recorded.name = text("_allgather_base");
    recorded.dtype = text("BFloat16");
    recorded.group = text("0");
    recorded.ranks = text("[0, 1]");
    return recorded;
}

/* Return the signature of a launch and, unless it is NULL, a collective. */
static fs_span launched(const fs_collective *recorded)
{
    fs_launch launch = {.grid = {24, 1, 1}, .block = {544, 1, 1}, .graph_node = 3}, back;
    fs_launch_encode(&launch, room);
    size_t size = recorded != NULL ? fs_collective_encode(recorded, room) : FS_LAUNCH_BYTES;
    CHECK(size <= sizeof room && fs_launch_decode(room, &back) && memcmp(&back, &launch, sizeof launch) == 0);
    return (fs_span){.bytes = room, .size = (uint32_t)size};
}

TEST(a_collective_is_decoded_after_a_launch)
{
    fs_collective recorded = some(), decoded;
    CHECK(fs_collective_decode(launched(&recorded), &decoded));
    CHECK(decoded.in_elements == 1 << 20 && decoded.out_elements == (int64_t)1 << 40);
    CHECK(decoded.sequence == 7 && decoded.group_size == 4096 && decoded.element_size == 2);
    CHECK(is(decoded.name, "_allgather_base") && is(decoded.dtype, "BFloat16"));
    CHECK(is(decoded.group, "0") && is(decoded.ranks, "[0, 1]"));
}

TEST(unrecorded_fields_are_missing)
{
    fs_collective recorded = fs_collective_missing, decoded = some();
    CHECK(!fs_collective_decode(launched(NULL), &decoded));
    CHECK(decoded.in_elements == FS_MISSING && decoded.group_size == 0 && decoded.name.size == 0);
    CHECK(fs_collective_decode(launched(&recorded), &decoded));
    CHECK(decoded.in_elements == FS_MISSING && decoded.out_elements == FS_MISSING && decoded.sequence == FS_MISSING);
    CHECK(decoded.element_size == 0 && is(decoded.name, "") && is(decoded.dtype, "") && is(decoded.ranks, ""));
    fs_given_work work = {.flops = 1, .bytes = 2}; /* another kind of signature, of any length */
    memset(room, 0, sizeof room);
    fs_given_work_encode(&work, room);
    CHECK(!fs_collective_decode((fs_span){.bytes = room, .size = sizeof room}, &decoded));
}

TEST(long_texts_are_cut)
{
    char long_text[2000];
    fs_collective recorded = some(), decoded;
    memset(long_text, 'x', sizeof long_text);
    recorded.name = recorded.dtype = recorded.group = recorded.ranks =
        (fs_collective_text){long_text, sizeof long_text};
    fs_span bytes = launched(&recorded);
    CHECK(bytes.size == FS_LAUNCH_BYTES + FS_COLLECTIVE_MAX_BYTES && fs_collective_decode(bytes, &decoded));
    CHECK(decoded.name.size == 63 && decoded.dtype.size == 31);
    CHECK(decoded.group.size == 127 && decoded.ranks.size == 511 && decoded.element_size == 0);
}

/* Return the signature of a call of record_param_comms with a tensor of 3 x 5 and a text, followed by the collective
 * unless it is NULL. */
static fs_span called(fs_torch_builder *builder, const fs_collective *recorded)
{
    static const int64_t shape[] = {3, 5};
    const fs_torch_tensor tensor = {.dtype = FS_TORCH_BFLOAT16, .ndim = 2, .shape = shape};
    char bytes[FS_COLLECTIVE_MAX_BYTES];
    CHECK_OK(fs_torch_begin(builder, NULL));
    CHECK_OK(fs_torch_add_tensor(builder, &tensor, NULL));
    CHECK_OK(fs_torch_add_text(builder, FS_TORCH_SCALAR, "7", 1, NULL));
    if (recorded != NULL) CHECK_OK(fs_torch_add_rest(builder, bytes, fs_collective_write(recorded, bytes), NULL));
    return (fs_span){.bytes = builder->words, .size = (uint32_t)fs_torch_size(builder)};
}

TEST(a_collective_is_decoded_after_a_call)
{
    fs_torch_builder builder = {0};
    fs_torch_call found;
    fs_collective recorded = some(), decoded = recorded;
    fs_span bytes = called(&builder, NULL);
    uint32_t alone = bytes.size;
    CHECK(!fs_collective_decode(bytes, &decoded) && decoded.name.size == 0);
    bytes = called(&builder, &recorded);
    CHECK(bytes.size > alone && fs_torch_decode(bytes.bytes, bytes.size, &found));
    CHECK(found.whole && found.count == 2 && found.arguments[0].tensor.ndim == 2);
    CHECK((const char *)found.end - (const char *)bytes.bytes == alone);
    CHECK(fs_collective_decode(bytes, &decoded) && is(decoded.name, "_allgather_base") && is(decoded.ranks, "[0, 1]"));
    CHECK(decoded.sequence == 7 && decoded.group_size == 4096 && decoded.element_size == 2);
    fs_torch_builder_clear(&builder);
}

TEST(kinds_follow_from_names)
{
    static const struct {
        const char *name;
        fs_collective_kind kind;
    } names[] = {
        {"allreduce_coalesced", FS_COLLECTIVE_ALLREDUCE},
        {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", FS_COLLECTIVE_ALLREDUCE},
        {"void vllm::cross_device_reduce_1stage<float, 2>()", FS_COLLECTIVE_ALLREDUCE},
        {"ncclKernel_ReduceScatter_Sum_bf16", FS_COLLECTIVE_REDUCESCATTER},
        {"all_gather_into_tensor_coalesced", FS_COLLECTIVE_ALLGATHER},
        {"ncclDevKernel_AllGather_RING_LL", FS_COLLECTIVE_ALLGATHER},
        {"all_to_allv", FS_COLLECTIVE_ALLTOALL},
        {"_broadcast_oop", FS_COLLECTIVE_BROADCAST},
        {"ncclDevKernel_Broadcast_RING_LL", FS_COLLECTIVE_BROADCAST},
        {"_reduce_oop", FS_COLLECTIVE_REDUCE},
        {"scatter", FS_COLLECTIVE_SCATTER},
        {"ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", FS_COLLECTIVE_SENDRECV},
        {"ncclDevKernel_Generic_4", FS_COLLECTIVE_OTHER},
        {"", FS_COLLECTIVE_OTHER},
    };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        fs_collective_kind kind = fs_collective_kind_of(names[i].name);
        CHECK(kind == names[i].kind, "%s is %s", names[i].name, fs_collective_kind_names[kind]);
    }
}

TEST(bus_factors_are_those_of_nccl_tests)
{
    static const struct {
        fs_collective_kind kind;
        int ranks;
        double factor;
    } cases[] = {
        {FS_COLLECTIVE_ALLREDUCE, 8, 1.75}, {FS_COLLECTIVE_ALLREDUCE, 2, 1},        {FS_COLLECTIVE_ALLGATHER, 8, 0.875},
        {FS_COLLECTIVE_ALLTOALL, 4, 0.75},  {FS_COLLECTIVE_REDUCESCATTER, 4, 0.75}, {FS_COLLECTIVE_GATHER, 4, 0.75},
        {FS_COLLECTIVE_BROADCAST, 0, 1},    {FS_COLLECTIVE_REDUCE, 8, 1},           {FS_COLLECTIVE_ALLREDUCE, 1, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(near(fs_collective_bus_factor(cases[i].kind, cases[i].ranks), cases[i].factor), "%zu", i);
    CHECK(isnan(fs_collective_bus_factor(FS_COLLECTIVE_ALLREDUCE, 0)));
    CHECK(isnan(fs_collective_bus_factor(FS_COLLECTIVE_OTHER, 8)));
}

static void nccl(const char *name, const fs_collective *recorded, uint64_t stream, int64_t start)
{
    fs_event event = work_of(FS_EVENT_KERNEL, name, 0, stream, start, start + 10);
    fs_span bytes = launched(recorded);
    event.signature = signature_of(bytes.bytes, bytes.size);
    put(event);
}

TEST(a_recorded_collective_makes_any_kernel_communication)
{
    fs_collective recorded = some();
    fs_collective_row *rows = NULL;
    uint32_t count = 0;
    recorded.name = text("coalesced"); /* names no kind: the kernel's name decides */
    nccl("mscclKernel_Broadcast", &recorded, 7, 0);
    nccl("my_kernel", &recorded, 8, 0);
    CHECK(fs_collectives_of(store, &rows, &count, NULL) == FS_OK && count == 2);
    CHECK(rows[0].kind == FS_COLLECTIVE_BROADCAST && rows[1].kind == FS_COLLECTIVE_OTHER);
    CHECK(rows[0].exposed == 10 && rows[1].exposed == 10); /* neither computes */
    fs_free(rows);
}

/* Intervals and steps ---------------------------------------------------------------------------------------------- */

TEST(sorting_is_stable_over_the_whole_range_of_times)
{
    static const int64_t begins[] = {5, INT64_MAX - 1, -3, 5, FS_MISSING + 1, 0, 5};
    static const uint32_t expected[] = {4, 2, 5, 0, 3, 6, 1};
    fs_intervals list = {0};
    for (uint32_t i = 0; i < 7; i++) CHECK_OK(fs_intervals_add(&list, begins[i], begins[i], i, NULL));
    CHECK(fs_intervals_sort(&list, NULL) == FS_OK && list.count == 7);
    for (uint32_t i = 0; i < 7; i++) CHECK(list.items[i].tag == expected[i]);
    fs_intervals_clear(&list);
}

/* Two threads have their own steps at the same time: the chain of parents distinguishes them. */
TEST(work_belongs_to_the_step_around_its_launcher)
{
    fs_steps steps;
    uint32_t first = host(FS_EVENT_STEP, "a", FS_NONE, 0, 100);
    host(FS_EVENT_STEP, "b", FS_NONE, 50, 50);
    kernel("k", op("op", FS_NONE, first, 60, 10), 80, 140);
    CHECK(fs_steps_break_down(&steps, store, NULL) == FS_OK && steps.count == 2);
    CHECK(steps.steps[0].begin == 0 && steps.steps[0].end == 140);
    CHECK(steps.steps[1].begin == 140 && steps.steps[1].end == 140);
    fs_steps_clear(&steps);
}

/* Devices ---------------------------------------------------------------------------------------------------------- */

/* Describe a device with 4 SMs of 256 threads, 2 blocks each. */
static void know_device(int device)
{
    fs_device_facts facts = {
        .compute_major = 9,
        .max_threads_per_block = 256,
        .max_threads_per_sm = 256,
        .registers_per_block = 65536,
        .registers_per_sm = 65536,
        .warp_size = 32,
        .shared_memory_per_block_optin = 65536,
        .shared_memory_per_sm = 65536,
        .sm_count = 4,
        .max_blocks_per_sm = 2,
    };
    CHECK_OK(fs_store_set_device(store, device, &facts, NULL));
}

/* Add a kernel of blocks of 64 threads. */
static void blocks(const char *name, int device, uint64_t stream, uint32_t count, int64_t start, int64_t end)
{
    fs_event event = work_of(FS_EVENT_KERNEL, name, device, stream, start, end);
    event.signature = launch_id((fs_launch){.grid = {count, 1, 1}, .block = {64, 1, 1}});
    put(event);
}

static fs_efficiency *efficiency(uint32_t expected)
{
    fs_efficiency *rows = NULL;
    uint32_t count = 0;
    CHECK(fs_efficiency_of(store, NULL, &rows, &count, NULL) == FS_OK && count == expected);
    return rows;
}

TEST(efficiency_of_overlapping_kernels_on_two_devices)
{
    know_device(0);
    know_device(1);
    fs_store_set_window(store, 0, 1000);
    /* Device 0: 2 of 4 SMs have a block in [0, 100), 5 blocks fill them in [100, 200), 3 of 4 in [200, 250). */
    blocks("k", 0, 7, 2, 0, 200);
    blocks("nvjet_sm90_tst_64x64", 0, 8, 3, 100, 250);
    blocks("volta_sgemm_128x64_nn", 0, 7, 1, 400, 410);
    work(FS_EVENT_MEMCPY, "copy", 0, 8, FS_NONE, FS_NONE, 240, 300);
    /* Device 1: a kernel of 16 blocks that was running when recording began: an SM holds 2. */
    blocks("k", 1, 7, 16, -100, 500);
    fs_efficiency *rows = efficiency(2);
    CHECK(rows[0].device == 0 && near(rows[0].gpu_utilization, 26) && near(rows[0].idle, 100 - 31));
    CHECK(near(rows[0].sm_efficiency, 100 * (0.5 * 100 + 1 * 100 + 0.75 * 50 + 0.25 * 10) / 1000));
    /* 64 threads of 256: one block per SM is 25 %; the grids are 2, 3 and 1 of 4. */
    CHECK(near(rows[0].achieved_occupancy, 25 * (0.5 * 200 + 0.75 * 150 + 0.25 * 10) / 360));
    CHECK(near(rows[0].tensor_core_time, 100 * 150 / 360.0) && near(rows[0].matrix_time, 100 * 10 / 360.0));
    CHECK(rows[1].device == 1 && near(rows[1].gpu_utilization, 50) && near(rows[1].sm_efficiency, 50));
    CHECK(near(rows[1].achieved_occupancy, 50) && rows[1].tensor_core_time == 0 && near(rows[1].idle, 50));
    fs_free(rows);
}

TEST(missing_facts_are_not_zero)
{
    fs_store_set_window(store, 0, 100);
    blocks("k", 0, 7, 2, 0, 50); /* of an unknown device */
    work(FS_EVENT_MEMCPY, "copy", 1, 7, FS_NONE, FS_NONE, 0, 50);
    know_device(2);
    blocks("k", 2, 7, 2, 0, 50);
    work(FS_EVENT_KERNEL, "k", 2, 7, FS_NONE, FS_NONE, 60, 70);   /* with an unknown launch */
    work(FS_EVENT_INTERVAL, "op", 3, 0, FS_NONE, FS_NONE, 0, 20); /* between CUDA events: the kernels of an op */
    fs_efficiency *rows = efficiency(4);
    for (int i = 0; i < 4; i++) {
        static const double busy[] = {50, 0, 60, 20}, idle[] = {50, 50, 40, 80};
        CHECK(near(rows[i].gpu_utilization, busy[i]) && near(rows[i].idle, idle[i]), "%d: %g", i, rows[i].idle);
        CHECK(isnan(rows[i].sm_efficiency) && isnan(rows[i].achieved_occupancy), "%d", i);
        CHECK(i % 2 == 0 ? rows[i].tensor_core_time == 0 : isnan(rows[i].tensor_core_time), "%d", i);
        CHECK(isnan(rows[i].matrix_time) == (i % 2), "%d", i);
    }
    fs_free(rows);
}

static void launched_work(uint64_t stream, uint32_t correlation, int64_t start, int64_t end)
{
    work(FS_EVENT_KERNEL, "k", 0, stream, correlation, FS_NONE, start, end);
}

TEST(launch_statistics)
{
    static const int64_t calls[][3] = {/* correlation, begin, end; the last is a driver's inside the runtime's */
                                       {1, 0, 10},    {2, 10, 20},   {3, 20, 50},
                                       {4, 140, 210}, {5, 300, 306}, {4, 202, 208}};
    for (size_t i = 0; i < COUNT_OF(calls); i++)
        call("cudaLaunchKernel", (uint32_t)calls[i][0], FS_NONE, calls[i][1], calls[i][2]);
    launched_work(7, 1, 30, 100);
    launched_work(7, 2, 100, 150);
    launched_work(8, 3, 60, 205);  /* the first on its stream */
    launched_work(7, 4, 220, 240); /* stream 7 ended at 150, the device at 205, the call from 140 to 210 */
    launched_work(7, 5, 320, 330); /* a graph of three kernels; stream 7 ended at 240 */
    launched_work(7, 5, 335, 340);
    launched_work(9, 5, 335, 345);
    launched_work(7, FS_NONE, 400, 410); /* without a recorded call */
    work(FS_EVENT_MEMCPY, "copy", 0, 7, 5, FS_NONE, 250, 260);
    work(FS_EVENT_MEMCPY, "copy", 1, 7, FS_NONE, FS_NONE, 250, 260);
    fs_launch_statistics *rows = NULL;
    uint32_t count = 0;
    CHECK(fs_launches_of(store, &rows, &count, NULL) == FS_OK && count == 2);
    const fs_launch_statistics *row = &rows[0];
    CHECK(row->device == 0 && row->kernels == 7 && row->launches == 5);
    /* Delays 30, 90, 40, 80, 20. */
    CHECK(row->delay_min == 20 && row->delay_median == 40 && row->delay_max == 90 && near(row->delay_p95, 88));
    CHECK(row->call_time_median == 10); /* 10, 10, 30, 70, 6 */
    /* Queued at the calls of 0, 10, 20, 140, 300: none; 1; 1 and 2; none; none. */
    CHECK(near(row->queue_mean, 3 / 5.0) && row->queue_max == 2);
    /* With earlier work on their stream: 2 (busy until 100), 4 and 5 (idle). Idle device: 205 to 220, 240 to 250, 260
     * to 320; the calls returned at 210, 306 and 306, so launches take 10 to arrive, the median of 10, 0 and 14. */
    CHECK(near(row->launch_bound_pct, 200 / 3.0) && row->idle_lost == 15 + 10 + (306 + 10 - 260));
    CHECK(rows[1].device == 1 && rows[1].kernels == 0 && rows[1].launches == 0 && isnan(rows[1].delay_median));
    CHECK(isnan(rows[1].queue_mean) && isnan(rows[1].launch_bound_pct) && isnan(rows[1].idle_lost));
    fs_free(rows);
}

/* Failures --------------------------------------------------------------------------------------------------------- */

static fs_status summarize(fs_error *err)
{
    fs_steps steps;
    fs_efficiency *devices = NULL;
    fs_launch_statistics *launches = NULL;
    fs_collective_row *collectives = NULL;
    fs_stream_row *streams = NULL;
    uint32_t count;
    FS_TRY(fs_steps_break_down(&steps, store, err));
    fs_steps_clear(&steps);
    fs_status status = fs_efficiency_of(store, NULL, &devices, &count, err);
    if (status == FS_OK) status = fs_launches_of(store, &launches, &count, err);
    if (status == FS_OK) status = fs_collectives_of(store, &collectives, &count, err);
    if (status == FS_OK) status = fs_streams_of(store, &streams, &count, err);
    fs_free(devices);
    fs_free(launches);
    fs_free(collectives);
    fs_free(streams);
    return status;
}

TEST(every_failed_allocation_is_reported_and_leaks_nothing)
{
    know_device(0);
    for (int i = 0; i < 60; i++) { /* newest first, so that lists grow and are sorted; messages of different sizes */
        fs_collective recorded = some();
        int64_t start = 1000 * (60 - i);
        uint32_t step = host(FS_EVENT_STEP, "step", FS_NONE, start, 900), outer = op("op", FS_NONE, step, start, 500);
        call("cudaLaunchKernel", (uint32_t)i, outer, start + 10, start + 20);
        launched_work(7, (uint32_t)i, start + 30, start + 400);
        recorded.in_elements = recorded.out_elements = i;
        nccl("ncclDevKernel_AllReduce", i % 2 ? &recorded : NULL, 17, start + 350);
    }
    CHECK(fail_each_allocation(summarize) > 20);
}
