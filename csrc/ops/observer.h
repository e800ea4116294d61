/* The observer of ops: one at a time, or none. The op layer notifies it of every op and every change of memory. Without
 * an observer an op costs one extra load. */
#ifndef FS_OPS_OBSERVER_H
#define FS_OPS_OBSERVER_H

#include "ops/op.h"
#include "store/signature.h"

typedef struct {
    void *context;
    /* An op is about to run on the calling thread. The return value is passed to `end`, which is called when the op's
     * work is done (CPU) or queued (CUDA). */
    uint64_t (*begin)(void *context, const fs_op *op, const fs_signature *signature, fs_device device);
    void (*end)(void *context, uint64_t token, const fs_op *op, fs_device device, bool failed);
    /* A tensor has allocated a block of memory of a device (delta > 0), or is about to release it (delta < 0): no other
     * tensor has its address yet. */
    void (*memory)(void *context, fs_device device, int64_t delta, uint64_t address);
    /* The calling thread runs that task of an event loop from now on; 0: none. */
    void (*task)(void *context, uint64_t task);
    uint64_t serial; /* unique to this observer: addresses may be reused */
} fs_observer;

/* Set the observer, or NULL. Returns once no thread is inside the previous one, which may then be destroyed. The caller
 * must not hold a lock that a running op needs. */
void fs_observer_set(const fs_observer *observer);
const fs_observer *fs_observer_get(void);

/* Every non-NULL result of enter must be paired with a leave. */
const fs_observer *fs_observer_enter(void);
void fs_observer_leave(void);

#endif
