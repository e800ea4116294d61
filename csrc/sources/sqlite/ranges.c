/* Ranges of NVTX and roctx, some of which are ops of torch. */
#include <ctype.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/text.h"
#include "sources/kineto/piece.h"
#include "sources/sqlite/parts.h"
#include "store/event.h"

/* torch.autograd.profiler.emit_nvtx appends what it knows to the name of a range: ", seq = 5, op_id = 7, sizes = [[2,
 * 3]]". The text is parsed from each comma on, and is accepted only if it consists of such parts up to its end; a
 * program's own range that merely looks similar stays as it is. The name ends where the parts begin. */

typedef struct {
    const char *at, *end;
} cursor;

static bool take(cursor *text, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(text->end - text->at) < size || memcmp(text->at, word, size) != 0) return false;
    text->at += size;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Take an integer of at most 18 digits. */
static bool take_number(cursor *text, int64_t *number)
{
    const char *first = text->at;
    bool negative = take(text, "-");
    int64_t value = 0;
    const char *digits = text->at;
    for (; text->at < text->end && is_digit(*text->at) && text->at - digits < 18; text->at++)
        value = value * 10 + (*text->at - '0');
    if (text->at == digits) {
        text->at = first;
        return false;
    }
    *number = negative ? -value : value;
    return true;
}

/* Take a list up to its matching bracket. A list that is cut off, as NVTX cuts long texts, takes the rest of the text
 * and is NULL. */
static bool take_list(cursor *text, const char **list, size_t *size)
{
    const char *at = text->at;
    int depth = 0;
    if (at == text->end || *at != '[') return false;
    for (; at < text->end; at++) {
        depth += (*at == '[') - (*at == ']');
        if (depth == 0) break;
    }
    *list = at < text->end ? text->at : NULL;
    *size = at < text->end ? (size_t)(at + 1 - text->at) : 0;
    text->at = at < text->end ? at + 1 : at;
    return true;
}

/* Take all parts after the name. False if the text does not consist of such parts. */
static bool take_parts(cursor text, fs_nvtx_text *parsed, bool *numbered)
{
    const char *list;
    size_t size;
    int64_t op_id;
    if (take(&text, ", seq = ")) {
        if (!take_number(&text, &parsed->sequence)) return false;
    }
    if (take(&text, ", op_id = ")) {
        if (!take_number(&text, &op_id)) return false;
        *numbered = true;
    }
    if (take(&text, ", sizes = ") && !take_list(&text, &parsed->sizes, &parsed->sizes_size)) return false;
    if (take(&text, ", input_op_ids = ") && !take_list(&text, &list, &size)) return false;
    return text.at == text.end;
}

static bool contains(const char *text, size_t size, const char *word)
{
    size_t length = strlen(word);
    for (size_t i = 0; i + length <= size; i++)
        if (memcmp(text + i, word, length) == 0) return true;
    return false;
}

static const char evaluate[] = "autograd::engine::evaluate_function: ";

/* namespace::name, as ops are called. Names of Python's classes, such as FSDP::pre_forward, begin with a capital. */
static bool is_qualified(const char *text, size_t size)
{
    size_t colons = 0;
    if (size == 0 || !(islower((unsigned char)*text) || *text == '_')) return false;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == ':') colons++;
        else if (!isalnum(c) && c != '_' && c != '.') return false;
    }
    return colons >= 2 && contains(text, size, "::") && text[size - 1] != ':';
}

/* Ops whose names have no namespace: torch's own (C++ functions that record themselves), and inductor's kernels. */
static const char *const plain_ops[] = {"detach", "detach_", "record_param_comms", "to"};

static bool is_plain_op(const char *text, size_t size)
{
    if (fs_text_begins((fs_text){text, size}, "triton_")) return true;
    return FS_ANY(i, sizeof plain_ops / sizeof *plain_ops,
                  size == strlen(plain_ops[i]) && memcmp(text, plain_ops[i], size) == 0);
}

/* "MmBackward0", or the name of a Python autograd function followed by "Backward". */
static bool is_node(const char *text, size_t size)
{
    while (size > 0 && is_digit(text[size - 1])) size--;
    return size >= 8 && memcmp(text + size - 8, "Backward", 8) == 0;
}

static fs_nvtx_text nvtx_parse(const char *text, size_t size)
{
    fs_nvtx_text parsed = {size, -1, NULL, 0, false, false};
    bool numbered = false;
    for (const char *at = text; (at = memchr(at, ',', size - (size_t)(at - text))) != NULL; at++) {
        fs_nvtx_text found = {(size_t)(at - text), -1, NULL, 0, false, false};
        numbered = false;
        if (!take_parts((cursor){at, text + size}, &found, &numbered)) continue;
        parsed = found;
        break;
    }
    size_t name = parsed.name_size;
    bool marked = name < size, evaluates = fs_text_begins((fs_text){text, name}, evaluate);
    bool qualified = is_qualified(text, name);
    parsed.op = evaluates || (qualified && (marked || fs_text_begins((fs_text){text, name}, "aten::"))) ||
                parsed.sequence >= 0 || parsed.sizes != NULL || (numbered && is_plain_op(text, name));
    parsed.backward = parsed.sequence >= 0 && (evaluates || is_node(text, name));
    return parsed;
}

