/* Helpers of one part, which one thread fills: nothing here takes a lock. A record has the ids of its part, and times
 * of the database; a start that would overflow later leaves the row out, and such an end is missing. Names are spelled
 * as JSON would (a backslash twice), because the join unescapes them like those of a trace. */
#include "sources/sqlite/parts.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* The size of the name of an API call without the version that nsys appends: cudaLaunchKernel_v7000. The "_v2" of a
 * driver function belongs to its name. */
static size_t call_name_size(const char *name, size_t size)
{
    size_t digits = 0;
    while (digits < size && name[size - 1 - digits] >= '0' && name[size - 1 - digits] <= '9') digits++;
    size_t version = digits + 2;
    bool versioned = digits >= 4 && size > version && name[size - version] == '_' && name[size - version + 1] == 'v';
    return versioned ? size - version : size;
}

static bool is_possible(int64_t time)
{
    return time > -INT64_MAX / 4 && time < INT64_MAX / 4;
}

bool fs_part_take_times(fs_part *part, const fs_cell *cells, fs_record *record)
{
    int64_t start = fs_cell_number(cells, FS_CELL_START, INT64_MAX),
            end = fs_cell_number(cells, FS_CELL_END, INT64_MIN);
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
    int64_t correlation = fs_cell_number(cells, FS_CELL_CORRELATION, 0);
    if (correlation > 0 && (uint32_t)correlation != FS_NONE) record->correlation = (uint32_t)correlation;
    return true;
}

/* Names ------------------------------------------------------------------------------------------------------------ */

fs_status fs_part_intern_name(fs_part *part, const char *text, size_t size, uint32_t *id, fs_error *err)
{
    const char *zero = memchr(text, 0, size);
    if (zero != NULL) size = (size_t)(zero - text);
    if (size > FS_MOST_NAME) size = FS_MOST_NAME;
    if (memchr(text, '\\', size) == NULL) return fs_intern_bytes(&part->piece.names, text, size, id, err);
    char *spelled = fs_malloc(2 * size);
    if (spelled == NULL) return fs_no_memory(err);
    size_t length = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\\') spelled[length++] = '\\';
        spelled[length++] = text[i];
    }
    fs_status status = fs_intern_bytes(&part->piece.names, spelled, length, id, err);
    fs_free(spelled);
    return status;
}

fs_span fs_rows_text_of(const fs_rows *rows, const fs_cell *cells, uint32_t *string)
{
    const fs_cell *cell = &cells[cells[FS_CELL_TEXT].type != FS_IS_MISSING ? FS_CELL_TEXT : FS_CELL_NAME];
    fs_span text = {NULL, 0, 0};
    *string = FS_NONE;
    if (cell->type == FS_IS_TEXT)
        text = (fs_span){cell->text, cell->size < FS_MOST_NAME ? (uint32_t)cell->size : FS_MOST_NAME, 0};
    if (cell->type == FS_IS_INTEGER) {
        *string = fs_id_map_get(&rows->string_ids, cell->integer, fs_cell_number(cells, FS_CELL_SPACE, 0));
    }
    if (*string != FS_NONE) text = fs_intern_get(&rows->strings, *string);
    return text;
}

/* How a text becomes a name: a kernel's and a range's as it is, a call's without its version. */
static size_t named_size(fs_row_kind kind, fs_span text)
{
    return kind == FS_ROW_CALL ? call_name_size(text.bytes, text.size) : text.size;
}

fs_status fs_part_take_name(const fs_rows *rows, fs_part *part, fs_row_kind kind, const fs_cell *cells, uint32_t *name,
                            fs_error *err)
{
    uint32_t string;
    fs_span text = fs_rows_text_of(rows, cells, &string);
    if (text.bytes == NULL) {
        char unnamed[48];
        int64_t id = fs_cell_number(cells, FS_CELL_NAME, -1);
        int size = id >= 0 ? snprintf(unnamed, sizeof unnamed, "<string %lld>", (long long)id)
                           : snprintf(unnamed, sizeof unnamed, "<unnamed %s>", fs_row_kind_names[kind]);
        part->report.unnamed++;
        return fs_part_intern_name(part, unnamed, (size_t)size, name, err);
    }
    if (part->string_names == NULL && string != FS_NONE) {
        FS_TRY(FS_NEW_ZEROED(&part->string_names, rows->strings.count, err));
        part->string_count = rows->strings.count;
    }
    if (string >= part->string_count) return fs_part_intern_name(part, text.bytes, named_size(kind, text), name, err);
    uint32_t *known = &part->string_names[string];
    if (*known == 0) {
        FS_TRY(fs_part_intern_name(part, text.bytes, named_size(kind, text), name, err));
        *known = *name + 1;
    }
    *name = *known - 1;
    return FS_OK;
}

/* Records ---------------------------------------------------------------------------------------------------------- */

fs_status fs_part_add_record(fs_part *part, const fs_record *record, fs_error *err)
{
    fs_record *added;
    FS_TRY(fs_piece_add_record(&part->piece, &added, err));
    *added = *record;
    return FS_OK;
}

fs_status fs_part_take_lane(fs_part *part, int64_t device, int64_t thread, int64_t process, uint32_t *lane,
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

fs_status fs_part_take_thread(fs_part *part, const fs_cell *cells, uint32_t *lane, fs_error *err)
{
    return fs_part_take_lane(part, -1, fs_cell_number(cells, FS_CELL_THREAD, 0),
                             fs_cell_number(cells, FS_CELL_PROCESS, 0), lane, err);
}

int64_t fs_rows_device_of(const fs_rows *rows, const fs_cell *cells)
{
    int64_t device = fs_cell_number(cells, FS_CELL_DEVICE, 0);
    uint32_t index = fs_id_map_get(&rows->devices, fs_cell_number(cells, FS_CELL_PROCESS, 0), device);
    return index != FS_NONE ? (int64_t)index : device;
}
