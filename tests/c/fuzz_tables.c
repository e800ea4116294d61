/* Fuzz target of everything computed from a trace. Every text that loads goes through all tables and summaries, what a
 * rank's digest takes of collectives, and lines, and is written as a Chrome trace that must load again as the
 * same events. Occurrences of collectives are counted again, by plain loops over all pairs. */
#include "accounting/accounting.h"
#include "accounting/late.h"
#include "accounting/lines.h"
#include "base/saturate.h"
#include "replay/replay.h"
#include "summaries/collective_calls.h"
#include "summaries/collectives.h"
#include "summaries/efficiency.h"
#include "summaries/launches.h"
#include "summaries/steps.h"
#include "summaries/streams.h"
#include "table/table.h"
#include "tests/c/fuzz_load.h"
#include "timeline/memory.h"
#include "timeline/timeline.h"
#include "views/chrome_trace.h"

CORPORA("fuzz/corpus/tables", "fuzz/corpus/kineto", "data/corpus")

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

static fs_table_options with_peaks(fs_table_options options)
{
    static fs_peaks peaks = {.bandwidth = 4e12, .launch_ns = 4000, .kernel_ns = 1500};
    for (int unit = 0; unit < FS_UNIT_COUNT; unit++) peaks.flops[unit] = 1e13 * (unit + 1);
    options.cpu_peaks = &peaks;
    for (int device = 0; device < FS_MAX_CUDA_DEVICES; device++) options.cuda_peaks[device] = &peaks;
    return options;
}

/* Build tables with every grouping; each event must be in exactly one row. */
static void build_tables(const fs_store *store)
{
    const fs_table_options groupings[] = {
        {.by_shape = false},
        with_peaks((fs_table_options){.by_shape = true}),
        with_peaks((fs_table_options){.stack_depth = 1}),
        {.by_shape = true, .stack_depth = 5},
        with_peaks((fs_table_options){.stack_depth = 2, .groupings = (1u << FS_GROUPING_COUNT) - 1}),
    };
    int64_t calls = -1;
    for (size_t i = 0; i < COUNT_OF(groupings); i++) {
        fs_table *table;
        if (!done(fs_table_build(store, &groupings[i], &table, &fuzz_error))) return;
        int64_t count = calls_in(table);
        if (calls < 0) calls = count;
        FUZZ_CHECK(count == calls, "grouping %zu: %lld calls, not %lld", i, (long long)count, (long long)calls);
        fs_table_destroy(table);
    }
}

/* Accounting ------------------------------------------------------------------------------------------------------- */

/* The time between two saturated times. */
static double time_between(int64_t begin, int64_t end)
{
    return (double)((uint64_t)end - (uint64_t)begin);
}

/* Check that the parts of a step add up to its time, if that is exact. */
static void check_sum(double parts, double time, uint32_t step)
{
    FUZZ_CHECK(time >= 9e18 || fabs(parts - time) <= 1e-6 * time, "step %u: %g of %g ns", step, parts, time);
}

/* Check that the parts of each device and step are not negative, and that they add up to the step. */
static void check_accounting(const fs_accounting *found)
{
    const fs_step *steps = found->steps.steps;
    double *parts = calloc(found->steps.count + (size_t)1, sizeof *parts);
    for (int device = -1; parts != NULL && device < FS_DEVICE_LIMIT; device++) {
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
        for (uint32_t i = 0; worked && i < found->steps.count; i++)
            check_sum(parts[i], time_between(steps[i].begin, steps[i].end), i);
    }
    for (uint32_t i = 0; i < found->steps.count; i++) {
        FUZZ_CHECK(found->hosts[i].waits >= 0, "step %u", i);
        bool follows = i == 0 || steps[i].host_begin >= steps[i - 1].host_end;
        FUZZ_CHECK(steps[i].host_begin <= steps[i].host_end && follows, "step %u", i);
    }
    free(parts);
}

/* Account for a window of half the length of the steps, from the begin of the profile. */
static void account_for_half(const fs_store *store, const fs_table *table, const fs_steps *steps)
{
    fs_accounting found;
    int64_t half = fs_sub_saturated(steps->steps[steps->count - 1].end, steps->steps[0].begin) / 2;
    fs_status status = fs_accounting_of_window(&found, store, table, half / 3, half / 3 + half, &fuzz_error);
    if (status == FS_VALUE_ERROR) return; /* too short, or a time of a step lies before the profile */
    if (done(status)) check_accounting(&found);
    fs_accounting_clear(&found);
}

