/* What is written: numbers in JSON, compared with printf; and Chrome traces of stores that Python cannot make, failing
 * writes and failing allocations. Python's tests check whole traces in tests/traces/test_trace.py. */
#define _GNU_SOURCE /* memmem */
#include "tests/c/events.h"
#include "views/chrome_trace.h"
#include "views/json.h"

/* JSON ------------------------------------------------------------------------------------------------------------- */

static fs_json json;

/* Return the text written since the last call. */
static const char *written(void)
{
    FS_JSON_LITERAL(&json, "\0");
    json.size = 0;
    CHECK(json.status == FS_OK);
    return json.bytes;
}

#define CHECK_WRITTEN(expected)                                            \
    do {                                                                   \
        const char *text_ = written();                                     \
        CHECK(strcmp(text_, expected) == 0, "%s for %s", text_, expected); \
    } while (0)

TEST(integers_and_times)
{
    static const int64_t edges[] = {0, 9, 10, 99, 100, 999, 1000, 999999, 1000000, INT64_MAX, INT64_MIN, -1, -10, -100};
    char expected[64];
    CHECK_OK(fs_json_init(&json, NULL, NULL, NULL));
    for (size_t i = 0; i < 20000; i++) {
        int64_t value = i < COUNT_OF(edges) ? edges[i] : (int64_t)random_bits() >> random_below(64);
        fs_json_integer(&json, value);
        snprintf(expected, sizeof expected, "%lld", (long long)value);
        CHECK_WRITTEN(expected);
        fs_json_time(&json, (uint64_t)value);
        unsigned long long ns = (unsigned long long)value;
        snprintf(expected, sizeof expected, "%llu.%03llu", ns / 1000, ns % 1000);
        CHECK_WRITTEN(expected);
    }
    fs_json_clear(&json);
}

TEST(numbers)
{
    static const struct {
        double value;
        int decimals; /* 0: an integer if the value is one */
        const char *expected;
    } cases[] = {
        {0, 0, "0"},
        {-0.0, 0, "0"},
        {1.5, 0, "1.500000"},
        {-3, 0, "-3"},
        {1e18, 0, "1000000000000000000"},
        {NAN, 0, "null"},
        {-INFINITY, 0, "null"},
        {1e38, 0, "null"},
        {0.9999999, 6, "1.000000"},
        {-0.25, 1, "-0.3"},
        {2, 3, "2.000"},
        {1e18, 6, "null"},
        {NAN, 6, "null"},
        {4e-10, 9, "0.000000000"},
    };
    CHECK_OK(fs_json_init(&json, NULL, NULL, NULL));
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (cases[i].decimals > 0) fs_json_decimal(&json, cases[i].value, cases[i].decimals);
        else fs_json_number(&json, cases[i].value);
        CHECK_WRITTEN(cases[i].expected);
    }
    for (int i = 0; i < 20000; i++) {
        char expected[64];
        double value = ldexp((double)(random_bits() >> 11) * 0x1p-53 - 0.5, (int)random_below(125));
        fs_json_number(&json, value);
        snprintf(expected, sizeof expected, "%.0f", value); /* from 2^53 on an integer, exactly */
        if (fabs(value) >= 0x1p53) CHECK_WRITTEN(expected);
        else CHECK(fabs(strtod(written(), NULL) - value) <= 5.1e-7 + fabs(value) * 1e-15);
    }
    fs_json_clear(&json);
}

static size_t handed_on, largest;

static fs_status count_bytes(void *context, const char *bytes, size_t size, fs_error *err)
{
    (void)context, (void)err;
    for (size_t i = 0; i < size; i++) CHECK(bytes[i] == (char)('a' + (handed_on + i) % 23));
    handed_on += size;
    if (size > largest) largest = size;
    return FS_OK;
}

TEST(text_is_handed_on_in_order_and_in_pieces)
{
    static char text[3 * FS_JSON_PIECE];
    size_t total = 0;
    CHECK_OK(fs_json_init(&json, count_bytes, NULL, NULL));
    for (int i = 0; i < 1000; i++) {
        size_t size = i % 500 == 7 ? sizeof text : (size_t)random_below(2000);
        for (size_t j = 0; j < size; j++) text[j] = (char)('a' + (total + j) % 23);
        fs_json_put(&json, text, size);
        total += size;
    }
    CHECK(fs_json_flush(&json) == FS_OK && handed_on == total && largest == FS_JSON_PIECE);
    CHECK(fs_json_flush(&json) == FS_OK && handed_on == total);
    fs_json_clear(&json);
}

TEST(a_failed_allocation_is_remembered)
{
    char text[5000];
    memset(text, 'x', sizeof text);
    fs_error err = {FS_OK, ""};
    CHECK_OK(fs_json_init(&json, NULL, NULL, &err));
    fs_memory_fail_at(1);
    fs_json_put(&json, text, sizeof text);
    fs_memory_fail_at(0);
    fs_json_put(&json, text, sizeof text);
    CHECK(json.status == FS_OUT_OF_MEMORY && err.message[0] != 0 && json.size == 0);
    fs_json_clear(&json);
    fs_memory_fail_at(1);
    CHECK(fs_json_init(&json, NULL, NULL, &err) == FS_OUT_OF_MEMORY);
    fs_memory_fail_at(0);
    fs_json_put(&json, text, 1);
    fs_json_clear(&json);
}

/* Chrome traces ---------------------------------------------------------------------------------------------------- */

