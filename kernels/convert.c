/* The cheapest kernel that the layout allows: dense, then vectors along a common unit stride, then tiles if each side
 * has its unit stride along another axis, then element by element. Kernels index with 32 bits, so a larger space is
 * split until its parts fit. */
#include "kernels/convert.h"

static const fs_convert_kernels *const kernels_to[FS_DTYPE_COUNT] = {
#define KERNELS_TO(NAME, name, ...) &fs_convert_to_##name,
    FS_DTYPE_LIST(KERNELS_TO)
#undef KERNELS_TO
};

static int log2_of(size_t size)
{
    return __builtin_ctzll((unsigned long long)size);
}

static fs_status convert_dense(fs_device device, const fs_conversion *conversion, fs_error *err)
{
    const fs_elementwise *space = &conversion->space;
    int items = FS_CONVERT_ITEMS(fs_dtypes[space->dtype].size, fs_dtypes[conversion->in_dtype].size);
    fs_convert_dense arguments = {
        .out = space->out,
        .in = space->in[0],
        .count = space->count,
        .vectors = fs_is_aligned(space->out, FS_VECTOR_BYTES) && fs_is_aligned(space->in[0], FS_VECTOR_BYTES),
    };
    return fs_cuda_launch(device, kernels_to[space->dtype]->dense[conversion->in_dtype],
                          fs_ceil_div(space->count, FS_TILE_THREADS * items), FS_TILE_THREADS, &arguments,
                          "launching a conversion", err);
}

static fs_status launch_strided(fs_device device, const void *kernel, const fs_elementwise *space, int64_t unit,
                                fs_error *err)
{
    fs_convert_strided arguments = {.out = space->out, .in = space->in[0], .layout = fs_layout_of(space, unit)};
    /* The kernel for vectors counts in vectors throughout. */
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < space->ndim; d++) arguments.layout.strides[i][d] /= unit;
    return fs_cuda_launch(device, kernel, fs_ceil_div(arguments.layout.units, FS_TILE_THREADS * FS_COPY_ITEMS),
                          FS_TILE_THREADS, &arguments, "launching a strided copy", err);
}

/* Find the dimensions in which the two sides have their unit strides, if they differ and both are long enough for tiles
 * to pay off. */
static bool find_transpose(const fs_elementwise *space, int *in_unit, int *out_unit)
{
    enum { SHORTEST = 16 };

    *in_unit = *out_unit = -1;
    for (int d = 0; d < space->ndim; d++) {
        if (space->shape[d] < SHORTEST) continue;
        if (space->in_strides[0][d] == 1) *in_unit = d;
        if (space->out_strides[d] == 1) *out_unit = d;
    }
    return *in_unit >= 0 && *out_unit >= 0 && *in_unit != *out_unit;
}

/* Whether both sides of every matrix move as vectors. */
static bool transposes_vectors(const fs_transpose *transpose, const fs_elementwise *batch, size_t size)
{
    int64_t width = FS_VECTOR_BYTES / (int64_t)size, odd = 0;
    odd |= transpose->rows | transpose->columns | transpose->in_stride | transpose->out_stride;
    for (int d = 0; d < batch->ndim; d++) odd |= batch->in_strides[0][d] | batch->out_strides[d];
    return (odd & (width - 1)) == 0 && fs_is_aligned(transpose->in, FS_VECTOR_BYTES) &&
           fs_is_aligned(transpose->out, FS_VECTOR_BYTES);
}

static fs_status transpose(fs_device device, const fs_elementwise *space, int in_unit, int out_unit, fs_error *err)
{
    size_t size = fs_dtypes[space->dtype].size;
    fs_elementwise batch = *space;
    fs_transpose arguments = {
        .out = space->out,
        .in = space->in[0],
        .rows = space->shape[out_unit],
        .columns = space->shape[in_unit],
        .in_stride = space->in_strides[0][out_unit],
        .out_stride = space->out_strides[in_unit],
    };
    batch.ndim = 0;
    for (int d = 0; d < space->ndim; d++) {
        if (d == in_unit || d == out_unit) continue;
        batch.shape[batch.ndim] = space->shape[d];
        batch.out_strides[batch.ndim] = space->out_strides[d];
        batch.in_strides[0][batch.ndim++] = space->in_strides[0][d];
    }
    batch.count = space->count / (arguments.rows * arguments.columns);
    arguments.batch = fs_layout_of(&batch, 1);
    bool vectors = transposes_vectors(&arguments, &batch, size);
    int64_t row_tiles = fs_ceil_div(arguments.rows, FS_TRANSPOSE_ROWS);
    int64_t tiles = fs_ceil_div(arguments.columns, FS_TRANSPOSE_COLUMNS(size, vectors)) * row_tiles;
    arguments.row_tiles = fs_fast_divisor_of((uint32_t)row_tiles);
    arguments.tiles = fs_fast_divisor_of((uint32_t)tiles);
    return fs_cuda_launch(device, fs_transpose_kernels[vectors][log2_of(size)], batch.count * tiles,
                          FS_TRANSPOSE_THREADS, &arguments, "launching a transpose", err);
}

