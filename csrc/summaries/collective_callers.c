#include "summaries/collective_callers.h"

#include <string.h>

#include "base/interrupt.h"
#include "store/event.h"
#include "store/torch_signature.h"

/* Special values instead of an argument's place. */
enum { NONE = -1, ALL = -2 };

typedef struct {
    const char *begin;
    int sent, received; /* places of arguments */
} caller;

static const caller caller_rows[] = {
#define FS_COLLECTIVE_CALLER(begin, sent, received) {begin, sent, received},
#include "summaries/collective_callers.def"
#undef FS_COLLECTIVE_CALLER
};

static const caller *caller_named(const char *name)
{
    for (size_t i = 0; i < sizeof caller_rows / sizeof *caller_rows; i++) {
        if (strncmp(name, caller_rows[i].begin, strlen(caller_rows[i].begin)) == 0) return &caller_rows[i];
    }
    return NULL;
}

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
    int64_t sent, received;
    const char *dtype;    /* as torch.dtype prints; NULL: unknown */
    fs_collective stated; /* as recorded by PyTorch; an empty name: none */
} caller_details;

/* Add two numbers of elements, ignoring a missing one. */
static int64_t sum(int64_t a, int64_t b)
{
    int64_t both;
    if (a == FS_MISSING || b == FS_MISSING) return a == FS_MISSING ? b : a;
    return __builtin_add_overflow(a, b, &both) ? FS_MISSING : both;
}

static int64_t elements_of(const fs_torch_tensor *tensor)
{
    int64_t elements = 1;
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 0 || __builtin_mul_overflow(elements, tensor->shape[i], &elements)) return FS_MISSING;
    }
    return elements;
}

/* Return the elements of all tensors of an argument, FS_MISSING if there are none; a trace may omit lists. */
static int64_t argument_elements(const fs_torch_argument *argument, caller_details *details)
{
    int64_t elements = FS_MISSING;
    const int64_t *at = argument->list;
    fs_torch_tensor tensor = argument->tensor;
    bool list = argument->type == FS_TORCH_TENSOR_LIST;
    uint32_t count = list ? argument->count : argument->type == FS_TORCH_TENSOR;
    for (uint32_t i = 0; i < count; i++) {
        if (list) fs_torch_next_tensor(&at, &tensor);
        elements = sum(elements, elements_of(&tensor));
        if (details->dtype == NULL && tensor.dtype != FS_TORCH_DTYPE_NONE)
            details->dtype = fs_torch_dtypes[tensor.dtype].name;
    }
    return elements;
}

static int64_t elements_at(const fs_torch_call *call, int which, caller_details *details)
{
    int64_t elements = FS_MISSING;
    for (uint32_t i = 0; i < call->count; i++) {
        if (which == ALL || which == (int)i) elements = sum(elements, argument_elements(&call->arguments[i], details));
    }
    return elements;
}

/* Add the details of an event; false if it is not a caller. */
static bool read_caller(const fs_store *store, uint32_t index, caller_details *details)
{
    fs_torch_call call;
    uint32_t name = FS_EVENT_AT(store, index, name), signature = FS_EVENT_AT(store, index, signature);
    const char *text = name != FS_NONE ? fs_store_name_text(store, name) : "";
    const caller *row = caller_named(text);
    if (row == NULL) return false;
    if (details->kind == FS_COLLECTIVE_OTHER && (details->kind = fs_collective_kind_of(text)) != FS_COLLECTIVE_OTHER)
        details->name = text;
    if (signature == FS_NONE) return true;
    fs_span bytes = fs_store_signature_bytes(store, signature);
    if (details->stated.name.size == 0) fs_collective_decode(bytes, &details->stated);
    if (!fs_torch_decode(bytes.bytes, bytes.size, &call)) return true;
    if (details->sent == FS_MISSING) details->sent = elements_at(&call, row->sent, details);
    if (details->received == FS_MISSING) details->received = elements_at(&call, row->received, details);
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

/* Relation between the sizes that a rank sends and receives. */
typedef enum {
    UNSIZED,  /* no size, or only the root knows it */
    ALONE,    /* a rank only sends or only receives */
    ALIKE,    /* both have the same size */
    GATHERS,  /* it receives the group's size times what it sends */
    SCATTERS, /* it sends the group's size times what it receives */
} sizing;

static const sizing sizings[FS_COLLECTIVE_KIND_COUNT] = {
    [FS_COLLECTIVE_ALLREDUCE] = ALIKE, [FS_COLLECTIVE_BROADCAST] = ALIKE,        [FS_COLLECTIVE_REDUCE] = ALIKE,
    [FS_COLLECTIVE_ALLTOALL] = ALIKE,  [FS_COLLECTIVE_ALLGATHER] = GATHERS,      [FS_COLLECTIVE_SEND] = ALONE,
    [FS_COLLECTIVE_RECV] = ALONE,      [FS_COLLECTIVE_REDUCESCATTER] = SCATTERS, [FS_COLLECTIVE_SENDRECV] = ALONE,
};

/* Derive the total size from the part and the number of ranks, or the number of ranks from both sizes. */
static void complete(int64_t part, int64_t *whole, int32_t *ranks)
{
    if (*whole == FS_MISSING && part != FS_MISSING && *ranks > 0 && __builtin_mul_overflow(part, *ranks, whole))
        *whole = FS_MISSING;
    if (*ranks == 0 && *whole != FS_MISSING && part > 0 && *whole % part == 0 && *whole / part <= INT32_MAX)
        *ranks = (int32_t)(*whole / part);
}

static void set_sizes(fs_collective_kind kind, const caller_details *from, fs_collective *collective)
{
    int64_t sent = from->sent, received = from->received;
    switch (sizings[kind]) {
    case UNSIZED:
        return;
    case ALONE:
        break;
    case ALIKE:
        if (sent == FS_MISSING) sent = received;
        if (received == FS_MISSING) received = sent;
        break;
    case GATHERS:
        complete(sent, &received, &collective->group_size);
        if (received == FS_MISSING) return; /* a part alone is not the message size */
        break;
    case SCATTERS:
        complete(received, &sent, &collective->group_size);
        if (sent == FS_MISSING) return;
        break;
    }
    collective->in_elements = sent;
    collective->out_elements = received;
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
    caller_details from = {.kind = FS_COLLECTIVE_OTHER, .sent = FS_MISSING, .received = FS_MISSING};
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
    if (from.dtype != NULL) fs_collective_set_dtype(collective, from.dtype);
    set_sizes(from.kind, &from, collective);
    return from.kind;
}
