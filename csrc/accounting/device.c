/* The works of one device are listed by start, cut so that no instant is counted twice, and only then added up: works
 * [====1====] by start; tags are indices of the table's works [==2==] [======3======] 1 and 2 compute, 3 communicates,
 * 4 computes [=4=] by class [====1====] list_pieces: a work begins where the one before it in its class ends; 2 [=4=]
 * has nothing left [======3======] separate [====1====] [=3=][=4=][=3=] what an earlier class covers is taken from the
 * later ones idle ···········░░··············· the rest of the step: a cause for each part (idle.c) In each step the
 * exclusive times and the idle times add up to the step, because the lists are disjoint before add_pieces cuts them at
 * the steps' limits. A work counts in the step in which it begins; its time and its ideal time go to the steps in which
 * they are spent. Its ideal time is a budget that the pieces use up in order, so that it is never counted twice. A
 * share has some of the steps, and shares are added up by any number of threads: every cell and every gap is of one
 * step, hence of one share, and is summed in the order of time. Only a piece of a work that began before the step is
 * left for later, as its budget is shared: these are few, and are added in order when all shares are done. */
#include "accounting/device.h"

#include <math.h>
#include <string.h>

#include "accounting/idle.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/saturate.h"
#include "base/search.h"
#include "device/occupancy.h"
#include "store/event.h"
#include "summaries/intervals.h"
#include "table/table.h"

/* Pieces of work --------------------------------------------------------------------------------------------------- */

/* The time that belongs to each op on the CPU. Works come in order of their start. Each thread has a stack of those in
 * progress, of which the innermost owns the time; `listed` is the instant until which the thread's time is listed, so
 * its pieces are disjoint. Of the pieces of several threads, sorted by start, each then begins where those before it
 * end: an instant has one owner in the end, that of the piece that began first. */

/* The works that are in progress on one thread, and until when its time is listed. */
typedef struct {
    fs_intervals open; /* a stack: innermost last */
    int64_t listed;
} thread;

/* List the time of the thread until `time`, from the innermost work outwards, and close the works that have ended. */
static fs_status list_until(thread *on, int64_t time, fs_intervals *every, fs_error *err)
{
    while (on->open.count > 0) {
        const fs_interval *inner = &on->open.items[on->open.count - 1];
        int64_t end = inner->end < time ? inner->end : time;
        if (end > on->listed) {
            FS_TRY(fs_intervals_add(every, on->listed, end, inner->tag, err));
            on->listed = end;
        }
        if (inner->end > time) return FS_OK;
        on->open.count--;
    }
    return FS_OK;
}

static fs_status list_threads(thread *threads, uint32_t lanes, const fs_store *store, const fs_table *table,
                              const fs_intervals *works, fs_intervals *every, fs_error *err)
{
    uint32_t at;
    for (uint32_t i = 0; i < works->count; i++) {
        FS_POLL(i, err);
        const fs_interval *work = &works->items[i];
        uint32_t lane = fs_event_chunk(store, table->works[work->tag].event, &at)->lane[at];
        thread *on = &threads[lane < lanes ? lane : lanes];
        FS_TRY(list_until(on, work->begin, every, err));
        if (on->open.count == 0 || on->listed < work->begin) on->listed = work->begin;
        on->open.unsorted = false;
        FS_TRY(fs_intervals_add(&on->open, work->begin, work->end, work->tag, err));
    }
    for (uint32_t lane = 0; lane <= lanes; lane++) FS_TRY(list_until(&threads[lane], INT64_MAX, every, err));
    return fs_intervals_sort(every, err);
}

/* Fill `pieces` with the disjoint times, ascending, at which each work (the tag) is the innermost one on its thread; of
 * several threads, the work whose piece began first. `works` is sorted by begin, ties as in the store. */
