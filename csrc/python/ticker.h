/* A thread that ticks. Processes may fork beside it: it is stopped, or held off while they do. */
#ifndef FS_PYTHON_TICKER_H
#define FS_PYTHON_TICKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    pthread_t thread;
    pthread_mutex_t mutex; /* of the rest; the thread holds it while it ticks */
    pthread_cond_t wake;
    bool ending;
    uint32_t holds;
} fs_ticker;

/* Start a thread that calls `body`, without signals. Return an errno value. */
int fs_ticker_start(fs_ticker *ticker, void *(*body)(void *), void *argument);

/* Tell the thread to end. */
void fs_ticker_end(fs_ticker *ticker);

/* From the return of the first to the call of the second, the thread does not tick. They nest. */
void fs_ticker_hold(fs_ticker *ticker);
void fs_ticker_release(fs_ticker *ticker);

/* In the thread: wait for the next tick, `interval` ns from now, and begin it. Return false at the end. */
bool fs_ticker_wait(fs_ticker *ticker, const int64_t *interval);
/* In the thread: end the tick. */
void fs_ticker_ticked(fs_ticker *ticker);

#endif
