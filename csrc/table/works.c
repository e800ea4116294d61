/* A work is a piece of device time with the op that it is accounted to; without any device work the ops themselves are
 * the works. The list is in the order of events, and rows are those of the groups until fs_works_move gives them their
 * final places. A work gets the share of its owner's roofs that its time has of the owner's device time, so that shares
 * add up. */
#include "table/works.h"

#include <math.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "table/counted_rows.h"
#include "table/scan.h"
#include "table/survey.h"

static const fs_table_work no_work = {
    .owner = FS_NONE, .row = FS_NONE, .own_row = FS_NONE, .compute_ns = NAN, .memory_ns = NAN, .least_ns = NAN};

/* Give the work a share of its owner's roofs. */
static void take_roofs(fs_build *build, fs_table_work *work, double share)
{
    const fs_node *node = fs_build_node(build, work->owner);
    const fs_node_roofs *roofs = &build->roofs[node - build->nodes];
    if (!roofs->added || !(share >= 0)) return;
    work->compute_ns = roofs->compute_ns * share;
    work->memory_ns = roofs->memory_ns * share;
    work->least_ns = roofs->least_ns * share;
}

static void find_owner(fs_build *build, uint32_t launcher, fs_table_work *work)
{
    const fs_node *node = fs_build_node(build, launcher);
    uint32_t counted = node->owner != FS_NONE ? node->owner : node->stated;
    work->owner = counted != FS_NONE ? counted : node->op != FS_NONE ? node->op : launcher;
    work->row = fs_build_call(build, work->owner)->row;
    if (counted == FS_NONE) return;
    double owned = (double)fs_build_node(build, counted)->owned_device_ns;
    take_roofs(build, work, owned > 0 ? (double)(work->end - work->start) / owned : (double)NAN);
}

static void take_device_work(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index, fs_table_work *work)
{
    uint32_t launcher = chunk->launcher[at] < build->count ? fs_build_past_frames(build, chunk->launcher[at]) : FS_NONE;
    *work = no_work;
    work->event = index;
    work->start = chunk->start[at];
    work->end = fs_event_end(chunk, at);
    if (chunk->kind[at] != FS_EVENT_INTERVAL) work->own_row = fs_build_call(build, index)->row;
    if (launcher != FS_NONE) find_owner(build, launcher, work);
    fs_counted_work_fill(build, work);
}

/* Whether the event is a range with declared work in which no op ran: code of another library. */
static bool is_foreign_work(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    if (!fs_build_call(build, index)->stated || fs_event_is_asynchronous(chunk, at)) return false;
    return (fs_build_node(build, index)->flags & (FS_NODE_FLOPS | FS_NODE_OBSCURE)) == 0;
}

static bool is_host_work(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    if (chunk->start[at] == FS_MISSING) return false;
    if (chunk->kind[at] == FS_EVENT_OP) return !fs_build_call(build, index)->wraps;
    return chunk->kind[at] == FS_EVENT_RANGE && is_foreign_work(build, chunk, at, index);
}

static void take_host_work(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index, fs_table_work *work)
{
    *work = no_work;
    work->event = work->owner = index;
    work->start = chunk->start[at];
    work->end = fs_event_end(chunk, at);
    work->row = work->own_row = fs_build_call(build, index)->row;
    take_roofs(build, work, 1);
}

/* Each piece of the events has a place for its works once those before it are counted. */
typedef struct {
    fs_build *build;
    fs_table_work *works;
    uint32_t *firsts; /* by piece: its works, then those before it */
} listing;

static bool is_work(const listing *all, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    if (all->build->work_count > 0) return fs_event_is_placed_work(chunk, at);
    return is_host_work(all->build, chunk, at, index);
}

static void count_works(void *context, int64_t first, int64_t last)
{
    const listing *all = context;
    for (uint32_t piece = (uint32_t)first; piece < last; piece++) {
        uint32_t begin = piece * FS_PIECE_EVENTS, end = fs_piece_end(all->build, piece), at, count = 0;
        const fs_chunk *chunk = fs_build_chunk(all->build, begin, &at);
        for (uint32_t k = 0; k < end - begin; k++) count += is_work(all, chunk, at + k, begin + k);
        all->firsts[piece] = count;
    }
}

static void list_works(void *context, int64_t first, int64_t last)
{
    const listing *all = context;
    for (uint32_t piece = (uint32_t)first; piece < last; piece++) {
        uint32_t begin = piece * FS_PIECE_EVENTS, end = fs_piece_end(all->build, piece), at;
        const fs_chunk *chunk = fs_build_chunk(all->build, begin, &at);
        fs_table_work *next = &all->works[all->firsts[piece]];
        for (uint32_t k = 0; k < end - begin; k++) {
            if (!is_work(all, chunk, at + k, begin + k)) continue;
            if (all->build->work_count > 0) take_device_work(all->build, chunk, at + k, begin + k, next++);
            else take_host_work(all->build, chunk, at + k, begin + k, next++);
        }
    }
}

