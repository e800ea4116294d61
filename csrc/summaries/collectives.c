/* Kernels of communication in order of start, and for each device the time that computing kernels cover, united: the
 * exposed part of a collective is what these do not overlap. Recorded details come first, the kernel's name second, the
 * callers third. Occurrences number the rows that are alike in order of start, which is how ranks are matched later. */
#include "summaries/collectives.h"

#include <math.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "store/api_calls.h"
#include "store/collective.h"
#include "store/event.h"
#include "store/signature.h"
#include "store/step_marks.h"
#include "store/torch_signature.h"
#include "summaries/intervals.h"
#include "work/collective_sizes.h"

/* Callers of collectives ------------------------------------------------------------------------------------------- */

/* Collectives identified by the ops around a communication kernel, for traces in which PyTorch records no details with
 * the kernel: RCCL's ncclDevKernel_Generic names no kind, and traces before torch 2.2 have no size.
 * c10d::_allgather_base_ the kind; its tensors give the sent and received sizes record_param_comms the sent size
 * nccl:_all_gather_base an annotation that ends on another thread: kind and sent size cudaLaunchKernelExC Details are
 * collected from the kernel's launcher outwards, and then from its API call outwards; what was found first stays, as it
 * is nearer. An annotation belongs to the op during which it begins, if it is the only one. The kernel's own name may
 * veto a kind that it cannot implement. */

typedef struct {
    const fs_store *store;
    fs_api_calls calls;
    fs_intervals annotations; /* of collectives, at their starts; tags are event ids */
} fs_collective_callers;

/* The annotations -------------------------------------------------------------------------------------------------- */

/* Annotations end on another thread, so nothing encloses them, but they begin within the op that called. */
static fs_status list_annotations(fs_collective_callers *callers, fs_error *err)
{
    FS_EACH_EVENT(callers->store, index, chunk, at) {
        FS_POLL(index, err);
        int64_t start = chunk->start[at];
        if (start == FS_MISSING || !fs_event_is_asynchronous(chunk, at)) continue;
        FS_TRY(fs_intervals_add(&callers->annotations, start, start, index, err));
    }
    return fs_intervals_sort(&callers->annotations, err);
}

/* Return the annotation that began during an event; FS_NONE if there is none or more than one. */
static uint32_t annotation_in(const fs_collective_callers *callers, uint32_t index)
{
    uint32_t at, count = callers->annotations.count;
    const fs_chunk *chunk = fs_event_chunk(callers->store, index, &at);
    const fs_interval *items = callers->annotations.items;
    if (chunk->start[at] == FS_MISSING) return FS_NONE;
    uint32_t low = FS_FIRST_NOT(i, 0, count, items[i].begin < chunk->start[at]), end = low;
    while (end < count && items[end].begin <= fs_event_end(chunk, at) && end < low + 2) end++;
    return end == low + 1 ? items[low].tag : FS_NONE;
}

/* FS_OUT_OF_MEMORY. collective_callers_clear also accepts a zeroed struct. */
static fs_status collective_callers_create(fs_collective_callers *callers, const fs_store *store, fs_error *err)
{
    *callers = (fs_collective_callers){.store = store};
    FS_TRY(fs_api_calls_create(&callers->calls, store, err));
    return list_annotations(callers, err);
}

static void collective_callers_clear(fs_collective_callers *callers)
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

/* Fill in `collective` from the ops around the kernel and return its kind; return `by_kernel`, the kind given by the
 * kernel's name, if they name none. An op may launch kernels of another kind (an allgather of uneven parts launches
 * broadcasts); the size of such a kernel stays unknown. */
