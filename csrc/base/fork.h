/* Whether this process is a forked child, in which only the thread that called fork() exists. */
#ifndef FS_BASE_FORK_H
#define FS_BASE_FORK_H

#include <stdint.h>

/* The number of forks between this process and the first call of this function in it or in a parent. */
uint32_t fs_fork_generation(void);

#endif
