/* The op layer inside a profile: counts, and each allocation failing in turn. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "device/peaks.h"
#include "ops/observer.h"
#include "ops/op.h"
#include "sources/native.h"
#include "table/table.h"
#include "tests/c/check.h"

static const fs_device cpu = {.kind = FS_CPU};
static const fs_recorder_options everything = {.ops = true, .profile_memory = true, .event_times = true};

static fs_status create(fs_tensor *result, const char *op, int64_t rows, int64_t columns, fs_error *err)
{
    fs_call call = {.op = fs_op_find(op),
                    .dtype = FS_FLOAT32,
                    .device = cpu,
                    .ndim = 2,
                    .shape = {rows, columns},
                    .scalar = {0, 3}};
    return fs_op_run(&call, result, err);
}

static fs_status run(const char *op, const fs_tensor *a, const fs_tensor *b, fs_tensor *result, fs_error *err)
{
    fs_call call = {.op = fs_op_find(op), .in = {a, b}, .eps = 1e-5, .dtype = FS_FLOAT16};
    return fs_op_run(&call, result, err);
}

/* Run ops of every kind, leave a range open, and build the table. Return the first failure. */
static fs_status use_everything(fs_error *err)
{
    static const char *const unary[] = {"sin", "cast", "softmax", "layer_norm", "transpose_copy", "mean"};
    static const char *const binary[] = {"add", "maximum", "matmul"};
    fs_store *store = NULL;
    fs_recorder *recorder = NULL;
    fs_table *table = NULL;
    fs_table_options options = {.by_shape = true};
    fs_tensor x = {0}, y = {0}, result = {0}, view;
    bool started = false;
    uint32_t range;
    fs_status status;
    FS_TRY_GOTO(status, fs_store_create(&store, err), done);
    FS_TRY_GOTO(status, fs_recorder_create(&recorder, store, &everything, err), done);
    FS_TRY_GOTO(status, fs_recorder_start(recorder, err), done);
    started = true;
    FS_TRY_GOTO(status, fs_recorder_begin_range(recorder, FS_EVENT_RANGE, "all", NULL, &range, err), done);
    FS_TRY_GOTO(status, create(&x, "rand", 9, 9, err), done);
    FS_TRY_GOTO(status, create(&y, "full", 9, 9, err), done);
    view = y;
    view.strides[0] = 1; /* transposed: some ops make a contiguous copy first */
    view.strides[1] = 9;
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++) {
        FS_TRY_GOTO(status, run(unary[i], &view, NULL, &result, err), done);
        fs_tensor_release(&result);
    }
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++) {
        FS_TRY_GOTO(status, run(binary[i], &x, &view, &result, err), done);
        fs_tensor_release(&result);
    }
done:
    if (started) {
        fs_status stopped = fs_recorder_stop(recorder, status == FS_OK ? err : NULL);
        if (status == FS_OK) status = stopped;
    }
    if (status == FS_OK) status = fs_table_build(store, &options, &table, err);
    if (status == FS_OK && fs_recorder_lost(recorder) == 0) {
        CHECK(table->open_events == 0);
        CHECK(table->row_count == 12, "%u rows", table->row_count); /* 11 ops and the range around them */
    }
    fs_table_destroy(table);
    fs_tensor_release(&x);
    fs_tensor_release(&y);
    fs_recorder_destroy(recorder);
    fs_store_destroy(store);
    return status;
}

static void test_every_allocation_may_fail(void)
{
    fs_error err = {FS_OK, ""};
    CHECK(use_everything(&err) == FS_OK, "%s", err.message); /* start the threads and fill the caches */
    fs_cpu_set_blas(NULL);
    fs_backend_of(cpu)->empty_cache(cpu);
    int64_t live = fs_memory_live();
    for (int64_t n = 1; n < 10000 && failures == 0; n++) {
        err = (fs_error){FS_OK, ""};
        fs_memory_fail_at(n);
        fs_status status = use_everything(&err);
        fs_memory_fail_at(0);
        fs_backend_of(cpu)->empty_cache(cpu);
        CHECK(fs_memory_live() == live, "n = %lld left %lld blocks", (long long)n,
              (long long)(fs_memory_live() - live));
        CHECK(fs_backend_of(cpu)->allocated(cpu) == 0);
        if (status == FS_OK) {
            CHECK(n > 20, "only %lld allocations", (long long)n);
            return;
        }
        CHECK(status == FS_OUT_OF_MEMORY && err.message[0] != 0, "%s", err.message);
    }
}

static void test_only_one_recorder_is_active(void)
{
    fs_store *store = NULL;
    fs_recorder *a = NULL, *b = NULL;
    fs_error err;
    CHECK(fs_store_create(&store, &err) == FS_OK && fs_recorder_create(&a, store, &everything, &err) == FS_OK &&
          fs_recorder_create(&b, store, &everything, &err) == FS_OK);
    CHECK(fs_recorder_start(a, &err) == FS_OK);
    CHECK(fs_recorder_start(b, &err) == FS_RUNTIME_ERROR && strstr(err.message, "in progress") != NULL);
    CHECK(fs_recorder_stop(b, &err) == FS_OK &&
          fs_observer_get() != NULL); /* stopping an inactive recorder leaves the active one alone */
    CHECK(fs_recorder_stop(a, &err) == FS_OK && fs_observer_get() == NULL);
    CHECK(fs_recorder_start(b, &err) == FS_OK);
    CHECK(fs_recorder_stop(b, &err) == FS_OK);
    fs_recorder_destroy(a);
    fs_recorder_destroy(b);
    fs_store_destroy(store);
}

static void test_errors_name_the_wrong_arguments(void)
{
    fs_error err;
    fs_tensor a = {0}, b = {0}, result;
    CHECK(create(&a, "zeros", 3, 4, &err) == FS_OK && create(&b, "ones", 5, 4, &err) == FS_OK);
    CHECK(run("add", &a, &b, &result, &err) == FS_VALUE_ERROR &&
          strstr(err.message, "add(float32 (3, 4) on cpu") != NULL);
    CHECK(run("matmul", &a, &b, &result, &err) == FS_VALUE_ERROR && strstr(err.message, "4 columns") != NULL);
    CHECK(create(&result, "zeros", -1, 4, &err) == FS_VALUE_ERROR && strstr(err.message, "negative") != NULL);
    fs_tensor_release(&a);
    fs_tensor_release(&b);
}

int main(void)
{
    test_errors_name_the_wrong_arguments();
    test_only_one_recorder_is_active();
    test_every_allocation_may_fail();
    if (failures == 0) printf("ops: passed\n");
    return failures != 0;
}
