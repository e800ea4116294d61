/* Adds device work to its launchers and rows: own device times, busy times, coverage. */
#include "table/devices.h"

#include <math.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "table/scan.h"
#include "table/totals.h"
#include "work/registered.h"

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

typedef struct {
    uint64_t key; /* time since the first start; a missing start sorts first */
    uint32_t event;
} sort_entry;

typedef struct {
    int64_t start, duration; /* ns; duration: 0 if missing */
    uint32_t event, launcher;
    int device;
    uint8_t timing, kind;
    bool has_row;   /* an INTERVAL has none */
    bool estimated; /* its launcher is inferred */
    fs_call *call;  /* NULL if it has no row */
} device_work;

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

/* List the device events by start in `entries`, which has twice their number; returns where the sorted half begins. A
 * radix sort, because unordered events come from many streams at once; fs_intervals_sort has larger entries and makes
 * the whole table half as slow again. */
static const sort_entry *sort_works(const fs_build *build, sort_entry *entries)
{
    sort_entry *from = entries, *to = entries + build->work_count;
    uint32_t count = 0;
    uint64_t least = UINT64_MAX, largest = 0;
    for (uint32_t index = 0; index < build->count; index++) {
        uint32_t at;
        const fs_chunk *chunk = fs_event_chunk(build->store, index, &at);
        if (!fs_build_is_device(chunk, at)) continue;
        uint64_t key = (uint64_t)chunk->start[at] - (uint64_t)INT64_MIN;
        from[count++] = (sort_entry){key, index};
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
    return from;
}

/* Add what was counted during the work to a row; of work that was not counted, only the time. */
static void add_counted(fs_build *build, const fs_group *group, const device_work *work)
{
    if (build->counted_sums == NULL) return;
    const fs_counted_work unknown = {.end = work->duration};
    const fs_counted_work *counted = fs_counted_of(&build->counted, work->event);
    if (counted == NULL) counted = &unknown;
    size_t place = (size_t)(group - build->groups) * build->counted.devices + counted->device;
    fs_counted_add(&build->counted_sums[place], counted);
}

/* Add the part of the work's time during which the row was not busy yet; `ends` holds the latest end by row and
 * device. */
static void add_busy(fs_build *build, fs_group *group, const device_work *work, int64_t *ends)
{
    add_counted(build, group, work);
    if (work->timing < group->device_timing) group->device_timing = work->timing;
    if (work->start == FS_MISSING) { /* without a start, no overlap is known */
        fs_add_to(&group->row.device_busy_time, work->duration);
        return;
    }
    int64_t *end = &ends[(size_t)(group - build->groups) * build->device_count + (size_t)work->device];
    int64_t from = work->start > *end ? work->start : *end, to = fs_add_saturated(work->start, work->duration);
    if (to <= from) return;
    fs_add_to(&group->row.device_busy_time, fs_sub_saturated(to, from));
    *end = to;
}

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
    fs_known known = {false, false};
    fs_call *kernel = work->call;
    if (kernel == NULL || !kernel->has_work) return known;
    uint32_t op = owner != FS_NONE ? owner : work->launcher;
    if (op != FS_NONE && FS_EVENT_AT(build->store, op, kind) != FS_EVENT_OP) op = FS_NONE;
    /* The work is the op's, and the time is in the kernel's row too: other kernels of that row give it no rates. */
    if (op != FS_NONE) build->groups[kernel->row].untimed = true;
    if (owner != FS_NONE && fs_build_call(build, owner)->work.needs != FS_NEEDS_KERNELS) return known;
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
                                  node != NULL ? &node->kernels : &alone, &found);
    } else if (kernel->worked_for != asked) {
        is_known = kernel->works = fs_work_of_registered(kernel->text, &torch, &kernel->worked);
        found = kernel->worked;
        kernel->worked_for = asked;
    }
    known.flops = is_known && !isnan(found.flops);
    known.bytes = is_known && !isnan(found.bytes_moved);
    if (!known.flops && !known.bytes) {
        if (of == NULL) supply_unknown(build, kernel);
        return known;
    }
    fs_group *group = of != NULL ? &build->groups[of->row] : &build->groups[kernel->row];
    supply(build, group, node, of, &found, work);
    if (!kernel->registered) fs_add_to(&group->estimated_ns, work->duration);
    return known;
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

static void count_known(fs_table *table, double ns, fs_known known)
{
    table->modelled_base_ns += ns;
    if (known.flops) table->flops_known_ns += ns;
    if (known.bytes) table->bytes_known_ns += ns;
}

