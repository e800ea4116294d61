/* The CPU backend's random draws, memory, copies and probes. */
#include "cpu_values.h"
#include "ops/philox.h"

/* ---- random ---- */

/* Random123's known-answer test of philox4x32-10 with a counter and key of zeros. */
static void test_philox_gives_the_published_words(void)
{
    static const uint32_t want[4] = {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8};
    fs_philox_words words = fs_philox(0, 0);
    CHECK(memcmp(words.word, want, sizeof want) == 0, "%08x", words.word[0]);
}

static double draw_from_words(fs_random_id op, uint64_t seed, uint64_t draw, fs_dtype dtype)
{
    const uint64_t per_counter = dtype == FS_FLOAT64 ? 2 : 4;
    fs_philox_words words = fs_philox(seed, draw / per_counter);
    const uint32_t *w = words.word, i = (uint32_t)(draw % per_counter);
    if (op == FS_UNIFORM) {
        if (dtype != FS_FLOAT64) return (double)(w[i] >> 8) * 0x1p-24;
        return (double)((uint64_t)(w[2 * i] >> 5) << 26 | w[2 * i + 1] >> 6) * 0x1p-53;
    }
    const double turn = 2 * 3.14159265358979323846;
    double u, angle;
    if (dtype == FS_FLOAT64) {
        u = ((double)((uint64_t)(w[0] >> 5) << 26 | w[1] >> 6) + 1) * 0x1p-53;
        angle = turn * ((double)w[2] + (double)(w[3] >> 1) * 0x1p-31) * 0x1p-32;
    } else {
        u = (double)fmaf((float)(w[i & 2] >> 1), 0x1p-31f, 0x1p-32f);
        angle = turn * (double)w[(i & 2) + 1] * 0x1p-32;
    }
    return sqrt(-2 * log(u)) * (i & 1 ? sin(angle) : cos(angle));
}

static void check_draws(fs_random_id op, int64_t count, uint64_t offset, double low, double high, fs_dtype dtype)
{
    const uint64_t seed = 0x0123456789ABCDEF;
    void *out = malloc((size_t)count * fs_dtypes[dtype].size);
    const fs_random random = {out, count, seed, offset, low, high, dtype};
    CHECK_OK(backend->random(cpu, op, &random, NULL));
    for (int64_t i = 0; i < count; i++) {
        double unit = draw_from_words(op, seed, offset + (uint64_t)i, dtype), got = get(out, i, dtype);
        double want = op == FS_UNIFORM ? low + unit * (high - low) : low + unit * high;
        double tolerance = fabs(want) * rounding(dtype) * 1.01;
        tolerance += (fabs(low) + fabs(high)) * 16 * compute_rounding(dtype);
        if (op == FS_UNIFORM) {
            CHECK(got >= low && got < high, "%s: %.17g is not in [%g, %g)", fs_dtypes[dtype].name, got, low, high);
            tolerance += fabs(want) * rounding(dtype); /* a value that would round to `high` is one unit smaller */
        }
        CHECK(close_to(got, want, tolerance), "op %d %s draw %llu: %.17g, want %.17g", op, fs_dtypes[dtype].name,
              (unsigned long long)(offset + (uint64_t)i), got, want);
    }
    free(out);
}

static void test_each_draw_depends_on_its_index_only(void)
{
    for (int d = 0; d < FLOAT_DTYPES; d++) {
        for (int op = 0; op < FS_RANDOM_COUNT; op++) {
            check_draws((fs_random_id)op, 1, 3, 0, 1, float_dtypes[d]);
            check_draws((fs_random_id)op, 3001, 5, -2, 3, float_dtypes[d]);
            check_draws((fs_random_id)op, 100, ((uint64_t)1 << 34) - 50, 0, 1, float_dtypes[d]);
        }
        check_draws(FS_UNIFORM, 100003, 0, 0, 1, float_dtypes[d]);
        check_draws(FS_UNIFORM, 4096, 0, 4, 4.0625, float_dtypes[d]);
    }
}

/* Vector lanes and threads change nothing: the draws equal, bit for bit, those made one at a time. */
static void test_draws_do_not_depend_on_lanes_and_threads(void)
{
    enum { COUNT = 40000 };
    float *draws = malloc(COUNT * sizeof *draws), one;
    for (int op = 0; op < FS_RANDOM_COUNT; op++) {
        const fs_random random = {draws, COUNT, 7, 1, 0.25, 1.5, FS_FLOAT32};
        CHECK_OK(backend->random(cpu, (fs_random_id)op, &random, NULL));
        for (uint64_t i = 0; i < COUNT; i += 13) {
            const fs_random single = {&one, 1, 7, 1 + i, 0.25, 1.5, FS_FLOAT32};
            CHECK_OK(backend->random(cpu, (fs_random_id)op, &single, NULL));
            CHECK(memcmp(&one, &draws[i], sizeof one) == 0, "draw %llu: %.9g, %.9g", (unsigned long long)i, (double)one,
                  (double)draws[i]);
        }
    }
    free(draws);
}