static fs_collective_kind collective_called_for(const fs_collective_callers *callers, uint32_t kernel,
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

/* Collectives ------------------------------------------------------------------------------------------------------ */

bool fs_collective_at(fs_names *names, const fs_chunk *chunk, uint32_t at, fs_collective *collective)
{
    fs_collective found = fs_collective_missing;
    bool is_recorded = false;
    if (chunk->kind[at] == FS_EVENT_KERNEL && chunk->signature[at] != FS_NONE) {
        is_recorded = fs_collective_decode(fs_store_signature_bytes(names->store, chunk->signature[at]), &found);
    }
    if (collective != NULL) *collective = found;
    return is_recorded || (chunk->kind[at] == FS_EVENT_KERNEL && fs_names_communicate(names, chunk->name[at]));
}

bool fs_computes_at(fs_names *names, const fs_chunk *chunk, uint32_t at)
{
    bool kernel = chunk->kind[at] == FS_EVENT_KERNEL || chunk->kind[at] == FS_EVENT_INTERVAL;
    return kernel && !fs_collective_at(names, chunk, at, NULL);
}

typedef struct {
    const fs_store *store;
    fs_names names;
    fs_collective_callers callers;
    fs_intervals found;    /* communication kernels; tags are event ids */
    fs_intervals *compute; /* by device, FS_DEVICE_LIMIT of them: time covered by computing kernels */
    fs_intern groups;      /* keys for counting occurrences */
    uint32_t *occurrences; /* by key: count so far */
    fs_step_marks marks;
    uint32_t *step_occurrences; /* by mark: number of earlier marks of the same name */
} collecting;

static fs_status add_events(collecting *all, fs_error *err)
{
    FS_EACH_EVENT(all->store, index, chunk, at) {
        FS_POLL(index, err);
        if (!fs_event_is_placed_work(chunk, at)) continue;
        int64_t begin = chunk->start[at], end = fs_event_end(chunk, at);
        if (fs_collective_at(&all->names, chunk, at, NULL))
            FS_TRY(fs_intervals_add(&all->found, begin, end, index, err));
        else if (fs_computes_at(&all->names, chunk, at))
            FS_TRY(fs_intervals_cover(&all->compute[fs_event_device(chunk, at)], begin, end, err));
    }
    FS_TRY(fs_intervals_sort(&all->found, err));
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) FS_TRY(fs_intervals_unite(&all->compute[device], err));
    return FS_OK;
}

/* Steps are those of the launch: which step a kernel runs in differs between ranks, what a program calls does not.
 * Marks of one name are numbered, as some programs call each of their steps "train": without its number, the call of
 * one such step would be that of any other. Marks are few, so a table by name costs nothing beside the events. */
static fs_status find_steps(collecting *all, fs_error *err)
{
    uint32_t names = fs_store_name_count(all->store);
    FS_TRY(fs_step_marks_find(&all->marks, all->store, &all->callers.calls, err));
    if (all->marks.count == 0) return FS_OK;
    FS_TRY(FS_NEW(&all->step_occurrences, all->marks.count, err));
    uint32_t *seen = fs_calloc(names + (size_t)1, sizeof *seen); /* by name; the last one counts those without */
    if (seen == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < all->marks.count; i++) {
        uint32_t name = all->marks.marks[i].name;
        all->step_occurrences[i] = seen[name < names ? name : names]++;
    }
    fs_free(seen);
    return FS_OK;
}

/* A kernel whose launch was not recorded was launched before it ran, mostly in the same step: its own start is the best
 * that is known of it. */
static void set_step(const collecting *all, const fs_chunk *chunk, uint32_t at, fs_collective_row *row)
{
    uint32_t launch = all->marks.count > 0 ? fs_step_marks_launch(&all->marks, chunk, at) : FS_NONE;
    int64_t time = launch < fs_store_count(all->store) ? FS_EVENT_AT(all->store, launch, start) : FS_MISSING;
    uint32_t mark = fs_step_marks_at(&all->marks, time != FS_MISSING ? time : chunk->start[at]);
    row->step = mark != FS_NONE ? all->marks.marks[mark].name : FS_NONE;
    row->step_occurrence = mark != FS_NONE ? all->step_occurrences[mark] : 0;
}

static double message_bytes(const fs_collective *collective)
{
    int64_t elements =
        collective->in_elements > collective->out_elements ? collective->in_elements : collective->out_elements;
    if (elements < 0 || collective->element_size == 0) return NAN;
    return (double)elements * collective->element_size;
}