static void cover(fs_build *build, const device_work *work, fs_known known)
{
    fs_call *call = work->call;
    if (call != NULL && call->communication) return;
    /* The bytes of a copy or a fill are recorded with it. */
    if (work->kind == FS_EVENT_MEMCPY || work->kind == FS_EVENT_MEMSET) known = (fs_known){true, true};
    else if (call != NULL && !known.flops && !known.bytes && enclosing_op(build, work->launcher) == FS_NONE) {
        fs_add_to(&call->unlinked_ns, work->duration);
        return;
    }
    count_known(build->table, (double)work->duration, known);
    if (call != NULL) {
        call->flops_linked = call->flops_linked || known.flops;
        call->bytes_linked = call->bytes_linked || known.bytes;
        call->linked_unknown = call->linked_unknown || !known.bytes;
    }
    if (known.bytes) return;
    uint32_t named = enclosing_op(build, work->launcher);
    if (named == FS_NONE) named = work->has_row ? work->event : work->launcher;
    if (named != FS_NONE) fs_add_to(&fs_build_group(build, named)->unmodelled_ns, work->duration);
}

/* Whether the work of a kernel is known from its op, as flags. */
enum { FLOPS_LINKED = 1, BYTES_LINKED = 2, LINKED_UNKNOWN = 4 };

static uint8_t linked_work(const fs_call *call)
{
    return (uint8_t)((call->flops_linked ? FLOPS_LINKED : 0) | (call->bytes_linked ? BYTES_LINKED : 0) |
                     (call->linked_unknown ? LINKED_UNKNOWN : 0));
}

/* Cover kernels without an op, such as those launched before the profile began. They are attributed to the op of other
 * kernels with the same name and launch, or with the same name alone if their launch was not recorded (ROCm omits it
 * for kernels launched before the profile began). If the work of any of those is unknown, theirs is too. */
