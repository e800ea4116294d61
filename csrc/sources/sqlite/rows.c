/* One function for each kind of row, chosen in fs_rows_add. Cells may be missing or of another type than the schema
 * says: every access has a default, and a row that cannot be used is left out and counted, never an error. Facts that
 * all parts share (strings, domains, devices, payloads) must be read before the rows that need them. */
#include "sources/sqlite/rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/sort.h"
#include "sources/kineto/join.h"
#include "sources/kineto/kineto.h"
#include "sources/sqlite/graphs.h"
#include "sources/sqlite/parts.h"
#include "sources/sqlite/tables.h"
#include "store/accelerator.h"
#include "store/event.h"
#include "store/signature.h"

/* A free finds the latest allocation at its address before it, in order of time and of the process, whatever part of
 * the database either came from. Sizes are not negative for allocations and negative for frees; a free that matches
 * nothing has 0 bytes and is counted. Nothing is done if every free has its size. */

static fs_status part_add_allocation(fs_part *part, int64_t process, int64_t address, fs_record *record, fs_error *err)
{
    FS_TRY(FS_LIST_ADD(&part->allocations, &part->allocation_count, &part->allocation_capacity, 64, err,
                       (fs_allocation){process, address, record}));
    part->frees_unsized = part->frees_unsized || record->bytes == FS_MISSING;
    return FS_OK;
}

/* Allocations before frees of the same time. */
static int compare_allocations(const void *left, const void *right)
{
    const fs_record *a = ((const fs_allocation *)left)->record, *b = ((const fs_allocation *)right)->record;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return (a->bytes < 0) - (b->bytes < 0);
}

/* Follow the allocations in order of time; `last` maps (process, address) to the latest allocation there. */
static fs_status match(const fs_allocation *all, uint32_t count, fs_id_map *last, fs_rows_report *report, fs_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        fs_record *record = all[i].record;
        FS_POLL(i, err);
        if (record->bytes >= 0) {
            FS_TRY(fs_id_map_set(last, all[i].process, all[i].address, i, err));
            continue;
        }
        if (record->bytes != FS_MISSING) continue;
        uint32_t found = fs_id_map_get(last, all[i].process, all[i].address);
        record->bytes = found != FS_NONE ? -all[found].record->bytes : 0;
        if (found != FS_NONE) record->device = all[found].record->device;
        else report->unmatched_frees++;
    }
    return FS_OK;
}

/* Fill in the frees, before the records are joined. Those of unknown allocations get 0 bytes, and are counted.
 * FS_OUT_OF_MEMORY; FS_INTERRUPTED. */
static fs_status match_frees(const fs_rows *rows, fs_rows_report *report, fs_error *err)
{
    size_t total = 0;
    bool unsized = false;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        total += rows->parts[i]->allocation_count;
        unsized = unsized || rows->parts[i]->frees_unsized;
    }
    if (!unsized) return FS_OK;
    fs_allocation *all = total < UINT32_MAX ? fs_malloc(total * sizeof *all) : NULL;
    if (all == NULL) return fs_no_memory(err);
    uint32_t count = 0;
    for (uint32_t i = 0; i < rows->part_count; i++)
        for (uint32_t at = 0; at < rows->parts[i]->allocation_count; at++)
            all[count++] = rows->parts[i]->allocations[at];
    fs_id_map last = {.slots = NULL};
    fs_status status = fs_sort(all, count, sizeof *all, compare_allocations, err);
    if (status == FS_OK) status = match(all, count, &last, report, err);
    fs_id_map_clear(&last);
    fs_free(all);
    return status;
}

/* Values are taken as they come, checked one by one: what is not finite, has no end or no device is left out, and a
 * begin after the end is missing. Parts were filled by threads of their own; sorted by device, metric and end, their
 * order does not matter. */

static bool is_index(const fs_cell *cell)
{
    return cell->type == FS_IS_INTEGER && cell->integer >= 0 && cell->integer <= INT32_MAX;
}

