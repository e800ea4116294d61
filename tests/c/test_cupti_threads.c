/* A capture in a program with several threads, and in a process that forks. */
#include <stdatomic.h>
#include <sys/wait.h>

#include "base/unused.h"
#include "sources/cupti/watch.h"
#include "tests/c/fake_capture.h"

enum { THREADS = 6, EACH_THREAD = 4000 };

static void *record_work(void *context)
{
    uint32_t thread = *(uint32_t *)context;
    for (uint32_t i = 0; i < EACH_THREAD; i++) {
        uint32_t correlation = thread * EACH_THREAD + i;
        fake_kernel("k", origin + i, origin + i + 1, thread % 2, thread, correlation);
        fake_call("cudaLaunchKernel_v7000", origin + i, origin + i + 1, 100 + thread, correlation);
    }
    return NULL;
}

TEST(buffers_come_from_any_thread)
{
    static const fs_cupti_options options = {.api_calls = true, .buffer_bytes = 128 << 10, .most_bytes = 64 << 20};
    static uint8_t counts[2][THREADS * EACH_THREAD];
    pthread_t threads[THREADS];
    uint32_t numbers[THREADS];
    fake.uses_workers = true;
    start_capture(&options);
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, record_work, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    stop_capture();
    CHECK(fs_store_count(store) == 2 * THREADS * EACH_THREAD && fs_cupti_last().dropped == 0);
    for (uint32_t i = 0; i < fs_store_count(store); i++) {
        fs_event event = event_at(i);
        bool is_kernel = event.kind == FS_EVENT_KERNEL;
        counts[is_kernel][event.correlation]++;
        CHECK(lane_at(i).id == event.correlation / EACH_THREAD + (is_kernel ? 0 : 100));
    }
    for (uint32_t i = 0; i < THREADS * EACH_THREAD; i++) CHECK(counts[0][i] == 1 && counts[1][i] == 1);
}

static void *launch_graphs(void *context)
{
    fake_launch_graph("cuGraphLaunch", *(uint32_t *)context, EACH_THREAD);
    return NULL;
}

TEST(launches_of_graphs_are_logged_on_any_thread)
{
    pthread_t threads[THREADS];
    uint32_t numbers[THREADS];
    CHECK_OK(fs_watch_start(false, NULL));
    fs_watch_log(true);
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i + 1;
        pthread_create(&threads[i], NULL, launch_graphs, &numbers[i]);
    }
    for (int i = 0; i < 50; i++) { /* while a recording is joined, and others begin and end */
        fs_captures captures = {0};
        fs_replay_report report;
        fs_store *into;
        CHECK_OK(fs_store_create(&into, NULL));
        CHECK_OK(fs_watch_join(store, 0, &captures, into, &report, NULL));
        fs_store_destroy(into);
        fs_watch_log(i % 2 == 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    int64_t logged = fs_watch_state().launches;
    CHECK(logged <= THREADS * EACH_THREAD);
    fake_launch_graph("cuGraphLaunch", 1, 10);
    CHECK(fs_watch_state().launches == logged, "no recording wants launches any more");
    fs_watch_log(true);
    fake_launch_graph("cuGraphLaunch", 1, 10);
    CHECK(fs_watch_state().launches == logged + 10 && fs_watch_state().launches_lost == 0);
    fs_watch_log(false);
    fs_watch_stop();
    fs_watch_forget();
}

static int in_child(void)
{
    fs_error err = {FS_OK, ""};
    failures = 0;
    alarm(20); /* ends a child that hangs */
    long finalized = fake_count("finalized");
    CHECK(fs_cupti_last().dropped == 0 && fs_cupti_last().version == 0);
    CHECK(fs_cupti_stop(&err) == FS_OK && fs_cupti_stop(&err) == FS_OK);
    CHECK(fake_count("finalized") == finalized && fake_client.callback != NULL); /* the child did not touch CUPTI */
    expect_error(fs_cupti_start(store, &with_calls, NULL, &err), &err, "fork");
    return failures != 0;
}

static void fork_and_wait(void)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) _exit(in_child());
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child ended with %d", status);
}

static pthread_barrier_t parsing;

/* Pause while a buffer is parsed, with the parser's locks held. */
static int slow_next_record(uint8_t *buffer, size_t valid, fs_cupti_record **record)
{
    if (*record == NULL) {
        pthread_barrier_wait(&parsing);
        pthread_barrier_wait(&parsing);
    }
    return cuptiActivityGetNextRecord(buffer, valid, record);
}

static void *flush(void *context)
{
    (void)context;
    cuptiActivityFlushAll(FS_CUPTI_FLUSH_FORCED);
    return NULL;
}

TEST(a_forked_child_ends_and_the_parent_goes_on)
{
    pthread_t flusher;
    start_capture(&with_calls);
    launch(3);
    fork_and_wait();
    launch(4);

    pthread_barrier_init(&parsing, NULL, 2);
    functions.next_record = slow_next_record;
    pthread_create(&flusher, NULL, flush, NULL);
    pthread_barrier_wait(&parsing);
    fork_and_wait(); /* while another thread holds the parser's lock */
    functions.next_record = cuptiActivityGetNextRecord;
    pthread_barrier_wait(&parsing);
    pthread_join(flusher, NULL);
    pthread_barrier_destroy(&parsing);

    launch(2);
    stop_capture();
    CHECK(fs_store_count(store) == 9 && fs_cupti_last().dropped == 0, "%u", fs_store_count(store));
}

static bool called_meanwhile;

/* Takes the place of the C library's: what waits for other threads to be quiet sleeps, and one calls meanwhile. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
    int code = clock_nanosleep(CLOCK_REALTIME, 0, time, left);
    if (called_meanwhile) fake_tell_call("cuLaunchKernel", "cuLaunchKernel", 0);
    return code;
}

/* It may be within a call, from which CUPTI cannot be taken away. */
TEST(cupti_stays_while_another_thread_calls_cuda)
{
    for (int i = 0; i < 2; i++) {
        long before = fake_count("finalized");
        start_capture(&with_calls);
        called_meanwhile = i == 0;
        CHECK(fs_cupti_stop(NULL) == FS_OK && fake_client.callback == NULL);
        CHECK(fake_count("finalized") == before + i);
    }
}
