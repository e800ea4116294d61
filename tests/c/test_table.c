/* Tables of events that only a live profile has, and failing allocations. The values of rows are tested from Python, in
 * tests/table, tests/work and tests/traces. */
#include "store/extend.h"
#include "store/launch_name.h"
#include "store/samples.h"
#include "tests/c/events.h"

/* Add a range with declared work; NaN: not declared. */
static uint32_t stated(const char *name, double flops, double bytes, uint32_t parent, int64_t start, int64_t duration)
{
    fs_event event = event_of(FS_EVENT_RANGE, name, start, duration);
    event.signature = given_work_id((fs_given_work){.flops = flops, .bytes = bytes});
    event.parent = parent;
    return put(event);
}

/* Add an op that is one launch, whose work is told by the launch. */
static uint32_t launch(const char *name, double flops, double bytes, fs_launch_basis basis, uint32_t parent,
                       int64_t start)
{
    fs_given_work work = {flops, bytes, "", basis};
    if (basis == FS_LAUNCH_STATED) strcpy(work.unit, "fp16_tensor");
    return op(name, given_work_id(work), parent, start, 10);
}

/* Work of ops ------------------------------------------------------------------------------------------------------ */

TEST(time_between_events_is_compared_with_the_launch_time)
{
    uint32_t add = op("flopscope::add", signature_id(FS_CUDA, 256, 1024), FS_NONE, 0, 20);
    work(FS_EVENT_INTERVAL, "flopscope::add", 0, 0, FS_NONE, add, 1000, 4000);
    fs_peaks gpu = peaks(1e13, 4e12, 400);
    gpu.launch_ns = 2000;
    fs_table *table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
    CHECK(row_of(table, "flopscope::add", false)->bound == FS_BOUND_LAUNCH);
    fs_table_destroy(table);
    gpu.launch_ns = 400;
    gpu.kernel_ns = 2000;
    table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
    CHECK(row_of(table, "flopscope::add", false)->bound == FS_BOUND_MEMORY);
    fs_table_destroy(table);
}

TEST(rates_on_the_host_and_without_device_times)
{
    uint32_t on_host = signature_id(FS_CPU, 10, 10);
    op("flopscope::add", on_host, FS_NONE, 0, 600);
    op("flopscope::add", on_host, FS_NONE, 700, 200);
    uint32_t range = stated("range", 8000, 4000, FS_NONE, 990, 100);
    op("flopscope::sin", signature_id(FS_CUDA, 10, 10), range, 1000, 50); /* without a recorded kernel */
    fs_peaks cpu = peaks(1e12, 1e10, 100);
    fs_table *table = build(&(fs_table_options){.cpu_peaks = &cpu});
    const fs_row *add = row_of(table, "flopscope::add", false), *sin_row = row_of(table, "flopscope::sin", false);
    CHECK(near(add->gbytes_per_s, 2400.0 / 800) && near(add->pct_roofline, 100 * 240.0 / 800));
    CHECK(add->device_busy_time == 0 && add->bound == FS_BOUND_MEMORY && near(add->time_median, 400));
    CHECK(sin_row->flops == 100 && isnan(sin_row->gbytes_per_s) && sin_row->bound == FS_BOUND_UNKNOWN);
    CHECK(row_of(table, "range", false)->flops == 8000 && isnan(row_of(table, "range", false)->gbytes_per_s));
    CHECK(table->unmodelled_count == 0);
    fs_table_destroy(table);
}

/* Launches that tell their work ------------------------------------------------------------------------------------ */

TEST(the_longest_name_of_a_launch_is_read_back)
{
    fs_given_work most = {1e280, 1e280, "a_name_of_15_ch", FS_LAUNCH_AT_MOST}, found = {.flops = 0};
    char text[2 + FS_LAUNCH_NAME_BYTES] = "k ";
    fs_launch_name_write(&most, text + 2, sizeof text - 2);
    CHECK(fs_launch_name_parse(text, strlen(text), &found) == 1 && found.launch == most.launch);
    CHECK(near(found.flops, 1e280) && near(found.bytes, 1e280) && strcmp(found.unit, most.unit) == 0);
}

