/* The thread pool: every index is visited once, for any count, nesting and number of callers. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/parallel.h"
#include "tests/c/check.h"

enum { MARKS = 100000 };

static void body_mark(void *context, int64_t begin, int64_t end)
{
    unsigned char *marks = context;
    CHECK(begin % 16 == 0, "a piece begins at %lld", (long long)begin);
    for (int64_t i = begin; i < end; i++) marks[i]++;
}

static void body_nested(void *context, int64_t begin, int64_t end)
{
    unsigned char **rows = context;
    for (int64_t i = begin; i < end; i++) fs_parallel_for(MARKS / 100, 16, body_mark, rows[i]);
}

static bool marks_are(const unsigned char *marks, int64_t count, unsigned char want)
{
    for (int64_t i = 0; i < count; i++) {
        if (marks[i] != want) return false;
    }
    return true;
}

static void *caller_main(void *context)
{
    for (int i = 0; i < 100; i++) fs_parallel_for(MARKS, 16, body_mark, context);
    return NULL;
}

static bool own_loop_covers(unsigned char *marks)
{
    memset(marks, 0, MARKS);
    fs_parallel_for(MARKS, 16, body_mark, marks);
    return marks_are(marks, MARKS, 1);
}

static bool begun_loop_covers(unsigned char *marks)
{
    bool begun = fs_parallel_begin(MARKS, 16, body_mark, marks);
    if (begun) fs_parallel_end();
    return begun && marks_are(marks, MARKS, 1);
}

static bool child_finds(bool (*holds)(unsigned char *), unsigned char *marks)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) _exit(holds(marks) ? 0 : 1);
    return waitpid(child, &status, 0) == child && status == 0;
}

TEST(parallel_for_covers_once)
{
    unsigned char *marks = calloc(MARKS, 1);
    for (int threads = 1; threads <= 9; threads += 4) {
        CHECK(fs_parallel_set_threads(threads, NULL) == FS_OK && fs_parallel_threads() == threads, "%d", threads);
        for (int64_t count = 0; count < MARKS; count += 7777) {
            memset(marks, 0, MARKS);
            fs_parallel_for(count, 16, body_mark, marks);
            bool once = marks_are(marks, count, 1) && marks_are(marks + count, MARKS - count, 0);
            CHECK(once, "%d threads, count %lld", threads, (long long)count);
        }
    }
    /* Nested loops and concurrent callers all finish. */
    unsigned char *rows[64];
    for (int i = 0; i < 64; i++) rows[i] = calloc(MARKS / 100, 1);
    fs_parallel_for(64, 1, body_nested, rows);
    for (int i = 0; i < 64; i++) {
        CHECK(marks_are(rows[i], MARKS / 100, 1), "row %d", i);
        free(rows[i]);
    }
    pthread_t callers[4];
    unsigned char *each[4];
    for (int i = 0; i < 4; i++) {
        each[i] = calloc(MARKS, 1);
        if (pthread_create(&callers[i], NULL, caller_main, each[i]) != 0) abort();
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(callers[i], NULL);
        CHECK(marks_are(each[i], MARKS, 100), "caller %d", i);
        free(each[i]);
    }
    CHECK(child_finds(own_loop_covers, marks), "a forked child has its own pool");
    free(marks);
}

/* The caller works on the rest when it ends the loop; others use their own threads until then. */
TEST(a_loop_that_was_begun_covers_once)
{
    unsigned char *marks = calloc(MARKS, 1), *others = calloc(MARKS, 1);
    for (int threads = 1; threads <= 9; threads += 4) {
        CHECK_OK(fs_parallel_set_threads(threads, NULL));
        for (int64_t count = 0; count < MARKS; count += 7777) {
            memset(marks, 0, MARKS);
            memset(others, 0, MARKS);
            bool begun = fs_parallel_begin(count, 16, body_mark, marks);
            CHECK(begun == (threads > 1 && count > 16), "%d threads, count %lld", threads, (long long)count);
            fs_parallel_for(MARKS, 16, body_mark, others);
            CHECK(!fs_parallel_begin(MARKS, 16, body_mark, others) || !begun, "two loops at once");
            if (!begun && threads > 1) fs_parallel_end();
            if (begun) fs_parallel_end();
            CHECK(marks_are(marks, begun ? count : 0, 1), "%d threads, count %lld", threads, (long long)count);
            CHECK(marks_are(others, MARKS, begun || threads == 1 ? 1 : 2), "%d threads", threads);
        }
    }
    memset(marks, 0, MARKS);
    memset(others, 0, MARKS);
    CHECK(fs_parallel_begin(MARKS, 16, body_mark, marks), "the pool is busy");
    CHECK(child_finds(begun_loop_covers, others), "a child that is forked meanwhile has a pool without the loop");
    fs_parallel_end();
    CHECK(marks_are(marks, MARKS, 1), "the parent's loop");
    free(marks);
    free(others);
}
