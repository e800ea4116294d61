/* Adds device work to its launchers and rows: own device times, work, coverage. Each slice takes the work that its
 * events launched, in order of start. Work that belongs to an event with parts in several slices comes after that of
 * all slices, on one thread, and so does work that rules of the program may ask Python for. */
#include "table/devices.h"

#include <math.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/saturate.h"
#include "table/build.h"
#include "table/counted_rows.h"
#include "table/scan.h"
#include "table/slices.h"
#include "table/totals.h"
#include "work/registered.h"

/* Busy time -------------------------------------------------------------------------------------------------------- */

/* Times in which any device work of a row ran, and what counters counted in it. Device work in order of start, in runs
 * that threads work on at once. The latest end of a row's work before a run decides what of the run counts. A run
 * begins as if there were none; after all runs, those that begin before such an end, which takes work that overlaps on
 * several streams, are done again with the right one. */

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

/* Add the busy times of all rows, their device_timing and, if there are counters, counted_sums; and fill in `places`,
 * unless it is NULL. `works` is in order of start. FS_OUT_OF_MEMORY, FS_INTERRUPTED. */
static fs_status build_busy(fs_build *build, fs_error *err)
{
    busying all = {.build = build};
    divide(&all);
    size_t places = (size_t)all.run_count * build->group_count;
    fs_status status;
    FS_TRY_GOTO(status, FS_NEW(&all.spans, places * build->device_count, err), done);
    FS_TRY_GOTO(status, FS_NEW(&all.timings, places, err), done);
    FS_TRY_GOTO(status, FS_NEW_ZEROED(&all.again, all.run_count, err), done);
    fs_parallel_for(all.run_count, 1, add_runs, &all);
    FS_TRY_GOTO(status, fs_interrupt_poll(err), done);
    if (find_repeated(&all)) {
        fs_parallel_for(all.run_count, 1, repeat_runs, &all);
        FS_TRY_GOTO(status, fs_interrupt_poll(err), done);
    }
    join_runs(&all);
done:
    fs_free(all.spans);
    fs_free(all.timings);
    fs_free(all.again);
    return status;
}

/* Order of device events ------------------------------------------------------------------------------------------- */

/* The order in which device work is added to a table. Device work in order of start, then grouped by slice. */

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

typedef struct {
    uint64_t key; /* time since the first start; a missing start sorts first */
    uint32_t event;
} sort_entry;

