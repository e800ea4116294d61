/* Last step of a build: adds nodes to groups, backward, so that every node is complete before its parent. */
#include "table/totals.h"

#include <math.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "ops/tensor.h"
#include "table/scan.h"
#include "table/slices.h"

const fs_peaks *fs_build_peaks(const fs_build *build, const fs_call *call, int device)
{
    if (device < 0 && call->device_kind == FS_CPU) return build->options->cpu_peaks;
    if (device < 0) device = call->device_index;
    return device < FS_MAX_CUDA_DEVICES ? build->options->cuda_peaks[device] : NULL;
}

/* Return whether an op's work is done by the ops inside it: either ops with rules own all of its device work, or they
 * do all of its work. aten::matmul calls aten::mm, while aten::sum only fills its output with another op. */
static bool is_inside(const fs_node *node, const fs_work *work)
{
    if (node->device_ns > 0 && (node->flags & FS_NODE_OWNS) == 0) return true;
    if (work->apart) return false;
    if (work->flops > 0) return node->flops >= work->flops;
    return node->bytes > 0 && node->bytes >= 0.9 * work->bytes_moved;
}

/* Return the work of float32 or float64 products on tensor cores, if the kernels that ran use them. */
static fs_work on_tensor_cores(const fs_work *work)
{
    static const fs_unit_choice tensor[FS_UNIT_COUNT] = {
        [FS_UNIT_FP32] = {FS_UNIT_TF32_TENSOR, FS_UNIT_FP32},
        [FS_UNIT_FP64] = {FS_UNIT_FP64_TENSOR, FS_UNIT_FP64},
    };
    fs_work done = *work;
    fs_unit unit = work->unit.preferred;
    if (unit == FS_UNIT_FP32 || unit == FS_UNIT_FP64) done.unit = tensor[unit];
    return done;
}

/* Return the roofline of the node's work on its device. */
static const fs_roof *roof_of(const fs_build *build, const fs_node *node, const fs_call *call)
{
    const fs_peaks *peaks = fs_build_peaks(build, call, node->device);
    fs_call_state *state = &build->states[node->call];
    bool tensor = (node->flags & FS_NODE_TENSOR) != 0;
    if (state->has_roof && peaks == state->peaks && tensor == state->roof_tensor) return &state->roof;
    fs_work work = tensor ? on_tensor_cores(&call->work) : call->work;
    state->has_roof = true;
    state->peaks = peaks;
    state->roof_tensor = tensor;
    state->roof = fs_roof_of(&work, peaks);
    /* Without measured peaks (recorded traces), the shortest kernel approximates the time of an empty one. */
    if (peaks != NULL && isnan(state->roof.kernel_ns) && build->shortest_kernel_ns > 0)
        state->roof.kernel_ns = (double)build->shortest_kernel_ns;
    return &state->roof;
}

static void add_roof(fs_build *build, const fs_node *node, const fs_call *call)
{
    fs_roof_sum *sum = &build->groups[call->row].roof;
    const fs_roof *roof = roof_of(build, node, call);
    if (call->work.needs == FS_NEEDS_ELEMENTS) { /* the work of its kernels is already in the sum (devices.c) */
        if ((node->flags & FS_NODE_LISTED) == 0) fs_roof_sum_add(sum, &fs_roof_unknown);
    } else {
        fs_roof term = *roof;
        if ((node->flags & FS_NODE_SAVES) != 0) term.compute_ns = term.least_ns = NAN;
        fs_roof_sum_add(sum, &term);
        fs_build_add_roofs(build, node, &term, &call->work);
    }
    double launches = node->launches > 1 ? node->launches : 1;
    fs_roof_sum_launch(sum, roof, launches);
    fs_node_rate *rate = fs_build_rate(build, node);
    if (rate == NULL) return;
    rate->timed = node->device >= 0 && !node->buried;
    rate->launch_ns = launches * roof->launch_ns;
    rate->kernel_ns = launches * roof->kernel_ns;
    rate->launches = launches;
}

static bool is_unrated(const fs_build *build, const fs_node *node, const fs_call *call)
{
    if (node->device >= 0 || build->work_count == 0 || call->device_kind != FS_CPU) return false;
    return fs_build_peaks(build, call, node->device) == NULL;
}

/* Return whether nested API calls launched work of which none was recorded: the host time is then that of the
 * launches. */
static bool is_unrecorded(const fs_node *node)
{
    return (node->flags & FS_NODE_CALLS) != 0 && node->device_ns == 0;
}

/* Return whether all that the event launched went into a graph: the work is that of the graph's replays. */
static bool is_captured(const fs_node *node)
{
    return (node->flags & (FS_NODE_CAPTURED | FS_NODE_OWNS)) == FS_NODE_CAPTURED;
}

