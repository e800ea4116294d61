/* Within a piece, parents come before their children and a frame takes the answer of the frame around it. A frame whose
 * outer frames begin in an earlier piece holds, until that piece is done, the innermost of those frames instead. A
 * second pass follows them: each step leads to an earlier piece. */
#include "table/frames.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/parallel.h"
#include "table/survey.h"

static bool is_frame(const fs_build *build, uint32_t index)
{
    return index != FS_NONE && FS_BUILD_AT(build, index, kind) == FS_EVENT_FRAME;
}

static void find_within(void *context, int64_t first, int64_t last)
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

static void find_before(void *context, int64_t first, int64_t last)
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

fs_status fs_build_frames(fs_build *build, fs_error *err)
{
    uint32_t count = fs_piece_count(build);
    build->has_frames = any_frame(build);
    if (!build->has_frames) return FS_OK;
    fs_parallel_for(count, 1, find_within, build);
    if (count > 1) fs_parallel_for(count, 1, find_before, build);
    return fs_interrupt_poll(err);
}
