/* The fast path is one relaxed load. Whoever uses the observer is counted in `inside`, and fs_observer_set returns only
 * when nobody is inside the old one, so that its owner may free it. The caller must not be inside itself: it would wait
 * for ever. */
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

/* Enter first, then load the observer: a setter that reads `inside` as 0 after its exchange knows that no thread uses
 * the old one. */
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

/* Ops of a forked child are not observed: threads that were inside an observer do not exist in the child, nor does what
 * the observer waits for. */
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
