#include "accounting/accounting.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "accounting/idle.h"
#include "accounting/pieces.h"
#include "accounting/sums.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "device/occupancy.h"
#include "store/event.h"
#include "work/names.h"

#define NAME_OF(NAME, name, prose) #name,
const char *const fs_work_class_names[] = {FS_WORK_CLASS_LIST(NAME_OF)};
const char *const fs_idle_cause_names[] = {FS_IDLE_CAUSE_LIST(NAME_OF)};

typedef struct {
    const fs_store *store;
    const fs_table *table;
    const fs_steps *steps;
    fs_names names;
    fs_idle idle;
    int64_t *budgets;       /* by work: ns of its ideal time that are not yet spent; -1: unknown */
    const uint32_t *owners; /* by row of a kernel: a work with an owner, or FS_NONE */
    fs_sums sums;
    fs_intervals lists[FS_WORK_CLASS_COUNT]; /* of one device: its exclusive times; tags are works */
    fs_intervals works;                      /* of one device, by start; tags are works */
    fs_intervals busy;                       /* of one device */
    uint32_t *last_rows;                     /* by lane: row of the last work, or FS_NONE */
} accountant;

static fs_work_class class_of(accountant *all, const fs_table_work *work)
{
    uint32_t at;
    const fs_chunk *chunk = fs_event_chunk(all->store, work->event, &at);
    if (chunk->kind[at] == FS_EVENT_MEMSET) return FS_WORK_COPY;
    if (chunk->kind[at] == FS_EVENT_MEMCPY) {
        bool inside = chunk->name[at] != FS_NONE && strstr(fs_store_name_text(all->store, chunk->name[at]), "DtoD");
        return inside ? FS_WORK_COMPUTATION : FS_WORK_COPY;
    }
    if (chunk->kind[at] != FS_EVENT_KERNEL) return FS_WORK_COMPUTATION;
    bool communicates = fs_names_kernel_class(&all->names, chunk->name[at]) == FS_KERNEL_COMMUNICATION;
    return communicates ? FS_WORK_COMMUNICATION : FS_WORK_COMPUTATION;
}

/* Works without an owner, such as those launched before the recording began, are accounted as other works of the same
 * kernel. */
static const fs_table_work *model_of(const accountant *all, const fs_table_work *work)
{
    if (work->row != FS_NONE || work->own_row == FS_NONE || all->owners[work->own_row] == FS_NONE) return work;
    return &all->table->works[all->owners[work->own_row]];
}

static int64_t budget_of(const fs_table_work *work, const fs_table_work *model)
{
    double duration = (double)(model->end - model->start);
    if (isnan(model->least_ns)) return -1;
    if (work == model) return (int64_t)fmin(model->least_ns, 9e18);
    return duration > 0 ? (int64_t)(fmin(model->least_ns / duration, 1) * (double)(work->end - work->start)) : 0;
}

static fs_status prepare_works(accountant *all, uint32_t **owners, fs_error *err)
{
    const fs_table *table = all->table;
    all->budgets = fs_malloc((table->work_count + (size_t)1) * sizeof *all->budgets);
    *owners = fs_malloc((table->row_count + (size_t)1) * sizeof **owners);
    if (all->budgets == NULL || *owners == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to account for %u pieces of work", table->work_count);
    all->owners = *owners;
    for (uint32_t row = 0; row < table->row_count; row++) (*owners)[row] = FS_NONE;
    for (uint32_t i = 0; i < table->work_count; i++) {
        const fs_table_work *work = &table->works[i];
        if (work->row == FS_NONE || work->own_row == FS_NONE || (*owners)[work->own_row] != FS_NONE) continue;
        (*owners)[work->own_row] = i;
    }
    for (uint32_t i = 0; i < table->work_count; i++) {
        all->budgets[i] = budget_of(&table->works[i], model_of(all, &table->works[i]));
    }
    return FS_OK;
}

/* The step that contains a time, or FS_NONE. `at` is a cursor for ascending times. */
static uint32_t step_at(const fs_steps *steps, uint32_t *at, int64_t time)
{
    while (*at < steps->count && steps->steps[*at].end <= time) (*at)++;
    return *at < steps->count && steps->steps[*at].begin <= time ? *at : FS_NONE;
}

static int64_t row_number(uint32_t row)
{
    return row == FS_NONE ? -1 : (int64_t)row;
}

/* Fill in the grid of a kernel's launch. */
static void describe_grid(const accountant *all, int device, uint32_t signature, fs_cell *cell)
{
    fs_launch launch;
    if (device < 0 || signature == FS_NONE) return;
    if (!fs_launch_decode(fs_store_signature_bytes(all->store, signature).bytes, &launch)) return;
    fs_device_facts facts = fs_store_device(all->store, device);
    double blocks = fs_occupancy_theoretical(&launch, &facts).blocks * (double)facts.sm_count;
    cell->blocks = fs_product_of_three(launch.grid);
    if (blocks > 0 && facts.sm_count > 0) cell->resident = (int64_t)blocks;
}

static fs_status cell_of(accountant *all, int device, uint32_t step, uint32_t tag, fs_work_class class, fs_cell **cell,
                         fs_error *err)
{
    const fs_table_work *work = &all->table->works[tag];
    uint32_t row = model_of(all, work)->row;
    FS_TRY(fs_sums_cell(&all->sums, device, step, row, work->own_row, cell, err));
    fs_cell *found = *cell;
    if (found->event >= 0) return FS_OK;
    found->class = class;
    found->row = row_number(row);
    found->kernel = row_number(work->own_row);
    describe_grid(all, device, FS_EVENT_AT(all->store, work->event, signature), found);
    found->event = work->event;
    found->owner = row_number(work->owner);
    found->ideal = all->budgets[tag] < 0 ? -1 : 0;
    return FS_OK;
}

/* Count the works that begin in each step. */
static fs_status count_works(accountant *all, int device, fs_error *err)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < all->works.count; i++) {
        FS_POLL(i, err);
        uint32_t tag = all->works.items[i].tag, step = step_at(all->steps, &at, all->works.items[i].begin);
        const fs_table_work *work = &all->table->works[tag];
        fs_cell *cell;
        if (step == FS_NONE) continue;
        FS_TRY(cell_of(all, device, step, tag, class_of(all, work), &cell, err));
        cell->count++;
        fs_add_to(&cell->busy, fs_sub_saturated(work->end, work->start));
        if (!isnan(work->compute_ns)) cell->compute += work->compute_ns;
        if (!isnan(work->memory_ns)) cell->memory += work->memory_ns;
    }
    return FS_OK;
}

