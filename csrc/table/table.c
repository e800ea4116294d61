/* Each step of fs_table_build reads what those before it left in `build`. A group becomes a row by fill_row, which
 * turns sums into rates; unknown work is NaN and stays NaN. Groups are put in order and shrunk to rows in place,
 * because a second copy of millions of rows would be larger than the store. Whatever happens, `done` frees everything
 * but the table, and the table too unless it is complete. */
#include "table/table.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/saturate.h"
#include "base/sort.h"
#include "base/statistics.h"
#include "table/build.h"
#include "table/counted_rows.h"
#include "table/devices.h"
#include "table/parts.h"
#include "table/scan.h"
#include "table/slices.h"
#include "table/survey.h"
#include "table/totals.h"

/* Pieces of work --------------------------------------------------------------------------------------------------- */

/* Last step of a build with fs_table_options.works: lists the pieces of work. A work is a piece of device time with the
 * op that it is accounted to; without any device work the ops themselves are the works. The list is in the order of
 * events, and rows are those of the groups until works_move gives them their final places. A work gets the share of
 * its owner's roofs that its time has of the owner's device time, so that shares add up. */

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

/* Fill table->works; their rows are indices of groups. FS_OUT_OF_MEMORY. */
static fs_status build_works(fs_build *build, fs_error *err)
{
    fs_table *table = build->table;
    uint32_t pieces = fs_piece_count(build), count = 0;
    listing all = {.build = build};
    FS_TRY(FS_NEW(&all.firsts, pieces, err));
    fs_parallel_for(pieces, 1, count_works, &all);
    for (uint32_t piece = 0; piece < pieces; piece++) {
        uint32_t before = count;
        count += all.firsts[piece];
        all.firsts[piece] = before;
    }
    fs_status status = fs_interrupt_poll(err);
    if (status == FS_OK) status = FS_NEW(&table->works, count + (size_t)1, err);
    all.works = table->works;
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

/* Fill table->rated. FS_OUT_OF_MEMORY. */
static fs_status build_ratings(fs_build *build, fs_error *err)
{
    fs_table *table = build->table;
    uint32_t capacity = build->node_room;
    FS_TRY(FS_NEW(&table->rated, capacity + (size_t)1, err));
    FS_EACH_EVENT(build->store, index, chunk, at) {
        FS_POLL(index, err);
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

/* Replace the indices of groups by those of rows: places[group] is the row's. */
static void works_move(fs_table *table, const uint32_t *places)
{
    fs_parallel_for(table->work_count, FS_PIECE_EVENTS, move_works, &(moving){table->works, places});
}

/* Calls of events -------------------------------------------------------------------------------------------------- */

/* Last step of a build with fs_table_options.calls: which call, and so which row, each event belongs to. The calls have
 * their final ids by now, and `places` says where the rows went: the lists are copied once and refer to rows of the
 * finished table. An event without a row of its own has no call. */

/* Python calls, intervals, and memory that an event changed have no row. */
static bool has_call(const fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    uint8_t kind = chunk->kind[at];
    if (kind == FS_EVENT_MEMORY) return fs_build_parent(build, chunk, at, index) == FS_NONE;
    return kind != FS_EVENT_FRAME && kind != FS_EVENT_INTERVAL;
}

/* Fill the table's calls: places[group] is the row of a group. FS_OUT_OF_MEMORY. */
static fs_status build_event_calls(fs_build *build, const uint32_t *places, fs_error *err)
{
    fs_table *table = build->table;
    FS_TRY(FS_NEW(&table->calls, build->calls.count + (size_t)1, err));
    FS_TRY(FS_NEW(&table->event_calls, build->count + (size_t)1, err));
    for (uint32_t i = 0; i < build->calls.count; i++) {
        const fs_call *call = &build->calls.calls[i];
        table->calls[i] =
            (fs_table_call){(uint32_t)(call->key >> 32), (uint32_t)call->key, places[call->row], call->kind};
    }
    table->call_count = build->calls.count;
    FS_EACH_EVENT(build->store, index, chunk, at) {
        FS_POLL(index, err);
        bool has = has_call(build, chunk, at, index);
        table->event_calls[index] = has ? (uint32_t)(fs_build_call(build, index) - build->calls.calls) : FS_NONE;
    }
    return FS_OK;
}

/* Table ------------------------------------------------------------------------------------------------------------ */

/* If the work is only an upper bound and exceeds what the device can do, it gives no rates. */
static void clear_rates(fs_row *row)
{
    row->tflops_per_s = row->gbytes_per_s = NAN;
    row->pct_peak_flops = row->pct_peak_bandwidth = row->pct_roofline = NAN;
    row->roofline_time = row->headroom = NAN;
    row->bound = FS_BOUND_UNKNOWN;
}

/* Compute the row's rates and shares. For a row that ran on a device, CPU calls count only if their peaks are known. */
static void rate(const fs_build *build, fs_group *group)
{
    fs_row *row = &group->row;
    bool on_device = fs_build_ran_on_device(group);
    double flops = row->flops, bytes = row->bytes_total_moved; /* of the work that took the time */
    int64_t ns = fs_add_saturated(row->device_busy_time, group->host_ns);
    if (on_device) {
        flops -= group->unrated_flops;
        bytes -= group->unrated_bytes;
    } else {
        fs_add_to(&ns, group->unrated_ns);
        if (group->unrated_ns > 0) row->roof = fs_roof_unknown;
        /* In a recorded trace, device work without an op may belong to this row. */
        if (group->unrated_ns > 0 && build->recorded && build->has_unlinked_work) ns = 0;
    }
    fs_timing timing = on_device ? (fs_timing)group->device_timing : row->timing;
    fs_rating rating = fs_roof_rate(&row->roof, flops, bytes, group->untimed ? NAN : (double)ns, timing);
    row->tflops_per_s = rating.tflops_per_s;
    row->gbytes_per_s = rating.gbytes_per_s;
    row->arithmetic_intensity = rating.arithmetic_intensity;
    row->pct_peak_flops = rating.pct_peak_flops;
    row->pct_peak_bandwidth = rating.pct_peak_bandwidth;
    row->pct_roofline = rating.pct_roofline;
    row->roofline_time = rating.roofline_time;
    row->headroom = rating.headroom;
    row->bound = rating.bound;
    bool bound = group->estimated_ns > 0 || (group->limited && row->bytes_source != FS_SOURCE_COUNTED);
    if (bound && row->pct_roofline > 100) clear_rates(row);
}

/* Sum of what two metrics counted in a row. */
static double sum_of(const fs_counted_sum *sum, fs_metric one, fs_metric other)
{
    return fs_counted_value(sum, one) + fs_counted_value(sum, other);
}

/* Counted over modelled bytes, below which most of what the model has move came from the L2. */
static const double cached_ratio = 0.7;

/* Where the bytes of the model did not move, they do not bound the time. Of rows whose writes are unknown, the reads
 * tell. */
static void judge_traffic(fs_row *row)
{
    double reads = row->bytes_read > 0 ? row->dram_bytes_read / row->bytes_read : NAN;
    double ratio = isnan(row->traffic_ratio) ? reads : row->traffic_ratio;
    if (row->bound == FS_BOUND_MEMORY && ratio < cached_ratio) row->bound = FS_BOUND_CACHE;
}

static void fill_counted(const fs_build *build, fs_group *group)
{
    fs_row *row = &group->row;
    fs_counted_sum total = {.ns = 0}, *sum = &total;
    if (build->counted_sums != NULL) {
        size_t place = (size_t)(group - build->groups) * build->counted.devices;
        total = fs_counted_total(&build->counted_sums[place], build->counted.devices);
    }
    row->dram_bytes_read = fs_counted_value(sum, FS_METRIC_DRAM_READ);
    row->dram_bytes_written = fs_counted_value(sum, FS_METRIC_DRAM_WRITTEN);
    row->sm_active = fs_counted_value(sum, FS_METRIC_SM_ACTIVE);
    row->tensor_active = fs_counted_value(sum, FS_METRIC_TENSOR_ACTIVE);
    row->fma_active = fs_counted_value(sum, FS_METRIC_FMA_ACTIVE);
    row->fp64_active = fs_counted_value(sum, FS_METRIC_FP64_ACTIVE);
    row->alu_active = fs_counted_value(sum, FS_METRIC_ALU_ACTIVE);
    row->issue_active = fs_counted_value(sum, FS_METRIC_ISSUE_ACTIVE);
    row->l1_active = fs_counted_value(sum, FS_METRIC_L1_ACTIVE);
    row->l2_active = fs_counted_value(sum, FS_METRIC_L2_ACTIVE);
    row->l2_fabric_active = fs_counted_fabric(sum);
    row->l2_bytes = fs_counted_value(sum, FS_METRIC_L2);
    row->nvlink_bytes = sum_of(sum, FS_METRIC_NVLINK_RECEIVED, FS_METRIC_NVLINK_SENT);
    row->pcie_bytes = sum_of(sum, FS_METRIC_PCIE_READ, FS_METRIC_PCIE_WRITTEN);
    double moved = row->dram_bytes_read + row->dram_bytes_written;
    double modelled = row->bytes_total_moved - group->unrated_bytes;
    if (row->bytes_source == FS_SOURCE_COUNTED) modelled = NAN;
    row->dram_gbytes_per_s = row->device_busy_time > 0 ? moved / (double)row->device_busy_time : NAN;
    row->traffic_ratio = modelled > 0 ? moved / modelled : NAN;
    const fs_counted_row *counted = fs_counted_row_of(build, (uint32_t)(group - build->groups));
    double busy_ns = row->device_busy_time > 0 ? (double)row->device_busy_time : NAN;
    row->l2_gbytes_per_s = row->l2_bytes / busy_ns;
    row->pct_peak_l2 = counted != NULL ? 100 * counted->l2_ns / busy_ns : (double)NAN;
    if (row->bytes_source == FS_SOURCE_COUNTED) return;
    judge_traffic(row);
    fs_counted_row_judge(build, group);
}

const char *const fs_source_names[FS_SOURCE_COUNT] = {
#define FS_SOURCE(NAME, name, meaning) [FS_SOURCE_##NAME] = #name,
#include "table/sources.def"
#undef FS_SOURCE
};

const char *const fs_source_meanings[FS_SOURCE_COUNT] = {
#define FS_SOURCE(NAME, name, meaning) [FS_SOURCE_##NAME] = meaning,
#include "table/sources.def"
#undef FS_SOURCE
};

static fs_source source_of(const fs_group *group, double number, bool estimated)
{
    if (isnan(number)) return FS_SOURCE_NONE;
    if (group->row.is_user_annotation) return FS_SOURCE_STATED;
    if (estimated || group->limited) return FS_SOURCE_ESTIMATED;
    return group->stated ? FS_SOURCE_STATED : FS_SOURCE_MODEL;
}

static void fill_resources(fs_row *row, const fs_resources *sums)
{
    bool known = sums->registers > 0; /* else they are unknown, or it is no kernel */
    row->registers = known ? (double)sums->registers : (double)NAN;
    row->shared_memory = known ? (double)sums->shared : (double)NAN;
    row->theoretical_occupancy = fs_resources_mean(sums, sums->occupancy);
    row->waves = fs_resources_mean(sums, sums->waves);
    row->occupancy_limit = fs_resources_limit(sums);
}

static void fill_row(const fs_build *build, fs_group *group)
{
    fs_row *row = &group->row;
    row->roof = fs_roof_sum_total(&group->roof);
    bool in_part = group->repeated > 0 && group->repeated < row->count; /* other kernels of the row are no launches */
    if (group->work_calls == 0 || in_part) {
        row->flops = row->bytes_read = row->bytes_written = row->bytes_total_moved = NAN;
        row->roof = fs_roof_unknown;
    }
    if (build->table->device_unseen || (group->unrecorded && !fs_build_ran_on_device(group))) {
        fs_unit unit = row->roof.unit;
        row->roof = fs_roof_unknown;
        row->roof.unit = unit;
        group->untimed = true;
    }
    if (!group->flops_known) row->flops_total = NAN;
    if (fs_build_ran_on_device(group)) row->timing = group->device_timing;

    int64_t *samples = build->samples != NULL ? build->samples + group->samples_begin : NULL;
    fs_statistics times = fs_statistics_of(samples, samples != NULL ? group->sample_count : 0);
    row->time_min = times.min;
    row->time_median = times.median;
    row->time_p95 = times.p95;
    row->time_max = times.max;
    row->time_std = times.std;
    bool estimated = group->estimated_ns > 0;
    row->bytes_source = source_of(group, row->bytes_total_moved, estimated);
    row->flops_source = source_of(group, row->flops, estimated || group->flops_estimated_ns > 0);
    fs_counted_row_fill(build, group);
    rate(build, group);
    fill_counted(build, group);
    fill_resources(row, &group->resources);
}

/* torch's order of rows: by start of the first event, then the longer first. */
static int compare_groups(const void *left, const void *right)
{
    const fs_group *a = *(fs_group *const *)left, *b = *(fs_group *const *)right;
    if (a->first_start != b->first_start) return a->first_start < b->first_start ? -1 : 1;
    if (a->first_end != b->first_end) return a->first_end > b->first_end ? -1 : 1;
    return (a > b) - (a < b);
}

static fs_roof whole_of(const fs_build *build)
{
    fs_roof_sum sums[2] = {0}; /* of ops; of annotations */
    bool found[2] = {false, false};
    for (uint32_t i = 0; i < build->group_count; i++) {
        const fs_row *row = &build->groups[i].row;
        if (isnan(row->flops) || isnan(row->bytes_total_moved) || build->groups[i].repeated > 0) continue;
        found[row->is_user_annotation] = true;
        fs_roof_sum_add(&sums[row->is_user_annotation], &row->roof);
        fs_roof_sum_launch(&sums[row->is_user_annotation], &row->roof, 1);
    }
    if (!found[0] && !found[1]) return fs_roof_unknown;
    return fs_roof_sum_total(&sums[!found[0]]);
}

/* Tell the works and the calls where order[i] puts their rows. */
static fs_status move_rows(fs_build *build, fs_group *const *order, fs_error *err)
{
    fs_status status = FS_OK;
    uint32_t *places = fs_malloc((build->group_count + (size_t)1) * sizeof *places);
    if (places == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < build->group_count; i++) places[order[i] - build->groups] = i;
    if (build->options->works) works_move(build->table, places);
    if (build->options->calls) status = build_event_calls(build, places, err);
    fs_free(places);
    return status;
}

/* Move *order[i] to place i, along each cycle. */
static void put_in_order(fs_group *groups, fs_group **order, uint32_t count)
{
    for (uint32_t first = 0; first < count; first++) {
        if (order[first] == &groups[first]) continue;
        fs_group held = groups[first];
        uint32_t to = first;
        while (order[to] != &groups[first]) {
            uint32_t from = (uint32_t)(order[to] - groups);
            groups[to] = groups[from];
            order[to] = &groups[to];
            to = from;
        }
        groups[to] = held;
        order[to] = &groups[to];
    }
}

static void fill_rows(void *context, int64_t first, int64_t last)
{
    const fs_build *build = context;
    for (int64_t i = first; i < last; i++) fill_row(build, &build->groups[i]);
}

/* The fewest samples for which threads are worth waking. */
enum { MANY_SAMPLES = 4096 };

/* Convert the groups to rows in place: a second copy of millions of rows would take more memory than the store. */
static fs_status make_rows(fs_build *build, fs_error *err)
{
    uint32_t count = build->group_count;
    fs_group **order = fs_malloc(count * sizeof *order);
    if (order == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < count; i++) order[i] = &build->groups[i];
    fs_parallel_for(count, build->count < MANY_SAMPLES ? count : 1, fill_rows, build);
    fs_status status = fs_interrupt_poll(err);
    build->table->whole = whole_of(build);
    if (status == FS_OK) status = fs_sort(order, count, sizeof *order, compare_groups, err);
    if (status == FS_OK && (build->options->works || build->options->calls)) status = move_rows(build, order, err);
    if (status == FS_OK) put_in_order(build->groups, order, count);
    fs_free(order);
    if (status != FS_OK) return status;
    fs_row *rows = (fs_row *)build->groups;
    for (uint32_t i = 0; i < count; i++) memmove(&rows[i], &build->groups[i].row, sizeof *rows);
    build->groups = NULL;
    fs_row *shrunk = fs_realloc(rows, count * sizeof *rows);
    build->table->rows = shrunk ? shrunk : rows;
    build->table->row_count = count;
    return FS_OK;
}

static int compare_keys(const void *left, const void *right)
{
    return strcmp(((const fs_unmodelled *)left)->key, ((const fs_unmodelled *)right)->key);
}

static int compare_times(const void *left, const void *right)
{
    const fs_unmodelled *a = left, *b = right;
    if (a->ns != b->ns) return a->ns > b->ns ? -1 : 1;
    return strcmp(a->key, b->key);
}

/* List one entry per name, summed over rows of different shapes. `place`: offset of an int64_t in fs_group. */
static fs_status list_times(const fs_build *build, size_t place, fs_unmodelled **times, uint32_t *time_count,
                            fs_error *err)
{
    uint32_t found = 0, count = 0;
    fs_unmodelled *list = *times = fs_malloc(build->group_count * sizeof *list);
    if (list == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < build->group_count; i++) {
        const fs_group *group = &build->groups[i];
        int64_t ns;
        memcpy(&ns, (const char *)group + place, sizeof ns);
        if (ns > 0) list[found++] = (fs_unmodelled){group->row.key, ns};
    }
    FS_TRY(fs_sort(list, found, sizeof *list, compare_keys, err));
    for (uint32_t i = 0; i < found; i++) {
        if (count > 0 && strcmp(list[count - 1].key, list[i].key) == 0) {
            fs_add_to(&list[count - 1].ns, list[i].ns);
        } else {
            list[count++] = list[i];
        }
    }
    *time_count = count;
    return fs_sort(list, count, sizeof *list, compare_times, err);
}

/* List a call of each op whose arguments do not fit its rule. */
static fs_status list_misfits(const fs_build *build, fs_error *err)
{
    fs_table *table = build->table;
    uint32_t count = 0;
    for (uint32_t i = 0; i < build->calls.count; i++) count += build->calls.calls[i].expected != NULL;
    FS_TRY(FS_NEW(&table->misfits, count + (size_t)1, err));
    for (uint32_t i = 0; i < build->calls.count; i++) {
        const fs_call *call = &build->calls.calls[i];
        bool listed = call->expected == NULL;
        for (uint32_t j = 0; j < table->misfit_count && !listed; j++)
            listed = strcmp(table->misfits[j].name, call->text) == 0;
        if (!listed)
            table->misfits[table->misfit_count++] = (fs_misfit){call->text, call->expected, (uint32_t)call->key};
    }
    return FS_OK;
}

static fs_status list_unmodelled(const fs_build *build, fs_error *err)
{
    fs_table *table = build->table;
    FS_TRY(list_misfits(build, err));
    FS_TRY(list_times(build, offsetof(fs_group, unmodelled_ns), &table->unmodelled, &table->unmodelled_count, err));
    FS_TRY(list_times(build, offsetof(fs_group, flops_estimated_ns), &table->flops_estimated,
                      &table->flops_estimated_count, err));
    return list_times(build, offsetof(fs_group, estimated_ns), &table->estimated, &table->estimated_count, err);
}

fs_status fs_table_build(const fs_store *store, const fs_table_options *options, fs_table **table, fs_error *err)
{
    fs_status status;
    fs_build build = {
        .store = store,
        .options = options,
        .chunks = fs_store_chunks(store),
        .count = fs_store_count(store),
        .calls = {.store = store,
                  .by_shape = options->by_shape,
                  .by_dtype = (options->groupings >> FS_GROUPING_DTYPE & 1) != 0,
                  .by_overload = (options->groupings >> FS_GROUPING_OVERLOAD & 1) != 0},
    };
    int64_t end;
    fs_store_window(store, &build.torch_begin, &end);
    build.recorded = build.count > 0 && FS_EVENT_AT(store, 0, timing) == FS_TIMING_TRACE;
    if (!build.recorded || options->brief) build.torch_begin = FS_MISSING;
    if (build.count >= FS_SLOT_NODE) {
        return fs_fail(err, FS_OUT_OF_MEMORY,
                       "%u events exceed the limit of a table; profile a shorter part of the program", build.count);
    }
    FS_TRY(FS_NEW_ZEROED(&build.table, 1, err));
    build.calls.ops = &build.table->ops;
    FS_TRY_GOTO(status, fs_build_parts(&build, err), done);
    FS_TRY_GOTO(status, fs_build_scan(&build, err), done);
    FS_TRY_GOTO(status, fs_build_devices(&build, err), done);
    FS_TRY_GOTO(status, fs_build_totals(&build, err), done);
    if (!options->brief) FS_TRY_GOTO(status, list_unmodelled(&build, err), done);
    if (options->works) FS_TRY_GOTO(status, build_works(&build, err), done);
    if (build.rates != NULL) FS_TRY_GOTO(status, build_ratings(&build, err), done);
    FS_TRY_GOTO(status, make_rows(&build, err), done);
    *table = build.table;
done:
    if (status != FS_OK) fs_table_destroy(build.table);
    fs_calls_clear(&build.calls);
    fs_free(build.slots);
    fs_free(build.parts);
    fs_build_free_slices(&build);
    fs_free(build.works);
    fs_free(build.places);
    fs_free(build.marks);
    fs_free(build.nodes);
    fs_free(build.memory);
    fs_free(build.contexts);
    fs_free(build.roofs);
    fs_free(build.rates);
    fs_free(build.groups);
    fs_free(build.samples);
    fs_counted_clear(&build.counted);
    fs_free(build.counted_sums);
    fs_free(build.counted_rows);
    return status;
}

void fs_table_destroy(fs_table *table)
{
    if (table == NULL) return;
    fs_intern_clear(&table->stacks);
    fs_intern_clear(&table->parts);
    fs_intern_clear(&table->ops);
    fs_free(table->modules);
    fs_free(table->rows);
    fs_free(table->works);
    fs_free(table->rated);
    fs_free(table->calls);
    fs_free(table->event_calls);
    fs_free(table->unmodelled);
    fs_free(table->estimated);
    fs_free(table->flops_estimated);
    fs_free(table->misfits);
    fs_free(table);
}

fs_table_part fs_table_part_of(const fs_table *table, const fs_row *row)
{
    fs_table_part part = {FS_NONE, FS_NONE, FS_NONE, FS_NONE, FS_NONE};
    if (row->part != FS_NONE) memcpy(&part, fs_intern_get(&table->parts, row->part).bytes, sizeof part);
    return part;
}

const uint32_t *fs_table_stack(const fs_table *table, const fs_row *row, uint32_t *depth)
{
    *depth = 0;
    uint32_t id = fs_table_part_of(table, row).stack;
    if (id == FS_NONE) return NULL;
    fs_span stack = fs_intern_get(&table->stacks, id);
    *depth = stack.size / (uint32_t)sizeof(uint32_t);
    return stack.bytes;
}
