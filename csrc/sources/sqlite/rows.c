/* One function for each kind of row, chosen in fs_rows_add. Cells may be missing or of another type than the schema
 * says: every access has a default, and a row that cannot be used is left out and counted, never an error. Facts that
 * all parts share (strings, domains, devices, payloads) must be read before the rows that need them. */
#include "sources/sqlite/rows.h"

#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "sources/sqlite/allocations.h"
#include "sources/sqlite/graphs.h"
#include "sources/sqlite/metrics.h"
#include "sources/sqlite/names.h"
#include "sources/sqlite/nccl.h"
#include "sources/sqlite/parts.h"
#include "sources/sqlite/ties.h"
#include "store/event.h"
#include "store/signature.h"

const char *const fs_row_kind_names[FS_ROW_KIND_COUNT] = {
#define ROW_NAME(NAME, name, prose) #name,
    FS_ROW_KIND_LIST(ROW_NAME)
#undef ROW_NAME
};

const char *const fs_row_column_names[FS_CELL_COUNT] = {
#define COLUMN_NAME(NAME, name, prose) #name,
    FS_ROW_COLUMN_LIST(COLUMN_NAME)
#undef COLUMN_NAME
};

fs_status fs_rows_create(fs_rows **rows, fs_error *err)
{
    *rows = fs_calloc(1, sizeof **rows);
    return *rows != NULL ? FS_OK : fs_no_memory(err);
}

static void clear_part(fs_part *part)
{
    fs_piece_clear(&part->piece);
    fs_free(part->string_names);
    fs_free(part->nodes);
    fs_free(part->open);
    fs_free(part->work);
    fs_free(part->samples);
    fs_free(part->calls);
    fs_free(part->allocations);
    fs_free(part->ties);
    fs_intern_clear(&part->instructions);
}

void fs_rows_destroy(fs_rows *rows)
{
    if (rows == NULL) return;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        clear_part(rows->parts[i]);
        fs_free(rows->parts[i]);
    }
    fs_free(rows->parts);
    fs_record_pool_clear(&rows->pool);
    fs_id_map *maps[] = {&rows->string_ids, &rows->domains, &rows->devices, &rows->payload_ids};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) fs_id_map_clear(maps[i]);
    fs_intern_clear(&rows->strings);
    fs_free(rows->payloads);
    fs_free(rows);
    fs_memory_trim(); /* what each reading thread allocated in an arena of its own */
}

void fs_rows_unite(fs_rows *rows)
{
    rows->unites = true;
}

fs_status fs_rows_open_parts(fs_rows *rows, uint32_t count, uint32_t *first, fs_error *err)
{
    uint32_t total = rows->part_count + count;
    fs_part **parts = fs_realloc(rows->parts, total * sizeof(fs_part *));
    if (parts == NULL) return fs_no_memory(err);
    rows->parts = parts;
    *first = rows->part_count;
    while (rows->part_count < total) {
        fs_part *part = fs_calloc(1, sizeof *part);
        if (part == NULL) return fs_no_memory(err);
        fs_piece_init(&part->piece, &rows->pool, 0, 0, FS_PIECE_END);
        rows->parts[rows->part_count++] = part;
    }
    return FS_OK;
}

static fs_status take_launch(fs_part *part, const fs_cell *cells, fs_record *record, fs_error *err)
{
    _Alignas(8) char bytes[FS_LAUNCH_BYTES];
    uint64_t dynamic =
        (uint64_t)fs_cell_count(cells, FS_CELL_DYNAMIC_SHARED) + fs_cell_count(cells, FS_CELL_STATIC_SHARED);
    fs_launch launch = {
        .grid = {fs_cell_count(cells, FS_CELL_GRID_X), fs_cell_count(cells, FS_CELL_GRID_Y),
                 fs_cell_count(cells, FS_CELL_GRID_Z)},
        .block = {fs_cell_count(cells, FS_CELL_BLOCK_X), fs_cell_count(cells, FS_CELL_BLOCK_Y),
                  fs_cell_count(cells, FS_CELL_BLOCK_Z)},
        .cluster = {fs_cell_count(cells, FS_CELL_CLUSTER_X), fs_cell_count(cells, FS_CELL_CLUSTER_Y),
                    fs_cell_count(cells, FS_CELL_CLUSTER_Z)},
        .registers = fs_cell_count(cells, FS_CELL_REGISTERS),
        .dynamic_shared = dynamic <= UINT32_MAX ? (uint32_t)dynamic : 0, /* plus static, as Kineto has it */
        .graph = fs_cell_count(cells, FS_CELL_GRAPH),
        .context = fs_cell_count(cells, FS_CELL_CONTEXT),
        .graph_node = (uint64_t)fs_cell_number(cells, FS_CELL_GRAPH_NODE, 0),
    };
    fs_launch_encode(&launch, bytes);
    return fs_intern_bytes(&part->piece.signatures, bytes, sizeof bytes, &record->signature, err);
}

