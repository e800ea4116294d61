/* Tensors that calls make longer and longer. A trace does not identify tensors, but shapes tell: the largest part of a
 * call is as long as what the round before made, and as wide.
 *
 *   layer     largest part   result       round
 *   0, 1      [8, 10, 64]    [8, 11, 64]  0
 *   0, 1      [8, 11, 64]    [8, 12, 64]  1      copies all that round 0 made
 *
 * Signatures count, in the order of their first calls: sequences that are padded one by one have no such order. Pairs
 * that are joined in turn, as of a tree, copy little again. */
#include <stdlib.h>
#include <string.h>

#include "accounting/late.h"
#include "base/intern.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "store/event.h"
#include "store/torch_signature.h"

enum { MOST_DIMS = 16 };
enum { LEAST_ROUNDS = 16, LEAST_AGAIN = 4 }; /* of a run; and how often its new elements are copied again */

typedef struct {
    int64_t from, to; /* lengths of the last round */
    int64_t copied, added;
    uint32_t rounds; /* after the first */
} growing;

typedef struct {
    int64_t copied, made, run; /* as of a call */
    bool known;
} joining;

typedef struct {
    fs_intern families; /* shapes with a length of -1 */
    uint32_t *last;     /* runs by family */
    growing *runs;
    joining *joins; /* by signature */
    uint32_t last_capacity, run_count, run_capacity, join_capacity;
} growth;

/* Find the run that a call goes on with: it joins the tensors of a list along a dimension. */
static fs_status find_run(growth *of, const fs_torch_call *call, joining *join, fs_error *err)
{
    int64_t shape[MOST_DIMS], from = 0, to = 0, rest = 1;
    uint32_t ndim = 0, family, families = of->families.count;
    char *end = NULL;
    long dim = call->count > 1 ? strtol(call->arguments[1].text, &end, 10) : 0;
    bool fits = call->count > 1 && end != call->arguments[1].text && *end == 0;
    const int64_t *at = fits ? call->arguments[0].list : NULL;
    for (uint32_t i = 0; fits && i < call->arguments[0].count; i++) {
        fs_torch_tensor tensor;
        fs_torch_next_tensor(&at, &tensor);
        if (tensor.ndim == 1 && tensor.shape[0] == 0) continue; /* torch joins an empty vector to any tensor */
        if (ndim == 0 && dim < 0) dim += tensor.ndim;
        fits = (ndim == 0 || tensor.ndim == ndim) && tensor.ndim <= MOST_DIMS && dim >= 0 && dim < tensor.ndim;
        if (!fits) return FS_OK;
        ndim = tensor.ndim;
        memcpy(shape, tensor.shape, ndim * sizeof *shape);
        if (shape[dim] > from) from = shape[dim];
        fs_add_to(&to, shape[dim]);
    }
    if (ndim > 0) shape[dim] = -1;
    for (uint32_t d = 0; d < ndim; d++) rest = d != (uint32_t)dim ? fs_mul_saturated(rest, shape[d]) : rest;
    if (from >= to || rest <= 0) return FS_OK;
    FS_TRY(fs_intern_bytes(&of->families, shape, ndim * sizeof *shape, &family, err));
    FS_TRY(FS_LIST_ROOM(&of->last, family, &of->last_capacity, 64, err));
    growing *run = family < families ? &of->runs[of->last[family]] : NULL;
    bool goes_on = run != NULL && from == run->to;
    if (!goes_on && (run == NULL || from != run->from || to != run->to)) {
        of->last[family] = of->run_count;
        FS_TRY(FS_LIST_ADD(&of->runs, &of->run_count, &of->run_capacity, 64, err, (growing){.rounds = 0}));
        run = &of->runs[of->last[family]];
    }
    run->from = from;
    run->to = to;
    run->rounds += goes_on;
    *join = (joining){fs_mul_saturated(rest, from), fs_mul_saturated(rest, to), -1, true};
    if (run->rounds > 0) join->run = of->last[family];
    return FS_OK;
}

/* Give a call what its signature tells, which is found out at the first call. */
static fs_status add_call(growth *of, const fs_store *store, fs_named_call *call, fs_error *err)
{
    fs_torch_call decoded;
    uint32_t signature = FS_EVENT_AT(store, (uint32_t)call->event, signature), known = of->join_capacity;
    if (signature == FS_NONE) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&of->joins, signature, &of->join_capacity, 64, err));
    if (of->join_capacity > known) memset(of->joins + known, 0, (of->join_capacity - known) * sizeof *of->joins);
    joining *join = &of->joins[signature];
    if (!join->known) {
        fs_span bytes = fs_store_signature_bytes(store, signature);
        *join = (joining){.run = -1, .known = true};
        if (fs_torch_decode(bytes.bytes, bytes.size, &decoded)) FS_TRY(find_run(of, &decoded, join, err));
    }
    call->made = join->made;
    if ((call->run = join->run) < 0) return FS_OK;
    call->copied = join->copied;
    fs_add_to(&of->runs[join->run].copied, join->copied);
    fs_add_to(&of->runs[join->run].added, fs_sub_saturated(join->made, join->copied));
    return FS_OK;
}

/* Where there is a device, the time of a call is that of what it launched. */
static fs_status find_works(fs_named_calls *calls, const fs_store *store, fs_error *err)
{
    int64_t *times = NULL;
    uint32_t at;
    bool has_device = false;
    FS_TRY(FS_NEW_ZEROED(&times, fs_store_count(store), err));
    for (uint32_t i = fs_store_count(store); i-- > 0;) { /* what an event encloses or launches comes after it */
        const fs_chunk *chunk = fs_event_chunk(store, i, &at);
        bool on_device = fs_event_kind_on_device[chunk->kind[at]];
        uint32_t around = fs_event_around(chunk, at, i);
        if (on_device && fs_event_is_timed(chunk, at)) times[i] = chunk->duration[at];
        if (around != FS_NONE) fs_add_to(&times[around], times[i]);
        has_device |= on_device;
    }
    for (uint32_t i = 0; has_device && i < calls->count; i++) calls->items[i].duration = times[calls->items[i].event];
    fs_free(times);
    return FS_OK;
}

fs_status fs_growing_calls_find(fs_named_calls *calls, const fs_store *store, const uint8_t *names, fs_error *err)
{
    growth of = {.run_count = 0};
    bool any = false;
    fs_status status = fs_named_calls_find(calls, store, names, err);
    for (uint32_t i = 0; status == FS_OK && i < calls->count; i++) status = add_call(&of, store, &calls->items[i], err);
    for (uint32_t i = 0; status == FS_OK && i < calls->count; i++) {
        int64_t *of_call = &calls->items[i].run;
        const growing *run = *of_call < 0 ? NULL : &of.runs[*of_call];
        bool grows = run != NULL && run->rounds >= LEAST_ROUNDS && run->copied / LEAST_AGAIN >= run->added;
        if (!grows) *of_call = -1;
        any |= grows;
    }
    if (any) status = find_works(calls, store, err);
    fs_intern_clear(&of.families);
    fs_free(of.last);
    fs_free(of.runs);
    fs_free(of.joins);
    return status;
}