static void account_for_works(const fs_store *store, bool brief)
{
    fs_table_options options = with_peaks((fs_table_options){.by_shape = true, .works = true, .brief = brief});
    fs_table *table;
    fs_accounting found = {0};
    if (!done(fs_table_build(store, &options, &table, &fuzz_error))) return;
    if (done(fs_accounting_build(&found, store, table, &fuzz_error))) {
        check_accounting(&found);
        if (found.steps.count > 0) account_for_half(store, table, &found.steps);
    }
    fs_accounting_clear(&found);
    fs_table_destroy(table);
}

static void account_for(const fs_store *store)
{
    account_for_works(store, false);
    account_for_works(store, true);
}

/* Replay the steps, unchanged and with all that can be changed. */
static void replay_steps(const fs_store *store)
{
    fs_steps steps;
    fs_replay replay = {0};
    double ns, event_ns;
    if (!done(fs_steps_find(&steps, store, &fuzz_error))) return;
    int64_t *begins = calloc(2 * (size_t)steps.count + 1, sizeof *begins), *ends = begins + steps.count;
    for (uint32_t i = 0; begins != NULL && i < steps.count; i++) {
        begins[i] = steps.steps[i].host_begin;
        ends[i] = steps.steps[i].host_end;
    }
    if (begins != NULL && done(fs_replay_build(&replay, store, begins, ends, steps.count, &fuzz_error))) {
        size_t room = (size_t)replay.call_count + replay.work_count + 1;
        uint8_t *flags = malloc(room);
        for (size_t i = 0; flags != NULL && i < room; i++) flags[i] = (uint8_t)(i * i);
        const fs_replay_edit edits[] = {{0}, {.gone = flags, .event_ns = 700}};
        for (size_t i = 0; i < COUNT_OF(edits); i++)
            if (done(fs_replay_run(&replay, &edits[i], &ns, &fuzz_error)))
                FUZZ_CHECK(ns >= 0 || replay.step_count == 0, "edit %zu: %g ns", i, ns);
        FS_IGNORE(done(fs_replay_fit(&replay, replay.recorded / 2, false, &event_ns, &fuzz_error)));
        free(flags);
    }
    fs_replay_clear(&replay);
    fs_steps_clear(&steps);
    free(begins);
}

static void check_late(const fs_named_calls *idle, const fs_late_sums *spent)
{
    for (uint32_t i = 0; i < idle->count; i++)
        FUZZ_CHECK(idle->items[i].idle >= 0 && idle->items[i].duration >= 0, "call %u", i);
    for (uint32_t i = 0; i < spent->count; i++)
        FUZZ_CHECK(spent->items[i].time > 0 && spent->items[i].count > 0, "sum %u", i);
}

