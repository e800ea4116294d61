/* Fuzz target of the trace reader on arbitrary bytes. Every text is read as a whole, in parts, and by several threads.
 * All must give the same events or the same error; replays of graphs get the ops of their captures. The corpora
 * mislead the reader: events larger than a piece, text that looks like events. The tests add numbers out of range.
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
        fuzz_text whole = {(const uint8_t *)text, text_size};
        CHECK(fuzz_load(&whole, FUZZ_WHOLE, &store, &report, &err) == FS_OK, "%s: %s", err.message, text);
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
