/* Fuzz target of everything computed from a trace, built and run with libFuzzer by tests/fuzz/run.sh. Every text that
 * loads goes through all tables and summaries, and is written as a Chrome trace that must load again as the same
 * events.
 *
 * test_fuzz_tables.c runs it over its corpora without libFuzzer. */
#include <math.h>
#include <string.h>

#include "accounting/accounting.h"
#include "accounting/late.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "summaries/collectives.h"
#include "summaries/efficiency.h"
#include "summaries/launches.h"
#include "summaries/steps.h"
#include "summaries/streams.h"
#include "table/table.h"
#include "timeline/memory.h"
#include "timeline/timeline.h"
#include "tests/c/fuzz_load.h"
#include "views/chrome_trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_TRY(expression)                                                                             \
    do {                                                                                                 \
        fs_status fuzz_status_ = (expression);                                                           \
        FUZZ_CHECK(fuzz_status_ == FS_OK || fuzz_status_ == FS_OUT_OF_MEMORY, "%s", fuzz_error.message); \
        if (fuzz_status_ != FS_OK) return fuzz_status_;                                                  \
    } while (0)

static fs_error fuzz_error;

/* Tables ----------------------------------------------------------------------------------------------------------- */

static int64_t calls_in(const fs_table *table)
{
    int64_t calls = 0;
    for (uint32_t i = 0; i < table->row_count; i++) {
        const fs_row *row = &table->rows[i];
        uint32_t depth;
        fs_table_stack(table, row, &depth);
        FUZZ_CHECK(row->count > 0, "row %u", i);
        FUZZ_CHECK(!(row->pct_roofline < 0), "row %u: %g %%", i, row->pct_roofline);
        calls += row->count;
    }
    return calls;
}

/* Build tables with every grouping; each event must be in exactly one row. */
static fs_status build_tables(const fs_store *store, int64_t *calls)
{
    fs_peaks peaks = {.bandwidth = 4e12, .launch_ns = 4000, .kernel_ns = 1500};
    for (int unit = 0; unit < FS_UNIT_COUNT; unit++) peaks.flops[unit] = 1e13 * (unit + 1);
    static const struct {
        bool by_shape, peaks;
        uint32_t stack_depth, others;
    } groupings[] = {
        {false, false, 0, 0},
        {true, true, 0, 0},
        {false, true, 1, 0},
        {true, false, 5, 0},
        {false, true, 2, (1u << FS_GROUPING_COUNT) - 1},
    };
    for (size_t i = 0; i < sizeof groupings / sizeof *groupings; i++) {
        fs_table_options options = {
            .by_shape = groupings[i].by_shape,
            .stack_depth = groupings[i].stack_depth,
            .groupings = groupings[i].others,
        };
        if (groupings[i].peaks) {
            options.cpu_peaks = &peaks;
            for (int device = 0; device < FS_MAX_CUDA_DEVICES; device++) options.cuda_peaks[device] = &peaks;
        }
        fs_table *table;
        FUZZ_TRY(fs_table_build(store, &options, &table, &fuzz_error));
        int64_t count = calls_in(table);
        if (i == 0) *calls = count;
        FUZZ_CHECK(count == *calls, "grouping %zu: %lld calls, not %lld", i, (long long)count, (long long)*calls);
        fs_table_destroy(table);
    }
    return FS_OK;
}

/* Accounting --------------------------------------------------------------------------------------------------------
 */

/* Check that the parts of each device and step are not negative, and that they add up to the step. `parts` has room for
 * all steps of a device. */
