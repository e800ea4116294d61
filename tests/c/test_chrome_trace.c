/* Chrome traces of stores built by hand: the line of each event, and failing writes. A small parser here checks the
 * whole text, as Python's does in tests/traces/test_trace.py. */
#define _GNU_SOURCE /* memmem */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/tensor.h"
#include "store/signature.h"
#include "tests/c/check.h"
#include "tests/c/json_check.h"
#include "views/chrome_trace.h"

/* A sink that stores the text and may fail ----------------------------------------------------------------------- */

static struct {
    char *text;
    size_t size, largest;
    int calls, fail_at; /* fail_at 0: never */
} kept;

static fs_status keep(void *context, const char *bytes, size_t size, fs_error *err)
{
    CHECK(context == &kept && size > 0 && (kept.fail_at == 0 || kept.calls < kept.fail_at));
    if (++kept.calls == kept.fail_at) return fs_fail(err, FS_VALUE_ERROR, "the disk is full");
    if (size > kept.largest) kept.largest = size;
    char *text = realloc(kept.text, kept.size + size + 1);
    if (text == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "the test has no memory");
    memcpy(text + kept.size, bytes, size);
    kept.text = text;
    kept.size += size;
    text[kept.size] = 0;
    return FS_OK;
}

static void forget(void)
{
    free(kept.text);
    memset(&kept, 0, sizeof kept);
}

/* Building a store ------------------------------------------------------------------------------------------------ */

enum { PID = 4000, THREAD = 4001 };
static fs_store *store;
static fs_chrome_trace_options options;

static uint32_t name_id(const char *text)
{
    uint32_t id = FS_NONE;
    CHECK(fs_store_name(store, text, &id, NULL) == FS_OK);
    return id;
}

static fs_event event(fs_event_kind kind, const char *name, int64_t start, int64_t duration)
{
    fs_event record = fs_event_missing;
    record.kind = (uint8_t)kind;
    if (name != NULL) record.name = name_id(name);
    record.start = start;
    record.duration = duration;
    CHECK(fs_store_thread_lane_of(store, THREAD, &record.lane, NULL) == FS_OK);
    return record;
}

static fs_event work(fs_event_kind kind, const char *name, int device, uint64_t stream, int64_t start, int64_t duration)
{
    fs_event record = event(kind, name, start, duration);
    record.device = (int8_t)device;
    record.timing = FS_TIMING_CUPTI;
    CHECK(fs_store_device_lane(store, device, stream, &record.lane, NULL) == FS_OK);
    return record;
}

static uint32_t put(fs_event added)
{
    uint32_t index = FS_NONE;
    CHECK(fs_store_append(store, &added, &index, NULL) == FS_OK);
    return index;
}

static uint32_t signature_id(const void *bytes, size_t size)
{
    uint32_t id = FS_NONE;
    CHECK(fs_store_signature(store, bytes, size, &id, NULL) == FS_OK);
    return id;
}

static uint32_t launch_id(fs_launch launch)
{
    _Alignas(8) char bytes[FS_LAUNCH_BYTES];
    fs_launch_encode(&launch, bytes);
    return signature_id(bytes, sizeof bytes);
}

/* Write the trace, check that it is JSON, and return its text, valid until the next call. */
static const char *trace(int64_t expected_left_out)
{
    int64_t left_out = -1;
    fs_error err = {FS_OK, ""};
    forget();
    CHECK(fs_chrome_trace_write(store, &options, &left_out, &err) == FS_OK, "%s", err.message);
    CHECK(left_out == expected_left_out && kept.largest <= FS_JSON_PIECE);
    const char *end = kept.text == NULL ? NULL : past_value(kept.text);
    CHECK(end != NULL && *skip_space(end) == 0);
    return kept.text == NULL ? "" : kept.text;
}

#define HAS(text, ...) CHECK(lines_with(text, __VA_ARGS__) == 1, "%s", text)
#define HAS_NOT(text, ...) CHECK(lines_with(text, __VA_ARGS__) == 0, "%s", text)

