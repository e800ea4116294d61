/* Traces written to mislead the reader: text that looks like events, numbers out of range, threads and nesting that
 * contradict each other. Results are compared with an exhaustive search. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "sources/kineto/kineto.h"
#include "store/event.h"
#include "tests/c/check.h"

enum { MOST_BYTES = 1 << 20, SMALL_PIECE = 32, THREADS = 4 };

static char text[MOST_BYTES];
static size_t text_size;

static void put(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    text_size += (size_t)vsnprintf(text + text_size, sizeof text - text_size, format, values);
    va_end(values);
    CHECK(text_size < sizeof text);
}

static int64_t read_text(void *context, int64_t offset, char *to, size_t size, fs_error *err)
{
    (void)context, (void)err;
    size_t left = text_size - (size_t)offset;
    if ((size_t)offset >= text_size) return 0;
    if (size > left) size = left;
    memcpy(to, text + offset, size);
    return (int64_t)size;
}

/* Read the text, by several threads in small pieces or by one. The caller destroys the store. */
static fs_status load(bool pieces, fs_store **store, fs_kineto_report *report, fs_error *err)
{
    fs_kineto *kineto = NULL;
    fs_status status = fs_store_create(store, err);
    fs_kineto_set_piece_bytes(pieces ? SMALL_PIECE : 0);
    CHECK_OK(fs_parallel_set_threads(pieces ? THREADS : 1, NULL));
    if (status == FS_OK) status = fs_kineto_create(&kineto, err);
    if (status == FS_OK) status = fs_kineto_scan(kineto, read_text, NULL, (int64_t)text_size, err);
    if (status == FS_OK) status = fs_kineto_finish(kineto, *store, report, err);
    fs_kineto_destroy(kineto);
    fs_kineto_set_piece_bytes(0);
    return status;
}

static uint64_t state = 88172645463325252u;

static int64_t random_below(int64_t limit) /* xorshift64 */
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int64_t)(state % (uint64_t)limit);
}

/* Pieces ----------------------------------------------------------------------------------------------------------- */

/* Write ten events whose "args" contain objects that look like events. */
static void put_events_with_lists(void)
{
    const char *list = "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"no\",\"ts\":5,\"dur\":1}";
    text_size = 0;
    for (int i = 0; i < 10; i++) {
        put("%c{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":1,\"args\":",
            "[,"[i > 0], i);
        put("{\"x\":[%s, %s,\n %s,%s]}}", list, list, list, list);
    }
}

static void test_wrongly_guessed_pieces_lose_no_event(void)
{
    for (int pieces = 0; pieces < 2; pieces++) {
        fs_store *store = NULL;
        fs_kineto_report report = {0};
        fs_error err;
        put_events_with_lists();
        put("]\n");
        CHECK(load(pieces, &store, &report, &err) == FS_OK, "%s", err.message);
        CHECK(report.events == 10 && fs_store_count(store) == 10, "%lld", (long long)report.events);
        CHECK(!report.truncated);
        fs_store_destroy(store);
    }
}

static void test_text_after_an_array_of_events_is_an_error(void)
{
    for (int pieces = 0; pieces < 2; pieces++) {
        fs_store *store = NULL;
        fs_kineto_report report = {0};
        fs_error err;
        put_events_with_lists();
        size_t end = text_size + 1;
        put("],\"x\":{},\"y\":[1, 2, 3]}");
        char expected[64];
        snprintf(expected, sizeof expected, "byte %zu: expected the end of the file, found ','", end);
        CHECK(load(pieces, &store, &report, &err) == FS_VALUE_ERROR);
        CHECK(strcmp(err.message, expected) == 0, "%s", err.message);
        fs_store_destroy(store);
    }
}

/* Numbers ---------------------------------------------------------------------------------------------------------- */

/* Whichever number has each of these values, nothing overflows (UndefinedBehaviorSanitizer checks), and every event is
 * either kept or counted as left out. */