static struct {
    char *text;
    size_t size;
    int calls, fail_at; /* fail_at 0: never */
} kept;

static fs_status keep(void *context, const char *bytes, size_t size, fs_error *err)
{
    CHECK(context == &kept && size > 0 && size <= FS_JSON_PIECE);
    CHECK(kept.fail_at == 0 || kept.calls < kept.fail_at);
    if (++kept.calls == kept.fail_at) return fs_fail(err, FS_VALUE_ERROR, "the disk is full");
    kept.text = realloc(kept.text, kept.size + size + 1);
    memcpy(kept.text + kept.size, bytes, size);
    kept.size += size;
    kept.text[kept.size] = 0;
    return FS_OK;
}

static fs_status write_trace(int64_t pid, int64_t *left_out, fs_error *err)
{
    static const fs_table_options table;
    fs_chrome_trace_options options = {.write = keep,
                                       .context = &kept,
                                       .pid = pid,
                                       .process = "python \"3\"",
                                       .version = "1.2",
                                       .members = "",
                                       .dropped = 3,
                                       .table = &table};
    free(kept.text);
    kept.text = NULL;
    kept.size = 0;
    kept.calls = 0;
    return fs_chrome_trace_write(store, &options, left_out, err);
}

/* Write the trace, and return its text, valid until the next call. */
static const char *trace(int64_t pid, int64_t expected_left_out)
{
    int64_t left_out = -1;
    fs_error err = {FS_OK, ""};
    CHECK(write_trace(pid, &left_out, &err) == FS_OK, "%s", err.message);
    CHECK(left_out == expected_left_out);
    return kept.text;
}

/* Return the number of lines that contain both parts. */
static int lines_with(const char *text, const char *first, const char *second)
{
    int matches = 0;
    for (const char *line = text; *line != 0;) {
        size_t size = strcspn(line, "\n");
        matches +=
            memmem(line, size, first, strlen(first)) != NULL && memmem(line, size, second, strlen(second)) != NULL;
        line += size + (line[size] == '\n');
    }
    return matches;
}

#define HAS(text, first, second) CHECK(lines_with(text, first, second) == 1, "%s", text)

/* Append an event of thread 4001. */
static fs_event of_thread(fs_event_kind kind, const char *name, int64_t start, int64_t duration)
{
    fs_event event = event_of(kind, name, start, duration);
    CHECK_OK(fs_store_thread_lane_of(store, 4001, &event.lane, NULL));
    return event;
}

TEST(a_process_id_is_no_device_id)
{
    put(of_thread(FS_EVENT_OP, "x::a", 0, 1));
    work(FS_EVENT_KERNEL, "k", 1, 7, FS_NONE, FS_NONE, 5, 6);
    const char *text = trace(1, 0); /* as in a container */
    HAS(text, "cpu_op", "\"pid\": 4194305, ");
    HAS(text, "\"kernel\"", "\"pid\": 1, ");
}

TEST(events_without_a_lane)
{
    fs_event event = event_of(FS_EVENT_OP, "x::a", 0, 1);
    CHECK_OK(fs_store_append(store, &event, NULL, NULL));
    event.kind = FS_EVENT_KERNEL, event.device = 3;
    CHECK_OK(fs_store_append(store, &event, NULL, NULL));
    event.device = -1, event.start = 2;
    CHECK_OK(fs_store_append(store, &event, NULL, NULL));
    const char *text = trace(4000, 0);
    HAS(text, "cpu_op", "\"pid\": 4000, \"tid\": 0, ");
    HAS(text, "\"kernel\"", "\"pid\": 3, \"tid\": 0, \"ts\": 0.000, \"dur\": 0.001, \"args\": {\"device\": 3}}");
    HAS(text, "\"kernel\"", "\"pid\": 0, \"tid\": 0, \"ts\": 0.002, \"dur\": 0.001}");
}

/* Fill the store with every feature that allocates. */
static void fill(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "x::%u", i);
        uint32_t launcher = put(of_thread(FS_EVENT_OP, name, 1000 * i, 900));
        fs_event launch = of_thread(FS_EVENT_RUNTIME, "cudaLaunchKernel", 1000 * i + 10, 5);
        launch.parent = launcher, launch.correlation = i;
        put(launch);
        fs_event kernel = work_of(FS_EVENT_KERNEL, "k", 0, 7, 1000 * i + 500, 1000 * i + 900);
        kernel.launcher = launcher, kernel.correlation = i;
        uint64_t bytes[FS_LAUNCH_BYTES / 8];
        fs_launch_encode(&(fs_launch){.grid = {i + 1, 1, 1}, .block = {32, 1, 1}, .registers = 8}, bytes);
        kernel.signature = signature_of(bytes, sizeof bytes);
        put(kernel);
    }
}

TEST(a_failing_sink_ends_the_writing)
{
    fill(3000);
    trace(4000, 0);
    int calls = kept.calls;
    CHECK(calls > 4 && lines_with(kept.text, "{\"ph\": \"f\"", "") == 3000);
    int64_t live = fs_memory_live();
    for (int at = 1; at <= calls; at++) {
        fs_error err = {FS_OK, ""};
        kept.fail_at = at;
        CHECK(write_trace(4000, NULL, &err) == FS_VALUE_ERROR);
        CHECK(kept.calls == at && strcmp(err.message, "the disk is full") == 0);
        CHECK(fs_memory_live() == live);
    }
    kept.fail_at = 0;
}