/* Tests ------------------------------------------------------------------------------------------------------------ */

static void test_an_empty_store_is_a_trace(void)
{
    const char *text = trace(0);
    HAS(text, "\"deviceProperties\": []", NULL);
    HAS(text, "\"flopscope\": {\"version\": \"1.2\", \"timing\": [], \"dropped\": 3, \"without a time\": 0}", NULL);
    HAS(text, "\"process_name\"", "\"pid\": 4000, \"tid\": 0, \"args\": {\"name\": \"python \\\"3\\\"\"}");
    HAS(text, "\"baseTimeNanoseconds\": 0,", NULL);
    options.members = "\"traceName\": \"a\", \"trace_id\": \"FF\"";
    HAS(trace(0), "\"traceName\": \"a\", \"trace_id\": \"FF\",", NULL);
}

static void test_times_are_exact(void)
{
    static const struct {
        int64_t start, duration;
        const char *text;
    } cases[] = {
        {0, 0, "\"ts\": 0.000, \"dur\": 0.000"},
        {1, 999, "\"ts\": 0.001, \"dur\": 0.999"},
        {4376129756689407, 1000, "\"ts\": 4376129756689.407, \"dur\": 1.000"},
        {INT64_C(7889238000000000) - 1, 123456789012, "\"ts\": 7889237999999.999, \"dur\": 123456789.012"},
        {100, -5, "\"ts\": 0.100, \"dur\": 0.000"}, /* ended before it began: durations are never negative */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(event(FS_EVENT_OP, "x::a", cases[i].start, cases[i].duration));
    }
    const char *text = trace(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) HAS(text, cases[i].text, NULL);
}

static void test_trace_times_and_base_make_unix_time(void)
{
    /* 3 steps of 7 889 238 s are 23 667 714 s; the offset puts the first event 1.5 µs after that. */
    options.clock_offset = INT64_C(23667714000000000) - 1000000;
    put(event(FS_EVENT_OP, "x::a", 1001500, 250));
    const char *text = trace(0);
    HAS(text, "\"baseTimeNanoseconds\": 23667714000000000,", NULL);
    HAS(text, "cpu_op", "\"ts\": 1.500, \"dur\": 0.250");
}

static void test_extreme_times_are_valid_json(void)
{
    put(event(FS_EVENT_OP, "x::a", INT64_MAX, INT64_MAX));
    put(event(FS_EVENT_OP, "x::b", INT64_MIN + 1, INT64_MAX));
    put(event(FS_EVENT_OP, "x::c", INT64_MIN + 1, FS_MISSING));
    put(event(FS_EVENT_OP, "x::d", FS_MISSING, 5));
    const char *text = trace(1);
    HAS(text, "x::b", "\"ts\": 0.000, \"dur\": 9223372036854775.807");
    HAS_NOT(text, "x::d", NULL);
    HAS(text, "\"without a time\": 1}", NULL);
}

static void test_open_events_last_until_the_end(void)
{
    put(event(FS_EVENT_OP, "x::a", 1000, FS_MISSING));
    put(work(FS_EVENT_KERNEL, "k", 0, 7, 9000, FS_MISSING)); /* begins after the window */
    HAS(trace(0), "x::a", "\"dur\": 8.000, \"args\": {\"External id\": 1, \"Ev Idx\": 0, \"open\": true}");
    fs_store_set_window(store, 500, 4000);
    const char *text = trace(0);
    HAS(text, "x::a", "\"dur\": 3.000, ");
    HAS(text, "\"name\": \"k\"", "\"dur\": 0.000, ");
    HAS(text, "Record Window End", "\"ts\": 4.000");
    HAS(text, "Iteration Start: flopscope", "\"ts\": 0.500");
    HAS(text, "\"flopscope (0)\"", "\"ts\": 0.500, \"dur\": 3.500");
}