static void check_accounting(const fs_accounting *found, double *parts)
{
    for (int device = -1; device < FS_DEVICE_LIMIT; device++) {
        bool worked = false;
        for (uint32_t i = 0; i < found->steps.count; i++) parts[i] = 0;
        for (uint32_t i = 0; i < found->cell_count; i++) {
            const fs_cell *cell = &found->cells[i];
            if (cell->device != device) continue;
            worked = true;
            parts[cell->step] += (double)cell->exclusive;
            FUZZ_CHECK(cell->exclusive >= 0 && cell->busy >= 0 && cell->count >= 0, "cell %u", i);
            FUZZ_CHECK(cell->ideal >= -1 && cell->ideal <= cell->exclusive, "cell %u: %lld of %lld", i,
                       (long long)cell->ideal, (long long)cell->exclusive);
        }
        for (uint32_t i = 0; i < found->gap_count; i++) {
            const fs_gap *gap = &found->gaps[i];
            if (gap->device != device) continue;
            worked = true;
            parts[gap->step] += (double)gap->time;
            FUZZ_CHECK(gap->time > 0 && gap->count > 0, "gap %u", i);
        }
        for (uint32_t i = 0; worked && i < found->steps.count; i++) {
            double time = (double)((uint64_t)found->steps.steps[i].end - (uint64_t)found->steps.steps[i].begin);
            if (time < 9e18)
                FUZZ_CHECK(fabs(parts[i] - time) <= 1e-6 * time, "device %d, step %u: %g of %g ns", device, i, parts[i],
                           time);
        }
    }
    for (uint32_t i = 0; i < found->steps.count; i++) {
        const fs_step *step = &found->steps.steps[i];
        FUZZ_CHECK(found->hosts[i].waits >= 0, "step %u", i);
        FUZZ_CHECK(step->host_begin <= step->host_end && (i == 0 || step->host_begin >= step[-1].host_end), "step %u",
                   i);
    }
}

/* Account for a window of half the length of the steps, from the begin of the profile. */
static fs_status account_for_half(const fs_store *store, const fs_table *table, const fs_steps *steps, double *parts)
{
    fs_accounting found;
    int64_t half = fs_sub_saturated(steps->steps[steps->count - 1].end, steps->steps[0].begin) / 2;
    fs_status status = fs_accounting_of_window(&found, store, table, half / 3, half / 3 + half, &fuzz_error);
    if (status == FS_VALUE_ERROR) return FS_OK; /* too short, or a time of a step lies before the profile */
    FUZZ_CHECK(status == FS_OK || status == FS_OUT_OF_MEMORY, "%s", fuzz_error.message);
    if (status == FS_OK) check_accounting(&found, parts);
    fs_accounting_clear(&found);
    return status;
}

static fs_status account_for(const fs_store *store, bool brief)
{
    fs_peaks peaks = {.bandwidth = 4e12, .launch_ns = 4000, .kernel_ns = 1500};
    for (int unit = 0; unit < FS_UNIT_COUNT; unit++) peaks.flops[unit] = 1e13 * (unit + 1);
    fs_table_options options = {.by_shape = true, .works = true, .brief = brief, .cpu_peaks = &peaks};
    for (int device = 0; device < FS_MAX_CUDA_DEVICES; device++) options.cuda_peaks[device] = &peaks;
    fs_table *table;
    fs_accounting found = {0};
    double *parts = NULL;
    FUZZ_TRY(fs_table_build(store, &options, &table, &fuzz_error));
    fs_status status = fs_accounting_build(&found, store, table, &fuzz_error);
    FUZZ_CHECK(status == FS_OK || status == FS_OUT_OF_MEMORY, "%s", fuzz_error.message);
    if (status == FS_OK) parts = fs_malloc((found.steps.count + (size_t)1) * sizeof *parts);
    if (parts != NULL) check_accounting(&found, parts);
    if (parts != NULL && found.steps.count > 0) status = account_for_half(store, table, &found.steps, parts);
    fs_free(parts);
    fs_accounting_clear(&found);
    fs_table_destroy(table);
    return status;
}

