/* A work is a piece of device time with the op that it is accounted to; without any device work the ops themselves are
 * the works. The list is in the order of events, and rows are those of the groups until fs_works_move gives them their
 * final places. A work gets the share of its owner's roofs that its time has of the owner's device time, so that shares
 * add up. */
#include "table/works.h"

#include <math.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "table/scan.h"

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

static bool take_device_work(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index, fs_table_work *work)
{
    if (!fs_event_is_placed_work(chunk, at)) return false;
    uint32_t launcher = chunk->launcher[at] < build->count ? fs_build_past_frames(build, chunk->launcher[at]) : FS_NONE;
    *work = no_work;
    work->event = index;
    work->start = chunk->start[at];
    work->end = fs_event_end(chunk, at);
    if (chunk->kind[at] != FS_EVENT_INTERVAL) work->own_row = fs_build_call(build, index)->row;
    if (launcher != FS_NONE) find_owner(build, launcher, work);
    return true;
}

/* Whether the event is a range with declared work in which no op ran: code of another library. */
static bool is_foreign_work(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    if (!fs_build_call(build, index)->stated || fs_event_is_asynchronous(chunk, at)) return false;
    return (fs_build_node(build, index)->flags & (FS_NODE_FLOPS | FS_NODE_OBSCURE)) == 0;
}

static bool take_host_work(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index, fs_table_work *work)
{
    if (chunk->start[at] == FS_MISSING) return false;
    if (chunk->kind[at] != FS_EVENT_OP && chunk->kind[at] != FS_EVENT_RANGE) return false;
    const fs_call *call = fs_build_call(build, index);
    if (chunk->kind[at] == FS_EVENT_OP ? call->wraps : !is_foreign_work(build, chunk, at, index)) return false;
    *work = no_work;
    work->event = work->owner = index;
    work->start = chunk->start[at];
    work->end = fs_event_end(chunk, at);
    work->row = work->own_row = call->row;
    take_roofs(build, work, 1);
    return true;
}

fs_status fs_build_works(fs_build *build, fs_error *err)
{
    fs_table *table = build->table;
    bool on_device = build->work_count > 0;
    uint32_t capacity = on_device ? build->work_count : build->count, at;
    table->works = fs_malloc((capacity + (size_t)1) * sizeof *table->works);
    if (table->works == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to list %u pieces of work", capacity);
    const fs_chunk *chunk = NULL;
    for (uint32_t index = 0; index < build->count; index++) {
        FS_POLL(index, err);
        chunk = fs_event_next_chunk(build->store, index, chunk, &at);
        fs_table_work *next = &table->works[table->work_count];
        table->work_count +=
            on_device ? take_device_work(build, chunk, at, index, next) : take_host_work(build, chunk, at, index, next);
    }
    return FS_OK;
}

/* Rate one event by its own time. */
static fs_rating rate_of(const fs_build *build, const fs_node *node, const fs_node_rate *rate, uint8_t timing)
{
    const fs_node_roofs *roofs = &build->roofs[node - build->nodes];
    fs_roof roof = {
        roofs->compute_ns, roofs->memory_ns, roofs->least_ns, rate->launch_ns, rate->kernel_ns, FS_UNIT_NONE, 0,
        rate->partial,     rate->launches};
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

void fs_works_move(fs_table *table, const uint32_t *places)
{
    for (uint32_t i = 0; i < table->work_count; i++) {
        fs_table_work *work = &table->works[i];
        if (work->row != FS_NONE) work->row = places[work->row];
        if (work->own_row != FS_NONE) work->own_row = places[work->own_row];
    }
}
