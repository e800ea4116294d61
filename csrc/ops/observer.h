/* Who watches the ops: one observer at a time, or none. The op layer tells it of every op and of every change of
 * memory; what it does with that is its own business. With none set an op pays one load. */
#ifndef FS_OPS_OBSERVER_H
#define FS_OPS_OBSERVER_H

#include "ops/op.h"
#include "store/signature.h"

typedef struct {
    void *context;
    /* An op is about to run on the calling thread; what this returns is handed to `end`, called when the op's work
     * is done (CPU) or queued (CUDA). */
    uint64_t (*begin)(void *context, const fs_op *op, const fs_signature *signature, fs_device device);
    void (*end)(void *context, uint64_t token, const fs_op *op, fs_device device, bool failed);
    /* Tensors took (delta > 0) or gave back (delta < 0) memory of a device. */
    void (*memory)(void *context, fs_device device, int64_t delta);
    /* The calling thread runs that task of an event loop from now on; 0: none. */
    void (*task)(void *context, uint64_t task);
    uint64_t serial; /* of this observer alone: another one may come to lie at its address */
} fs_observer;

/* Set the observer, or NULL. Returns once no thread is inside the one before, which may then be destroyed: the caller
 * must not hold a lock that a running op needs. */
void fs_observer_set(const fs_observer *observer);
const fs_observer *fs_observer_get(void);

/* Pair every non-NULL result of enter with a leave. */
const fs_observer *fs_observer_enter(void);
void fs_observer_leave(void);

#endif