/* What the host did while devices idled: of all names, so that every event counts. */
static fs_status look_at_late_times(const fs_store *store)
{
    uint32_t names = fs_store_name_count(store);
    fs_named_calls calls = {0};
    fs_late_sums within = {0}, spent = {0};
    uint8_t *all = fs_malloc(2 * (names + (size_t)1));
    if (all == NULL) return FS_OUT_OF_MEMORY;
    memset(all, 1, names + (size_t)1);
    memset(all + names + 1, 0, names + (size_t)1);
    fs_late_request request = {.ops = all, .other = all + names + 1};
    fs_status status = fs_waiting_calls_find(&calls, store, all, &fuzz_error);
    fs_free(calls.items);
    calls = (fs_named_calls){0};
    if (status == FS_OK) status = fs_idle_calls_find(&calls, store, all, true, &fuzz_error);
    if (status == FS_OK) status = fs_late_within(&within, store, 0, all, &fuzz_error);
    if (status == FS_OK) status = fs_late_spent(&spent, store, &request, &fuzz_error);
    for (uint32_t i = 0; status == FS_OK && i < calls.count; i++)
        FUZZ_CHECK(calls.items[i].idle >= 0 && calls.items[i].duration >= 0, "call %u", i);
    for (uint32_t i = 0; status == FS_OK && i < spent.count; i++)
        FUZZ_CHECK(spent.items[i].time > 0 && spent.items[i].count > 0, "sum %u", i);
    fs_free(calls.items);
    fs_free(within.items);
    fs_free(spent.items);
    fs_free(all);
    return status;
}

/* The timeline ----------------------------------------------------------------------------------------------------- */

/* Check that the blocks of each lane do not overlap, and that every event is in one. */
static void check_timeline(const fs_store *store, const fs_timeline *found, const fs_accounting *accounting)
{
    uint64_t events = 0, next = 0, time = 0, idle = 0;
    for (uint32_t i = 0; i < found->lane_count; i++) {
        const fs_timeline_lane *lane = &found->lanes[i];
        FUZZ_CHECK(lane->first == next && lane->count > 0, "lane %u", i);
        next += lane->count;
        for (uint32_t j = lane->first; j < next; j++) {
            bool ordered = j == lane->first || found->start[j] >= found->start[j - 1];
            FUZZ_CHECK(ordered && found->duration[j] >= 0 && found->busy[j] >= 0, "lane %u, block %u", i, j);
            if (ordered && j > lane->first) {
                uint64_t gap = (uint64_t)found->start[j] - (uint64_t)found->start[j - 1];
                FUZZ_CHECK(gap >= (uint64_t)found->duration[j - 1], "lane %u, block %u", i, j);
            }
            FUZZ_CHECK(found->link[j] == FS_NONE || found->link[j] < found->block_count, "block %u", j);
            FUZZ_CHECK(found->label[j] == FS_NONE || found->label[j] < found->label_count, "block %u", j);
            events += found->count[j];
            if (lane->role == FS_LANE_IDLE) idle += (uint64_t)found->busy[j];
        }
    }
    for (uint32_t i = 0; i < accounting->gap_count; i++) time += (uint64_t)accounting->gaps[i].time;
    uint64_t left_out = (uint64_t)found->deep_count + found->unplaced_count;
    FUZZ_CHECK(next == found->block_count && events == found->event_count, "%llu", (unsigned long long)events);
    FUZZ_CHECK(events - found->idle_count + left_out + found->memory_count <= fs_store_count(store), "%llu",
               (unsigned long long)events);
    if (time < INT64_MAX)
        FUZZ_CHECK(time == idle, "%llu of %llu ns", (unsigned long long)idle, (unsigned long long)time);
}

static fs_status draw_timeline(const fs_store *store)
{
    fs_table_options options = {.by_shape = true, .works = true, .calls = true, .brief = true};
    fs_table *table;
    fs_accounting accounting = {0};
    fs_memory_changes changes = {0};
    FUZZ_TRY(fs_table_build(store, &options, &table, &fuzz_error));
    fs_status status = fs_accounting_list(&accounting, store, table, &fuzz_error);
    for (uint32_t limit = 1000; status == FS_OK && limit > 0; limit /= 30) {
        fs_timeline found;
        status = fs_timeline_build(&found, store, table, &accounting, limit, &fuzz_error);
        if (status != FS_OK) break;
        check_timeline(store, &found, &accounting);
        fs_timeline_clear(&found);
    }
    if (status == FS_OK) status = fs_memory_list(&changes, store, table, &fuzz_error);
    FUZZ_CHECK(status == FS_OK || status == FS_OUT_OF_MEMORY, "%s", fuzz_error.message);
    fs_memory_clear(&changes);
    fs_accounting_clear(&accounting);
    fs_table_destroy(table);
    return status;
}

