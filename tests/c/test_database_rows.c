/* Rows of databases: links of the backward pass, graphs, unique correlations, runs of a call, failing allocations. */
#include <string.h>

#include "base/memory.h"
#include "sources/sqlite/rows.h"
#include "store/event.h"
#include "tests/c/check.h"

static const char head[256] = "{\"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H200\", \"numSms\": 132}]}";

typedef struct {
    fs_cell cells[FS_CELL_COUNT];
} row;

static void set(row *to, fs_row_column column, int64_t value)
{
    to->cells[column] = (fs_cell){FS_IS_INTEGER, value, (double)value, NULL, 0};
}

static void set_text(row *to, fs_row_column column, const char *text)
{
    to->cells[column] = (fs_cell){FS_IS_TEXT, 0, 0, text, strlen(text)};
}

static row span(int64_t start, int64_t end, int64_t process, int64_t thread)
{
    row made;
    memset(&made, 0, sizeof made);
    set(&made, FS_CELL_START, start);
    set(&made, FS_CELL_END, end);
    set(&made, FS_CELL_PROCESS, process);
    set(&made, FS_CELL_THREAD, thread);
    return made;
}

static row range(const char *text, int64_t start, int64_t end, int64_t process, int64_t thread)
{
    row made = span(start, end, process, thread);
    set_text(&made, FS_CELL_TEXT, text);
    return made;
}

static row call(int64_t start, int64_t correlation, int64_t process)
{
    row made = span(start, start + 5, process, 1);
    set_text(&made, FS_CELL_NAME, "cudaLaunchKernel_v7000");
    set(&made, FS_CELL_CORRELATION, correlation);
    return made;
}

static row kernel(int64_t start, int64_t correlation, int64_t process, int64_t node)
{
    row made = span(start, start + 7, process, 0);
    set(&made, FS_CELL_NAME, 3);
    set(&made, FS_CELL_CORRELATION, correlation);
    if (node != 0) set(&made, FS_CELL_GRAPH_NODE, node);
    return made;
}

static row node(int64_t start, int64_t id, int64_t original)
{
    row made = span(start, start + 1, 10, 1);
    set(&made, FS_CELL_GRAPH_NODE, id);
    if (original != 0) set(&made, FS_CELL_ORIGINAL, original);
    return made;
}

typedef struct {
    fs_row_kind kind;
    row row;
} kind_row;

