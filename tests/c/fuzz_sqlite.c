/* Fuzz target of the reader of databases. The input is a file of SQLite, whose tables are those of Nsight Systems or
 * rocprofv3.
 *
 * Any other input is rows, without SQLite: cells as take_rows() decodes them.
 *
 * The corpus has the first rows, and the columns that are read, of real databases, with pages of 512 bytes.
 * Databases are changed page by page, so that the structure of the file survives most changes. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sources/sqlite/query.h"
#include "tests/c/fuzz_load.h"

CORPORA("fuzz/corpus/sqlite")

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most) __attribute__((weak));

enum { HEADER = 100 };

/* Files ----------------------------------------------------------------------------------------------------------- */

static char folder[64], path[96], uri[128];

static void remove_files(void)
{
    unlink(path);
    rmdir(folder);
}

/* Return whether there is a library of SQLite. */
static bool set_up(void)
{
    static bool searched, found;
    if (searched) return found;
    searched = true;
    fs_error err;
    const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    found = fs_sqlite_load("libsqlite3.so.0", &err) == FS_OK;
    snprintf(folder, sizeof folder, "%s/flopscope-fuzz-XXXXXX", root);
    FUZZ_CHECK(mkdtemp(folder) != NULL, "%s", folder);
    snprintf(path, sizeof path, "%s/x", folder);
    snprintf(uri, sizeof uri, "file:%s?mode=ro&immutable=1", path);
    atexit(remove_files);
    FS_IGNORE(fs_parallel_set_threads(1, NULL));
    return found;
}

static void write_database(const uint8_t *bytes, size_t size)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    FUZZ_CHECK(file >= 0 && write(file, bytes, size) == (ssize_t)size, "%s", path);
    close(file);
}

/* Queries, as Python writes them; those of tables that a file lacks fail. ------------------------------------------ */

#define ASK(KIND, query, ...)                          \
    {.kind = FS_ROW_##KIND,                            \
     .sql = (query),                                   \
     .columns = {__VA_ARGS__},                         \
     .column_count = sizeof((uint8_t[]){__VA_ARGS__}), \
     .until = INT64_MAX,                               \
     .next = "SELECT rowid FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE rowid > ?1 ORDER BY rowid LIMIT 1"}

#define TIMES_SQL "start, \"end\", "
#define HOST_SQL TIMES_SQL "globalTid >> 24 & 16777215, globalTid & 16777215, "
#define WORK_SQL TIMES_SQL "deviceId, globalPid >> 24 & 16777215, streamId, contextId, correlationId, "
#define TIMES FS_CELL_START, FS_CELL_END
#define HOST TIMES, FS_CELL_PROCESS, FS_CELL_THREAD
#define WORK TIMES, FS_CELL_DEVICE, FS_CELL_PROCESS, FS_CELL_STREAM, FS_CELL_CONTEXT, FS_CELL_CORRELATION
#define GRID FS_CELL_GRID_X, FS_CELL_GRID_Y, FS_CELL_GRID_Z, FS_CELL_BLOCK_X, FS_CELL_BLOCK_Y, FS_CELL_BLOCK_Z

