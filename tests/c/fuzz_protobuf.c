/* Fuzz target of the readers of protobuf: of XSpaces, of Perfetto's traces and of modules of HLO. Any bytes are either
 * read, and then keep the promises of the headers and give the same events by any number of threads, or are an error
 * that names a byte of the input. */
#include "sources/kineto/json_scan.h"
#include "sources/protobuf/pftrace.h"
#include "sources/protobuf/xspace.h"
#include "tests/c/fuzz_load.h"
#include "tests/c/hlo_check.h"

CORPORA("fuzz/corpus/protobuf")

/* An error is a lack of memory, or names a byte of the input. */
static void check_error(fs_status status, const fs_error *err, size_t size)
{
    unsigned long long at = 0;
    if (status == FS_OUT_OF_MEMORY) return;
    FUZZ_CHECK(status == FS_VALUE_ERROR, "%d: %s", (int)status, err->message);
    FUZZ_CHECK(sscanf(err->message, "byte %llu", &at) == 1 && at <= size, "%s", err->message);
}

static void check_ties(const fs_rows *rows, const fs_store *store)
{
    fs_intern instructions = {0};
    fs_row_tie *ties;
    uint32_t count;
    fs_error err;
    if (fs_rows_ties(rows, &ties, &count, &instructions, &err) == FS_OK) {
        for (uint32_t i = 0; i < count; i++) {
            FUZZ_CHECK(ties[i].event < fs_store_count(store), "event %u", ties[i].event);
            FUZZ_CHECK(ties[i].instruction < instructions.count, "instruction %u", ties[i].instruction);
            FUZZ_CHECK(i == 0 || ties[i].event > ties[i - 1].event, "event %u twice", ties[i].event);
        }
        fs_free(ties);
    }
    fs_intern_clear(&instructions);
}

/* Return a digest of the events; 0: an error. */
static uint64_t read_space(const uint8_t *data, size_t size, int threads)
{
    static const char head[2 + FS_SCAN_PADDING] = "{}";
    fs_rows *rows = NULL;
    fs_store *store = NULL;
    fs_xspace space = {.rows = NULL};
    fs_rows_report report;
    fs_error err = {.message = ""};
    uint64_t digest = 0;
    FS_IGNORE(fs_parallel_set_threads(threads, NULL));
    fs_status status = fs_rows_create(&rows, &err);
    if (status == FS_OK) status = fs_store_create(&store, &err);
    if (status == FS_OK) status = fs_xspace_read(&space, data, size, rows, &err);
    if (status == FS_OK) status = fs_rows_finish(rows, head, 2, &store, &report, &err);
    if (status == FS_OK) {
        fuzz_check_order(store);
        check_ties(rows, store);
        digest = fuzz_digest(store);
    } else {
        check_error(status, &err, size);
    }
    fs_xspace_clear(&space);
    fs_rows_destroy(rows);
    fs_store_destroy(store);
    return digest;
}

static fs_status feed(void *context, const char *text, size_t size, fs_error *err)
{
    return fs_kineto_feed(context, text, size, err);
}

/* What is written of a trace of Perfetto is a trace that can be read. */
static void read_trace(const uint8_t *data, size_t size)
{
    fs_kineto *kineto = NULL;
    fs_store *store = NULL;
    fs_kineto_report report;
    fs_pftrace_packed *packed;
    uint32_t count;
    fs_error err = {.message = ""};
    fs_status status = fs_kineto_create(&kineto, &err);
    if (status == FS_OK) status = fs_store_create(&store, &err);
    if (status == FS_OK) {
        status = fs_pftrace_read(data, size, feed, kineto, &err);
        if (status != FS_OK) check_error(status, &err, size);
    }
    if (status == FS_OK) {
        status = fs_kineto_finish(kineto, store, &report, &err);
        FUZZ_CHECK(status == FS_OK || status == FS_OUT_OF_MEMORY, "%s", err.message);
        FUZZ_CHECK(status != FS_OK || !report.truncated, "an unfinished text was written");
        if (status == FS_OK) fuzz_check_order(store);
    }
    fs_kineto_destroy(kineto);
    fs_store_destroy(store);
    if (fs_pftrace_list_packed(data, size, &packed, &count, &err) != FS_OK) return;
    for (uint32_t i = 0; i < count; i++) {
        size_t places[] = {packed[i].begin, packed[i].content, packed[i].content_end, packed[i].end, size};
        for (int k = 0; k < 4; k++) FUZZ_CHECK(places[k] <= places[k + 1], "packet %u", i);
        FUZZ_CHECK(i == 0 || packed[i].begin >= packed[i - 1].begin, "packet %u", i);
    }
    fs_free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fs_hlo_module module;
    fs_error err = {.message = ""};
    uint64_t first = read_space(data, size, 1), second = read_space(data, size, 3);
    FUZZ_CHECK(first == second || first == 0 || second == 0, "threads change the events");
    fs_status status = fs_hlo_read_proto(&module, data, size, &err);
    if (status == FS_OK) check_module(&module);
    else check_error(status, &err, size);
    fs_hlo_clear(&module);
    read_trace(data, size);
    return 0;
}

/* Tests ------------------------------------------------------------------------------------------------------------ */

/* An XSpace: a stream with a kernel, its names, a stat and a host; and a module, each cut off. */
static const uint8_t SPACE[] =
    "\n\x45\x12\x0d/device:GPU:0\x1a\x19\x08\x0e\x12\x09Stream #7\x22\x0a\x08\x01\x10\xe8\x07"
    "\x18\xd0\x0f\x22\x00\x22\x07\x08\x01\x12\x03\x12\x01k\x2a\x10\x08\x02\x12\x0c\x12\x0a"
    "core_count\x22\x01h";
static const uint8_t MODULE[] = "\x0a\x01m\x1a\x25\x0a\x01"
                                "c\x12\x20\x0a\x01p\x12\x09parameter\x1a\x0b\x10\x0b\x1a\x02"
                                "\x08\x02*\x03\x0a\x01\x00\x98\x02\x07";
static const struct {
    const void *bytes;
    size_t size;
} messages[] = {{SPACE, sizeof SPACE - 1}, {MODULE, sizeof MODULE - 1}};

TEST(messages_that_end_at_any_byte)
{
    for (size_t i = 0; i < COUNT_OF(messages); i++)
        for (size_t size = 0; size <= messages[i].size; size++) fuzz_exact(messages[i].bytes, size);
}

TEST(failing_allocations)
{
    for (int64_t place = 1; place <= 120; place++) {
        for (size_t i = 0; i < COUNT_OF(messages); i++) {
            fs_memory_fail_at(place);
            LLVMFuzzerTestOneInput(messages[i].bytes, messages[i].size);
            fs_memory_fail_at(0);
        }
    }
}