static fs_status cover_unlinked(fs_build *build, fs_error *err)
{
    uint32_t names = fs_store_name_count(build->store);
    uint8_t *linked = fs_calloc(names, sizeof *linked); /* by name, over all launches */
    if (linked == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to group kernels by %u names", names);
    for (uint32_t i = 0; i < build->calls.count; i++) {
        const fs_call *call = &build->calls.calls[i];
        uint32_t name = (uint32_t)(call->key >> 32);
        if (call->kind == FS_EVENT_KERNEL && name < names) linked[name] |= linked_work(call);
    }
    for (uint32_t i = 0; i < build->calls.count; i++) {
        const fs_call *call = &build->calls.calls[i];
        uint32_t name = (uint32_t)(call->key >> 32);
        if (call->unlinked_ns == 0) continue;
        unsigned by = linked_work(call);
        if (!call->launch_known && call->kind == FS_EVENT_KERNEL && name < names) by = linked[name];
        bool sure = (by & LINKED_UNKNOWN) == 0;
        fs_known known = {sure && (by & FLOPS_LINKED) != 0, sure && (by & BYTES_LINKED) != 0};
        count_known(build->table, (double)call->unlinked_ns, known);
        if (!known.bytes) fs_add_to(&build->groups[call->row].unmodelled_ns, call->unlinked_ns);
    }
    fs_free(linked);
    return FS_OK;
}

/* Add the work to the enclosing ranges with declared work, from the innermost outwards. */
static void add_stated(fs_build *build, const device_work *work, int64_t *ends)
{
    const fs_group *before = fs_build_group(build, work->launcher);
    uint32_t range = fs_build_node(build, work->launcher)->stated;
    for (; range != FS_NONE; range = fs_build_outer_stated(build, range)) {
        fs_group *group = fs_build_group(build, range);
        if (range != work->launcher) own(build, fs_build_node(build, range), work);
        if (group != before) add_busy(build, group, work, ends);
        before = group;
    }
}

/* Return whether the launcher is of the capture of a graph, which only a mark is not. */
static bool is_replayed(const fs_build *build, uint32_t launcher)
{
    if (launcher == FS_NONE) return false;
    return (FS_EVENT_AT(build->store, launcher, flags) & (FS_EVENT_REPLAYED | FS_EVENT_MARK)) == FS_EVENT_REPLAYED;
}

static void add_work(fs_build *build, const device_work *work, int64_t *ends)
{
    fs_known known = {false, false}, supplied = {false, false};
    fs_add_to(&build->table->self_device_ns, work->duration);
    if (work->launcher != FS_NONE) {
        fs_node *launcher = fs_build_node(build, work->launcher);
        fs_group *group = fs_build_group(build, work->launcher);
        uint32_t owner = launcher->owner;
        fs_add_to(&launcher->self_device_ns, work->duration);
        fs_add_to(&launcher->device_ns, work->duration);
        launcher->device_rounding += fs_build_rounding(build, work->start, work->duration);
        own(build, launcher, work);
        add_busy(build, group, work, ends);
        if (owner != FS_NONE) add_launched(build, owner, work);
        if (work->call != NULL && work->call->has_work) {
            supplied = add_kernel(build, owner, work);
            launcher = fs_build_node(build, work->launcher);
        }
        if (owner != FS_NONE) add_estimated(build, owner, work, supplied.bytes);
        if (owner != FS_NONE && owner != work->launcher) {
            fs_group *owners = fs_build_group(build, owner);
            own(build, fs_build_node(build, owner), work);
            if (owners != group) add_busy(build, owners, work, ends);
        }
        if (launcher->stated != FS_NONE) add_stated(build, work, ends);
        if (!build->options->brief) known = fs_build_known(build, launcher);
    } else {
        build->has_unlinked_work = true;
        supplied = add_kernel(build, FS_NONE, work);
    }
    if (work->call != NULL && work->call->of_graph && !is_replayed(build, work->launcher))
        fs_add_to(&build->table->unseen_graph_ns, work->duration);
    known.flops = known.flops || supplied.flops;
    known.bytes = known.bytes || supplied.bytes;
    if (!build->options->brief) cover(build, work, known);
}

/* The shortest kernel of a trace, if it takes only a few µs, approximates the time of an empty kernel. */
enum { LONGEST_EMPTY_NS = 3000 };

static void track_shortest(fs_build *build, const device_work *work)
{
    if (work->timing != FS_TIMING_TRACE || work->duration <= 0 || work->duration > LONGEST_EMPTY_NS) return;
    if (build->shortest_kernel_ns == 0 || work->duration < build->shortest_kernel_ns)
        build->shortest_kernel_ns = work->duration;
}

static void add_event(fs_build *build, uint32_t index, int64_t *ends)
{
    uint32_t at;
    const fs_chunk *chunk = fs_event_chunk(build->store, index, &at);
    if (!fs_build_is_device(chunk, at)) return;
    device_work work = {
        .start = chunk->start[at],
        .duration = chunk->duration[at] == FS_MISSING ? 0 : chunk->duration[at],
        .event = index,
        .launcher = chunk->launcher[at] < build->count ? fs_build_past_frames(build, chunk->launcher[at]) : FS_NONE,
        .device = fs_event_device(chunk, at),
        .timing = chunk->timing[at],
        .kind = chunk->kind[at],
        .has_row = chunk->kind[at] != FS_EVENT_INTERVAL,
        .estimated = (chunk->flags[at] & FS_EVENT_ESTIMATED) != 0,
    };
    if (work.kind == FS_EVENT_KERNEL) track_shortest(build, &work);
    if (work.has_row) {
        work.call = fs_build_call(build, index);
        fs_group *group = fs_build_group(build, index);
        fs_add_to(&group->row.self_device_time_total, work.duration);
        fs_add_to(&group->row.device_time_total, work.duration);
        group->row.device_rounding += fs_build_rounding(build, work.start, work.duration);
        add_busy(build, group, &work, ends);
    }
    if (fs_event_kind_on_device[chunk->kind[at]]) add_work(build, &work, ends); /* annotations are not work */
}

fs_status fs_build_devices(fs_build *build, fs_error *err)
{
    if (build->work_count == 0) return FS_OK;
    FS_TRY(fs_counted_build(&build->counted, build->store, err));
    if (build->counted.count > 0) {
        size_t sums = (size_t)build->group_count * build->counted.devices;
        build->counted_sums = fs_calloc(sums, sizeof *build->counted_sums);
        if (build->counted_sums == NULL)
            return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to count %u device events", build->work_count);
    }
    size_t end_count = (size_t)build->group_count * build->device_count;
    sort_entry *entries = NULL;
    int64_t *ends = fs_malloc(end_count * sizeof *ends);
    if (!build->works_sorted) entries = fs_malloc(2 * (size_t)build->work_count * sizeof *entries);
    if (ends == NULL || (!build->works_sorted && entries == NULL)) {
        fs_free(entries);
        fs_free(ends);
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to sum %u device events", build->work_count);
    }
    for (size_t i = 0; i < end_count; i++) ends[i] = INT64_MIN;
    const sort_entry *sorted = build->works_sorted ? NULL : sort_works(build, entries);
    fs_status status = FS_OK;
    uint32_t count = sorted == NULL ? build->count : build->work_count;
    for (uint32_t i = 0; status == FS_OK && i < count; i++) {
        if (i % FS_POLL_ROUNDS == 0) status = fs_interrupt_poll(err);
        add_event(build, sorted == NULL ? i : sorted[i].event, ends);
    }
    fs_free(entries);
    fs_free(ends);
    if (status != FS_OK || build->options->brief) return status;
    return cover_unlinked(build, err);
}
