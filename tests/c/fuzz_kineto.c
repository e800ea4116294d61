/* Fuzz target of the trace reader on arbitrary bytes. Every text is read as a whole, in parts, and by several threads.
 * All must give the same events or the same error; replays of graphs get the ops of their captures. The tests also
 * read texts that mislead the reader: events larger than a piece, text that looks like events, numbers out of range.
 * Python's tests check usual traces. */
#include <stdarg.h>

#include "base/hash.h"
#include "sources/graphs/replays.h"
#include "tests/c/fuzz_load.h"

/* The result of reading a text. */
typedef struct {
    fs_status status;
    uint64_t digest; /* of the events; 0 on failure */
    fs_error err;
} fuzz_outcome;

static fuzz_outcome fuzz_one(const fuzz_text *text, fuzz_way way)
{
    fs_store *store;
    fs_kineto_report report;
    fuzz_outcome outcome = {.err = {.message = ""}};
    outcome.status = fuzz_load(text, way, &store, &report, &outcome.err);
    if (outcome.status == FS_OK) outcome.digest = fuzz_digest(store);
    fs_store_destroy(store);
    return outcome;
}

/* Give the replays of graphs that the trace itself captured their ops: with the names of kernels, and as if each launch
 * were known to be of the last graph. */
static void join_graphs(const fs_store *store)
{
    for (int tied = 0; tied < 2; tied++) {
        fs_captures captures = {0};
        fs_store *into = NULL;
        fs_replay_report report;
        bool ready = done(fs_captures_add(&captures, store, &fuzz_error)) && done(fs_store_create(&into, &fuzz_error));
        if (tied && captures.graph_count > 0) captures.graphs[captures.graph_count - 1].id = 1;
        for (uint32_t i = 0; ready && tied && i < fs_store_count(store); i++)
            if (FS_EVENT_AT(store, i, kind) == FS_EVENT_RUNTIME)
                ready = done(fs_captures_add_tied(&captures, i, 1, &fuzz_error));
        fs_captures_sort_tied(&captures);
        if (ready && done(fs_replays_join(store, &captures, into, &report, &fuzz_error))) {
            fuzz_check_order(into);
            FUZZ_CHECK(report.owned <= report.matched && report.matched <= report.works, "%lld",
                       (long long)report.works);
        }
        fs_captures_clear(&captures);
        fs_store_destroy(into);
    }
}

static fuzz_stage *const stages[] = {join_graphs, NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_text text = {data, size};
    fuzz_set_up();
    fuzz_outcome first = fuzz_one(&text, FUZZ_WHOLE);
    for (int way = FUZZ_WHOLE + 1; way < FUZZ_WAY_COUNT; way++) {
        fuzz_outcome other = fuzz_one(&text, (fuzz_way)way);
        if (first.status == FS_OUT_OF_MEMORY || other.status == FS_OUT_OF_MEMORY) return 0;
        FUZZ_CHECK(first.status == other.status, "way %d: \"%s\", \"%s\"", way, first.err.message, other.err.message);
        FUZZ_CHECK(first.digest == other.digest, "way %d", way);
        FUZZ_CHECK(strcmp(first.err.message, other.err.message) == 0, "way %d: \"%s\", \"%s\"", way, first.err.message,
                   other.err.message);
    }
    fs_store *store;
    fs_kineto_report report;
    if (fuzz_load(&text, FUZZ_WHOLE, &store, &report, &fuzz_error) != FS_OK) return 0;
    join_graphs(store);
    fs_store_destroy(store);
    return 0;
}

CORPORA("fuzz/corpus/kineto", "fuzz/corpus/tables", "data/corpus")

static void check_refused(const void *bytes, size_t size)
{
    fuzz_text text = {bytes, size};
    bool refused = fuzz_one(&text, FUZZ_WHOLE).status != FS_OK;
    CHECK(refused == (strncmp(strrchr(fuzz_input, '/'), "/no_", 4) == 0), "%s", fuzz_input);
}

TEST(files_named_no_fail_and_all_others_load)
{
    CHECK(each_file("data/corpus", check_refused) > 10);
}

static fuzz_text failing;

static fs_status read_failing(fs_error *err)
{
    fuzz_outcome outcome = fuzz_one(&failing, (fuzz_way)random_below(FUZZ_WAY_COUNT));
    *err = outcome.err;
    return outcome.status == FS_OUT_OF_MEMORY ? outcome.status : FS_OK;
}

