/* The ops below what Python reaches: outputs beyond the cache, random numbers word by word, a registered BLAS, the
 * recorder, and each allocation failing in turn. What ops compute, on tensors of any layout, is tested
 * in tests/ops. */
#include "base/parallel.h"
#include "device/peaks.h"
#include "ops/backend.h"
#include "ops/cpu/cpu_device.h"
#include "ops/observer.h"
#include "ops/op.h"
#include "ops/philox.h"
#include "sources/native.h"
#include "table/table.h"
#include "tests/c/check.h"

static const fs_device cpu = {.kind = FS_CPU};
static const fs_backend *const backend = &fs_cpu_backend;

/* Outputs larger than the cache are written with streaming stores ------------------------------------------------- */

TEST(large_outputs_are_right_to_the_last_element)
{
    int64_t cache = fs_cpu_cache_bytes() > 0 ? fs_cpu_cache_bytes() : 32 << 20;
    int64_t rows = 1024, columns = cache / 2 / 4 / rows + 19, count = rows * columns, wrong = 0;
    if (count > (int64_t)1 << 27) return;
    CHECK_OK(fs_parallel_set_threads(3, NULL));
    float *in = malloc((size_t)count * 4), *out = malloc((size_t)count * 4 + 4);
    for (int64_t i = 0; i < count; i++) in[i] = (float)(i % 1000003);
    for (int shift = 0; shift < 2; shift++) { /* rows begin anywhere in a cache line */
        fs_elementwise space = {.ndim = 1, .shape = {count}, .out_strides = {1}, .in_strides = {{1}}, .count = count};
        space.out = out + shift, space.in[0] = in, space.dtype = FS_FLOAT32;
        CHECK_OK(backend->unary(cpu, FS_UNARY_neg, &space, NULL));
        for (int64_t i = 0; i < count; i++) wrong += out[i + shift] != -in[i];
    }
    fs_conversion transposed = {{.ndim = 2, .shape = {columns, rows}, .count = count}, FS_FLOAT32};
    transposed.space.out = out, transposed.space.in[0] = in, transposed.space.dtype = FS_FLOAT32;
    transposed.space.out_strides[0] = rows, transposed.space.out_strides[1] = 1;
    transposed.space.in_strides[0][0] = 1, transposed.space.in_strides[0][1] = columns;
    CHECK_OK(backend->convert(cpu, &transposed, NULL));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) wrong += out[c * rows + r] != in[r * columns + c];
    for (int64_t i = 0; i < count; i++) in[i] = i % 2 ? 1 : -1;
    const fs_cumsum scan = {in, out, rows, columns, FS_FLOAT32};
    CHECK_OK(backend->cumsum(cpu, &scan, NULL));
    for (int64_t i = 0; i < count; i++) wrong += fabsf(out[i]) > 1 || (i % columns == 0 && out[i] != in[i]);
    const fs_rowwise norm = {.in = in, .out = out, .rows = rows, .length = columns, .dtype = FS_FLOAT32};
    CHECK_OK(backend->rowwise(cpu, FS_RMS_NORM, &norm, NULL)); /* the mean of the squares is 1 */
    for (int64_t i = 0; i < count; i++) wrong += fabsf(out[i] - in[i]) > 1e-6f;
    CHECK(wrong == 0, "%lld of %lld wrong", (long long)wrong, (long long)count);
    free(in);
    free(out);
}

/* A registered BLAS ------------------------------------------------------------------------------------------------ */

static int blas_calls;

static fs_status ones_blas(const fs_matmul *matmul, fs_error *err)
{
    (void)err;
    blas_calls++;
    CHECK(matmul->batch == 1 && !matmul->accumulate, "batch %lld", (long long)matmul->batch);
    for (int64_t i = 0; i < matmul->m; i++)
        for (int64_t j = 0; j < matmul->n; j++) ((float *)matmul->out)[i * matmul->out_ld + j] = (float)matmul->k;
    return FS_OK;
}

static fs_status broken_blas(const fs_matmul *matmul, fs_error *err)
{
    (void)matmul;
    return fs_fail(err, FS_RUNTIME_ERROR, "the BLAS is broken");
}

