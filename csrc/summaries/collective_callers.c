/* Details are collected from the kernel's launcher outwards, and then from its API call outwards; what was found first
 * stays, as it is nearer. An annotation belongs to the op during which it begins, if it is the only one. The kernel's
 * own name may veto a kind that it cannot implement. */
#include "summaries/collective_callers.h"

#include <string.h>

#include "base/interrupt.h"
#include "store/event.h"
#include "store/torch_signature.h"
#include "work/collective_sizes.h"

/* The annotations -------------------------------------------------------------------------------------------------- */

/* Annotations end on another thread, so nothing encloses them, but they begin within the op that called. */
static fs_status list_annotations(fs_collective_callers *callers, fs_error *err)
{
    uint32_t count = fs_store_count(callers->store), at;
    for (uint32_t index = 0; index < count; index++) {
        FS_POLL(index, err);
        const fs_chunk *chunk = fs_event_chunk(callers->store, index, &at);
        int64_t start = chunk->start[at];
        if (start == FS_MISSING || !fs_event_is_asynchronous(chunk, at)) continue;
        FS_TRY(fs_intervals_add(&callers->annotations, start, start, index, err));
    }
    return fs_intervals_sort(&callers->annotations, err);
}

/* Return the annotation that began during an event; FS_NONE if there is none or more than one. */
static uint32_t annotation_in(const fs_collective_callers *callers, uint32_t index)
{
    uint32_t at, low = 0, high = callers->annotations.count;
    const fs_chunk *chunk = fs_event_chunk(callers->store, index, &at);
    const fs_interval *items = callers->annotations.items;
    if (chunk->start[at] == FS_MISSING) return FS_NONE;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (items[middle].begin < chunk->start[at]) low = middle + 1;
        else high = middle;
    }
    uint32_t end = low;
    while (end < callers->annotations.count && items[end].begin <= fs_event_end(chunk, at) && end < low + 2) end++;
    return end == low + 1 ? items[low].tag : FS_NONE;
}

fs_status fs_collective_callers_create(fs_collective_callers *callers, const fs_store *store, fs_error *err)
{
    *callers = (fs_collective_callers){.store = store};
    FS_TRY(fs_api_calls_create(&callers->calls, store, err));
    return list_annotations(callers, err);
}

void fs_collective_callers_clear(fs_collective_callers *callers)
{
    fs_api_calls_clear(&callers->calls);
    fs_intervals_clear(&callers->annotations);
}

/* Details recorded with a caller ----------------------------------------------------------------------------------- */

/* Details collected so far; the innermost caller that has one takes precedence. */
typedef struct {
    fs_collective_kind kind;
    const char *name; /* of the caller that gives the kind; NULL: none */
    fs_collective_sizes sizes;
    fs_collective stated; /* as recorded by PyTorch; an empty name: none */
} caller_details;

/* Add the details of an event; false if it is not a caller. */
static bool read_caller(const fs_store *store, uint32_t index, caller_details *details)
{
    fs_torch_call call;
    uint32_t name = FS_EVENT_AT(store, index, name), signature = FS_EVENT_AT(store, index, signature);
    const char *text = name != FS_NONE ? fs_store_name_text(store, name) : "";
    if (!fs_collective_is_caller(text)) return false;
    if (details->kind == FS_COLLECTIVE_OTHER && (details->kind = fs_collective_kind_of(text)) != FS_COLLECTIVE_OTHER)
        details->name = text;
    if (signature == FS_NONE) return true;
    fs_span bytes = fs_store_signature_bytes(store, signature);
    if (details->stated.name.size == 0) fs_collective_decode(bytes, &details->stated);
    if (!fs_torch_decode(bytes.bytes, bytes.size, &call)) return true;
    fs_collective_read_caller(text, &call, &details->sizes);
    return true;
}

/* Collect details from an event outwards, and from the annotation that began in each caller. */
static void read_callers(const fs_collective_callers *callers, uint32_t index, caller_details *details)
{
    for (int depth = 0; index != FS_NONE && depth < FS_MOST_ENCLOSING; depth++) {
        uint32_t event = index;
        index = FS_EVENT_AT(callers->store, event, parent);
        if (!read_caller(callers->store, event, details)) continue;
        uint32_t annotation = annotation_in(callers, event);
        if (annotation != FS_NONE) read_caller(callers->store, annotation, details);
    }
}

/* Conclusions for the collective ----------------------------------------------------------------------------------- */

static void set_sizes(fs_collective_kind kind, const caller_details *from, fs_collective *collective)
{
    fs_collective_sizes sizes = from->sizes;
    if (!fs_collective_complete(kind, &sizes, &collective->group_size)) return;
    collective->in_elements = sizes.sent;
    collective->out_elements = sizes.received;
}

/* Return whether a kernel named like one kind may implement a call of another. */
static bool works_for(fs_collective_kind kernel, fs_collective_kind call)
{
    bool any = kernel == FS_COLLECTIVE_OTHER || kernel == FS_COLLECTIVE_SENDRECV || kernel == call;
    return any || (kernel == FS_COLLECTIVE_ALLREDUCE && call == FS_COLLECTIVE_BARRIER);
}

fs_collective_kind fs_collective_called_for(const fs_collective_callers *callers, uint32_t kernel,
                                            fs_collective_kind by_kernel, fs_collective *collective)
{
    const fs_store *store = callers->store;
    caller_details from = {.kind = FS_COLLECTIVE_OTHER, .sizes = fs_collective_no_sizes};
    read_callers(callers, FS_EVENT_AT(store, kernel, launcher), &from);
    if (from.stated.name.size == 0) /* the launcher may be an op around the one with the record */
        read_callers(callers, fs_api_calls_find(&callers->calls, FS_EVENT_AT(store, kernel, correlation)), &from);
    if (from.stated.name.size > 0) {
        fs_collective_kind stated = fs_collective_kind_of(from.stated.name.text);
        *collective = from.stated;
        return stated != FS_COLLECTIVE_OTHER ? stated : by_kernel;
    }
    if (from.kind == FS_COLLECTIVE_OTHER || !works_for(by_kernel, from.kind)) return by_kernel;
    collective->name = (fs_collective_text){from.name, strlen(from.name)};
    if (from.sizes.dtype != NULL) fs_collective_set_dtype(collective, from.sizes.dtype);
    set_sizes(from.kind, &from, collective);
    return from.kind;
}
