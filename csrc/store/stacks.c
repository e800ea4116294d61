/* A stack is a frame and the id of its parent, interned, so that equal stacks have one id and a parent's id is smaller
 * than its children's: one pass in order of ids maps a tree. The program's innermost frame gives a stack its line; a
 * stack without one is its own line. Threads that flopscope starts are left out, up to the program's own functions in
 * them. */
#include "store/stacks.h"

#include <string.h>

#include "base/list.h"
#include "base/memory.h"
#include "base/saturate.h"
#include "store/event.h"

void fs_stacks_clear(fs_stacks *stacks)
{
    fs_intern_clear(&stacks->names);
    fs_intern_clear(&stacks->stacks);
    fs_free(stacks->runs);
    *stacks = (fs_stacks){0};
}

fs_status fs_stacks_name(fs_stacks *stacks, const char *text, uint32_t *name, fs_error *err)
{
    return fs_intern_text(&stacks->names, text, name, err);
}

fs_status fs_stacks_push(fs_stacks *stacks, uint32_t parent, uint32_t name, bool program, uint32_t *id, fs_error *err)
{
    const fs_stack frame = {parent, name, program};
    return fs_intern_bytes(&stacks->stacks, &frame, sizeof frame, id, err);
}

fs_status fs_stacks_add(fs_stacks *stacks, const fs_stack_run *run, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&stacks->runs, stacks->count, &stacks->capacity, 256, "sampled stacks", err));
    stacks->runs[stacks->count++] = *run;
    return FS_OK;
}

void fs_stacks_begin_later(fs_stacks *stacks, uint32_t run, uint32_t before)
{
    fs_stack_run *late = &stacks->runs[run], *early = &stacks->runs[before];
    if (late->cpu == FS_MISSING || early->cpu == FS_MISSING) return;
    int64_t moved = late->cpu < late->end - late->begin ? late->cpu : late->end - late->begin;
    early->end += moved;
    early->cpu += moved;
    late->begin += moved;
    late->cpu -= moved;
}

const char *fs_stacks_text(const fs_stacks *stacks, uint32_t name)
{
    return fs_intern_get(&stacks->names, name).bytes;
}

fs_stack fs_stacks_get(const fs_stacks *stacks, uint32_t id)
{
    return *(const fs_stack *)fs_intern_get(&stacks->stacks, id).bytes;
}

uint32_t fs_stacks_line(const fs_stacks *stacks, uint32_t id)
{
    for (uint32_t at = id; at != FS_NONE;) {
        fs_stack frame = fs_stacks_get(stacks, at);
        if (frame.program) return at;
        at = frame.parent;
    }
    return id;
}

/* Appending -------------------------------------------------------------------------------------------------------- */

/* Return the first of the folders that a path lies in, or NULL. */
static const char *folder_of(const char *path, const char *const *folders)
{
    for (; *folders != NULL; folders++)
        if (strncmp(path, *folders, strlen(*folders)) == 0) return *folders;
    return NULL;
}

/* What a hidden frame is mapped to with which a thread begins, and what that calls up to a frame of the program: the
 * thread is ours. */
static const uint32_t ours = FS_NONE - 1;

static bool starts_thread(const fs_stacks *from, uint32_t id)
{
    return id != FS_NONE && strstr(fs_stacks_text(from, fs_stacks_get(from, id).name), "/threading.py") != NULL;
}

/* Map a frame whose parent is mapped. A hidden one becomes its parent, one of a launcher nothing. */
static fs_status map_frame(fs_stacks *to, const fs_stacks *from, const fs_stack_folders *folders, fs_stack frame,
                           uint32_t parent, uint32_t *id, fs_error *err)
{
    const char *text = fs_stacks_text(from, frame.name);
    bool program = frame.program;
    if (folders != NULL) {
        bool launches = folder_of(text, folders->launchers) != NULL;
        if (launches || folder_of(text, folders->hidden) != NULL) {
            *id = launches ? FS_NONE : starts_thread(from, frame.parent) ? ours : parent;
            return FS_OK;
        }
        bool inner = parent != FS_NONE && parent != ours;
        bool is_text = *text == '<' && strncmp(text, "<frozen ", 8) != 0; /* that was run: it is its caller's */
        program = is_text ? !inner || fs_stacks_get(to, parent).program
                          : *text != '<' && folder_of(text, folders->libraries) == NULL;
        const char *folder = folder_of(text, folders->shortened);
        if (folder != NULL) text += strlen(folder);
        if (parent == ours && !program) {
            *id = ours;
            return FS_OK;
        }
        if (parent == ours) parent = FS_NONE;
    }
    uint32_t name;
    FS_TRY(fs_stacks_name(to, text, &name, err));
    return fs_stacks_push(to, parent, name, program, id, err);
}

fs_status fs_stacks_append(fs_stacks *to, const fs_stacks *from, const fs_stack_folders *folders, int64_t shift,
                           int64_t begin, int64_t end, fs_error *err)
{
    uint32_t *ids = fs_malloc((from->stacks.count + (size_t)1) * sizeof *ids);
    if (ids == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for %u stacks", from->stacks.count);
    fs_status status = FS_OK;
    for (uint32_t i = 0; status == FS_OK && i < from->stacks.count; i++) { /* parents come first */
        fs_stack frame = fs_stacks_get(from, i);
        uint32_t parent = frame.parent == FS_NONE ? FS_NONE : ids[frame.parent];
        status = map_frame(to, from, folders, frame, parent, &ids[i], err);
    }
    for (uint32_t i = 0; status == FS_OK && i < from->count; i++) {
        fs_stack_run run = from->runs[i];
        run.begin = fs_add_saturated(run.begin, shift);
        run.end = fs_add_saturated(run.end, shift);
        run.stack = ids[run.stack];
        if (run.stack < ours && run.end > begin && run.begin < end) status = fs_stacks_add(to, &run, err);
    }
    fs_free(ids);
    return status;
}
