/* The division follows from the number of events, rows and calls, and never from the number of threads: every sum is
 * the same for any. Groups of many slices take memory, so there are fewer slices if there are many rows; and if events
 * hardly nest within slices, there is only one. */
#include "table/slices.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/search.h"
#include "base/sort.h"

/* Bytes of their groups and states for each event; the fewest events for each that spans. */
enum { BYTES_PER_EVENT = FS_BLOCK(16, 1 << 20), EVENTS_PER_SPANNING = FS_BLOCK(16, 1) };

static int compare_indices(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static fs_status sort_distinct(uint32_t *list, uint32_t *count, fs_error *err)
{
    uint32_t kept = 0;
    if (list == NULL) return FS_OK; /* none */
    FS_TRY(fs_sort(list, *count, sizeof *list, compare_indices, err));
    for (uint32_t i = 0; i < *count; i++)
        if (kept == 0 || list[kept - 1] != list[i]) list[kept++] = list[i];
    *count = kept;
    return FS_OK;
}

static uint32_t slice_events(const fs_build *build)
{
    uint64_t pieces = fs_piece_count(build), most = FS_MOST_SLICES;
    uint64_t bytes = build->group_count * sizeof(fs_group) + build->calls.count * sizeof(fs_call_state);
    uint64_t roomy = (uint64_t)build->count * BYTES_PER_EVENT / (bytes + 1);
    if (most > roomy) most = roomy;
    if (most > pieces) most = pieces;
    if (most <= 1) return build->count > 0 ? build->count : 1;
    uint64_t each = (pieces + most - 1) / most;
    return each < pieces ? (uint32_t)(each * FS_PIECE_EVENTS) : build->count;
}

/* List the events that have children in a later slice, and all around them. */
static fs_status find_spanning(fs_build *build, const fs_piece *pieces, fs_error *err)
{
    uint32_t capacity = 0, at;
    for (uint32_t i = 0; i < fs_piece_count(build); i++) {
        uint32_t begin = i * FS_PIECE_EVENTS / build->slice_events * build->slice_events;
        for (uint32_t k = 0; k < pieces[i].foreign_count; k++) {
            uint32_t index = pieces[i].foreign[k];
            while (index != FS_NONE && index < begin && (build->marks[index] & FS_MARK_SPANS) == 0) {
                FS_TRY(FS_LIST_ADD(&build->spanning, &build->spanning_count, &capacity, 64, err, index));
                build->marks[index] |= FS_MARK_NODE | FS_MARK_SPANS;
                const fs_chunk *chunk = fs_build_chunk(build, index, &at);
                index = fs_build_parent(build, chunk, at, index);
            }
        }
    }
    return sort_distinct(build->spanning, &build->spanning_count, err);
}

/* One slice after all. */
static void undivide(fs_build *build)
{
    for (uint32_t i = 0; i < build->spanning_count; i++) build->marks[build->spanning[i]] = FS_MARK_NODE;
    build->spanning_count = 0;
    build->slice_events = build->count;
}

/* List the earlier events that have children in the slice; and what they take time from, if it is not they. */
static fs_status find_foreign(fs_build *slice, const fs_piece *pieces, fs_error *err)
{
    uint32_t capacity = 0;
    for (uint32_t i = slice->begin / FS_PIECE_EVENTS; (uint64_t)i * FS_PIECE_EVENTS < slice->end; i++) {
        for (uint32_t k = 0; k < pieces[i].foreign_count; k++) {
            uint32_t index = pieces[i].foreign[k], timed = fs_build_timed(slice, index);
            if (index >= slice->begin) index = timed;
            if (index == FS_NONE || index >= slice->begin) continue;
            FS_TRY(FS_LIST_ROOM(&slice->foreign, slice->foreign_count + 1, &capacity, 16, err));
            slice->foreign[slice->foreign_count++] = index;
            if (timed != FS_NONE && timed != index) slice->foreign[slice->foreign_count++] = timed;
        }
    }
    FS_TRY(sort_distinct(slice->foreign, &slice->foreign_count, err));
    FS_TRY(FS_NEW(&slice->first_children, slice->foreign_count, err));
    for (uint32_t i = 0; i < slice->foreign_count; i++) slice->first_children[i] = INT64_MAX;
    return FS_OK;
}

static fs_status make_slice(fs_build *slice, fs_table *sums, const fs_build *of, uint32_t index, fs_error *err)
{
    *slice = *of;
    slice->table = sums;
    slice->begin = index * of->slice_events;
    slice->end = of->count - slice->begin < of->slice_events ? of->count : slice->begin + of->slice_events;
    slice->foreign = NULL;
    slice->states = NULL; /* those of `of` are not the slice's to free */
    FS_TRY(FS_NEW_ZEROED(&slice->groups, of->group_count, err));
    FS_TRY(FS_NEW_ZEROED(&slice->states, of->calls.count, err));
    return FS_OK;
}

static void count_samples(fs_build *slice, const fs_piece *pieces)
{
    for (uint32_t i = slice->begin / FS_PIECE_EVENTS; (uint64_t)i * FS_PIECE_EVENTS < slice->end; i++) {
        for (uint32_t k = 0; k < pieces[i].tallies.count; k++) {
            const fs_tally *tally = &pieces[i].tallies.list[k];
            slice->groups[slice->calls.calls[tally->call].row].sample_room += tally->count;
        }
    }
}

static fs_status make_slices(fs_build *build, fs_piece *pieces, fs_error *err)
{
    FS_TRY(FS_NEW_ZEROED(&build->states, build->calls.count, err));
    if (build->slice_count > 1) {
        FS_TRY(FS_NEW_ZEROED(&build->rest, build->slice_count - 1, err));
        FS_TRY(FS_NEW_ZEROED(&build->sums, build->slice_count - 1, err));
    }
    for (uint32_t i = 1; i < build->slice_count; i++) {
        fs_build *slice = fs_build_slice(build, i);
        FS_TRY(make_slice(slice, &build->sums[i - 1], build, i, err));
        FS_TRY(find_foreign(slice, pieces, err));
    }
    for (uint32_t i = 0; i < build->slice_count; i++) count_samples(fs_build_slice(build, i), pieces);
    return FS_OK;
}

/* Return the number of nodes of a piece's events. Where works of the host are listed, any of them may have one. */
static uint32_t count_nodes(const fs_build *build, const fs_piece *pieces, uint32_t piece)
{
    uint32_t count = 0, begin = piece * FS_PIECE_EVENTS, end = fs_piece_end(build, piece);
    if (build->options->works && build->work_count == 0) return pieces[piece].node_room;
    for (const uint8_t *mark = build->marks + begin; mark < build->marks + end; mark++) count += *mark != 0;
    return count;
}

/* Give nodes their places, without gaps, which would take pages: of a slice's own events, of spanning ones, stand-ins.
 * What is left of the room is never touched. */
static void place_nodes(fs_build *build, const fs_piece *pieces)
{
    uint32_t next = 0, left = 0;
    for (uint32_t i = 0; i < build->slice_count; i++) {
        fs_build *slice = fs_build_slice(build, i);
        slice->next_node = next;
        for (uint32_t k = slice->begin / FS_PIECE_EVENTS; (uint64_t)k * FS_PIECE_EVENTS < slice->end; k++) {
            uint32_t count = count_nodes(build, pieces, k);
            left += pieces[k].node_room - count;
            next += count;
        }
    }
    build->spanning_node = next;
    next += build->spanning_count;
    for (uint32_t i = 1; i < build->slice_count; i++) {
        fs_build *slice = fs_build_slice(build, i);
        slice->stand_in = next;
        next += slice->foreign_count;
    }
    build->node_room = next + left;
}

static fs_status allocate_nodes(fs_build *build, fs_error *err)
{
    size_t room = build->node_room;
    bool roofs = build->options->works;
    FS_TRY(FS_NEW(&build->nodes, room, err));
    if (build->table->has_memory) FS_TRY(FS_NEW(&build->memory, room, err));
    if (FS_ANY(i, build->calls.count, build->calls.calls[i].has_work)) /* the names of kernels may tell their work */
        FS_TRY(FS_NEW_ZEROED(&build->contexts, room, err));
    if (roofs) FS_TRY(FS_NEW(&build->roofs, room, err));
    if (roofs && build->options->ratings) FS_TRY(FS_NEW(&build->rates, room, err));
    for (uint32_t i = 1; i < build->slice_count; i++) {
        fs_build *slice = fs_build_slice(build, i);
        slice->nodes = build->nodes;
        slice->memory = build->memory;
        slice->contexts = build->contexts;
        slice->roofs = build->roofs;
        slice->rates = build->rates;
        slice->node_room = build->node_room;
        slice->spanning_node = build->spanning_node;
    }
    return FS_OK;
}

fs_status fs_build_divide(fs_build *build, fs_piece *pieces, fs_error *err)
{
    build->slice_events = slice_events(build);
    if (build->slice_events < build->count) FS_TRY(find_spanning(build, pieces, err));
    if (build->spanning_count > build->count / EVENTS_PER_SPANNING) undivide(build);
    build->slice_count = (build->count + build->slice_events - 1) / build->slice_events;
    if (build->slice_count == 0) build->slice_count = 1;
    build->end = build->slice_count == 1 ? build->count : build->slice_events;
    FS_TRY(make_slices(build, pieces, err));
    place_nodes(build, pieces);
    return allocate_nodes(build, err);
}

void fs_build_free_slices(fs_build *build)
{
    for (uint32_t i = 1; build->rest != NULL && i < build->slice_count; i++) {
        fs_build *slice = fs_build_slice(build, i);
        if (slice->store == NULL) break; /* it was not made */
        fs_free(slice->groups);
        fs_free(slice->states);
        fs_free(slice->foreign);
        fs_free(slice->first_children);
    }
    fs_free(build->rest);
    fs_free(build->sums);
    fs_free(build->states);
    fs_free(build->spanning);
}

/* Loops over slices ------------------------------------------------------------------------------------------------ */

typedef struct {
    fs_build *build;
    void (*body)(fs_build *slice);
} slice_loop;

static void run_slices(void *context, int64_t first, int64_t last)
{
    const slice_loop *loop = context;
    for (int64_t i = first; i < last; i++) loop->body(fs_build_slice(loop->build, (uint32_t)i));
}

fs_status fs_build_each_slice(fs_build *build, void (*body)(fs_build *slice), fs_error *err)
{
    slice_loop loop = {build, body};
    fs_parallel_for(build->slice_count, 1, run_slices, &loop);
    return fs_interrupt_poll(err);
}

/* Sums ------------------------------------------------------------------------------------------------------------- */

/* The fields of a group that are sums of slices. */
#define GROUP_INTEGERS(X)           \
    X(row.self_cpu_time_total)      \
    X(row.cpu_time_total)           \
    X(row.self_device_time_total)   \
    X(row.device_time_total)        \
    X(row.self_cpu_memory_usage)    \
    X(row.cpu_memory_usage)         \
    X(row.self_device_memory_usage) \
    X(row.device_memory_usage)      \
    X(unrated_ns)                   \
    X(host_ns)                      \
    X(unmodelled_ns)                \
    X(estimated_ns)                 \
    X(flops_estimated_ns)           \
    X(repeated)                     \
    X(work_calls)
#define GROUP_NUMBERS(X)     \
    X(row.cpu_rounding)      \
    X(row.device_rounding)   \
    X(row.flops_total)       \
    X(row.flops)             \
    X(row.bytes_read)        \
    X(row.bytes_written)     \
    X(row.bytes_total_moved) \
    X(unrated_flops)         \
    X(unrated_bytes)         \
    X(roof.compute_ns)       \
    X(roof.memory_ns)        \
    X(roof.least_ns)         \
    X(roof.launch_ns)        \
    X(roof.kernel_ns)        \
    X(roof.launches)

static void join_group(fs_group *to, const fs_group *from)
{
#define ADD_INTEGER(field) fs_add_to(&to->field, from->field);
#define ADD_NUMBER(field) to->field += from->field;
    GROUP_INTEGERS(ADD_INTEGER)
    GROUP_NUMBERS(ADD_NUMBER)
#undef ADD_INTEGER
#undef ADD_NUMBER
    for (int unit = 0; unit < FS_UNIT_COUNT; unit++) to->roof.unit_flops[unit] += from->roof.unit_flops[unit];
    fs_resources_join(&to->resources, &from->resources);
    to->roof.partial = to->roof.partial || from->roof.partial;
    to->untimed = to->untimed || from->untimed;
    to->owned_by_others = to->owned_by_others || from->owned_by_others;
    to->unrecorded = to->unrecorded || from->unrecorded;
    to->flops_known = to->flops_known || from->flops_known;
    to->stated = to->stated || from->stated;
    to->limited = to->limited || from->limited;
}

/* Move the samples of a row together. */
static void gather_samples(fs_build *build, uint32_t row)
{
    fs_group *group = &build->groups[row];
    for (uint32_t i = 1; i < build->slice_count; i++) {
        const fs_group *more = &fs_build_slice(build, i)->groups[row];
        int64_t *end = &build->samples[group->samples_begin + group->sample_count];
        const int64_t *from = &build->samples[more->samples_begin];
        if (from != end) memmove(end, from, more->sample_count * sizeof *end);
        group->sample_count += more->sample_count;
    }
}

static void join_groups(void *context, int64_t first, int64_t last)
{
    fs_build *build = context;
    for (int64_t row = first; row < last; row++) {
        for (uint32_t i = 1; i < build->slice_count; i++)
            join_group(&build->groups[row], &fs_build_slice(build, i)->groups[row]);
        if (build->samples != NULL) gather_samples(build, (uint32_t)row);
    }
}

void fs_build_join_memory(const fs_build *build, fs_node *node, fs_node *stand_in)
{
    if ((stand_in->flags & FS_NODE_MEMORY) == 0) return;
    fs_node_memory *to = &build->memory[node - build->nodes], *from = &build->memory[stand_in - build->nodes];
    for (int place = 0; place < FS_MEMORY_PLACES; place++) {
        fs_add_to(&to->self[place], from->self[place]);
        fs_add_to(&to->total[place], from->total[place]);
    }
    *from = (fs_node_memory){{0}, {0}};
    node->flags |= FS_NODE_MEMORY;
    stand_in->flags &= (uint16_t)~FS_NODE_MEMORY;
}

static void join_table(fs_table *to, const fs_table *from)
{
    fs_add_to(&to->self_cpu_ns, from->self_cpu_ns);
    fs_add_to(&to->self_device_ns, from->self_device_ns);
    fs_add_to(&to->unseen_graph_ns, from->unseen_graph_ns);
    to->modelled_base_ns += from->modelled_base_ns;
    for (int source = 0; source < FS_SOURCE_COUNT; source++) {
        to->bytes_ns[source] += from->bytes_ns[source];
        to->flops_ns[source] += from->flops_ns[source];
    }
}

fs_status fs_build_join(fs_build *build, fs_error *err)
{
    if (build->slice_count == 1) return FS_OK;
    for (uint32_t i = 1; i < build->slice_count; i++) join_table(build->table, fs_build_slice(build, i)->table);
    fs_parallel_for(build->group_count, 16, join_groups, build);
    return fs_interrupt_poll(err);
}
