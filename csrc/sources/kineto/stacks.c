/* Frames are written in the head, in any order, and each names its caller: a chain is followed until a frame that is
 * already in the store, and then pushed from the outside in. At most FS_MOST_STACK_DEPTH frames are followed, so frames
 * that are their own callers end. A sample whose frame is unknown is left out. */
#include "sources/kineto/stacks.h"

#include <string.h>

#include "base/memory.h"
#include "sources/kineto/json_scan.h"
#include "store/stacks.h"

void fs_stack_points_clear(fs_stack_points *points)
{
    fs_free(points->points);
    *points = (fs_stack_points){0};
}

/* Frames --------------------------------------------------------------------------------------------------------- */

/* A frame as the head has it. */
typedef struct {
    int64_t parent; /* -1: none */
    char *name;     /* NULL: unknown */
    bool program;
    uint32_t id; /* in the store's stacks, once added; FS_NONE */
} frame;

typedef struct {
    fs_intern keys; /* of frames: int64_t; ids as in frames */
    frame *frames;
    uint32_t capacity;
} frames;

static void clear_frames(frames *all)
{
    for (uint32_t i = 0; i < all->keys.count; i++) fs_free(all->frames[i].name);
    fs_free(all->frames);
    fs_intern_clear(&all->keys);
}

static fs_status add_frame(frames *all, int64_t key, frame **added, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&all->frames, all->keys.count, &all->capacity, 256, err));
    uint32_t count = all->keys.count, place;
    FS_TRY(fs_intern_bytes(&all->keys, &key, sizeof key, &place, err));
    if (place == count) all->frames[place] = (frame){.parent = -1, .id = FS_NONE};
    *added = &all->frames[place];
    return FS_OK;
}

static fs_status take_name(frame *of, const fs_scan_span *text, fs_error *err)
{
    fs_free(of->name);
    FS_TRY(FS_NEW(&of->name, text->size + 1, err));
    fs_scan_unescape(text, of->name);
    return FS_OK;
}

/* Read one frame's object, up to its end. */
static fs_status take_frame(fs_scan_pull *pull, frame *of, fs_error *err)
{
    fs_scan_token token;
    fs_scan_span key = {"", 0, false}, span;
    uint32_t depth = pull->depth;
    while (fs_scan_next(pull, &token, &span) == FS_SCAN_GOOD) {
        if (token == FS_SCAN_OBJECT_END && pull->depth < depth) break;
        if (token == FS_SCAN_KEY) key = span;
        if (pull->depth != depth) continue;
        if (token == FS_SCAN_STRING && fs_scan_is(&key, "name")) FS_TRY(take_name(of, &span, err));
        if (token == FS_SCAN_STRING && fs_scan_is(&key, "category")) of->program = fs_scan_is(&span, "program");
        if ((token == FS_SCAN_STRING || token == FS_SCAN_NUMBER) && fs_scan_is(&key, "parent"))
            fs_scan_decimal(span.text, span.size, 0, false, &of->parent);
    }
    return FS_OK;
}

static fs_status read_frames(frames *all, const char *head, size_t size, fs_error *err)
{
    fs_scan_pull pull;
    fs_scan_token token;
    fs_scan_span span;
    bool here = false;
    int64_t key = -1;
    fs_scan_pull_begin(&pull, head, size);
    while (fs_scan_next(&pull, &token, &span) == FS_SCAN_GOOD) {
        if (token == FS_SCAN_KEY && pull.depth == 1) here = fs_scan_is(&span, "stackFrames");
        if (here && token == FS_SCAN_KEY && pull.depth == 2 && !fs_scan_decimal(span.text, span.size, 0, false, &key))
            key = -1;
        if (here && token == FS_SCAN_OBJECT && pull.depth == 3 && key >= 0) {
            frame *added = NULL;
            FS_TRY(add_frame(all, key, &added, err));
            FS_TRY(take_frame(&pull, added, err));
        }
        if (pull.depth == 0) break;
    }
    return FS_OK;
}

static frame *frame_of(const frames *all, int64_t key)
{
    uint32_t place = fs_intern_find(&all->keys, &key, sizeof key);
    return place == UINT32_MAX ? NULL : &all->frames[place];
}

/* Find or add the stack of a frame, whose callers may come after it in the text, or be their own callers. */
static fs_status stack_of(const frames *all, int64_t key, fs_stacks *stacks, uint32_t *id, fs_error *err)
{
    frame *chain[FS_MOST_STACK_DEPTH], *at = frame_of(all, key);
    uint32_t depth = 0;
    *id = FS_NONE;
    for (; at != NULL && at->id == FS_NONE && depth < FS_MOST_STACK_DEPTH; at = frame_of(all, at->parent))
        if (at->name != NULL) chain[depth++] = at;
    if (at != NULL) *id = at->id;
    while (depth > 0) {
        uint32_t name;
        frame *inner = chain[--depth];
        FS_TRY(fs_stacks_name(stacks, inner->name, &name, err));
        FS_TRY(fs_stacks_push(stacks, *id, name, inner->program, id, err));
        inner->id = *id;
    }
    return FS_OK;
}

/* Joining ---------------------------------------------------------------------------------------------------------- */

static fs_status add_points(const fs_stack_points *points, const frames *all, fs_stacks *stacks, fs_error *err)
{
    for (uint32_t i = 0; i < points->count; i++) {
        const fs_stack_point *point = &points->points[i];
        uint32_t stack;
        FS_TRY(stack_of(all, point->frame, stacks, &stack, err));
        if (stack == FS_NONE) continue;
        const fs_stack_run run = {point->start,   point->start + point->duration, point->cpu,
                                  point->process, (uint64_t)point->thread,        stack};
        FS_TRY(fs_stacks_add(stacks, &run, err));
    }
    return FS_OK;
}

fs_status fs_stack_points_join(const fs_stack_points *const *pieces, uint32_t count, const char *head, size_t size,
                               fs_store *store, fs_error *err)
{
    frames all = {0};
    uint64_t points = 0;
    for (uint32_t i = 0; i < count; i++) points += pieces[i]->count;
    if (points == 0) return FS_OK;
    fs_status status = read_frames(&all, head, size, err);
    for (uint32_t i = 0; status == FS_OK && i < count; i++)
        status = add_points(pieces[i], &all, fs_store_stacks(store), err);
    clear_frames(&all);
    return status;
}