static void test_the_largest_draw_stays_below_high(void)
{
    CHECK(fs_uniform_below(0, 1, FS_FLOAT32) == 1 - 0x1p-24, "float32");
    CHECK(fs_uniform_below(0, 1, FS_FLOAT16) == 1 - 0x1p-11, "float16");
    CHECK(fs_uniform_below(-3, -1, FS_BFLOAT16) == -1 - 0x1p-7, "bfloat16");
    CHECK(fs_uniform_below(-1, 0, FS_FLOAT16) == -0x1p-24, "denormal");
    CHECK(fs_uniform_below(1, 1, FS_FLOAT64) == 1, "an empty range");
    float below = (float)fs_uniform_below(1, 3, FS_FLOAT32);
    CHECK(fs_uniform_f32(UINT32_MAX, 1, 2, below) < 3, "top word");
}

/* ---- memory, copies and the device ---- */

static void test_large_blocks_are_cached_and_counted(void)
{
    const size_t large = (size_t)5 << 20;
    void *first, *second, *small, *none;
    fs_error err;
    int64_t allocated = backend->allocated(cpu);
    backend->empty_cache(cpu);
    int64_t reserved = backend->reserved(cpu);

    CHECK(backend->allocate(cpu, large + 1, &first, &err) == FS_OK, "%s", err.message);
    CHECK(backend->allocate(cpu, 100, &small, &err) == FS_OK, "%s", err.message);
    CHECK(backend->allocate(cpu, 0, &none, &err) == FS_OK && none != NULL, "no pointer for 0 bytes");
    CHECK(((uintptr_t)first | (uintptr_t)small) % 64 == 0, "not aligned");
    memset(first, 1, large + 1);
    CHECK(backend->allocated(cpu) - allocated == (int64_t)large + 101, "%lld", (long long)backend->allocated(cpu));
    CHECK(backend->reserved(cpu) - reserved >= (int64_t)large + 101, "%lld", (long long)backend->reserved(cpu));
    backend->release(cpu, small, 100);
    backend->release(cpu, none, 0);
    backend->release(cpu, first, large + 1);
    CHECK(backend->allocated(cpu) == allocated, "%lld", (long long)backend->allocated(cpu));
    CHECK(backend->reserved(cpu) > reserved, "not cached");

    CHECK(backend->allocate(cpu, large + 999, &second, &err) == FS_OK, "%s", err.message);
    CHECK(second == first, "not used again");
    backend->release(cpu, second, large + 999);
    backend->empty_cache(cpu);
    CHECK(backend->reserved(cpu) == reserved, "%lld", (long long)(backend->reserved(cpu) - reserved));
}

static void test_errors_for_impossible_sizes_name_the_size(void)
{
    void *data = NULL;
    fs_error err = {0};
    int64_t allocated = backend->allocated(cpu), reserved = backend->reserved(cpu);
    CHECK(backend->allocate(cpu, (size_t)1 << 48, &data, &err) == FS_OUT_OF_MEMORY, "status %d", err.status);
    CHECK(strstr(err.message, "262144.00 GiB") != NULL, "%s", err.message);
    CHECK(backend->allocate(cpu, SIZE_MAX, &data, &err) == FS_OUT_OF_MEMORY && data == NULL, "status %d", err.status);
    fs_memory_fail_at(1);
    CHECK(backend->allocate(cpu, 64, &data, &err) == FS_OUT_OF_MEMORY, "status %d", err.status);
    fs_memory_fail_at(0);
    CHECK(backend->allocated(cpu) == allocated && backend->reserved(cpu) == reserved, "counted what failed");
}

static void test_copies_and_probes(void)
{
    const int64_t nbytes = 3000001;
    char *from = random_array(nbytes / 8 + 1, FS_FLOAT64, 0, 1), *to = malloc((size_t)nbytes);
    const size_t size = (size_t)nbytes;
    CHECK(backend->from_host(cpu, to, from, size, NULL) == FS_OK && memcmp(to, from, size) == 0, "copy");
    memset(to, 0, size);
    CHECK(backend->peer_copy(cpu, to, cpu, from, size, NULL) == FS_OK && memcmp(to, from, size) == 0, "peer copy");
    CHECK(fs_cpu_probe_read(from, size, NULL) == FS_OK, "read probe");
    free(from);
    free(to);

    double flops = 0;
    fs_error err = {0};
    CHECK(fs_cpu_probe_fma(FS_FLOAT32, 1000, &flops, &err) == FS_OK, "%s", err.message);
    CHECK(flops >= 1000.0 * 2 * fs_parallel_threads(), "%g", flops);
    CHECK(fs_cpu_probe_fma(FS_FLOAT64, 1000, &flops, &err) == FS_OK && flops > 0, "%g", flops);
    CHECK(fs_cpu_probe_fma(FS_FLOAT16, 1000, &flops, &err) == FS_TYPE_ERROR, "%s", err.message);
    CHECK(strlen(fs_cpu_name()) > 2 && fs_cpu_cache_bytes() >= 0, "%s", fs_cpu_name());
}

static void run_all(void)
{
    test_philox_gives_the_published_words();
    test_each_draw_depends_on_its_index_only();
    test_draws_do_not_depend_on_lanes_and_threads();
    test_the_largest_draw_stays_below_high();
    test_large_blocks_are_cached_and_counted();
    test_errors_for_impossible_sizes_name_the_size();
    test_copies_and_probes();
}

int main(void)
{
    return run_for_each_isa(run_all);
}