static fs_status pieces_of_threads(fs_intervals *pieces, const fs_store *store, const fs_table *table,
                                   const fs_intervals *works, fs_error *err)
{
    uint32_t lanes = fs_store_lane_count(store);
    fs_intervals every = {0};
    int64_t reached = INT64_MIN;
    thread *threads = fs_calloc(lanes + (size_t)1, sizeof *threads);
    if (threads == NULL) return fs_no_memory(err);
    fs_status status;
    FS_TRY_GOTO(status, list_threads(threads, lanes, store, table, works, &every, err), done);
    for (uint32_t i = 0; i < every.count; i++) {
        if (i % FS_POLL_ROUNDS == 0) FS_TRY_GOTO(status, fs_interrupt_poll(err), done);
        int64_t begin = every.items[i].begin > reached ? every.items[i].begin : reached;
        if (begin >= every.items[i].end) continue;
        FS_TRY_GOTO(status, fs_intervals_add(pieces, begin, every.items[i].end, every.items[i].tag, err), done);
        reached = every.items[i].end;
    }
done:
    for (uint32_t lane = 0; lane <= lanes; lane++) fs_intervals_clear(&threads[lane].open);
    fs_intervals_clear(&every);
    fs_free(threads);
    return status;
}

/* Device ----------------------------------------------------------------------------------------------------------- */

enum { MOST_SHARES = FS_BLOCK(64, 8), FEW_WORKS = FS_BLOCK(1 << 13, 1 << 3), FILL_GRAIN = FS_BLOCK(1 << 14, 1 << 3) };

/* Time of a work in a step in which it did not begin. */
typedef struct {
    uint32_t step, tag;
    int64_t time;
} late_time;

typedef struct {
    late_time *items;
    uint32_t count, capacity;
} late_times;

typedef struct {
    uint32_t first, end; /* its steps */
    fs_sums sums;        /* cells and gaps */
    late_times late[FS_WORK_CLASS_COUNT];
    fs_idle_spans spans;
    uint32_t cells_before; /* cells of the result before its own */
} share;

/* A part of the work, for one thread, and how it went. */
typedef struct device_account device_account;
typedef struct {
    fs_status (*run)(device_account *of, share *of_share, fs_error *err);
    share *of_share;
    fs_status status;
    fs_error err;
} task;

struct device_account {
    fs_devices *all;
    int device;
    const uint32_t *order;
    uint32_t begin;
    fs_intervals works, lists[FS_WORK_CLASS_COUNT], busy;
    fs_idle idle;
    share *shares;
    uint32_t share_count, steps_each;
    task *tasks;
};

/* Cells ---------------------------------------------------------------------------------------------------------- */

/* Fill in the grid of a kernel's launch. */
static void describe_grid(const fs_store *store, int device, uint32_t signature, fs_cell *cell)
{
    fs_launch launch;
    if (device < 0 || signature == FS_NONE) return;
    if (!fs_launch_decode(fs_store_signature_bytes(store, signature).bytes, &launch)) return;
    fs_device_facts facts = fs_store_device(store, device);
    double blocks = fs_occupancy_residency(&launch, &facts).blocks * (double)facts.sm_count;
    cell->blocks = fs_product_of_three(launch.grid);
    if (blocks > 0 && facts.sm_count > 0) cell->resident = fs_whole_ns(blocks);
}

/* Works of a row whose least time is known in some calls only are in two cells. */
static fs_cell_key cell_key(const device_account *of, uint32_t step, uint32_t tag)
{
    const fs_work_facts *facts = of->all->facts;
    const fs_table_work *work = &of->all->table->works[tag];
    uint32_t row = fs_work_facts_model(facts, work)->row;
    return (fs_cell_key){(uint32_t)of->device, step, row, work->own_row, facts->budgets[tag] >= 0};
}

static fs_status cell_of(const device_account *of, fs_sums *sums, uint32_t step, uint32_t tag, uint32_t *index,
                         fs_error *err)
{
    const fs_work_facts *facts = of->all->facts;
    const fs_table_work *work = &of->all->table->works[tag], *model = fs_work_facts_model(facts, work);
    FS_TRY(fs_sums_cell(sums, cell_key(of, step, tag), index, err));
    fs_cell *cell = &sums->cells[*index];
    if (cell->event >= 0) return FS_OK;
    cell->class = facts->classes[tag];
    cell->row = fs_row_number(model->row);
    cell->kernel = fs_row_number(work->own_row);
    describe_grid(of->all->store, of->device, FS_EVENT_AT(of->all->store, work->event, signature), cell);
    cell->event = work->event;
    cell->owner = fs_row_number(model->owner);
    cell->ideal = facts->budgets[tag] < 0 ? -1 : 0;
    return FS_OK;
}

