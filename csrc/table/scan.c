/* First step of a build: maps events to calls, nodes and groups, in the order of the store. */
#include "table/scan.h"

#include "base/interrupt.h"
#include "base/list.h"
#include "base/memory.h"
#include "table/inferred.h"
#include "work/collective_sizes.h"
#include "work/names.h"

fs_node fs_build_leaf(const fs_build *build, uint32_t index)
{
    uint32_t at;
    const fs_chunk *chunk = fs_event_chunk(build->store, index, &at);
    uint32_t parent = fs_build_parent(build, chunk, at, index);
    fs_node node = {.call = build->slots[index], .owner = FS_NONE, .stated = FS_NONE, .op = FS_NONE, .device = -1};
    bool own_time = chunk->duration[at] != FS_MISSING && !fs_event_is_asynchronous(chunk, at);
    if (own_time) node.self_cpu_ns = chunk->duration[at];
    node.covered_until = chunk->start[at];
    if (parent != FS_NONE) {
        const fs_node *above = &build->nodes[build->slots[parent] & ~FS_SLOT_NODE];
        node.owner = above->owner;
        node.stated = above->stated;
        node.stated_depth = above->stated_depth;
        node.op = above->op;
    }
    if (chunk->kind[at] == FS_EVENT_OP) node.op = index;
    if (build->calls.calls[node.call].known) node.owner = index;
    if (!build->calls.calls[node.call].stated) return node;
    node.buried = node.stated_depth == FS_MOST_STATED;
    if (node.buried) return node;
    node.stated = index;
    node.stated_depth++;
    return node;
}

fs_node *fs_build_node(fs_build *build, uint32_t index)
{
    uint32_t *slot = &build->slots[index];
    if ((*slot & FS_SLOT_NODE) == 0) {
        build->nodes[build->node_count] = fs_build_leaf(build, index);
        if (build->memory != NULL) build->memory[build->node_count] = (fs_node_memory){{0}, {0}};
        if (build->roofs != NULL) build->roofs[build->node_count] = (fs_node_roofs){0};
        if (build->rates != NULL)
            build->rates[build->node_count] = (fs_node_rate){.busy_until = INT64_MIN, .timing = FS_TIMING_COUNT};
        *slot = build->node_count++ | FS_SLOT_NODE;
    }
    return &build->nodes[*slot & ~FS_SLOT_NODE];
}

static fs_status add_group(fs_build *build, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&build->groups, build->group_count, &build->group_capacity, 64, "rows of a table", err));
    build->groups[build->group_count++] = (fs_group){
        .row = {.signature = FS_NONE, .timing = FS_TIMING_COUNT},
        .device_timing = FS_TIMING_COUNT,
    };
    return FS_OK;
}

/* Replace *slot by the call as enclosed by the op around it, for an op whose work depends on that op. Without such an
 * op *slot is unchanged. */
static fs_status find_within(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index, uint32_t *slot,
                             fs_error *err)
{
    uint32_t outer = fs_build_parent(build, chunk, at, index);
    if (outer == FS_NONE || FS_EVENT_AT(build->store, outer, kind) != FS_EVENT_OP) return FS_OK;
    uint32_t around = (uint32_t)(fs_build_call(build, outer) - build->calls.calls);
    return fs_calls_find_within(&build->calls, *slot, around, slot, err);
}

/* The same for a gradient whose work follows from the arguments of the op of the forward pass. */
static fs_status find_forward(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index, uint32_t *slot,
                              fs_error *err)
{
    uint32_t forward = chunk->forward[at];
    if (forward >= index) return FS_OK; /* it is unknown, or has no call yet */
    uint32_t around = (uint32_t)(fs_build_call(build, forward) - build->calls.calls);
    return fs_calls_find_within(&build->calls, *slot, around, slot, err);
}

/* The most events after the start of an op among which the annotation that it begins is looked for. */
enum { FARTHEST_BEGUN = 32 };

/* Return the annotation of a collective that begins during an op; FS_NONE if there is none or more than one. It may end
 * on another thread; nothing encloses it then. */
