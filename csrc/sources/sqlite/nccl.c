/* Payloads are read by their recorded schema: a field is used only if its name is one of NCCL's and its width is known,
 * and it is read only if it lies within the bytes. */
#include "sources/sqlite/nccl.h"

#include <string.h>

#include "base/memory.h"
#include "store/event.h"

/* Payloads --------------------------------------------------------------------------------------------------------- */

/* The fields that are used, by NCCL's names for them. */
static const char *const field_names[FS_PAYLOAD_FIELD_COUNT] = {
    [FS_PAYLOAD_COMMUNICATOR] = FS_NCCL_COMMUNICATOR_FIELD,
    [FS_PAYLOAD_SIZE] = FS_NCCL_SIZE_FIELD,
    [FS_PAYLOAD_RANKS] = FS_NCCL_RANKS_FIELD,
};

/* The widths of integers, by their types in nvToolsExtPayload.h (NVTX_PAYLOAD_ENTRY_TYPE_…); 0: no integer, or a small
 * one. */
static const uint8_t widths[] = {
    [5] = 4, [6] = 4, [7] = 8, [8] = 8, [9] = 8, [10] = 8, [15] = 4, [16] = 4, [17] = 8, [18] = 8, [22] = 8,
};

/* A payload follows a header of four numbers of 8 bytes: the domain, the schema, the size and where it begins. */
enum { HEADER = 32, SCHEMA_AT = 8, MOST_OFFSET = 1 << 16 };

fs_status fs_rows_keep_field(fs_rows *rows, const fs_cell *cells, fs_error *err)
{
    const fs_cell *name = &cells[FS_CELL_NAME], *type = &cells[FS_CELL_TYPE], *offset = &cells[FS_CELL_VALUE];
    int field = 0;
    while (field < FS_PAYLOAD_FIELD_COUNT && (name->type != FS_IS_TEXT || name->size != strlen(field_names[field]) ||
                                              memcmp(name->text, field_names[field], name->size) != 0))
        field++;
    bool known = type->type == FS_IS_INTEGER && type->integer >= 0 && type->integer < (int64_t)sizeof widths;
    uint8_t width = known ? widths[type->integer] : 0;
    int64_t at = offset->type == FS_IS_INTEGER ? offset->integer : 0; /* the first field has none */
    if (field == FS_PAYLOAD_FIELD_COUNT || width == 0 || at < 0 || at > MOST_OFFSET) return FS_OK;
    if (cells[FS_CELL_ID].type != FS_IS_INTEGER || cells[FS_CELL_DOMAIN].type != FS_IS_INTEGER) return FS_OK;
    int64_t schema = cells[FS_CELL_ID].integer, domain = cells[FS_CELL_DOMAIN].integer;
    uint32_t place = fs_id_map_get(&rows->payload_ids, schema, domain);
    if (place == FS_NONE) {
        FS_TRY(FS_LIST_ROOM(&rows->payloads, rows->payload_count, &rows->payload_capacity, 8, err));
        place = rows->payload_count;
        FS_TRY(fs_id_map_set(&rows->payload_ids, schema, domain, place, err));
        rows->payloads[rows->payload_count++] = (fs_payload){.widths = {0}};
    }
    rows->payloads[place].widths[field] = width;
    rows->payloads[place].offsets[field] = (uint32_t)at;
    return FS_OK;
}

static uint64_t read_number(const char *bytes, uint8_t width)
{
    uint64_t value = 0;
    memcpy(&value, bytes, width); /* little-endian, as the recording machine's */
    return value;
}

/* Return a field of a row's payload; false if it has none. */
static bool read_field(const fs_rows *rows, const fs_cell *cells, fs_payload_field field, uint64_t *value)
{
    const fs_cell *bytes = &cells[FS_CELL_PAYLOAD];
    if (bytes->type != FS_IS_TEXT || bytes->size < HEADER || cells[FS_CELL_DOMAIN].type != FS_IS_INTEGER) return false;
    int64_t schema = (int64_t)read_number(bytes->text + SCHEMA_AT, 8);
    uint32_t place = fs_id_map_get(&rows->payload_ids, schema, cells[FS_CELL_DOMAIN].integer);
    if (place == FS_NONE) return false;
    const fs_payload *payload = &rows->payloads[place];
    size_t at = HEADER + (size_t)payload->offsets[field];
    if (payload->widths[field] == 0 || at + payload->widths[field] > bytes->size) return false;
    *value = read_number(bytes->text + at, payload->widths[field]);
    return true;
}

/* Calls ------------------------------------------------------------------------------------------------------------ */

fs_status fs_part_add_nccl(const fs_rows *rows, fs_part *part, const fs_cell *cells, fs_span text, fs_record *record,
                           fs_error *err)
{
    uint64_t size = 0, ranks = 0;
    fs_nccl_call call = {.kind = fs_nccl_kind(text), .size = FS_MISSING};
    if (rows->payload_count == 0 || call.kind == FS_NCCL_NO_CALL) return FS_OK;
    call.known = read_field(rows, cells, FS_PAYLOAD_COMMUNICATOR, &call.communicator);
    if (call.kind == FS_NCCL_COMMUNICATOR) {
        if (!call.known || !read_field(rows, cells, FS_PAYLOAD_RANKS, &ranks) || ranks > INT32_MAX) return FS_OK;
        call.ranks = (int32_t)ranks;
    } else if (read_field(rows, cells, FS_PAYLOAD_SIZE, &size) && size <= FS_MOST_AMOUNT) {
        call.size = (int64_t)size;
    }
    FS_TRY(FS_LIST_ROOM(&part->calls, part->call_count, &part->call_capacity, 64, err));
    part->calls[part->call_count++] = (fs_recorded_call){record, call};
    return FS_OK;
}

/* The calls of all parts, once their records have indices. */
fs_status fs_rows_join_nccl(const fs_rows *rows, fs_store *store, fs_rows_report *report, fs_error *err)
{
    size_t count = 0;
    uint32_t listed = 0;
    fs_nccl_report found = {0};
    if (rows->payload_count == 0) return FS_OK;
    for (uint32_t i = 0; i < rows->part_count; i++) count += rows->parts[i]->call_count;
    fs_nccl_call *calls = count < FS_NONE ? fs_malloc((count + 1) * sizeof *calls) : NULL;
    if (calls == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < rows->part_count; i++) {
        for (uint32_t at = 0; at < rows->parts[i]->call_count; at++) {
            const fs_recorded_call *recorded = &rows->parts[i]->calls[at];
            calls[listed] = recorded->call;
            calls[listed].lane = recorded->record->lane;
            calls[listed++].event = recorded->record->index;
        }
    }
    fs_status status = fs_nccl_join(store, calls, listed, &found, err);
    report->messages += found.messages;
    report->unsized += found.unsized;
    fs_free(calls);
    return status;
}