static void add_unknown(fs_row *row)
{
    row->flops = row->bytes_read = row->bytes_written = row->bytes_total_moved = NAN;
}

/* Add the own work of an op or a range to its row, and its known FLOPs to *flops. */
static void add_own_work(fs_build *build, fs_node *node, const fs_call *call, int64_t duration, double *flops)
{
    const fs_work *work = &call->work;
    fs_group *group = &build->groups[call->row];
    group->work_calls++;
    if (call->known && (is_inside(node, work) || is_captured(node) || (node->flags & FS_NODE_YIELDS) != 0)) return;
    if ((work->needs == FS_NEEDS_KERNELS && node->supplied > 0) ||
        (!call->known && node->supplied > 0 && node->supplied == node->launches)) {
        fs_roof_sum_launch(&group->roof, roof_of(build, node, call), node->launches);
        return;
    }
    if (work->needs == FS_NEEDS_ELEMENTS) { /* its kernels, if any, have added their work (devices.c) */
        double known_flops = group->row.flops + work->flops;
        if ((node->flags & FS_NODE_LISTED) == 0) add_unknown(&group->row);
        if (work->flops == 0) group->row.flops = known_flops; /* whatever the elements are */
        add_roof(build, node, call);
        return;
    }

    if (call->launch) fs_build_mark_launch(group, work);
    group->row.flops += work->flops;
    group->row.bytes_read += work->bytes_read;
    group->row.bytes_written += work->bytes_written;
    group->row.bytes_total_moved += work->bytes_moved;
    if (call->stated && !isnan(work->flops)) *flops = 0; /* declared work covers all nested events */
    if (!isnan(work->flops)) *flops += work->flops;
    if (!isnan(work->bytes_moved)) node->bytes += work->bytes_moved;
    bool is_op = call->kind == FS_EVENT_OP;
    if (is_op && is_unrecorded(node)) {
        group->unrecorded = true;
        group->unrated_flops += work->flops;
        group->unrated_bytes += work->bytes_moved;
        node->flags |= FS_NODE_UNTIMED;
        return;
    }
    if (is_op && is_unrated(build, node, call)) {
        fs_add_to(&group->unrated_ns, duration == FS_MISSING ? 0 : node->self_cpu_ns);
        group->unrated_flops += work->flops;
        group->unrated_bytes += work->bytes_moved;
        return;
    }
    add_roof(build, node, call);
    if (node->buried) group->untimed = true;

    if (node->device >= 0) return; /* its time is in the row's busy time */
    /* Device work without a known launcher may belong to a range with declared work. */
    bool complete =
        is_op || ((node->flags & FS_NODE_UNTIMED) == 0 && !is_unrecorded(node) && !build->has_unlinked_work);
    if (call->device_kind == FS_CPU && duration != FS_MISSING && complete) {
        fs_add_to(&group->host_ns, is_op ? node->self_cpu_ns : duration);
        fs_node_rate *rate = fs_build_rate(build, node);
        if (rate != NULL) rate->busy_ns = is_op ? node->self_cpu_ns : duration;
        if (rate != NULL) rate->timed = true;
    } else if (work->flops > 0 || work->bytes_moved > 0) {
        group->untimed = true;
        node->flags |= FS_NODE_UNTIMED;
    }
}

static void add_known(fs_known *known, const fs_work *work)
{
    /* Of a list of unknown length, its kernels give an upper bound. */
    bool bound = work->at_most || (work->needs == FS_NEEDS_ELEMENTS && isnan(work->list_elements));
    uint8_t source = bound ? FS_SOURCE_ESTIMATED : work->stated ? FS_SOURCE_STATED : FS_SOURCE_MODEL;
    if (!known->flops && !isnan(work->flops))
        known->flops = work->flops_estimated ? (uint8_t)FS_SOURCE_ESTIMATED : source;
    if (!known->bytes && !isnan(work->bytes_moved)) known->bytes = source;
}

/* Return whether the work of an op is known, if only its kernels determine it. */
static bool is_supplied(fs_build *build, uint32_t owner)
{
    if (fs_build_call(build, owner)->work.needs != FS_NEEDS_ELEMENTS) return true;
    return build->work_count > 0 && (fs_build_node(build, owner)->flags & FS_NODE_LISTED) != 0;
}

fs_known fs_build_known(fs_build *build, const fs_node *node)
{
    fs_known known = {FS_SOURCE_NONE, FS_SOURCE_NONE};
    const fs_work *work = node->owner != FS_NONE ? &fs_build_call(build, node->owner)->work : NULL;
    if (work != NULL && is_supplied(build, node->owner)) add_known(&known, work);
    else if (work != NULL && work->flops == 0) known.flops = FS_SOURCE_MODEL;
    for (uint32_t at = node->stated; at != FS_NONE; at = fs_build_outer_stated(build, at)) {
        add_known(&known, &fs_build_call(build, at)->work);
    }
    return known;
}

