/* Fuzz target of the reader of databases, built and run with libFuzzer by tests/fuzz/run.sh. The input is a file of
 * SQLite, whose tables are those of Nsight Systems or rocprofv3; where its application id is not 0, that is the size of
 * the database, and a write-ahead log follows. The frames of the log get the checksums that SQLite accepts.
 *
 * Any other input is rows, without SQLite: cells as take_rows() decodes them.
 *
 * Databases are changed page by page, so that the structure of the file survives most changes.
 *
 * test_fuzz_sqlite.c runs it over its corpus without libFuzzer. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/parallel.h"
#include "sources/sqlite/library.h"
#include "sources/sqlite/query.h"
#include "tests/c/fuzz_load.h"
#include "tests/c/fuzz_sqlite_queries.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most) __attribute__((weak));

enum { HEADER = 100, LOG_HEADER = 32, FRAME_HEADER = 24, AT_APPLICATION = 68, MOST_ASKED = 64 };

/* Numbers of the file are big-endian. */
static uint32_t number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_number(uint8_t *at, uint32_t number)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(number >> (24 - 8 * i));
}

/* The size of the database; that of the input if no log follows. */
static size_t database_size(const uint8_t *data, size_t size)
{
    uint32_t stated = size >= HEADER ? number_at(data + AT_APPLICATION) : 0;
    return stated > 0 && stated < size ? stated : size;
}

/* The log -----------------------------------------------------------------------------------------------------------
 */

/* Continue a checksum over words, in the order of bytes that the log's magic number states. */
static void add_words(const uint8_t *at, size_t size, bool big, uint32_t sum[2])
{
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint32_t words[2] = {number_at(at + i), number_at(at + i + 4)};
        if (!big) words[0] = __builtin_bswap32(words[0]), words[1] = __builtin_bswap32(words[1]);
        sum[0] += words[0] + sum[1];
        sum[1] += words[1] + sum[0];
    }
}

/* Make the frames of a log valid: their salts and checksums, not their pages. */
static void seal(uint8_t *log, size_t size)
{
    uint32_t sum[2] = {0, 0};
    if (size < LOG_HEADER) return;
    put_number(log, 0x377f0682 | (log[3] & 1));
    put_number(log + 4, 3007000);
    bool big = log[3] & 1;
    size_t page = number_at(log + 8);
    if (page < 512 || page > 65536) return;
    add_words(log, FRAME_HEADER, big, sum);
    put_number(log + 24, sum[0]);
    put_number(log + 28, sum[1]);
    for (size_t at = LOG_HEADER; at + FRAME_HEADER + page <= size; at += FRAME_HEADER + page) {
        memcpy(log + at + 8, log + 16, 8);
        add_words(log + at, 8, big, sum);
        add_words(log + at + FRAME_HEADER, page, big, sum);
        put_number(log + at + 16, sum[0]);
        put_number(log + at + 20, sum[1]);
    }
}

/* Files ----------------------------------------------------------------------------------------------------------- */

static char folder[64], path[96], log_path[96], index_path[96], uri[128];

static void remove_files(void)
{
    unlink(path);
    unlink(log_path);
    unlink(index_path);
    rmdir(folder);
}

/* Return whether there is a library of SQLite. */
static bool set_up(void)
{
    static bool done, found;
    if (done) return found;
    done = true;
    fs_error err;
    const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    found = fs_sqlite_load("libsqlite3.so.0", &err) == FS_OK;
    snprintf(folder, sizeof folder, "%s/flopscope-fuzz-XXXXXX", root);
    FUZZ_CHECK(mkdtemp(folder) != NULL, "%s", folder);
    snprintf(path, sizeof path, "%s/x", folder);
    snprintf(log_path, sizeof log_path, "%s-wal", path);
    snprintf(index_path, sizeof index_path, "%s-shm", path);
    atexit(remove_files);
    FS_IGNORE(fs_parallel_set_threads(1, NULL));
    return found;
}

static void write_file(const char *name, const uint8_t *bytes, size_t size)
{
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    FUZZ_CHECK(file >= 0 && write(file, bytes, size) == (ssize_t)size, "%s", name);
    close(file);
}

static void write_files(const uint8_t *data, size_t size)
{
    size_t database = database_size(data, size), left = size - database;
    write_file(path, data, database);
    unlink(index_path);
    unlink(log_path);
    snprintf(uri, sizeof uri, "file:%s?mode=ro%s", path, left == 0 ? "&immutable=1" : "");
    if (left == 0) return;
    uint8_t *log = malloc(left);
    memcpy(log, data + database, left);
    seal(log, left);
    write_file(log_path, log, left);
    free(log);
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

static bool is_fact(fs_row_kind kind)
{
    return kind == FS_ROW_STRING || kind == FS_ROW_DEVICE || kind == FS_ROW_FIELD;
}

static bool contains(const uint8_t *data, size_t size, const char *text, size_t length)
{
    const uint8_t *at = data, *end = data + size;
    while ((at = memchr(at, text[0], (size_t)(end - at))) != NULL && (size_t)(end - at) >= length) {
        if (memcmp(at++, text, length) == 0) return true;
    }
    return false;
}

/* Run the queries of the tables whose names the file has, of one stage: facts, names of domains, events. */
static fs_status ask(fs_rows *rows, const uint8_t *data, size_t size, int stage, fs_error *err)
{
    fs_query queries[MOST_ASKED];
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const char *table = strstr(asked[i].sql, "FROM \"") + 6;
        fs_row_kind kind = asked[i].kind;
        if ((is_fact(kind) ? 0 : kind == FS_ROW_DOMAIN ? 1 : 2) != stage) continue;
        if (!contains(data, size, table, strcspn(table, "\""))) continue;
        if (count < MOST_ASKED) queries[count++] = asked[i];
    }
    FS_TRY(fs_queries_run(rows, uri, queries, count, err));
    for (uint32_t i = 0; i < count; i++) FUZZ_CHECK(queries[i].row_count >= 0 && queries[i].too_long >= 0, "%u", i);
    return FS_OK;
}

