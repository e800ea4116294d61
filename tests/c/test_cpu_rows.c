/* The CPU's reductions, row-wise ops and matrix products, compared with plain loops in long double. */
#include "cpu_values.h"

/* ---- reductions ---- */

static void check_reduction(fs_reduction_id op, const void *in, int64_t rows, int64_t length, fs_dtype dtype)
{
    void *out = malloc((size_t)rows * sizeof(double));
    const fs_reduction reduction = {in, out, rows, length, dtype, 1};
    fs_error err;
    CHECK(backend->reduce(cpu, op, &reduction, &err) == FS_OK, "%s", err.message);
    for (int64_t r = 0; r < rows; r++) {
        long double sum = 0, magnitude = 0, squares = 0, about_mean = 0, largest = -INFINITY, smallest = INFINITY;
        int64_t place = -1, first_nan = -1;
        for (int64_t i = 0; i < length; i++) {
            double x = get(in, r * length + i, dtype);
            sum += x;
            magnitude += fabs(x);
            squares += (long double)x * x;
            if (isnan(x) && first_nan < 0) first_nan = i;
            if (x > largest || (place < 0 && x == largest)) place = i;
            if (x > largest) largest = x;
            if (x < smallest) smallest = x;
        }
        for (int64_t i = 0; i < length; i++) {
            long double difference = get(in, r * length + i, dtype) - sum / length;
            about_mean += difference * difference;
        }
        const long double results[FS_REDUCTION_COUNT] = {
            [FS_SUM] = sum,       [FS_MEAN] = sum / length,   [FS_AMAX] = largest,
            [FS_AMIN] = smallest, [FS_NORM] = sqrtl(squares), [FS_VAR] = about_mean / (long double)(length - 1)};
        long double want = results[op];
        if (op == FS_MEAN) magnitude /= length;
        if (op == FS_NORM || op == FS_VAR) magnitude = fabsl(want);
        if (first_nan >= 0) want = NAN;
        if (op == FS_ARGMAX) want = first_nan >= 0 ? first_nan : place;
        double tolerance =
            op == FS_AMAX || op == FS_AMIN || op == FS_ARGMAX
                ? 0
                : fabs((double)want) * 1.01 * rounding(dtype) + 8 * (double)magnitude * compute_rounding(dtype);
        double got = op == FS_ARGMAX ? (double)((const int64_t *)out)[r] : get(out, r, dtype);
        CHECK(close_to(got, want, tolerance), "op %d %s (%lld, %lld) row %lld: %.17g, want %.17Lg", op,
              fs_dtypes[dtype].name, (long long)rows, (long long)length, (long long)r, got, want);
    }
    free(out);
}

static void test_reductions_match_plain_loops(void)
{
    static const int64_t shapes[][2] = {{1, 1},    {5, 3},    {3, 8},     {7, 17},    {4, 67},    {300, 129},
                                        {2, 2048}, {3, 4099}, {1, 65536}, {2, 65537}, {1, 300007}};
    for (int d = 0; d < FLOAT_DTYPES; d++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            void *in = random_array(shapes[s][0] * shapes[s][1], float_dtypes[d], -0.1, 0.12);
            for (int op = 0; op < FS_REDUCTION_COUNT; op++) {
                check_reduction((fs_reduction_id)op, in, shapes[s][0], shapes[s][1], float_dtypes[d]);
            }
            free(in);
        }
    }
}

static void test_nan_and_infinity_propagate_from_any_position(void)
{
    static const int64_t lengths[] = {1, 5, 40, 150, 3000, 70000};
    for (int d = 0; d < FLOAT_DTYPES; d++) {
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            for (int place = 0; place < 4; place++) {
                void *in = random_array(lengths[l], float_dtypes[d], -1, 1);
                int64_t inside = (int64_t)random_between(0, (double)lengths[l]);
                int64_t at = place == 0 ? 0 : place == 1 ? lengths[l] - 1 : inside; /* NaN and infinity, each twice */
                put(in, at, float_dtypes[d], place % 2 ? NAN : -INFINITY);
                for (int op = 0; op < FS_REDUCTION_COUNT; op++) {
                    check_reduction((fs_reduction_id)op, in, 1, lengths[l], float_dtypes[d]);
                }
                free(in);
            }
        }
    }
}