/* Add a part of the times of a work's FLOPs and bytes. */
static void add_limits(fs_cell *cell, const fs_table_work *work, double part)
{
    if (!isnan(work->compute_ns)) cell->compute += part * work->compute_ns;
    if (work->active && !isnan(work->compute_ns)) cell->active += part * work->compute_ns;
    if (!isnan(work->memory_ns)) cell->memory += part * work->memory_ns;
}

/* Count the works that begin in the steps of a share. Into a window also those count that began before it, for the part
 * of their FLOPs and bytes. */
static fs_status count_works(device_account *of, share *in, fs_error *err)
{
    const fs_devices *all = of->all;
    const fs_step *steps = all->steps->steps;
    uint32_t step = in->first, count = of->works.count;
    bool is_window = all->steps->first > 0;
    uint32_t i = is_window ? 0 : FS_FIRST_NOT(j, 0, count, of->works.items[j].begin < steps[step].begin);
    for (; i < count; i++) {
        FS_POLL(i, err);
        const fs_interval *item = &of->works.items[i];
        while (step < in->end && steps[step].end <= item->begin) step++;
        if (step == in->end) break;
        bool began = steps[step].begin <= item->begin;
        if (!began && (!is_window || item->end <= steps[step].begin)) continue;
        const fs_table_work *work = &all->table->works[item->tag];
        FS_TRY(cell_of(of, &in->sums, step, item->tag, &all->cells[item->tag], err));
        fs_cell *cell = &in->sums.cells[all->cells[item->tag]];
        add_limits(cell, work, is_window ? fs_work_share(work, &steps[step]) : 1);
        if (!began) continue;
        cell->count++;
        cell->casts += all->facts->copying[item->tag] == FS_COPY_CASTS;
        cell->reorders += all->facts->copying[item->tag] == FS_COPY_REORDERS;
        fs_add_to(&cell->busy, fs_work_length(work));
    }
    return FS_OK;
}

/* Add exclusive time of a work. */
static void add_time(const device_account *of, fs_cell *cell, uint32_t tag, int64_t time)
{
    const fs_work_facts *facts = of->all->facts;
    int64_t *budget = &facts->budgets[tag];
    fs_add_to(&cell->exclusive, time);
    if (facts->copying[tag] == FS_COPY_CASTS) fs_add_to(&cell->cast, time);
    if (facts->copying[tag] == FS_COPY_REORDERS) fs_add_to(&cell->reordered, time);
    if (*budget < 0 || cell->ideal < 0) return;
    int64_t spent = time < *budget ? time : *budget;
    *budget -= spent;
    fs_add_to(&cell->ideal, spent);
}

static fs_status add_late(late_times *list, uint32_t step, uint32_t tag, int64_t time, fs_error *err)
{
    return FS_LIST_ADD(&list->items, &list->count, &list->capacity, 16, err, (late_time){step, tag, time});
}

/* Add the exclusive times in the steps of a share, cut at their limits. */
static fs_status add_pieces(device_account *of, share *in, fs_error *err)
{
    const fs_step *steps = of->all->steps->steps;
    for (int class = 0; class < FS_WORK_CLASS_COUNT; class++) {
        const fs_intervals *list = &of->lists[class];
        uint32_t first = in->first, i = fs_intervals_first_after(list, steps[first].begin);
        for (; i < list->count && list->items[i].begin < steps[in->end - 1].end; i++) {
            FS_POLL(i, err);
            const fs_interval *piece = &list->items[i];
            int64_t began = of->all->table->works[piece->tag].start;
            while (first < in->end && steps[first].end <= piece->begin) first++;
            for (uint32_t step = first; step < in->end && steps[step].begin < piece->end; step++) {
                const fs_step *at = &steps[step];
                int64_t begin = piece->begin > at->begin ? piece->begin : at->begin;
                int64_t time = fs_sub_saturated(piece->end < at->end ? piece->end : at->end, begin);
                if (time <= 0) continue;
                if (began >= at->begin) add_time(of, &in->sums.cells[of->all->cells[piece->tag]], piece->tag, time);
                else FS_TRY(add_late(&in->late[class], step, piece->tag, time, err));
            }
        }
    }
    return FS_OK;
}