/* Multiply ones: 2 matrices of 5 x 3 by one of 3 x 7, added to ones. */
static fs_status multiply(fs_dtype dtype, float *sum, fs_error *err)
{
    uint16_t halves[64];
    float ones[128];
    for (int i = 0; i < 64; i++) halves[i] = 0x3c00;
    for (int i = 0; i < 128; i++) ones[i] = 1;
    void *in = dtype == FS_FLOAT32 ? (void *)ones : halves;
    fs_matmul matmul = {.a = in, .b = in, .m = 5, .n = 7, .k = 3, .batch = 2, .a_ld = 3, .b_ld = 7, .out_ld = 7};
    matmul.out = dtype == FS_FLOAT32 ? (void *)&ones[32] : &halves[32];
    matmul.a_batch = 15, matmul.out_batch = 35;
    if (dtype != FS_FLOAT32) matmul.batch = matmul.m = matmul.n = 1;
    matmul.accumulate = true;
    matmul.a_dtype = matmul.b_dtype = matmul.dtype = dtype;
    FS_TRY(backend->matmul(cpu, &matmul, err));
    *sum = 0;
    for (int i = 0; i < 70; i++) *sum += ones[32 + i];
    return FS_OK;
}

TEST(a_registered_blas_computes_the_products)
{
    float sum;
    fs_error err = {0};
    CHECK(multiply(FS_FLOAT32, &sum, &err) == FS_OK && sum == 70 * 4, "%g", (double)sum);
    fs_cpu_set_blas(ones_blas);
    CHECK(multiply(FS_FLOAT32, &sum, &err) == FS_OK && sum == 70 * 4 && blas_calls > 0, "%g", (double)sum);
    fs_cpu_set_blas(broken_blas);
    CHECK(multiply(FS_FLOAT16, &sum, &err) == FS_RUNTIME_ERROR, "%s", err.message);
    fs_cpu_set_blas(NULL);
}

/* Random numbers --------------------------------------------------------------------------------------------------- */

/* Random123's known-answer test of philox4x32-10 with a counter and key of zeros. */
TEST(philox_gives_the_published_words)
{
    static const uint32_t want[4] = {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8};
    fs_philox_words words = fs_philox(0, 0);
    CHECK(memcmp(words.word, want, sizeof want) == 0, "%08x", words.word[0]);
}

static double draw_from_words(fs_random_id op, uint64_t seed, uint64_t draw, bool wide)
{
    const uint64_t per_counter = wide ? 2 : 4;
    fs_philox_words words = fs_philox(seed, draw / per_counter);
    const uint32_t *w = words.word, i = (uint32_t)(draw % per_counter);
    if (op == FS_UNIFORM) {
        if (!wide) return (double)(w[i] >> 8) * 0x1p-24;
        return (double)((uint64_t)(w[2 * i] >> 5) << 26 | w[2 * i + 1] >> 6) * 0x1p-53;
    }
    const double turn = 2 * 3.14159265358979323846;
    double u, angle;
    if (wide) {
        u = ((double)((uint64_t)(w[0] >> 5) << 26 | w[1] >> 6) + 1) * 0x1p-53;
        angle = turn * ((double)w[2] + (double)(w[3] >> 1) * 0x1p-31) * 0x1p-32;
    } else {
        u = (double)fmaf((float)(w[i & 2] >> 1), 0x1p-31f, 0x1p-32f);
        angle = turn * (double)w[(i & 2) + 1] * 0x1p-32;
    }
    return sqrt(-2 * log(u)) * (i & 1 ? sin(angle) : cos(angle));
}

