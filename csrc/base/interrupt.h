/* Interruption of long work, as by Ctrl-C. A caller of the core opens a section around the work, with a callback that
 * decides whether to stop. Loops that may take long poll, and stop with FS_INTERRUPTED. Without a section polling costs
 * a load.
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
    bool (*ask)(void *context); /* whether to stop; called about every 50 ms, on the thread that opened the section */
    void *context;
    fs_interrupt *outer; /* the enclosing section, or NULL */
    pthread_t owner;
    int64_t next; /* time of the next call of `ask`, ns */
    atomic_bool stopped;
};

/* Open a section on the calling thread, and close it. The caller sets `ask` and `context`. */
void fs_interrupt_open(fs_interrupt *section, bool (*ask)(void *context), void *context);
void fs_interrupt_close(fs_interrupt *section);

/* Whether the calling thread's section should stop. The threads of a parallel loop share the section of its caller. */
bool fs_interrupted(void);

/* Return FS_INTERRUPTED if the section should stop. */
fs_status fs_interrupt_poll(fs_error *err);

/* Poll once every so many rounds of a loop with small steps. */
enum { FS_POLL_ROUNDS = 1 << 14 };
#define FS_POLL(round, err)                                                \
    do {                                                                   \
        if ((round) % FS_POLL_ROUNDS == 0) FS_TRY(fs_interrupt_poll(err)); \
    } while (0)

/* Stop the calling thread's section. Return false if there is none. */
bool fs_interrupt_stop(void);

/* For a thread pool: the calling thread's section, or NULL; and set the calling thread's section (NULL: none). */
fs_interrupt *fs_interrupt_current(void);
void fs_interrupt_enter(fs_interrupt *section);

#endif
