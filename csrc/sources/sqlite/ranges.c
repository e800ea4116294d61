/* Ranges of NVTX and roctx, some of which are ops of torch. */
#include <string.h>

#include "base/memory.h"
#include "sources/kineto/event.h"
#include "sources/sqlite/nccl.h"
#include "sources/sqlite/nvtx.h"
#include "sources/sqlite/parts.h"

/* Types of ranges; those of NVTXT were imported from a file. */
enum { NVTX_PUSHED = 59, NVTX_STARTED = 60, NVTXT_PUSHED = 70, NVTXT_STARTED = 71 };

static bool is_pushed(int64_t type)
{
    return type == NVTX_PUSHED || type == NVTXT_PUSHED;
}

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

static fs_status add_open(fs_part *part, fs_record *record, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&part->open, part->open_count, &part->open_capacity, 16, err));
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
    fs_nvtx_text parsed = fs_nvtx_parse(text.bytes, text.size);
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
    FS_TRY(fs_part_add_nccl(rows, part, cells, text, fs_part_last_record(part), err));
    return record.duration == FS_MISSING ? add_open(part, fs_part_last_record(part), err) : FS_OK;
}

fs_status fs_part_keep_range(const fs_rows *rows, fs_part *part, const fs_cell *cells, fs_error *err)
{
    uint32_t string;
    char *message = NULL;
    int64_t type = fs_cell_number(cells, FS_CELL_TYPE, NVTX_PUSHED);
    if (!is_pushed(type) && !is_started(type)) {
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
