/* Puts joined records into the store. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_APPEND_H
#define FS_SOURCES_KINETO_APPEND_H

#include "sources/kineto/owners.h"

/* Append the nested hosts. Their records then have their indices. FS_OUT_OF_MEMORY. */
fs_status fs_join_append_hosts(fs_join *join, fs_error *err);
/* Append the records of devices and the host's waits for them, after the launchers are known. FS_OUT_OF_MEMORY. */
fs_status fs_join_append_devices(fs_owners *owners, fs_error *err);

/* Links the ops of the backward pass of a trace to their ops of the forward pass. Private to the trace source. */

/* Set `forward` of the stored ops. As in Kineto (generateForwardBackwardLinks), the op of the forward pass is the last
 * one with the "Sequence number" on its thread, because it made the autograd node. A trace does not tell which thread a
 * "Fwd thread id" is: where several threads have the number, it is the thread that made most other nodes of that id. An
 * op without such a number, such as AccumulateGrad, has no link. FS_OUT_OF_MEMORY. */
fs_status fs_join_backward(const fs_join *join, fs_error *err);

/* Changes of memory. Private to the trace source. */

/* Append the memory records, after the hosts are in the store. FS_OUT_OF_MEMORY. */
fs_status fs_join_memory(fs_join *join, fs_error *err);

#endif
