/* An instruction is kept as bytes, "module", 0, "name", once in each part; few are used by many kernels. The work of
 * graphs has no captures to look for: who knows its instructions knows its ops. */
#include "sources/sqlite/ties.h"

#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "sources/sqlite/parts.h"

enum { MOST_BYTES = 512 };

fs_status fs_part_add_tie(fs_part *part, const fs_cell *cells, fs_error *err)
{
    const fs_cell *module = &cells[FS_CELL_MODULE], *name = &cells[FS_CELL_INSTRUCTION];
    char bytes[2 * MOST_BYTES + 1];
    size_t size = module->type == FS_IS_TEXT ? module->size : 0, more = name->size;
    if (size > MOST_BYTES) size = MOST_BYTES;
    if (more > MOST_BYTES) more = MOST_BYTES;
    if (size > 0) memcpy(bytes, module->text, size);
    bytes[size] = 0;
    memcpy(bytes + size + 1, name->text, more);
    fs_tied_work tie = {fs_part_last_record(part), 0};
    FS_TRY(fs_intern_bytes(&part->instructions, bytes, size + 1 + more, &tie.instruction, err));
    FS_TRY(FS_LIST_ROOM(&part->ties, part->tie_count, &part->tie_capacity, 64, err));
    part->ties[part->tie_count++] = tie;
    return FS_OK;
}

static int by_event(const void *a, const void *b)
{
    const fs_row_tie *one = a, *other = b;
    return (one->event > other->event) - (one->event < other->event);
}

/* Append the ties of a part, with the ids of the list of all. */
static fs_status append(const fs_part *part, fs_row_tie *ties, fs_intern *instructions, fs_error *err)
{
    uint32_t *ids = fs_malloc((part->instructions.count + (size_t)1) * sizeof *ids);
    fs_status status = ids != NULL ? FS_OK : fs_no_memory(err);
    for (uint32_t i = 0; status == FS_OK && i < part->instructions.count; i++) {
        fs_span span = fs_intern_get(&part->instructions, i);
        status = fs_intern_bytes(instructions, span.bytes, span.size, &ids[i], err);
    }
    for (uint32_t i = 0; status == FS_OK && i < part->tie_count; i++)
        ties[i] = (fs_row_tie){part->ties[i].record->index, ids[part->ties[i].instruction]};
    fs_free(ids);
    return status;
}

fs_status fs_rows_ties(const fs_rows *rows, fs_row_tie **ties, uint32_t *count, fs_intern *instructions, fs_error *err)
{
    size_t total = 0;
    uint32_t added = 0;
    fs_status status = FS_OK;
    for (uint32_t i = 0; i < rows->part_count; i++) total += rows->parts[i]->tie_count;
    FS_TRY(FS_NEW(ties, total + 1, err));
    for (uint32_t i = 0; status == FS_OK && i < rows->part_count; i++) {
        status = append(rows->parts[i], *ties + added, instructions, err);
        added += rows->parts[i]->tie_count;
        if (status == FS_OK) status = fs_interrupt_poll(err);
    }
    *count = added;
    if (status == FS_OK && added > 0) qsort(*ties, added, sizeof **ties, by_event);
    if (status == FS_OK) return FS_OK;
    fs_free(*ties);
    *ties = NULL;
    return status;
}