static void test_sums_do_not_depend_on_the_number_of_threads(void)
{
    const int64_t length = 1000003;
    float *in = random_array(length, FS_FLOAT32, -1, 1), first = 0;
    for (int threads = 1; threads <= 5; threads++) {
        float sum;
        const fs_reduction reduction = {.in = in, .out = &sum, .rows = 1, .length = length, .dtype = FS_FLOAT32};
        CHECK(fs_parallel_set_threads(threads, NULL) == FS_OK, "%d threads", threads);
        CHECK_OK(backend->reduce(cpu, FS_SUM, &reduction, NULL));
        if (threads == 1) first = sum;
        CHECK(memcmp(&sum, &first, sizeof sum) == 0, "%d threads: %.9g, one %.9g", threads, (double)sum, (double)first);
    }
    free(in);
}

/* A running sum of ones in float stops growing at 2^24. */
static void test_long_float_sums_stay_exact(void)
{
    const int64_t length = (1 << 24) + 12345;
    float *in = malloc((size_t)length * sizeof *in), sum;
    for (int64_t i = 0; i < length; i++) in[i] = 1;
    const fs_reduction reduction = {.in = in, .out = &sum, .rows = 1, .length = length, .dtype = FS_FLOAT32};
    CHECK_OK(backend->reduce(cpu, FS_SUM, &reduction, NULL));
    CHECK(sum == (float)length, "%.9g", (double)sum);
    free(in);
}

/* ---- cumulative sums ---- */

static void check_cumsum(int64_t rows, int64_t length, fs_dtype dtype)
{
    void *in = random_array(rows * length, dtype, -0.1, 0.12), *out = random_array(rows * length, dtype, 0, 1);
    const fs_cumsum scan = {in, out, rows, length, dtype};
    fs_error err;
    CHECK(backend->cumsum(cpu, &scan, &err) == FS_OK, "%s", err.message);
    for (int64_t r = 0; r < rows; r++) {
        long double sum = 0, magnitude = 0;
        for (int64_t i = r * length; i < (r + 1) * length; i++) {
            sum += get(in, i, dtype);
            magnitude += fabs(get(in, i, dtype));
            double slack = 8 * (double)magnitude * 0x1p-53; /* in any dtype, the CPU adds in double */
            double tolerance = fabs((double)sum) * 1.01 * rounding(dtype) + slack;
            if (dtype == FS_FLOAT16) tolerance += 0x1p-25; /* subnormal numbers are 2^-24 apart */
            CHECK(close_to(get(out, i, dtype), sum, tolerance), "%s (%lld, %lld) at %lld: %.17g, want %.17Lg",
                  fs_dtypes[dtype].name, (long long)rows, (long long)length, (long long)i, get(out, i, dtype), sum);
        }
    }
    free(in);
    free(out);
}

static void test_cumulative_sums_match_plain_loops(void)
{
    static const int64_t shapes[][2] = {{1, 1},   {5, 3},    {3, 8},     {7, 17},    {4, 67},    {300, 129},
                                        {2, 513}, {3, 4099}, {1, 65536}, {2, 65537}, {5, 70001}, {1, 300007}};
    for (int d = 0; d < FLOAT_DTYPES; d++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            check_cumsum(shapes[s][0], shapes[s][1], float_dtypes[d]);
        }
    }
    check_cumsum(1, fs_cpu_cache_bytes() / 2 / 4 + 70001, FS_FLOAT32); /* streamed */
}

static void test_parts_of_long_rows_survive_a_failing_allocation(void)
{
    const int64_t length = 200001;
    float *in = random_array(length, FS_FLOAT32, -1, 1), *out = random_array(length, FS_FLOAT32, -1, 1);
    const fs_reduction reduction = {.in = in, .out = out, .rows = 1, .length = length, .dtype = FS_FLOAT32};
    const fs_cumsum scan = {in, out, 1, length, FS_FLOAT32};
    int64_t live = fs_memory_live();
    fs_error err;
    fs_memory_fail_at(1);
    CHECK(backend->reduce(cpu, FS_VAR, &reduction, &err) == FS_OUT_OF_MEMORY, "a reduction without memory");
    fs_memory_fail_at(1);
    CHECK(backend->cumsum(cpu, &scan, &err) == FS_OUT_OF_MEMORY, "a cumulative sum without memory");
    fs_memory_fail_at(0);
    CHECK(fs_memory_live() == live, "%lld blocks leaked", (long long)(fs_memory_live() - live));
    free(in);
    free(out);
}

/* ---- row-wise ops ---- */

