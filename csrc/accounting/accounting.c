/* The works of one device are listed by start, cut so that no instant is counted twice, and only then added up:
 *
 *   works      [====1====]                    by start; tags are indices of the table's works
 *                  [==2==]  [======3======]   1 and 2 compute, 3 communicates, 4 computes
 *                                [=4=]
 *   by class   [====1====]                    account_device: a work begins where the one before it in its class ends;
 *                                [=4=]        2 has nothing left
 *                           [======3======]
 *   separate   [====1====]  [=3=][=4=][=3=]   what an earlier class covers is taken from the later ones
 *   idle       ···········░░···············   the rest of the step: a cause for each part (idle.c)
 *
 * In each step the exclusive times and the idle times add up to the step, because the lists are disjoint before
 * add_pieces cuts them at the steps' limits. A work counts in the step in which it begins; its time and its ideal time
 * go to the steps in which they are spent. Its ideal time is a budget that the pieces use up in order, so that it is
 * never counted twice. Devices follow one another, and share the lists' memory. */
#include "accounting/accounting.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "accounting/idle.h"
#include "accounting/cell_parts.h"
#include "accounting/pieces.h"
#include "accounting/sums.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "device/occupancy.h"
#include "store/event.h"
#include "work/copying.h"
#include "work/names.h"

#define NAME_OF(NAME, name, prose) #name,
const char *const fs_work_class_names[] = {FS_WORK_CLASS_LIST(NAME_OF)};
#define CAUSE_OF(NAME, name, part, label, prose) #name,
const char *const fs_idle_cause_names[] = {FS_IDLE_CAUSE_LIST(CAUSE_OF)};
#define PART_OF(NAME, name, part, label, prose) #part,
const char *const fs_idle_cause_parts[] = {FS_IDLE_CAUSE_LIST(PART_OF)};
#define LABEL_OF(NAME, name, part, label, prose) label,
const char *const fs_idle_cause_labels[] = {FS_IDLE_CAUSE_LIST(LABEL_OF)};

typedef struct {
    const fs_store *store;
    const fs_table *table;
    const fs_steps *steps;
    fs_api_calls calls;
    fs_names names;
    fs_host host;
    fs_idle idle;
    /* By work. */
    int64_t *budgets; /* ns of its ideal time that are not yet spent; -1: unknown */
    uint32_t *cells;  /* of the step in which it began, or FS_NONE */
    uint32_t *order;  /* the works by device; one device's are in the order of the table; NULL: one device has all */
    uint8_t *classes;
    uint32_t *owners; /* by row of a kernel: a work with an owner, or FS_NONE */
    uint8_t *copying; /* by signature: an fs_copying + 1; 0: not yet known */
    fs_sums sums;
    fs_intervals lists[FS_WORK_CLASS_COUNT]; /* of one device: its exclusive times; tags are works */
    fs_intervals works;                      /* of one device, by start; tags are works */
    fs_intervals busy;                       /* of one device */
    uint32_t *last_rows;                     /* by lane: row of the last work, or FS_NONE */
} accountant;

/* What the op of a work copies besides the place of elements, as far as it was recorded. */
static fs_copying copying_of(accountant *all, const fs_table_work *work)
{
    uint32_t signature = work->owner != FS_NONE ? FS_EVENT_AT(all->store, work->owner, signature) : FS_NONE;
    if (signature == FS_NONE) return FS_COPY_PLAIN;
    uint8_t *seen = &all->copying[signature];
    if (*seen == 0) {
        fs_span bytes = fs_store_signature_bytes(all->store, signature);
        *seen = (uint8_t)(fs_work_copying(bytes.bytes, bytes.size) + 1);
    }
    return (fs_copying)(*seen - 1);
}

static fs_work_class class_of(accountant *all, const fs_chunk *chunk, uint32_t at)
{
    if (chunk->kind[at] == FS_EVENT_MEMSET) return FS_WORK_COPY;
    if (chunk->kind[at] == FS_EVENT_MEMCPY) {
        bool inside = chunk->name[at] != FS_NONE && strstr(fs_store_name_text(all->store, chunk->name[at]), "DtoD");
        return inside ? FS_WORK_COMPUTATION : FS_WORK_COPY;
    }
    if (chunk->kind[at] != FS_EVENT_KERNEL) return FS_WORK_COMPUTATION;
    bool communicates = fs_names_communicate(&all->names, chunk->name[at]);
    return communicates ? FS_WORK_COMMUNICATION : FS_WORK_COMPUTATION;
}

/* Works without an owner, such as those launched before the recording began, are accounted as other works of the same
 * kernel. */