/* What the host did while devices idled: of all names, so that every event counts. */
static void look_at_late_times(const fs_store *store)
{
    size_t names = fs_store_name_count(store) + (size_t)1;
    fs_named_calls waiting = {0}, idle = {0};
    fs_late_sums within = {0}, spent = {0};
    uint8_t *all = malloc(names), *no = calloc(names, 1);
    fs_late_request request = {.ops = all, .other = no};
    if (all != NULL && no != NULL) {
        memset(all, 1, names);
        if (done(fs_waiting_calls_find(&waiting, store, all, &fuzz_error)) &&
            done(fs_idle_calls_find(&idle, store, all, true, &fuzz_error)) &&
            done(fs_late_within(&within, store, 0, all, &fuzz_error)) &&
            done(fs_late_spent(&spent, store, &request, &fuzz_error)))
            check_late(&idle, &spent);
    }
    fs_free(waiting.items);
    fs_free(idle.items);
    fs_free(within.items);
    fs_free(spent.items);
    free(all);
    free(no);
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
            FUZZ_CHECK(found->duration[j] >= 0 && found->busy[j] >= 0, "lane %u, block %u", i, j);
            if (j > lane->first) {
                uint64_t gap = (uint64_t)found->start[j] - (uint64_t)found->start[j - 1];
                bool ordered = found->start[j] >= found->start[j - 1] && gap >= (uint64_t)found->duration[j - 1];
                FUZZ_CHECK(ordered, "lane %u, block %u", i, j);
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
    FUZZ_CHECK(time == idle || time >= INT64_MAX, "%llu of %llu ns", (unsigned long long)idle,
               (unsigned long long)time);
}

static void draw_timeline(const fs_store *store)
{
    fs_table_options options = {.by_shape = true, .works = true, .calls = true, .brief = true};
    fs_table *table;
    fs_accounting accounting = {0};
    fs_memory_changes changes = {0};
    if (!done(fs_table_build(store, &options, &table, &fuzz_error))) return;
    bool listed = done(fs_accounting_list(&accounting, store, table, &fuzz_error));
    for (uint32_t limit = 1000; listed && limit > 0; limit /= 30) {
        fs_timeline found;
        if (!done(fs_timeline_build(&found, store, table, &accounting, limit, &fuzz_error))) break;
        check_timeline(store, &found, &accounting);
        fs_timeline_clear(&found);
    }
    done(fs_memory_list(&changes, store, table, &fuzz_error));
    fs_memory_clear(&changes);
    fs_accounting_clear(&accounting);
    fs_table_destroy(table);
}

/* Summaries -------------------------------------------------------------------------------------------------------- */

static bool is_share(double pct)
{
    return isnan(pct) || (pct >= -1e-6 && pct <= 100 + 1e-6);
}

static void summarize(const fs_store *store)
{
    uint32_t count;
    fs_steps steps;
    fs_efficiency *efficiency;
    fs_launch_statistics *launches;
    fs_stream_row *streams;
    if (!done(fs_steps_break_down(&steps, store, &fuzz_error))) return;
    for (uint32_t i = 0; i < steps.count; i++) {
        const fs_step *step = &steps.steps[i];
        double parts = 0;
        for (int part = 0; part < FS_STEP_PART_COUNT; part++) {
            FUZZ_CHECK(step->parts[part] >= 0, "step %u: %s", i, fs_step_part_names[part]);
            parts += (double)step->parts[part];
        }
        FUZZ_CHECK(step->begin <= step->end && (i == 0 || step->begin >= step[-1].end), "step %u", i);
        check_sum(parts, time_between(step->begin, step->end), i);
    }
    fs_steps_clear(&steps);
    if (!done(fs_efficiency_of(store, NULL, &efficiency, &count, &fuzz_error))) return;
    for (uint32_t i = 0; i < count; i++) {
        const fs_efficiency *row = &efficiency[i];
        FUZZ_CHECK(is_share(row->gpu_utilization) && is_share(row->sm_efficiency) && is_share(row->idle),
                   "device %d: %g, %g, %g %%", row->device, row->gpu_utilization, row->sm_efficiency, row->idle);
    }
    fs_free(efficiency);
    if (!done(fs_launches_of(store, &launches, &count, &fuzz_error))) return;
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_CHECK(launches[i].launches <= launches[i].kernels && is_share(launches[i].launch_bound_pct), "device %d",
                   launches[i].device);
    }
    fs_free(launches);
    if (!done(fs_streams_of(store, &streams, &count, &fuzz_error))) return;
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_CHECK(is_share(streams[i].overlapped_pct) && is_share(streams[i].exposed_pct), "%g, %g %%",
                   streams[i].overlapped_pct, streams[i].exposed_pct);
    }
    fs_free(streams);
}

/* Collectives ------------------------------------------------------------------------------------------------------ */

enum { MOST_PAIRED = 256 }; /* events and rows that plain loops over all pairs are run for */

/* Python reads the texts up to their zero byte. */
static void check_text(const fs_collective_text *text)
{
    FUZZ_CHECK(text->size == (text->text == NULL ? 0 : strlen(text->text)), "%zu bytes", text->size);
}

static void check_texts(const fs_collective *recorded)
{
#define CHECK_TEXT(name, longest, prose) check_text(&recorded->name);
    FS_COLLECTIVE_TEXT_LIST(CHECK_TEXT)
#undef CHECK_TEXT
    FUZZ_CHECK(recorded->group.size <= 127 && recorded->ranks.size <= 511, "group %s", recorded->group.text);
    FUZZ_CHECK(recorded->element_size >= 0 && recorded->element_size <= 16, "%d", recorded->element_size);
}

static bool same_text(const fs_collective_text *a, const fs_collective_text *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->text, b->text, a->size) == 0);
}