fs_status fs_build_works(fs_build *build, fs_error *err)
{
    fs_table *table = build->table;
    uint32_t pieces = fs_piece_count(build), count = 0;
    listing all = {.build = build, .firsts = fs_malloc(pieces * sizeof *all.firsts)};
    if (all.firsts == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to list work in %u events", build->count);
    fs_parallel_for(pieces, 1, count_works, &all);
    for (uint32_t piece = 0; piece < pieces; piece++) {
        uint32_t before = count;
        count += all.firsts[piece];
        all.firsts[piece] = before;
    }
    fs_status status = fs_interrupt_poll(err);
    if (status == FS_OK) all.works = table->works = fs_malloc((count + (size_t)1) * sizeof *table->works);
    if (status == FS_OK && all.works == NULL)
        status = fs_fail(err, FS_OUT_OF_MEMORY, "no memory to list %u pieces of work", count);
    if (status == FS_OK) fs_parallel_for(pieces, 1, list_works, &all);
    if (status == FS_OK) status = fs_interrupt_poll(err);
    table->work_count = count;
    fs_free(all.firsts);
    return status;
}

/* Rate one event by its own time. */
static fs_rating rate_of(const fs_build *build, const fs_node *node, const fs_node_rate *rate, uint8_t timing)
{
    const fs_node_roofs *roofs = &build->roofs[node - build->nodes];
    fs_roof roof = fs_roof_unknown;
    roof.compute_ns = roofs->compute_ns;
    roof.memory_ns = roofs->memory_ns;
    roof.least_ns = roofs->least_ns;
    roof.launch_ns = rate->launch_ns;
    roof.kernel_ns = rate->kernel_ns;
    roof.partial = rate->partial;
    roof.launches = rate->launches;
    bool known = rate->timed && !build->table->device_unseen;
    if (rate->timing != FS_TIMING_COUNT) timing = rate->timing;
    double time = known ? (double)rate->busy_ns : (double)NAN;
    fs_rating rating = fs_roof_rate(&roof, rate->flops, rate->bytes_moved, time, (fs_timing)timing);
    /* Work that is only an upper bound and exceeds what the device can do gives no rates. */
    if (rate->estimated && rating.pct_roofline > 100)
        rating = fs_roof_rate(&fs_roof_unknown, NAN, NAN, NAN, (fs_timing)timing);
    return rating;
}

fs_status fs_build_ratings(fs_build *build, fs_error *err)
{
    fs_table *table = build->table;
    uint32_t at, capacity = build->node_room;
    table->rated = fs_malloc((capacity + (size_t)1) * sizeof *table->rated);
    if (table->rated == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to rate %u events", capacity);
    const fs_chunk *chunk = NULL;
    for (uint32_t index = 0; index < build->count; index++) {
        FS_POLL(index, err);
        chunk = fs_event_next_chunk(build->store, index, chunk, &at);
        uint8_t kind = chunk->kind[at];
        if (kind == FS_EVENT_FRAME || kind == FS_EVENT_MEMORY || kind == FS_EVENT_INTERVAL) continue;
        if (fs_build_is_device(chunk, at) || (build->slots[index] & FS_SLOT_NODE) == 0) continue;
        const fs_node *node = fs_build_node(build, index);
        const fs_node_rate *rate = fs_build_rate(build, node);
        if (!build->roofs[node - build->nodes].added) continue;
        table->rated[table->rated_count++] = (fs_table_rated){
            .event = index,
            .flops = rate->flops,
            .bytes_read = rate->bytes_read,
            .bytes_written = rate->bytes_written,
            .owned_ns = (double)node->owned_device_ns,
            .rating = rate_of(build, node, rate, chunk->timing[at]),
        };
    }
    return FS_OK;
}

typedef struct {
    fs_table_work *works;
    const uint32_t *places;
} moving;

static void move_works(void *context, int64_t first, int64_t last)
{
    const moving *all = context;
    for (fs_table_work *work = &all->works[first]; work < &all->works[last]; work++) {
        if (work->row != FS_NONE) work->row = all->places[work->row];
        if (work->own_row != FS_NONE) work->own_row = all->places[work->own_row];
    }
}

void fs_works_move(fs_table *table, const uint32_t *places)
{
    fs_parallel_for(table->work_count, FS_PIECE_EVENTS, move_works, &(moving){table->works, places});
}
