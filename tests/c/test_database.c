/* Rows of databases below what Python shows: links of the backward pass, flags of replays, unique correlations; and
 * failing allocations. The values of rows are tested in tests/databases. */
#include "sources/sqlite/rows.h"
#include "store/event.h"
#include "tests/c/events.h"

/* A cell: a number, a text or, if they have a size, bytes. */
typedef struct {
    fs_row_column column;
    int64_t number;
    const void *text;
    size_t size;
} given;

typedef struct {
    fs_row_kind kind;
    int64_t start, end, process, thread;
    given cells[7]; /* ended by one of FS_CELL_START */
} row;

#define IS(column, number) {FS_CELL_##column, number, NULL, 0}
#define NAMED(name) {FS_CELL_NAME, 0, name, 0}
#define TEXT(text) {FS_CELL_TEXT, 0, text, 0}
#define PAYLOAD(...) {FS_CELL_PAYLOAD, 0, (const uint64_t[]){__VA_ARGS__}, 48}

#define RANGE(text, start, end, process, thread)   \
    {                                              \
        FS_ROW_RANGE, start, end, process, thread, \
        {                                          \
            TEXT(text)                             \
        }                                          \
    }
#define CALL(name, start, correlation, process)       \
    {                                                 \
        FS_ROW_CALL, start, (start) + 5, process, 1,  \
        {                                             \
            NAMED(name), IS(CORRELATION, correlation) \
        }                                             \
    }
#define KERNEL(start, correlation, process, ...)                   \
    {                                                              \
        FS_ROW_KERNEL, start, (start) + 7, process, 0,             \
        {                                                          \
            IS(NAME, 3), IS(CORRELATION, correlation), __VA_ARGS__ \
        }                                                          \
    }
#define FIELD(schema, name, type, offset)                                                 \
    {                                                                                     \
        FS_ROW_FIELD, 0, 0, 10, 1,                                                        \
        {                                                                                 \
            IS(DOMAIN, 2), IS(ID, schema), IS(TYPE, type), IS(VALUE, offset), NAMED(name) \
        }                                                                                 \
    }
#define NCCL(text, start, ...)                     \
    {                                              \
        FS_ROW_RANGE, start, (start) + 15, 10, 1,  \
        {                                          \
            IS(DOMAIN, 2), TEXT(text), __VA_ARGS__ \
        }                                          \
    }
#define NCCL_KERNEL(name, start, correlation)         \
    {                                                 \
        FS_ROW_KERNEL, start, (start) + 7, 10, 0,     \
        {                                             \
            NAMED(name), IS(CORRELATION, correlation) \
        }                                             \
    }
#define CHANGE(start, type, ...)            \
    {                                       \
        FS_ROW_MEMORY, start, start, 10, 1, \
        {                                   \
            IS(TYPE, type), __VA_ARGS__     \
        }                                   \
    }

/* Schema 5 of domain 2 has a communicator and a size, schema 6 a communicator and a number of ranks. */
#define SENT(communicator) PAYLOAD(2, 5, 16, 32, communicator, 1000)

static const row program[] = {
    {FS_ROW_STRING, 0, 0, 0, 0, {IS(ID, 3), NAMED("kernel\\of(int)")}},
    {FS_ROW_DOMAIN, 0, 0, 10, 0, {IS(DOMAIN, 2), TEXT("NCCL")}},
    {FS_ROW_DEVICE, 0, 0, 11, 0, {IS(DEVICE, 0), IS(ID, 4)}},
    FIELD(5, "NCCL communicator ID", 18, 0),
    FIELD(5, "Message size [bytes]", 22, 8),
    FIELD(6, "NCCL communicator ID", 18, 0),
    FIELD(6, "No. of ranks", 5, 8),
    FIELD(6, "Rank", 5, 12),
    /* Ops of two processes with the same ids. */
    RANGE("aten::mm, seq = 5, op_id = 1, sizes = [[4, 8], [8, 2]]", 100, 120, 10, 1),
    RANGE("aten::mm, seq = 5, op_id = 1, sizes = [[4, 8], [8, 2]]", 200, 220, 11, 1),
    RANGE("MmBackward0, seq = 5, op_id = 2", 300, 320, 10, 9),
    RANGE("MmBackward0, seq = 5, op_id = 2", 400, 420, 11, 9),
    CALL("cudaLaunchKernel_v7000", 105, 1, 10),
    CALL("cudaLaunchKernel_v7000", 205, 1, 11),
    KERNEL(130, 1, 10),
    KERNEL(230, 1, 11),
    /* A graph. */
    RANGE("aten::bmm, op_id = 3, sizes = [[1, 4, 8], [1, 8, 2]]", 500, 520, 10, 1),
    {FS_ROW_NODE, 510, 511, 10, 1, {IS(GRAPH_NODE, 70)}},
    {FS_ROW_NODE, 530, 531, 10, 1, {IS(GRAPH_NODE, 71), IS(ORIGINAL, 70)}},
    CALL("cudaGraphLaunch_v10000", 600, 2, 10),
    KERNEL(610, 2, 10, IS(GRAPH_NODE, 71)),
    KERNEL(620, 2, 10, IS(GRAPH_NODE, 71)),
    /* Messages: a collective, a group of one communicator, and one of two. */
    NCCL("ncclCommInitRank", 1100, PAYLOAD(2, 6, 16, 32, 77, 4)),
    NCCL("ncclAllGather", 1200, SENT(77)),
    CALL("cudaLaunchKernelExC_v11060", 1205, 11, 10),
    NCCL_KERNEL("ncclDevKernel_AllGather_RING_LL", 1220, 11),
    NCCL("ncclGroupStart", 1300),
    NCCL("ncclSend", 1320, SENT(77)),
    NCCL("ncclRecv", 1340, SENT(77)),
    NCCL("ncclGroupEnd", 1360),
    CALL("cudaLaunchKernelExC_v11060", 1362, 12, 10),
    NCCL_KERNEL("ncclDevKernel_SendRecv", 1370, 12),
    NCCL("ncclGroupStart", 1400),
    NCCL("ncclSend", 1420, SENT(77)),
    NCCL("ncclRecv", 1440, SENT(78)),
    NCCL("ncclGroupEnd", 1460),
    CALL("cudaLaunchKernelExC_v11060", 1462, 13, 10),
    NCCL_KERNEL("ncclDevKernel_SendRecv", 1470, 13),
    /* Memory: allocated, freed, and freed without an allocation. */
    CALL("cudaMalloc_v3020", 1500, 14, 10),
    CHANGE(1502, 0, IS(BYTES, 4096), IS(ADDRESS, 64), IS(CORRELATION, 14), IS(DEVICE, 3)),
    CHANGE(1600, 1, IS(ADDRESS, 64)),
    CHANGE(1610, 1, IS(ADDRESS, 99)),
};