static fs_status keep_work_name(const fs_rows *rows, fs_part *part, fs_row_kind kind, const fs_cell *cells,
                                fs_record *record, fs_error *err)
{
    char name[FS_WORK_NAME_SIZE];
    if (kind == FS_ROW_KERNEL || cells[FS_CELL_NAME].type != FS_IS_MISSING)
        return fs_part_take_name(rows, part, kind, cells, &record->name, err);
    if (kind == FS_ROW_COPY)
        fs_copy_name(fs_cell_number(cells, FS_CELL_COPY_KIND, 0), fs_cell_number(cells, FS_CELL_FROM, -1),
                     fs_cell_number(cells, FS_CELL_TO, -1), name);
    else if (kind == FS_ROW_FILL) fs_fill_name(fs_cell_number(cells, FS_CELL_FROM, -1), name);
    else if (kind == FS_ROW_REPLAY) fs_replay_name(fs_cell_number(cells, FS_CELL_GRAPH, 0), name);
    else fs_sync_name(fs_cell_number(cells, FS_CELL_TYPE, 0), name);
    return fs_intern_text(&part->piece.names, name, &record->name, err);
}

static fs_status keep_work(const fs_rows *rows, fs_part *part, fs_row_kind kind, const fs_cell *cells, fs_error *err)
{
    static const uint8_t kinds[FS_ROW_KIND_COUNT] = {
        [FS_ROW_KERNEL] = FS_EVENT_KERNEL, [FS_ROW_COPY] = FS_EVENT_MEMCPY, [FS_ROW_FILL] = FS_EVENT_MEMSET,
        [FS_ROW_REPLAY] = FS_EVENT_KERNEL, [FS_ROW_SYNC] = FS_EVENT_SYNC,
    };
    fs_record record;
    if (!fs_part_take_times(part, cells, &record)) return FS_OK;
    int64_t device = fs_rows_device_of(rows, cells), bytes = fs_cell_number(cells, FS_CELL_BYTES, 0);
    if (kind == FS_ROW_SYNC && (device < 0 || device >= FS_DEVICE_LIMIT)) device = 0;
    if (device < 0 || device >= FS_DEVICE_LIMIT) {
        part->report.too_many++;
        return FS_OK;
    }
    record.kind = kinds[kind];
    record.device = kind == FS_ROW_SYNC ? -1 : (int8_t)device;
    record.bytes = bytes > 0 && bytes <= FS_MOST_AMOUNT ? bytes : 0;
    FS_TRY(fs_part_take_lane(part, device, fs_cell_number(cells, FS_CELL_STREAM, 0),
                             fs_cell_number(cells, FS_CELL_PROCESS, 0), &record.lane, err));
    FS_TRY(keep_work_name(rows, part, kind, cells, &record, err));
    if (kind != FS_ROW_SYNC) FS_TRY(take_launch(part, cells, &record, err));
    FS_TRY(fs_part_add_record(part, &record, err));
    if (kind == FS_ROW_REPLAY) part->report.replays++;
    if (cells[FS_CELL_INSTRUCTION].type == FS_IS_TEXT) return fs_part_add_tie(part, cells, err);
    int64_t node = fs_cell_number(cells, FS_CELL_GRAPH_NODE, 0);
    if (kind == FS_ROW_SYNC || node == 0) return FS_OK;
    part->report.graph_work++;
    return fs_part_add_graph_work(part, fs_cell_number(cells, FS_CELL_PROCESS, 0), node, fs_part_last_record(part),
                                  err);
}

enum { PAGEABLE, PINNED }; /* kinds of the host's memory */
enum { ALLOCATED, FREED };

static fs_status keep_memory(const fs_rows *rows, fs_part *part, const fs_cell *cells, fs_error *err)
{
    _Alignas(8) char state[FS_MEMORY_STATE_BYTES];
    fs_record record;
    int64_t type = fs_cell_number(cells, FS_CELL_TYPE, -1), bytes = fs_cell_number(cells, FS_CELL_BYTES, 0);
    int64_t address = fs_cell_number(cells, FS_CELL_ADDRESS, 0), process = fs_cell_number(cells, FS_CELL_PROCESS, 0);
    int64_t from = fs_cell_number(cells, FS_CELL_FROM, -1), device = fs_rows_device_of(rows, cells);
    bool on_host = cells[FS_CELL_DEVICE].type != FS_IS_INTEGER || from == PAGEABLE || from == PINNED;
    if ((type != ALLOCATED && type != FREED) || !fs_part_take_times(part, cells, &record)) return FS_OK;
    if (!on_host && (device < 0 || device >= FS_DEVICE_LIMIT)) {
        part->report.too_many++;
        return FS_OK;
    }
    bool sized = bytes > 0 && bytes <= FS_MOST_AMOUNT;
    record.kind = FS_EVENT_MEMORY;
    record.device = on_host ? -1 : (int8_t)device;
    record.bytes = !sized ? 0 : type == FREED ? -bytes : bytes;
    if (type == FREED && !sized && address != 0) record.bytes = FS_MISSING;
    /* Without a thread or a call, the process's first thread, whose number is its own. */
    FS_TRY(fs_part_take_lane(part, -1, fs_cell_number(cells, FS_CELL_THREAD, process), process, &record.lane, err));
    fs_memory_state_encode(&(fs_memory_state){-1, -1, (uint64_t)address}, state);
    if (address != 0) FS_TRY(fs_intern_bytes(&part->piece.signatures, state, sizeof state, &record.signature, err));
    FS_TRY(fs_part_add_record(part, &record, err));
    part->report.changes++;
    return address != 0 ? fs_part_add_allocation(part, process, address, fs_part_last_record(part), err) : FS_OK;
}

