/* First the host and each piece of work are looked at, then the works of one device after another are added up. */
#include "accounting/accounting.h"

#include <math.h>
#include <string.h>

#include "accounting/device.h"
#include "base/intern.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "store/event.h"

/* Parts of cells --------------------------------------------------------------------------------------------------- */

/* The parts of the accounting to which cells and gaps belong, and the ops of cells. A cell's time beyond its ideal
 * belongs to one part: that of its class if it does not compute, else that of what bounds its row. So cells of a row
 * whose work is known only in some calls have two parts, and are two ops: an op is what has one device, one row and one
 * part. Work of no row is of an op for each kernel, and so is work of a range of which the program states nothing: its
 * kernels may have nothing in common. */

static const uint8_t class_parts[FS_WORK_CLASS_COUNT] = {
    [FS_WORK_COMPUTATION] = FS_PART_unmodelled,
    [FS_WORK_COMMUNICATION] = FS_PART_communication,
    [FS_WORK_COPY] = FS_PART_copy,
    [FS_WORK_COMPILATION] = FS_PART_compilation,
};

static const uint8_t cause_parts[FS_IDLE_CAUSE_COUNT] = {
#define CAUSE_PART(NAME, name, part, label, prose) [FS_IDLE_##NAME] = FS_PART_##part,
    FS_IDLE_CAUSE_LIST(CAUSE_PART)
#undef CAUSE_PART
};

/* The part of each bound, which bounds.def names; FS_PART_COUNT: that of the larger term of the roofline. */
static void find_bound_parts(uint8_t parts[FS_BOUND_COUNT])
{
    for (int bound = 0; bound < FS_BOUND_COUNT; bound++) {
        parts[bound] = 0;
        while (parts[bound] < FS_PART_COUNT && strcmp(fs_parts[parts[bound]].name, fs_bounds[bound].part) != 0)
            parts[bound]++;
    }
}

static int64_t part_of(const fs_cell *cell, const fs_table *table, const uint8_t bound_parts[FS_BOUND_COUNT])
{
    if (cell->class != FS_WORK_COMPUTATION || cell->ideal < 0) return class_parts[cell->class];
    const fs_row *row = cell->row >= 0 ? &table->rows[cell->row] : NULL;
    const fs_row *kernel = cell->kernel >= 0 ? &table->rows[cell->kernel] : NULL;
    /* What counters know of a kernel, where nothing is known of what launched it. */
    if ((row == NULL || row->bound == FS_BOUND_UNKNOWN) && kernel != NULL && kernel->roof.counted) row = kernel;
    if (row == NULL) return class_parts[cell->class];
    bool computes = row->pct_peak_flops > row->pct_peak_bandwidth || isnan(row->pct_peak_bandwidth);
    if (bound_parts[row->bound] < FS_PART_COUNT) return bound_parts[row->bound];
    return computes ? FS_PART_compute : FS_PART_memory;
}

/* Whether a row is a range whose work, if it is known, is that of its kernels. */
static bool is_bare_range(const fs_row *row)
{
    if (!row->is_user_annotation) return false;
    return row->bytes_source != FS_SOURCE_STATED && row->flops_source != FS_SOURCE_STATED;
}

/* Fill in `part` and `op` of all cells, and `part` of all gaps. FS_OUT_OF_MEMORY. */
static fs_status cell_parts_find(fs_accounting *accounting, const fs_table *table, fs_error *err)
{
    fs_status status = FS_OK;
    fs_intern ops = {0}; /* ids are in order of first use */
    uint8_t bound_parts[FS_BOUND_COUNT];
    find_bound_parts(bound_parts);
    for (uint32_t i = 0; status == FS_OK && i < accounting->cell_count; i++) {
        fs_cell *cell = &accounting->cells[i];
        uint32_t op;
        if (cell->row >= 0 && cell->kernel >= 0 && is_bare_range(&table->rows[cell->row])) cell->row = -1;
        cell->part = part_of(cell, table, bound_parts);
        const int64_t key[] = {cell->device, cell->row, cell->row < 0 ? cell->kernel : -1, cell->part};
        status = fs_intern_bytes(&ops, key, sizeof key, &op, err);
        cell->op = op;
    }
    for (uint32_t i = 0; i < accounting->gap_count; i++)
        accounting->gaps[i].part = cause_parts[accounting->gaps[i].cause];
    fs_intern_clear(&ops);
    return status;
}

/* Accounting ------------------------------------------------------------------------------------------------------- */

#define CAUSE_OF(NAME, name, part, label, prose) #name,
const char *const fs_idle_cause_names[] = {FS_IDLE_CAUSE_LIST(CAUSE_OF)};
#define PART_OF(NAME, name, part, label, prose) #part,
const char *const fs_idle_cause_parts[] = {FS_IDLE_CAUSE_LIST(PART_OF)};
#define LABEL_OF(NAME, name, part, label, prose) label,
const char *const fs_idle_cause_labels[] = {FS_IDLE_CAUSE_LIST(LABEL_OF)};

/* The state of an accounting under construction. */
typedef struct {
    fs_api_calls calls;
    fs_names names;
    fs_host host;
    fs_work_facts facts;
    fs_devices devices;
    uint32_t *order; /* the works by device; one device's are in the order of the table; NULL: one device has all */
} accountant;

