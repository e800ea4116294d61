/* The stream is a pure function of seed and offset, and a call reserves its share of offsets in one atomic step: two
 * threads never draw the same numbers, and a device does not matter. Shares are whole Philox blocks of 4 numbers. */
#include "ops/random.h"

#include <stdatomic.h>

static atomic_ullong random_seed = 0x5eed;
static atomic_ullong random_offset;

void fs_op_seed(uint64_t seed)
{
    atomic_store(&random_seed, seed);
    atomic_store(&random_offset, 0);
}

void fs_random_take(int64_t count, uint64_t *seed, uint64_t *offset)
{
    *seed = atomic_load(&random_seed);
    *offset = atomic_fetch_add(&random_offset, ((uint64_t)count + 3) & ~(uint64_t)3); /* whole Philox blocks */
}