static void test_a_name_longer_than_a_piece(void)
{
    enum { LENGTH = 3 * FS_JSON_PIECE };
    static char name[LENGTH + 1];
    memset(name, 'n', LENGTH);
    put(event(FS_EVENT_OP, name, 10, 1));
    put(event(FS_EVENT_OP, NULL, 20, 1));
    const char *text = trace(0);
    CHECK(strstr(text, name) != NULL && kept.calls >= 4);
    HAS(text, "\"cat\": \"cpu_op\", \"name\": \"\"", NULL);
}

static void test_the_arguments_of_an_op(void)
{
    static const int64_t matrix[] = {2, 3}, turned[] = {1, 2}, flat[] = {0, 5};
    static const uint8_t dtypes[] = {FS_FLOAT64, FS_FLOAT16, FS_BFLOAT16, FS_INT64, FS_INT32, FS_INT8, FS_UINT8};
    fs_signature call = {.device_kind = FS_CPU, .argument_count = 4};
    uint64_t bytes[FS_SIGNATURE_MAX_BYTES / 8];
    fs_argument argument = {.role = FS_ARGUMENT_IN,
                            .dtype = FS_FLOAT32,
                            .ndim = 2,
                            .same_as = FS_SAME_AS_NONE,
                            .shape = matrix,
                            .strides = turned};
    call.arguments[0] = argument;
    call.arguments[1] =
        (fs_argument){.role = FS_ARGUMENT_SCALAR, .dtype = FS_DTYPE_NONE, .same_as = FS_SAME_AS_NONE, .dense = 1};
    argument.dense = 1, argument.strides = NULL;
    call.arguments[2] = argument;
    argument.role = FS_ARGUMENT_OUT;
    call.arguments[3] = argument;
    fs_event record = event(FS_EVENT_OP, "x::strange", 10, 5);
    record.signature = signature_id(bytes, fs_signature_encode(&call, bytes));
    put(record);
    record.name = name_id("flopscope::add"); /* read twice, written once: 24 bytes each; an addition per element */
    put(record);
    for (size_t i = 0; i < sizeof dtypes; i++) {
        call.arguments[i] = (fs_argument){.role = FS_ARGUMENT_IN,
                                          .dtype = dtypes[i],
                                          .ndim = 2,
                                          .same_as = FS_SAME_AS_NONE,
                                          .dense = 1,
                                          .shape = flat};
    }
    call.argument_count = sizeof dtypes;
    record.name = name_id("x::typed");
    record.signature = signature_id(bytes, fs_signature_encode(&call, bytes));
    put(record);
    call.argument_count = 0;
    record.name = name_id("x::nothing");
    record.signature = signature_id(bytes, fs_signature_encode(&call, bytes));
    put(record);
    const char *text = trace(0);
    HAS(text, "x::strange",
        "\"Input Dims\": [[2, 3], [], [2, 3]], \"Input type\": [\"float\", \"Scalar\", \"float\"], "
        "\"Input Strides\": [[1, 2], [], [3, 1]]}");
    HAS(text, "flopscope::add", "\"flops\": 6, \"unit\": \"fp32\", \"bytes read\": 48, \"bytes written\": 24}");
    HAS(text, "x::typed",
        "\"Input type\": [\"double\", \"c10::Half\", \"c10::BFloat16\", \"long int\", \"int\", \"signed char\", "
        "\"unsigned char\"], \"Input Strides\": [[5, 1], ");
    HAS(text, "x::nothing", "\"Input Dims\": [], \"Input type\": [], \"Input Strides\": []}");
}