static const fs_query asked[] = {
    ASK(STRING, "SELECT id, value FROM StringIds", FS_CELL_ID, FS_CELL_NAME),
    ASK(STRING, "SELECT id, string, 0 FROM rocpd_string", FS_CELL_ID, FS_CELL_NAME, FS_CELL_SPACE),
    ASK(STRING, "SELECT id, display_name, 1 FROM rocpd_info_kernel_symbol", FS_CELL_ID, FS_CELL_NAME, FS_CELL_SPACE),
    ASK(DEVICE, "SELECT pid, cudaId, gpuId FROM TARGET_INFO_CUDA_DEVICE", FS_CELL_PROCESS, FS_CELL_DEVICE, FS_CELL_ID),
    ASK(DEVICE, "SELECT pid, id, type_index FROM rocpd_info_agent WHERE type = 'GPU'", FS_CELL_PROCESS, FS_CELL_DEVICE,
        FS_CELL_ID),
    ASK(FIELD, "SELECT name, type, domainId, schemaId, offset FROM NVTX_PAYLOAD_SCHEMA_ENTRIES", FS_CELL_NAME,
        FS_CELL_TYPE, FS_CELL_DOMAIN, FS_CELL_ID, FS_CELL_VALUE),
    ASK(DOMAIN, "SELECT text, textId, domainId, globalTid >> 24 & 16777215 FROM NVTX_EVENTS WHERE eventType = 75",
        FS_CELL_TEXT, FS_CELL_NAME, FS_CELL_DOMAIN, FS_CELL_PROCESS),
    /* With a rowid, as of one of the parts that a large table is read in. */
    ASK(CALL,
        "SELECT rowid, " HOST_SQL "nameId, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        " WHERE rowid > ?1 AND rowid <= ?2",
        HOST, FS_CELL_NAME, FS_CELL_CORRELATION),
    ASK(RANGE, "SELECT " HOST_SQL "text, textId, eventType, domainId, endGlobalTid & 16777215 FROM NVTX_EVENTS", HOST,
        FS_CELL_TEXT, FS_CELL_NAME, FS_CELL_TYPE, FS_CELL_DOMAIN, FS_CELL_END_THREAD),
    ASK(RANGE, "SELECT " HOST_SQL "text, eventType, domainId, binaryData FROM NVTX_EVENTS", HOST, FS_CELL_TEXT,
        FS_CELL_TYPE, FS_CELL_DOMAIN, FS_CELL_PAYLOAD),
    ASK(KERNEL,
        "SELECT " WORK_SQL "graphNodeId, graphId, demangledName, registersPerThread, staticSharedMemory,"
        " dynamicSharedMemory, gridX, gridY, gridZ, blockX, blockY, blockZ, clusterX, clusterY, clusterZ"
        " FROM CUPTI_ACTIVITY_KIND_KERNEL",
        WORK, FS_CELL_GRAPH_NODE, FS_CELL_GRAPH, FS_CELL_NAME, FS_CELL_REGISTERS, FS_CELL_STATIC_SHARED,
        FS_CELL_DYNAMIC_SHARED, GRID, FS_CELL_CLUSTER_X, FS_CELL_CLUSTER_Y, FS_CELL_CLUSTER_Z),
    ASK(COPY, "SELECT " WORK_SQL "graphNodeId, bytes, copyKind, srcKind, dstKind FROM CUPTI_ACTIVITY_KIND_MEMCPY", WORK,
        FS_CELL_GRAPH_NODE, FS_CELL_BYTES, FS_CELL_COPY_KIND, FS_CELL_FROM, FS_CELL_TO),
    ASK(FILL, "SELECT " WORK_SQL "graphNodeId, bytes, memKind FROM CUPTI_ACTIVITY_KIND_MEMSET", WORK,
        FS_CELL_GRAPH_NODE, FS_CELL_BYTES, FS_CELL_FROM),
    ASK(SYNC, "SELECT " WORK_SQL "syncType FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", WORK, FS_CELL_TYPE),
    ASK(NODE, "SELECT " HOST_SQL "graphNodeId, originalGraphNodeId FROM CUDA_GRAPH_NODE_EVENTS", HOST,
        FS_CELL_GRAPH_NODE, FS_CELL_ORIGINAL),
    ASK(OVERHEAD, "SELECT " HOST_SQL "nameId FROM PROFILER_OVERHEAD", HOST, FS_CELL_NAME),
    ASK(OVERHEAD, "SELECT " HOST_SQL "nameId FROM CUPTI_ACTIVITY_KIND_OVERHEAD", HOST, FS_CELL_NAME),
    ASK(MEMORY,
        "SELECT start, bytes, address, deviceId, correlationId, globalPid >> 24 & 16777215, memoryOperationType,"
        " memKind FROM CUDA_GPU_MEMORY_USAGE_EVENTS",
        FS_CELL_START, FS_CELL_BYTES, FS_CELL_ADDRESS, FS_CELL_DEVICE, FS_CELL_CORRELATION, FS_CELL_PROCESS,
        FS_CELL_TYPE, FS_CELL_FROM),
    ASK(SPAN, "SELECT " TIMES_SQL "pid, tid, name_id, 0, extdata FROM rocpd_region", HOST, FS_CELL_NAME, FS_CELL_SPACE,
        FS_CELL_MESSAGE),
    ASK(KERNEL,
        "SELECT " TIMES_SQL "agent_id, t.pid, queue_id, stack_id, kernel_id, 1, group_segment_size,"
        " (grid_size_x + workgroup_size_x - 1) / workgroup_size_x, grid_size_y, grid_size_z, workgroup_size_x,"
        " workgroup_size_y, workgroup_size_z FROM rocpd_kernel_dispatch AS t"
        " LEFT JOIN rocpd_event AS e ON e.id = event_id",
        TIMES, FS_CELL_DEVICE, FS_CELL_PROCESS, FS_CELL_STREAM, FS_CELL_CORRELATION, FS_CELL_NAME, FS_CELL_SPACE,
        FS_CELL_DYNAMIC_SHARED, GRID),
    ASK(COPY,
        "SELECT " TIMES_SQL "dst_agent_id, t.pid, size, CASE b.type WHEN 'CPU' THEN 8 WHEN 'GPU' THEN 2 END"
        " FROM rocpd_memory_copy AS t LEFT JOIN rocpd_info_agent AS b ON b.id = dst_agent_id",
        TIMES, FS_CELL_DEVICE, FS_CELL_PROCESS, FS_CELL_BYTES, FS_CELL_TO),
    ASK(MEMORY, "SELECT start, address, pid, size, type = 'FREE', agent_id FROM rocpd_memory_allocate", FS_CELL_START,
        FS_CELL_ADDRESS, FS_CELL_PROCESS, FS_CELL_BYTES, FS_CELL_TYPE, FS_CELL_DEVICE),
};

