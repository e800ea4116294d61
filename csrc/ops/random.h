/* The stream of random numbers that rand, randn, uniform_ and normal_ draw from. The same on every device. */
#ifndef FS_OPS_RANDOM_H
#define FS_OPS_RANDOM_H

#include <stdint.h>

/* Restart the stream from a seed. Thread-safe, like the function below. */
void fs_op_seed(uint64_t seed);

/* Reserve `count` draws of the random stream. */
void fs_random_take(int64_t count, uint64_t *seed, uint64_t *offset);

#endif