static void test_the_declared_work_of_a_range(void)
{
    static const struct {
        fs_given_work work;
        const char *text;
    } cases[] = {
        {{2e12, NAN}, "\"flops\": 2000000000000}"},
        {{NAN, 1.5}, "\"Ev Idx\": 1, \"bytes\": 1.500000}"},
        {{1e30, 0}, "\"flops\": 1000000000000000019884624838656, \"bytes\": 0}"}, /* the double next to 10^30 */
        {{-3, 123456789012345680000.0}, "\"flops\": -3, \"bytes\": 123456789012345683968}"},
        {{INFINITY, 1e300}, "\"flops\": null, \"bytes\": null}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        _Alignas(8) char bytes[FS_GIVEN_WORK_BYTES];
        fs_given_work_encode(&cases[i].work, bytes);
        fs_event record = event(i == 0 ? FS_EVENT_STEP : FS_EVENT_RANGE, "ProfilerStep#1", 10, 5);
        record.signature = signature_id(bytes, sizeof bytes);
        put(record);
    }
    const char *text = trace(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) HAS(text, "user_annotation", cases[i].text);
}

static void test_device_work_and_its_launch(void)
{
    fs_device_facts facts = fs_device_facts_missing;
    strcpy(facts.name, "NVIDIA \"H200\"");
    facts.sm_count = 132, facts.warp_size = 32, facts.max_threads_per_sm = 2048;
    CHECK(fs_store_set_device(store, 2, &facts, NULL) == FS_OK);
    uint32_t op = put(event(FS_EVENT_OP, "x::a", 0, 100));
    fs_event call = event(FS_EVENT_RUNTIME, "cudaLaunchKernel", 10, 20);
    call.parent = op, call.correlation = 77;
    uint32_t outer = put(call);
    call.name = name_id("cuLaunchKernel"), call.start = 12, call.duration = 10, call.parent = outer;
    put(call);
    fs_event kernel = work(FS_EVENT_KERNEL, "k", 2, 7, 500, 1000);
    kernel.launcher = op, kernel.correlation = 77;
    /* grid, block, cluster, registers, static and dynamic shared memory, graph, context, node */
    kernel.signature = launch_id((fs_launch){{97657, 1, 1}, {128, 1, 1}, {2, 1, 1}, 32, 1000, 24, 3, 1, 9000000001});
    put(kernel);
    kernel.start = 400; /* of the same launch, recorded later but run earlier: the arrow leads to it */
    put(kernel);
    fs_event copy = work(FS_EVENT_MEMCPY, "Memcpy HtoD (Pinned -> Device)", 2, 8, 2000, 3584);
    copy.bytes = 32768;
    copy.signature = launch_id((fs_launch){.context = 1});
    put(copy);
    put(work(FS_EVENT_MEMSET, "Memset (Device)", 2, 8, 7000, 0));
    fs_event interval = work(FS_EVENT_INTERVAL, "x::a", 1, 0, 300, 50);
    interval.launcher = op;
    put(interval);
    const char *text = trace(0);
    HAS(text,
        "\"deviceProperties\": [{\"id\": 2, \"name\": \"NVIDIA \\\"H200\\\"\", "
        "\"maxThreadsPerMultiprocessor\": 2048, \"warpSize\": 32, \"numSms\": 132}],",
        NULL);
    HAS(text, "\"cuda_runtime\", \"name\": \"cudaLaunchKernel\"", "{\"External id\": 1, \"correlation\": 77}");
    HAS(text, "\"cuda_driver\", \"name\": \"cuLaunchKernel\"", "{\"External id\": 1, \"correlation\": 77}");
    /* It overlaps the other: it is in a further row, whose id is the first above all threads. */
    HAS(text, "\"kernel\", \"name\": \"k\", \"pid\": 2, \"tid\": 4002, \"ts\": 0.500, \"dur\": 1.000",
        "{\"External id\": 1, \"device\": 2, \"stream\": 7, \"correlation\": 77, \"context\": 1, "
        "\"registers per thread\": 32, \"shared memory\": 1024, ");
    HAS(text, "\"ts\": 0.500, \"dur\": 1.000",
        "\"grid\": [97657, 1, 1], \"block\": [128, 1, 1], \"cluster\": [2, 1, 1]");
    HAS(text, "\"ts\": 0.500, \"dur\": 1.000", "\"graph id\": 3, \"graph node id\": 9000000001}");
    HAS(text, "\"ts\": 0.500, \"dur\": 1.000", "\"blocks per SM\": 739.8"); /* 97 657 / 132 */
    HAS(text, "{\"ph\": \"s\"", "\"id\": 77, \"pid\": 4000, \"tid\": 4001, \"ts\": 0.010, \"cat\": \"ac2g\"");
    HAS(text, "{\"ph\": \"f\"", "\"id\": 77, \"pid\": 2, \"tid\": 7, \"ts\": 0.400, \"cat\": \"ac2g\"");
    HAS(text, "gpu_memcpy",
        "{\"device\": 2, \"stream\": 8, \"context\": 1, \"bytes\": 32768, "
        "\"memory bandwidth (GB/s)\": 9.142857143}"); /* 32768 / 3584 */
    HAS(text, "gpu_memset", "{\"device\": 2, \"stream\": 8, \"bytes\": 0}");
    HAS(text, "gpu_op", "\"pid\": 1, \"tid\": 0, \"ts\": 0.300, \"dur\": 0.050, \"args\": {\"External id\": 1, ");
    HAS(text, "process_labels", "\"pid\": 2, \"tid\": 0, \"args\": {\"labels\": \"GPU 2\"}");
    HAS(text, "\"timing\": [\"cpu\", \"cupti\"]", NULL);
    HAS(text, "thread_name", "\"pid\": 2, \"tid\": 4002, \"args\": {\"name\": \"stream 7 (2)\"}}");
}

static void test_annotations_of_a_device_come_first(void)
{
    uint32_t range = put(event(FS_EVENT_RANGE, "forward", 0, 50));
    put(work(FS_EVENT_KERNEL, "k", 0, 7, 100, 20));
    fs_event copy = work(FS_EVENT_RANGE, "forward", 0, 7, 100, 20);
    copy.launcher = range;
    put(copy);
    const char *text = trace(0), *kernel = strstr(text, "\"cat\": \"kernel\"");
    const char *annotation = strstr(text, "\"cat\": \"gpu_user_annotation\"");
    CHECK(annotation != NULL && kernel != NULL && annotation < kernel);
    HAS(text, "gpu_user_annotation",
        "\"pid\": 0, \"tid\": 7, \"ts\": 0.100, \"dur\": 0.020, \"args\": {\"External id\": 1}}");
}

static void test_frames_syncs_and_overhead(void)
{
    uint32_t module = put(event(FS_EVENT_FRAME, "a.py(1): <module>", 0, 1000));
    fs_event range = event(FS_EVENT_RANGE, "r", 10, 900);
    range.parent = module;
    uint32_t inside = put(range);
    fs_event frame = event(FS_EVENT_FRAME, "a.py(9): f", 20, 800);
    frame.parent = inside;
    uint32_t inner = put(frame);
    fs_event call = event(FS_EVENT_RUNTIME, "cudaDeviceSynchronize", 30, 40);
    call.parent = inner, call.correlation = 5;
    put(call);
    fs_event sync = event(FS_EVENT_SYNC, "Context Sync", 31, 30);
    sync.correlation = 5, sync.device = 1;
    put(sync);
    put(event(FS_EVENT_OVERHEAD, "Buffer Flush", 40, 5));
    const char *text = trace(0);
    HAS(text, "a.py(1): <module>", "{\"Python parent id\": null, \"Python id\": 1, \"Ev Idx\": 0}");
    HAS(text, "a.py(9): f", "{\"Python parent id\": 1, \"Python id\": 3, \"Ev Idx\": 2}");
    HAS(text, "cudaDeviceSynchronize", "{\"External id\": 2, \"correlation\": 5}");
    HAS(text, "cuda_sync",
        "\"pid\": 4000, \"tid\": 4001, \"ts\": 0.031, \"dur\": 0.030, \"args\": "
        "{\"cuda_sync_kind\": \"Context Sync\", \"device\": 1, \"correlation\": 5}}");
    HAS(text, "\"overhead\", \"name\": \"Buffer Flush\", \"pid\": -1, \"tid\": 4001, \"ts\": 0.040, \"dur\": 0.005}",
        NULL);
    HAS(text, "CUPTI Overhead", "\"pid\": -1");
    HAS_NOT(text, "ac2g", NULL); /* nothing was launched */
}

static void test_allocated_memory_is_never_negative(void)
{
    static const int64_t changes[] = {100, -300, 50, -20, 400};
    /* The sums are 100, -200, -150, -170, 230: at least 200 bytes were allocated before. */
    static const char *const texts[] = {
        "\"Total Allocated\": 300, \"Bytes\": 100, \"Device Id\": 0, \"Device Type\": 1, \"Ev Idx\": 0}",
        "\"Total Allocated\": 0, \"Bytes\": -300, ",
        "\"Total Allocated\": 50, \"Bytes\": 50, ",
        "\"Total Allocated\": 30, \"Bytes\": -20, ",
        "\"Total Allocated\": 430, \"Bytes\": 400, ",
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        fs_event record = event(FS_EVENT_MEMORY, "[memory]", (int64_t)i, 0);
        record.device = 0;
        record.bytes = changes[i];
        put(record);
    }
    fs_event record = event(FS_EVENT_MEMORY, NULL, 9, FS_MISSING);
    record.bytes = 7;
    put(record);
    const char *text = trace(0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) HAS(text, "cpu_instant_event", texts[i]);
    HAS(text,
        "\"name\": \"[memory]\", \"pid\": 4000, \"tid\": 4001, \"ts\": 0.009, \"args\": {\"Total Allocated\": 7, "
        "\"Bytes\": 7, \"Device Id\": -1, \"Device Type\": 0, \"Ev Idx\": 5}}",
        NULL);
}

static void test_a_process_id_is_no_device_id(void)
{
    options.pid = 1; /* as in a container */
    put(event(FS_EVENT_OP, "x::a", 0, 1));
    put(work(FS_EVENT_KERNEL, "k", 1, 7, 5, 1));
    const char *text = trace(0);
    HAS(text, "cpu_op", "\"pid\": 4194305, ");
    HAS(text, "\"kernel\"", "\"pid\": 1, ");
}

static void test_events_without_a_lane(void)
{
    fs_event record = event(FS_EVENT_OP, "x::a", 0, 1);
    record.lane = FS_NONE;
    put(record);
    record.kind = FS_EVENT_KERNEL, record.device = 3, record.launcher = FS_NONE;
    put(record);
    record.device = -1, record.start = 2;
    put(record);
    const char *text = trace(0);
    HAS(text, "cpu_op", "\"pid\": 4000, \"tid\": 0, ");
    HAS(text, "\"kernel\"", "\"pid\": 3, \"tid\": 0, \"ts\": 0.000, \"dur\": 0.001, \"args\": {\"device\": 3}}");
    HAS(text, "\"kernel\"", "\"pid\": 0, \"tid\": 0, \"ts\": 0.002, \"dur\": 0.001}");
}

/* Failures --------------------------------------------------------------------------------------------------------- */

/* Fill the store with about five pieces of text, using every feature that allocates. */
static void fill(void)
{
    for (uint32_t i = 0; i < 3000; i++) {
        char name[32];
        snprintf(name, sizeof name, "x::%u", i);
        uint32_t op = put(event(FS_EVENT_OP, name, 1000 * i, 900));
        fs_event call = event(FS_EVENT_RUNTIME, "cudaLaunchKernel", 1000 * i + 10, 5);
        call.parent = op, call.correlation = i;
        put(call);
        fs_event kernel = work(FS_EVENT_KERNEL, "k", 0, 7, 1000 * i + 500, 400);
        kernel.launcher = op, kernel.correlation = i;
        kernel.signature = launch_id((fs_launch){.grid = {i + 1, 1, 1}, .block = {32, 1, 1}, .registers = 8});
        put(kernel);
    }
}

static void test_a_failing_sink_ends_the_writing(void)
{
    fill();
    trace(0);
    int calls = kept.calls;
    CHECK(calls > 4 && lines_with(kept.text, "{\"ph\": \"f\"", NULL) == 3000);
    int64_t live = fs_memory_live();
    for (int at = 1; at <= calls; at++) {
        fs_error err = {FS_OK, ""};
        forget();
        kept.fail_at = at;
        CHECK(fs_chrome_trace_write(store, &options, NULL, &err) == FS_VALUE_ERROR);
        CHECK(kept.calls == at && strcmp(err.message, "the disk is full") == 0);
        CHECK(fs_memory_live() == live);
    }
}

static void test_every_failed_allocation_is_reported_and_leaks_nothing(void)
{
    fs_table_options table = {0};
    fill();
    for (int i = 0; i < 40; i++) put(work(FS_EVENT_KERNEL, "k", 0, 7, 100 + i, 50)); /* 40 rows */
    _Alignas(8) char bytes[FS_GIVEN_WORK_BYTES];
    fs_given_work declared = {1000, 500};
    fs_given_work_encode(&declared, bytes);
    fs_event outer = event(FS_EVENT_RANGE, "r", 0, 50);
    outer.signature = signature_id(bytes, sizeof bytes);
    uint32_t range = put(outer);
    fs_event inside = work(FS_EVENT_KERNEL, "k", 0, 9, 500, 50);
    inside.launcher = range;
    put(inside);
    int64_t live = fs_memory_live();
    for (int64_t n = 1;; n++) {
        fs_error err = {FS_OK, ""};
        forget();
        options.table = &table;
        fs_memory_fail_at(n);
        fs_status status = fs_chrome_trace_write(store, &options, NULL, &err);
        fs_memory_fail_at(0);
        CHECK(fs_memory_live() == live);
        if (status == FS_OK) {
            CHECK(n > 40 && past_value(kept.text) != NULL && strstr(kept.text, "\"stream 7 (40)\"") != NULL);
            HAS(kept.text, "\"stream\": 9", "\"FLOPs\": 1000, \"TFLOP/s\": 0.02000");
            HAS(kept.text, "{\"ph\": \"C\"", "\"pid\": 0, \"tid\": 0, \"ts\": 0.500, \"args\": {\"TFLOP/s\": 0.0200");
            return;
        }
        CHECK(status == FS_OUT_OF_MEMORY && err.status == status && err.message[0] != 0);
    }
}

int main(void)
{
    static void (*const tests[])(void) = {
        test_an_empty_store_is_a_trace,
        test_times_are_exact,
        test_trace_times_and_base_make_unix_time,
        test_extreme_times_are_valid_json,
        test_open_events_last_until_the_end,
        test_a_name_longer_than_a_piece,
        test_the_arguments_of_an_op,
        test_the_declared_work_of_a_range,
        test_device_work_and_its_launch,
        test_annotations_of_a_device_come_first,
        test_frames_syncs_and_overhead,
        test_allocated_memory_is_never_negative,
        test_a_process_id_is_no_device_id,
        test_events_without_a_lane,
        test_a_failing_sink_ends_the_writing,
        test_every_failed_allocation_is_reported_and_leaks_nothing,
    };
    int64_t live = fs_memory_live();
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        options = (fs_chrome_trace_options){.write = keep,
                                            .context = &kept,
                                            .pid = PID,
                                            .process = "python \"3\"",
                                            .version = "1.2",
                                            .members = "",
                                            .dropped = 3};
        CHECK(fs_store_create(&store, NULL) == FS_OK);
        tests[i]();
        fs_store_destroy(store);
        CHECK(fs_memory_live() == live);
    }
    forget();
    return failures != 0;
}