/* Reading ---------------------------------------------------------------------------------------------------------- */

static bool answered[COUNT_OF(asked)];

static fs_status ask(fs_rows *rows, fs_error *err)
{
    fs_query queries[COUNT_OF(asked)];
    memcpy(queries, asked, sizeof asked);
    FS_TRY(fs_queries_run(rows, uri, queries, COUNT_OF(queries), err));
    for (size_t i = 0; i < COUNT_OF(queries); i++) {
        FUZZ_CHECK(queries[i].row_count >= 0 && queries[i].too_long >= 0, "%zu", i);
        if (queries[i].problem[0] == 0) answered[i] = true;
    }
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
    if (status == FS_OK) status = is_database(data, size) ? ask(rows, err) : take_rows(rows, data, data + size, err);
    if (status == FS_OK) status = fs_rows_metrics(rows, &samples, &sample_count, err);
    if (status == FS_OK) status = fs_rows_finish(rows, head, strlen(head), store, &report, err);
    fs_rows_destroy(rows);
    fs_free(samples);
    if (status != FS_OK) return status;
    int64_t left_out = report.without_time + report.too_many;
    FUZZ_CHECK(report.kept <= fs_store_count(*store) && left_out <= report.events, "%lld", (long long)report.kept);
    FUZZ_CHECK(report.captured <= report.graph_work, "%lld", (long long)report.graph_work);
    return FS_OK;
}

static fuzz_text input;

static fs_status load(fs_error *err)
{
    fs_store *store;
    FS_TRY(fs_store_create(&store, err));
    fs_status status = read_input(input.data, input.size, &store, err);
    if (status == FS_OK) fuzz_check_order(store);
    fs_store_destroy(store);
    return status;
}

/* Return whether an input can be read: it is no database, or there is a library of SQLite. */
static bool take(const void *bytes, size_t size)
{
    input = (fuzz_text){bytes, size};
    if (!is_database(bytes, size)) return true;
    if (!set_up()) return false;
    write_database(bytes, size);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (take(data, size)) done(load(&fuzz_error));
    return 0;
}

static void fail_on(const void *bytes, size_t size)
{
    if (take(bytes, size)) CHECK(fail_each_allocation(load) > 9, "%s", fuzz_input);
}

TEST(memory_that_runs_out_is_an_error_and_leaks_nothing)
{
    CHECK(each_file("fuzz/corpus/sqlite", fail_on) > 5);
}

TEST(some_file_has_the_tables_of_each_query)
{
    for (size_t i = 0; i < COUNT_OF(asked); i++) CHECK(answered[i] || !set_up(), "%s", asked[i].sql);
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