/* Payloads are read by their recorded schema: a field is used only if its name is one of NCCL's and its width is known,
 * and it is read only if it lies within the bytes. */

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

/* Keep what a range tells about NCCL: its record, which was just added to the part. FS_OUT_OF_MEMORY. */
static fs_status part_add_nccl(const fs_rows *rows, fs_part *part, const fs_cell *cells, fs_span text,
                               fs_record *record, fs_error *err)
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
    return FS_LIST_ADD(&part->calls, &part->call_count, &part->call_capacity, 64, err,
                       (fs_recorded_call){record, call});
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

/* Types of ranges; those of NVTXT were imported from a file. */
enum { NVTX_PUSHED = 59, NVTX_STARTED = 60, NVTXT_PUSHED = 70, NVTXT_STARTED = 71 };

static bool is_started(int64_t type)
{
    return type == NVTX_STARTED || type == NVTXT_STARTED;
}

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
    int64_t domain = fs_cell_number(cells, FS_CELL_DOMAIN, 0);
    uint32_t string =
        domain != 0 ? fs_id_map_get(&rows->domains, fs_cell_number(cells, FS_CELL_PROCESS, 0), domain) : FS_NONE;
    if (string == FS_NONE) return fs_part_intern_name(part, text.bytes, text.size, id, err);
    fs_span name = fs_intern_get(&rows->strings, string);
    size_t size = (size_t)name.size + 2 + text.size;
    char *joined = fs_malloc(size);
    if (joined == NULL) return fs_no_memory(err);
    memcpy(joined, name.bytes, name.size);
    joined[name.size] = ':';
    joined[name.size + 1] = ' ';
    if (text.size > 0) memcpy(joined + name.size + 2, text.bytes, text.size);
    fs_status status = fs_part_intern_name(part, joined, size, id, err);
    fs_free(joined);
    return status;
}

/* Extract the "message" of a row's JSON, if it has one; *copy owns it. */
static fs_status take_message(const fs_cell *cell, char **copy, fs_span *text, fs_error *err)
{
    fs_scan_pull pull;
    fs_scan_token token;
    fs_scan_span span;
    bool here = false;
    if (cell->type != FS_IS_TEXT || cell->size <= 2 || cell->size > FS_MOST_NAME) return FS_OK;
    char *json = fs_calloc(1, 2 * (cell->size + FS_SCAN_PADDING));
    if (json == NULL) return fs_no_memory(err);
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
    if (!fs_part_take_times(part, cells, &record)) return FS_OK;
    fs_nvtx_text parsed = nvtx_parse(text.bytes, text.size);
    record.correlation = FS_NONE;
    record.kind = FS_EVENT_RANGE;
    if (parsed.op && record.duration == FS_MISSING) {
        part->report.without_time++;
        return FS_OK;
    }
    FS_TRY(fs_part_take_thread(part, cells, &record.lane, err));
    text.size = (uint32_t)parsed.name_size;
    if (parsed.op) FS_TRY(keep_op(part, &parsed, fs_cell_number(cells, FS_CELL_PROCESS, 0), &record, err));
    if (!parsed.op && text.size >= sizeof step - 1 && memcmp(text.bytes, step, sizeof step - 1) == 0)
        record.kind = FS_EVENT_STEP;
    int64_t thread = fs_cell_number(cells, FS_CELL_THREAD, 0),
            end_thread = fs_cell_number(cells, FS_CELL_END_THREAD, thread);
    bool elsewhere = is_started(fs_cell_number(cells, FS_CELL_TYPE, NVTX_PUSHED)) && end_thread != thread;
    fs_scan_span name = {text.bytes, text.size, false};
    record.communication = elsewhere || (record.kind == FS_EVENT_RANGE && fs_scan_is_communication(&name));
    FS_TRY(take_range_name(rows, part, cells, text, &record.name, err));
    FS_TRY(fs_part_add_record(part, &record, err));
    FS_TRY(part_add_nccl(rows, part, cells, text, fs_part_last_record(part), err));
    if (record.duration != FS_MISSING) return FS_OK;
    return FS_LIST_ADD(&part->open, &part->open_count, &part->open_capacity, 16, err, fs_part_last_record(part));
}

fs_status fs_part_keep_range(const fs_rows *rows, fs_part *part, const fs_cell *cells, fs_error *err)
{
    uint32_t string;
    char *message = NULL;
    int64_t type = fs_cell_number(cells, FS_CELL_TYPE, NVTX_PUSHED);
    if (type != NVTX_PUSHED && type != NVTXT_PUSHED && !is_started(type)) {
        part->report.marks++;
        return FS_OK;
    }
    fs_span text = fs_rows_text_of(rows, cells, &string);
    FS_TRY(take_message(&cells[FS_CELL_MESSAGE], &message, &text, err));
    if (text.bytes == NULL) text = (fs_span){"<unnamed range>", 15, 0};
    fs_status status = keep_named_range(rows, part, cells, text, err);
    fs_free(message);
    return status;
}