static long double row_moment(const void *in, int64_t first, int64_t length, fs_dtype dtype, long double centre,
                              int power)
{
    long double sum = 0;
    for (int64_t i = 0; i < length; i++) {
        long double x = get(in, first + i, dtype) - centre;
        sum += power == 2 ? x * x : x;
    }
    return sum / length;
}

static void check_rowwise(fs_rowwise_id op, int64_t rows, int64_t length, fs_dtype dtype, bool affine, bool in_place)
{
    const double eps = 1e-5;
    void *in = random_array(rows * length, dtype, -4, 5), *weight = random_array(length, dtype, -1, 2);
    void *bias = random_array(length, dtype, -1, 1);
    size_t nbytes = (size_t)(rows * length) * fs_dtypes[dtype].size;
    void *out = malloc(nbytes);
    if (in_place) memcpy(out, in, nbytes);
    const fs_rowwise rowwise = {.in = in_place ? out : in,
                                .out = out,
                                .weight = affine ? weight : NULL,
                                .bias = affine && op == FS_LAYER_NORM ? bias : NULL,
                                .rows = rows,
                                .length = length,
                                .eps = eps,
                                .dtype = dtype};
    fs_error err;
    CHECK(backend->rowwise(cpu, op, &rowwise, &err) == FS_OK, "%s", err.message);

    for (int64_t r = 0; r < rows; r++) {
        long double largest = -INFINITY, total = 0;
        for (int64_t i = 0; i < length; i++) largest = fmaxl(largest, get(in, r * length + i, dtype));
        for (int64_t i = 0; i < length; i++) total += expl(get(in, r * length + i, dtype) - largest);
        long double mean = op == FS_LAYER_NORM ? row_moment(in, r * length, length, dtype, 0, 1) : 0;
        long double scale = 1 / sqrtl(row_moment(in, r * length, length, dtype, mean, 2) + eps);
        for (int64_t i = 0; i < length; i++) {
            long double x = get(in, r * length + i, dtype), want;
            double got = get(out, r * length + i, dtype), slack = 16 * compute_rounding(dtype);
            if (op == FS_SOFTMAX) {
                want = expl(x - largest) / total;
                slack *= (double)want;
            } else if (op == FS_LOG_SOFTMAX) {
                want = x - largest - logl(total);
                slack *= 1 + fabs((double)want);
            } else {
                want = (x - mean) * scale;
                slack *= (5 + (double)fabsl(mean)) * (double)scale * 2;
                if (affine) want = want * get(weight, i, dtype);
                if (affine && op == FS_LAYER_NORM) want += get(bias, i, dtype);
            }
            if (dtype == FS_FLOAT16) slack += 0x1p-25; /* subnormal numbers are 2^-24 apart */
            double tolerance = fabs((double)want) * 1.01 * rounding(dtype) + slack;
            CHECK(close_to(got, want, tolerance), "op %d %s (%lld, %lld) at (%lld, %lld): %.17g, want %.17Lg", op,
                  fs_dtypes[dtype].name, (long long)rows, (long long)length, (long long)r, (long long)i, got, want);
        }
    }
    free(in);
    free(weight);
    free(bias);
    free(out);
}

static void test_rowwise_ops_match_plain_loops(void)
{
    static const int64_t shapes[][2] = {{3, 1}, {40, 5}, {9, 8}, {3, 129}, {2, 1000}, {2, 4096}, {2, 4097}, {1, 20001}};
    for (int d = 0; d < FLOAT_DTYPES; d++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            for (int op = 0; op < FS_ROWWISE_COUNT; op++) {
                bool norm = op == FS_LAYER_NORM || op == FS_RMS_NORM;
                if (norm && shapes[s][1] == 1) continue; /* all rounding error: 0 / sqrt(0 + eps) */
                check_rowwise((fs_rowwise_id)op, shapes[s][0], shapes[s][1], float_dtypes[d], false, false);
                check_rowwise((fs_rowwise_id)op, shapes[s][0], shapes[s][1], float_dtypes[d], norm, true);
            }
        }
    }
}

/* An output larger than the cache is written with streaming stores; rows begin anywhere in a cache line. */
static void test_rowwise_ops_beyond_the_cache(void)
{
    int64_t rows = fs_cpu_cache_bytes() / 2 / (4099 * 2) + 2;
    check_rowwise(FS_LAYER_NORM, rows, 4099, FS_BFLOAT16, true, false);
    check_rowwise(FS_SOFTMAX, rows / 2 + 1, 4099, FS_FLOAT32, false, false);
}