static const fs_table_work *model_of(const accountant *all, const fs_table_work *work)
{
    if (work->row != FS_NONE || work->own_row == FS_NONE || all->owners[work->own_row] == FS_NONE) return work;
    return &all->table->works[all->owners[work->own_row]];
}

/* A hostile trace may have durations below 0. */
static int64_t length_of(const fs_table_work *work)
{
    return work->end > work->start ? fs_sub_saturated(work->end, work->start) : 0;
}

/* A time that a double holds, as an integer. */
static int64_t whole(double ns)
{
    return (int64_t)fmax(fmin(ns, 9e18), 0);
}

static int64_t budget_of(const fs_table_work *work, const fs_table_work *model)
{
    double duration = (double)length_of(model);
    if (isnan(model->least_ns)) return -1;
    if (work == model) return whole(model->least_ns);
    return duration > 0 ? whole(fmin(model->least_ns / duration, 1) * (double)length_of(work)) : 0;
}

static fs_status allocate(accountant *all, fs_error *err)
{
    const fs_table *table = all->table;
    size_t works = table->work_count + (size_t)1, rows = table->row_count + (size_t)1;
    size_t lanes = fs_store_lane_count(all->store) + (size_t)1;
    all->budgets = fs_malloc(works * sizeof *all->budgets);
    all->cells = fs_malloc(works * sizeof *all->cells);
    all->classes = fs_malloc(works * sizeof *all->classes);
    all->owners = fs_malloc(rows * sizeof *all->owners);
    all->copying = fs_calloc(fs_store_signature_count(all->store) + (size_t)1, sizeof *all->copying);
    all->last_rows = fs_malloc(lanes * sizeof *all->last_rows);
    if (all->budgets == NULL || all->cells == NULL || all->classes == NULL || all->owners == NULL ||
        all->copying == NULL || all->last_rows == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to account for %u pieces of work", table->work_count);
    memset(all->cells, 0xff, works * sizeof *all->cells);
    memset(all->owners, 0xff, rows * sizeof *all->owners);
    memset(all->last_rows, 0xff, lanes * sizeof *all->last_rows);
    return FS_OK;
}

/* Classify the works, and count those of each device in counts[device + 1]. */
static fs_status look_at_works(accountant *all, uint32_t counts[FS_DEVICE_LIMIT + 1], fs_error *err)
{
    const fs_table *table = all->table;
    for (uint32_t i = 0; i < table->work_count; i++) {
        const fs_table_work *work = &table->works[i];
        uint32_t at;
        FS_POLL(i, err);
        const fs_chunk *chunk = fs_event_chunk(all->store, work->event, &at);
        all->classes[i] = (uint8_t)class_of(all, chunk, at);
        counts[fs_event_device(chunk, at) + 1]++;
        if (chunk->kind[at] == FS_EVENT_KERNEL) FS_TRY(fs_host_note_kernel(&all->host, &all->calls, work->event, err));
        if (work->row == FS_NONE || work->own_row == FS_NONE) continue;
        FS_TRY(fs_sums_launched(&all->sums, work->row, work->own_row, length_of(work), err));
        if (all->owners[work->own_row] == FS_NONE) all->owners[work->own_row] = i;
    }
    fs_host_end_launches(&all->host);
    for (uint32_t i = 0; i < table->work_count; i++) { /* now that all owners are known */
        FS_POLL(i, err);
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
    if (blocks > 0 && facts.sm_count > 0) cell->resident = whole(blocks);
}

static fs_status cell_of(accountant *all, int device, uint32_t step, uint32_t tag, uint32_t *index, fs_error *err)
{
    const fs_table_work *work = &all->table->works[tag];
    uint32_t row = model_of(all, work)->row;
    FS_TRY(fs_sums_cell(&all->sums, device, step, row, work->own_row, index, err));
    fs_cell *cell = &all->sums.cells[*index];
    if (cell->event >= 0) return FS_OK;
    cell->class = all->classes[tag];
    cell->row = row_number(row);
    cell->kernel = row_number(work->own_row);
    describe_grid(all, device, FS_EVENT_AT(all->store, work->event, signature), cell);
    cell->event = work->event;
    cell->owner = row_number(model_of(all, work)->owner);
    cell->ideal = all->budgets[tag] < 0 ? -1 : 0;
    return FS_OK;
}

/* Count a work in the step in which it begins. */
static fs_status count_work(accountant *all, int device, uint32_t step, uint32_t tag, fs_error *err)
{
    const fs_table_work *work = &all->table->works[tag];
    FS_TRY(cell_of(all, device, step, tag, &all->cells[tag], err));
    fs_cell *cell = &all->sums.cells[all->cells[tag]];
    cell->count++;
    fs_copying copying = copying_of(all, work);
    cell->casts += copying == FS_COPY_CASTS;
    cell->reorders += copying == FS_COPY_REORDERS;
    fs_add_to(&cell->busy, length_of(work));
    if (!isnan(work->compute_ns)) cell->compute += work->compute_ns;
    if (!isnan(work->memory_ns)) cell->memory += work->memory_ns;
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
            int64_t time = fs_sub_saturated(piece->end < in->end ? piece->end : in->end, begin);
            int64_t *budget = &all->budgets[piece->tag];
            uint32_t index = all->cells[piece->tag];
            if (time <= 0) continue;
            if (index == FS_NONE || all->sums.cells[index].step != step)
                FS_TRY(cell_of(all, device, step, piece->tag, &index, err));
            fs_cell *cell = &all->sums.cells[index];
            fs_add_to(&cell->exclusive, time);
            fs_copying copying = copying_of(all, &all->table->works[piece->tag]);
            if (copying == FS_COPY_CASTS) fs_add_to(&cell->cast, time);
            if (copying == FS_COPY_REORDERS) fs_add_to(&cell->reordered, time);
            if (*budget < 0 || cell->ideal < 0) continue;
            int64_t spent = time < *budget ? time : *budget;
            *budget -= spent;
            fs_add_to(&cell->ideal, spent);
        }
    }
    return FS_OK;
}

