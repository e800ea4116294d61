/* Second step of a build: makes the nodes, and subtracts the time of children from their parents, in the order of the
 * store within each slice. Parents come before their children, and those of earlier slices are made before all. */
#include "table/scan.h"

#include "base/interrupt.h"
#include "table/inferred.h"
#include "table/slices.h"
#include "work/names.h"

static void make_node(fs_build *build, uint32_t index, uint32_t id)
{
    build->nodes[id] = fs_build_leaf(build, index, build->slots[index]);
    if (build->memory != NULL) build->memory[id] = (fs_node_memory){{0}, {0}};
    if (build->roofs != NULL) build->roofs[id] = (fs_node_roofs){0};
    if (build->rates != NULL) build->rates[id] = (fs_node_rate){.busy_until = INT64_MIN, .timing = FS_TIMING_COUNT};
    build->slots[index] = id | FS_SLOT_NODE;
}

static void add_memory(const fs_build *build, fs_node *node, const fs_chunk *chunk, uint32_t at)
{
    fs_node_memory *memory = &build->memory[node - build->nodes];
    int place = chunk->device[at] >= 0 ? FS_DEVICE : FS_HOST;
    fs_add_to(&memory->self[place], chunk->bytes[at]);
    fs_add_to(&memory->total[place], chunk->bytes[at]);
    node->flags |= FS_NODE_MEMORY;
}

/* Add memory that no event encloses to its row. */
static void add_free_memory(fs_build *slice, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    fs_row *row = &fs_build_group(slice, index)->row;
    bool on_device = chunk->device[at] >= 0;
    fs_add_to(on_device ? &row->self_device_memory_usage : &row->self_cpu_memory_usage, chunk->bytes[at]);
    fs_add_to(on_device ? &row->device_memory_usage : &row->cpu_memory_usage, chunk->bytes[at]);
}

/* Return the part of the parent's time that a child takes. In recorded traces, whose children come in order of start,
 * this excludes overlap with earlier children and what rounding moved past the parent's end. */
static int64_t taken_time(const fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t parent, fs_node *above)
{
    if (chunk->timing[at] != FS_TIMING_TRACE || chunk->start[at] == FS_MISSING) return chunk->duration[at];
    uint32_t spot;
    const fs_chunk *around = fs_build_chunk(build, parent, &spot);
    int64_t from = chunk->start[at], to = fs_event_end(chunk, at);
    if (around->duration[spot] == FS_MISSING) return 0;
    int64_t end = fs_event_end(around, spot);
    if (to > end) to = end;
    if (from < above->covered_until) from = above->covered_until;
    if (to <= from) return 0;
    above->covered_until = to;
    return fs_sub_saturated(to, from);
}

/* Return the event from whose own time that of a host event is taken, or FS_NONE. */
static uint32_t taken_from(const fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t parent)
{
    bool takes = parent != FS_NONE && chunk->duration[at] != FS_MISSING && !fs_event_is_asynchronous(chunk, at);
    return takes && !fs_build_is_device(chunk, at) ? fs_build_timed(build, parent) : FS_NONE;
}

static void scan_event(fs_build *slice, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    uint32_t parent = fs_build_parent(slice, chunk, at, index);
    if (chunk->kind[at] == FS_EVENT_MEMORY) {
        if (parent != FS_NONE) add_memory(slice, fs_build_above(slice, parent), chunk, at);
        else add_free_memory(slice, chunk, at, index);
        return;
    }
    uint32_t timed = taken_from(slice, chunk, at, parent);
    if (timed == FS_NONE) return;
    fs_node *above = fs_build_above(slice, timed);
    if (timed < slice->begin) {
        int64_t *first = &slice->first_children[(uint32_t)(above - slice->nodes) - slice->stand_in];
        if (chunk->start[at] != FS_MISSING && chunk->start[at] < *first) *first = chunk->start[at];
    }
    fs_take_from(&above->self_cpu_ns, taken_time(slice, chunk, at, timed, above));
}

