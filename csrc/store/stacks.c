/* A stack is a frame and the id of its parent, interned, so that equal stacks have one id and a parent's id is smaller
 * than its children's: one pass in order of ids maps a tree. The program's innermost frame gives a stack its line; a
 * stack without one is its own line. Threads that flopscope starts are left out, up to the program's own functions in
 * them. */
#include "store/stacks.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

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
    return FS_LIST_ADD(&stacks->runs, &stacks->count, &stacks->capacity, 256, err, *run);
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
    if (ids == NULL) return fs_no_memory(err);
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

/* The log ---------------------------------------------------------------------------------------------------------- */

/* A log is only appended to, and each write ends with whole records; a program that was killed leaves at most one cut
 * record at the end. Reading stops at the first record that is cut or refers to what has not come, and keeps all before
 * it. A run that was written is forgotten, so that the memory of a long program stays small. */

enum { NAME = 1, STACK, RUN };

typedef struct {
    uint32_t kind, size;
} record;

typedef struct {
    char *bytes;
    size_t size;
} text;

static void put(text *to, uint32_t kind, const void *content, size_t size)
{
    const record head = {kind, (uint32_t)size};
    memcpy(to->bytes + to->size, &head, sizeof head);
    memcpy(to->bytes + to->size + sizeof head, content, size);
    to->size += sizeof head + size;
}

static size_t needed(const fs_stack_log *log, const fs_stacks *stacks)
{
    size_t size = (stacks->stacks.count - log->stacks) * (sizeof(record) + sizeof(fs_stack));
    for (uint32_t id = log->names; id < stacks->names.count; id++)
        size += sizeof(record) + fs_intern_get(&stacks->names, id).size;
    return size + stacks->count * (sizeof(record) + sizeof(fs_stack_run));
}

static bool write_all(int file, const text *from)
{
    for (size_t done = 0; done < from->size;) {
        ssize_t written = write(file, from->bytes + done, from->size - done);
        if (written < 0 && errno != EINTR) return false;
        if (written > 0) done += (size_t)written;
    }
    return true;
}

fs_status fs_stack_log_write(fs_stack_log *log, fs_stacks *stacks, int file, fs_error *err)
{
    text to = {fs_malloc(needed(log, stacks) + 1), 0};
    if (to.bytes == NULL) return fs_no_memory(err);
    for (; log->names < stacks->names.count; log->names++) {
        fs_span name = fs_intern_get(&stacks->names, log->names);
        put(&to, NAME, name.bytes, name.size);
    }
    for (; log->stacks < stacks->stacks.count; log->stacks++)
        put(&to, STACK, fs_intern_get(&stacks->stacks, log->stacks).bytes, sizeof(fs_stack));
    for (uint32_t i = 0; i < stacks->count; i++) put(&to, RUN, &stacks->runs[i], sizeof stacks->runs[i]);
    stacks->count = 0;
    bool good = write_all(file, &to);
    fs_free(to.bytes);
    return good ? FS_OK : fs_fail(err, FS_RUNTIME_ERROR, "stacks cannot be written: %s", strerror(errno));
}

/* Whether a record refers to what came before it. */
static bool is_possible(const fs_stacks *stacks, const record *head, const char *content)
{
    fs_stack frame;
    fs_stack_run run;
    if (head->kind == NAME) return true;
    if (head->kind == STACK && head->size == sizeof frame) {
        memcpy(&frame, content, sizeof frame);
        return frame.name < stacks->names.count && (frame.parent == FS_NONE || frame.parent < stacks->stacks.count);
    }
    if (head->kind != RUN || head->size != sizeof run) return false;
    memcpy(&run, content, sizeof run);
    return run.stack < stacks->stacks.count && run.end >= run.begin;
}

fs_status fs_stack_log_read(fs_stacks *stacks, const char *bytes, size_t size, fs_error *err)
{
    record head;
    for (size_t at = 0; size - at >= sizeof head; at += head.size) {
        memcpy(&head, bytes + at, sizeof head);
        at += sizeof head;
        const char *content = bytes + at;
        if (size - at < head.size || !is_possible(stacks, &head, content)) break;
        uint32_t id;
        fs_stack_run run;
        if (head.kind == NAME) FS_TRY(fs_intern_bytes(&stacks->names, content, head.size, &id, err));
        if (head.kind == STACK) FS_TRY(fs_intern_bytes(&stacks->stacks, content, head.size, &id, err));
        if (head.kind != RUN) continue;
        memcpy(&run, content, sizeof run);
        FS_TRY(fs_stacks_add(stacks, &run, err));
    }
    return FS_OK;
}