/* Keep a METRIC; a row without an end, a device, a metric or a value is left out. FS_OUT_OF_MEMORY. */
static fs_status part_add_sample(fs_part *part, const fs_cell *cells, fs_error *err)
{
    const fs_cell *start = &cells[FS_CELL_START], *end = &cells[FS_CELL_END], *value = &cells[FS_CELL_VALUE];
    bool timed = end->type == FS_IS_INTEGER && end->integer >= 0 && end->integer < INT64_MAX / 4;
    bool begun = start->type == FS_IS_INTEGER && start->integer >= 0 && start->integer <= end->integer;
    bool known = value->type == FS_IS_INTEGER && isfinite(value->real);
    if (!timed || !known || !is_index(&cells[FS_CELL_DEVICE]) || !is_index(&cells[FS_CELL_ID])) return FS_OK;
    return FS_LIST_ADD(&part->samples, &part->sample_count, &part->sample_capacity, 1024, err,
                       (fs_metric_sample){
                           .start = begun ? start->integer : FS_MISSING,
                           .end = end->integer,
                           .device = (int32_t)cells[FS_CELL_DEVICE].integer,
                           .metric = (int32_t)cells[FS_CELL_ID].integer,
                           .value = value->real,
                       });
}

FS_ORDER_BY(compare_samples, fs_metric_sample, device, metric, end)

fs_status fs_rows_metrics(const fs_rows *rows, fs_metric_sample **samples, uint32_t *count, fs_error *err)
{
    size_t total = 0;
    for (uint32_t i = 0; i < rows->part_count; i++) total += rows->parts[i]->sample_count;
    *samples = NULL;
    *count = 0;
    if (total > UINT32_MAX) return fs_no_memory(err);
    fs_metric_sample *all = fs_malloc((total + 1) * sizeof *all);
    if (all == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < rows->part_count; i++) {
        const fs_part *part = rows->parts[i];
        if (part->sample_count > 0) memcpy(all + *count, part->samples, part->sample_count * sizeof *all);
        *count += part->sample_count;
    }
    fs_status status = fs_sort(all, *count, sizeof *all, compare_samples, err);
    if (status == FS_OK) *samples = all;
    else fs_free(all);
    return status;
}

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
    return FS_NEW_ZEROED(rows, 1, err);
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

/* Copies, fills and waits have the names that Kineto gives them, so that a database and a trace of one program have the
 * same rows. Numbers index tables of CUPTI's enumerations; one that is out of range is "Unknown", never an error. */

static const char *const copies[] = {
    "<unknown>",
    "HtoD",
    "DtoH",
    "HtoA",
    "AtoH",
    "AtoA",
    "AtoD",
    "DtoA",
    "DtoD",
    "HtoH",
    "PtoP",
    /* migrations of managed memory */
    "Unified HtoD",
    "Unified DtoH",
    "Unified DtoD",
};

static const char *const memories[] = {"Pageable",      "Pinned",         "Device",  "Array", "Managed",
                                       "Device Static", "Managed Static", "Unknown", "Host"};

static const char *const synchronizations[] = {"Unknown Sync", "Event Sync", "Stream Wait Event", "Stream Sync",
                                               "Context Sync"};

#define COUNT(list) (int64_t)(sizeof(list) / sizeof *(list))
#define NAMED(list, index, unknown) ((index) >= 0 && (index) < COUNT(list) ? (list)[index] : (unknown))

static fs_status keep_work_name(const fs_rows *rows, fs_part *part, fs_row_kind kind, const fs_cell *cells,
                                fs_record *record, fs_error *err)
{
    static const char why[] = "(replayed; its kernels were not recorded)";
    char name[96];
    int64_t copied = fs_cell_number(cells, FS_CELL_COPY_KIND, 0), graph = fs_cell_number(cells, FS_CELL_GRAPH, 0);
    int64_t from = fs_cell_number(cells, FS_CELL_FROM, -1), to = fs_cell_number(cells, FS_CELL_TO, -1);
    if (kind == FS_ROW_KERNEL || cells[FS_CELL_NAME].type != FS_IS_MISSING)
        return fs_part_take_name(rows, part, kind, cells, &record->name, err);
    if (kind == FS_ROW_COPY)
        snprintf(name, sizeof name, "Memcpy %s (%s -> %s)", NAMED(copies, copied, copies[0]),
                 NAMED(memories, from, "Unknown"), NAMED(memories, to, "Unknown"));
    else if (kind == FS_ROW_FILL) snprintf(name, sizeof name, "Memset (%s)", NAMED(memories, from, "Unknown"));
    else if (kind == FS_ROW_SYNC)
        snprintf(name, sizeof name, "%s",
                 NAMED(synchronizations, fs_cell_number(cells, FS_CELL_TYPE, 0), synchronizations[0]));
    else if (graph > 0) snprintf(name, sizeof name, "CUDA graph %lld %s", (long long)graph, why);
    else snprintf(name, sizeof name, "CUDA graph %s", why);
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
    fs_graph_work work = {fs_cell_number(cells, FS_CELL_PROCESS, 0), node, fs_part_last_record(part)};
    return FS_LIST_ADD(&part->work, &part->work_count, &part->work_capacity, 64, err, work);
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
    return address != 0 ? part_add_allocation(part, process, address, fs_part_last_record(part), err) : FS_OK;
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
        return part_add_sample(part, cells, err);
    case FS_ROW_KIND_COUNT:
        break;
    }
    return FS_OK;
}