static void test_softmax_of_extreme_rows(void)
{
    const float none = -INFINITY;
    float rows[4][3] = {{1e30f, 1e30f, -1e30f}, {none, 0, none}, {NAN, 0, 1}, {none, none, none}}, out[4][3];
    const fs_rowwise rowwise = {.in = rows, .out = out, .rows = 4, .length = 3, .dtype = FS_FLOAT32};
    CHECK_OK(backend->rowwise(cpu, FS_SOFTMAX, &rowwise, NULL));
    CHECK(out[0][0] == 0.5f && out[0][1] == 0.5f && out[0][2] == 0, "%g %g %g", (double)out[0][0], (double)out[0][1],
          (double)out[0][2]);
    CHECK(out[1][0] == 0 && out[1][1] == 1 && out[1][2] == 0, "%g", (double)out[1][1]);
    for (int i = 0; i < 3; i++) CHECK(isnan(out[2][i]) && isnan(out[3][i]), "column %d", i);
}

/* ---- matrix products ---- */

typedef struct {
    int64_t m, n, k, batch;
    bool a_transposed, b_transposed, accumulate, share_b;
} product_case;

static int64_t matrix_at(int64_t row, int64_t column, int64_t ld, bool transposed)
{
    return transposed ? row + column * ld : row * ld + column;
}

static void check_product(const product_case *c, fs_dtype dtype)
{
    const int64_t a_ld = (c->a_transposed ? c->m : c->k) + 3, b_ld = (c->b_transposed ? c->k : c->n) + 1;
    const int64_t out_ld = c->n + 2, out_batch = c->m * out_ld + 5;
    const int64_t a_batch = (c->a_transposed ? c->k : c->m) * a_ld;
    const int64_t b_batch = c->share_b ? 0 : (c->b_transposed ? c->n : c->k) * b_ld;
    void *a = random_array(c->batch * a_batch, dtype, -1, 1);
    void *b = random_array(c->share_b ? (c->b_transposed ? c->n : c->k) * b_ld : c->batch * b_batch, dtype, -1, 1);
    const size_t out_bytes = (size_t)(c->batch * out_batch) * fs_dtypes[dtype].size;
    void *out = random_array(c->batch * out_batch, dtype, -1, 1), *before = malloc(out_bytes);
    memcpy(before, out, out_bytes);

    const fs_matmul matmul = {.a = a,
                              .b = b,
                              .out = out,
                              .m = c->m,
                              .n = c->n,
                              .k = c->k,
                              .batch = c->batch,
                              .a_ld = a_ld,
                              .b_ld = b_ld,
                              .out_ld = out_ld,
                              .a_batch = a_batch,
                              .b_batch = b_batch,
                              .out_batch = out_batch,
                              .a_transposed = c->a_transposed,
                              .b_transposed = c->b_transposed,
                              .accumulate = c->accumulate,
                              .dtype = dtype};
    fs_error err;
    CHECK(backend->matmul(cpu, &matmul, &err) == FS_OK, "%s", err.message);

    for (int64_t p = 0; p < c->batch; p++) {
        for (int64_t i = 0; i < c->m; i++) {
            for (int64_t j = 0; j < out_ld; j++) {
                int64_t at = p * out_batch + i * out_ld + j;
                if (p == c->batch - 1 && i == c->m - 1 && j >= c->n) continue;
                double got = get(out, at, dtype), old = get(before, at, dtype), magnitude = 0;
                long double want = c->accumulate || j >= c->n ? old : 0;
                for (int64_t k = 0; k < c->k && j < c->n; k++) {
                    double product = get(a, p * a_batch + matrix_at(i, k, a_ld, c->a_transposed), dtype) *
                                     get(b, p * b_batch + matrix_at(k, j, b_ld, c->b_transposed), dtype);
                    want += product;
                    magnitude += fabs(product);
                }
                double tolerance = j >= c->n ? 0
                                             : fabs((double)want) * 1.01 * rounding(dtype) +
                                                   (2 + sqrt((double)c->k)) * (1 + magnitude) * compute_rounding(dtype);
                CHECK(close_to(got, want, tolerance), "%s (%lld, %lld, %lld) at (%lld, %lld, %lld): %.17g, want %.17Lg",
                      fs_dtypes[dtype].name, (long long)c->m, (long long)c->n, (long long)c->k, (long long)p,
                      (long long)i, (long long)j, got, want);
            }
        }
    }
    free(a);
    free(b);
    free(out);
    free(before);
}

