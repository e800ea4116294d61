/* The body runs with the mutex held from fs_ticker_wait to fs_ticker_ticked: whoever holds the ticker off, or ends it,
 * takes the mutex and so never meets a tick half done. All signals are blocked in the thread: they are for the
 * program's own. The clock is monotonic: setting the time of day moves no tick. */
#include "python/ticker.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

int fs_ticker_start(fs_ticker *ticker, void *(*body)(void *), void *argument)
{
    pthread_condattr_t attributes;
    sigset_t all, before;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&ticker->mutex, NULL);
    pthread_cond_init(&ticker->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    ticker->ending = false;
    ticker->holds = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int problem = pthread_create(&ticker->thread, NULL, body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return problem;
}

void fs_ticker_end(fs_ticker *ticker)
{
    pthread_mutex_lock(&ticker->mutex);
    ticker->ending = true;
    pthread_cond_signal(&ticker->wake);
    pthread_mutex_unlock(&ticker->mutex);
}

void fs_ticker_hold(fs_ticker *ticker)
{
    pthread_mutex_lock(&ticker->mutex);
    ticker->holds++;
    pthread_mutex_unlock(&ticker->mutex);
}

void fs_ticker_release(fs_ticker *ticker)
{
    pthread_mutex_lock(&ticker->mutex);
    ticker->holds--;
    pthread_mutex_unlock(&ticker->mutex);
}

bool fs_ticker_wait(fs_ticker *ticker, const int64_t *interval)
{
    pthread_mutex_lock(&ticker->mutex);
    do {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        int64_t at = (int64_t)until.tv_sec * 1000000000 + until.tv_nsec + __atomic_load_n(interval, __ATOMIC_RELAXED);
        until = (struct timespec){at / 1000000000, at % 1000000000};
        int status = 0;
        while (!ticker->ending && status != ETIMEDOUT)
            status = pthread_cond_timedwait(&ticker->wake, &ticker->mutex, &until);
    } while (!ticker->ending && ticker->holds > 0);
    if (!ticker->ending) return true;
    pthread_mutex_unlock(&ticker->mutex);
    return false;
}

void fs_ticker_ticked(fs_ticker *ticker)
{
    pthread_mutex_unlock(&ticker->mutex);
}
