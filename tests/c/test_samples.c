/* Counter samples: order, division among kernels, written lines, and failing allocations. */
#include "store/samples.h"
#include "store/extend.h"
#include "tests/c/events.h"

static void begin(void)
{
    CHECK_OK(fs_store_create(&store, NULL));
}

static void end(void)
{
    fs_store_destroy(store);
    store = NULL;
}

static void kernel(const char *name, int64_t start, int64_t duration)
{
    fs_event event = fs_event_missing;
    event.kind = FS_EVENT_KERNEL;
    event.name = name_id(name);
    event.device = 0;
    event.start = start;
    event.duration = duration;
    CHECK_OK(fs_store_device_lane(store, 0, 7, &event.lane, NULL));
    put(event);
}

/* Samples of 100 ns from 0 on. */
static fs_status count(const char *metric, const double *values, size_t number, fs_error *err)
{
    for (size_t i = 0; i < number; i++) {
        fs_sample sample = {100 * (int64_t)i, 100 * (int64_t)i + 100, values[i]};
        FS_TRY(fs_store_add_samples(store, 0, metric, &sample, 1, NULL, err));
    }
    return FS_OK;
}

static void test_each_kernel_gets_its_samples_and_idle_time_nothing(void)
{
    /* a: 0 to 300, idle until 400, b: 400 to 700; traffic ends up to 40 ns late. */
    const double read[] = {10, 10, 10, 1, 50, 50, 50, 2};
    fs_table_options options = {0};
    fs_table *table;
    begin();
    kernel("a", 0, 300);
    kernel("b", 400, 300);
    CHECK_OK(count("dram_bytes_read", read, 8, NULL));
    CHECK_OK(fs_table_build(store, &options, &table, NULL));
    CHECK(near(row_of(table, "a", true)->dram_bytes_read, 30));
    CHECK(near(row_of(table, "b", true)->dram_bytes_read, 150));
    CHECK(isnan(row_of(table, "a", true)->dram_bytes_written) && isnan(row_of(table, "a", true)->tensor_active));
    fs_table_destroy(table);
    end();
}

static void test_rows_are_scaled_from_the_kernels_that_were_counted(void)
{
    const double read[] = {10, 10, 10};
    fs_table_options options = {0};
    fs_table *table;
    begin();
    kernel("a", 0, 300);
    kernel("a", 5000, 300); /* outside of the samples */
    kernel("b", 5500, 300);
    CHECK_OK(count("dram_bytes_read", read, 3, NULL));
    CHECK_OK(fs_table_build(store, &options, &table, NULL));
    CHECK(near(row_of(table, "a", true)->dram_bytes_read, 60));
    CHECK(isnan(row_of(table, "b", true)->dram_bytes_read));
    fs_table_destroy(table);
    end();
}

static void test_written_lines_belong_to_the_kernel_that_left_them(void)
{
    /* Of 1000 bytes, the first kernel leaves some in the L2 of 500, which the second one, that only reads, displaces.
     */
    const double read[] = {500, 500, 500, 500, 500, 500}, written[] = {300, 300, 200, 200, 0, 0};
    fs_device_facts facts = fs_device_facts_missing;
    fs_table_options options = {0};
    fs_table *table;
    begin();
    kernel("writes", 0, 300);
    kernel("reads", 300, 300);
    CHECK_OK(count("dram_bytes_read", read, 6, NULL));
    CHECK_OK(count("dram_bytes_written", written, 6, NULL));
    CHECK_OK(fs_table_build(store, &options, &table, NULL));
    CHECK(near(row_of(table, "writes", true)->dram_bytes_written, 800)); /* the size of the L2 is unknown */
    fs_table_destroy(table);
    facts.l2_bytes = 500;
    CHECK_OK(fs_store_set_device(store, 0, &facts, NULL));
    CHECK_OK(fs_table_build(store, &options, &table, NULL));
    double first = row_of(table, "writes", true)->dram_bytes_written,
           second = row_of(table, "reads", true)->dram_bytes_written;
    CHECK(first > 900 && first < 1000 && fabs(first + second - 1000) < 30, "%g and %g", first, second);
    fs_table_destroy(table);
    end();
}

static fs_status everything(fs_error *err)
{
    const double values[] = {10, 10, 10, 10};
    fs_table_options options = {0};
    fs_table *table = NULL;
    fs_store *other = NULL;
    FS_TRY(count("dram_bytes_read", values, 4, err));
    FS_TRY(count("dram_bytes_written", values, 4, err));
    FS_TRY(count("another", values, 4, err));
    FS_TRY(fs_table_build(store, &options, &table, err));
    fs_table_destroy(table);
    FS_TRY(fs_store_create(&other, err));
    fs_status status = fs_store_extend(other, store, 10, err);
    fs_store_destroy(other);
    return status;
}

static void test_every_failed_allocation_is_reported_and_leaks_nothing(void)
{
    int64_t live = fs_memory_live();
    for (int64_t n = 1;; n++) {
        fs_error err;
        begin();
        fs_device_facts facts = fs_device_facts_missing;
        facts.l2_bytes = 500;
        CHECK_OK(fs_store_set_device(store, 0, &facts, NULL));
        kernel("a", 0, 300);
        fs_memory_fail_at(n);
        fs_status status = everything(&err);
        fs_memory_fail_at(0);
        end();
        CHECK(fs_memory_live() == live);
        CHECK(status == FS_OK || status == FS_OUT_OF_MEMORY);
        if (status == FS_OK) break;
    }
}

int main(void)
{
    test_each_kernel_gets_its_samples_and_idle_time_nothing();
    test_rows_are_scaled_from_the_kernels_that_were_counted();
    test_written_lines_belong_to_the_kernel_that_left_them();
    test_every_failed_allocation_is_reported_and_leaks_nothing();
    return failures > 0;
}
