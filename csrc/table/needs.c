/* One thread, in the order of the store: what an event needs may be an event whose own call was replaced. Few ops need
 * anything, and pieces without a call that does are passed over. */
#include "table/needs.h"

#include "base/interrupt.h"
#include "work/collective_sizes.h"
#include "work/names.h"

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
    default: /* nothing, or what inferred.c and devices.c find later */
        return FS_OK;
    }
}

fs_status fs_build_needs(fs_build *build, const fs_piece *pieces, fs_error *err)
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