/* Add the exclusive times of a class, cut at the steps' limits. */
static fs_status add_pieces(accountant *all, int device, fs_work_class class, fs_error *err)
{
    const fs_intervals *list = &all->lists[class];
    uint32_t first = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        FS_POLL(i, err);
        const fs_interval *piece = &list->items[i];
        while (first < all->steps->count && all->steps->steps[first].end <= piece->begin) first++;
        for (uint32_t step = first; step < all->steps->count && all->steps->steps[step].begin < piece->end; step++) {
            const fs_step *in = &all->steps->steps[step];
            int64_t begin = piece->begin > in->begin ? piece->begin : in->begin;
            int64_t time = (piece->end < in->end ? piece->end : in->end) - begin;
            int64_t *budget = &all->budgets[piece->tag];
            fs_cell *cell;
            FS_TRY(cell_of(all, device, step, piece->tag, class, &cell, err));
            fs_add_to(&cell->exclusive, time);
            if (*budget < 0 || cell->ideal < 0) continue;
            int64_t spent = time < *budget ? time : *budget;
            *budget -= spent;
            cell->ideal += spent;
        }
    }
    return FS_OK;
}

static fs_status add_pairs(accountant *all, fs_error *err)
{
    uint32_t at;
    for (uint32_t lane = 0; lane < fs_store_lane_count(all->store); lane++) all->last_rows[lane] = FS_NONE;
    for (uint32_t i = 0; i < all->works.count; i++) {
        const fs_table_work *work = &all->table->works[all->works.items[i].tag];
        uint32_t lane = fs_event_chunk(all->store, work->event, &at)->lane[at];
        if (lane == FS_NONE) continue;
        if (all->last_rows[lane] != FS_NONE && work->row != FS_NONE)
            FS_TRY(fs_sums_pair(&all->sums, all->last_rows[lane], work->row, work->event, err));
        all->last_rows[lane] = work->row;
    }
    return FS_OK;
}