static fs_status add_idle(device_account *of, share *in, fs_error *err)
{
    return fs_idle_add(&of->idle, in->first, in->end, &in->sums, of->all->lists ? &in->spans : NULL, err);
}

/* Lists ---------------------------------------------------------------------------------------------------------- */

/* Return the only class with exclusive times, if these do not even touch, else -1. Their union is the same list. */
static int only_class(const device_account *of)
{
    int only = -1;
    for (int class = 0; class < FS_WORK_CLASS_COUNT; class++) {
        const fs_intervals *list = &of->lists[class];
        if (list->count == 0) continue;
        if (only >= 0) return -1;
        for (uint32_t i = 1; i < list->count; i++)
            if (list->items[i].begin <= list->items[i - 1].end) return -1;
        only = class;
    }
    return only;
}

/* Make the exclusive times of each class disjoint from those of the classes before it, and unite all. */
static fs_status separate(device_account *of, fs_error *err)
{
    int only = only_class(of);
    of->idle.busy = only >= 0 ? &of->lists[only] : &of->busy;
    for (int class = 0; class < FS_WORK_CLASS_COUNT && only < 0; class++) {
        fs_intervals *list = &of->lists[class];
        if (list->count == 0) continue;
        if (of->busy.count > 0) FS_TRY(fs_intervals_subtract(list, &of->busy, NULL, err));
        for (uint32_t i = 0; i < list->count; i++) {
            FS_POLL(i, err);
            FS_TRY(fs_intervals_cover(&of->busy, list->items[i].begin, list->items[i].end, err));
        }
        FS_TRY(fs_intervals_unite(&of->busy, err));
    }
    return FS_OK;
}

static fs_status list_pieces(device_account *of, share *none, fs_error *err)
{
    (void)none;
    int64_t reached[FS_WORK_CLASS_COUNT];
    const fs_devices *all = of->all;
    for (int class = 0; class < FS_WORK_CLASS_COUNT; class++) reached[class] = INT64_MIN;
    if (of->device < 0)
        FS_TRY(pieces_of_threads(&of->lists[FS_WORK_COMPUTATION], all->store, all->table, &of->works, err));
    for (uint32_t i = 0; i < of->works.count && of->device >= 0; i++) {
        FS_POLL(i, err);
        const fs_interval *work = &of->works.items[i];
        uint8_t class = all->facts->classes[work->tag];
        int64_t begin = work->begin > reached[class] ? work->begin : reached[class];
        if (begin >= work->end) continue;
        FS_TRY(fs_intervals_add(&of->lists[class], begin, work->end, work->tag, err));
        reached[class] = work->end;
    }
    FS_TRY(separate(of, err));
    return fs_idle_find_arrival(&of->idle, err);
}

/* Add the pairs of works that follow one another on a stream, and count the launches. */
static fs_status follow_streams(device_account *of, share *none, fs_error *err)
{
    (void)none;
    fs_devices *all = of->all;
    fs_launch_counts counts = {0};
    if (of->device < 0) return FS_OK;
    for (uint32_t i = 0; i < of->works.count; i++) {
        FS_POLL(i, err);
        uint32_t at, tag = of->works.items[i].tag;
        const fs_table_work *work = &all->table->works[tag];
        const fs_chunk *chunk = fs_event_chunk(all->store, work->event, &at);
        uint32_t lane = chunk->lane[at];
        (void)fs_launch_counts_add(&counts, &all->launched, of->device, chunk, at, all->facts->calls[tag]);
        if (lane == FS_NONE) continue;
        if (all->last_rows[lane] != FS_NONE && work->row != FS_NONE)
            FS_TRY(fs_sums_pair(&all->sums, all->last_rows[lane], work->row, work->event, err));
        all->last_rows[lane] = work->row;
    }
    all->launching[all->launching_count++] =
        (fs_launching){of->device, counts.kernels, counts.launches, counts.with_past, counts.bound};
    return FS_OK;
}

