/* The CPU's pointwise ops and conversions on tensors of any layout, compared with plain loops, with every instruction
 * set. */
#include "base/parallel.h"
#include "ops/cpu/cpu_device.h"
#include "tests/c/pointwise_check.h"

typedef struct {
    int64_t strides[FS_MAX_DIMS];
    char *data; /* element (0, …) */
    char *block;
} laid_out;

/* Return a random layout of the shape in new memory: permuted, with gaps, negative strides, or broadcast (inputs only).
 */
static laid_out layout_random(int ndim, const int64_t *shape, fs_dtype dtype, bool broadcast)
{
    laid_out layout = {.data = NULL};
    int order[FS_MAX_DIMS];
    for (int d = 0; d < ndim; d++) order[d] = ndim - 1 - d;
    if (random_bits() % 2) {
        for (int d = ndim - 1; d > 0; d--) {
            int other = (int)(random_bits() % (uint64_t)(d + 1)), held = order[d];
            order[d] = order[other];
            order[other] = held;
        }
    }
    int64_t stride = random_bits() % 4 == 0 ? 2 : 1, first = 0;
    for (int d = 0; d < ndim; d++) {
        int dim = order[d];
        if (broadcast && random_bits() % 4 == 0) continue;
        bool backwards = random_bits() % 8 == 0;
        layout.strides[dim] = backwards ? -stride : stride;
        if (backwards) first += (shape[dim] - 1) * stride;
        stride *= shape[dim] + (random_bits() % 4 == 0 ? 3 : 0);
    }
    int64_t size = (int64_t)fs_dtypes[dtype].size;
    layout.block = block_new((size_t)(stride * size));
    layout.data = layout.block + first * size;
    double *numbers = block_new((size_t)stride * 8);
    for (int64_t i = 0; i < stride; i++) numbers[i] = (double)(random_bits() % 15) + 1;
    convert_dense(layout.block, dtype, numbers, FS_FLOAT64, stride);
    free(numbers);
    return layout;
}

static int64_t offset_at(int64_t index, int ndim, const int64_t *shape, const int64_t *strides)
{
    int64_t offset = 0;
    for (int d = ndim - 1; d >= 0; d--) {
        offset += index % shape[d] * strides[d];
        index /= shape[d];
    }
    return offset;
}

static void test_any_layout(void)
{
    static const fs_dtype floats[] = {FS_FLOAT64, FS_FLOAT32, FS_FLOAT16, FS_BFLOAT16};
    for (int round = 0; round < 400; round++) {
        fs_elementwise space = {.ndim = 1 + (int)(random_bits() % 4), .count = 1};
        for (int d = 0; d < space.ndim; d++) {
            static const uint64_t limits[] = {3000, 130, 30, 9};
            space.shape[d] = 1 + (int64_t)(random_bits() % (random_bits() % 3 == 0 ? 4 : limits[space.ndim - 1]));
            space.count *= space.shape[d];
        }
        if (round % 40 == 0) { /* some large enough for several threads */
            space.ndim = 2;
            space.shape[0] = 517;
            space.shape[1] = 611;
            space.count = 517 * 611;
        }
        space.dtype = floats[random_bits() % 4];
        fs_dtype in_dtype = random_bits() % 2 ? space.dtype : (fs_dtype)(random_bits() % FS_BOOL);
        laid_out out = layout_random(space.ndim, space.shape, space.dtype, false);
        laid_out a = layout_random(space.ndim, space.shape, space.dtype, true);
        laid_out b = layout_random(space.ndim, space.shape, space.dtype, true);
        laid_out other = layout_random(space.ndim, space.shape, in_dtype, true);
        bool in_place = random_bits() % 4 == 0;
        int scalar = (int)(random_bits() % 5); /* 0 or 1: that input is a scalar */
        if (in_place) {
            memcpy(a.strides, out.strides, sizeof a.strides);
            free(a.block);
            a.block = NULL;
            a.data = out.data;
            if (scalar == 0) scalar = 4;
        }
        double *expected[3];
        for (int kind = 0; kind < 3; kind++) {
            expected[kind] = block_new((size_t)space.count * 8);
            for (int64_t i = 0; i < space.count; i++) {
                double x = element_get(a.data, space.dtype, offset_at(i, space.ndim, space.shape, a.strides));
                double y = element_get(b.data, space.dtype, offset_at(i, space.ndim, space.shape, b.strides));
                if (scalar == 0) x = 2.5;
                if (scalar == 1) y = 2.5;
                expected[kind][i] = kind == 1 ? x - y : -x;
                if (kind > 0) continue;
                expected[kind][i] =
                    element_get(other.data, in_dtype, offset_at(i, space.ndim, space.shape, other.strides));
            }
        }
        space.out = out.data;
        memcpy(space.out_strides, out.strides, sizeof out.strides);
        for (int kind = 0; kind < 3; kind++) {
            if (kind == 2 && (in_place || scalar == 0))
                continue; /* x was overwritten by the subtraction, or is a scalar */
            if (kind == 0) {
                fs_conversion conversion = {space, in_dtype};
                conversion.space.in[0] = other.data;
                memcpy(conversion.space.in_strides[0], other.strides, sizeof other.strides);
                if (in_place) continue;
                CHECK_OK(fs_cpu_convert(cpu, &conversion, NULL));
            } else {
                space.in[0] = a.data;
                space.in[1] = kind == 1 ? b.data : NULL;
                memcpy(space.in_strides[0], a.strides, sizeof a.strides);
                memcpy(space.in_strides[1], b.strides, sizeof b.strides);
                if (kind == 1 && scalar < 2) {
                    space.in[scalar] = NULL;
                    space.scalar[scalar] = 2.5;
                }
                if (kind == 1) CHECK_OK(fs_cpu_binary(cpu, FS_BINARY_sub, &space, NULL));
                else CHECK_OK(fs_cpu_unary(cpu, FS_UNARY_neg, &space, NULL));
            }
            for (int64_t i = 0; i < space.count; i++) {
                double got = element_get(out.data, space.dtype, offset_at(i, space.ndim, space.shape, out.strides));
                CHECK(got == expected[kind][i], "round %d, kind %d, %s, element %lld: %g, not %g", round, kind,
                      fs_dtypes[space.dtype].name, (long long)i, got, expected[kind][i]);
            }
        }
        for (int kind = 0; kind < 3; kind++) free(expected[kind]);
        free(out.block);
        free(a.block);
        free(b.block);
        free(other.block);
    }
}

