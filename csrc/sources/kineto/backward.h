/* Links the ops of the backward pass of a trace to their ops of the forward pass. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_BACKWARD_H
#define FS_SOURCES_KINETO_BACKWARD_H

#include "sources/kineto/hosts.h"

/* Set `forward` of the stored ops. As in Kineto (generateForwardBackwardLinks), the op of the forward pass is the last
 * one with the "Sequence number" on its thread, because it made the autograd node. A trace does not tell which thread a
 * "Fwd thread id" is: where several threads have the number, it is the thread that made most other nodes of that id. An
 * op without such a number, such as AccumulateGrad, has no link. FS_OUT_OF_MEMORY. */
fs_status fs_join_backward(const fs_join *join, fs_error *err);

#endif
