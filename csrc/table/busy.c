/* Device work in order of start, in runs that threads work on at once. The latest end of a row's work before a run
 * decides what of the run counts. A run begins as if there were none; after all runs, those that begin before such an
 * end, which takes work that overlaps on several streams, are done again with the right one. */
#include "table/busy.h"

#include <math.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "table/scan.h"

enum { RUN_WORKS = FS_BLOCK(1 << 13, 1 << 3), MOST_RUNS = 64, BYTES_PER_WORK = FS_BLOCK(32, 1 << 20) };

/* Of a row on a device, in a run. */
typedef struct {
    int64_t busy_ns, first, end; /* earliest start of the work; latest end of it, or before the run */
} span;

typedef struct {
    fs_build *build;
    span *spans;      /* by run, row, device */
    uint8_t *timings; /* by run, row */
    bool *again;      /* by run */
    uint32_t run_works, run_count;
} busying;

/* Work, and the run that it is added to. */
typedef struct {
    fs_build *build;
    span *spans;
    uint8_t *timings;
    int64_t start, duration; /* duration: 0 if missing */
    uint32_t event, device;
    uint8_t timing;
    bool apart; /* fs_counted_sum */
} work_span;

/* Add what was counted during the work to a row; of work that was not counted, only the time. */
static void add_counted(const work_span *work, uint32_t row)
{
    fs_build *build = work->build;
    if (build->counted_sums == NULL) return;
    const fs_counted_work unknown = {.end = work->duration};
    const fs_counted_work *counted = fs_counted_of(&build->counted, work->event);
    if (counted == NULL) counted = &unknown;
    fs_counted_sum *sum = &build->counted_sums[(size_t)row * build->counted.devices + counted->device];
    fs_counted_add(sum, counted);
    sum->apart = sum->apart || work->apart;
}

/* Add the part of the work's time during which the row was not busy yet. */
static void add_to_row(const work_span *work, uint32_t row)
{
    add_counted(work, row);
    if (work->timing < work->timings[row]) work->timings[row] = work->timing;
    span *sum = &work->spans[(size_t)row * work->build->device_count + work->device];
    if (work->start == FS_MISSING) { /* without a start, no overlap is known */
        fs_add_to(&sum->busy_ns, work->duration);
        return;
    }
    if (work->start < sum->first) sum->first = work->start;
    int64_t from = work->start > sum->end ? work->start : sum->end;
    int64_t to = fs_add_saturated(work->start, work->duration);
    if (to <= from) return;
    fs_add_to(&sum->busy_ns, fs_sub_saturated(to, from));
    sum->end = to;
}

static bool spans(const fs_build *build, uint32_t index)
{
    return (build->marks[index] & FS_MARK_SPANS) != 0;
}

/* Add the work to the rows of what launched it: once to each of rows that follow each other from the inside out. Return
 * the slice whose events alone the work changes, slice_count if there is none: the work of a node may be that of its
 * op, its owner or a range. */
static uint32_t add_to_launchers(const work_span *work, uint32_t launcher)
{
    fs_build *build = work->build;
    uint32_t slice = launcher / build->slice_events;
    const fs_node *node = fs_build_node(build, launcher);
    uint32_t row = build->calls.calls[node->call].row, before = row;
    add_to_row(work, row);
    if ((node->owner != FS_NONE && spans(build, node->owner)) || (node->op != FS_NONE && spans(build, node->op)))
        slice = build->slice_count;
    if (node->owner != FS_NONE && node->owner != launcher) {
        uint32_t owners = fs_build_call(build, node->owner)->row;
        if (owners != row) add_to_row(work, owners);
    }
    for (uint32_t range = node->stated; range != FS_NONE; range = fs_build_outer_stated(build, range)) {
        row = fs_build_call(build, range)->row;
        if (row != before) add_to_row(work, row);
        if (spans(build, range)) slice = build->slice_count;
        before = row;
    }
    return slice;
}

static void add_run(const busying *all, uint32_t run)
{
    fs_build *build = all->build;
    size_t rows = build->group_count;
    work_span work = {
        .build = build,
        .spans = &all->spans[run * rows * build->device_count],
        .timings = &all->timings[run * rows],
    };
    uint64_t end = ((uint64_t)run + 1) * all->run_works;
    if (end > build->work_count) end = build->work_count;
    if (build->calls.calls == NULL) return; /* nothing was called, so there is no work */
    for (uint32_t i = run * all->run_works, at; i < end; i++) {
        if (i % FS_POLL_ROUNDS == 0 && fs_interrupted()) return;
        work.event = build->works[i];
        const fs_chunk *chunk = fs_build_chunk(build, work.event, &at);
        work.start = chunk->start[at];
        work.duration = chunk->duration[at] == FS_MISSING ? 0 : chunk->duration[at];
        work.device = (uint32_t)fs_event_device(chunk, at);
        work.timing = chunk->timing[at];
        const fs_call *call = chunk->kind[at] != FS_EVENT_INTERVAL ? fs_build_call(build, work.event) : NULL;
        uint32_t launcher = fs_build_launcher(build, chunk, at), slice = work.event / build->slice_events;
        work.apart = build->counted_sums != NULL && call != NULL &&
                     (call->communication || fs_event_is_transfer(chunk->kind[at], call->text));
        if (call != NULL) add_to_row(&work, call->row);
        /* Annotations are not work. */
        if (launcher != FS_NONE && fs_event_kind_on_device[chunk->kind[at]]) slice = add_to_launchers(&work, launcher);
        if (build->places == NULL) continue;
        build->places[i] = (uint8_t)(call != NULL && call->registered ? build->slice_count : slice);
    }
}