/* Make the exclusive times of each class disjoint from those of the classes before it, and unite all. */
static fs_status separate(accountant *all, fs_error *err)
{
    int64_t *unused = fs_malloc((all->table->work_count + (size_t)1) * sizeof *unused);
    fs_status status = FS_OK;
    if (unused == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to account for overlapping work");
    for (int class = 0; class < FS_WORK_CLASS_COUNT; class++) {
        fs_intervals *list = &all->lists[class];
        if (list->count > 0 && all->busy.count > 0) {
            memset(unused, 0, (all->table->work_count + (size_t)1) * sizeof *unused);
            FS_TRY_GOTO(status, fs_intervals_subtract(list, &all->busy, unused, err), done);
        }
        for (uint32_t i = 0; i < list->count; i++) {
            FS_TRY_GOTO(status, fs_intervals_cover(&all->busy, list->items[i].begin, list->items[i].end, err), done);
        }
        FS_TRY_GOTO(status, fs_intervals_unite(&all->busy, err), done);
    }
done:
    fs_free(unused);
    return status;
}

static void empty(fs_intervals *list)
{
    list->count = 0;
    list->unsorted = false;
}

static fs_status account_device(accountant *all, int device, fs_error *err)
{
    for (int class = 0; class < FS_WORK_CLASS_COUNT; class++) empty(&all->lists[class]);
    empty(&all->busy);
    FS_TRY(fs_intervals_sort(&all->works, err));
    if (device < 0) {
        FS_TRY(fs_pieces_of_threads(&all->lists[FS_WORK_COMPUTATION], all->store, all->table, &all->works, err));
    } else {
        int64_t reached[FS_WORK_CLASS_COUNT] = {INT64_MIN, INT64_MIN, INT64_MIN};
        for (uint32_t i = 0; i < all->works.count; i++) {
            const fs_interval *work = &all->works.items[i];
            fs_work_class class = class_of(all, &all->table->works[work->tag]);
            int64_t begin = work->begin > reached[class] ? work->begin : reached[class];
            if (begin >= work->end) continue;
            FS_TRY(fs_intervals_add(&all->lists[class], begin, work->end, work->tag, err));
            reached[class] = work->end;
        }
        FS_TRY(add_pairs(all, err));
    }
    FS_TRY(separate(all, err));
    FS_TRY(count_works(all, device, err));
    for (int class = 0; class < FS_WORK_CLASS_COUNT; class++) {
        FS_TRY(add_pieces(all, device, (fs_work_class)class, err));
    }
    return fs_idle_add(&all->idle, &all->sums, device, &all->works, &all->busy, err);
}

static fs_status account_all(accountant *all, fs_error *err)
{
    const fs_table *table = all->table;
    bool worked[FS_DEVICE_LIMIT] = {false};
    if (!table->has_device) {
        for (uint32_t i = 0; i < table->work_count; i++) {
            FS_TRY(fs_intervals_add(&all->works, table->works[i].start, table->works[i].end, i, err));
        }
        return table->work_count > 0 ? account_device(all, -1, err) : FS_OK;
    }
    for (uint32_t i = 0; i < table->work_count; i++) {
        uint32_t at;
        const fs_chunk *chunk = fs_event_chunk(all->store, table->works[i].event, &at);
        worked[fs_event_device(chunk, at)] = true;
    }
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        if (!worked[device]) continue;
        empty(&all->works);
        for (uint32_t i = 0; i < table->work_count; i++) {
            uint32_t at;
            const fs_chunk *chunk = fs_event_chunk(all->store, table->works[i].event, &at);
            if (fs_event_device(chunk, at) != device) continue;
            FS_TRY(fs_intervals_add(&all->works, table->works[i].start, table->works[i].end, i, err));
        }
        FS_TRY(account_device(all, device, err));
    }
    return FS_OK;
}

fs_status fs_accounting_build(fs_accounting *accounting, const fs_store *store, const fs_table *table, fs_error *err)
{
    fs_status status;
    uint32_t *owners = NULL;
    accountant all = {.store = store, .table = table, .steps = &accounting->steps};
    *accounting = (fs_accounting){0};
    FS_TRY_GOTO(status, fs_steps_find(&accounting->steps, store, err), done);
    FS_TRY_GOTO(status, fs_names_create(&all.names, store, err), done);
    FS_TRY_GOTO(status, prepare_works(&all, &owners, err), done);
    all.last_rows = fs_malloc((fs_store_lane_count(store) + (size_t)1) * sizeof *all.last_rows);
    accounting->hosts = fs_calloc(accounting->steps.count + (size_t)1, sizeof *accounting->hosts);
    if (all.last_rows == NULL || accounting->hosts == NULL) {
        status = fs_fail(err, FS_OUT_OF_MEMORY, "no memory to account for %u steps", accounting->steps.count);
        goto done;
    }
    FS_TRY_GOTO(status, fs_idle_prepare(&all.idle, store, table, &accounting->steps, &all.names, err), done);
    fs_idle_describe_hosts(&all.idle, accounting->hosts);
    FS_TRY_GOTO(status, account_all(&all, err), done);
    fs_sums_take(&all.sums, accounting);
done:
    fs_names_clear(&all.names);
    fs_idle_clear(&all.idle);
    fs_sums_clear(&all.sums);
    for (int class = 0; class < FS_WORK_CLASS_COUNT; class++) fs_intervals_clear(&all.lists[class]);
    fs_intervals_clear(&all.works);
    fs_intervals_clear(&all.busy);
    fs_free(all.budgets);
    fs_free(owners);
    fs_free(all.last_rows);
    if (status != FS_OK) fs_accounting_clear(accounting);
    return status;
}

void fs_accounting_clear(fs_accounting *accounting)
{
    fs_steps_clear(&accounting->steps);
    fs_free(accounting->hosts);
    fs_free(accounting->cells);
    fs_free(accounting->gaps);
    fs_free(accounting->pairs);
    *accounting = (fs_accounting){0};
}
