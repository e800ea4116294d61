/* Ending long work early, as on Ctrl-C. Who calls the core opens a section around it, with a question to ask now and
 * then; loops that may take long poll, and give up with FS_INTERRUPTED. Without a section polling costs a load.
 */
#ifndef FS_BASE_INTERRUPT_H
#define FS_BASE_INTERRUPT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct fs_interrupt fs_interrupt;
struct fs_interrupt {
    bool (*ask)(void *context); /* whether to end; called on the thread that opened the section, every 50 ms or so */
    void *context;
    fs_interrupt *outer; /* the section that this one is in, or NULL */
    pthread_t owner;
    int64_t next; /* when to ask again, ns */
    atomic_bool stopped;
};

/* Open a section on the calling thread, and close it. `ask` and `context` are the caller's. */
void fs_interrupt_open(fs_interrupt *section, bool (*ask)(void *context), void *context);
void fs_interrupt_close(fs_interrupt *section);

/* Whether the calling thread's section is to end. The threads of a parallel loop are in the section of its caller. */
bool fs_interrupted(void);

/* FS_INTERRUPTED where it is. */
fs_status fs_interrupt_poll(fs_error *err);

/* Poll once in so many rounds of a loop of small steps. */
enum { FS_POLL_ROUNDS = 1 << 14 };
#define FS_POLL(round, err)                                                \
    do {                                                                   \
        if ((round) % FS_POLL_ROUNDS == 0) FS_TRY(fs_interrupt_poll(err)); \
    } while (0)

/* End the calling thread's section, if there is one: false where there is none. */
bool fs_interrupt_stop(void);

/* The calling thread's section, or NULL; and put the calling thread into one (NULL: into none), for a thread pool. */
fs_interrupt *fs_interrupt_current(void);
void fs_interrupt_enter(fs_interrupt *section);

#endif