static bool same_class(const fs_collective_row *a, const fs_collective_row *b)
{
    bool sizes = a->message_bytes == b->message_bytes || (isnan(a->message_bytes) && isnan(b->message_bytes));
    return sizes && a->device == b->device && a->kind == b->kind && same_text(&a->recorded.group, &b->recorded.group) &&
           same_text(&a->recorded.ranks, &b->recorded.ranks);
}

static void check_rows(const fs_store *store, const fs_collective_row *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const fs_collective_row *row = &rows[i];
        FUZZ_CHECK(i == 0 || row->start >= row[-1].start, "row %u", i);
        FUZZ_CHECK((unsigned)row->kind < FS_COLLECTIVE_KIND_COUNT, "row %u: kind %d", i, (int)row->kind);
        FUZZ_CHECK(row->device >= 0 && row->device < FS_DEVICE_LIMIT, "row %u: device %d", i, row->device);
        FUZZ_CHECK(isnan(row->duration) || row->duration >= 0, "row %u: %g ns", i, row->duration);
        bool within = isnan(row->exposed) || (row->exposed >= 0 && row->exposed <= row->duration + 1);
        FUZZ_CHECK(within, "row %u: exposed %g of %g ns", i, row->exposed, row->duration);
        FUZZ_CHECK(isnan(row->message_bytes) || row->message_bytes >= 0, "row %u: %g bytes", i, row->message_bytes);
        FUZZ_CHECK(!(row->algorithm_gbytes_per_s < 0) && !isinf(row->algorithm_gbytes_per_s), "row %u", i);
        FUZZ_CHECK(!(row->bus_gbytes_per_s < 0) && !isinf(row->bus_gbytes_per_s), "row %u", i);
        FUZZ_CHECK(row->occurrence < count, "row %u: occurrence %u", i, row->occurrence);
        check_texts(&row->recorded);
    }
    if (count > MOST_PAIRED || fs_store_count(store) > MOST_PAIRED) return;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t before = 0;
        for (uint32_t j = 0; j < i; j++) before += same_class(&rows[j], &rows[i]);
        FUZZ_CHECK(rows[i].occurrence == before, "row %u: occurrence %u, not %u", i, rows[i].occurrence, before);
    }
}

static void take_rows(const fs_store *store)
{
    fs_collective_row *rows;
    uint32_t count;
    if (!done(fs_collectives_of(store, &rows, &count, &fuzz_error))) return;
    check_rows(store, rows, count);
    fs_free(rows);
}

static void take_calls(const fs_store *store)
{
    fs_collective_call *calls;
    uint32_t count, ran = 0, work = 0;
    if (!done(fs_collective_calls_of(store, &calls, &count, &fuzz_error))) return;
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        uint8_t kind = FS_EVENT_AT(store, i, kind);
        work += fs_event_kind_on_device[kind] && FS_EVENT_AT(store, i, launcher) != FS_NONE;
    }
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_CHECK((unsigned)calls[i].kind < FS_COLLECTIVE_KIND_COUNT, "call %u: kind %d", i, (int)calls[i].kind);
        FUZZ_CHECK(calls[i].start != FS_MISSING, "call %u", i);
        check_texts(&calls[i].recorded);
        ran += calls[i].ran;
    }
    FUZZ_CHECK(ran <= work, "%u calls ran, but %u kernels were launched", ran, work);
    fs_free(calls);
}

/* Lines of the program --------------------------------------------------------------------------------------------- */

static void sum_up_lines(const fs_store *store)
{
    const fs_table_options options = {.works = true};
    fs_table *table;
    fs_accounting accounting = {0};
    fs_lines found = {0};
    if (!done(fs_table_build(store, &options, &table, &fuzz_error))) return;
    if (done(fs_accounting_list(&accounting, store, table, &fuzz_error)) &&
        done(fs_lines_build(&found, store, &accounting, 0, 0, INT64_MIN, INT64_MAX, &fuzz_error)))
        for (uint32_t i = 0; i < found.count; i++) FUZZ_CHECK(found.lines[i].time >= 0, "line %u", i);
    fs_lines_clear(&found);
    fs_accounting_clear(&accounting);
    fs_table_destroy(table);
}

/* The trace and back ----------------------------------------------------------------------------------------------- */