static void sort_digit(const sort_entry *from, sort_entry *to, uint32_t count, int shift)
{
    uint32_t places[DIGITS] = {0}, next = 0;
    for (uint32_t i = 0; i < count; i++) places[from[i].key >> shift & (DIGITS - 1)]++;
    for (int digit = 0; digit < DIGITS; digit++) {
        uint32_t size = places[digit];
        places[digit] = next;
        next += size;
    }
    for (uint32_t i = 0; i < count; i++) to[places[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
}

/* Sort the device events by start. FS_OUT_OF_MEMORY, FS_INTERRUPTED. A radix sort, because unordered events come from
 * many streams at once; fs_intervals_sort has larger entries and makes the whole table half as slow again. */
static fs_status build_sort_works(fs_build *build, fs_error *err)
{
    uint32_t count = build->work_count;
    sort_entry *entries = fs_malloc(2 * (size_t)count * sizeof *entries), *from = entries, *to = entries + count;
    if (entries == NULL) return fs_no_memory(err);
    uint64_t least = UINT64_MAX, largest = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = (uint64_t)FS_BUILD_AT(build, build->works[i], start) - (uint64_t)INT64_MIN;
        from[i] = (sort_entry){key, build->works[i]};
        if (key < least) least = key;
        if (key > largest) largest = key;
    }
    for (uint32_t i = 0; i < count; i++) from[i].key -= least;
    for (int shift = 0; shift < 64 && (largest - least) >> shift != 0; shift += DIGIT_BITS) {
        sort_digit(from, to, count, shift);
        sort_entry *swap = from;
        from = to;
        to = swap;
    }
    for (uint32_t i = 0; i < count; i++) build->works[i] = from[i].event;
    fs_free(entries);
    return fs_interrupt_poll(err);
}

/* Device events by the slice that adds them, each in order of start. Those of no slice come last. */
typedef struct {
    fs_build *build;
    uint32_t *works;
    uint32_t (*begins)[FS_MOST_SLICES + 2]; /* by run of works and slice: the first of its works */
} sharing;

enum { PLACED_WORKS = FS_BLOCK(1 << 14, 1 << 3) };

static uint32_t run_end(const fs_build *build, uint32_t run)
{
    uint64_t end = ((uint64_t)run + 1) * PLACED_WORKS;
    return end < build->work_count ? (uint32_t)end : build->work_count;
}

static void count_shares(void *context, int64_t first, int64_t last)
{
    const sharing *all = context;
    for (uint32_t run = (uint32_t)first; run < last; run++) {
        for (uint32_t i = run * PLACED_WORKS; i < run_end(all->build, run); i++)
            all->begins[run][all->build->places[i]]++;
    }
}

static void fill_shares(void *context, int64_t first, int64_t last)
{
    const sharing *all = context;
    for (uint32_t run = (uint32_t)first; run < last; run++)
        for (uint32_t i = run * PLACED_WORKS; i < run_end(all->build, run); i++)
            all->works[all->begins[run][all->build->places[i]]++] = all->build->works[i];
}

/* Group the device events by slice. */
static fs_status share(sharing *all, uint32_t runs, fs_error *err)
{
    fs_build *build = all->build;
    uint32_t next = 0;
    fs_parallel_for(runs, 1, count_shares, all);
    FS_TRY(fs_interrupt_poll(err));
    for (uint32_t slice = 0; slice <= build->slice_count; slice++) {
        if (slice < build->slice_count) fs_build_slice(build, slice)->first_work = next;
        for (uint32_t run = 0; run < runs; run++) {
            uint32_t count = all->begins[run][slice];
            all->begins[run][slice] = next;
            next += count;
        }
        if (slice < build->slice_count) fs_build_slice(build, slice)->end_work = next;
    }
    fs_parallel_for(runs, 1, fill_shares, all);
    FS_TRY(fs_interrupt_poll(err));
    uint32_t *swap = build->works;
    build->works = all->works;
    all->works = swap;
    for (uint32_t i = 1; i < build->slice_count; i++) fs_build_slice(build, i)->works = build->works;
    return FS_OK;
}

/* Group the sorted device events by the slice that adds them, and set first_work and end_work of each; those of no
 * slice come last. The same failures. */
static fs_status build_share_works(fs_build *build, fs_error *err)
{
    build->end_work = build->slice_count == 1 ? build->work_count : 0;
    if (build->slice_count == 1) return FS_OK;
    uint32_t runs = (build->work_count + PLACED_WORKS - 1) / PLACED_WORKS;
    sharing all = {.build = build};
    FS_TRY(FS_NEW(&all.works, build->work_count, err));
    fs_status status = FS_NEW_ZEROED(&all.begins, runs, err);
    if (status == FS_OK) status = share(&all, runs, err);
    fs_free(all.works);
    fs_free(all.begins);
    return status;
}

/* Devices ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t start, duration; /* ns; duration: 0 if missing */
    uint32_t event, launcher;
    int device;
    uint8_t timing, kind;
    bool has_row;    /* an INTERVAL has none */
    bool estimated;  /* its launcher is inferred */
    fs_call *call;   /* NULL if it has no row */
    double rounding; /* of the duration: fs_row */
} device_work;