static void test_fill_leaves_gaps_alone(void)
{
    enum { ROWS = 300, COLUMNS = 70, PITCH = 80 };
    for (int dtype = 0; dtype < FS_DTYPE_COUNT; dtype++) {
        size_t size = fs_dtypes[dtype].size;
        char *data = block_new(ROWS * PITCH * size);
        fs_elementwise space = {.ndim = 2,
                                .shape = {ROWS, COLUMNS},
                                .out_strides = {PITCH, 1},
                                .out = data,
                                .scalar = {dtype == FS_BOOL ? 1 : 7},
                                .dtype = (fs_dtype)dtype,
                                .count = ROWS * COLUMNS};
        CHECK_OK(fs_cpu_fill(cpu, &space, NULL));
        for (int64_t i = 0; i < ROWS * PITCH; i++) {
            double got = element_get(data, (fs_dtype)dtype, i), want = i % PITCH < COLUMNS ? space.scalar[0] : 0;
            CHECK(got == want, "%s at %lld: %g", fs_dtypes[dtype].name, (long long)i, got);
        }
        free(data);
    }
}

/* Outputs larger than the cache are written with streaming stores: the values are the same, to the last element. */
static void test_large_outputs(void)
{
    int64_t cache = fs_cpu_cache_bytes() > 0 ? fs_cpu_cache_bytes() : 32 << 20;
    int64_t rows = 1024, columns = cache / 2 / 4 / rows + 19, count = rows * columns;
    if (count > (int64_t)1 << 27) return;
    float *in = block_new((size_t)count * 4), *out = block_new((size_t)count * 4 + 64);
    for (int64_t i = 0; i < count; i++) in[i] = (float)(i % 1000003);
    for (int shift = 0; shift < 2; shift++) {
        fs_elementwise space = dense_space(FS_FLOAT32, out + shift, in, NULL, count);
        CHECK_OK(fs_cpu_unary(cpu, FS_UNARY_neg, &space, NULL));
        int64_t wrong = 0;
        for (int64_t i = 0; i < count; i++) wrong += out[i + shift] != -in[i];
        CHECK(wrong == 0, "%lld of %lld wrong", (long long)wrong, (long long)count);
    }
    fs_conversion transposed = {{.ndim = 2,
                                 .shape = {columns, rows},
                                 .out_strides = {rows, 1},
                                 .in_strides = {{1, columns}},
                                 .out = out,
                                 .in = {in},
                                 .dtype = FS_FLOAT32,
                                 .count = count},
                                FS_FLOAT32};
    CHECK_OK(fs_cpu_convert(cpu, &transposed, NULL));
    int64_t wrong = 0;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) wrong += out[c * rows + r] != in[r * columns + c];
    }
    CHECK(wrong == 0, "%lld of %lld wrong in the transposed copy", (long long)wrong, (long long)count);
    free(in);
    free(out);
}

static void test_all(void)
{
    CHECK_OK(fs_parallel_set_threads(3, NULL));
    test_any_layout();
    test_fill_leaves_gaps_alone();
    test_large_outputs();
}

int main(void)
{
    return each_isa(test_all);
}
