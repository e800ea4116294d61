/* Sampled stacks: which frames are the program's, and logs of child processes. Allocations fail in fuzz_tables.c. */
#include <unistd.h>

#include "store/stacks.h"
#include "tests/c/events.h"

enum { PROCESS = 10, MAIN_THREAD = 10 };

/* Push a frame of a text; the outermost has the parent FS_NONE. */
static uint32_t push(fs_stacks *stacks, uint32_t parent, const char *text, bool program)
{
    uint32_t name = FS_NONE, id = FS_NONE;
    CHECK_OK(fs_stacks_name(stacks, text, &name, NULL));
    CHECK_OK(fs_stacks_push(stacks, parent, name, program, &id, NULL));
    return id;
}

static fs_status run(fs_stacks *stacks, int64_t process, uint64_t thread, int64_t begin, int64_t end, int64_t cpu,
                     uint32_t stack)
{
    const fs_stack_run added = {begin, end, cpu, process, thread, stack};
    return fs_stacks_add(stacks, &added, NULL);
}

static const char *text_of(const fs_stacks *stacks, uint32_t id)
{
    return id == FS_NONE ? "" : fs_stacks_text(stacks, fs_stacks_get(stacks, id).name);
}

TEST(frames_are_of_the_program_or_of_libraries)
{
    static const char *const launchers[] = {"/own/cli/", NULL}, *const hidden[] = {"/own/", NULL},
                             *const libraries[] = {"/lib/", NULL}, *const shortened[] = {"/lib/", "/home/", NULL};
    const fs_stack_folders folders = {launchers, hidden, libraries, shortened};
    fs_stacks from = {0}, to = {0};
    uint32_t starts = push(&from, FS_NONE, "<frozen runpy>(88): _run_code", false);
    uint32_t launches = push(&from, starts, "/own/cli/run.py(1): run", false);
    uint32_t own = push(&from, launches, "/own/program.py(1): run", false);
    uint32_t script = push(&from, own, "/home/train.py(9): <module>", false);
    uint32_t import = push(&from, script, "<frozen importlib._bootstrap>(5): _find_and_load", false);
    uint32_t library = push(&from, import, "/lib/nn.py(3): forward", false);
    uint32_t made = push(&from, library, "<string>(2): __init__", false);
    uint32_t typed = push(&from, script, "<string>(1): f", false);
    CHECK_OK(run(&from, PROCESS, MAIN_THREAD, 0, 10, 5, own));
    CHECK_OK(run(&from, PROCESS, MAIN_THREAD, 10, 20, 5, made));
    CHECK_OK(run(&from, PROCESS, MAIN_THREAD, 20, 30, 5, typed));
    CHECK_OK(fs_stacks_append(&to, &from, &folders, 100, INT64_MIN, INT64_MAX, NULL));
    CHECK(to.count == 2 && to.runs[0].begin == 110 && to.runs[0].end == 120); /* without the hidden frame's own */
    CHECK(strcmp(text_of(&to, to.runs[0].stack), "<string>(2): __init__") == 0);
    CHECK(strcmp(text_of(&to, fs_stacks_line(&to, to.runs[0].stack)), "train.py(9): <module>") == 0);
    CHECK(strcmp(text_of(&to, fs_stacks_get(&to, to.runs[0].stack).parent), "nn.py(3): forward") == 0);
    CHECK(strcmp(text_of(&to, fs_stacks_line(&to, to.runs[1].stack)), "<string>(1): f") == 0);
    uint32_t outer = fs_stacks_get(&to, to.runs[1].stack).parent;
    CHECK(strcmp(text_of(&to, outer), "train.py(9): <module>") == 0 && fs_stacks_get(&to, outer).parent == FS_NONE);
    fs_stacks_clear(&from);
    fs_stacks_clear(&to);
}

/* Logs ------------------------------------------------------------------------------------------------------------- */

TEST(a_log_has_what_was_written_before_it_ended)
{
    char path[] = "/tmp/test_stacks-XXXXXX", bytes[4096];
    int file = mkstemp(path);
    fs_stacks from = {0}, all = {0};
    fs_stack_log log = {0};
    uint32_t outer = push(&from, FS_NONE, "a.py(1): f", false);
    CHECK_OK(run(&from, PROCESS, MAIN_THREAD, 0, 10, 5, outer));
    CHECK_OK(fs_stack_log_write(&log, &from, file, NULL));
    CHECK(from.count == 0);
    uint32_t inner = push(&from, outer, "a.py(2): g", false);
    CHECK_OK(run(&from, PROCESS, MAIN_THREAD, 10, 30, 5, inner));
    CHECK_OK(fs_stack_log_write(&log, &from, file, NULL));
    ssize_t size = pread(file, bytes, sizeof bytes, 0);
    CHECK(size > 0);
    CHECK_OK(fs_stack_log_read(&all, bytes, (size_t)size, NULL));
    CHECK(all.count == 2 && all.runs[1].end == 30 && strcmp(text_of(&all, all.runs[1].stack), "a.py(2): g") == 0);
    for (size_t cut = 0; cut < (size_t)size; cut++) { /* killed while it wrote */
        fs_stacks some = {0};
        char *exact = malloc(cut + 1);
        memcpy(exact, bytes, cut);
        CHECK_OK(fs_stack_log_read(&some, exact, cut, NULL));
        CHECK(some.count <= 1);
        fs_stacks_clear(&some);
        free(exact);
    }
    for (size_t at = 0; at < (size_t)size; at++) { /* not a log */
        fs_stacks some = {0};
        bytes[at] = (char)~bytes[at];
        CHECK_OK(fs_stack_log_read(&some, bytes, (size_t)size, NULL));
        bytes[at] = (char)~bytes[at];
        fs_stacks_clear(&some);
    }
    fs_stacks_clear(&from);
    fs_stacks_clear(&all);
    close(file);
    unlink(path);
}
