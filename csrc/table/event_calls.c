/* The calls have their final ids by now, and `places` says where the rows went: the lists are copied once and refer to
 * rows of the finished table. An event without a row of its own has no call. */
#include "table/event_calls.h"

#include "base/interrupt.h"
#include "base/memory.h"

/* Python calls, intervals, and memory that an event changed have no row. */
static bool has_call(const fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    uint8_t kind = chunk->kind[at];
    if (kind == FS_EVENT_MEMORY) return fs_build_parent(build, chunk, at, index) == FS_NONE;
    return kind != FS_EVENT_FRAME && kind != FS_EVENT_INTERVAL;
}

fs_status fs_build_event_calls(fs_build *build, const uint32_t *places, fs_error *err)
{
    fs_table *table = build->table;
    uint32_t at;
    table->calls = fs_malloc((build->calls.count + (size_t)1) * sizeof *table->calls);
    table->event_calls = fs_malloc((build->count + (size_t)1) * sizeof *table->event_calls);
    if (table->calls == NULL || table->event_calls == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the calls of %u events", build->count);
    for (uint32_t i = 0; i < build->calls.count; i++) {
        const fs_call *call = &build->calls.calls[i];
        table->calls[i] =
            (fs_table_call){(uint32_t)(call->key >> 32), (uint32_t)call->key, places[call->row], call->kind};
    }
    table->call_count = build->calls.count;
    const fs_chunk *chunk = NULL;
    for (uint32_t index = 0; index < build->count; index++) {
        FS_POLL(index, err);
        chunk = fs_event_next_chunk(build->store, index, chunk, &at);
        bool has = has_call(build, chunk, at, index);
        table->event_calls[index] = has ? (uint32_t)(fs_build_call(build, index) - build->calls.calls) : FS_NONE;
    }
    return FS_OK;
}
