/* Matrix products: by a BLAS if one is registered, else by built-in tiles. Floats of 16 and 8 bits are converted to
 * float32, and int8 to float64, whose sums of these products are exact. */
#include <stdatomic.h>

#include "base/interrupt.h"
#include "base/parallel.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/cpu_rows.h"
#include "ops/cpu/rows_loops.h"

static _Atomic(fs_blas_matmul) registered_blas;

void fs_cpu_set_blas(fs_blas_matmul blas)
{
    atomic_store(&registered_blas, blas);
}

/* ---- built-in tiles ---- */

typedef struct {
    const fs_cpu_rows_of_dtype *loops;
    const fs_matmul *matmul;
    int64_t tile_rows, tile_columns; /* counts of tiles */
} tile_work;

static void tile_range(void *context, int64_t begin, int64_t end)
{
    const tile_work *work = context;
    const int64_t per_matrix = work->tile_rows * work->tile_columns;
    for (int64_t item = begin; item < end; item++) {
        int64_t tile = item % per_matrix;
        work->loops->gemm_tile(work->matmul, item / per_matrix, tile / work->tile_columns * FS_GEMM_M,
                               tile % work->tile_columns * FS_GEMM_N);
    }
}

static void matmul_by_tiles(const fs_matmul *matmul)
{
    const fs_cpu_rows_loops *loops = FS_ISA_SELECT(fs_cpu_rows_loops);
    tile_work work = {
        .loops = &loops->of[matmul->dtype],
        .matmul = matmul,
        .tile_rows = (matmul->m + FS_GEMM_M - 1) / FS_GEMM_M,
        .tile_columns = (matmul->n + FS_GEMM_N - 1) / FS_GEMM_N,
    };
    /* Each piece is at least about ten microseconds of work. */
    int64_t m = matmul->m < FS_GEMM_M ? matmul->m : FS_GEMM_M, n = matmul->n < FS_GEMM_N ? matmul->n : FS_GEMM_N;
    int64_t grain = (1 << 18) / (m * n * matmul->k);
    fs_parallel_for(matmul->batch * work.tile_rows * work.tile_columns, grain > 0 ? grain : 1, tile_range, &work);
}

/* ---- BLAS ---- */

static const char *offset_bytes(const void *data, int64_t count, fs_dtype dtype)
{
    return (const char *)data + count * (int64_t)fs_dtypes[dtype].size;
}

/* out += product, m x n; product is dense. */
static fs_status add_product(const fs_matmul *matmul, void *out, const void *product, fs_error *err)
{
    const fs_elementwise space = {
        .ndim = 2,
        .shape = {matmul->m, matmul->n},
        .out_strides = {matmul->out_ld, 1},
        .in_strides = {{matmul->out_ld, 1}, {matmul->n, 1}},
        .out = out,
        .in = {out, product},
        .dtype = matmul->dtype,
        .count = matmul->m * matmul->n,
    };
    return fs_cpu_binary((fs_device){FS_CPU, 0}, FS_BINARY_add, &space, err);
}

/* A BLAS call cannot be interrupted. Interruptible work is split into rows of so many FLOPs, a quarter of a second on a
 * slow core. */
static fs_status multiply_rows(fs_blas_matmul blas, const fs_matmul *matmul, fs_error *err)
{
    static const double most_flops = 8e9;
    double flops_each = 2.0 * (double)matmul->n * (double)matmul->k, rows_each = most_flops / (flops_each + 1);
    int64_t rows = rows_each < (double)matmul->m ? (int64_t)rows_each + 1 : matmul->m;
    if (fs_interrupt_current() == NULL) rows = matmul->m;
    for (int64_t row = 0; row < matmul->m; row += rows) {
        fs_matmul part = *matmul;
        part.m = matmul->m - row < rows ? matmul->m - row : rows;
        part.a = offset_bytes(matmul->a, row * (matmul->a_transposed ? 1 : matmul->a_ld), matmul->dtype);
        part.out = (char *)matmul->out + row * matmul->out_ld * (int64_t)fs_dtypes[matmul->dtype].size;
        FS_TRY(fs_interrupt_poll(err));
        FS_TRY(blas(&part, err));
    }
    return FS_OK;
}

static fs_status matmul_by_blas(fs_blas_matmul blas, const fs_matmul *matmul, fs_error *err)
{
    const fs_device cpu = {FS_CPU, 0};
    const fs_dtype dtype = matmul->dtype;
    const size_t product_bytes = (size_t)(matmul->m * matmul->n) * fs_dtypes[dtype].size;
    void *product = NULL;
    fs_status status = FS_OK;

    if (matmul->accumulate) FS_TRY(fs_cpu_allocate(cpu, product_bytes, &product, err));
    for (int64_t i = 0; i < matmul->batch && status == FS_OK; i++) {
        fs_matmul one = *matmul;
        void *out = (char *)matmul->out + i * matmul->out_batch * (int64_t)fs_dtypes[dtype].size;
        one.a = offset_bytes(matmul->a, i * matmul->a_batch, dtype);
        one.b = offset_bytes(matmul->b, i * matmul->b_batch, dtype);
        one.out = product != NULL ? product : out;
        one.out_ld = product != NULL ? matmul->n : matmul->out_ld;
        one.batch = 1;
        one.accumulate = false;
        status = multiply_rows(blas, &one, err);
        if (status == FS_OK && product != NULL) status = add_product(matmul, out, product, err);
    }
    if (product != NULL) fs_cpu_release(cpu, product, product_bytes);
    return status;
}