/* Joins the rows of a database in a store. */

/* Iterate over the records of a part, in order. */
#define EACH_RECORD(part, record)                                                              \
    for (fs_record_block *block_ = (part)->piece.first; block_ != NULL; block_ = block_->next) \
        for (fs_record *record = block_->records; record < block_->records + block_->count; record++)

/* Correlations ----------------------------------------------------------------------------------------------------- */

/* The correlations of a process, which counts its own. */
typedef struct {
    int64_t process;
    uint32_t least, largest, base;
} correlations;

typedef struct {
    correlations *items;
    uint32_t count, capacity;
    fs_id_map by_process;
} process_list;

static fs_status find_process(process_list *list, int64_t process, uint32_t *index, fs_error *err)
{
    *index = fs_id_map_get(&list->by_process, process, 0);
    if (*index != FS_NONE) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&list->items, list->count, &list->capacity, 8, err));
    FS_TRY(fs_id_map_set(&list->by_process, process, 0, list->count, err));
    list->items[list->count] = (correlations){process, UINT32_MAX, 0, 0};
    *index = list->count++;
    return FS_OK;
}

/* List the processes, and for each lane of a part the index of its process. */
static fs_status list_processes(process_list *list, const fs_part *part, uint32_t **of_lanes, fs_error *err)
{
    uint32_t count = part->piece.lanes.count;
    uint32_t *indices = *of_lanes = fs_malloc((count + (size_t)1) * sizeof *indices);
    if (indices == NULL) return fs_no_memory(err);
    for (uint32_t id = 0; id < count; id++) {
        const fs_record_lane *lane = fs_intern_get(&part->piece.lanes, id).bytes;
        FS_TRY(find_process(list, lane->process, &indices[id], err));
    }
    return FS_OK;
}

static void find_ranges(const process_list *list, const fs_part *part, const uint32_t *of_lanes)
{
    EACH_RECORD(part, record) {
        if (record->correlation == FS_NONE) continue;
        correlations *of = &list->items[of_lanes[record->lane]];
        if (record->correlation < of->least) of->least = record->correlation;
        if (record->correlation > of->largest) of->largest = record->correlation;
    }
}

/* Place the processes' ranges one after the other; false if they do not fit 32 bits. */
static bool place_ranges(const process_list *list)
{
    uint64_t next = 1;
    for (uint32_t i = 0; i < list->count; i++) {
        correlations *of = &list->items[i];
        if (of->least > of->largest) continue;
        of->base = (uint32_t)next;
        next += (uint64_t)of->largest - of->least + 1;
        if (next >= FS_NONE) return false;
    }
    return true;
}

/* Make the correlations of several processes unique, so that each finds its own calls. */
static fs_status separate(fs_rows *rows, process_list *list, uint32_t **of_lanes, fs_error *err)
{
    for (uint32_t i = 0; i < rows->part_count; i++) FS_TRY(list_processes(list, rows->parts[i], &of_lanes[i], err));
    if (list->count < 2) return FS_OK;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        find_ranges(list, rows->parts[i], of_lanes[i]);
        FS_TRY(fs_interrupt_poll(err));
    }
    if (!place_ranges(list)) return FS_OK;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        EACH_RECORD(rows->parts[i], record) {
            if (record->correlation == FS_NONE) continue;
            const correlations *of = &list->items[of_lanes[i][record->lane]];
            record->correlation = record->correlation - of->least + of->base;
        }
        FS_TRY(fs_interrupt_poll(err));
    }
    return FS_OK;
}