/* Add the pair of a work and the one before it on its stream. */
static fs_status add_pair(accountant *all, const fs_table_work *work, fs_error *err)
{
    uint32_t lane = FS_EVENT_AT(all->store, work->event, lane);
    if (lane == FS_NONE) return FS_OK;
    if (all->last_rows[lane] != FS_NONE && work->row != FS_NONE)
        FS_TRY(fs_sums_pair(&all->sums, all->last_rows[lane], work->row, work->event, err));
    all->last_rows[lane] = work->row;
    return FS_OK;
}

/* Make the exclusive times of each class disjoint from those of the classes before it, and unite all. */
static fs_status separate(accountant *all, fs_error *err)
{
    for (int class = 0; class < FS_WORK_CLASS_COUNT; class++) {
        fs_intervals *list = &all->lists[class];
        if (list->count == 0) continue;
        if (all->busy.count > 0) FS_TRY(fs_intervals_subtract(list, &all->busy, NULL, err));
        for (uint32_t i = 0; i < list->count; i++) {
            FS_POLL(i, err);
            FS_TRY(fs_intervals_cover(&all->busy, list->items[i].begin, list->items[i].end, err));
        }
        FS_TRY(fs_intervals_unite(&all->busy, err));
    }
    return FS_OK;
}

static void empty(fs_intervals *list)
{
    list->count = 0;
    list->unsorted = false;
}

static fs_status account_device(accountant *all, int device, fs_error *err)
{
    int64_t reached[FS_WORK_CLASS_COUNT] = {INT64_MIN, INT64_MIN, INT64_MIN};
    uint32_t at = 0;
    for (int class = 0; class < FS_WORK_CLASS_COUNT; class++) empty(&all->lists[class]);
    empty(&all->busy);
    FS_TRY(fs_intervals_sort(&all->works, err));
    if (device < 0)
        FS_TRY(fs_pieces_of_threads(&all->lists[FS_WORK_COMPUTATION], all->store, all->table, &all->works, err));
    for (uint32_t i = 0; i < all->works.count; i++) {
        const fs_interval *work = &all->works.items[i];
        uint8_t class = all->classes[work->tag];
        uint32_t step = step_at(all->steps, &at, work->begin);
        FS_POLL(i, err);
        if (step != FS_NONE) FS_TRY(count_work(all, device, step, work->tag, err));
        if (device < 0) continue;
        FS_TRY(add_pair(all, &all->table->works[work->tag], err));
        int64_t begin = work->begin > reached[class] ? work->begin : reached[class];
        if (begin >= work->end) continue;
        FS_TRY(fs_intervals_add(&all->lists[class], begin, work->end, work->tag, err));
        reached[class] = work->end;
    }
    FS_TRY(separate(all, err));
    for (int class = 0; class < FS_WORK_CLASS_COUNT; class++) {
        FS_TRY(add_pieces(all, device, (fs_work_class)class, err));
    }
    return fs_idle_add(&all->idle, &all->sums, device, &all->works, &all->busy, err);
}

