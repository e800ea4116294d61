#include "ops/observer.h"

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

void fs_observer_set(const fs_observer *observer)
{
    const fs_observer *old = atomic_exchange(&current, observer);
    while (old != NULL && atomic_load(&inside) != 0) sched_yield();
}
