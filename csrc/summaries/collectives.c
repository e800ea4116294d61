/* Kernels of communication in order of start, and for each device the time that computing kernels cover, united: the
 * exposed part of a collective is what these do not overlap. Recorded details come first, the kernel's name second, the
 * callers third. Occurrences number the rows that are alike in order of start, which is how ranks are matched later. */
#include "summaries/collectives.h"

#include <math.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "store/event.h"
#include "store/signature.h"
#include "summaries/collective_callers.h"
#include "summaries/intervals.h"

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
} collecting;

static fs_status add_events(collecting *all, fs_error *err)
{
    uint32_t count = fs_store_count(all->store), at;
    for (uint32_t index = 0; index < count; index++) {
        FS_POLL(index, err);
        const fs_chunk *chunk = fs_event_chunk(all->store, index, &at);
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

static fs_status fill_row(collecting *all, const fs_interval *found, fs_collective_row *row, fs_error *err)
{
    uint32_t at;
    const fs_chunk *chunk = fs_event_chunk(all->store, found->tag, &at);
    fs_collective_at(&all->names, chunk, at, &row->recorded);
    row->name = chunk->name[at];
    row->lane = chunk->lane[at];
    row->device = fs_event_device(chunk, at);
    row->start = found->begin;
    bool is_recorded = row->recorded.name.size > 0;
    if (is_recorded) row->kind = fs_collective_kind_of(row->recorded.name.text);
    if (row->kind == FS_COLLECTIVE_OTHER && row->name != FS_NONE)
        row->kind = fs_collective_kind_of(fs_store_name_text(all->store, row->name));
    if (!is_recorded) row->kind = fs_collective_called_for(&all->callers, found->tag, row->kind, &row->recorded);

    const fs_intervals *compute = &all->compute[row->device];
    uint32_t from = fs_intervals_first_after(compute, found->begin);
    bool timed = chunk->duration[at] != FS_MISSING;
    row->duration = timed ? (double)chunk->duration[at] : NAN;
    row->exposed = row->duration - (double)fs_intervals_overlap(compute, &from, found->begin, found->end);
    row->message_bytes = message_bytes(&row->recorded);
    row->algorithm_gbytes_per_s = row->duration > 0 ? row->message_bytes / row->duration : NAN; /* B/ns equals GB/s */
    row->bus_gbytes_per_s = row->algorithm_gbytes_per_s * fs_collective_bus_factor(row->kind, row->recorded.group_size);
    return count_occurrence(all, row, err);
}

static fs_status fill_rows(collecting *all, fs_collective_row **rows, uint32_t *count, fs_error *err)
{
    fs_status status;
    size_t room = all->found.count + (size_t)1;
    fs_collective_row *result = fs_calloc(room, sizeof *result);
    all->occurrences = fs_calloc(room, sizeof *all->occurrences);
    if (result == NULL || all->occurrences == NULL) {
        status = fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %u collectives", all->found.count);
        goto failed;
    }
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
    if (all.found.count > 0) FS_TRY_GOTO(status, fs_collective_callers_create(&all.callers, store, err), done);
    status = fill_rows(&all, rows, count, err);
done:
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) fs_intervals_clear(&compute[device]);
    fs_collective_callers_clear(&all.callers);
    fs_intervals_clear(&all.found);
    fs_intern_clear(&all.groups);
    fs_free(all.occurrences);
    fs_names_clear(&all.names);
    return status;
}