static void add_to_rate(fs_node_rate *rate, const device_work *work)
{
    int64_t from = work->start > rate->busy_until ? work->start : rate->busy_until;
    int64_t to = fs_add_saturated(work->start, work->duration);
    if (work->timing < rate->timing) rate->timing = work->timing;
    if (work->start == FS_MISSING) fs_add_to(&rate->busy_ns, work->duration);
    if (work->start == FS_MISSING || to <= from) return;
    fs_add_to(&rate->busy_ns, fs_sub_saturated(to, from));
    rate->busy_until = to;
}

static void own(fs_build *build, fs_node *node, const device_work *work)
{
    if (build->rates != NULL) add_to_rate(&build->rates[node - build->nodes], work);
    fs_add_to(&node->owned_device_ns, work->duration);
    node->launches++;
    node->device = (int8_t)work->device;
    node->flags |= FS_NODE_OWNS;
    if (work->call != NULL && work->call->tensor) node->flags |= FS_NODE_TENSOR;
    if (work->call != NULL && work->call->saves_flops) node->flags |= FS_NODE_SAVES;
}

/* Add the work of one kernel to an op whose work only its kernels determine. The element count is the kernel's upper
 * bound, unless the trace records it; then all of it is added with the first kernel. */
static void add_launched(fs_build *build, uint32_t owner, const device_work *work)
{
    fs_call *call = fs_build_call(build, owner);
    if (call->work.needs != FS_NEEDS_ELEMENTS || work->call == NULL) return;
    const fs_kernel_extent *extent = &work->call->extent;
    fs_group *group = &build->groups[call->row];
    fs_node *node = fs_build_node(build, owner);
    bool counted = !isnan(call->work.list_elements);
    double elements = counted ? call->work.list_elements : extent->elements;
    double size = isnan(call->work.item) ? extent->size : call->work.item;
    if (!(size > 0) || isnan(elements) || (counted && (node->flags & FS_NODE_LISTED) != 0)) return;
    node->flags |= FS_NODE_LISTED;
    fs_work launched = call->work;
    launched.flops *= elements;
    launched.bytes_read = fmin(launched.bytes_read * elements * size, launched.most_read);
    launched.bytes_written *= elements * size;
    launched.bytes_moved = launched.bytes_read + launched.bytes_written;
    group->row.flops += launched.flops;
    group->row.bytes_read += launched.bytes_read;
    group->row.bytes_written += launched.bytes_written;
    group->row.bytes_total_moved += launched.bytes_moved;
    if (!counted) fs_add_to(&group->estimated_ns, work->duration);
    if (!isnan(launched.flops)) {
        node->flops += launched.flops;
        node->flags |= FS_NODE_FLOPS;
    }
    fs_roof roof = fs_roof_of(&launched, fs_build_peaks(build, call, work->device));
    fs_roof_sum_add(&group->roof, &roof);
    launched.at_most = launched.at_most || !counted;
    fs_build_add_roofs(build, node, &roof, &launched);
}

/* Add the work of a kernel to a row, and to the node of the op that it is for, if any. */
static void supply(fs_build *build, fs_group *group, fs_node *node, const fs_call *op, const fs_work *launched,
                   const device_work *work)
{
    group->row.flops += launched->flops;
    group->row.bytes_read += launched->bytes_read;
    group->row.bytes_written += launched->bytes_written;
    group->row.bytes_total_moved += launched->bytes_moved;
    fs_roof roof = fs_roof_of(launched, fs_build_peaks(build, op != NULL ? op : work->call, work->device));
    fs_roof_sum_add(&group->roof, &roof);
    if (node == NULL) {
        group->work_calls++;
        group->flops_known = group->flops_known || !isnan(launched->flops);
        if (!isnan(launched->flops)) group->row.flops_total += launched->flops;
        return;
    }
    fs_build_add_roofs(build, node, &roof, launched);
    node->flags |= FS_NODE_LISTED;
    node->supplied++;
    if (isnan(launched->flops)) return;
    node->flops += launched->flops;
    node->flags |= FS_NODE_FLOPS;
}