/* Threads -------------------------------------------------------------------------------------------------------- */

static void run_tasks(void *context, int64_t begin, int64_t end)
{
    device_account *of = context;
    for (int64_t i = begin; i < end; i++)
        of->tasks[i].status = of->tasks[i].run(of, of->tasks[i].of_share, &of->tasks[i].err);
}

/* Run the tasks, of a few works one after another. The first failure counts. */
static fs_status run_all(device_account *of, uint32_t count, fs_error *err)
{
    fs_parallel_for(count, of->works.count < FEW_WORKS ? count : 1, run_tasks, of);
    for (uint32_t i = 0; i < count; i++) FS_TRY(fs_status_of(of->tasks[i].status, &of->tasks[i].err, err));
    return fs_interrupt_poll(err);
}

static void fill_works(void *context, int64_t begin, int64_t end)
{
    device_account *of = context;
    const fs_table_work *works = of->all->table->works;
    bool unsorted = false;
    for (int64_t i = begin; i < end; i++) {
        uint32_t at = of->begin + (uint32_t)i, tag = of->order != NULL ? of->order[at] : at;
        of->works.items[i] = (fs_interval){works[tag].start, works[tag].end, tag};
        if (i == 0) continue;
        uint32_t before = of->order != NULL ? of->order[at - 1] : at - 1;
        unsorted = unsorted || works[tag].start < works[before].start;
    }
    if (unsorted) __atomic_store_n(&of->works.unsorted, true, __ATOMIC_RELAXED);
}

/* List the works by start. */
static fs_status list_works(device_account *of, uint32_t count, fs_error *err)
{
    FS_TRY(FS_NEW(&of->works.items, count, err));
    of->works.count = of->works.capacity = count;
    fs_parallel_for(count, FILL_GRAIN, fill_works, of);
    FS_TRY(fs_interrupt_poll(err));
    return fs_intervals_sort(&of->works, err);
}

static fs_status make_shares(device_account *of, fs_error *err)
{
    uint32_t first = of->all->steps->first, steps = of->all->steps->count - first;
    of->steps_each = steps / MOST_SHARES + (steps % MOST_SHARES > 0);
    of->share_count = steps > 0 ? (steps - 1) / of->steps_each + 1 : 0;
    FS_TRY(FS_NEW_ZEROED(&of->shares, of->share_count, err));
    FS_TRY(FS_NEW_ZEROED(&of->tasks, 2 * ((size_t)of->share_count + 1), err));
    for (uint32_t i = 0; i < of->share_count; i++) {
        of->shares[i].first = first + i * of->steps_each;
        of->shares[i].end = first + (i + 1 < of->share_count ? (i + 1) * of->steps_each : steps);
    }
    return FS_OK;
}

/* Add the times of works in steps in which they did not begin. */
static fs_status add_late_times(device_account *of, const share *in, int class, fs_sums *rest, fs_error *err)
{
    fs_sums *sums = &of->all->sums;
    for (uint32_t i = 0; i < in->late[class].count; i++) {
        const late_time *late = &in->late[class].items[i];
        uint32_t found = fs_sums_find_cell(&in->sums, cell_key(of, late->step, late->tag)), index;
        if (found != FS_NONE) {
            add_time(of, &sums->cells[in->cells_before + found], late->tag, late->time);
            continue;
        }
        FS_TRY(cell_of(of, rest, late->step, late->tag, &index, err));
        add_time(of, &rest->cells[index], late->tag, late->time);
    }
    return FS_OK;
}

static fs_status add_spans(fs_devices *all, const fs_idle_spans *spans, fs_error *err)
{
    uint32_t last = all->span_count + spans->count - 1;
    if (spans->count == 0) return FS_OK;
    FS_TRY(FS_LIST_ROOM(&all->spans, last, &all->span_capacity, 64, err));
    memcpy(all->spans + all->span_count, spans->items, spans->count * sizeof *spans->items);
    all->span_count += spans->count;
    return FS_OK;
}