static void scan_slice(fs_build *slice)
{
    /* Without device work, works.c needs the roofs of all ops and ranges. */
    bool listed = slice->roofs != NULL && slice->work_count == 0;
    const fs_chunk *chunk = NULL;
    uint32_t at;
    for (uint32_t index = slice->begin; index < slice->end; index++) {
        if (index % FS_POLL_ROUNDS == 0 && fs_interrupted()) return;
        chunk = fs_build_chunk(slice, index, &at);
        uint8_t kind = chunk->kind[at], marks = slice->marks[index];
        if (kind == FS_EVENT_FRAME) continue;
        bool works = listed && (kind == FS_EVENT_OP || kind == FS_EVENT_RANGE);
        if ((marks & FS_MARK_SPANS) == 0 && (marks != 0 || works)) make_node(slice, index, slice->next_node++);
        scan_event(slice, chunk, at, index);
    }
}

/* Spanning events -------------------------------------------------------------------------------------------------- */

static void make_spanning(fs_build *build)
{
    for (uint32_t i = 0; i < build->spanning_count; i++) make_node(build, build->spanning[i], build->spanning_node + i);
    for (uint32_t i = 1; i < build->slice_count; i++) {
        const fs_build *slice = fs_build_slice(build, i);
        for (uint32_t k = 0; k < slice->foreign_count; k++) {
            int64_t start = FS_BUILD_AT(build, slice->foreign[k], start);
            build->nodes[slice->stand_in + k] = (fs_node){.covered_until = start, .device = -1};
            if (build->memory != NULL) build->memory[slice->stand_in + k] = (fs_node_memory){{0}, {0}};
        }
    }
}

/* Return whether no child of a slice overlaps one before it: what stand-ins sum up is then exact. */
static bool stands_apart(const fs_build *slice)
{
    for (uint32_t i = 0; i < slice->foreign_count; i++) {
        if (slice->first_children[i] < fs_build_node(slice, slice->foreign[i])->covered_until) return false;
    }
    return true;
}

/* Take the time of each child of a slice from events before it, one after another. */
static void take_each(fs_build *slice)
{
    for (uint32_t index = slice->begin, at; index < slice->end; index++) {
        const fs_chunk *chunk = fs_build_chunk(slice, index, &at);
        if (chunk->kind[at] == FS_EVENT_FRAME || chunk->kind[at] == FS_EVENT_MEMORY) continue;
        uint32_t timed = taken_from(slice, chunk, at, fs_build_parent(slice, chunk, at, index));
        if (timed == FS_NONE || timed >= slice->begin) continue;
        fs_node *above = fs_build_node(slice, timed);
        fs_take_from(&above->self_cpu_ns, taken_time(slice, chunk, at, timed, above));
    }
}

/* Add what stand-ins have summed up, and empty them for the totals. */
static void join_stand_ins(fs_build *slice)
{
    bool apart = stands_apart(slice);
    if (!apart) take_each(slice);
    for (uint32_t i = 0; i < slice->foreign_count; i++) {
        fs_node *node = fs_build_node(slice, slice->foreign[i]), *stand_in = &slice->nodes[slice->stand_in + i];
        if (apart) {
            fs_add_to(&node->self_cpu_ns, stand_in->self_cpu_ns);
            if (stand_in->covered_until > node->covered_until) node->covered_until = stand_in->covered_until;
        }
        fs_build_join_memory(slice, node, stand_in);
        stand_in->flags = 0;
    }
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
    uint32_t count = fs_piece_count(build);
    fs_piece *pieces = fs_calloc(count, sizeof *pieces);
    if (pieces == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to group %u events", build->count);
    fs_status status = fs_build_survey(build, pieces, err);
    if (status == FS_OK) status = fs_build_divide(build, pieces, err);
    fs_pieces_free(pieces, count);
    FS_TRY(status);
    make_spanning(build);
    FS_TRY(fs_build_each_slice(build, scan_slice, err));
    for (uint32_t i = 1; i < build->slice_count; i++) join_stand_ins(fs_build_slice(build, i));
    FS_TRY(fs_build_infer(build, err));
    build->table->device_unseen = misses_devices(build);
    return FS_OK;
}