/* Add to the coverage by the host time of ops, for stores without device work. */
static void cover(fs_build *build, const fs_node *node, fs_group *group)
{
    fs_table *table = build->table;
    if (node->op != FS_NONE && fs_build_call(build, node->op)->compiles) return;
    fs_known known = fs_build_known(build, node);
    fs_known_count(table, (double)node->self_cpu_ns, known);
    const fs_call *owner = node->owner != FS_NONE ? fs_build_call(build, node->owner) : NULL;
    if (owner != NULL && owner->work.flops_estimated)
        fs_add_to(&build->groups[owner->row].flops_estimated_ns, node->self_cpu_ns);
    if (owner != NULL && owner->work.at_most) fs_add_to(&build->groups[owner->row].estimated_ns, node->self_cpu_ns);
    if (!known.bytes) fs_add_to(&group->unmodelled_ns, node->self_cpu_ns);
}

static void add_memory(fs_build *build, const fs_node *node, fs_node *above, fs_row *row)
{
    const fs_node_memory *memory = &build->memory[node - build->nodes];
    fs_add_to(&row->self_cpu_memory_usage, memory->self[FS_HOST]);
    fs_add_to(&row->cpu_memory_usage, memory->total[FS_HOST]);
    fs_add_to(&row->self_device_memory_usage, memory->self[FS_DEVICE]);
    fs_add_to(&row->device_memory_usage, memory->total[FS_DEVICE]);
    if (above == NULL) return;
    fs_node_memory *parents = &build->memory[above - build->nodes];
    for (int place = 0; place < FS_MEMORY_PLACES; place++) fs_add_to(&parents->total[place], memory->total[place]);
    above->flags |= FS_NODE_MEMORY;
}

static void add_sample(fs_build *build, fs_group *group, int64_t sample)
{
    if (build->samples != NULL) build->samples[group->samples_begin + group->sample_count++] = sample;
}

/* Add a host event to its row and its totals to its parent (NULL: none). */
static void add_node(fs_build *build, fs_node *node, fs_node *above, int64_t start, int64_t duration)
{
    const fs_call *call = &build->calls.calls[node->call];
    fs_group *group = &build->groups[call->row];
    fs_row *row = &group->row;
    bool open = duration == FS_MISSING;
    if (open) node->self_cpu_ns = 0; /* the children's time was subtracted from an unknown time */

    fs_add_to(&row->self_cpu_time_total, node->self_cpu_ns);
    fs_add_to(&row->cpu_time_total, open ? 0 : duration);
    fs_add_to(&row->self_device_time_total, node->self_device_ns);
    fs_add_to(&row->device_time_total, node->device_ns);
    row->cpu_rounding += open ? 0 : fs_build_rounding(build, start, duration);
    row->device_rounding += node->device_rounding;
    fs_add_to(&build->table->self_cpu_ns, node->self_cpu_ns);
    if ((node->flags & FS_NODE_MEMORY) != 0) add_memory(build, node, above, row);

    double flops = node->flops;
    bool flops_known = (node->flags & FS_NODE_FLOPS) != 0;
    bool counts = false;
    if (call->kind == FS_EVENT_OP || fs_event_is_annotation((uint8_t)call->kind)) {
        add_own_work(build, node, call, duration, &flops);
        bool own = call->known && (node->flags & FS_NODE_YIELDS) == 0;
        counts = own && node->device < 0 && !is_inside(node, &call->work) && !is_captured(node);
        flops_known = flops_known || !isnan(call->work.flops);
    }
    /* 0 known FLOPs next to unknown ones give an unknown sum. */
    if (flops == 0 && isnan(call->work.flops) && (node->flags & FS_NODE_OBSCURE) != 0) flops_known = false;
    if (!flops_known && call->kind == FS_EVENT_OP) node->flags |= FS_NODE_OBSCURE;
    if (call->kind == FS_EVENT_OP && build->work_count == 0 && !call->wraps && !build->options->brief)
        cover(build, node, group);
    row->flops_total += flops;
    group->flops_known = group->flops_known || flops_known;
    if (above != NULL) {
        fs_add_to(&above->device_ns, node->device_ns);
        above->device_rounding += node->device_rounding;
        above->flops += flops;
        above->bytes += node->bytes;
        if (flops_known) above->flags |= FS_NODE_FLOPS;
        above->flags |= node->flags & (FS_NODE_UNTIMED | FS_NODE_OBSCURE);
        if (call->launches || is_unrecorded(node)) above->flags |= FS_NODE_CALLS;
        if (above->device < 0) above->launches += counts && node->launches == 0 ? 1 : node->launches;
    }

    if (!fs_build_ran_on_device(group)) {
        if (!open) add_sample(build, group, duration);
    } else if ((node->flags & FS_NODE_OWNS) != 0) {
        add_sample(build, group, node->owned_device_ns);
    }
}

