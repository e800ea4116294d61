/* Rows of databases: messages of NCCL and changes of memory, and failing allocations on the way. */
#include <string.h>

#include "base/memory.h"
#include "sources/sqlite/rows.h"
#include "store/collective.h"
#include "store/event.h"
#include "tests/c/check.h"

static const char head[128] = "{\"deviceProperties\": []}";

typedef struct {
    fs_row_kind kind;
    fs_cell cells[FS_CELL_COUNT];
} row;

static void set(row *to, fs_row_column column, int64_t value)
{
    to->cells[column] = (fs_cell){FS_IS_INTEGER, value, (double)value, NULL, 0};
}

static void set_text(row *to, fs_row_column column, const void *text, size_t size)
{
    to->cells[column] = (fs_cell){FS_IS_TEXT, 0, 0, text, size};
}

static row made(fs_row_kind kind, int64_t start, int64_t end)
{
    row result;
    memset(&result, 0, sizeof result);
    result.kind = kind;
    set(&result, FS_CELL_START, start);
    set(&result, FS_CELL_END, end);
    set(&result, FS_CELL_PROCESS, 10);
    set(&result, FS_CELL_THREAD, 1);
    return result;
}

/* Schema 5 of domain 2 has a communicator and a size, schema 6 a communicator and a number of ranks. */
static row field(int64_t schema, const char *name, int64_t type, int64_t offset)
{
    row result = made(FS_ROW_FIELD, 0, 0);
    set(&result, FS_CELL_DOMAIN, 2);
    set(&result, FS_CELL_ID, schema);
    set(&result, FS_CELL_TYPE, type);
    set(&result, FS_CELL_VALUE, offset);
    set_text(&result, FS_CELL_NAME, name, strlen(name));
    return result;
}

static row range(const char *name, int64_t start, int64_t end, const uint64_t payload[6])
{
    row result = made(FS_ROW_RANGE, start, end);
    set(&result, FS_CELL_DOMAIN, 2);
    set_text(&result, FS_CELL_TEXT, name, strlen(name));
    if (payload != NULL) set_text(&result, FS_CELL_PAYLOAD, payload, 48);
    return result;
}

static row call(const char *name, int64_t start, int64_t correlation)
{
    row result = made(FS_ROW_CALL, start, start + 5);
    set(&result, FS_CELL_CORRELATION, correlation);
    set_text(&result, FS_CELL_NAME, name, strlen(name));
    return result;
}

static row kernel(const char *name, int64_t start, int64_t correlation)
{
    row result = made(FS_ROW_KERNEL, start, start + 7);
    set(&result, FS_CELL_CORRELATION, correlation);
    set_text(&result, FS_CELL_NAME, name, strlen(name));
    return result;
}

static row change(int64_t start, int64_t type, int64_t bytes, int64_t address, int64_t correlation)
{
    row result = made(FS_ROW_MEMORY, start, start);
    set(&result, FS_CELL_TYPE, type);
    set(&result, FS_CELL_BYTES, bytes);
    set(&result, FS_CELL_ADDRESS, address);
    set(&result, FS_CELL_CORRELATION, correlation);
    if (type == 0) set(&result, FS_CELL_DEVICE, 3);
    return result;
}

static fs_status read_program(fs_store **store, fs_rows_report *report, fs_error *err)
{
    static const uint64_t ranks[6] = {2, 6, 16, 32, 77, 4}, one[6] = {2, 5, 16, 32, 77, 1000},
                          other[6] = {2, 5, 16, 32, 78, 1000};
    const row all[] = {
        field(5, "NCCL communicator ID", 18, 0),
        field(5, "Message size [bytes]", 22, 8),
        field(6, "NCCL communicator ID", 18, 0),
        field(6, "No. of ranks", 5, 8),
        field(6, "Rank", 5, 12),
        range("ncclCommInitRank", 100, 110, ranks),
        range("ncclAllGather", 200, 250, one),
        call("cudaLaunchKernelExC_v11060", 210, 1),
        kernel("ncclDevKernel_AllGather_RING_LL", 220, 1),
        range("ncclGroupStart", 300, 305, NULL),
        range("ncclSend", 310, 315, one),
        range("ncclRecv", 320, 325, one),
        range("ncclGroupEnd", 330, 380, NULL),
        call("cudaLaunchKernelExC_v11060", 340, 2),
        kernel("ncclDevKernel_SendRecv", 350, 2),
        range("ncclGroupStart", 400, 405, NULL),
        range("ncclSend", 410, 415, one),
        range("ncclRecv", 420, 425, other),
        range("ncclGroupEnd", 430, 480, NULL),
        call("cudaLaunchKernelExC_v11060", 440, 3),
        kernel("ncclDevKernel_SendRecv", 450, 3),
        call("cudaMalloc_v3020", 500, 4),
        change(502, 0, 4096, 64, 4),
        change(600, 1, 0, 64, 0),
        change(610, 1, 0, 99, 0),
    };
    fs_rows *rows = NULL;
    uint32_t part;
    fs_status status = fs_rows_create(&rows, err);
    if (status == FS_OK) status = fs_rows_open_parts(rows, 1, &part, err);
    for (size_t i = 0; status == FS_OK && i < sizeof all / sizeof *all; i++)
        status = fs_rows_add(rows, part, all[i].kind, all[i].cells, err);
    if (status == FS_OK) status = fs_rows_finish(rows, head, strlen(head), store, report, err);
    fs_rows_destroy(rows);
    return status;
}

