/* A log is only appended to, and each write ends with whole records; a program that was killed leaves at most one cut
 * record at the end. Reading stops at the first record that is cut or refers to what has not come, and keeps all before
 * it. A run that was written is forgotten, so that the memory of a long program stays small. */
#include "store/stack_log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "store/event.h"

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
    if (to.bytes == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to write %u stacks", stacks->count);
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