/* Summaries -------------------------------------------------------------------------------------------------------- */

static bool is_share(double pct)
{
    return isnan(pct) || (pct >= -1e-6 && pct <= 100 + 1e-6);
}

static fs_status break_down_steps(const fs_store *store)
{
    fs_steps steps;
    FUZZ_TRY(fs_steps_break_down(&steps, store, &fuzz_error));
    for (uint32_t i = 0; i < steps.count; i++) {
        const fs_step *step = &steps.steps[i];
        double parts = 0, time = (double)((uint64_t)step->end - (uint64_t)step->begin);
        for (int part = 0; part < FS_STEP_PART_COUNT; part++) {
            FUZZ_CHECK(step->parts[part] >= 0, "step %u: %s", i, fs_step_part_names[part]);
            parts += (double)step->parts[part];
        }
        FUZZ_CHECK(step->begin <= step->end && (i == 0 || step->begin >= step[-1].end), "step %u", i);
        if (time < 9e18) FUZZ_CHECK(fabs(parts - time) <= 1e-6 * time, "step %u: %g of %g ns", i, parts, time);
    }
    fs_steps_clear(&steps);
    return FS_OK;
}

static fs_status summarize(const fs_store *store)
{
    uint32_t count;
    fs_efficiency *efficiency;
    fs_launch_statistics *launches;
    fs_stream_row *streams;
    fs_collective_row *collectives;
    FUZZ_TRY(break_down_steps(store));
    FUZZ_TRY(fs_efficiency_of(store, NULL, &efficiency, &count, &fuzz_error));
    for (uint32_t i = 0; i < count; i++) {
        const fs_efficiency *row = &efficiency[i];
        FUZZ_CHECK(is_share(row->gpu_utilization) && is_share(row->sm_efficiency) && is_share(row->idle),
                   "device %d: %g, %g, %g %%", row->device, row->gpu_utilization, row->sm_efficiency, row->idle);
    }
    fs_free(efficiency);
    FUZZ_TRY(fs_launches_of(store, &launches, &count, &fuzz_error));
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_CHECK(launches[i].launches <= launches[i].kernels && is_share(launches[i].launch_bound_pct), "device %d",
                   launches[i].device);
    }
    fs_free(launches);
    FUZZ_TRY(fs_streams_of(store, &streams, &count, &fuzz_error));
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_CHECK(is_share(streams[i].overlapped_pct) && is_share(streams[i].exposed_pct), "%g, %g %%",
                   streams[i].overlapped_pct, streams[i].exposed_pct);
    }
    fs_free(streams);
    FUZZ_TRY(fs_collectives_of(store, &collectives, &count, &fuzz_error));
    for (uint32_t i = 1; i < count; i++) FUZZ_CHECK(collectives[i].start >= collectives[i - 1].start, "row %u", i);
    fs_free(collectives);
    return FS_OK;
}

/* The trace and back ----------------------------------------------------------------------------------------------- */

typedef struct {
    char *bytes;
    size_t size, capacity;
} fuzz_sink;

static fs_status keep(void *context, const char *bytes, size_t size, fs_error *err)
{
    fuzz_sink *sink = context;
    if (size > sink->capacity - sink->size) {
        size_t capacity = 2 * sink->capacity + size;
        char *grown = fs_realloc(sink->bytes, capacity);
        if (grown == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to keep a trace");
        sink->bytes = grown;
        sink->capacity = capacity;
    }
    memcpy(sink->bytes + sink->size, bytes, size);
    sink->size += size;
    return FS_OK;
}

/* Return whether the end of some event is unknown. A written trace gives such an event an end, so it may have rates
 * that the store lacks. */
static bool has_open_events(const fs_store *store)
{
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        bool open = FS_EVENT_AT(store, i, duration) == FS_MISSING;
        if (open && FS_EVENT_AT(store, i, kind) != FS_EVENT_MEMORY) return true;
    }
    return false;
}