static const product_case products[] = {
    {1, 1, 1, 1, false, false, false, false},    {5, 7, 3, 2, false, false, false, true},
    {6, 16, 128, 1, true, false, false, false},  {100, 130, 129, 1, false, false, true, false},
    {97, 33, 260, 2, false, true, false, false}, {13, 129, 40, 3, true, true, true, true},
    {1, 200, 150, 1, false, true, false, false}, {190, 1, 77, 1, true, false, true, false},
};

static void test_matrix_products_match_plain_loops(void)
{
    for (int d = 0; d < FLOAT_DTYPES; d++) {
        for (size_t i = 0; i < sizeof products / sizeof *products; i++) check_product(&products[i], float_dtypes[d]);
    }
}

static int blas_calls;

static fs_status plain_blas(const fs_matmul *matmul, fs_error *err)
{
    (void)err;
    blas_calls++;
    CHECK(matmul->batch == 1 && !matmul->accumulate, "batch %lld", (long long)matmul->batch);
    for (int64_t i = 0; i < matmul->m; i++) {
        for (int64_t j = 0; j < matmul->n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < matmul->k; k++) {
                sum += get(matmul->a, matrix_at(i, k, matmul->a_ld, matmul->a_transposed), matmul->dtype) *
                       get(matmul->b, matrix_at(k, j, matmul->b_ld, matmul->b_transposed), matmul->dtype);
            }
            put(matmul->out, i * matmul->out_ld + j, matmul->dtype, sum);
        }
    }
    return FS_OK;
}

static fs_status broken_blas(const fs_matmul *matmul, fs_error *err)
{
    (void)matmul;
    return fs_fail(err, FS_RUNTIME_ERROR, "the BLAS is broken");
}

static void test_a_registered_blas_computes_the_products(void)
{
    fs_cpu_set_blas(plain_blas);
    test_matrix_products_match_plain_loops();
    CHECK(blas_calls > 0, "never called");

    fs_cpu_set_blas(broken_blas);
    uint16_t one[3] = {0};
    fs_error err = {0};
    const fs_matmul matmul = {.a = one,
                              .b = one + 1,
                              .out = one + 2,
                              .m = 1,
                              .n = 1,
                              .k = 1,
                              .batch = 1,
                              .a_ld = 1,
                              .b_ld = 1,
                              .out_ld = 1,
                              .accumulate = true,
                              .dtype = FS_FLOAT16};
    int64_t live = fs_memory_live();
    CHECK(backend->matmul(cpu, &matmul, &err) == FS_RUNTIME_ERROR, "%s", err.message);
    CHECK(fs_memory_live() == live, "%lld blocks leaked", (long long)(fs_memory_live() - live));
    fs_cpu_set_blas(NULL);
}

static void test_products_survive_a_failing_allocation(void)
{
    uint16_t one[3] = {0x3C00, 0x3C00, 0x3C00};
    const fs_matmul matmul = {.a = one,
                              .b = one + 1,
                              .out = one + 2,
                              .m = 1,
                              .n = 1,
                              .k = 1,
                              .batch = 1,
                              .a_ld = 1,
                              .b_ld = 1,
                              .out_ld = 1,
                              .dtype = FS_FLOAT16};
    int64_t live = fs_memory_live();
    for (int n = 1; n <= 3; n++) {
        fs_error err = {0};
        fs_memory_fail_at(n);
        fs_status status = backend->matmul(cpu, &matmul, &err);
        fs_memory_fail_at(0);
        CHECK(status == FS_OUT_OF_MEMORY, "allocation %d: %d", n, status);
        CHECK(fs_memory_live() == live, "%lld blocks leaked", (long long)(fs_memory_live() - live));
    }
}

static void run_all(void)
{
    test_reductions_match_plain_loops();
    test_nan_and_infinity_propagate_from_any_position();
    test_sums_do_not_depend_on_the_number_of_threads();
    test_long_float_sums_stay_exact();
    test_cumulative_sums_match_plain_loops();
    test_parts_of_long_rows_survive_a_failing_allocation();
    test_rowwise_ops_match_plain_loops();
    test_rowwise_ops_beyond_the_cache();
    test_softmax_of_extreme_rows();
    test_matrix_products_match_plain_loops();
    test_a_registered_blas_computes_the_products();
    test_products_survive_a_failing_allocation();
}

int main(void)
{
    return run_for_each_isa(run_all);
}