static void add_runs(void *context, int64_t first, int64_t last)
{
    const busying *all = context;
    size_t spans = (size_t)all->build->group_count * all->build->device_count;
    for (uint32_t run = (uint32_t)first; run < last; run++) {
        for (size_t i = 0; i < spans; i++) all->spans[run * spans + i] = (span){0, INT64_MAX, INT64_MIN};
        memset(&all->timings[run * (size_t)all->build->group_count], FS_TIMING_COUNT, all->build->group_count);
        add_run(all, run);
    }
}

static void repeat_runs(void *context, int64_t first, int64_t last)
{
    const busying *all = context;
    for (uint32_t run = (uint32_t)first; run < last; run++)
        if (all->again[run]) add_run(all, run);
}

/* Let each run that has to be repeated begin with the latest ends before it. */
static bool find_repeated(const busying *all)
{
    size_t spans = (size_t)all->build->group_count * all->build->device_count;
    bool any = false;
    for (uint32_t run = 1; run < all->run_count; run++) {
        span *own = &all->spans[run * spans], *before = own - spans;
        for (size_t i = 0; i < spans && !all->again[run]; i++) all->again[run] = own[i].first < before[i].end;
        any = any || all->again[run];
        for (size_t i = 0; i < spans; i++) {
            if (before[i].end > own[i].end) own[i].end = before[i].end;
        }
    }
    for (uint32_t run = all->run_count; any && run-- > 1;) {
        span *own = &all->spans[run * spans], *before = own - spans;
        for (size_t i = 0; all->again[run] && i < spans; i++) own[i] = (span){0, INT64_MAX, before[i].end};
    }
    return any;
}

static void join_runs(const busying *all)
{
    fs_build *build = all->build;
    for (uint32_t run = 0; run < all->run_count; run++) {
        for (uint32_t row = 0; row < build->group_count; row++) {
            fs_group *group = &build->groups[row];
            size_t place = run * (size_t)build->group_count + row;
            if (all->timings[place] < group->device_timing) group->device_timing = all->timings[place];
            for (uint32_t device = 0; device < build->device_count; device++)
                fs_add_to(&group->row.device_busy_time, all->spans[place * build->device_count + device].busy_ns);
        }
    }
    for (uint32_t i = 1; i < build->slice_count; i++)
        for (uint32_t row = 0; row < build->group_count; row++)
            fs_build_slice(build, i)->groups[row].device_timing = build->groups[row].device_timing;
}

/* One run, if there are counters: these add up in order. */
static void divide(busying *all)
{
    const fs_build *build = all->build;
    uint64_t bytes = (uint64_t)build->group_count * (build->device_count * sizeof(span) + 1);
    uint64_t most = (uint64_t)build->work_count * BYTES_PER_WORK / (bytes + 1);
    if (most > MOST_RUNS) most = MOST_RUNS;
    if (most < 1 || build->counted_sums != NULL) most = 1;
    uint64_t each = (build->work_count + most - 1) / most;
    all->run_works = each < RUN_WORKS ? RUN_WORKS : (uint32_t)each;
    all->run_count = (build->work_count + all->run_works - 1) / all->run_works;
}

fs_status fs_build_busy(fs_build *build, fs_error *err)
{
    busying all = {.build = build};
    divide(&all);
    size_t places = (size_t)all.run_count * build->group_count;
    all.spans = fs_malloc(places * build->device_count * sizeof *all.spans);
    all.timings = fs_malloc(places * sizeof *all.timings);
    all.again = fs_calloc(all.run_count, sizeof *all.again);
    fs_status status = FS_OK;
    if (all.spans == NULL || all.timings == NULL || all.again == NULL) {
        status = fs_fail(err, FS_OUT_OF_MEMORY, "no memory to sum %u device events", build->work_count);
    } else {
        fs_parallel_for(all.run_count, 1, add_runs, &all);
        status = fs_interrupt_poll(err);
        if (status == FS_OK && find_repeated(&all)) {
            fs_parallel_for(all.run_count, 1, repeat_runs, &all);
            status = fs_interrupt_poll(err);
        }
        if (status == FS_OK) join_runs(&all);
    }
    fs_free(all.spans);
    fs_free(all.timings);
    fs_free(all.again);
    return status;
}