static fs_status add_program(fs_rows *rows, uint32_t part, fs_error *err)
{
    for (size_t i = 0; i < COUNT_OF(program); i++) {
        const row *one = &program[i];
        fs_cell cells[FS_CELL_COUNT] = {{FS_IS_MISSING, 0, 0, NULL, 0}};
        const int64_t shared[] = {one->start, one->end, one->process, one->thread};
        for (int k = 0; k < 4; k++) cells[k] = (fs_cell){FS_IS_INTEGER, shared[k], (double)shared[k], NULL, 0};
        for (const given *from = one->cells; from->column != FS_CELL_START; from++) {
            size_t size = from->size == 0 && from->text != NULL ? strlen(from->text) : from->size;
            fs_cell_type type = from->text != NULL ? FS_IS_TEXT : FS_IS_INTEGER;
            cells[from->column] = (fs_cell){type, from->number, (double)from->number, from->text, size};
        }
        FS_TRY(fs_rows_add(rows, part, one->kind, cells, err));
    }
    return FS_OK;
}

static fs_rows_report report;

static fs_status read_program(fs_store **into, fs_error *err)
{
    static const char head[256] = "{\"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H200\", \"numSms\": 132}]}";
    fs_rows *rows = NULL;
    uint32_t part;
    fs_status status = fs_rows_create(&rows, err);
    if (status == FS_OK) status = fs_rows_open_parts(rows, 1, &part, err);
    if (status == FS_OK) status = add_program(rows, part, err);
    if (status == FS_OK) status = fs_rows_finish(rows, head, strlen(head), into, &report, err);
    fs_rows_destroy(rows);
    return status;
}

/* Return the event of a kind that starts at a time. */
static uint32_t find(fs_event_kind kind, int64_t start)
{
    for (uint32_t i = 0; i < fs_store_count(store); i++)
        if (FS_EVENT_AT(store, i, start) == start && FS_EVENT_AT(store, i, kind) == (uint8_t)kind) return i;
    CHECK(false, "no %s at %lld", fs_event_kind_names[kind], (long long)start);
    return 0;
}

TEST(links_of_rows)
{
    CHECK_OK(read_program(&store, NULL));
    uint32_t first = find(FS_EVENT_OP, 100), second = find(FS_EVENT_OP, 200), captured = find(FS_EVENT_OP, 500);
    CHECK(event_at(find(FS_EVENT_OP, 300)).forward == first && event_at(find(FS_EVENT_OP, 400)).forward == second);
    fs_event one = event_at(find(FS_EVENT_KERNEL, 130)), two = event_at(find(FS_EVENT_KERNEL, 230));
    CHECK(one.launcher == first && two.launcher == second && one.correlation != two.correlation);
    CHECK(one.device == 0 && two.device == 4 && strcmp(fs_store_device(store, 0).name, "NVIDIA H200") == 0);
    uint32_t replay = event_at(find(FS_EVENT_KERNEL, 610)).launcher,
             again = event_at(find(FS_EVENT_KERNEL, 620)).launcher;
    CHECK(event_at(captured).flags == FS_EVENT_CAPTURED && event_at(first).flags == 0);
    CHECK(event_at(replay).flags == FS_EVENT_REPLAYED && event_at(again).flags == FS_EVENT_REPLAYED);
    CHECK(strcmp(name_at(replay), "aten::bmm") == 0 && event_at(replay).signature == event_at(captured).signature);
    CHECK(replay != again && event_at(replay).start == 600 && event_at(again).start == 600); /* two rounds of a loop */
    CHECK(report.events == report.kept && report.processes == 2 && report.process == 10 && report.ops == 5);
    CHECK(report.graph_work == 2 && report.captured == 2 && report.unnamed == 0);
    CHECK(report.messages == 2 && report.unsized == 0);
    CHECK(report.changes == 3 && report.unmatched_frees == 1);
}

static fs_status read_again(fs_error *err)
{
    fs_store *made;
    FS_TRY(fs_store_create(&made, err));
    fs_status status = read_program(&made, err);
    fs_store_destroy(made);
    return status;
}

TEST(every_failing_allocation_is_reported)
{
    CHECK(fail_each_allocation(read_again) > 40);
}
