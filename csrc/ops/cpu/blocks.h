/* Walks the iteration space of an elementwise record in blocks that fit in the L1 cache, on all threads.
 *
 * A block is a tile of rows × columns of two dimensions of the space. Each operand of it is used where it lies when
 * its elements follow one another there; else they are gathered into a buffer, and the output scattered from one. A
 * loop therefore sees dense arrays only. The two dimensions and the tile's shape are chosen so that long rows are
 * taken as they are, short ones together, and transposed operands in squares.
 */
#ifndef FS_OPS_CPU_BLOCKS_H
#define FS_OPS_CPU_BLOCKS_H

#include "ops/backend.h"
#include "ops/cpu/pointwise_loops.h"

enum { FS_BLOCK_BYTES = 8192, FS_BLOCK_ELEMENTS = 2048 };
/* Of a block that is streamed: short, so that the next is computed while its stores drain. */
enum { FS_STREAM_BYTES = 2048 };

typedef struct fs_block_job fs_block_job;

/* out and in[] are dense; with bit i of `singles` set, in[i] is one element for all of the block. */
typedef void (*fs_block_compute)(const fs_block_job *job, void *out, const void *const *in, unsigned singles,
                                 int64_t count);

struct fs_block_job {
    const fs_elementwise *space;
    int inputs;                 /* of space that are tensors or scalars: 0 to 2 */
    size_t out_size, in_size[2]; /* bytes of an element */
    bool takes_singles;
    fs_block_compute compute;
    const fs_cpu_pointwise_loops *loops;
    /* compute's own */
    fs_unary_loop unary;
    const fs_binary_loop *binary; /* by fs_binary_form */
    const void *scalar[2];        /* where space->in[i] is NULL: one element of what compute takes */
    float narrow[2];              /* that element, for dtypes that are computed in float */
};

void fs_blocks_run(const fs_block_job *job);

#endif
