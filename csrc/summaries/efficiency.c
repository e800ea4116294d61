/* One pass gives each device its kernels and its other work within the selected time; the numbers are sums over these.
 * A fact that is missing for one kernel makes the number that needs it unknown for the device, rather than an average
 * over the rest. */
#include "summaries/efficiency.h"

#include <math.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "device/occupancy.h"
#include "store/accelerator.h"
#include "store/event.h"
#include "summaries/intervals.h"
#include "work/names.h"
#include "summaries/steps.h"

/* The shares of the units are unknown if kernels take more of the time whose names do not tell the unit. */
#define MOST_UNKNOWN 0.05

/* Properties of a launch on a device, cached per signature. */
typedef struct {
    int known_for;   /* device + 1; 0: not computed yet */
    int64_t blocks;  /* of the grid; 0: unknown */
    double achieved; /* occupancy in percent; NaN: unknown */
} launch_facts;

/* Activity of a device. */
typedef struct {
    fs_device_facts facts;
    fs_intervals others;            /* time covered by copies and fills */
    fs_intervals kernels;           /* within the selected time; tags are signatures */
    fs_intervals ends;              /* the same kernels at their ends */
    bool worked, unnamed, unplaced; /* unnamed, unplaced: some kernel has an unknown name, unknown blocks */
    double kernel_time, weighted_occupancy, class_time[FS_KERNEL_CLASS_COUNT]; /* ns, ns * percent, ns */
} device_use;

typedef struct {
    const fs_store *store;
    fs_intervals time; /* the selected time */
    fs_names names;
    launch_facts *launches; /* by signature */
    device_use *devices;    /* FS_DEVICE_LIMIT of them */
} measuring;

static const launch_facts *facts_of(measuring *all, int device, uint32_t signature)
{
    static const launch_facts nothing = {.achieved = NAN};
    if (signature == FS_NONE) return &nothing;
    launch_facts *found = &all->launches[signature];
    if (found->known_for == device + 1) return found;
    fs_launch launch;
    *found = nothing;
    found->known_for = device + 1;
    if (fs_launch_decode(fs_store_signature_bytes(all->store, signature).bytes, &launch)) {
        found->blocks = fs_product_of_three(launch.grid);
        found->achieved = fs_occupancy_estimate(&launch, &all->devices[device].facts).achieved_pct;
    }
    return found;
}

static fs_status add_kernel(measuring *all, int device, const fs_chunk *chunk, uint32_t at, fs_error *err)
{
    device_use *use = &all->devices[device];
    int64_t begin = chunk->start[at], end = fs_event_end(chunk, at);
    uint32_t signature = chunk->signature[at];
    uint32_t from = fs_intervals_first_after(&all->time, begin);
    double time = (double)fs_intervals_overlap(&all->time, &from, begin, end);
    if (time == 0) return FS_OK;

    const launch_facts *launch = facts_of(all, device, signature);
    use->kernel_time += time;
    use->weighted_occupancy += time * launch->achieved;
    use->class_time[fs_names_kernel_class(&all->names, chunk->name[at])] += time;
    if (chunk->kind[at] != FS_EVENT_KERNEL || chunk->name[at] == FS_NONE) use->unnamed = true;
    if (launch->blocks == 0) use->unplaced = true;
    FS_TRY(fs_intervals_add(&use->kernels, begin, end, signature, err));
    return fs_intervals_add(&use->ends, end, end, signature, err);
}

static fs_status add_events(measuring *all, fs_error *err)
{
    FS_EACH_EVENT(all->store, index, chunk, at) {
        FS_POLL(index, err);
        if (!fs_event_is_placed_work(chunk, at)) continue;
        int device = fs_event_device(chunk, at);
        device_use *use = &all->devices[device];
        if (!use->worked) use->facts = fs_store_device(all->store, device);
        use->worked = true;
        bool kernel = chunk->kind[at] == FS_EVENT_KERNEL || chunk->kind[at] == FS_EVENT_INTERVAL;
        if (kernel) FS_TRY(add_kernel(all, device, chunk, at, err));
        else FS_TRY(fs_intervals_cover(&use->others, chunk->start[at], fs_event_end(chunk, at), err));
    }
    return FS_OK;
}

/* Sum the part of the selected time that a list covers, in ns. */
static fs_status covered(const measuring *all, fs_intervals *list, double *sum, fs_error *err)
{
    uint32_t at = 0;
    int64_t reached = INT64_MIN;
    FS_TRY(fs_intervals_sort(list, err));
    *sum = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        int64_t begin = list->items[i].begin, end = list->items[i].end;
        if (begin < reached) begin = reached;
        if (end <= begin) continue;
        *sum += (double)fs_intervals_overlap(&all->time, &at, begin, end);
        reached = end;
    }
    return FS_OK;
}

/* Integrate min(blocks on the device / SMs, 1) over the time, in ns; NaN if blocks are unknown. A sweep over the sorted
 * starts and ends of kernels; blocks are integers, so additions and subtractions are exact. */
