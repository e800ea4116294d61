#include "sources/sqlite/rows.h"

#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "sources/kineto/event.h"
#include "sources/sqlite/allocations.h"
#include "sources/sqlite/graphs.h"
#include "sources/sqlite/metrics.h"
#include "sources/sqlite/names.h"
#include "sources/sqlite/nccl.h"
#include "sources/sqlite/nvtx.h"
#include "sources/sqlite/tables.h"
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

/* Names longer than this are cut. */
enum { MOST_NAME = 1 << 16 };

fs_status fs_rows_create(fs_rows **rows, fs_error *err)
{
    *rows = fs_calloc(1, sizeof **rows);
    return *rows != NULL ? FS_OK : fs_fail(err, FS_OUT_OF_MEMORY, "no memory to read a database");
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
}

void fs_rows_destroy(fs_rows *rows)
{
    if (rows == NULL) return;
    for (uint32_t i = 0; i < rows->part_count; i++) {
        clear_part(rows->parts[i]);
        fs_free(rows->parts[i]);
    }
    fs_free(rows->parts);
    fs_id_map *maps[] = {&rows->string_ids, &rows->domains, &rows->devices, &rows->payload_ids};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) fs_id_map_clear(maps[i]);
    fs_intern_clear(&rows->strings);
    fs_free(rows->payloads);
    fs_free(rows);
}