/* Account for works[order[begin … end - 1]], or for works[begin … end - 1] if the order is NULL. */
static fs_status account_some(accountant *all, int device, uint32_t begin, uint32_t end, fs_error *err)
{
    if (begin == end) return FS_OK;
    empty(&all->works);
    for (uint32_t i = begin; i < end; i++) {
        uint32_t tag = all->order != NULL ? all->order[i] : i;
        const fs_table_work *work = &all->table->works[tag];
        FS_POLL(i, err);
        FS_TRY(fs_intervals_add(&all->works, work->start, work->end, tag, err));
    }
    return account_device(all, device, err);
}

static fs_status account_all(accountant *all, fs_error *err)
{
    uint32_t places[FS_DEVICE_LIMIT + 1] = {0}; /* by device: where its works begin in the order */
    const fs_table *table = all->table;
    FS_TRY(look_at_works(all, places, err));
    if (!table->has_device) return account_some(all, -1, 0, table->work_count, err);
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        if (places[device + 1] == table->work_count) return account_some(all, device, 0, table->work_count, err);
    }
    all->order = fs_malloc(table->work_count * sizeof *all->order);
    if (all->order == NULL)
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to account for %u pieces of work", table->work_count);
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) places[device + 1] += places[device];
    for (uint32_t i = 0; i < table->work_count; i++) {
        uint32_t at;
        FS_POLL(i, err);
        const fs_chunk *chunk = fs_event_chunk(all->store, table->works[i].event, &at);
        all->order[places[fs_event_device(chunk, at)]++] = i;
    }
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) { /* places[device] is now the end of its works */
        FS_TRY(account_some(all, device, device > 0 ? places[device - 1] : 0, places[device], err));
    }
    return FS_OK;
}

static fs_status build(fs_accounting *accounting, const fs_store *store, const fs_table *table, bool list,
                       fs_error *err)
{
    fs_status status;
    *accounting = (fs_accounting){0};
    accountant *all = fs_calloc(1, sizeof *all);
    if (all == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for an accounting");
    all->store = store;
    all->table = table;
    all->steps = &accounting->steps;
    FS_TRY_GOTO(status, fs_api_calls_create(&all->calls, store, err), done);
    FS_TRY_GOTO(status, fs_steps_find_with(&accounting->steps, store, &all->calls, err), done);
    FS_TRY_GOTO(status, fs_names_create(&all->names, store, err), done);
    FS_TRY_GOTO(status, allocate(all, err), done);
    accounting->hosts = fs_calloc(accounting->steps.count + (size_t)1, sizeof *accounting->hosts);
    if (accounting->hosts == NULL) {
        status = fs_fail(err, FS_OUT_OF_MEMORY, "no memory to account for %u steps", accounting->steps.count);
        goto done;
    }
    FS_TRY_GOTO(status,
                fs_host_prepare(&all->host, store, table, all->steps, &all->calls, &all->names, accounting->hosts, err),
                done);
    all->idle = (fs_idle){store, table, all->steps, &all->calls, &all->host, .lists = list};
    FS_TRY_GOTO(status, account_all(all, err), done);
    fs_idle_take_spans(&all->idle, accounting);
    accounting->launch_median = all->host.launch_median;
    fs_sums_take(&all->sums, accounting);
    FS_TRY_GOTO(status, fs_cell_parts_find(accounting, table, err), done);
done:
    fs_api_calls_clear(&all->calls);
    fs_names_clear(&all->names);
    fs_host_clear(&all->host);
    fs_idle_clear(&all->idle);
    fs_sums_clear(&all->sums);
    for (int class = 0; class < FS_WORK_CLASS_COUNT; class++) fs_intervals_clear(&all->lists[class]);
    fs_intervals_clear(&all->works);
    fs_intervals_clear(&all->busy);
    fs_free(all->budgets);
    fs_free(all->cells);
    fs_free(all->order);
    fs_free(all->classes);
    fs_free(all->owners);
    fs_free(all->copying);
    fs_free(all->last_rows);
    fs_free(all);
    if (status != FS_OK) fs_accounting_clear(accounting);
    return status;
}

fs_status fs_accounting_build(fs_accounting *accounting, const fs_store *store, const fs_table *table, fs_error *err)
{
    return build(accounting, store, table, false, err);
}

fs_status fs_accounting_list(fs_accounting *accounting, const fs_store *store, const fs_table *table, fs_error *err)
{
    return build(accounting, store, table, true, err);
}

void fs_accounting_clear(fs_accounting *accounting)
{
    fs_steps_clear(&accounting->steps);
    fs_free(accounting->hosts);
    fs_free(accounting->cells);
    fs_free(accounting->gaps);
    fs_free(accounting->pairs);
    fs_free(accounting->launched);
    fs_free(accounting->spans);
    *accounting = (fs_accounting){0};
}