static bool is_database(const uint8_t *data, size_t size)
{
    return size >= HEADER && memcmp(data, "SQLite format 3", 16) == 0;
}

/* Add rows of any kinds in two parts. A row is its kind, the number of its cells, and for each a column and what is in
 * it: below 64 that number, below 128 a text of the rest's length, else an integer of eight bytes. */
static fs_status take_rows(fs_rows *rows, const uint8_t *at, const uint8_t *end, fs_error *err)
{
    uint32_t first;
    FS_TRY(fs_rows_open_parts(rows, 2, &first, err));
    for (uint32_t row = 0; end - at >= 2; row++) {
        fs_cell cells[FS_CELL_COUNT] = {{FS_IS_MISSING, 0, 0, NULL, 0}};
        fs_row_kind kind = (fs_row_kind)(*at++ % FS_ROW_KIND_COUNT);
        for (int left = *at++ % 16; left > 0 && end - at >= 2; left--) {
            fs_cell *cell = &cells[*at++ % FS_CELL_COUNT];
            int64_t what = *at++;
            size_t size = what < 64 ? 0 : what < 128 ? (size_t)what - 64 : 8;
            if (size > (size_t)(end - at)) size = (size_t)(end - at);
            if (size == 8 && what >= 128) memcpy(&what, at, 8);
            *cell = (fs_cell){FS_IS_INTEGER, what, (double)what, NULL, 0};
            if (size > 0 && what >= 64 && what < 128) *cell = (fs_cell){FS_IS_TEXT, 0, 0, (const char *)at, size};
            at += size;
        }
        FS_TRY(fs_rows_add(rows, first + row % 2, kind, cells, err));
    }
    return FS_OK;
}

static fs_status read_input(const uint8_t *data, size_t size, fs_store **store, fs_error *err)
{
    static const char head[256] = "{\"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H200\", \"numSms\": 132}]}";
    fs_rows *rows = NULL;
    fs_metric_sample *samples = NULL;
    uint32_t sample_count = 0;
    fs_rows_report report;
    fs_status status = fs_rows_create(&rows, err);
    if (status == FS_OK && !is_database(data, size)) status = take_rows(rows, data, data + size, err);
    for (int stage = 0; status == FS_OK && is_database(data, size) && stage < 3; stage++)
        status = ask(rows, data, size, stage, err);
    if (status == FS_OK) status = fs_rows_metrics(rows, &samples, &sample_count, err);
    if (status == FS_OK) status = fs_rows_finish(rows, head, strlen(head), store, &report, err);
    fs_rows_destroy(rows);
    fs_free(samples);
    if (status != FS_OK) return status;
    int64_t left_out = report.without_time + report.too_many;
    FUZZ_CHECK(report.kept <= fs_store_count(*store) && left_out <= report.events, "%lld", (long long)report.kept);
    FUZZ_CHECK(report.captured + report.estimated <= report.graph_work, "%lld", (long long)report.graph_work);
    return FS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fs_store *store = NULL;
    fs_error err = {.message = ""};
    if (is_database(data, size)) {
        if (!set_up()) return 0;
        write_files(data, size);
    }
    fs_status status = fs_store_create(&store, &err);
    if (status == FS_OK) status = read_input(data, size, &store, &err);
    FUZZ_CHECK(status == FS_OK || status == FS_OUT_OF_MEMORY, "%s", err.message);
    if (status == FS_OK) fuzz_check_order(store);
    fs_store_destroy(store);
    return 0;
}

/* Changes ---------------------------------------------------------------------------------------------------------- */

/* Change one page, or a few bytes anywhere; move a page over another, or cut the file, now and then. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    uint8_t page[512];
    size_t pages = size / sizeof page;
    if (pages < 2 || !is_database(data, size) || seed % 32 == 0) return LLVMFuzzerMutate(data, size, most);
    size_t one = seed / 32 % pages * sizeof page, other = seed / 7919 % pages * sizeof page;
    if (seed % 32 == 1) memmove(data + one, data + other, sizeof page);
    else if (seed % 64 == 2) return one > 0 ? one : size;
    else {
        memcpy(page, data + one, sizeof page);
        size_t changed = LLVMFuzzerMutate(page, sizeof page, sizeof page);
        memcpy(data + one, page, changed);
    }
    return size;
}