/* Append what the shares have to the result. Cells in which no work began come last. */
static fs_status join_shares(device_account *of, fs_error *err)
{
    fs_status status = FS_OK;
    fs_sums *rest = fs_calloc(1, sizeof *rest);
    if (rest == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < of->share_count; i++) {
        of->shares[i].cells_before = of->all->sums.cell_count;
        FS_TRY_GOTO(status, fs_sums_append(&of->all->sums, &of->shares[i].sums, err), done);
        FS_TRY_GOTO(status, add_spans(of->all, &of->shares[i].spans, err), done);
    }
    for (int class = 0; class < FS_WORK_CLASS_COUNT; class++)
        for (uint32_t i = 0; i < of->share_count; i++)
            FS_TRY_GOTO(status, add_late_times(of, &of->shares[i], class, rest, err), done);
    status = fs_sums_append(&of->all->sums, rest, err);
done:
    fs_sums_clear(rest);
    fs_free(rest);
    return status;
}

static fs_status account(device_account *of, uint32_t count, fs_error *err)
{
    FS_TRY(list_works(of, count, err));
    FS_TRY(make_shares(of, err));
    uint32_t tasks = 0;
    of->tasks[tasks++] = (task){.run = list_pieces};
    of->tasks[tasks++] = (task){.run = follow_streams};
    for (uint32_t i = 0; i < of->share_count; i++)
        of->tasks[tasks++] = (task){.run = count_works, .of_share = &of->shares[i]};
    FS_TRY(run_all(of, tasks, err));
    tasks = 0;
    for (uint32_t i = 0; i < of->share_count; i++) {
        of->tasks[tasks++] = (task){.run = add_idle, .of_share = &of->shares[i]};
        of->tasks[tasks++] = (task){.run = add_pieces, .of_share = &of->shares[i]};
    }
    FS_TRY(run_all(of, tasks, err));
    return join_shares(of, err);
}

static void clear(device_account *of)
{
    for (uint32_t i = 0; of->shares != NULL && i < of->share_count; i++) {
        fs_sums_clear(&of->shares[i].sums);
        for (int class = 0; class < FS_WORK_CLASS_COUNT; class++) fs_free(of->shares[i].late[class].items);
        fs_free(of->shares[i].spans.items);
    }
    for (int class = 0; class < FS_WORK_CLASS_COUNT; class++) fs_intervals_clear(&of->lists[class]);
    fs_intervals_clear(&of->works);
    fs_intervals_clear(&of->busy);
    fs_free(of->shares);
    fs_free(of->tasks);
}

fs_status fs_devices_add(fs_devices *all, int device, const uint32_t *order, uint32_t begin, uint32_t end,
                         fs_error *err)
{
    if (begin == end) return FS_OK;
    device_account of = {.all = all, .device = device, .order = order, .begin = begin};
    of.idle = (fs_idle){.store = all->store,
                        .table = all->table,
                        .steps = all->steps,
                        .calls = all->facts->calls,
                        .host = all->host,
                        .works = &of.works,
                        .device = device};
    fs_status status = account(&of, end - begin, err);
    clear(&of);
    return status;
}

fs_status fs_devices_begin(fs_devices *all, fs_error *err)
{
    size_t lanes = fs_store_lane_count(all->store) + (size_t)1;
    FS_TRY(FS_NEW(&all->cells, all->table->work_count + (size_t)1, err));
    FS_TRY(FS_NEW(&all->last_rows, lanes, err));
    FS_TRY(FS_NEW(&all->launching, FS_DEVICE_LIMIT, err));
    memset(all->last_rows, 0xff, lanes * sizeof *all->last_rows); /* FS_NONE */
    return fs_launch_marks_create(&all->launched, all->store, err);
}

void fs_devices_clear(fs_devices *all)
{
    fs_sums_clear(&all->sums);
    fs_launch_marks_clear(&all->launched);
    fs_free(all->spans);
    fs_free(all->last_rows);
    fs_free(all->cells);
    fs_free(all->launching);
}