static void fail_on(const void *bytes, size_t size)
{
    failing = (fuzz_text){bytes, size};
    fail_each_allocation(read_failing);
}

static void fail_to_join_on(const void *bytes, size_t size)
{
    fuzz_fail_stages(bytes, size, stages);
}

TEST(memory_that_runs_out_is_an_error_and_leaks_nothing)
{
    fuzz_set_up();
    CHECK(each_file("data/corpus", fail_on) > 10);
    CHECK(each_file("fuzz/corpus/kineto", fail_to_join_on) > 1);
}

/* Texts ------------------------------------------------------------------------------------------------------------ */

static char text[1 << 17];
static size_t text_size;

static void put(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    text_size += (size_t)vsnprintf(text + text_size, sizeof text - text_size, format, values);
    va_end(values);
    CHECK(text_size < sizeof text);
}

/* Read the text, by several threads in small pieces or by one. The caller destroys the store. */
static fs_status load(bool pieces, fs_store **store, fs_kineto_report *report, fs_error *err)
{
    fuzz_text whole = {(const uint8_t *)text, text_size};
    fs_kineto_set_piece_bytes(pieces ? FUZZ_PIECE_BYTES : 0);
    CHECK_OK(fs_parallel_set_threads(pieces ? 4 : 1, NULL));
    return fuzz_load(&whole, FUZZ_WHOLE, store, report, err);
}

/* Return the number of events read from the text if its bytes from BEGUN to `until` are fed at once, the others a few
 * at a time. */
enum { BEGUN = 40, A_FEW = 100 };

static uint32_t events_fed(size_t until)
{
    fs_kineto *kineto = NULL;
    fs_store *store = NULL;
    fs_kineto_report report;
    CHECK(fs_kineto_create(&kineto, NULL) == FS_OK && fs_store_create(&store, NULL) == FS_OK);
    CHECK_OK(fs_kineto_feed(kineto, text, BEGUN, NULL));
    CHECK_OK(fs_kineto_feed(kineto, text + BEGUN, until - BEGUN, NULL));
    for (size_t at = until; at < text_size; at += A_FEW)
        CHECK_OK(fs_kineto_feed(kineto, text + at, text_size - at < A_FEW ? text_size - at : A_FEW, NULL));
    CHECK(fs_kineto_finish(kineto, store, &report, NULL) == FS_OK && !report.truncated);
    uint32_t count = fs_store_count(store);
    fs_store_destroy(store);
    fs_kineto_destroy(kineto);
    return count;
}

TEST(an_event_larger_than_a_piece_is_read)
{
    enum { EVENTS = 5, LARGE_BYTES = 2000 };
    text_size = 0;
    for (int i = 0; i < EVENTS; i++)
        put("%c{\"ph\": \"X\", \"cat\": \"cpu_op\", \"pid\": 1, \"tid\": 1, \"dur\": 1, \"ts\": %d, \"name\": \"%*s\"}",
            "[,"[i > 0], 10 * i, i == 1 ? LARGE_BYTES : 1, "n");
    put("]");
    fs_kineto_set_piece_bytes(128);
    CHECK_OK(fs_parallel_set_threads(3, NULL));
    for (size_t until = BEGUN; until <= text_size; until += 7)
        CHECK(events_fed(until) == EVENTS, "%zu bytes at once", until);
}

/* Write ten events whose "args" contain objects that look like events. */
static void put_events_with_lists(void)
{
    const char *list = "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"no\",\"ts\":5,\"dur\":1}";
    text_size = 0;
    for (int i = 0; i < 10; i++)
        put("%c{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":1,\"args\":"
            "{\"x\":[%s, %s,\n %s,%s]}}",
            "[,"[i > 0], i, list, list, list, list);
}

TEST(wrongly_guessed_pieces_lose_no_event_and_find_what_follows)
{
    for (int pieces = 0; pieces < 2; pieces++) {
        fs_store *store = NULL;
        fs_kineto_report report = {0};
        fs_error err;
        char expected[64];
        put_events_with_lists();
        snprintf(expected, sizeof expected, "byte %zu: expected the end of the file, found ','", text_size + 1);
        put("]\n");
        CHECK(load(pieces, &store, &report, &err) == FS_OK, "%s", err.message);
        CHECK(report.events == 10 && fs_store_count(store) == 10 && !report.truncated);
        fs_store_destroy(store);
        text_size--;
        put(",\"x\":{},\"y\":[1, 2, 3]}");
        CHECK(load(pieces, &store, &report, &err) == FS_VALUE_ERROR && strcmp(err.message, expected) == 0, "%s",
              err.message);
    }
}