static void add_event(fs_build *build, uint32_t index)
{
    uint32_t slot = build->slots[index], at;
    const fs_chunk *chunk = fs_build_chunk(build, index, &at);
    uint8_t kind = chunk->kind[at];
    if (kind == FS_EVENT_MEMORY || kind == FS_EVENT_INTERVAL || kind == FS_EVENT_FRAME) return;
    if (fs_build_is_device(chunk, at)) {
        if (chunk->duration[at] != FS_MISSING) add_sample(build, fs_build_group(build, index), chunk->duration[at]);
        return;
    }
    uint32_t parent = fs_build_parent(build, chunk, at, index);
    fs_node *above = parent != FS_NONE ? fs_build_above(build, parent) : NULL;
    uint16_t captured = (chunk->flags[at] & FS_EVENT_CAPTURED) != 0 ? FS_NODE_CAPTURED : 0;
    fs_node leaf, *node = &leaf;
    if ((slot & FS_SLOT_NODE) != 0) node = fs_build_node(build, index);
    else leaf = fs_build_leaf(build, index, slot);
    node->flags |= captured;
    add_node(build, node, above, chunk->start[at], chunk->duration[at]);
}

static void add_slice(fs_build *slice)
{
    for (uint32_t index = slice->end; index-- > slice->begin;) {
        if (index % FS_POLL_ROUNDS == 0 && fs_interrupted()) return;
        if ((slice->marks[index] & FS_MARK_SPANS) == 0) add_event(slice, index);
    }
}

/* Let stand-ins be on the devices of their nodes: add_node() looks at these. */
static void place_stand_ins(const fs_build *slice)
{
    for (uint32_t i = 0; i < slice->foreign_count; i++)
        slice->nodes[slice->stand_in + i].device = fs_build_node(slice, slice->foreign[i])->device;
}

static void join_stand_ins(const fs_build *slice)
{
    for (uint32_t i = 0; i < slice->foreign_count; i++) {
        fs_node *node = fs_build_node(slice, slice->foreign[i]), *stand_in = &slice->nodes[slice->stand_in + i];
        fs_build_join_memory(slice, node, stand_in);
        fs_add_to(&node->device_ns, stand_in->device_ns);
        node->device_rounding += stand_in->device_rounding;
        node->flops += stand_in->flops;
        node->bytes += stand_in->bytes;
        node->flags |= stand_in->flags;
        node->launches += stand_in->launches;
    }
}

/* Add the events that have children in later slices, which are complete by now but for each other. */
static void add_spanning(fs_build *build)
{
    for (uint32_t i = 1; i < build->slice_count; i++) join_stand_ins(fs_build_slice(build, i));
    for (uint32_t i = build->spanning_count; i-- > 0;) {
        uint32_t index = build->spanning[i];
        fs_build *slice = fs_build_slice_of(build, index);
        uint32_t begin = slice->begin;
        slice->begin = 0; /* no stand-ins any more */
        add_event(slice, index);
        slice->begin = begin;
    }
}

/* Divide the room for samples among the rows, and that of a row among the slices. */
static fs_status allocate_samples(fs_build *build, fs_error *err)
{
    uint64_t count = 0;
    for (uint32_t row = 0; row < build->group_count; row++) {
        for (uint32_t i = 0; i < build->slice_count; i++) {
            fs_group *group = &fs_build_slice(build, i)->groups[row];
            group->samples_begin = count;
            count += group->sample_room;
        }
    }
    FS_TRY(FS_NEW(&build->samples, count, err));
    for (uint32_t i = 1; i < build->slice_count; i++) fs_build_slice(build, i)->samples = build->samples;
    return FS_OK;
}

static void sum_sources(fs_table *table)
{
    for (int source = FS_SOURCE_NONE + 1; source < FS_SOURCE_COUNT; source++) {
        table->bytes_known_ns += table->bytes_ns[source];
        table->flops_known_ns += table->flops_ns[source];
    }
}

fs_status fs_build_totals(fs_build *build, fs_error *err)
{
    if (!build->options->brief) FS_TRY(allocate_samples(build, err));
    for (uint32_t i = 1; i < build->slice_count; i++) place_stand_ins(fs_build_slice(build, i));
    FS_TRY(fs_build_each_slice(build, add_slice, err));
    add_spanning(build);
    FS_TRY(fs_build_join(build, err));
    sum_sources(build->table);
    return FS_OK;
}
