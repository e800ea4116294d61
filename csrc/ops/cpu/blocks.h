/* A walk over the iteration space of an elementwise op, in blocks that fit in the L1 cache, on all threads.
 *
 * A block is a tile of rows × columns of two dimensions of the space. An operand whose elements are contiguous there is
 * used in place. Other inputs are gathered into a buffer, and the output is scattered from one. A loop therefore sees
 * only dense arrays. The two dimensions and the tile's shape are chosen so that long rows are used in place, short rows
 * are combined, and transposed operands are read in squares.
 */
#ifndef FS_OPS_CPU_BLOCKS_H
#define FS_OPS_CPU_BLOCKS_H

#include "ops/backend.h"
#include "ops/cpu/pointwise_loops.h"

enum { FS_BLOCK_BYTES = 8192, FS_BLOCK_ELEMENTS = 2048 };
/* Elements of a block that is streamed: few, so that the next is computed while its stores drain. */
enum { FS_STREAM_BYTES = 2048 };

typedef struct fs_block_job fs_block_job;

/* out and in[] are dense. If bit i of `singles` is set, in[i] is a single element for the whole block. */
typedef void (*fs_block_compute)(const fs_block_job *job, void *out, const void *const *in, unsigned singles,
                                 int64_t count);

struct fs_block_job {
    const fs_elementwise *space;
    int inputs;                  /* number of tensors or scalars in the space: 0 to 2 */
    size_t out_size, in_size[2]; /* bytes of an element */
    bool takes_singles;
    fs_block_compute compute;
    const fs_cpu_pointwise_loops *loops;
    /* private to compute */
    fs_unary_loop unary;
    const fs_binary_loop *binary; /* by fs_binary_form */
    const void *scalar[2];        /* where space->in[i] is NULL: one element of compute's input type */
    float narrow[2];              /* that element, for dtypes that are computed in float */
};

void fs_blocks_run(const fs_block_job *job);

#endif