static fs_status keep(void *file, const char *bytes, size_t size, fs_error *err)
{
    return fwrite(bytes, 1, size, file) == size ? FS_OK : fs_fail(err, FS_OUT_OF_MEMORY, "no memory to keep a trace");
}

/* Count the events of each kind that a trace contains, and say whether a trace that is written of these events has the
 * same ones. It has not if the end of an event is unknown, which a written trace gives it, so that it may have rates
 * that the store lacks; nor if the events span so much time that the reader discards the last ones: a trace is written
 * from its first event on, and times of more than INT64_MAX / 4 ns (73 years) are discarded. */
static bool count_kinds(const fs_store *store, int64_t counts[FS_EVENT_KIND_COUNT])
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    bool comparable = true;
    memset(counts, 0, FS_EVENT_KIND_COUNT * sizeof *counts);
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        uint32_t at;
        const fs_chunk *chunk = fs_event_chunk(store, i, &at);
        int64_t start = chunk->start[at];
        if (chunk->duration[at] == FS_MISSING && chunk->kind[at] != FS_EVENT_MEMORY) comparable = false;
        if (start == FS_MISSING) continue;
        first = start < first ? start : first;
        last = start > last ? start : last;
        if (!fs_event_is_share(chunk->kind[at], chunk->lane[at])) counts[chunk->kind[at]]++;
    }
    return comparable && (last <= first || fs_sub_saturated(last, first) < INT64_MAX / 4);
}

static void check_reloaded(const fs_store *store, const char *trace, size_t size)
{
    fs_store *again;
    fs_kineto_report report;
    fuzz_text text = {(const uint8_t *)trace, size};
    int64_t before[FS_EVENT_KIND_COUNT], after[FS_EVENT_KIND_COUNT];
    if (!done(fuzz_load(&text, FUZZ_WHOLE, &again, &report, &fuzz_error))) return;
    /* U+FFFD replaces invalid UTF-8. Names that differ only in such bytes become equal, and an event is merged with its
     * only child of the same name. */
    bool comparable = count_kinds(store, before) && strstr(trace, "\xEF\xBF\xBD") == NULL;
    count_kinds(again, after);
    for (int kind = 0; kind < FS_EVENT_KIND_COUNT && comparable; kind++) {
        FUZZ_CHECK(before[kind] == after[kind], "%s: %lld written, %lld read", fs_event_kind_names[kind],
                   (long long)before[kind], (long long)after[kind]);
    }
    build_tables(again);
    fs_store_destroy(again);
}

static int64_t base; /* of the times of the trace that was read */

static void write_and_reload(const fs_store *store)
{
    static const fs_table_options unknown_peaks;
    char *trace = NULL;
    size_t size;
    int64_t left_out;
    FILE *file = open_memstream(&trace, &size);
    fs_chrome_trace_options options = {.write = keep,
                                       .context = file,
                                       .clock_offset = base,
                                       .pid = 4000,
                                       .process = "fuzz",
                                       .version = "0",
                                       .members = "",
                                       .table = &unknown_peaks};
    bool written = file != NULL && done(fs_chrome_trace_write(store, &options, &left_out, &fuzz_error));
    if (file != NULL && fclose(file) == 0 && written) check_reloaded(store, trace, size);
    free(trace);
}

enum { MOST_FAILING = 8 << 10 }; /* bytes of the files that each allocation fails for */

static fuzz_stage *const stages[] = {build_tables,       account_for,      replay_steps, draw_timeline,
                                     look_at_late_times, summarize,        take_rows,    take_calls,
                                     sum_up_lines,       write_and_reload, NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_text text = {data, size};
    fs_store *store;
    fs_kineto_report report;
    fuzz_set_up();
    if (fuzz_load(&text, FUZZ_WHOLE, &store, &report, &fuzz_error) != FS_OK) return 0;
    base = report.base;
    for (size_t i = 0; stages[i] != NULL; i++) stages[i](store);
    fs_store_destroy(store);
    return 0;
}

static void fail_on(const void *bytes, size_t size)
{
    if (size < MOST_FAILING) fuzz_fail_stages(bytes, size, stages);
}

TEST(memory_that_runs_out_is_an_error_and_leaks_nothing)
{
    CHECK(each_file("data/corpus", fail_on) > 10);
    CHECK(each_file("fuzz/corpus/tables", fail_on) > 2);
}
