/* Whether this process is a forked child: other threads, and what they held, did not come along. */
#ifndef FS_BASE_FORK_H
#define FS_BASE_FORK_H

#include <stdint.h>

/* How often a fork lies between this process and the first call of this function, or of its parent's. */
uint32_t fs_fork_generation(void);

#endif
