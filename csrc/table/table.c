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
#include "base/sort.h"
#include "base/saturate.h"
#include "table/counted_rows.h"
#include "table/devices.h"
#include "table/event_calls.h"
#include "table/parts.h"
#include "table/scan.h"
#include "table/slices.h"
#include "table/totals.h"
#include "table/works.h"
#include "base/statistics.h"

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
}

/* torch's order of rows: by start of the first event, then the longer first. */
static int compare_groups(const void *left, const void *right)
{
    const fs_group *a = *(fs_group *const *)left, *b = *(fs_group *const *)right;
    if (a->first_start != b->first_start) return a->first_start < b->first_start ? -1 : 1;
    if (a->first_end != b->first_end) return a->first_end > b->first_end ? -1 : 1;
    return (a > b) - (a < b);
}

static bool is_known(const fs_row *row)
{
    return !isnan(row->flops) && !isnan(row->bytes_total_moved);
}

static fs_roof whole_of(const fs_build *build)
{
    fs_roof_sum sums[2] = {0}; /* of ops; of annotations */
    bool found[2] = {false, false};
    for (uint32_t i = 0; i < build->group_count; i++) {
        const fs_row *row = &build->groups[i].row;
        if (!is_known(row) || build->groups[i].repeated > 0) continue;
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
    if (places == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a table of %u rows", build->group_count);
    for (uint32_t i = 0; i < build->group_count; i++) places[order[i] - build->groups] = i;
    if (build->options->works) fs_works_move(build->table, places);
    if (build->options->calls) status = fs_build_event_calls(build, places, err);
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
    if (order == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a table of %u rows", count);
    for (uint32_t i = 0; i < count; i++) order[i] = &build->groups[i];
    fs_parallel_for(count, build->count < MANY_SAMPLES ? count : 1, fill_rows, build);
    fs_status status = fs_interrupt_poll(err);
    build->table->whole = whole_of(build);
    if (status == FS_OK) status = fs_sort(order, count, sizeof *order, compare_groups, "rows", err);
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
    if (list == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a table of %u rows", build->group_count);
    for (uint32_t i = 0; i < build->group_count; i++) {
        const fs_group *group = &build->groups[i];
        int64_t ns;
        memcpy(&ns, (const char *)group + place, sizeof ns);
        if (ns > 0) list[found++] = (fs_unmodelled){group->row.key, ns};
    }
    FS_TRY(fs_sort(list, found, sizeof *list, compare_keys, "names", err));
    for (uint32_t i = 0; i < found; i++) {
        if (count > 0 && strcmp(list[count - 1].key, list[i].key) == 0) {
            fs_add_to(&list[count - 1].ns, list[i].ns);
        } else {
            list[count++] = list[i];
        }
    }
    *time_count = count;
    return fs_sort(list, count, sizeof *list, compare_times, "names", err);
}

/* List a call of each op whose arguments do not fit its rule. */
static fs_status list_misfits(const fs_build *build, fs_error *err)
{
    fs_table *table = build->table;
    uint32_t count = 0;
    for (uint32_t i = 0; i < build->calls.count; i++) count += build->calls.calls[i].expected != NULL;
    table->misfits = fs_malloc((count + (size_t)1) * sizeof *table->misfits);
    if (table->misfits == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a table of %u rows", count);
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
    build.table = fs_calloc(1, sizeof *build.table);
    if (build.table == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for a table");
    build.calls.ops = &build.table->ops;
    FS_TRY_GOTO(status, fs_build_parts(&build, err), done);
    FS_TRY_GOTO(status, fs_build_scan(&build, err), done);
    FS_TRY_GOTO(status, fs_build_devices(&build, err), done);
    FS_TRY_GOTO(status, fs_build_totals(&build, err), done);
    if (!options->brief) FS_TRY_GOTO(status, list_unmodelled(&build, err), done);
    if (options->works) FS_TRY_GOTO(status, fs_build_works(&build, err), done);
    if (build.rates != NULL) FS_TRY_GOTO(status, fs_build_ratings(&build, err), done);
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