static fs_status convert_strided(fs_device device, const fs_conversion *conversion, fs_error *err)
{
    const fs_elementwise *space = &conversion->space;
    size_t out_size = fs_dtypes[space->dtype].size, in_size = fs_dtypes[conversion->in_dtype].size;
    int64_t unit = FS_VECTOR_BYTES / (int64_t)out_size;
    int in_unit, out_unit;

    if (space->count > INT32_MAX) {
        fs_conversion first = *conversion, rest = *conversion;
        fs_space_split(&first.space, &rest.space, out_size, in_size);
        FS_TRY(convert_strided(device, &first, err));
        return convert_strided(device, &rest, err);
    }
    if (conversion->in_dtype == space->dtype) {
        if (fs_space_has_vectors(space, 1, unit, out_size, false))
            return launch_strided(device, fs_copy_vectors_kernel, space, unit, err);
        if (find_transpose(space, &in_unit, &out_unit)) return transpose(device, space, in_unit, out_unit, err);
    }
    return launch_strided(device, kernels_to[space->dtype]->strided[conversion->in_dtype], space, 1, err);
}

fs_status fs_cuda_convert(fs_device device, const fs_conversion *conversion, fs_error *err)
{
    fs_conversion own = *conversion;
    own.space.in[1] = NULL;
    if (fs_space_is_dense(&own.space, 1)) return convert_dense(device, &own, err);
    return convert_strided(device, &own, err);
}

static fs_status fill_dense(fs_device device, const fs_elementwise *space, uint64_t bits, fs_error *err)
{
    size_t size = fs_dtypes[space->dtype].size;
    fs_fill_dense arguments = {.out = space->out, .nbytes = space->count * (int64_t)size};
    unsigned char bytes[FS_VECTOR_BYTES];

    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(bits >> 8 * (i % size));
    __builtin_memcpy(arguments.pattern, bytes, sizeof bytes);
    arguments.head = (int64_t)(-(uintptr_t)space->out % FS_VECTOR_BYTES);
    if (arguments.head > arguments.nbytes) arguments.head = arguments.nbytes;
    int64_t blocks = fs_ceil_div(arguments.nbytes, FS_VECTOR_BYTES * FS_TILE_THREADS * FS_COPY_ITEMS);
    return fs_cuda_launch(device, fs_fill_dense_kernel, blocks, FS_TILE_THREADS, &arguments, "launching a fill", err);
}

static fs_status fill_strided(fs_device device, const fs_elementwise *space, uint64_t bits, fs_error *err)
{
    size_t size = fs_dtypes[space->dtype].size;
    if (space->count > INT32_MAX) {
        fs_elementwise first = *space, rest;
        fs_space_split(&first, &rest, size, size);
        FS_TRY(fill_strided(device, &first, bits, err));
        return fill_strided(device, &rest, bits, err);
    }
    fs_fill_strided arguments = {.out = space->out, .bits = bits, .layout = fs_layout_of(space, 1)};
    return fs_cuda_launch(device, fs_fill_strided_kernels[log2_of(size)],
                          fs_ceil_div(arguments.layout.units, FS_TILE_THREADS * FS_COPY_ITEMS), FS_TILE_THREADS,
                          &arguments, "launching a strided fill", err);
}

fs_status fs_cuda_fill(fs_device device, const fs_elementwise *space, fs_error *err)
{
    fs_elementwise own = *space;
    uint64_t bits = fs_fill_bits(space->scalar[0], space->dtype);

    own.in[0] = own.in[1] = NULL;
    if (fs_space_is_dense(&own, 0)) return fill_dense(device, &own, bits, err);
    return fill_strided(device, &own, bits, err);
}
