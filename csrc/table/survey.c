/* Each piece counts its events by calls of its own; then these become the calls of the build in the order of pieces,
 * and so in the order of first events, as if one thread had seen all. Until then an event's slot holds an index among
 * the calls of its piece. The number of distinct calls decides what is not done in parallel. */
#include "table/survey.h"

#include <stdatomic.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "table/build.h"
#include "work/collective_sizes.h"
#include "work/names.h"

/* Needs ------------------------------------------------------------------------------------------------------------ */

/* Calls whose work depends on another event: the op around them, an annotation, the op of the forward pass. One thread,
 * in the order of the store: what an event needs may be an event whose own call was replaced. Few ops need anything,
 * and pieces without a call that does are passed over. */

/* Return whether what the work needs may be found in another event. The other needs are those of scan.c and
 * devices.c. */
static inline bool fs_build_seeks(fs_work_needs needs)
{
    return needs == FS_NEEDS_OP || needs == FS_NEEDS_CALLER || needs == FS_NEEDS_FORWARD ||
           needs == FS_NEEDS_ANNOTATION;
}

/* Replace *slot by the call as enclosed by the op around it, for an op whose work depends on that op. Without such an
 * op *slot is unchanged. */
static fs_status find_within(fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index, uint32_t *slot,
                             fs_error *err)
{
    uint32_t outer = fs_build_parent(build, chunk, at, index);
    if (outer == FS_NONE || FS_BUILD_AT(build, outer, kind) != FS_EVENT_OP) return FS_OK;
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
    const fs_chunk *chunk = fs_build_chunk(build, index, &at);
    if (chunk->start[at] == FS_MISSING) return FS_NONE;
    int64_t start = chunk->start[at], end = fs_event_end(chunk, at);
    for (uint32_t next = index + 1; next < build->count && next <= index + FARTHEST_BEGUN; next++) {
        chunk = fs_build_chunk(build, next, &at);
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
    uint32_t begun = begun_during(build, index);
    return begun != FS_NONE ? fs_calls_find_within(&build->calls, *slot, build->slots[begun], slot, err) : FS_OK;
}

/* The most events around an op among which its annotation is looked for. */
enum { FARTHEST_ANNOTATION = 64 };

/* The same for an op whose work is more exact with the annotation that tells the lengths of sequences. */
static fs_status find_annotated(fs_build *build, uint32_t index, uint32_t *slot, fs_error *err)
{
    uint32_t at;
    for (int tries = 0; tries < FARTHEST_ANNOTATION; tries++) {
        const fs_chunk *chunk = fs_build_chunk(build, index, &at);
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
    default: /* nothing, or what scan.c and devices.c find later */
        return FS_OK;
    }
}

/* Replace the calls of such events, in the order of the store, by the calls together with what they need.
 * FS_OUT_OF_MEMORY, FS_INTERRUPTED. */
static fs_status build_needs(fs_build *build, const fs_piece *pieces, fs_error *err)
{
    uint32_t at, count = fs_piece_count(build);
    for (uint32_t piece = 0; piece < count; piece++) {
        FS_TRY(fs_interrupt_poll(err));
        if (!pieces[piece].has_needs) continue;
        uint32_t end = fs_piece_end(build, piece);
        for (uint32_t index = piece * FS_PIECE_EVENTS; index < end; index++) {
            uint32_t *slot = &build->slots[index];
            const fs_chunk *chunk = fs_build_chunk(build, index, &at);
            if (chunk->kind[at] != FS_EVENT_OP || !fs_build_seeks(needs_of(build, *slot))) continue;
            FS_TRY(find_needed(build, chunk, at, index, slot, err));
        }
    }
    return FS_OK;
}

/* Frames ----------------------------------------------------------------------------------------------------------- */

/* Python calls (frames) around events, which make no rows. Within a piece, parents come before their children and a
 * frame takes the answer of the frame around it. A frame whose outer frames begin in an earlier piece holds, until that
 * piece is done, the innermost of those frames instead. A second pass follows them: each step leads to an earlier
 * piece. */

static bool is_frame(const fs_build *build, uint32_t index)
{
    return index != FS_NONE && FS_BUILD_AT(build, index, kind) == FS_EVENT_FRAME;
}

static void find_frames_within(void *context, int64_t first, int64_t last)
{
    fs_build *build = context;
    uint32_t at, begin = (uint32_t)(first * FS_PIECE_EVENTS), end = fs_piece_end(build, (uint32_t)last - 1);
    for (uint32_t index = begin; index < end; index++) {
        if (index % FS_PIECE_EVENTS == 0) begin = index;
        const fs_chunk *chunk = fs_build_chunk(build, index, &at);
        if (chunk->kind[at] != FS_EVENT_FRAME) continue;
        uint32_t around = chunk->parent[at] < index ? chunk->parent[at] : FS_NONE;
        build->slots[index] =
            around != FS_NONE && around >= begin && is_frame(build, around) ? build->slots[around] : around;
    }
}

static void find_frames_before(void *context, int64_t first, int64_t last)
{
    fs_build *build = context;
    uint32_t at, end = fs_piece_end(build, (uint32_t)last - 1);
    for (uint32_t index = (uint32_t)(first * FS_PIECE_EVENTS); index < end; index++) {
        const fs_chunk *chunk = fs_build_chunk(build, index, &at);
        if (chunk->kind[at] != FS_EVENT_FRAME) continue;
        uint32_t around = build->slots[index];
        if (!is_frame(build, around)) continue;
        while (is_frame(build, around)) around = __atomic_load_n(&build->slots[around], __ATOMIC_RELAXED);
        __atomic_store_n(&build->slots[index], around, __ATOMIC_RELAXED);
    }
}

static bool any_frame(const fs_build *build)
{
    uint32_t count;
    for (uint32_t index = 0; index < build->count; index += count) {
        uint32_t left = build->count - index;
        count = left < FS_CHUNK_EVENTS ? left : FS_CHUNK_EVENTS;
        const fs_chunk *chunk = fs_store_chunk(build->store, index >> FS_CHUNK_BITS);
        if (memchr(chunk->kind, FS_EVENT_FRAME, count) != NULL) return true;
    }
    return false;
}

/* Fill in build->has_frames, and in each frame's slot the nearest enclosing event that is not a frame, or FS_NONE.
 * FS_INTERRUPTED. */
static fs_status build_frames(fs_build *build, fs_error *err)
{
    uint32_t count = fs_piece_count(build);
    build->has_frames = any_frame(build);
    if (!build->has_frames) return FS_OK;
    fs_parallel_for(count, 1, find_frames_within, build);
    if (count > 1) fs_parallel_for(count, 1, find_frames_before, build);
    return fs_interrupt_poll(err);
}

/* Survey ----------------------------------------------------------------------------------------------------------- */

typedef struct {
    fs_build *build;
    fs_piece *pieces;
} surveying;

void fs_pieces_free(fs_piece *pieces, uint32_t count)
{
    for (uint32_t i = 0; pieces != NULL && i < count; i++) {
        fs_tallies_clear(&pieces[i].tallies);
        fs_free(pieces[i].foreign);
    }
    fs_free(pieces);
}

/* Several threads may mark the same event. */
static void mark(fs_build *build, uint32_t index)
{
    uint8_t *place = &build->marks[index];
    if (__atomic_load_n(place, __ATOMIC_RELAXED) == 0) __atomic_store_n(place, FS_MARK_NODE, __ATOMIC_RELAXED);
}

static fs_status list_foreign(fs_piece *piece, uint32_t index, fs_error *err)
{
    if (piece->foreign_count > 0 && piece->foreign[piece->foreign_count - 1] == index) return FS_OK;
    return FS_LIST_ADD(&piece->foreign, &piece->foreign_count, &piece->foreign_capacity, 16, err, index);
}

/* Note that an event has a child: in the piece that begins there. */
static fs_status mark_parent(fs_build *build, fs_piece *piece, uint32_t begin, uint32_t parent, fs_error *err)
{
    mark(build, parent);
    return parent < begin ? list_foreign(piece, parent, err) : FS_OK;
}

static void survey_work(fs_build *build, fs_piece *piece, uint32_t begin, const fs_chunk *chunk, uint32_t at,
                        uint32_t index)
{
    uint32_t device = chunk->device[at] < 0 ? 0 : (uint32_t)chunk->device[at];
    int64_t start = chunk->start[at];
    if (device >= piece->device_count) piece->device_count = device + 1;
    if (piece->work_count == 0) piece->first_work = start;
    else if (start < piece->last_work) piece->sorted = false;
    piece->last_work = start;
    build->works[begin + piece->work_count++] = index;
    if (!fs_event_kind_on_device[chunk->kind[at]]) return; /* annotations are not work */
    uint32_t launcher = fs_build_launcher(build, chunk, at);
    if (launcher != FS_NONE) mark(build, launcher);
    else piece->has_unlinked_work = true;
    if (chunk->kind[at] != FS_EVENT_KERNEL || chunk->timing[at] != FS_TIMING_TRACE) return;
    int64_t duration = chunk->duration[at];
    if (duration > 0 && (piece->shortest_kernel_ns == 0 || duration < piece->shortest_kernel_ns))
        piece->shortest_kernel_ns = duration;
}

/* Return the signature by which an event is told apart from others of its name. Changes of memory and notes of ranges
 * each differ, and tell nothing. */
static uint32_t signature_of(const fs_build *build, const fs_chunk *chunk, uint32_t at)
{
    uint32_t signature = chunk->signature[at];
    if (signature == FS_NONE || chunk->kind[at] == FS_EVENT_MEMORY) return FS_NONE;
    if (chunk->kind[at] != FS_EVENT_RANGE) return signature;
    const void *bytes = fs_store_signature_bytes(build->store, signature).bytes;
    return fs_signature_kind_of(bytes) == FS_SIGNATURE_NOTE ? FS_NONE : signature;
}

static fs_status tally_event(fs_build *build, fs_piece *piece, const fs_chunk *chunk, uint32_t at, uint32_t index,
                             bool top_level, fs_error *err)
{
    fs_event_kind kind = chunk->kind[at];
    uint32_t *slot = &build->slots[index], part = build->parts != NULL ? build->parts[index] : FS_NONE;
    uint32_t signature = signature_of(build, chunk, at);
    uint64_t class = fs_call_class(kind, fs_build_is_device(chunk, at), part);
    FS_TRY(fs_tallies_find(&piece->tallies, fs_call_key(chunk->name[at], signature), class, slot, err));
    fs_tally *tally = &piece->tallies.list[*slot];
    int64_t start = chunk->start[at];
    if (tally->count == 0 || start <= tally->first_start) {
        int64_t end = fs_event_end(chunk, at);
        if (tally->count == 0 || start < tally->first_start || end > tally->first_end) {
            tally->first_start = start;
            tally->first_end = end;
            tally->first = index;
        }
    }
    tally->count++;
    tally->top_level = tally->top_level || top_level;
    if (chunk->timing[at] < tally->timing) tally->timing = chunk->timing[at];
    return FS_OK;
}

static fs_status survey_event(fs_build *build, fs_piece *piece, uint32_t begin, const fs_chunk *chunk, uint32_t at,
                              uint32_t index, fs_error *err)
{
    uint8_t kind = chunk->kind[at];
    if (kind == FS_EVENT_FRAME) return FS_OK;
    piece->node_room++;
    uint32_t parent = fs_build_parent(build, chunk, at, index);
    if (kind == FS_EVENT_MEMORY) {
        piece->has_memory = true;
        piece->device_memory = piece->device_memory || chunk->device[at] >= 0;
        build->slots[index] = 0;
        if (parent != FS_NONE) return mark_parent(build, piece, begin, parent, err);
        return tally_event(build, piece, chunk, at, index, true, err);
    }
    piece->open_events += chunk->duration[at] == FS_MISSING;
    bool on_device = fs_build_is_device(chunk, at);
    if (on_device) {
        survey_work(build, piece, begin, chunk, at, index);
        build->slots[index] = 0;
        return kind == FS_EVENT_INTERVAL ? FS_OK : tally_event(build, piece, chunk, at, index, true, err);
    }
    if (parent != FS_NONE) FS_TRY(mark_parent(build, piece, begin, parent, err));
    return tally_event(build, piece, chunk, at, index, parent == FS_NONE, err);
}

static void survey_pieces(void *context, int64_t first, int64_t last)
{
    const surveying *all = context;
    for (uint32_t i = (uint32_t)first; i < last && !fs_interrupted(); i++) {
        fs_piece *piece = &all->pieces[i];
        uint32_t begin = i * FS_PIECE_EVENTS, count = fs_piece_end(all->build, i) - begin, at;
        const fs_chunk *chunk = fs_build_chunk(all->build, begin, &at);
        piece->sorted = true;
        for (uint32_t k = 0; k < count && piece->status == FS_OK; k++)
            piece->status = survey_event(all->build, piece, begin, chunk, at + k, begin + k, &piece->err);
    }
}

/* Whether an event, with its start, end and index, comes before the row's first. */
static bool comes_first(const fs_tally *tally, const fs_group *group)
{
    if (group->row.count == 0) return true;
    if (tally->first_start != group->first_start) return tally->first_start < group->first_start;
    if (tally->first_end != group->first_end) return tally->first_end > group->first_end;
    return tally->first < group->first;
}

static void add_tally(fs_build *build, const fs_tally *tally)
{
    const fs_call *call = &build->calls.calls[tally->call];
    fs_group *group = &build->groups[call->row];
    if (comes_first(tally, group)) {
        group->first_start = tally->first_start;
        group->first_end = tally->first_end;
        group->first = tally->first;
        group->row.key = call->text;
        group->row.overload = call->overload;
        group->row.category = call->category;
        group->row.signature = (uint32_t)call->key;
        group->row.part = call->part;
        group->row.on_device = call->on_device;
        group->row.is_user_annotation = fs_event_is_annotation(call->kind);
    }
    group->row.top_level = group->row.top_level || tally->top_level;
    group->row.count += tally->count;
    if (tally->timing < group->row.timing) group->row.timing = tally->timing;
}

static fs_status add_group(fs_build *build, fs_error *err)
{
    return FS_LIST_ADD(&build->groups, &build->group_count, &build->group_capacity, 64, err,
                       (fs_group){
                           .row = {.signature = FS_NONE, .timing = FS_TIMING_COUNT},
                           .device_timing = FS_TIMING_COUNT,
                       });
}

/* The shortest kernel of a trace, if it takes only a few µs, approximates the time of an empty kernel. */
enum { LONGEST_EMPTY_NS = 3000 };

/* Add a piece to the build. Its device events move to the end of those before. */
static fs_status merge_piece(fs_build *build, fs_piece *piece, uint32_t begin, fs_error *err)
{
    for (uint32_t i = 0; i < piece->tallies.count; i++) {
        fs_tally *tally = &piece->tallies.list[i];
        FS_POLL(i, err);
        FS_TRY(fs_calls_find(&build->calls, tally->key, tally->class, &tally->call, err));
        const fs_call *call = &build->calls.calls[tally->call];
        piece->has_needs = piece->has_needs || fs_build_seeks(call->work.needs);
        if (call->row == build->group_count) FS_TRY(add_group(build, err));
        add_tally(build, tally);
    }
    if (piece->work_count > 0 && build->work_count > 0) {
        uint32_t before = build->works[build->work_count - 1];
        if (FS_BUILD_AT(build, before, start) > piece->first_work) build->works_sorted = false;
    }
    build->works_sorted = build->works_sorted && piece->sorted;
    memmove(&build->works[build->work_count], &build->works[begin], piece->work_count * sizeof *build->works);
    build->work_count += piece->work_count;
    if (piece->device_count > build->device_count) build->device_count = piece->device_count;
    build->has_unlinked_work = build->has_unlinked_work || piece->has_unlinked_work;
    build->device_memory = build->device_memory || piece->device_memory;
    build->table->has_memory = build->table->has_memory || piece->has_memory;
    build->table->open_events += piece->open_events;
    int64_t shortest = piece->shortest_kernel_ns;
    if (shortest > 0 && shortest <= LONGEST_EMPTY_NS &&
        (build->shortest_kernel_ns == 0 || shortest < build->shortest_kernel_ns))
        build->shortest_kernel_ns = shortest;
    return FS_OK;
}

/* The calls of a piece become those of the build; of the only piece they are the same. */
static void map_pieces(void *context, int64_t first, int64_t last)
{
    const surveying *all = context;
    for (uint32_t i = (uint32_t)first; i < last; i++) {
        const fs_tally *tallies = all->pieces[i].tallies.list;
        uint32_t begin = i * FS_PIECE_EVENTS, count = fs_piece_end(all->build, i) - begin, at;
        const fs_chunk *chunk = fs_build_chunk(all->build, begin, &at);
        uint32_t *slots = &all->build->slots[begin];
        if (tallies == NULL) continue;
        for (uint32_t k = 0; k < count; k++)
            if (chunk->kind[at + k] != FS_EVENT_FRAME) slots[k] = tallies[slots[k]].call;
    }
}

fs_status fs_build_survey(fs_build *build, fs_piece *pieces, fs_error *err)
{
    surveying all = {build, pieces};
    uint32_t count = fs_piece_count(build);
    FS_TRY(FS_NEW(&build->slots, build->count, err));
    FS_TRY(FS_NEW(&build->works, build->count, err));
    FS_TRY(FS_NEW_ZEROED(&build->marks, build->count, err));
    build->works_sorted = true;
    FS_TRY(build_frames(build, err));
    fs_parallel_for(count, 1, survey_pieces, &all);
    FS_TRY(fs_interrupt_poll(err));
    bool needs = false;
    for (uint32_t i = 0; i < count; i++) {
        FS_TRY(fs_status_of(pieces[i].status, &pieces[i].err, err));
        FS_TRY(merge_piece(build, &pieces[i], i * FS_PIECE_EVENTS, err));
        needs = needs || pieces[i].has_needs;
    }
    build->table->has_device = build->work_count > 0;
    if (count > 1) fs_parallel_for(count, 1, map_pieces, &all);
    FS_TRY(fs_interrupt_poll(err));
    return needs ? build_needs(build, pieces, err) : FS_OK;
}
