/* One table of kernels for each dtype, indexed by the op's id. A dense space is launched as one axis; others go with
 * their layout, in vectors where all operands allow it, and a space of more than 2^31 elements in parts. */
#include "kernels/pointwise.h"

static const fs_pointwise_kernels *const kernels_of[] = {
    [FS_FLOAT64] = &fs_pointwise_float64,
    [FS_FLOAT32] = &fs_pointwise_float32,
    [FS_FLOAT16] = &fs_pointwise_float16,
    [FS_BFLOAT16] = &fs_pointwise_bfloat16,
};

static const char *const unary_doing[] = {
#define FS_UNARY(name, value, prose) "launching " #name,
#include "ops/pointwise.def"
#undef FS_UNARY
};

static const char *const binary_doing[] = {
#define FS_BINARY(name, value, prose) "launching " #name,
#include "ops/pointwise.def"
#undef FS_BINARY
};

static fs_status launch_dense(fs_device device, const void *kernel, const char *doing, const fs_elementwise *space,
                              bool heavy, fs_error *err)
{
    int64_t tile = FS_TILE_THREADS * FS_DENSE_ITEMS(fs_dtypes[space->dtype].size, heavy);
    fs_dense_arguments arguments = {
        .out = space->out,
        .in = {space->in[0], space->in[1]},
        .scalar = {space->scalar[0], space->scalar[1]},
        .scalar32 = {(float)space->scalar[0], (float)space->scalar[1]},
        .count = space->count,
        .vectors = fs_is_aligned(space->out, FS_VECTOR_BYTES) && fs_is_aligned(space->in[0], FS_VECTOR_BYTES) &&
                   fs_is_aligned(space->in[1], FS_VECTOR_BYTES),
    };
    return fs_cuda_launch(device, kernel, fs_ceil_div(space->count, tile), FS_TILE_THREADS, &arguments, doing, err);
}

static fs_status launch_strided(fs_device device, const void *kernel, const char *doing, const fs_elementwise *space,
                                int inputs, fs_error *err)
{
    size_t size = fs_dtypes[space->dtype].size;
    int items = FS_STRIDED_ITEMS(size), inner = space->ndim - 1;

    if (space->count > INT32_MAX) {
        fs_elementwise first = *space, rest;
        fs_space_split(&first, &rest, size, size);
        FS_TRY(launch_strided(device, kernel, doing, &first, inputs, err));
        return launch_strided(device, kernel, doing, &rest, inputs, err);
    }
    bool vectors = fs_space_has_vectors(space, inputs, items, size, true);
    fs_strided_arguments arguments = {
        .out = space->out,
        .in = {space->in[0], space->in[1]},
        .scalar = {space->scalar[0], space->scalar[1]},
        .scalar32 = {(float)space->scalar[0], (float)space->scalar[1]},
        .vectors = vectors,
        .splat = {space->in_strides[0][inner] == 0, inputs == 2 && space->in_strides[1][inner] == 0},
        .layout = fs_layout_of(space, vectors ? items : 1),
    };
    int64_t tile = vectors ? FS_TILE_THREADS : FS_TILE_THREADS * items;
    return fs_cuda_launch(device, kernel, fs_ceil_div(arguments.layout.units, tile), FS_TILE_THREADS, &arguments, doing,
                          err);
}

/* A unary op has no second input. */
static fs_elementwise one_input(const fs_elementwise *space)
{
    fs_elementwise own = *space;
    own.in[1] = NULL;
    own.scalar[1] = 0;
    return own;
}

fs_status fs_cuda_unary(fs_device device, fs_unary_id op, const fs_elementwise *space, fs_error *err)
{
    const fs_pointwise_kernels *kernels = kernels_of[space->dtype];
    fs_elementwise own = one_input(space);
    if (fs_space_is_dense(&own, 1))
        return launch_dense(device, kernels->unary_dense[op], unary_doing[op], &own, false, err);
    return launch_strided(device, kernels->unary_strided[op], unary_doing[op], &own, 1, err);
}

fs_status fs_cuda_binary(fs_device device, fs_binary_id op, const fs_elementwise *space, fs_error *err)
{
    const fs_pointwise_kernels *kernels = kernels_of[space->dtype];
    bool dense = fs_space_is_dense(space, 2);
    if (dense && op == FS_BINARY_pow && space->in[0] && !space->in[1] && fs_is_few_power(space->scalar[1]))
        return launch_dense(device, kernels->few_powers_dense, binary_doing[op], space, false, err);
    if (dense)
        return launch_dense(device, kernels->binary_dense[op], binary_doing[op], space, FS_BINARY_IS_HEAVY(op), err);
    return launch_strided(device, kernels->binary_strided[op], binary_doing[op], space, 2, err);
}
