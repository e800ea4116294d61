/* Three passes over the events: count, fill, mark what ran. A signature is decoded once, as many ops share it. A call
 * ran if some device work has it as its launcher. */
#include "summaries/collective_calls.h"

#include "base/interrupt.h"
#include "base/memory.h"
#include "store/event.h"
#include "store/signature.h"

/* Return for each signature whether it carries a collective: many ops share one. NULL: out of memory. */
static bool *find_carriers(const fs_store *store)
{
    uint32_t count = fs_store_signature_count(store);
    bool *carriers = fs_calloc(count + (size_t)1, sizeof *carriers);
    fs_collective found;
    for (uint32_t id = 0; carriers != NULL && id < count; id++) {
        carriers[id] = fs_collective_decode(fs_store_signature_bytes(store, id), &found);
    }
    return carriers;
}

static bool is_call(const bool *carriers, const fs_chunk *chunk, uint32_t at)
{
    if (chunk->kind[at] != FS_EVENT_OP || chunk->start[at] == FS_MISSING) return false;
    return chunk->signature[at] != FS_NONE && carriers[chunk->signature[at]];
}

static fs_status count_calls(const fs_store *store, const bool *carriers, uint32_t *calls, fs_error *err)
{
    uint32_t at;
    *calls = 0;
    for (uint32_t index = 0; index < fs_store_count(store); index++) {
        FS_POLL(index, err);
        const fs_chunk *chunk = fs_event_chunk(store, index, &at);
        *calls += is_call(carriers, chunk, at);
    }
    return FS_OK;
}

/* Fill the rows; places[event] receives the row of each call, FS_NONE elsewhere. */
static fs_status fill_calls(const fs_store *store, const bool *carriers, fs_collective_call *rows, uint32_t *places,
                            fs_error *err)
{
    uint32_t at, row = 0;
    for (uint32_t index = 0; index < fs_store_count(store); index++) {
        FS_POLL(index, err);
        const fs_chunk *chunk = fs_event_chunk(store, index, &at);
        places[index] = FS_NONE;
        if (!is_call(carriers, chunk, at)) continue;
        fs_collective_decode(fs_store_signature_bytes(store, chunk->signature[at]), &rows[row].recorded);
        rows[row].kind = fs_collective_kind_of(rows[row].recorded.name.text);
        rows[row].start = chunk->start[at];
        places[index] = row++;
    }
    return FS_OK;
}

static fs_status mark_runs(const fs_store *store, fs_collective_call *rows, const uint32_t *places, fs_error *err)
{
    uint32_t at;
    for (uint32_t index = 0; index < fs_store_count(store); index++) {
        FS_POLL(index, err);
        const fs_chunk *chunk = fs_event_chunk(store, index, &at);
        uint32_t launcher = chunk->launcher[at];
        if (!fs_event_kind_on_device[chunk->kind[at]] || launcher == FS_NONE) continue;
        if (places[launcher] != FS_NONE) rows[places[launcher]].ran = true;
    }
    return FS_OK;
}

fs_status fs_collective_calls_of(const fs_store *store, fs_collective_call **rows, uint32_t *count, fs_error *err)
{
    fs_status status;
    uint32_t *places = NULL;
    fs_collective_call *result = NULL;
    bool *carriers = find_carriers(store);
    if (carriers == NULL) return fs_no_memory(err);
    FS_TRY_GOTO(status, count_calls(store, carriers, count, err), failed);
    result = fs_calloc(*count + (size_t)1, sizeof *result);
    if (*count > 0) places = fs_malloc(fs_store_count(store) * sizeof *places);
    if (result == NULL || (*count > 0 && places == NULL)) {
        status = fs_no_memory(err);
        goto failed;
    }
    if (*count > 0) {
        FS_TRY_GOTO(status, fill_calls(store, carriers, result, places, err), failed);
        FS_TRY_GOTO(status, mark_runs(store, result, places, err), failed);
    }
    fs_free(carriers);
    fs_free(places);
    *rows = result;
    return FS_OK;
failed:
    fs_free(carriers);
    fs_free(places);
    fs_free(result);
    return status;
}