/* Make the work of a kernel's own row unknown, because that of one of its kernels is. */
static void supply_unknown(fs_build *build, const fs_call *kernel)
{
    fs_group *group = &build->groups[kernel->row];
    group->row.flops = group->row.bytes_read = group->row.bytes_written = group->row.bytes_total_moved = NAN;
    fs_roof_sum_add(&group->roof, &fs_roof_unknown);
}

/* Add the work of a kernel that its name tells: to its op, if no rule counts that op or its rule gives way; without an
 * op, to the kernel's own row. Return what is known. */
static fs_known add_kernel(fs_build *build, uint32_t owner, const device_work *work)
{
    fs_known known = {FS_SOURCE_NONE, FS_SOURCE_NONE};
    fs_call *kernel = work->call;
    if (kernel == NULL || !kernel->has_work) return known;
    const fs_call *ruled = owner != FS_NONE ? fs_build_call(build, owner) : NULL;
    if (ruled != NULL && ruled->launch && ruled->work.stated && !kernel->registered) return known;
    uint32_t op = owner != FS_NONE ? owner : work->launcher;
    if (op != FS_NONE && FS_BUILD_AT(build, op, kind) != FS_EVENT_OP) op = FS_NONE;
    /* The work is the op's, and the time is in the kernel's row too: other kernels of that row give it no rates. */
    if (op != FS_NONE) build->groups[kernel->row].untimed = true;
    if (ruled != NULL && ruled->work.needs != FS_NEEDS_KERNELS) return known;
    fs_call *of = op != FS_NONE ? fs_build_call(build, op) : NULL;
    fs_node *node = op != FS_NONE ? fs_build_node(build, op) : NULL;
    fs_kernel_context alone = {0, 0};
    fs_launch launch;
    fs_torch_call torch = {.whole = true};
    uint32_t signature = (uint32_t)kernel->key;
    uint32_t asked = of != NULL ? (uint32_t)(of - build->calls.calls) + 1 : FS_NONE;
    bool launched =
        signature != FS_NONE && fs_launch_decode(fs_store_signature_bytes(build->store, signature).bytes, &launch);
    bool called = of != NULL && fs_calls_decode(&build->calls, of, &torch);
    fs_work found = kernel->worked;
    bool is_known = kernel->works;
    torch.launch = launched ? &launch : NULL;
    if (!kernel->registered) {
        is_known = fs_kernel_work(kernel->text, torch.launch, called ? &torch : NULL,
                                  node != NULL ? &build->contexts[node - build->nodes] : &alone, &found);
    } else if (kernel->worked_for != asked) {
        is_known = kernel->works = fs_work_of_registered(kernel->text, &torch, &kernel->worked);
        found = kernel->worked;
        kernel->worked_for = asked;
    }
    uint8_t source = kernel->registered ? FS_SOURCE_MODEL : FS_SOURCE_ESTIMATED;
    if (is_known && !isnan(found.flops)) known.flops = source;
    if (is_known && !isnan(found.bytes_moved)) known.bytes = source;
    if (!known.flops && !known.bytes) {
        if (of == NULL) supply_unknown(build, kernel);
        return known;
    }
    fs_group *group = of != NULL ? &build->groups[of->row] : &build->groups[kernel->row];
    supply(build, group, node, of, &found, work);
    if (!kernel->registered) fs_add_to(&group->estimated_ns, work->duration);
    return known;
}

/* Show the work of an op that is one launch in the row of its kernel too. */
static void repeat_launch(fs_build *build, const fs_node *launcher, uint32_t owner, const device_work *work)
{
    const fs_call *launch = fs_build_call(build, owner);
    if (!launch->launch || launcher->launches != 1 || work->kind != FS_EVENT_KERNEL) return;
    fs_group *group = &build->groups[work->call->row];
    supply(build, group, NULL, launch, &launch->work, work);
    fs_roof roof = fs_roof_of(&launch->work, fs_build_peaks(build, launch, work->device));
    fs_roof_sum_launch(&group->roof, &roof, 1);
    fs_build_mark_launch(group, &launch->work);
    group->repeated++;
}

