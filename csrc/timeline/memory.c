/* Two passes: count, then fill columns of exactly that size. The row of a change is the op that wanted the memory: ops
 * that only allocate are looked through, and so are ranges and Python calls, as far as FS_MOST_ENCLOSING events. */
#include "timeline/memory.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "store/event.h"
#include "store/signature.h"

/* Whether an op does nothing but allocate, for the op around it. */
static bool only_allocates(const fs_store *store, uint32_t name)
{
    static const char *const beginnings[] = {"aten::empty", "aten::new_empty", "aten::resize_"};
    if (name == FS_NONE) return false;
    return FS_ANY(i, sizeof beginnings / sizeof *beginnings,
                  strncmp(fs_store_name_text(store, name), beginnings[i], strlen(beginnings[i])) == 0);
}

/* Return the row of the innermost op around a change of memory that does more than allocate; without one, of the
 * innermost event that has a row. */
static uint32_t row_around(const fs_store *store, const fs_table *table, uint32_t parent, uint32_t below)
{
    uint32_t row = FS_NONE, at;
    for (int depth = 0; parent < below && depth < FS_MOST_ENCLOSING; depth++) {
        const fs_chunk *chunk = fs_event_chunk(store, parent, &at);
        uint32_t call = table->event_calls[parent];
        if (call != FS_NONE && row == FS_NONE) row = table->calls[call].row;
        if (call != FS_NONE && chunk->kind[at] == FS_EVENT_OP && !only_allocates(store, chunk->name[at]))
            return table->calls[call].row;
        below = parent;
        parent = chunk->parent[at];
    }
    return row;
}

/* Ranges and Python calls around a change are looked through, so the rows of parents are remembered. */
static uint32_t row_of(const fs_store *store, const fs_table *table, const fs_chunk *chunk, uint32_t at, uint32_t index,
                       uint32_t last[2])
{
    uint32_t parent = chunk->parent[at];
    if (parent >= index) return FS_NONE;
    if (parent != last[0]) {
        last[0] = parent;
        last[1] = row_around(store, table, parent, index);
    }
    return last[1];
}

static void put(fs_memory_changes *changes, const fs_store *store, const fs_chunk *chunk, uint32_t at, uint32_t row)
{
    uint32_t i = changes->count++, signature = chunk->signature[at];
    fs_memory_state state = {.allocated = -1, .reserved = -1};
    if (signature != FS_NONE) fs_memory_state_decode(fs_store_signature_bytes(store, signature).bytes, &state);
    changes->time[i] = chunk->start[at];
    changes->bytes[i] = chunk->bytes[at];
    changes->allocated[i] = state.allocated;
    changes->reserved[i] = state.reserved;
    changes->address[i] = state.address;
    changes->row[i] = row;
    changes->device[i] = chunk->device[at];
}

static fs_status allocate(fs_memory_changes *changes, uint32_t count, fs_error *err)
{
#define ALLOCATE(type, name, prose) FS_TRY(FS_NEW(&changes->name, count + (size_t)1, err));
    FS_MEMORY_COLUMN_LIST(ALLOCATE)
#undef ALLOCATE
    return FS_OK;
}

static bool is_change(const fs_chunk *chunk, uint32_t at)
{
    return chunk->kind[at] == FS_EVENT_MEMORY && !fs_event_is_share(chunk->kind[at], chunk->lane[at]);
}

static fs_status list_changes(fs_memory_changes *changes, const fs_store *store, const fs_table *table, fs_error *err)
{
    uint32_t count = 0, last[2] = {FS_NONE, FS_NONE};
    FS_EACH_EVENT(store, index, chunk, at) {
        FS_POLL(index, err);
        count += is_change(chunk, at);
    }
    FS_TRY(allocate(changes, count, err));
    FS_EACH_EVENT(store, index, chunk, at) {
        FS_POLL(index, err);
        if (!is_change(chunk, at)) continue;
        if (chunk->start[at] == FS_MISSING) changes->unplaced++;
        else put(changes, store, chunk, at, row_of(store, table, chunk, at, index, last));
    }
    return FS_OK;
}

fs_status fs_memory_list(fs_memory_changes *changes, const fs_store *store, const fs_table *table, fs_error *err)
{
    *changes = (fs_memory_changes){0};
    fs_status status = list_changes(changes, store, table, err);
    if (status != FS_OK) fs_memory_clear(changes);
    return status;
}

void fs_memory_clear(fs_memory_changes *changes)
{
#define FREE(type, name, prose) fs_free(changes->name);
    FS_MEMORY_COLUMN_LIST(FREE)
#undef FREE
    *changes = (fs_memory_changes){0};
}