/* Whichever number has each of these values, nothing overflows (UndefinedBehaviorSanitizer checks), and every event is
 * either kept or counted as left out. */
TEST(numbers_out_of_range_overflow_nothing)
{
    static const char *const numbers[] = {"9223372036854775807",
                                          "-9223372036854775808",
                                          "9223372036854775808",
                                          "18446744073709551615",
                                          "1e400",
                                          "-1e400",
                                          "1e18",
                                          "9.3e15",
                                          "-9.3e15",
                                          "2305843009213693951",
                                          "1e-400",
                                          "-1",
                                          "4294967297",
                                          "99999999999999999999999999",
                                          "0"};
    static const char head[] = "{\"baseTimeNanoseconds\":#,\"deviceProperties\":[{\"id\":0,\"totalGlobalMem\":#,"
                               "\"numSms\":#,\"warpSize\":#}],\"traceEvents\":["
                               "{\"ph\":\"X\",\"cat\":\"Trace\",\"name\":\"t\",\"ts\":#,\"dur\":#}";
    static const char events[] =
        ",{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a\",\"pid\":#,\"tid\":#,\"ts\":#,\"dur\":#,\"args\":{"
        "\"External id\":#,\"Input Dims\":[[#,#]],\"flops\":#}},"
        "{\"ph\":\"X\",\"cat\":\"overhead\",\"name\":\"o\",\"pid\":-1,\"tid\":#,\"ts\":#,\"dur\":#},"
        "{\"ph\":\"i\",\"cat\":\"cpu_instant_event\",\"name\":\"[memory]\",\"pid\":#,\"tid\":#,\"ts\":#,"
        "\"args\":{\"Bytes\":#,\"Device Id\":#,\"Device Type\":#}},"
        "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":#,\"ts\":#,\"dur\":#,\"args\":{"
        "\"External id\":#,\"stream\":#,\"correlation\":#,\"grid\":[#,#,#],\"block\":[#,#,#],"
        "\"bytes\":#,\"registers per thread\":#,\"In msg nelems\":#,\"Group size\":#,\"Collective name\":\"x\"}}";
    for (int round = 0; round < 200; round++) {
        const char *templates[] = {head, events, events, events, "]}"};
        text_size = 0;
        for (size_t i = 0; i < COUNT_OF(templates); i++)
            for (const char *at = templates[i]; *at != 0; at++)
                put("%.*s", *at == '#' ? 40 : 1, *at == '#' ? numbers[random_below((int64_t)COUNT_OF(numbers))] : at);
        fs_store *store = NULL;
        fs_kineto_report report = {0};
        fs_error err;
        CHECK(load(false, &store, &report, &err) == FS_OK, "%s: %s", err.message, text);
        CHECK(report.events == 13);
        fs_device_facts facts = fs_store_device(store, 0);
        CHECK(facts.sm_count >= -1 && facts.sm_count <= INT32_MAX && facts.total_memory >= -1);
        fs_store_destroy(store);
    }
}

/* Hashes ----------------------------------------------------------------------------------------------------------- */

static int compare_numbers(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Of 2^16 hashes of keys that differ in one byte, as many pairs agree in their low 20 bits as at random: n²/2^21, ± a
 * third. */
TEST(hashes_of_neighbours_do_not_collide)
{
    enum { KEYS = 1 << 16, BITS = 20 };
    static uint64_t hashes[KEYS];
    const uint64_t *keys = fs_hash_keys();
    for (int size = 3; size < 40; size += 7) {
        char bytes[64] = {0};
        for (int i = 0; i < KEYS; i++) {
            bytes[0] = (char)(i & 0xff);
            bytes[size - 1] = (char)(i >> 8);
            hashes[i] = fs_hash_bytes(keys, bytes, (size_t)size) & ((1u << BITS) - 1);
        }
        qsort(hashes, KEYS, sizeof *hashes, compare_numbers);
        int equal = 0;
        for (int i = 1; i < KEYS; i++) equal += hashes[i] == hashes[i - 1];
        CHECK(equal > 1300 && equal < 2700, "%d bytes: %d", size, equal);
    }
}