static void add_estimated(fs_build *build, uint32_t owner, const device_work *work, bool supplied)
{
    const fs_call *call = fs_build_call(build, owner);
    if (call->work.flops_estimated) fs_add_to(&build->groups[call->row].flops_estimated_ns, work->duration);
    if ((call->work.at_most && !supplied) || work->estimated)
        fs_add_to(&build->groups[call->row].estimated_ns, work->duration);
}

/* Return the innermost op that encloses the event, itself included, or FS_NONE. */
static uint32_t enclosing_op(fs_build *build, uint32_t index)
{
    return index != FS_NONE ? fs_build_node(build, index)->op : FS_NONE;
}

static bool is_counted(const fs_build *build, const fs_call *call)
{
    return call != NULL && build->counted_rows != NULL && !isnan(build->counted_rows[call->row].bytes_moved);
}

static void cover(fs_build *build, const device_work *work, fs_known known)
{
    const fs_call *call = work->call;
    uint32_t op = enclosing_op(build, work->launcher);
    if (call != NULL && call->communication) return;
    if (op != FS_NONE && fs_build_call(build, op)->compiles) return;
    fs_call_state *state = call != NULL ? &build->states[call - build->calls.calls] : NULL;
    /* The bytes of a copy or a fill are recorded with it. */
    if (work->kind == FS_EVENT_MEMCPY || work->kind == FS_EVENT_MEMSET)
        known = (fs_known){FS_SOURCE_MODEL, FS_SOURCE_MODEL};
    else if (call != NULL && !known.flops && !known.bytes && op == FS_NONE) {
        fs_add_to(&state->unlinked_ns, work->duration);
        return;
    }
    uint8_t ruled = known.bytes;
    if (!ruled && is_counted(build, call)) known.bytes = FS_SOURCE_COUNTED;
    fs_known_count(build->table, (double)work->duration, known);
    if (state != NULL) {
        state->flops_linked = state->flops_linked || known.flops;
        state->bytes_linked = state->bytes_linked || ruled;
        state->linked_unknown = state->linked_unknown || !ruled;
    }
    if (known.bytes) return;
    uint32_t named = enclosing_op(build, work->launcher);
    if (named == FS_NONE) named = work->has_row ? work->event : work->launcher;
    if (named != FS_NONE) fs_add_to(&fs_build_group(build, named)->unmodelled_ns, work->duration);
}

/* Whether the work of a kernel is known from its op, as flags. */
enum { FLOPS_LINKED = 1, BYTES_LINKED = 2, LINKED_UNKNOWN = 4 };

static uint8_t linked_work(const fs_call_state *state)
{
    return (uint8_t)((state->flops_linked ? FLOPS_LINKED : 0) | (state->bytes_linked ? BYTES_LINKED : 0) |
                     (state->linked_unknown ? LINKED_UNKNOWN : 0));
}

/* Add the states of the other slices to those of the first. */
static void join_states(fs_build *build)
{
    for (uint32_t i = 1; i < build->slice_count; i++) {
        for (uint32_t id = 0; id < build->calls.count; id++) {
            fs_call_state *to = &build->states[id], *from = &fs_build_slice(build, i)->states[id];
            to->flops_linked = to->flops_linked || from->flops_linked;
            to->bytes_linked = to->bytes_linked || from->bytes_linked;
            to->linked_unknown = to->linked_unknown || from->linked_unknown;
            fs_add_to(&to->unlinked_ns, from->unlinked_ns);
        }
    }
}

