/* The devices that a program begins to use: CUDA tells of each context that is created, primary or not, while a capture
 * has a subscription. Nothing here initializes CUDA. */
#ifndef FS_SOURCES_CUPTI_CONTEXTS_H
#define FS_SOURCES_CUPTI_CONTEXTS_H

#include <stdint.h>

/* Forget the devices. */
void fs_contexts_forget(void);

/* A context was created: a callback of CUPTI's resource domain; private to cupti.c. */
void fs_contexts_called(const void *data);

/* The devices on which contexts were created since fs_contexts_forget, or whose primary contexts are in use, as bits.
 * If none is, wait at most `wait_ns` for the first. */
uint64_t fs_contexts_devices(int64_t wait_ns);

#endif