/* Count the events of each kind that a trace contains. */
static void count_kinds(const fs_store *store, int64_t counts[FS_EVENT_KIND_COUNT])
{
    memset(counts, 0, FS_EVENT_KIND_COUNT * sizeof *counts);
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        uint32_t at;
        const fs_chunk *chunk = fs_event_chunk(store, i, &at);
        if (chunk->start[at] != FS_MISSING && !fs_event_is_share(chunk->kind[at], chunk->lane[at]))
            counts[chunk->kind[at]]++;
    }
}

/* Return whether some name contains U+FFFD, which replaces invalid UTF-8. Names that differ only in such bytes become
 * equal, and an event is merged with its only child of the same name. */
static bool has_replaced_bytes(const fuzz_sink *sink)
{
    for (size_t i = 0; i + 3 <= sink->size; i++) {
        if (memcmp(sink->bytes + i, "\xEF\xBF\xBD", 3) == 0) return true;
    }
    return false;
}

/* Return whether the events span so much time that the reader discards the last ones: a trace is written from its first
 * event on, and times of more than INT64_MAX / 4 ns (73 years) are discarded. */
static bool spans_ages(const fs_store *store)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        int64_t start = FS_EVENT_AT(store, i, start);
        if (start == FS_MISSING) continue;
        first = start < first ? start : first;
        last = start > last ? start : last;
    }
    return last > first && fs_sub_saturated(last, first) >= INT64_MAX / 4;
}

static fs_status check_reloaded(const fs_store *store, const fuzz_sink *sink)
{
    fs_store *again;
    fs_kineto_report report;
    fuzz_text text = {(const uint8_t *)sink->bytes, sink->size};
    int64_t before[FS_EVENT_KIND_COUNT], after[FS_EVENT_KIND_COUNT];
    FUZZ_TRY(fuzz_load(&text, FUZZ_WHOLE, &again, &report, &fuzz_error));
    count_kinds(store, before);
    count_kinds(again, after);
    bool comparable = !has_open_events(store) && !has_replaced_bytes(sink) && !spans_ages(store);
    for (int kind = 0; kind < FS_EVENT_KIND_COUNT && comparable; kind++) {
        FUZZ_CHECK(before[kind] == after[kind], "%s: %lld written, %lld read", fs_event_kind_names[kind],
                   (long long)before[kind], (long long)after[kind]);
    }
    int64_t calls;
    fs_status status = build_tables(again, &calls);
    fs_store_destroy(again);
    return status;
}

static const fs_table_options unknown_peaks;

static fs_status write_and_reload(const fs_store *store, int64_t base)
{
    fuzz_sink sink = {NULL, 0, 0};
    fs_chrome_trace_options options = {.write = keep,
                                       .context = &sink,
                                       .clock_offset = base,
                                       .pid = 4000,
                                       .process = "fuzz",
                                       .version = "0",
                                       .members = "",
                                       .table = &unknown_peaks};
    int64_t left_out;
    fs_status status = fs_chrome_trace_write(store, &options, &left_out, &fuzz_error);
    FUZZ_CHECK(status == FS_OK || status == FS_OUT_OF_MEMORY, "%s", fuzz_error.message);
    if (status == FS_OK) status = check_reloaded(store, &sink);
    fs_free(sink.bytes);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_text text = {data, size};
    fs_store *store;
    fs_kineto_report report;
    int64_t calls;
    fuzz_set_up();
    if (fuzz_load(&text, FUZZ_WHOLE, &store, &report, &fuzz_error) != FS_OK) return 0;
    if (build_tables(store, &calls) == FS_OK && account_for(store, false) == FS_OK &&
        account_for(store, true) == FS_OK && draw_timeline(store) == FS_OK && look_at_late_times(store) == FS_OK &&
        summarize(store) == FS_OK) {
        FS_IGNORE(write_and_reload(store, report.base));
    }
    fs_store_destroy(store);
    return 0;
}
