/* Two passes over the events: list, mark what ran. A signature is decoded once, as many ops share it. A call
 * ran if some device work has it as its launcher. */
#include "summaries/collective_calls.h"

#include "base/interrupt.h"
#include "base/memory.h"
#include "store/event.h"

/* List for each signature whether it carries a collective: many ops share one. */
static fs_status find_carriers(const fs_store *store, bool **carriers, fs_error *err)
{
    uint32_t count = fs_store_signature_count(store);
    fs_collective found;
    FS_TRY(FS_NEW(carriers, count + (size_t)1, err));
    for (uint32_t id = 0; id < count; id++)
        (*carriers)[id] = fs_collective_decode(fs_store_signature_bytes(store, id), &found);
    return FS_OK;
}

static bool is_call(const bool *carriers, const fs_chunk *chunk, uint32_t at)
{
    if (chunk->kind[at] != FS_EVENT_OP || chunk->start[at] == FS_MISSING) return false;
    return chunk->signature[at] != FS_NONE && carriers[chunk->signature[at]];
}

/* List the calls; places[event] receives the row of each, FS_NONE elsewhere. */
static fs_status list_calls(const fs_store *store, const bool *carriers, fs_collective_call **rows, uint32_t *count,
                            uint32_t *places, fs_error *err)
{
    uint32_t capacity = 0;
    FS_EACH_EVENT(store, index, chunk, at) {
        FS_POLL(index, err);
        places[index] = FS_NONE;
        if (!is_call(carriers, chunk, at)) continue;
        fs_collective_call call = {.start = chunk->start[at]};
        fs_collective_decode(fs_store_signature_bytes(store, chunk->signature[at]), &call.recorded);
        call.kind = fs_collective_kind_of(call.recorded.name.text);
        places[index] = *count;
        FS_TRY(FS_LIST_ADD(rows, count, &capacity, 64, err, call));
    }
    return FS_OK;
}

static fs_status mark_runs(const fs_store *store, fs_collective_call *rows, const uint32_t *places, fs_error *err)
{
    FS_EACH_EVENT(store, index, chunk, at) {
        FS_POLL(index, err);
        uint32_t launcher = chunk->launcher[at];
        if (!fs_event_kind_on_device[chunk->kind[at]] || launcher == FS_NONE) continue;
        if (places[launcher] != FS_NONE) rows[places[launcher]].ran = true;
    }
    return FS_OK;
}

fs_status fs_collective_calls_of(const fs_store *store, fs_collective_call **rows, uint32_t *count, fs_error *err)
{
    uint32_t *places = NULL;
    fs_collective_call *result = NULL;
    bool *carriers;
    *count = 0;
    FS_TRY(find_carriers(store, &carriers, err));
    fs_status status = FS_NEW(&places, fs_store_count(store), err);
    if (status == FS_OK) status = list_calls(store, carriers, &result, count, places, err);
    if (status == FS_OK && *count > 0) status = mark_runs(store, result, places, err);
    fs_free(carriers);
    fs_free(places);
    if (status == FS_OK) *rows = result;
    else fs_free(result);
    return status;
}