static uint32_t begun_during(const fs_build *build, uint32_t index)
{
    uint32_t found = FS_NONE, at;
    const fs_chunk *chunk = fs_event_chunk(build->store, index, &at);
    if (chunk->start[at] == FS_MISSING) return FS_NONE;
    int64_t start = chunk->start[at], end = fs_event_end(chunk, at);
    for (uint32_t next = index + 1; next < build->count && next <= index + FARTHEST_BEGUN; next++) {
        chunk = fs_event_chunk(build->store, next, &at);
        bool annotates = fs_event_is_annotation(chunk->kind[at]) && chunk->device[at] < 0;
        if (!annotates || chunk->name[at] == FS_NONE || chunk->signature[at] == FS_NONE) continue;
        if (chunk->start[at] < start || chunk->start[at] > end) continue;
        bool free = fs_event_is_asynchronous(chunk, at);
        if (!free && fs_build_parent(build, chunk, at, next) != index) continue;
        if (!fs_collective_is_caller(fs_store_name_text(build->store, chunk->name[at]))) continue;
        if (found != FS_NONE) return FS_NONE;
        found = next;
    }
    return found;
}

/* The same for a collective whose annotation tells its size. */
static fs_status find_begun(fs_build *build, uint32_t index, uint32_t *slot, fs_error *err)
{
    uint32_t at, around, begun = begun_during(build, index);
    if (begun == FS_NONE) return FS_OK;
    const fs_chunk *chunk = fs_event_chunk(build->store, begun, &at);
    uint32_t part = build->parts != NULL ? build->parts[begun] : FS_NONE;
    FS_TRY(fs_calls_find(&build->calls, chunk->name[at], chunk->signature[at], chunk->kind[at], false, part, &around,
                         err));
    while (build->group_count <= build->calls.calls[around].row) FS_TRY(add_group(build, err)); /* counted later */
    return fs_calls_find_within(&build->calls, *slot, around, slot, err);
}

/* The most events around an op among which its annotation is looked for. */
enum { FARTHEST_ANNOTATION = 64 };

/* The same for an op whose work is more exact with the annotation that tells the lengths of sequences. */
static fs_status find_annotated(fs_build *build, uint32_t index, uint32_t *slot, fs_error *err)
{
    uint32_t at;
    for (int tries = 0; tries < FARTHEST_ANNOTATION; tries++) {
        const fs_chunk *chunk = fs_event_chunk(build->store, index, &at);
        uint32_t outer = fs_build_parent(build, chunk, at, index);
        if (outer == FS_NONE) return FS_OK;
        const fs_call *around = fs_build_call(build, outer);
        if (around->kind == FS_EVENT_RANGE && around->text != NULL && fs_work_is_annotation(around->text))
            return fs_calls_find_within(&build->calls, *slot, (uint32_t)(around - build->calls.calls), slot, err);
        index = outer;
    }
    return FS_OK;
}

static fs_work_needs needs_of(const fs_build *build, uint32_t call)
{
    return build->calls.calls[call].work.needs;
}

/* Replace *slot by the call together with what its work needs, where that can be found in other events. */
static fs_status find_needed(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index, uint32_t *slot,
                             fs_error *err)
{
    switch (needs_of(build, *slot)) {
    case FS_NEEDS_OP:
        return find_within(build, chunk, at, index, slot, err);
    case FS_NEEDS_CALLER:
        FS_TRY(find_within(build, chunk, at, index, slot, err));
        return needs_of(build, *slot) == FS_NEEDS_CALLER ? find_begun(build, index, slot, err) : FS_OK;
    case FS_NEEDS_FORWARD:
        return find_forward(build, chunk, at, index, slot, err);
    case FS_NEEDS_ANNOTATION:
        return find_annotated(build, index, slot, err);
    default: /* nothing, or what inferred.c and devices.c find later */
        return FS_OK;
    }
}

