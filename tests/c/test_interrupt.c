/* Interruptible sections: which thread polls, what stops, and what continues. */
#include "base/interrupt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "check.h"

typedef struct {
    int polls, stop_at;
    pthread_t thread;
    bool elsewhere; /* polled on a thread that did not open the section */
} poller;

static bool poll_section(void *context)
{
    poller *state = context;
    if (!pthread_equal(state->thread, pthread_self())) state->elsewhere = true;
    return ++state->polls >= state->stop_at;
}

static void pause_ms(int ms)
{
    struct timespec time = {0, (long)ms * 1000000};
    nanosleep(&time, NULL);
}

static atomic_llong done;

static void slow(void *context, int64_t begin, int64_t end)
{
    (void)context;
    for (int64_t i = begin; i < end; i++) pause_ms(1);
    atomic_fetch_add(&done, end - begin);
}

static void test_without_a_section_nothing_ends(void)
{
    fs_error err;
    CHECK(!fs_interrupted() && fs_interrupt_poll(&err) == FS_OK && !fs_interrupt_stop());
    CHECK(fs_interrupt_current() == NULL);
    atomic_store(&done, 0);
    fs_parallel_for(20, 1, slow, NULL);
    CHECK(atomic_load(&done) == 20);
}

static void test_a_parallel_loop_ends_early(void)
{
    for (int threads = 1; threads <= 4; threads++) {
        fs_interrupt section;
        poller state = {.stop_at = 2, .thread = pthread_self()};
        fs_error err = {0};
        CHECK(fs_parallel_set_threads(threads, NULL) == FS_OK);
        atomic_store(&done, 0);
        int64_t began = fs_clock_now();
        fs_interrupt_open(&section, poll_section, &state);
        fs_parallel_for(1000000, 1, slow, NULL); /* a quarter of an hour at 1 ms each */
        CHECK(fs_interrupt_poll(&err) == FS_INTERRUPTED && err.status == FS_INTERRUPTED);
        fs_interrupt_close(&section);
        CHECK(fs_clock_now() - began < 5000000000, "%d threads", threads);
        CHECK(state.polls == 2 && !state.elsewhere, "polled %d times", state.polls);
        CHECK(atomic_load(&done) > 0 && atomic_load(&done) < 1000000);
        CHECK(fs_interrupt_poll(&err) == FS_OK && fs_interrupt_current() == NULL);
        atomic_store(&done, 0);
        fs_parallel_for(100, 1, slow, NULL);
        CHECK(atomic_load(&done) == 100, "the next loop runs completely");
    }
}

static void test_sections_nest(void)
{
    fs_interrupt outer, inner;
    poller never = {.stop_at = 1000000, .thread = pthread_self()}, at_once = {.stop_at = 1, .thread = pthread_self()};
    fs_interrupt_open(&outer, poll_section, &never);
    fs_interrupt_open(&inner, poll_section, &at_once);
    CHECK(!fs_interrupted(), "it is not polled at first");
    pause_ms(60);
    CHECK(fs_interrupted() && fs_interrupted() && at_once.polls == 1 && never.polls == 0);
    fs_interrupt_close(&inner);
    CHECK(!fs_interrupted() && fs_interrupt_current() == &outer);
    CHECK(fs_interrupt_stop() && fs_interrupted());
    fs_interrupt_close(&outer);
    CHECK(!fs_interrupted());
}

int main(void)
{
    test_without_a_section_nothing_ends();
    test_a_parallel_loop_ends_early();
    test_sections_nest();
    if (failures == 0) printf("interrupt: passed\n");
    return failures != 0;
}