static fs_status sum_filled(measuring *all, int device, double *filled, fs_error *err)
{
    device_use *use = &all->devices[device];
    *filled = NAN;
    if (use->unplaced || use->facts.sm_count <= 0) return FS_OK;
    FS_TRY(fs_intervals_sort(&use->ends, err));
    uint32_t from = 0, begun = 0, ended = 0;
    int64_t blocks = 0, before = 0;
    *filled = 0;
    while (ended < use->ends.count) {
        bool begin = begun < use->kernels.count && use->kernels.items[begun].begin <= use->ends.items[ended].begin;
        const fs_interval *next = begin ? &use->kernels.items[begun++] : &use->ends.items[ended++];
        double share = fmin((double)blocks / (double)use->facts.sm_count, 1);
        if (blocks > 0) *filled += share * (double)fs_intervals_overlap(&all->time, &from, before, next->begin);
        int64_t more = facts_of(all, device, next->tag)->blocks;
        blocks = begin ? fs_add_saturated(blocks, more) : fs_sub_saturated(blocks, more);
        before = next->begin;
    }
    return FS_OK;
}

static fs_status fill_row(measuring *all, int device, fs_efficiency *row, fs_error *err)
{
    device_use *use = &all->devices[device];
    double time = (double)fs_intervals_total(&all->time), busy, kernels, filled;
    FS_TRY(covered(all, &use->kernels, &kernels, err));
    FS_TRY(sum_filled(all, device, &filled, err));
    for (uint32_t i = 0; i < use->kernels.count; i++) {
        FS_TRY(fs_intervals_cover(&use->others, use->kernels.items[i].begin, use->kernels.items[i].end, err));
    }
    FS_TRY(covered(all, &use->others, &busy, err));
    fs_accelerator accelerator = fs_store_accelerator(all->store);
    bool known = accelerator == FS_ACCELERATOR_CUDA || accelerator == FS_ACCELERATOR_HIP; /* the names of its kernels */
    bool untold = use->class_time[FS_KERNEL_UNKNOWN] > MOST_UNKNOWN * use->kernel_time;
    double by_name = use->unnamed || untold || !known ? NAN : 100 / use->kernel_time;
    *row = (fs_efficiency){
        .device = device,
        .gpu_utilization = 100 * kernels / time,
        .sm_efficiency = 100 * filled / time,
        .achieved_occupancy = use->weighted_occupancy / use->kernel_time,
        .tensor_core_time = by_name * (use->class_time[FS_KERNEL_TENSOR] + use->class_time[FS_KERNEL_MFMA]),
        .matrix_time = by_name * use->class_time[FS_KERNEL_MATRIX],
        .idle = 100 * (1 - busy / time),
    };
    return FS_OK;
}

static const char *name_of(const fs_store *store, const fs_step *step)
{
    return step->name == FS_NONE ? "" : fs_store_name_text(store, step->name);
}

static fs_status no_such_step(const fs_store *store, const char *step, const fs_steps *steps, fs_error *err)
{
    if (!steps->marked) return fs_fail(err, FS_VALUE_ERROR, "no step is named \"%s\": the profile has no steps", step);
    return fs_fail(err, FS_VALUE_ERROR, "no step is named \"%s\": the profile has %u steps, from \"%s\" to \"%s\"",
                   step, steps->count, name_of(store, &steps->steps[0]),
                   name_of(store, &steps->steps[steps->count - 1]));
}

/* Select the time of all steps or of the named one. */
static fs_status take_steps(measuring *all, const char *step, fs_error *err)
{
    fs_steps steps;
    fs_status status;
    bool found = step == NULL;
    FS_TRY(fs_steps_find(&steps, all->store, err));
    for (uint32_t i = 0; i < steps.count; i++) {
        if (step != NULL && strcmp(name_of(all->store, &steps.steps[i]), step) != 0) continue;
        found = true;
        FS_TRY_GOTO(status, fs_intervals_add(&all->time, steps.steps[i].begin, steps.steps[i].end, 0, err), done);
    }
    status = found ? FS_OK : no_such_step(all->store, step, &steps, err);
done:
    fs_steps_clear(&steps);
    return status;
}

static fs_status fill_rows(measuring *all, fs_efficiency **rows, uint32_t *count, fs_error *err)
{
    fs_efficiency *result = fs_calloc(FS_DEVICE_LIMIT, sizeof *result);
    if (result == NULL) return fs_no_memory(err);
    uint32_t filled = 0;
    for (int device = 0; device < FS_DEVICE_LIMIT; device++) {
        if (!all->devices[device].worked) continue;
        fs_status status = fill_row(all, device, &result[filled++], err);
        if (status == FS_OK) continue;
        fs_free(result);
        return status;
    }
    *rows = result;
    *count = filled;
    return FS_OK;
}

static void clear(measuring *all)
{
    for (int device = 0; all->devices != NULL && device < FS_DEVICE_LIMIT; device++) {
        device_use *use = &all->devices[device];
        fs_intervals_clear(&use->others);
        fs_intervals_clear(&use->kernels);
        fs_intervals_clear(&use->ends);
    }
    fs_free(all->devices);
    fs_free(all->launches);
    fs_names_clear(&all->names);
    fs_intervals_clear(&all->time);
}

fs_status fs_efficiency_of(const fs_store *store, const char *step, fs_efficiency **rows, uint32_t *count,
                           fs_error *err)
{
    fs_status status;
    measuring all = {.store = store};
    FS_TRY_GOTO(status, take_steps(&all, step, err), done);
    FS_TRY_GOTO(status, fs_names_create(&all.names, store, err), done);
    FS_TRY_GOTO(status, FS_NEW_ZEROED(&all.devices, FS_DEVICE_LIMIT, err), done);
    FS_TRY_GOTO(status, FS_NEW_ZEROED(&all.launches, fs_store_signature_count(store) + (size_t)1, err), done);
    FS_TRY_GOTO(status, add_events(&all, err), done);
    status = fill_rows(&all, rows, count, err);
done:
    clear(&all);
    return status;
}
