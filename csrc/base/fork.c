/* The handler in the child only counts: whoever holds state remembers the generation in which it was made, and leaves
 * it alone when this one differs. Forks are counted from the first question on, which is before any state remembers
 * one. */
#include "base/fork.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_uint generation;

static void count_fork(void)
{
    atomic_fetch_add(&generation, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

uint32_t fs_fork_generation(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    return atomic_load_explicit(&generation, memory_order_relaxed);
}