/* Number the rows of the same device, group, kind and message. */
static fs_status count_occurrence(collecting *all, fs_collective_row *row, fs_error *err)
{
    struct {
        int64_t device, kind;
        double bytes;
        char group[FS_COLLECTIVE_MAX_BYTES]; /* name and ranks */
    } like = {.device = row->device, .kind = row->kind, .bytes = isnan(row->message_bytes) ? -1 : row->message_bytes};
    const fs_collective_text *group = &row->recorded.group, *ranks = &row->recorded.ranks;
    uint32_t id;
    if (group->size > 0) memcpy(like.group, group->text, group->size);
    if (ranks->size > 0) memcpy(like.group + group->size + 1, ranks->text, ranks->size);
    size_t size = offsetof(__typeof__(like), group) + group->size + 1 + ranks->size;
    FS_TRY(fs_intern_bytes(&all->groups, &like, size, &id, err));
    row->occurrence = all->occurrences[id]++;
    return FS_OK;
}

/* More than any link or memory has: then the duration, or the size, is that of something else. */
static const double most_gbytes_per_s = 20000;

static fs_status fill_row(collecting *all, const fs_interval *found, fs_collective_row *row, fs_error *err)
{
    uint32_t at;
    const fs_chunk *chunk = fs_event_chunk(all->store, found->tag, &at);
    fs_collective_at(&all->names, chunk, at, &row->recorded);
    row->name = chunk->name[at];
    row->lane = chunk->lane[at];
    row->device = fs_event_device(chunk, at);
    row->start = found->begin;
    set_step(all, chunk, at, row);
    bool is_recorded = row->recorded.name.size > 0;
    if (is_recorded) row->kind = fs_collective_kind_of(row->recorded.name.text);
    if (row->kind == FS_COLLECTIVE_OTHER && row->name != FS_NONE)
        row->kind = fs_collective_kind_of(fs_store_name_text(all->store, row->name));
    if (!is_recorded) row->kind = collective_called_for(&all->callers, found->tag, row->kind, &row->recorded);

    const fs_intervals *compute = &all->compute[row->device];
    uint32_t from = fs_intervals_first_after(compute, found->begin);
    bool timed = chunk->duration[at] != FS_MISSING;
    row->duration = timed ? (double)chunk->duration[at] : NAN;
    row->exposed = row->duration - (double)fs_intervals_overlap(compute, &from, found->begin, found->end);
    row->message_bytes = message_bytes(&row->recorded);
    double rate = row->duration > 0 ? row->message_bytes / row->duration : NAN; /* B/ns equals GB/s */
    row->algorithm_gbytes_per_s = rate <= most_gbytes_per_s ? rate : NAN;
    row->bus_gbytes_per_s = row->algorithm_gbytes_per_s * fs_collective_bus_factor(row->kind, row->recorded.group_size);
    return count_occurrence(all, row, err);
}

static fs_status fill_rows(collecting *all, fs_collective_row **rows, uint32_t *count, fs_error *err)
{
    fs_status status;
    size_t room = all->found.count + (size_t)1;
    fs_collective_row *result;
    FS_TRY(FS_NEW_ZEROED(&all->occurrences, room, err));
    FS_TRY(FS_NEW_ZEROED(&result, room, err));
    for (uint32_t i = 0; i < all->found.count; i++) {
        if (i % FS_POLL_ROUNDS == 0) FS_TRY_GOTO(status, fs_interrupt_poll(err), failed);
        FS_TRY_GOTO(status, fill_row(all, &all->found.items[i], &result[i], err), failed);
    }
    *rows = result;
    *count = all->found.count;
    return FS_OK;
failed:
    fs_free(result);
    return status;
}

fs_status fs_collectives_of(const fs_store *store, fs_collective_row **rows, uint32_t *count, fs_error *err)
{
    fs_status status;
    fs_intervals compute[FS_DEVICE_LIMIT] = {0};
    collecting all = {.store = store, .compute = compute};
    FS_TRY(fs_names_create(&all.names, store, err));
    FS_TRY_GOTO(status, add_events(&all, err), done);
    if (all.found.count > 0) {
        FS_TRY_GOTO(status, collective_callers_create(&all.callers, store, err), done);
        FS_TRY_GOTO(status, find_steps(&all, err), done);
    }
    status = fill_rows(&all, rows, count, err);
done:
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) fs_intervals_clear(&compute[device]);
    fs_step_marks_clear(&all.marks);
    fs_free(all.step_occurrences);
    collective_callers_clear(&all.callers);
    fs_intervals_clear(&all.found);
    fs_intern_clear(&all.groups);
    fs_free(all.occurrences);
    fs_names_clear(&all.names);
    return status;
}