static uint32_t find(const fs_store *store, fs_event_kind kind, int64_t start)
{
    for (uint32_t i = 0; i < fs_store_count(store); i++)
        if (FS_EVENT_AT(store, i, start) == start && FS_EVENT_AT(store, i, kind) == kind) return i;
    CHECK(false, "no %s at %lld", fs_event_kind_names[kind], (long long)start);
    return 0;
}

static bool message_of(const fs_store *store, int64_t start, fs_collective *found)
{
    uint32_t signature = FS_EVENT_AT(store, find(store, FS_EVENT_KERNEL, start), signature);
    return fs_collective_decode(fs_store_signature_bytes(store, signature), found);
}

static void check_program(const fs_store *store, const fs_rows_report *report)
{
    fs_collective found;
    CHECK(message_of(store, 220, &found) && found.in_elements == 1000 && found.out_elements == 4000);
    CHECK(found.group_size == 4 && found.element_size == 1 && strcmp(found.name.text, "allgather") == 0);
    CHECK(strcmp(found.group.text, "0x000000000000004d") == 0);
    CHECK(message_of(store, 350, &found) && found.in_elements == 1000 && found.out_elements == 1000);
    CHECK(strcmp(found.name.text, "sendrecv") == 0);
    CHECK(!message_of(store, 450, &found), "two communicators");
    CHECK(report->messages == 2 && report->unsized == 0);
    uint32_t allocated = find(store, FS_EVENT_MEMORY, 502), freed = find(store, FS_EVENT_MEMORY, 600);
    CHECK(FS_EVENT_AT(store, allocated, bytes) == 4096 && FS_EVENT_AT(store, allocated, device) == 3);
    CHECK(FS_EVENT_AT(store, allocated, parent) == find(store, FS_EVENT_RUNTIME, 500));
    CHECK(FS_EVENT_AT(store, freed, bytes) == -4096 && FS_EVENT_AT(store, freed, device) == 3);
    CHECK(FS_EVENT_AT(store, freed, parent) == FS_NONE);
    CHECK(FS_EVENT_AT(store, find(store, FS_EVENT_MEMORY, 610), bytes) == 0);
    CHECK(report->changes == 3 && report->unmatched_frees == 1);
}

static void test_messages_and_memory(void)
{
    fs_error err;
    fs_store *store = NULL;
    fs_rows_report report = {.events = 0};
    CHECK_OK(fs_store_create(&store, &err));
    CHECK_OK(read_program(&store, &report, &err));
    check_program(store, &report);
    fs_store_destroy(store);
}

static void test_every_failing_allocation_is_reported(void)
{
    int64_t live = fs_memory_live();
    for (int64_t n = 1;; n++) {
        fs_error err;
        fs_store *store = NULL;
        fs_rows_report report = {.events = 0};
        CHECK_OK(fs_store_create(&store, &err));
        fs_memory_fail_at(n);
        fs_status status = read_program(&store, &report, &err);
        fs_memory_fail_at(0);
        if (status == FS_OK) check_program(store, &report);
        else CHECK(status == FS_OUT_OF_MEMORY && err.message[0] != '\0');
        fs_store_destroy(store);
        CHECK(fs_memory_live() == live, "allocation %lld", (long long)n);
        if (status == FS_OK) return;
    }
}

int main(void)
{
    test_messages_and_memory();
    test_every_failing_allocation_is_reported();
    return failures > 0;
}