/* Vector lanes and threads change nothing: the draws equal, bit for bit, those made one at a time. */
static void check_draws(fs_random_id op, int64_t count, uint64_t offset, double low, double high, bool wide)
{
    const uint64_t seed = 0x0123456789ABCDEF;
    double *out = malloc((size_t)count * sizeof *out), one = 0;
    fs_dtype dtype = wide ? FS_FLOAT64 : FS_FLOAT32;
    size_t item = fs_dtypes[dtype].size;
    const fs_random random = {out, count, seed, offset, low, high, dtype};
    CHECK_OK(backend->random(cpu, op, &random, NULL));
    for (int64_t i = 0; i < count; i++) {
        double got = wide ? out[i] : (double)((const float *)out)[i];
        double unit = draw_from_words(op, seed, offset + (uint64_t)i, wide);
        double want = op == FS_UNIFORM ? low + unit * (high - low) : low + unit * high;
        double error = (2.02 * fabs(want) + 16 * (fabs(low) + fabs(high))) * (wide ? 0x1p-53 : 0x1p-24);
        CHECK(fabs(got - want) <= error, "op %d, draw %lld: %.17g, not %.17g", op, (long long)i, got, want);
        if (op == FS_UNIFORM) CHECK(got >= low && got < high, "%.17g is not in [%g, %g)", got, low, high);
        if (i % 13 != 0) continue;
        const fs_random single = {&one, 1, seed, offset + (uint64_t)i, low, high, dtype};
        CHECK_OK(backend->random(cpu, op, &single, NULL));
        CHECK(memcmp(&one, (const char *)out + i * (int64_t)item, item) == 0, "op %d, draw %lld", op, (long long)i);
    }
    free(out);
}

TEST(each_draw_depends_on_its_index_only)
{
    CHECK_OK(fs_parallel_set_threads(3, NULL));
    for (int wide = 0; wide < 2; wide++) {
        for (int op = 0; op < FS_RANDOM_COUNT; op++) {
            check_draws((fs_random_id)op, 1, 3, 0, 1, wide);
            check_draws((fs_random_id)op, 40001, 5, -2, 3, wide);
            check_draws((fs_random_id)op, 100, ((uint64_t)1 << 34) - 50, 0, 1, wide);
        }
        check_draws(FS_UNIFORM, 4096, 0, 4, 4.0625, wide);
    }
}

TEST(the_largest_draw_stays_below_high)
{
    CHECK(fs_uniform_below(0, 1, FS_FLOAT32) == 1 - 0x1p-24, "float32");
    CHECK(fs_uniform_below(0, 1, FS_FLOAT16) == 1 - 0x1p-11, "float16");
    CHECK(fs_uniform_below(-3, -1, FS_BFLOAT16) == -1 - 0x1p-7, "bfloat16");
    CHECK(fs_uniform_below(-1, 0, FS_FLOAT16) == -0x1p-24, "denormal");
    CHECK(fs_uniform_below(1, 1, FS_FLOAT64) == 1, "an empty range");
    float below = (float)fs_uniform_below(1, 3, FS_FLOAT32);
    CHECK(fs_uniform_f32(UINT32_MAX, 1, 2, below) < 3, "top word");
}

/* Distinct elements of a tensor; those of random strides are counted in tests/ops/test_overlap.py ------------------ */

TEST(distinct_elements_that_are_far_apart)
{
    /* Two coprime steps, too large for a bit set; and more sums than the list's limit: the count is unknown. */
    int64_t shape[2] = {200, 200}, strides[2] = {1000000007, 998244353}, many[2] = {70000, 70000};
    CHECK(fs_distinct_count(2, shape, strides) == 40000);
    CHECK(fs_distinct_count(2, many, strides) == FS_COUNT_UNKNOWN);
    /* Windows of 3 x 3 over 8 x 64 images of 512 x 512, in closed form. */
    int64_t windows[6] = {8, 64, 510, 510, 3, 3}, steps[6] = {64 * 512 * 512, 512 * 512, 512, 1, 512, 1};
    CHECK(fs_distinct_count(6, windows, steps) == 8 * 64 * 512 * 512);
    /* Dilated by 2 and strided by 3 along the rows: 0 to 3 * 169 + 4, except the two that no window reaches (the second
     * and the last but one). */
    int64_t dilated[3] = {100000, 170, 3}, apart[3] = {4096, 3, 2};
    CHECK(fs_distinct_count(3, dilated, apart) == (int64_t)100000 * (3 * 169 + 4 + 1 - 2));
    /* Sizes whose product overflows an integer. */
    int64_t huge[2] = {INT64_MAX / 2, INT64_MAX / 2}, one[2] = {1, 1};
    CHECK(fs_distinct_count(2, huge, one) == INT64_MAX - 2);
    fs_memory_fail_at(1);
    CHECK(fs_distinct_count(2, shape, strides) == FS_COUNT_UNKNOWN);
    fs_memory_fail_at(0);
}