static fs_status separate_processes(fs_rows *rows, fs_rows_report *report, fs_error *err)
{
    process_list list = {.items = NULL};
    uint32_t **of_lanes = fs_calloc(rows->part_count + (size_t)1, sizeof *of_lanes);
    if (of_lanes == NULL) return fs_no_memory(err);
    fs_status status = separate(rows, &list, of_lanes, err);
    report->processes = list.count;
    for (uint32_t i = 0; i < rows->part_count; i++) fs_free(of_lanes[i]);
    fs_free(of_lanes);
    fs_free(list.items);
    fs_id_map_clear(&list.by_process);
    return status;
}

/* Open ranges ------------------------------------------------------------------------------------------------------ */

/* End the ranges that were open when recording ended, at the end of the last event. */
static void end_open_ranges(const fs_rows *rows)
{
    int64_t end = INT64_MIN;
    if (!FS_ANY(i, rows->part_count, rows->parts[i]->open_count > 0)) return;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        EACH_RECORD(rows->parts[i], record) {
            int64_t until = record->start + (record->duration != FS_MISSING ? record->duration : 0);
            if (until > end) end = until;
        }
    }
    for (uint32_t i = 0; i < rows->part_count; i++)
        for (uint32_t at = 0; at < rows->parts[i]->open_count; at++)
            rows->parts[i]->open[at]->duration = end - rows->parts[i]->open[at]->start;
}

/* Joining ---------------------------------------------------------------------------------------------------------- */

static void add_reports(const fs_rows *rows, fs_rows_report *report)
{
    report->process = -1;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        const fs_part *part = rows->parts[i];
        report->events += part->report.events;
        report->without_time += part->report.without_time;
        report->too_many += part->report.too_many;
        report->ops += part->report.ops;
        report->marks += part->report.marks;
        report->unnamed += part->report.unnamed;
        report->replays += part->report.replays;
        report->graph_work += part->report.graph_work;
        report->changes += part->report.changes;
        for (uint32_t id = 0; id < part->piece.lanes.count && report->process < 0; id++) {
            const fs_record_lane *lane = fs_intern_get(&part->piece.lanes, id).bytes;
            if (lane->device < 0) report->process = lane->process;
        }
    }
}

static fs_status join(fs_rows *rows, fs_store *store, fs_rows_report *report, fs_error *err)
{
    fs_kineto_report joined = {.bytes = 0};
    /* The join takes an array of pieces. They go back to their parts, which own them, with their records. */
    fs_piece *pieces = fs_malloc((rows->part_count + (size_t)1) * sizeof *pieces);
    if (pieces == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < rows->part_count; i++) pieces[i] = rows->parts[i]->piece;
    fs_join_options options = {.keeps_alike = !rows->unites, .own_memory = true};
    fs_status status = fs_join_pieces(pieces, rows->part_count, options, store, &joined, err);
    for (uint32_t i = 0; i < rows->part_count; i++) rows->parts[i]->piece = pieces[i];
    fs_free(pieces);
    report->overlapping = joined.overlapping;
    return status;
}

fs_status fs_rows_finish(fs_rows *rows, const char *head, size_t head_size, fs_store **store, fs_rows_report *report,
                         fs_error *err)
{
    fs_kineto_head_facts facts = {0, false, 0};
    memset(report, 0, sizeof *report);
    add_reports(rows, report);
    FS_TRY(separate_processes(rows, report, err));
    FS_TRY(match_frees(rows, report, err));
    end_open_ranges(rows);
    FS_TRY(fs_kineto_read_head(head, head_size, *store, &facts, err));
    FS_TRY(join(rows, *store, report, err));
    FS_TRY(fs_store_set_accelerator(*store, fs_accelerator_told(facts.accelerators), err));
    report->kept = fs_store_count(*store);
    FS_TRY(fs_rows_join_nccl(rows, *store, report, err));
    /* Where work names the instructions that it runs, no captures tell its ops. */
    bool named = FS_ANY(i, rows->part_count, rows->parts[i]->tie_count > 0);
    return named ? FS_OK : fs_rows_join_graphs(rows, store, report, err);
}
