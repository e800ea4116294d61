/* Second step of a build: makes the nodes, and subtracts the time of children from their parents, in the order of the
 * store within each slice. Parents come before their children, and those of earlier slices are made before all. */
#include "table/scan.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/search.h"
#include "table/build.h"
#include "table/slices.h"
#include "work/names.h"

/* Inferred work ---------------------------------------------------------------------------------------------------- */

/* Second step of a build: infer the work of calls whose arguments the trace records incompletely. Second step of a
 * build: infers missing arguments of calls from other events of the trace; see build_infer. */

/* Dtypes ----------------------------------------------------------------------------------------------------------- */

/* Take the dtype of the first kernel that has one, unless a later kernel contradicts it. */
static void add_kernel(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    uint32_t launcher = chunk->launcher[at] < build->count ? fs_build_past_frames(build, chunk->launcher[at]) : FS_NONE;
    if (launcher == FS_NONE || FS_BUILD_AT(build, launcher, kind) != FS_EVENT_OP) return;
    fs_call *call = fs_build_call(build, launcher), *kernel = fs_build_call(build, index);
    if (!call->untyped || kernel->text == NULL) return;
    fs_torch_dtype dtype = fs_kernel_dtype(kernel->text);
    if (dtype == FS_TORCH_DTYPE_NONE) return;
    if (call->dtype != FS_TORCH_DTYPE_NONE && call->dtype != dtype) call->untyped = false;
    call->dtype = (uint8_t)dtype;
}

static void set_dtype(fs_torch_call *call, uint8_t dtype)
{
    call->untyped = true;
    /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): the caller has decoded the call */
    for (uint32_t i = 0; i < call->count; i++)
        if (call->arguments[i].type == FS_TORCH_TENSOR) call->arguments[i].tensor.dtype = dtype;
}

/* Decode the arguments of a call with the dtype inferred from its kernels. *outer: storage for the enclosing op's
 * call. */
static bool decode_typed(const fs_calls *set, const fs_call *of, fs_torch_call *call, fs_torch_call *outer)
{
    if (!fs_calls_decode(set, of, call)) return false;
    fs_calls_surround(set, of, call, outer);
    if (!of->untyped || of->dtype == FS_TORCH_DTYPE_NONE) return true;
    set_dtype(call, of->dtype);
    if (call->outer != NULL) set_dtype(outer, of->dtype);
    return true;
}

static void find_dtypes(fs_build *build)
{
    fs_calls *set = &build->calls;
    fs_torch_call call, outer;
    if (!FS_ANY(id, set->count, set->calls[id].untyped)) return;
    FS_EACH_EVENT(build->store, index, chunk, at) {
        if (chunk->kind[at] == FS_EVENT_KERNEL) add_kernel(build, chunk, at, index);
    }
    for (uint32_t id = 0; id < set->count; id++) {
        fs_call *of = &set->calls[id];
        if (!of->untyped || of->dtype == FS_TORCH_DTYPE_NONE) continue;
        if (!decode_typed(set, of, &call, &outer)) continue;
        of->work = fs_work_of_torch(of->text, &call);
        of->work.at_most = true; /* some tensors may be narrower: a bias, a mask */
    }
}

/* Gradients -------------------------------------------------------------------------------------------------------- */

/* The calls of gradients. */
typedef struct {
    const fs_calls *set;
    uint32_t *ids;
    uint32_t count;
    uint64_t looked; /* how many were compared with a call */
} gradients;

/* Find the shape of the result of a call; *found is false if its gradients disagree or there are none. *result points
 * into the store. */
static fs_status find_output(gradients *from, const char *name, const fs_torch_call *wanted, fs_torch_tensor *result,
                             bool *found, fs_error *err)
{
    fs_torch_call gradient;
    *found = false;
    for (uint32_t i = 0; i < from->count; i++) {
        const fs_call *call = &from->set->calls[from->ids[i]];
        FS_POLL(from->looked++, err);
        if (!fs_calls_decode(from->set, call, &gradient)) continue;
        const fs_torch_tensor *output = fs_work_result_told(call->text, &gradient, name, wanted);
        if (output == NULL) continue;
        size_t size = output->ndim * sizeof *output->shape;
        if (*found && (result->ndim != output->ndim || memcmp(result->shape, output->shape, size) != 0)) {
            *found = false;
            break;
        }
        *result = *output;
        *found = true;
    }
    return FS_OK;
}