/* Find the event's call and count it in its row. */
static fs_status count_event(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index, fs_error *err)
{
    fs_event_kind kind = chunk->kind[at];
    bool on_device = fs_build_is_device(chunk, at);
    uint32_t *slot = &build->slots[index], part = build->parts != NULL ? build->parts[index] : FS_NONE;
    uint32_t signature = kind == FS_EVENT_MEMORY ? FS_NONE : chunk->signature[at]; /* each differs, and tells nothing */
    FS_TRY(fs_calls_find(&build->calls, chunk->name[at], signature, kind, on_device, part, slot, err));
    if (needs_of(build, *slot) != FS_NEEDS_NOTHING) FS_TRY(find_needed(build, chunk, at, index, slot, err));
    const fs_call *call = &build->calls.calls[*slot];
    if (call->row == build->group_count) FS_TRY(add_group(build, err));

    fs_group *group = &build->groups[call->row];
    int64_t start = chunk->start[at], end = fs_event_end(chunk, at);
    bool longer = start == group->first_start && end > group->first_end;
    if (group->row.count == 0 || start < group->first_start || longer) {
        group->first_start = start;
        group->first_end = end;
        group->row.key = call->text;
        group->row.overload = call->overload;
        group->row.signature = signature;
        group->row.part = part;
        group->row.on_device = on_device;
        group->row.is_user_annotation = fs_event_is_annotation(chunk->kind[at]);
    }
    if (on_device || fs_build_parent(build, chunk, at, index) == FS_NONE) group->row.top_level = true;
    group->row.count++;
    if (chunk->timing[at] < group->row.timing) group->row.timing = chunk->timing[at];
    return FS_OK;
}

static fs_status scan_memory(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index, fs_error *err)
{
    uint32_t parent = fs_build_parent(build, chunk, at, index);
    int place = chunk->device[at] >= 0 ? FS_DEVICE : FS_HOST;
    build->table->has_memory = true;
    if (place == FS_DEVICE) build->device_memory = true;
    if (parent != FS_NONE) {
        fs_node *node = fs_build_node(build, parent);
        fs_node_memory *memory = &build->memory[node - build->nodes];
        fs_add_to(&memory->self[place], chunk->bytes[at]);
        fs_add_to(&memory->total[place], chunk->bytes[at]);
        node->flags |= FS_NODE_MEMORY;
        return FS_OK;
    }
    FS_TRY(count_event(build, chunk, at, index, err));
    fs_row *row = &fs_build_group(build, index)->row;
    int64_t *self[] = {&row->self_cpu_memory_usage, &row->self_device_memory_usage};
    int64_t *total[] = {&row->cpu_memory_usage, &row->device_memory_usage};
    fs_add_to(self[place], chunk->bytes[at]);
    fs_add_to(total[place], chunk->bytes[at]);
    return FS_OK;
}

/* Return the part of the parent's time that a child takes. In recorded traces, whose children come in order of start,
 * this excludes overlap with earlier children and what rounding moved past the parent's end. */
static int64_t taken_time(const fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t parent, fs_node *above)
{
    if (chunk->timing[at] != FS_TIMING_TRACE || chunk->start[at] == FS_MISSING) return chunk->duration[at];
    uint32_t spot;
    const fs_chunk *around = fs_event_chunk(build->store, parent, &spot);
    int64_t from = chunk->start[at], to = fs_event_end(chunk, at);
    if (around->duration[spot] == FS_MISSING) return 0;
    int64_t end = fs_event_end(around, spot);
    if (to > end) to = end;
    if (from < above->covered_until) from = above->covered_until;
    if (to <= from) return 0;
    above->covered_until = to;
    return fs_sub_saturated(to, from);
}

/* Return the event, or the nearest one around it, that has own host time from which to subtract its children. */
static uint32_t timed_parent(const fs_build *build, uint32_t index)
{
    uint32_t at;
    const fs_chunk *chunk = fs_event_chunk(build->store, index, &at);
    while (fs_event_is_asynchronous(chunk, at)) {
        index = fs_build_parent(build, chunk, at, index);
        if (index == FS_NONE) break;
        chunk = fs_event_chunk(build->store, index, &at);
    }
    return index;
}