static fs_status matmul_full_width(const fs_matmul *matmul, fs_error *err)
{
    fs_blas_matmul blas = atomic_load(&registered_blas);
    if (blas != NULL) return matmul_by_blas(blas, matmul, err);
    matmul_by_tiles(matmul);
    return FS_OK;
}

/* ---- narrow dtypes ---- */

/* A stack of matrices as dense float32 or float64: batch x rows x columns, from rows `ld` apart. */
typedef struct {
    int64_t batch, rows, columns;
    fs_dtype dtype;
    void *data;
} wide_stack;

static size_t stack_bytes(const wide_stack *stack)
{
    return (size_t)(stack->batch * stack->rows * stack->columns) * fs_dtypes[stack->dtype].size;
}

/* Convert matrices of the dtype at `data` to a stack, and a stack to matrices. */
static fs_status stack_widen(const wide_stack *stack, const void *data, fs_dtype dtype, int64_t batch_stride,
                             int64_t ld, fs_error *err)
{
    const fs_conversion conversion = {
        .space = {.ndim = 3,
                  .shape = {stack->batch, stack->rows, stack->columns},
                  .out_strides = {stack->rows * stack->columns, stack->columns, 1},
                  .in_strides = {{batch_stride, ld, 1}},
                  .out = stack->data,
                  .in = {data},
                  .dtype = stack->dtype,
                  .count = stack->batch * stack->rows * stack->columns},
        .in_dtype = dtype,
    };
    return fs_cpu_convert((fs_device){FS_CPU, 0}, &conversion, err);
}

static fs_status stack_narrow(const wide_stack *stack, void *data, fs_dtype dtype, int64_t batch_stride, int64_t ld,
                              fs_error *err)
{
    const fs_conversion conversion = {
        .space = {.ndim = 3,
                  .shape = {stack->batch, stack->rows, stack->columns},
                  .out_strides = {batch_stride, ld, 1},
                  .in_strides = {{stack->rows * stack->columns, stack->columns, 1}},
                  .out = data,
                  .in = {stack->data},
                  .dtype = dtype,
                  .count = stack->batch * stack->rows * stack->columns},
        .in_dtype = stack->dtype,
    };
    return fs_cpu_convert((fs_device){FS_CPU, 0}, &conversion, err);
}

static fs_status matmul_widened(const fs_matmul *matmul, fs_error *err)
{
    const fs_device cpu = {FS_CPU, 0};
    const fs_dtype dtype = matmul->dtype == FS_INT32 ? FS_FLOAT64 : FS_FLOAT32;
    const int64_t m = matmul->m, n = matmul->n, k = matmul->k, batch = matmul->batch;
    const bool a_turned = matmul->a_transposed, b_turned = matmul->b_transposed;
    /* Matrices keep their layout, transposed or not. One that all products share is converted once. */
    wide_stack a = {matmul->a_batch == 0 ? 1 : batch, a_turned ? k : m, a_turned ? m : k, dtype, NULL};
    wide_stack b = {matmul->b_batch == 0 ? 1 : batch, b_turned ? n : k, b_turned ? k : n, dtype, NULL};
    wide_stack out = {batch, m, n, dtype, NULL};
    wide_stack *stacks[3] = {&a, &b, &out};
    fs_status status = FS_OK;

    for (int i = 0; i < 3; i++) {
        FS_TRY_GOTO(status, fs_cpu_allocate(cpu, stack_bytes(stacks[i]), &stacks[i]->data, err), done);
    }
    FS_TRY_GOTO(status, stack_widen(&a, matmul->a, matmul->a_dtype, matmul->a_batch, matmul->a_ld, err), done);
    FS_TRY_GOTO(status, stack_widen(&b, matmul->b, matmul->b_dtype, matmul->b_batch, matmul->b_ld, err), done);
    if (matmul->accumulate) {
        FS_TRY_GOTO(status, stack_widen(&out, matmul->out, matmul->dtype, matmul->out_batch, matmul->out_ld, err),
                    done);
    }

    fs_matmul wide = *matmul;
    wide.a_dtype = wide.b_dtype = wide.dtype = dtype;
    wide.a = a.data;
    wide.b = b.data;
    wide.out = out.data;
    wide.a_ld = a.columns;
    wide.b_ld = b.columns;
    wide.out_ld = n;
    wide.a_batch = matmul->a_batch == 0 ? 0 : m * k;
    wide.b_batch = matmul->b_batch == 0 ? 0 : k * n;
    wide.out_batch = m * n;
    FS_TRY_GOTO(status, matmul_full_width(&wide, err), done);
    status = stack_narrow(&out, matmul->out, matmul->dtype, matmul->out_batch, matmul->out_ld, err);

done:
    for (int i = 0; i < 3; i++) {
        if (stacks[i]->data != NULL) fs_cpu_release(cpu, stacks[i]->data, stack_bytes(stacks[i]));
    }
    return status;
}

fs_status fs_cpu_matmul(fs_device device, const fs_matmul *matmul, fs_error *err)
{
    (void)device;
    bool is_wide = matmul->a_dtype == FS_FLOAT64 || matmul->a_dtype == FS_FLOAT32;
    return is_wide ? matmul_full_width(matmul, err) : matmul_widened(matmul, err);
}
