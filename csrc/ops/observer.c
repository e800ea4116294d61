#include "ops/observer.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static _Atomic(const fs_observer *) current;
static atomic_int inside;

const fs_observer *fs_observer_get(void)
{
    return atomic_load_explicit(&current, memory_order_relaxed);
}

/* Announce first, look second: a setter that saw `inside` at 0 after its exchange knows that nobody holds the old. */
const fs_observer *fs_observer_enter(void)
{
    if (fs_observer_get() == NULL) return NULL;
    atomic_fetch_add(&inside, 1);
    const fs_observer *observer = atomic_load(&current);
    if (observer == NULL) fs_observer_leave();
    return observer;
}

void fs_observer_leave(void)
{
    atomic_fetch_sub(&inside, 1);
}

/* A forked child is not watched: the threads that were inside stayed behind, and so did what the observer waits for. */
static void forget(void)
{
    atomic_store(&current, NULL);
    atomic_store(&inside, 0);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget);
}

void fs_observer_set(const fs_observer *observer)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    const fs_observer *old = atomic_exchange(&current, observer);
    while (old != NULL && atomic_load(&inside) != 0) sched_yield();
}