/* Cover kernels without an op, such as those launched before the profile began. They are attributed to the op of other
 * kernels with the same name and launch, or with the same name alone if their launch was not recorded (ROCm omits it
 * for kernels launched before the profile began). If the work of any of those is unknown, theirs is too. */
static fs_status cover_unlinked(fs_build *build, fs_error *err)
{
    uint32_t names = fs_store_name_count(build->store);
    join_states(build);
    uint8_t *linked = fs_calloc(names, sizeof *linked); /* by name, over all launches */
    if (linked == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < build->calls.count; i++) {
        const fs_call *call = &build->calls.calls[i];
        uint32_t name = (uint32_t)(call->key >> 32);
        if (call->kind == FS_EVENT_KERNEL && name < names) linked[name] |= linked_work(&build->states[i]);
    }
    for (uint32_t i = 0; i < build->calls.count; i++) {
        const fs_call *call = &build->calls.calls[i];
        uint32_t name = (uint32_t)(call->key >> 32);
        int64_t unlinked_ns = build->states[i].unlinked_ns;
        if (unlinked_ns == 0) continue;
        unsigned by = linked_work(&build->states[i]);
        if (!call->launch_known && call->kind == FS_EVENT_KERNEL && name < names) by = linked[name];
        bool sure = (by & LINKED_UNKNOWN) == 0;
        fs_known known = {sure && (by & FLOPS_LINKED) != 0 ? FS_SOURCE_ESTIMATED : FS_SOURCE_NONE,
                          sure && (by & BYTES_LINKED) != 0 ? FS_SOURCE_ESTIMATED : FS_SOURCE_NONE};
        if (!known.bytes && is_counted(build, call)) known.bytes = FS_SOURCE_COUNTED;
        fs_known_count(build->table, (double)unlinked_ns, known);
        if (!known.bytes) fs_add_to(&build->groups[call->row].unmodelled_ns, unlinked_ns);
    }
    fs_free(linked);
    return FS_OK;
}

/* Add the work to the enclosing ranges with declared work. */
static void add_stated(fs_build *build, const device_work *work)
{
    uint32_t range = fs_build_node(build, work->launcher)->stated;
    for (; range != FS_NONE; range = fs_build_outer_stated(build, range))
        if (range != work->launcher) own(build, fs_build_node(build, range), work);
}

/* Return whether the launcher is of the capture of a graph, which only a mark is not. */
static bool is_replayed(const fs_build *build, uint32_t launcher)
{
    if (launcher == FS_NONE) return false;
    return (FS_BUILD_AT(build, launcher, flags) & (FS_EVENT_REPLAYED | FS_EVENT_MARK)) == FS_EVENT_REPLAYED;
}

static fs_known estimate(fs_known known)
{
    if (known.flops) known.flops = FS_SOURCE_ESTIMATED;
    if (known.bytes) known.bytes = FS_SOURCE_ESTIMATED;
    return known;
}

static void add_work(fs_build *build, const device_work *work)
{
    fs_known known = {FS_SOURCE_NONE, FS_SOURCE_NONE}, supplied = known;
    fs_add_to(&build->table->self_device_ns, work->duration);
    if (work->launcher != FS_NONE) {
        fs_node *launcher = fs_build_node(build, work->launcher);
        uint32_t owner = launcher->owner;
        fs_add_to(&launcher->self_device_ns, work->duration);
        fs_add_to(&launcher->device_ns, work->duration);
        launcher->device_rounding += work->rounding;
        own(build, launcher, work);
        if (owner != FS_NONE) add_launched(build, owner, work);
        if (work->call != NULL && work->call->has_work) supplied = add_kernel(build, owner, work);
        if (owner != FS_NONE) add_estimated(build, owner, work, supplied.bytes);
        if (owner == work->launcher && !supplied.bytes) repeat_launch(build, launcher, owner, work);
        if (owner != FS_NONE && owner != work->launcher) own(build, fs_build_node(build, owner), work);
        uint32_t by = owner != FS_NONE ? owner : launcher->stated;
        if (by != FS_NONE && by != work->launcher) fs_build_group(build, work->launcher)->owned_by_others = true;
        if (launcher->stated != FS_NONE) add_stated(build, work);
        if (!build->options->brief) known = fs_build_known(build, launcher);
    } else {
        supplied = add_kernel(build, FS_NONE, work);
    }
    if (work->call != NULL && work->call->of_graph && !is_replayed(build, work->launcher))
        fs_add_to(&build->table->unseen_graph_ns, work->duration);
    if (supplied.flops) known.flops = supplied.flops;
    if (supplied.bytes) known.bytes = supplied.bytes;
    if (work->estimated) known = estimate(known);
    if (known.bytes == FS_SOURCE_ESTIMATED && work->call != NULL && build->groups[work->call->row].limited &&
        is_counted(build, work->call))
        known.bytes = FS_SOURCE_COUNTED;
    if (!build->options->brief) cover(build, work, known);
}