TEST(each_replay_of_a_captured_launch_does_its_work)
{
    fs_event event = event_at(launch("captured", 5, 6, FS_LAUNCH_STATED, FS_NONE, 70));
    event.flags = FS_EVENT_CAPTURED;
    fs_store_set(store, fs_store_count(store) - 1, &event);
    event.flags = FS_EVENT_REPLAYED;
    event.duration = 0;
    for (int i = 0; i < 3; i++) kernel("replayed", put(event), 5000 + 500 * i, 5400 + 500 * i);
    fs_table *table = build(NULL);
    CHECK(row_of(table, "captured", false)->flops == 15 && row_of(table, "captured", false)->bytes_total_moved == 18);
    CHECK(row_of(table, "replayed", true)->flops == 15 && row_of(table, "replayed", true)->count == 3);
    fs_table_destroy(table);
}

/* Count `values` of a metric in samples of 100 ns from `begin` on. */
static fs_status count(const char *metric, int64_t begin, double value, int samples, fs_error *err)
{
    for (int i = 0; i < samples; i++) {
        fs_sample sample = {begin + 100 * i, begin + 100 * i + 100, value};
        FS_TRY(fs_store_add_samples(store, 0, metric, &sample, 1, NULL, err));
    }
    return FS_OK;
}

/* Failures --------------------------------------------------------------------------------------------------------- */

/* Ops that launch, allocate, have a frame, a module, declared and told work. */
static void fill(int ops)
{
    uint32_t signature = signature_id(FS_CUDA, 4, 4), up = FS_NONE;
    for (int i = 0; i < ops; i++) {
        char name[16];
        snprintf(name, sizeof name, "x::%d", i);
        uint32_t step = host(FS_EVENT_STEP, i % 2 ? "ProfilerStep#1" : "ProfilerStep#0", FS_NONE, 1000 - i, 900);
        up = host(FS_EVENT_FRAME, i % 2 ? "train.py(3): train" : "nn.Module: Net_0", i % 8 ? up : step, 1000 - i, 5);
        uint32_t range = stated("mine", i, i, up, 1000 - i, 5), inside = op(name, signature, range, 1000 - i, 5);
        kernel("k", inside, 2000 - i, 2005 - i);
        kernel(name, launch(name, i, i, i % 2 ? FS_LAUNCH_STATED : FS_LAUNCH_AT_MOST, up, 1000 - i), 3000 + i,
               3001 + i);
        memory(inside, 0, 8);
        fs_store_set_forward(store, inside, step);
    }
}

TEST(every_failed_allocation_is_reported_and_leaks_nothing)
{
    const uint32_t every_grouping = (1u << FS_GROUPING_COUNT) - 1;
    fill(40);
    build_with_failing_memory(&(fs_table_options){.by_shape = true, .works = true});
    build_with_failing_memory(&(fs_table_options){.groupings = every_grouping, .stack_depth = UINT32_MAX});
}

static fs_status count_everything(fs_error *err)
{
    fs_table_options options = {0};
    fs_device_facts facts = fs_device_facts_missing;
    fs_table *table = NULL;
    fs_store *kept = store, *other = NULL;
    facts.l2_bytes = 500;
    FS_TRY(fs_store_create(&store, err));
    fs_status status = fs_store_set_device(store, 0, &facts, err);
    if (status == FS_OK) status = fs_store_extend(store, kept, 0, err); /* a kernel */
    if (status == FS_OK) status = count("dram_bytes_read", 0, 10, 4, err);
    if (status == FS_OK) status = count("dram_bytes_written", 0, 10, 4, err);
    if (status == FS_OK) status = count("another", 0, 10, 4, err);
    if (status == FS_OK) status = fs_table_build(store, &options, &table, err);
    if (status == FS_OK) status = fs_store_create(&other, err);
    if (status == FS_OK) status = fs_store_extend(other, store, 10, err);
    fs_table_destroy(table);
    fs_store_destroy(other);
    fs_store_destroy(store);
    store = kept;
    return status;
}

TEST(every_failed_allocation_of_samples_is_reported_and_leaks_nothing)
{
    kernel("a", FS_NONE, 0, 300);
    CHECK(fail_each_allocation(count_everything) > 20);
}