static fs_status add_program(fs_rows *rows, uint32_t part, fs_error *err)
{
    row string = span(0, 0, 0, 0), domain = string, device = string;
    set(&string, FS_CELL_ID, 3);
    set_text(&string, FS_CELL_NAME, "kernel\\of(int)");
    set(&domain, FS_CELL_DOMAIN, 2);
    set(&domain, FS_CELL_PROCESS, 10);
    set_text(&domain, FS_CELL_TEXT, "NCCL");
    set(&device, FS_CELL_PROCESS, 11);
    set(&device, FS_CELL_DEVICE, 0);
    set(&device, FS_CELL_ID, 4);
    row named = range("ncclSend", 800, 810, 10, 1), open = range("open", 790, 0, 10, 1);
    set(&named, FS_CELL_DOMAIN, 2);
    open.cells[FS_CELL_END].type = FS_IS_MISSING;
    const kind_row all[] = {
        {FS_ROW_STRING, string},
        {FS_ROW_DOMAIN, domain},
        {FS_ROW_DEVICE, device},
        {FS_ROW_RANGE, range("aten::mm, seq = 5, op_id = 1, sizes = [[4, 8], [8, 2]]", 100, 120, 10, 1)},
        {FS_ROW_RANGE, range("aten::mm, seq = 5, op_id = 1, sizes = [[4, 8], [8, 2]]", 200, 220, 11, 1)},
        {FS_ROW_RANGE, range("MmBackward0, seq = 5, op_id = 2", 300, 320, 10, 9)},
        {FS_ROW_RANGE, range("MmBackward0, seq = 5, op_id = 2", 400, 420, 11, 9)},
        {FS_ROW_CALL, call(105, 1, 10)},
        {FS_ROW_CALL, call(205, 1, 11)},
        {FS_ROW_KERNEL, kernel(130, 1, 10, 0)},
        {FS_ROW_KERNEL, kernel(230, 1, 11, 0)},
        {FS_ROW_RANGE, range("aten::bmm, op_id = 3, sizes = [[1, 4, 8], [1, 8, 2]]", 500, 520, 10, 1)},
        {FS_ROW_NODE, node(510, 70, 0)},
        {FS_ROW_NODE, node(530, 71, 70)},
        {FS_ROW_CALL, call(600, 2, 10)},
        {FS_ROW_KERNEL, kernel(610, 2, 10, 71)},
        {FS_ROW_KERNEL, kernel(620, 2, 10, 71)},
        {FS_ROW_RANGE, named},
        {FS_ROW_RANGE, open},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        FS_TRY(fs_rows_add(rows, part, all[i].kind, all[i].row.cells, err));
    return FS_OK;
}

static fs_status read_program(fs_store **store, fs_rows_report *report, fs_error *err)
{
    fs_rows *rows = NULL;
    uint32_t part;
    fs_status status = fs_rows_create(&rows, err);
    if (status == FS_OK) status = fs_rows_open_parts(rows, 1, &part, err);
    if (status == FS_OK) status = add_program(rows, part, err);
    if (status == FS_OK) status = fs_rows_finish(rows, head, strlen(head), store, report, err);
    fs_rows_destroy(rows);
    return status;
}

static const char *name_of(const fs_store *store, uint32_t event)
{
    return event != FS_NONE ? fs_store_name_text(store, FS_EVENT_AT(store, event, name)) : "";
}

/* Return the event of a name that starts at a time. */
static uint32_t find(const fs_store *store, const char *name, int64_t start)
{
    for (uint32_t i = 0; i < fs_store_count(store); i++)
        if (FS_EVENT_AT(store, i, start) == start && strcmp(name_of(store, i), name) == 0) return i;
    CHECK(false, "no %s at %lld", name, (long long)start);
    return 0;
}

static void check_program(const fs_store *store)
{
    uint32_t first = find(store, "aten::mm", 100), second = find(store, "aten::mm", 200);
    CHECK(FS_EVENT_AT(store, find(store, "MmBackward0", 300), forward) == first);
    CHECK(FS_EVENT_AT(store, find(store, "MmBackward0", 400), forward) == second);
    uint32_t one = find(store, "kernel\\of(int)", 130), two = find(store, "kernel\\of(int)", 230);
    CHECK(FS_EVENT_AT(store, one, launcher) == first && FS_EVENT_AT(store, two, launcher) == second);
    CHECK(FS_EVENT_AT(store, one, correlation) != FS_EVENT_AT(store, two, correlation));
    CHECK(FS_EVENT_AT(store, one, device) == 0 && FS_EVENT_AT(store, two, device) == 4);
    uint32_t captured = find(store, "aten::bmm", 500);
    uint32_t early = find(store, "kernel\\of(int)", 610), late = find(store, "kernel\\of(int)", 620);
    uint32_t replay = FS_EVENT_AT(store, early, launcher), again = FS_EVENT_AT(store, late, launcher);
    CHECK(FS_EVENT_AT(store, captured, flags) == FS_EVENT_CAPTURED && FS_EVENT_AT(store, first, flags) == 0);
    CHECK(strcmp(name_of(store, replay), "aten::bmm") == 0 && FS_EVENT_AT(store, replay, start) == 600);
    CHECK(FS_EVENT_AT(store, replay, flags) == FS_EVENT_REPLAYED && FS_EVENT_AT(store, again, flags) == 2);
    CHECK(FS_EVENT_AT(store, replay, signature) == FS_EVENT_AT(store, captured, signature));
    CHECK(replay != again && FS_EVENT_AT(store, again, start) == 600); /* two rounds of a loop */
    uint32_t open = find(store, "open", 790);
    CHECK(FS_EVENT_AT(store, open, duration) == 20);
    CHECK(FS_EVENT_AT(store, find(store, "NCCL: ncclSend", 800), parent) == open);
    CHECK(strcmp(fs_store_device(store, 0).name, "NVIDIA H200") == 0);
}

static void test_links(void)
{
    fs_error err;
    fs_store *store = NULL;
    fs_rows_report report = {.events = 0};
    CHECK_OK(fs_store_create(&store, &err));
    CHECK_OK(read_program(&store, &report, &err));
    check_program(store);
    CHECK(report.events == report.kept && report.processes == 2 && report.process == 10 && report.ops == 5);
    CHECK(report.graph_work == 2 && report.captured == 2 && report.unnamed == 0);
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
        if (status == FS_OK) check_program(store);
        else CHECK(status == FS_OUT_OF_MEMORY && err.message[0] != '\0');
        fs_store_destroy(store);
        CHECK(fs_memory_live() == live, "allocation %lld", (long long)n);
        if (status == FS_OK) return;
    }
}

int main(void)
{
    test_links();
    test_every_failing_allocation_is_reported();
    return failures > 0;
}