static void add_event(fs_build *build, uint32_t index)
{
    uint32_t at;
    const fs_chunk *chunk = fs_build_chunk(build, index, &at);
    device_work work = {
        .start = chunk->start[at],
        .duration = chunk->duration[at] == FS_MISSING ? 0 : chunk->duration[at],
        .event = index,
        .launcher = fs_build_launcher(build, chunk, at),
        .device = fs_event_device(chunk, at),
        .timing = chunk->timing[at],
        .kind = chunk->kind[at],
        .has_row = chunk->kind[at] != FS_EVENT_INTERVAL,
        .estimated = (chunk->flags[at] & FS_EVENT_ESTIMATED) != 0,
    };
    work.rounding = fs_build_rounding(build, work.start, work.duration);
    if (work.has_row) {
        work.call = fs_build_call(build, index);
        fs_group *group = &build->groups[work.call->row];
        fs_add_to(&group->row.self_device_time_total, work.duration);
        fs_add_to(&group->row.device_time_total, work.duration);
        group->row.device_rounding += work.rounding;
        fs_call_state *state = &build->states[work.call - build->calls.calls];
        if (work.kind == FS_EVENT_KERNEL && work.call->launch_known)
            fs_resources_add(&group->resources, &state->resources, build->store, work.device, chunk->signature[at],
                             work.duration);
    }
    if (fs_event_kind_on_device[chunk->kind[at]]) add_work(build, &work); /* annotations are not work */
}

static void add_works(fs_build *slice, const uint32_t *works, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (i % FS_POLL_ROUNDS == 0 && fs_interrupted()) return;
        add_event(slice, works[i]);
    }
}

static void add_slice(fs_build *slice)
{
    add_works(slice, slice->works + slice->first_work, slice->end_work - slice->first_work);
}

fs_status fs_build_devices(fs_build *build, fs_error *err)
{
    if (build->work_count == 0) return FS_OK;
    FS_TRY(fs_counted_build(&build->counted, build->store, err));
    if (build->counted.count > 0) {
        size_t sums = (size_t)build->group_count * build->counted.devices;
        FS_TRY(FS_NEW_ZEROED(&build->counted_sums, sums, err));
    }
    if (!build->works_sorted) FS_TRY(build_sort_works(build, err));
    if (build->slice_count > 1) FS_TRY(FS_NEW(&build->places, build->work_count, err));
    FS_TRY(build_busy(build, err));
    FS_TRY(fs_counted_rows_find(build, err));
    FS_TRY(build_share_works(build, err));
    FS_TRY(fs_build_each_slice(build, add_slice, err));
    uint32_t shared = fs_build_slice(build, build->slice_count - 1)->end_work;
    add_works(build, build->works + shared, build->work_count - shared);
    FS_TRY(fs_interrupt_poll(err));
    return build->options->brief ? FS_OK : cover_unlinked(build, err);
}