static fs_status account_all(accountant *all, fs_error *err)
{
    uint32_t places[FS_DEVICE_LIMIT]; /* by device: where its works begin in the order */
    const fs_table *table = all->devices.table;
    uint32_t next = 0;
    if (!table->has_device) return fs_devices_add(&all->devices, -1, NULL, 0, table->work_count, err);
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        if (all->facts.counts[device] == table->work_count)
            return fs_devices_add(&all->devices, device, NULL, 0, table->work_count, err);
        places[device] = next;
        next += all->facts.counts[device];
    }
    FS_TRY(FS_NEW(&all->order, table->work_count, err));
    for (uint32_t i = 0; i < table->work_count; i++) {
        uint32_t at;
        FS_POLL(i, err);
        const fs_chunk *chunk = fs_event_chunk(all->devices.store, table->works[i].event, &at);
        all->order[places[fs_event_device(chunk, at)]++] = i;
    }
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) { /* places[device] is now the end of its works */
        uint32_t begin = places[device] - all->facts.counts[device];
        FS_TRY(fs_devices_add(&all->devices, device, all->order, begin, places[device], err));
    }
    return FS_OK;
}

/* Move what was found to the result. */
static void take(accountant *all, fs_accounting *accounting)
{
    fs_devices *devices = &all->devices;
    accounting->launch_median = all->host.launch_median;
    accounting->spans = devices->spans;
    accounting->span_count = devices->span_count;
    accounting->launching = devices->launching;
    accounting->launching_count = devices->launching_count;
    devices->spans = NULL;
    devices->launching = NULL;
    fs_sums_take(&devices->sums, accounting);
}

/* Keep of a window's steps the window. */
static void keep_window(fs_accounting *accounting)
{
    fs_steps *steps = &accounting->steps;
    steps->steps[0] = steps->steps[steps->first];
    accounting->hosts[0] = accounting->hosts[steps->first];
    for (uint32_t i = 0; i < accounting->cell_count; i++) accounting->cells[i].step = 0;
    for (uint32_t i = 0; i < accounting->gap_count; i++) accounting->gaps[i].step = 0;
    steps->count = 1;
    steps->first = 0;
}

typedef struct {
    int64_t begin, end; /* ns since the profile began */
} window;

/* between: NULL for the steps. */
static fs_status build(fs_accounting *accounting, const fs_store *store, const fs_table *table, bool list,
                       const window *between, fs_error *err)
{
    fs_status status;
    *accounting = (fs_accounting){0};
    accountant *all = fs_calloc(1, sizeof *all);
    if (all == NULL) return fs_no_memory(err);
    fs_devices *devices = &all->devices;
    devices->store = store;
    devices->table = table;
    devices->steps = &accounting->steps;
    devices->host = &all->host;
    devices->facts = &all->facts;
    devices->lists = list;
    FS_TRY_GOTO(status, fs_api_calls_create(&all->calls, store, err), done);
    FS_TRY_GOTO(status, fs_steps_find_with(&accounting->steps, store, &all->calls, err), done);
    if (between != NULL)
        FS_TRY_GOTO(status, fs_steps_cut(&accounting->steps, store, between->begin, between->end, err), done);
    FS_TRY_GOTO(status, fs_names_create(&all->names, store, err), done);
    FS_TRY_GOTO(status, FS_NEW_ZEROED(&accounting->hosts, accounting->steps.count + (size_t)1, err), done);
    FS_TRY_GOTO(
        status,
        fs_host_prepare(&all->host, store, table, &accounting->steps, &all->calls, &all->names, accounting->hosts, err),
        done);
    FS_TRY_GOTO(
        status,
        fs_work_facts_find(&all->facts, store, table, &all->host, &all->calls, &all->names, &devices->sums, err), done);
    if (between != NULL) fs_work_facts_cut(&all->facts, &accounting->steps.steps[accounting->steps.first]);
    FS_TRY_GOTO(status, fs_devices_begin(devices, err), done);
    FS_TRY_GOTO(status, account_all(all, err), done);
    take(all, accounting);
    if (between != NULL) keep_window(accounting);
    FS_TRY_GOTO(status, cell_parts_find(accounting, table, err), done);
done:
    fs_api_calls_clear(&all->calls);
    fs_names_clear(&all->names);
    fs_host_clear(&all->host);
    fs_work_facts_clear(&all->facts);
    fs_devices_clear(devices);
    fs_free(all->order);
    fs_free(all);
    if (status != FS_OK) fs_accounting_clear(accounting);
    return status;
}

fs_status fs_accounting_build(fs_accounting *accounting, const fs_store *store, const fs_table *table, fs_error *err)
{
    return build(accounting, store, table, false, NULL, err);
}

fs_status fs_accounting_list(fs_accounting *accounting, const fs_store *store, const fs_table *table, fs_error *err)
{
    return build(accounting, store, table, true, NULL, err);
}

fs_status fs_accounting_of_window(fs_accounting *accounting, const fs_store *store, const fs_table *table,
                                  int64_t begin, int64_t end, fs_error *err)
{
    return build(accounting, store, table, false, &(window){begin, end}, err);
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
    fs_free(accounting->launching);
    *accounting = (fs_accounting){0};
}