static void test_numbers_out_of_range_overflow_nothing(void)
{
    static const char *const numbers[] = {
        "9223372036854775807",
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
        "0",
    };
    enum { COUNT = sizeof numbers / sizeof *numbers };
    for (int round = 0; round < 200; round++) {
        const char *n[40];
        for (int i = 0; i < 40; i++) n[i] = numbers[random_below(COUNT)];
        text_size = 0;
        put("{\"baseTimeNanoseconds\":%s,\"deviceProperties\":[{\"id\":0,\"totalGlobalMem\":%s,\"numSms\":%s,"
            "\"warpSize\":%s}],\"traceEvents\":[",
            n[0], n[1], n[2], n[3]);
        put("{\"ph\":\"X\",\"cat\":\"Trace\",\"name\":\"t\",\"ts\":%s,\"dur\":%s},", n[4], n[5]);
        for (int i = 0; i < 3; i++) {
            put("{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a\",\"pid\":%s,\"tid\":%s,\"ts\":%s,\"dur\":%s,\"args\":{"
                "\"External id\":%s,\"Input Dims\":[[%s,%s]],\"flops\":%s}},",
                n[6 + i], n[9 + i], n[12 + i], n[15 + i], n[18 + i], n[3], n[4], n[5]);
            put("{\"ph\":\"X\",\"cat\":\"overhead\",\"name\":\"o\",\"pid\":-1,\"tid\":%s,\"ts\":%s,\"dur\":%s},",
                n[8 + i], n[10 + i], n[13 + i]);
            put("{\"ph\":\"i\",\"cat\":\"cpu_instant_event\",\"name\":\"[memory]\",\"pid\":%s,\"tid\":%s,\"ts\":%s,"
                "\"args\":{\"Bytes\":%s,\"Device Id\":%s,\"Device Type\":%s}},",
                n[6 + i], n[9 + i], n[20 + i], n[23 + i], n[26 + i], n[i]);
            put("{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":%s,\"ts\":%s,\"dur\":%s,\"args\":{"
                "\"External id\":%s,\"stream\":%s,\"correlation\":%s,\"grid\":[%s,%s,%s],\"block\":[%s,%s,%s],"
                "\"bytes\":%s,\"registers per thread\":%s,\"In msg nelems\":%s,\"Group size\":%s,"
                "\"Collective name\":\"x\"}}%s",
                n[29 + i], n[32 + i], n[35 + i], n[18 + i], n[20 + i], n[22 + i], n[1], n[2], n[3], n[4], n[5], n[6],
                n[7], n[8], n[9], n[10], i < 2 ? "," : "]}");
        }
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

/* Overheads and memory --------------------------------------------------------------------------------------------- */

enum { EVENTS = 60, OVERHEADS = 20, RECORDS = 30, LANES = 5 };

typedef struct {
    int64_t start, end, lane;
    int parent;
} event;

/* Generate events that nest on each thread: each lies within an earlier one, after that one's other children. */
static void make_events(event *events)
{
    int64_t free_from[EVENTS], lane_free[LANES] = {0};
    for (int i = 0; i < EVENTS; i++) {
        int parent = i > 0 && random_below(3) > 0 ? (int)random_below(i) : -1;
        if (parent >= 0 && events[parent].end - free_from[parent] < 20) parent = -1;
        event *current = &events[i];
        current->parent = parent;
        current->lane = parent >= 0 ? events[parent].lane : random_below(LANES);
        int64_t least = parent >= 0 ? free_from[parent] : lane_free[current->lane];
        int64_t most = parent >= 0 ? events[parent].end : least + 3000;
        current->start = least + 1 + random_below((most - least) / 4 + 1);
        current->end = current->start + 3 + random_below((most - current->start - 4) / 2 + 1);
        free_from[i] = current->start;
        if (parent >= 0) free_from[parent] = current->end + 1;
        else lane_free[current->lane] = current->end + 1 + random_below(50);
    }
}

static bool lies_in(const event *inner, const event *outer)
{
    return outer->start <= inner->start && inner->end <= outer->end;
}

static int64_t length_of(const event *of)
{
    return of->end - of->start;
}

/* Return the shortest event around [start, end] on one thread, or on all (lane -1); -1 if there is none. */
static int shortest(const event *events, int64_t start, int64_t end, int64_t lane)
{
    int best = -1;
    for (int i = 0; i < EVENTS; i++) {
        if (events[i].start > start || events[i].end < end || (lane >= 0 && events[i].lane != lane)) continue;
        if (best < 0 || events[i].end - events[i].start < events[best].end - events[best].start) best = i;
    }
    return best;
}

/* Return the name of the event's parent as a number, or -1 without a parent. */
static int parent_of(const fs_store *store, uint32_t index)
{
    uint32_t parent = FS_EVENT_AT(store, index, parent);
    return parent == FS_NONE ? -1 : atoi(fs_store_name_text(store, FS_EVENT_AT(store, parent, name)) + 1);
}

static void test_overhead_lies_in_the_shortest_event_and_memory_in_a_running_one(void)
{
    static const char form[] = "{\"ph\":\"%c\",\"cat\":\"%s\",\"name\":\"%s%d\",\"pid\":1,\"tid\":%d,\"ts\":%d.%03d,"
                               "\"dur\":%d.%03d,\"args\":{\"Bytes\":%d,\"Device Type\":0}},";
    for (int round = 0; round < 100; round++) {
        event events[EVENTS], overheads[OVERHEADS], records[RECORDS];
        make_events(events);
        text_size = 0;
        put("{\"traceEvents\":[");
        for (int i = 0; i < EVENTS; i++) {
            int64_t length = events[i].end - events[i].start;
            put(form, 'X', "cpu_op", "a", i, (int)events[i].lane + 7, (int)(events[i].start / 1000),
                (int)(events[i].start % 1000), (int)(length / 1000), (int)(length % 1000), 0);
        }
        for (int i = 0; i < OVERHEADS; i++) { /* in sequence, so that none lies within another */
            overheads[i].start = (i > 0 ? overheads[i - 1].end : 0) + 1 + random_below(600);
            overheads[i].end = overheads[i].start + 1 + random_below(40);
            int64_t length = overheads[i].end - overheads[i].start;
            put(form, 'X', "overhead", "o", i, -1, (int)(overheads[i].start / 1000), (int)(overheads[i].start % 1000),
                (int)(length / 1000), (int)(length % 1000), 0);
        }
        for (int i = 0; i < RECORDS; i++) {
            records[i].start = random_below(12000);
            records[i].lane = random_below(LANES + 2);
            text_size += (size_t)snprintf(
                text + text_size, sizeof text - text_size,
                "{\"ph\":\"i\",\"cat\":\"cpu_instant_event\",\"name\":\"[memory]\",\"pid\":1,\"tid\":%d,"
                "\"ts\":%d.%03d,\"args\":{\"Bytes\":%d,\"Device Type\":0}}%s",
                (int)records[i].lane + 7, (int)(records[i].start / 1000), (int)(records[i].start % 1000), i + 1,
                i + 1 < RECORDS ? "," : "]}");
        }
        fs_store *store = NULL;
        fs_kineto_report report = {0};
        fs_error err;
        CHECK(load(round % 2 == 1, &store, &report, &err) == FS_OK, "%s", err.message);
        for (uint32_t index = 0; index < fs_store_count(store); index++) {
            uint8_t kind = FS_EVENT_AT(store, index, kind);
            if (kind == FS_EVENT_OVERHEAD) {
                int which = atoi(fs_store_name_text(store, FS_EVENT_AT(store, index, name)) + 1);
                int around = shortest(events, overheads[which].start, overheads[which].end, -1);
                int actual = parent_of(store, index);
                if (around >= 0 && actual != around) { /* it must be an event of equal length */
                    CHECK(actual >= 0, "%d", around);
                    CHECK(lies_in(&overheads[which], &events[actual]), "%d: %d", around, actual);
                    CHECK(length_of(&events[actual]) == length_of(&events[around]), "%d: %d", around, actual);
                }
            } else if (kind == FS_EVENT_MEMORY && FS_EVENT_AT(store, index, lane) != FS_NONE) {
                const event *record = &records[FS_EVENT_AT(store, index, bytes) - 1];
                int own = record->lane < LANES ? shortest(events, record->start, record->start, record->lane) : -1;
                int any = shortest(events, record->start, record->start, -1), actual = parent_of(store, index);
                uint32_t parent = FS_EVENT_AT(store, index, parent);
                bool in_overhead = parent != FS_NONE && FS_EVENT_AT(store, parent, kind) == FS_EVENT_OVERHEAD;
                if (in_overhead) continue; /* overheads are candidates too, and the shortest ones */
                if (own >= 0) CHECK(actual == own, "%d: %d", own, actual);
                else if (any < 0) CHECK(actual < 0, "%d", actual);
                else
                    CHECK(actual >= 0 && events[actual].start <= record->start && events[actual].end >= record->start,
                          "%d: %d", any, actual);
            }
        }
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
static void test_hashes_of_neighbours_do_not_collide(void)
{
    enum { KEYS = 1 << 16, BITS = 20 };
    uint64_t *hashes = malloc(KEYS * sizeof *hashes);
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
    free(hashes);
}

int main(void)
{
    int64_t alive = fs_memory_live();
    test_wrongly_guessed_pieces_lose_no_event();
    test_text_after_an_array_of_events_is_an_error();
    test_numbers_out_of_range_overflow_nothing();
    test_overhead_lies_in_the_shortest_event_and_memory_in_a_running_one();
    test_hashes_of_neighbours_do_not_collide();
    CHECK(fs_memory_live() == alive);
    return failures > 0;
}