static fs_status keep_call(const fs_rows *rows, fs_part *part, fs_row_kind kind, const fs_cell *cells, fs_error *err)
{
    static const uint8_t kinds[FS_ROW_KIND_COUNT] = {
        [FS_ROW_CALL] = FS_EVENT_RUNTIME,      [FS_ROW_SPAN] = FS_EVENT_RANGE,  [FS_ROW_STEP] = FS_EVENT_STEP,
        [FS_ROW_OVERHEAD] = FS_EVENT_OVERHEAD, [FS_ROW_FRAME] = FS_EVENT_FRAME,
    };
    fs_record record;
    if (!fs_part_take_times(part, cells, &record)) return FS_OK;
    record.kind = kinds[kind];
    if (kind != FS_ROW_CALL) record.correlation = FS_NONE;
    FS_TRY(fs_part_take_thread(part, cells, &record.lane, err));
    FS_TRY(fs_part_take_name(rows, part, kind, cells, &record.name, err));
    return fs_part_add_record(part, &record, err);
}

/* Facts ------------------------------------------------------------------------------------------------------------ */

static fs_status keep_string(fs_rows *rows, const fs_cell *cells, fs_error *err)
{
    uint32_t id;
    const fs_cell *name = &cells[FS_CELL_NAME];
    if (cells[FS_CELL_ID].type != FS_IS_INTEGER || name->type != FS_IS_TEXT) return FS_OK;
    size_t size = name->size < FS_MOST_NAME ? name->size : FS_MOST_NAME;
    FS_TRY(fs_intern_bytes(&rows->strings, name->text, size, &id, err));
    return fs_id_map_set(&rows->string_ids, cells[FS_CELL_ID].integer, fs_cell_number(cells, FS_CELL_SPACE, 0), id,
                         err);
}

static fs_status keep_domain(fs_rows *rows, const fs_cell *cells, fs_error *err)
{
    uint32_t string;
    fs_span text = fs_rows_text_of(rows, cells, &string);
    if (text.bytes == NULL || text.size == 0 || cells[FS_CELL_DOMAIN].type != FS_IS_INTEGER) return FS_OK;
    if (string == FS_NONE) FS_TRY(fs_intern_bytes(&rows->strings, text.bytes, text.size, &string, err));
    return fs_id_map_set(&rows->domains, fs_cell_number(cells, FS_CELL_PROCESS, 0), cells[FS_CELL_DOMAIN].integer,
                         string, err);
}

static fs_status keep_device(fs_rows *rows, const fs_cell *cells, fs_error *err)
{
    int64_t index = fs_cell_number(cells, FS_CELL_ID, -1);
    if (index < 0 || index > INT32_MAX || cells[FS_CELL_DEVICE].type != FS_IS_INTEGER) return FS_OK;
    return fs_id_map_set(&rows->devices, fs_cell_number(cells, FS_CELL_PROCESS, 0), cells[FS_CELL_DEVICE].integer,
                         (uint32_t)index, err);
}

fs_status fs_rows_add(fs_rows *rows, uint32_t place, fs_row_kind kind, const fs_cell *cells, fs_error *err)
{
    fs_part *part = rows->parts[place];
    switch (kind) {
    case FS_ROW_STRING:
        return keep_string(rows, cells, err);
    case FS_ROW_DOMAIN:
        return keep_domain(rows, cells, err);
    case FS_ROW_DEVICE:
        return keep_device(rows, cells, err);
    case FS_ROW_FIELD:
        return fs_rows_keep_field(rows, cells, err);
    case FS_ROW_KERNEL:
    case FS_ROW_COPY:
    case FS_ROW_FILL:
    case FS_ROW_REPLAY:
    case FS_ROW_SYNC:
        return keep_work(rows, part, kind, cells, err);
    case FS_ROW_CALL:
    case FS_ROW_SPAN:
    case FS_ROW_OVERHEAD:
    case FS_ROW_FRAME:
    case FS_ROW_STEP:
        return keep_call(rows, part, kind, cells, err);
    case FS_ROW_RANGE:
        return fs_part_keep_range(rows, part, cells, err);
    case FS_ROW_NODE:
        return fs_part_add_node(part, cells, err);
    case FS_ROW_MEMORY:
        return keep_memory(rows, part, cells, err);
    case FS_ROW_METRIC:
        return fs_part_add_sample(part, cells, err);
    case FS_ROW_KIND_COUNT:
        break;
    }
    return FS_OK;
}