static fs_status scan_event(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index, fs_error *err)
{
    uint32_t parent = fs_build_parent(build, chunk, at, index);
    bool missing = chunk->duration[at] == FS_MISSING;
    if (chunk->kind[at] == FS_EVENT_FRAME) {
        build->slots[index] = parent;
        return FS_OK;
    }
    if (chunk->kind[at] == FS_EVENT_MEMORY) return scan_memory(build, chunk, at, index, err);
    build->table->open_events += missing;
    if (chunk->kind[at] == FS_EVENT_INTERVAL) return FS_OK;
    FS_TRY(count_event(build, chunk, at, index, err));
    if (parent == FS_NONE || fs_build_is_device(chunk, at)) return FS_OK;
    fs_build_node(build, parent);
    uint32_t timed = fs_event_is_asynchronous(chunk, at) ? FS_NONE : timed_parent(build, parent);
    if (missing || timed == FS_NONE) return FS_OK;
    fs_node *above = fs_build_node(build, timed);
    fs_take_from(&above->self_cpu_ns, taken_time(build, chunk, at, timed, above));
    return FS_OK;
}

/* Allocate the state of the build. */
static fs_status prepare(fs_build *build, fs_error *err)
{
    uint32_t memory_events = 0, others = 0, at;
    int64_t last_start = INT64_MIN;
    build->works_sorted = true;
    const fs_chunk *chunk = NULL;
    for (uint32_t index = 0; index < build->count; index++) {
        chunk = fs_event_next_chunk(build->store, index, chunk, &at);
        FS_POLL(index, err);
        if (fs_build_is_device(chunk, at)) {
            uint32_t device = chunk->device[at] < 0 ? 0 : (uint32_t)chunk->device[at];
            if (device >= build->device_count) build->device_count = device + 1;
            if (chunk->start[at] < last_start) build->works_sorted = false;
            last_start = chunk->start[at];
            build->work_count++;
        } else if (chunk->kind[at] == FS_EVENT_MEMORY) {
            memory_events++;
        } else if (chunk->kind[at] == FS_EVENT_FRAME) {
            build->has_frames = true;
        } else {
            others++;
        }
    }
    build->table->has_device = build->work_count > 0;
    build->slots = fs_malloc(build->count * sizeof *build->slots);
    build->nodes = fs_malloc(others * sizeof *build->nodes);
    if (memory_events > 0) build->memory = fs_malloc(others * sizeof *build->memory);
    if (build->options->works) build->roofs = fs_malloc(others * sizeof *build->roofs);
    bool rated = build->options->works && build->options->ratings;
    if (rated) build->rates = fs_malloc(others * sizeof *build->rates);
    if (build->slots == NULL || build->nodes == NULL || (memory_events > 0 && build->memory == NULL) ||
        (build->options->works && build->roofs == NULL) || (rated && build->rates == NULL)) {
        return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to group %u events", build->count);
    }
    return FS_OK;
}

/* Return whether a recorded trace without device work is of a program that used a device: an API call launches, device
 * memory changes, an op runs on GPUs only; or the trace names a GPU and contains no API calls that would show whether
 * it was used. */
static bool misses_devices(const fs_build *build)
{
    bool calls = false, device = false;
    if (!build->recorded || build->work_count > 0 || build->options->cpu_alone) return false;
    for (uint32_t i = 0; i < build->calls.count; i++) {
        const fs_call *call = &build->calls.calls[i];
        if (call->text == NULL) continue;
        bool api = call->kind == FS_EVENT_RUNTIME;
        calls = calls || api;
        if (api ? call->launches : fs_name_needs_gpu(call->text)) return true;
    }
    for (int i = 0; i < FS_DEVICE_LIMIT; i++) device = device || fs_store_device(build->store, i).name[0] != 0;
    return build->device_memory || (device && !calls);
}

fs_status fs_build_scan(fs_build *build, fs_error *err)
{
    FS_TRY(prepare(build, err));
    uint32_t at;
    const fs_chunk *chunk = NULL;
    for (uint32_t index = 0; index < build->count; index++) {
        chunk = fs_event_next_chunk(build->store, index, chunk, &at);
        FS_POLL(index, err);
        FS_TRY(scan_event(build, chunk, at, index, err));
    }
    FS_TRY(fs_build_infer(build, err));
    build->table->device_unseen = misses_devices(build);
    return FS_OK;
}