/* The op layer inside a profile ------------------------------------------------------------------------------------ */

static const fs_recorder_options everything = {.ops = true, .profile_memory = true, .event_times = true};

static fs_status create(fs_tensor *result, const char *op, int64_t rows, int64_t columns, fs_error *err)
{
    fs_call call = {.op = fs_op_find(op), .dtype = FS_FLOAT32, .device = cpu, .ndim = 2, .shape = {rows, columns}};
    call.scalar[1] = 3;
    return fs_op_run(&call, result, err);
}

static fs_status run(const char *op, const fs_tensor *a, const fs_tensor *b, fs_error *err)
{
    fs_tensor result = {0};
    fs_call call = {.op = fs_op_find(op), .in = {a, b}, .eps = 1e-5, .dtype = FS_FLOAT16};
    fs_status status = fs_op_run(&call, &result, err);
    if (status == FS_OK) fs_tensor_release(&result);
    return status;
}

/* Run ops of every kind within a range that stays open. */
static fs_status record_ops(fs_recorder *recorder, fs_error *err)
{
    static const char *const unary[] = {"sin", "cast", "softmax", "layer_norm", "transpose_copy", "mean"};
    static const char *const binary[] = {"add", "maximum", "matmul"};
    fs_tensor x = {0}, y = {0}, view;
    uint32_t range;
    FS_TRY(fs_recorder_begin_range(recorder, FS_EVENT_RANGE, "all", NULL, &range, err));
    fs_status status = create(&x, "rand", 9, 9, err);
    if (status == FS_OK) status = create(&y, "full", 9, 9, err);
    view = y;
    view.strides[0] = 1, view.strides[1] = 9; /* transposed: some ops make a contiguous copy first */
    for (size_t i = 0; status == FS_OK && i < COUNT_OF(unary); i++) status = run(unary[i], &view, NULL, err);
    for (size_t i = 0; status == FS_OK && i < COUNT_OF(binary); i++) status = run(binary[i], &x, &view, err);
    fs_tensor_release(&x);
    fs_tensor_release(&y);
    return status;
}

static fs_status use_everything(fs_error *err)
{
    fs_store *store = NULL;
    fs_recorder *recorder = NULL;
    fs_table *table = NULL;
    fs_table_options options = {.by_shape = true};
    fs_status status = fs_store_create(&store, err);
    if (status == FS_OK) status = fs_recorder_create(&recorder, store, &everything, err);
    if (status == FS_OK) status = fs_recorder_start(recorder, err);
    if (status == FS_OK) {
        status = record_ops(recorder, err);
        fs_status stopped = fs_recorder_stop(recorder, status == FS_OK ? err : NULL);
        if (status == FS_OK) status = stopped;
    }
    if (status == FS_OK) status = fs_table_build(store, &options, &table, err);
    if (status == FS_OK && fs_recorder_lost(recorder) == 0)
        CHECK(table->open_events == 0 && table->row_count == 12, "%u rows",
              table->row_count); /* 11 ops and the range */
    fs_table_destroy(table);
    fs_recorder_destroy(recorder);
    fs_store_destroy(store);
    backend->empty_cache(cpu);
    CHECK(backend->allocated(cpu) == 0);
    return status;
}

static fs_status use_long_rows(fs_error *err)
{
    enum { LENGTH = 200001 };
    static float in[LENGTH], out[LENGTH];
    float sum;
    const fs_reduction reduction = {.in = in, .out = out, .rows = 1, .length = LENGTH, .dtype = FS_FLOAT32};
    const fs_cumsum scan = {in, out, 1, LENGTH, FS_FLOAT32};
    FS_TRY(backend->reduce(cpu, FS_VAR, &reduction, err));
    FS_TRY(backend->cumsum(cpu, &scan, err));
    return multiply(FS_FLOAT16, &sum, err);
}

TEST(every_allocation_may_fail)
{
    fs_error err = {FS_OK, ""};
    CHECK(use_everything(&err) == FS_OK, "%s", err.message); /* start the threads and fill the caches */
    fs_cpu_set_blas(NULL);
    CHECK(fail_each_allocation(use_everything) > 20);
    CHECK(fail_each_allocation(use_long_rows) > 3);
}