fs_status fs_rows_open_parts(fs_rows *rows, uint32_t count, uint32_t *first, fs_error *err)
{
    uint32_t total = rows->part_count + count;
    fs_part **parts = fs_realloc(rows->parts, total * sizeof(fs_part *));
    if (parts == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to read a database in %u parts", total);
    rows->parts = parts;
    *first = rows->part_count;
    while (rows->part_count < total) {
        fs_part *part = fs_calloc(1, sizeof *part);
        if (part == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to read a database in %u parts", total);
        fs_piece_init(&part->piece, 0, 0, FS_PIECE_END);
        rows->parts[rows->part_count++] = part;
    }
    return FS_OK;
}

/* Cells ------------------------------------------------------------------------------------------------------------ */

static int64_t number(const fs_cell *cells, fs_row_column column, int64_t missing)
{
    return cells[column].type == FS_IS_INTEGER ? cells[column].integer : missing;
}

/* A count that fits 32 bits; anything else is missing. */
static uint32_t count_of(const fs_cell *cells, fs_row_column column)
{
    int64_t value = number(cells, column, 0);
    return value > 0 && value <= UINT32_MAX ? (uint32_t)value : 0;
}

static bool is_possible(int64_t time)
{
    return time > -INT64_MAX / 4 && time < INT64_MAX / 4;
}

/* Take the times of a row; false, and counted, if it has no possible start. */
static bool take_times(fs_part *part, const fs_cell *cells, fs_record *record)
{
    int64_t start = number(cells, FS_CELL_START, INT64_MAX), end = number(cells, FS_CELL_END, INT64_MIN);
    part->report.events++;
    if (!is_possible(start)) {
        part->report.without_time++;
        return false;
    }
    *record = (fs_record){
        .start = start,
        .duration = is_possible(end) && end >= start ? end - start : FS_MISSING,
        .external = -1,
        .name = FS_NONE,
        .signature = FS_NONE,
        .correlation = FS_NONE,
        .device = -1,
    };
    int64_t correlation = number(cells, FS_CELL_CORRELATION, 0);
    if (correlation > 0 && (uint32_t)correlation != FS_NONE) record->correlation = (uint32_t)correlation;
    return true;
}

/* Names ------------------------------------------------------------------------------------------------------------ */

/* Intern a name. The join takes names as JSON spells them, in which a backslash is doubled. */
static fs_status intern_name(fs_part *part, const char *text, size_t size, uint32_t *id, fs_error *err)
{
    const char *zero = memchr(text, 0, size);
    if (zero != NULL) size = (size_t)(zero - text);
    if (size > MOST_NAME) size = MOST_NAME;
    if (memchr(text, '\\', size) == NULL) return fs_intern_bytes(&part->piece.names, text, size, id, err);
    char *spelled = fs_malloc(2 * size);
    if (spelled == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a name of %zu bytes", size);
    size_t length = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\\') spelled[length++] = '\\';
        spelled[length++] = text[i];
    }
    fs_status status = fs_intern_bytes(&part->piece.names, spelled, length, id, err);
    fs_free(spelled);
    return status;
}

/* Return the text of a row's name, or the one whose id it gives; no text if there is none. */
static fs_span text_of(const fs_rows *rows, const fs_cell *cells, uint32_t *string)
{
    const fs_cell *cell = &cells[cells[FS_CELL_TEXT].type != FS_IS_MISSING ? FS_CELL_TEXT : FS_CELL_NAME];
    fs_span text = {NULL, 0, 0};
    *string = FS_NONE;
    if (cell->type == FS_IS_TEXT)
        text = (fs_span){cell->text, cell->size < MOST_NAME ? (uint32_t)cell->size : MOST_NAME, 0};
    if (cell->type == FS_IS_INTEGER) {
        *string = fs_id_map_get(&rows->string_ids, cell->integer, number(cells, FS_CELL_SPACE, 0));
    }
    if (*string != FS_NONE) text = fs_intern_get(&rows->strings, *string);
    return text;
}

/* How a text becomes a name: a kernel's and a range's as it is, a call's without its version. */
static size_t named_size(fs_row_kind kind, fs_span text)
{
    return kind == FS_ROW_CALL ? fs_call_name_size(text.bytes, text.size) : text.size;
}

/* Intern the name of a row. Names given by id are looked up once in each part. */
static fs_status take_name(const fs_rows *rows, fs_part *part, fs_row_kind kind, const fs_cell *cells, uint32_t *name,
                           fs_error *err)
{
    uint32_t string;
    fs_span text = text_of(rows, cells, &string);
    if (text.bytes == NULL) {
        char unnamed[48];
        int64_t id = number(cells, FS_CELL_NAME, -1);
        int size = id >= 0 ? snprintf(unnamed, sizeof unnamed, "<string %lld>", (long long)id)
                           : snprintf(unnamed, sizeof unnamed, "<unnamed %s>", fs_row_kind_names[kind]);
        part->report.unnamed++;
        return intern_name(part, unnamed, (size_t)size, name, err);
    }
    if (string == FS_NONE) return intern_name(part, text.bytes, named_size(kind, text), name, err);
    if (part->string_names == NULL) {
        part->string_names = fs_calloc(rows->strings.count, sizeof *part->string_names);
        if (part->string_names == NULL)
            return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %u names", rows->strings.count);
    }
    uint32_t *known = &part->string_names[string];
    if (*known == 0) {
        FS_TRY(intern_name(part, text.bytes, named_size(kind, text), name, err));
        *known = *name + 1;
    }
    *name = *known - 1;
    return FS_OK;
}

/* Records ---------------------------------------------------------------------------------------------------------- */

static fs_status add_record(fs_part *part, const fs_record *record, fs_error *err)
{
    fs_piece *piece = &part->piece;
    if (piece->last == NULL || piece->last->count == FS_RECORD_BLOCK) {
        fs_record_block *block = fs_malloc(sizeof *block);
        if (block == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the events of a database");
        block->next = NULL;
        block->count = 0;
        if (piece->last != NULL) piece->last->next = block;
        else piece->first = block;
        piece->last = block;
    }
    piece->last->records[piece->last->count++] = *record;
    return FS_OK;
}

/* The record that was added last. */
static fs_record *last_record(const fs_part *part)
{
    return &part->piece.last->records[part->piece.last->count - 1];
}

static fs_status take_lane(fs_part *part, int64_t device, int64_t thread, int64_t process, uint32_t *lane,
                           fs_error *err)
{
    fs_piece *piece = &part->piece;
    fs_record_lane key = {device, thread, process};
    if (piece->last_lane == FS_NONE || memcmp(&key, &piece->last_lane_key, sizeof key) != 0) {
        FS_TRY(fs_intern_bytes(&piece->lanes, &key, sizeof key, &piece->last_lane, err));
        piece->last_lane_key = key;
    }
    *lane = piece->last_lane;
    return FS_OK;
}

static fs_status take_thread(fs_part *part, const fs_cell *cells, uint32_t *lane, fs_error *err)
{
    return take_lane(part, -1, number(cells, FS_CELL_THREAD, 0), number(cells, FS_CELL_PROCESS, 0), lane, err);
}

/* The index of a device as its process numbers it; the same number if the file does not map it. */
static int64_t device_of(const fs_rows *rows, const fs_cell *cells)
{
    int64_t device = number(cells, FS_CELL_DEVICE, 0);
    uint32_t index = fs_id_map_get(&rows->devices, number(cells, FS_CELL_PROCESS, 0), device);
    return index != FS_NONE ? (int64_t)index : device;
}

static fs_status take_launch(fs_part *part, const fs_cell *cells, fs_record *record, fs_error *err)
{
    _Alignas(8) char bytes[FS_LAUNCH_BYTES];
    uint64_t dynamic = (uint64_t)count_of(cells, FS_CELL_DYNAMIC_SHARED) + count_of(cells, FS_CELL_STATIC_SHARED);
    fs_launch launch = {
        .grid = {count_of(cells, FS_CELL_GRID_X), count_of(cells, FS_CELL_GRID_Y), count_of(cells, FS_CELL_GRID_Z)},
        .block = {count_of(cells, FS_CELL_BLOCK_X), count_of(cells, FS_CELL_BLOCK_Y), count_of(cells, FS_CELL_BLOCK_Z)},
        .cluster = {count_of(cells, FS_CELL_CLUSTER_X), count_of(cells, FS_CELL_CLUSTER_Y),
                    count_of(cells, FS_CELL_CLUSTER_Z)},
        .registers = count_of(cells, FS_CELL_REGISTERS),
        .dynamic_shared = dynamic <= UINT32_MAX ? (uint32_t)dynamic : 0, /* plus static, as Kineto has it */
        .graph = count_of(cells, FS_CELL_GRAPH),
        .context = count_of(cells, FS_CELL_CONTEXT),
        .graph_node = (uint64_t)number(cells, FS_CELL_GRAPH_NODE, 0),
    };
    fs_launch_encode(&launch, bytes);
    return fs_intern_bytes(&part->piece.signatures, bytes, sizeof bytes, &record->signature, err);
}

static fs_status keep_work_name(const fs_rows *rows, fs_part *part, fs_row_kind kind, const fs_cell *cells,
                                fs_record *record, fs_error *err)
{
    char name[FS_WORK_NAME_SIZE];
    if (kind == FS_ROW_KERNEL || cells[FS_CELL_NAME].type != FS_IS_MISSING)
        return take_name(rows, part, kind, cells, &record->name, err);
    if (kind == FS_ROW_COPY)
        fs_copy_name(number(cells, FS_CELL_COPY_KIND, 0), number(cells, FS_CELL_FROM, -1),
                     number(cells, FS_CELL_TO, -1), name);
    else if (kind == FS_ROW_FILL) fs_fill_name(number(cells, FS_CELL_FROM, -1), name);
    else if (kind == FS_ROW_REPLAY) fs_replay_name(number(cells, FS_CELL_GRAPH, 0), name);
    else fs_sync_name(number(cells, FS_CELL_TYPE, 0), name);
    return fs_intern_text(&part->piece.names, name, &record->name, err);
}

static fs_status keep_work(const fs_rows *rows, fs_part *part, fs_row_kind kind, const fs_cell *cells, fs_error *err)
{
    static const uint8_t kinds[FS_ROW_KIND_COUNT] = {
        [FS_ROW_KERNEL] = FS_EVENT_KERNEL, [FS_ROW_COPY] = FS_EVENT_MEMCPY, [FS_ROW_FILL] = FS_EVENT_MEMSET,
        [FS_ROW_REPLAY] = FS_EVENT_KERNEL, [FS_ROW_SYNC] = FS_EVENT_SYNC,
    };
    fs_record record;
    if (!take_times(part, cells, &record)) return FS_OK;
    int64_t device = device_of(rows, cells), bytes = number(cells, FS_CELL_BYTES, 0);
    if (kind == FS_ROW_SYNC && (device < 0 || device >= FS_DEVICE_LIMIT)) device = 0;
    if (device < 0 || device >= FS_DEVICE_LIMIT) {
        part->report.too_many++;
        return FS_OK;
    }
    record.kind = kinds[kind];
    record.device = kind == FS_ROW_SYNC ? -1 : (int8_t)device;
    record.bytes = bytes > 0 && bytes <= FS_MOST_AMOUNT ? bytes : 0;
    FS_TRY(take_lane(part, device, number(cells, FS_CELL_STREAM, 0), number(cells, FS_CELL_PROCESS, 0), &record.lane,
                     err));
    FS_TRY(keep_work_name(rows, part, kind, cells, &record, err));
    if (kind != FS_ROW_SYNC) FS_TRY(take_launch(part, cells, &record, err));
    FS_TRY(add_record(part, &record, err));
    if (kind == FS_ROW_REPLAY) part->report.replays++;
    int64_t node = number(cells, FS_CELL_GRAPH_NODE, 0);
    if (kind == FS_ROW_SYNC || node == 0) return FS_OK;
    part->report.graph_work++;
    return fs_part_add_graph_work(part, number(cells, FS_CELL_PROCESS, 0), node, last_record(part), err);
}

enum { PAGEABLE, PINNED }; /* kinds of the host's memory */
enum { ALLOCATED, FREED };

static fs_status keep_memory(const fs_rows *rows, fs_part *part, const fs_cell *cells, fs_error *err)
{
    _Alignas(8) char state[FS_MEMORY_STATE_BYTES];
    fs_record record;
    int64_t type = number(cells, FS_CELL_TYPE, -1), bytes = number(cells, FS_CELL_BYTES, 0);
    int64_t address = number(cells, FS_CELL_ADDRESS, 0), process = number(cells, FS_CELL_PROCESS, 0);
    int64_t from = number(cells, FS_CELL_FROM, -1), device = device_of(rows, cells);
    bool on_host = cells[FS_CELL_DEVICE].type != FS_IS_INTEGER || from == PAGEABLE || from == PINNED;
    if ((type != ALLOCATED && type != FREED) || !take_times(part, cells, &record)) return FS_OK;
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
    FS_TRY(take_lane(part, -1, number(cells, FS_CELL_THREAD, process), process, &record.lane, err));
    fs_memory_state_encode(&(fs_memory_state){-1, -1, (uint64_t)address}, state);
    if (address != 0) FS_TRY(fs_intern_bytes(&part->piece.signatures, state, sizeof state, &record.signature, err));
    FS_TRY(add_record(part, &record, err));
    part->report.changes++;
    return address != 0 ? fs_part_add_allocation(part, process, address, last_record(part), err) : FS_OK;
}

static fs_status keep_call(const fs_rows *rows, fs_part *part, fs_row_kind kind, const fs_cell *cells, fs_error *err)
{
    fs_record record;
    if (!take_times(part, cells, &record)) return FS_OK;
    record.kind = kind == FS_ROW_CALL ? FS_EVENT_RUNTIME : kind == FS_ROW_SPAN ? FS_EVENT_RANGE : FS_EVENT_OVERHEAD;
    if (kind != FS_ROW_CALL) record.correlation = FS_NONE;
    FS_TRY(take_thread(part, cells, &record.lane, err));
    FS_TRY(take_name(rows, part, kind, cells, &record.name, err));
    return add_record(part, &record, err);
}

/* Ranges ----------------------------------------------------------------------------------------------------------- */

enum { NVTX_PUSHED = 59, NVTX_STARTED = 60 };

/* An op of the backward pass has no thread of the forward pass in its text; its process stands for it. Sequence numbers
 * of several processes are kept apart. */
static int64_t node_of(const fs_nvtx_text *text, int64_t process)
{
    enum { SEQUENCE_BITS = 30, PROCESS_BITS = 16 };
    if (text->sequence < 0 || text->sequence >> SEQUENCE_BITS != 0) return 0;
    int64_t key = process & ((1 << PROCESS_BITS) - 1);
    int64_t thread = text->backward ? 1 + key % ((1 << FS_NODE_THREAD_BITS) - 1) : 0;
    return fs_record_node(key << SEQUENCE_BITS | text->sequence, thread);
}

static fs_status keep_op(fs_part *part, const fs_nvtx_text *parsed, int64_t process, fs_record *record, fs_error *err)
{
    fs_event_arguments arguments;
    record->kind = FS_EVENT_OP;
    part->report.ops++;
    record->node = node_of(parsed, process);
    fs_arguments_begin(&arguments);
    if (parsed->sizes == NULL) return FS_OK;
    arguments.dims = (fs_scan_span){parsed->sizes, parsed->sizes_size, false};
    return fs_arguments_call(&part->piece, &arguments, &record->signature, err);
}

/* "domain: name" for a range of a domain with a name. */
static fs_status take_range_name(const fs_rows *rows, fs_part *part, const fs_cell *cells, fs_span text, uint32_t *id,
                                 fs_error *err)
{
    int64_t domain = number(cells, FS_CELL_DOMAIN, 0);
    uint32_t string = domain != 0 ? fs_id_map_get(&rows->domains, number(cells, FS_CELL_PROCESS, 0), domain) : FS_NONE;
    if (string == FS_NONE) return intern_name(part, text.bytes, text.size, id, err);
    fs_span name = fs_intern_get(&rows->strings, string);
    size_t size = (size_t)name.size + 2 + text.size;
    char *joined = fs_malloc(size);
    if (joined == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a name of %zu bytes", size);
    memcpy(joined, name.bytes, name.size);
    joined[name.size] = ':';
    joined[name.size + 1] = ' ';
    if (text.size > 0) memcpy(joined + name.size + 2, text.bytes, text.size);
    fs_status status = intern_name(part, joined, size, id, err);
    fs_free(joined);
    return status;
}

static fs_status add_open(fs_part *part, fs_record *record, fs_error *err)
{
    if (part->open_count == part->open_capacity) {
        uint32_t capacity = part->open_capacity ? part->open_capacity * 2 : 16;
        fs_record **open = fs_realloc(part->open, capacity * sizeof *open);
        if (open == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %u open ranges", capacity);
        part->open = open;
        part->open_capacity = capacity;
    }
    part->open[part->open_count++] = record;
    return FS_OK;
}

/* Extract the "message" of a row's JSON, if it has one; *copy owns it. */
static fs_status take_message(const fs_cell *cell, char **copy, fs_span *text, fs_error *err)
{
    fs_scan_pull pull;
    fs_scan_token token;
    fs_scan_span span;
    bool here = false;
    if (cell->type != FS_IS_TEXT || cell->size <= 2 || cell->size > MOST_NAME) return FS_OK;
    char *json = fs_calloc(1, 2 * (cell->size + FS_SCAN_PADDING));
    if (json == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a name of %zu bytes", cell->size);
    *copy = json;
    memcpy(json, cell->text, cell->size);
    fs_scan_pull_begin(&pull, json, cell->size);
    while (fs_scan_next(&pull, &token, &span) == FS_SCAN_GOOD && pull.depth > 0) {
        if (token == FS_SCAN_STRING && here && pull.depth == 1) {
            char *plain = json + cell->size + FS_SCAN_PADDING;
            *text = (fs_span){plain, (uint32_t)fs_scan_unescape(&span, plain), 0};
            return FS_OK;
        }
        here = token == FS_SCAN_KEY && span.size == 7 && memcmp(span.text, "message", 7) == 0;
    }
    return FS_OK;
}

static fs_status keep_named_range(const fs_rows *rows, fs_part *part, const fs_cell *cells, fs_span text, fs_error *err)
{
    static const char step[] = "ProfilerStep#";
    fs_record record;
    if (!take_times(part, cells, &record)) return FS_OK;
    fs_nvtx_text parsed = fs_nvtx_parse(text.bytes, text.size);
    record.correlation = FS_NONE;
    record.kind = FS_EVENT_RANGE;
    if (parsed.op && record.duration == FS_MISSING) {
        part->report.without_time++;
        return FS_OK;
    }
    FS_TRY(take_thread(part, cells, &record.lane, err));
    text.size = (uint32_t)parsed.name_size;
    if (parsed.op) FS_TRY(keep_op(part, &parsed, number(cells, FS_CELL_PROCESS, 0), &record, err));
    if (!parsed.op && text.size >= sizeof step - 1 && memcmp(text.bytes, step, sizeof step - 1) == 0)
        record.kind = FS_EVENT_STEP;
    int64_t thread = number(cells, FS_CELL_THREAD, 0), end_thread = number(cells, FS_CELL_END_THREAD, thread);
    bool elsewhere = number(cells, FS_CELL_TYPE, NVTX_PUSHED) == NVTX_STARTED && end_thread != thread;
    fs_scan_span name = {text.bytes, text.size, false};
    record.communication = elsewhere || (record.kind == FS_EVENT_RANGE && fs_scan_is_communication(&name));
    FS_TRY(take_range_name(rows, part, cells, text, &record.name, err));
    FS_TRY(add_record(part, &record, err));
    FS_TRY(fs_part_add_nccl(rows, part, cells, text, last_record(part), err));
    return record.duration == FS_MISSING ? add_open(part, last_record(part), err) : FS_OK;
}

static fs_status keep_range(const fs_rows *rows, fs_part *part, const fs_cell *cells, fs_error *err)
{
    uint32_t string;
    char *message = NULL;
    int64_t type = number(cells, FS_CELL_TYPE, NVTX_PUSHED);
    if (type != NVTX_PUSHED && type != NVTX_STARTED) {
        part->report.marks++;
        return FS_OK;
    }
    fs_span text = text_of(rows, cells, &string);
    FS_TRY(take_message(&cells[FS_CELL_MESSAGE], &message, &text, err));
    if (text.bytes == NULL) text = (fs_span){"<unnamed range>", 15, 0};
    fs_status status = keep_named_range(rows, part, cells, text, err);
    fs_free(message);
    return status;
}

/* Facts ------------------------------------------------------------------------------------------------------------ */

static fs_status keep_string(fs_rows *rows, const fs_cell *cells, fs_error *err)
{
    uint32_t id;
    const fs_cell *name = &cells[FS_CELL_NAME];
    if (cells[FS_CELL_ID].type != FS_IS_INTEGER || name->type != FS_IS_TEXT) return FS_OK;
    size_t size = name->size < MOST_NAME ? name->size : MOST_NAME;
    FS_TRY(fs_intern_bytes(&rows->strings, name->text, size, &id, err));
    return fs_id_map_set(&rows->string_ids, cells[FS_CELL_ID].integer, number(cells, FS_CELL_SPACE, 0), id, err);
}

static fs_status keep_domain(fs_rows *rows, const fs_cell *cells, fs_error *err)
{
    uint32_t string;
    fs_span text = text_of(rows, cells, &string);
    if (text.bytes == NULL || text.size == 0 || cells[FS_CELL_DOMAIN].type != FS_IS_INTEGER) return FS_OK;
    if (string == FS_NONE) FS_TRY(fs_intern_bytes(&rows->strings, text.bytes, text.size, &string, err));
    return fs_id_map_set(&rows->domains, number(cells, FS_CELL_PROCESS, 0), cells[FS_CELL_DOMAIN].integer, string, err);
}

static fs_status keep_device(fs_rows *rows, const fs_cell *cells, fs_error *err)
{
    int64_t index = number(cells, FS_CELL_ID, -1);
    if (index < 0 || index > INT32_MAX || cells[FS_CELL_DEVICE].type != FS_IS_INTEGER) return FS_OK;
    return fs_id_map_set(&rows->devices, number(cells, FS_CELL_PROCESS, 0), cells[FS_CELL_DEVICE].integer,
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
        return keep_call(rows, part, kind, cells, err);
    case FS_ROW_RANGE:
        return keep_range(rows, part, cells, err);
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