static fs_status find_results(fs_calls *set, gradients *from, fs_error *err)
{
    fs_torch_call torch, outer;
    fs_torch_tensor output = {0};
    for (uint32_t id = 0; id < set->count; id++) {
        fs_call *call = &set->calls[id];
        bool found;
        if (call->work.needs != FS_NEEDS_GRADIENT || !decode_typed(set, call, &torch, &outer)) continue;
        FS_TRY(find_output(from, call->text, &torch, &output, &found, err));
        if (!found) continue;
        torch.output = &output;
        call->work = fs_work_of_torch(call->text, &torch);
        if (torch.untyped) call->work.at_most = true;
    }
    return FS_OK;
}

/* Find the work of gradients whose op of the forward pass the trace does not tell: of those whose result has the shape
 * of the gradient, the one with the most work gives a bound. */
static fs_status find_forwards(fs_calls *set, gradients *of, fs_error *err)
{
    fs_torch_call gradient, forward;
    for (uint32_t i = 0; i < of->count; i++) {
        fs_call *call = &set->calls[of->ids[i]];
        if (call->work.needs != FS_NEEDS_FORWARD || !fs_calls_decode(set, call, &gradient)) continue;
        for (uint32_t id = 0; id < set->count; id++) {
            FS_POLL(of->looked++, err);
            const fs_call *from = &set->calls[id];
            if (from->text == NULL || from->on_device || !fs_calls_decode(set, from, &forward)) continue;
            if (fs_work_result_told(call->text, &gradient, from->text, &forward) == NULL) continue;
            gradient.outer_name = from->text;
            gradient.outer = &forward;
            fs_work work = fs_work_of_torch(call->text, &gradient);
            if (call->work.needs == FS_NEEDS_FORWARD || work.bytes_moved > call->work.bytes_moved) call->work = work;
        }
    }
    return FS_OK;
}

/* Infer missing dtypes from the launched kernels, and missing result shapes from calls of the gradient; recompute the
 * work of those calls. Contradicting evidence is ignored. FS_OUT_OF_MEMORY, FS_INTERRUPTED. */
static fs_status build_infer(fs_build *build, fs_error *err)
{
    fs_calls *set = &build->calls;
    gradients all = {.set = set};
    find_dtypes(build);
    for (uint32_t id = 0; id < set->count; id++) all.count += set->calls[id].gradient;
    if (all.count == 0) return FS_OK;
    FS_TRY(FS_NEW(&all.ids, all.count, err));
    all.count = 0;
    for (uint32_t id = 0; id < set->count; id++)
        if (set->calls[id].gradient) all.ids[all.count++] = id;
    fs_status status = find_results(set, &all, err);
    if (status == FS_OK) status = find_forwards(set, &all, err);
    fs_free(all.ids);
    return status;
}

/* Scan ------------------------------------------------------------------------------------------------------------- */

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
    /* Without device work, table.c needs the roofs of all ops and ranges. */
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
    return !FS_ANY(i, slice->foreign_count,
                   slice->first_children[i] < fs_build_node(slice, slice->foreign[i])->covered_until);
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
    if (pieces == NULL) return fs_no_memory(err);
    fs_status status = fs_build_survey(build, pieces, err);
    if (status == FS_OK) status = fs_build_divide(build, pieces, err);
    fs_pieces_free(pieces, count);
    FS_TRY(status);
    make_spanning(build);
    FS_TRY(fs_build_each_slice(build, scan_slice, err));
    for (uint32_t i = 1; i < build->slice_count; i++) join_stand_ins(fs_build_slice(build, i));
    FS_TRY(build_infer(build, err));
    build->table->device_unseen = misses_devices(build);
    return FS_OK;
}
