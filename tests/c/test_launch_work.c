/* Work of ops that are one launch: as a name tells it, and in tables. Expected numbers are derived here. */
#include <math.h>
#include <string.h>

#include "store/launch_name.h"
#include "store/samples.h"
#include "tests/c/events.h"

/* Names ------------------------------------------------------------------------------------------------------------ */

static void test_a_name_tells_the_work_of_a_launch(void)
{
    static const struct {
        const char *text;
        size_t size; /* of the name alone */
        fs_given_work work;
    } cases[] = {
        {"mm [flops=8 bytes=12 unit=fp16_tensor]", 2, {8, 12, "fp16_tensor", FS_LAUNCH_STATED}},
        {"mm [flops=137438953472]", 2, {137438953472.0, NAN, "", FS_LAUNCH_STATED}},
        {"mm [M=4, N=5] [bytes<=0]", 13, {NAN, 0, "", FS_LAUNCH_AT_MOST}},
        {"a b [bytes=3]", 3, {NAN, 3, "", FS_LAUNCH_STATED}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fs_given_work found = {.flops = -1};
        size_t size = fs_launch_name_parse(cases[i].text, strlen(cases[i].text), &found);
        CHECK(size == cases[i].size, "case %zu: %zu", i, size);
        CHECK(found.launch == cases[i].work.launch && strcmp(found.unit, cases[i].work.unit) == 0, "case %zu", i);
        CHECK(isnan(cases[i].work.flops) ? isnan(found.flops) : found.flops == cases[i].work.flops, "case %zu", i);
        CHECK(isnan(cases[i].work.bytes) ? isnan(found.bytes) : found.bytes == cases[i].work.bytes, "case %zu", i);
        char text[FS_LAUNCH_NAME_BYTES];
        fs_launch_name_write(&found, text, sizeof text);
        CHECK(strcmp(text, cases[i].text + size + 1) == 0, "case %zu: %s", i, text);
    }
}

static void test_other_names_stay_whole(void)
{
    static const char *const cases[] = {
        "",
        "]",
        "[flops=8]",
        " [flops=8]",
        "mm[flops=8]",
        "mm [flops=8",
        "mm []",
        "mm [unit=fp32]",
        "mm [flops=]",
        "mm [flops=-8]",
        "mm [flops=8.5]",
        "mm [flops=8,bytes=3]",
        "mm [flops=8 flops=9]",
        "mm [bytes=8 bytes<=9]",
        "mm [flops=8 M=4]",
        "mm [flops=8  bytes=3]",
        "mm [flops=8 unit=a_name_of_16_char]",
        "aten::add",
        "void f<int [4]>",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fs_given_work untouched = {.flops = -1, .bytes = -2, .unit = "x", .launch = 9}, found = untouched;
        CHECK(fs_launch_name_parse(cases[i], strlen(cases[i]), &found) == 0, "%s", cases[i]);
        CHECK(memcmp(&found, &untouched, sizeof found) == 0, "%s", cases[i]);
    }
}

static void test_the_largest_work_has_a_name(void)
{
    fs_given_work most = {1e280, 1e280, "a_name_of_15_ch", FS_LAUNCH_AT_MOST}, found = {.flops = 0};
    char text[2 + FS_LAUNCH_NAME_BYTES] = "k ";
    fs_launch_name_write(&most, text + 2, sizeof text - 2);
    CHECK(fs_launch_name_parse(text, strlen(text), &found) == 1);
    CHECK(near(found.flops, 1e280) && near(found.bytes, 1e280) && strcmp(found.unit, most.unit) == 0);
}

/* Tables ----------------------------------------------------------------------------------------------------------- */

static uint32_t launch(const char *name, double flops, double bytes, const char *unit, fs_launch_basis basis,
                       uint32_t parent, int64_t start)
{
    _Alignas(8) char signature[FS_GIVEN_WORK_BYTES];
    fs_given_work work = {flops, bytes, "", basis};
    uint32_t id = FS_NONE;
    strncpy(work.unit, unit, sizeof work.unit - 1);
    fs_given_work_encode(&work, signature);
    CHECK(fs_store_signature(store, signature, sizeof signature, &id, NULL) == FS_OK);
    return op(name, id, parent, start, 10);
}

static uint32_t stated(const char *name, double flops, double bytes, uint32_t parent, int64_t start)
{
    return launch(name, flops, bytes, "fp16_tensor", FS_LAUNCH_STATED, parent, start);
}

static uint32_t limited(const char *name, double bytes, uint32_t parent, int64_t start)
{
    return launch(name, NAN, bytes, "", FS_LAUNCH_AT_MOST, parent, start);
}

static void kernel(const char *name, uint32_t launcher, int64_t start, int64_t duration)
{
    device(FS_EVENT_KERNEL, name, launcher, 0, start, duration);
}

static bool has_work(const fs_row *row, double flops, double bytes, fs_source flops_source, fs_source bytes_source)
{
    bool same_flops = isnan(flops) ? isnan(row->flops) : row->flops == flops;
    bool same_bytes = isnan(bytes) ? isnan(row->bytes_total_moved) : row->bytes_total_moved == bytes;
    return same_flops && same_bytes && row->flops_source == flops_source && row->bytes_source == bytes_source;
}

static void test_the_work_of_a_launch_is_in_its_row_and_in_that_of_its_kernel(void)
{
    /* 2e6 FLOPs at 1e13/s take 200 ns, 4e6 bytes at 4e12/s take 1000 ns */
    fs_peaks gpu = peaks(1e13, 4e12, 20);
    uint32_t range = host(FS_EVENT_RANGE, "part", FS_NONE, 0, 900);
    for (int i = 0; i < 2; i++) kernel("mm_kernel", stated("mm", 2e6, 4e6, range, 10 + 20 * i), 1000 + 3000 * i, 2000);
    fs_table *table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
    const fs_row *op_row = row_of(table, "mm", false), *row = row_of(table, "mm_kernel", true);
    CHECK(has_work(op_row, 4e6, 8e6, FS_SOURCE_STATED, FS_SOURCE_STATED));
    CHECK(has_work(row, 4e6, 8e6, FS_SOURCE_STATED, FS_SOURCE_STATED));
    CHECK(near(op_row->pct_roofline, 50) && near(row->pct_roofline, 50));
    CHECK(op_row->bound == FS_BOUND_MEMORY && row->bound == FS_BOUND_MEMORY);
    CHECK(op_row->roof.unit == FS_UNIT_FP16_TENSOR && row->roof.unit == FS_UNIT_FP16_TENSOR);
    CHECK(row->count == 2 && near(row->tflops_per_s, 4e6 / 4000 / 1e3));
    CHECK(row_of(table, "part", false)->flops_total == 4e6);
    CHECK(near(table->whole.least_ns, 2000)); /* once */
    CHECK(table->modelled_base_ns == 4000 && table->bytes_ns[FS_SOURCE_STATED] == 4000);
    CHECK(table->flops_ns[FS_SOURCE_STATED] == 4000 && table->unmodelled_count == 0);
    fs_table_destroy(table);
}

static void test_the_limit_of_a_launch_is_an_estimate(void)
{
    fs_peaks gpu = peaks(1e13, 4e12, 20);
    kernel("add", limited("add", 4e6, FS_NONE, 10), 1000, 1250);
    kernel("skip", limited("skip", 4e6, FS_NONE, 30), 3000, 500); /* at most: it cannot have moved all of it */
    fs_table *table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
    for (int on_device = 0; on_device < 2; on_device++) {
        const fs_row *add = row_of(table, "add", on_device), *skip = row_of(table, "skip", on_device);
        CHECK(has_work(add, NAN, 4e6, FS_SOURCE_NONE, FS_SOURCE_ESTIMATED));
        CHECK(near(add->pct_roofline, 80) && add->bound == FS_BOUND_MEMORY);
        CHECK(has_work(skip, NAN, 4e6, FS_SOURCE_NONE, FS_SOURCE_ESTIMATED));
        CHECK(isnan(skip->pct_roofline) && isnan(skip->gbytes_per_s) && skip->bound == FS_BOUND_UNKNOWN);
    }
    CHECK(table->bytes_ns[FS_SOURCE_ESTIMATED] == 1750 && table->flops_known_ns == 0);
    CHECK(table->estimated_count == 2 && table->estimated[0].ns == 1250);
    fs_table_destroy(table);
}

static void test_a_launch_gives_way_to_the_rule_of_an_op_around_it(void)
{
    uint32_t known = op("flopscope::add", signature_id(FS_CUDA, 256, 1024), FS_NONE, 0, 100);
    uint32_t unknown = op("x::a", FS_NONE, FS_NONE, 200, 100);
    kernel("k", stated("inside", 5, 6, known, 10), 1000, 400);
    kernel("l", stated("other", 7, 8, unknown, 210), 2000, 300);
    fs_table *table = build(NULL);
    const fs_row *add = row_of(table, "flopscope::add", false), *inside = row_of(table, "inside", false);
    CHECK(add->flops == 262144 && add->flops_source == FS_SOURCE_MODEL && add->device_busy_time == 400);
    CHECK(inside->flops == 0 && inside->bytes_total_moved == 0 && inside->self_device_time_total == 400);
    CHECK(isnan(row_of(table, "k", true)->flops));
    CHECK(isnan(row_of(table, "x::a", false)->flops) && row_of(table, "x::a", false)->flops_total == 7);
    CHECK(row_of(table, "other", false)->flops == 7 && row_of(table, "l", true)->flops == 7);
    CHECK(table->flops_ns[FS_SOURCE_MODEL] == 400 && table->flops_ns[FS_SOURCE_STATED] == 300);
    fs_table_destroy(table);
}

static void test_a_kernel_shows_no_work_unless_all_of_its_launches_are_known(void)
{
    kernel("k", stated("mm", 5, 6, FS_NONE, 10), 1000, 400);
    kernel("k", op("x::a", FS_NONE, FS_NONE, 30, 10), 2000, 300);
    fs_table *table = build(NULL);
    CHECK(row_of(table, "mm", false)->flops == 5);
    CHECK(isnan(row_of(table, "k", true)->flops) && isnan(row_of(table, "k", true)->bytes_total_moved));
    CHECK(row_of(table, "k", true)->bytes_source == FS_SOURCE_NONE);
    fs_table_destroy(table);
}

static void test_only_the_first_kernel_of_a_launch_shows_its_work(void)
{
    uint32_t mm = stated("mm", 5, 6, FS_NONE, 10);
    kernel("k", mm, 1000, 400);
    kernel("l", mm, 2000, 300);
    fs_table *table = build(NULL);
    CHECK(row_of(table, "mm", false)->flops == 5 && row_of(table, "mm", false)->device_busy_time == 700);
    CHECK(row_of(table, "k", true)->flops == 5 && isnan(row_of(table, "l", true)->flops));
    fs_table_destroy(table);
}

static void test_a_captured_launch_works_in_its_replays(void)
{
    fs_event event;
    uint32_t captured = stated("mm", 5, 6, FS_NONE, 10);
    fs_store_get(store, captured, &event);
    event.flags = FS_EVENT_CAPTURED;
    fs_store_set(store, captured, &event);
    event.flags = FS_EVENT_REPLAYED;
    event.duration = 0;
    for (int i = 0; i < 3; i++) kernel("k", put(event), 1000 + 500 * i, 400);
    fs_table *table = build(NULL);
    CHECK(row_of(table, "mm", false)->flops == 15 && row_of(table, "mm", false)->bytes_total_moved == 18);
    CHECK(row_of(table, "k", true)->flops == 15 && row_of(table, "k", true)->count == 3);
    fs_table_destroy(table);
}

/* Samples of 100 ns from 1000 on, in each of which a kernel reads and writes `bytes`. */
static void count(double bytes, int samples)
{
    static const char *const metrics[] = {"dram_bytes_read", "dram_bytes_written"};
    for (int i = 0; i < samples; i++) {
        fs_sample sample = {1000 + 100 * i, 1100 + 100 * i, bytes};
        for (int k = 0; k < 2; k++) CHECK(fs_store_add_samples(store, 0, metrics[k], &sample, 1, NULL, NULL) == FS_OK);
    }
}

static void test_counted_bytes_take_the_place_of_a_limit_and_not_of_what_is_stated(void)
{
    fs_peaks gpu = peaks(1e13, 4e12, 20);
    kernel("add", limited("add", 4e6, FS_NONE, 10), 1000, 1000);
    kernel("mm", stated("mm", 2e6, 3e6, FS_NONE, 30), 2000, 1000);
    count(1e5, 20);
    fs_table *table = build(&(fs_table_options){.cuda_peaks = {&gpu}, .works = true});
    for (int on_device = 0; on_device < 2; on_device++) {
        const fs_row *add = row_of(table, "add", on_device), *mm = row_of(table, "mm", on_device);
        CHECK(add->bytes_source == FS_SOURCE_COUNTED && near(add->bytes_total_moved, 2e6));
        CHECK(near(add->pct_peak_bandwidth, 50));
        CHECK(mm->bytes_source == FS_SOURCE_STATED && mm->bytes_total_moved == 3e6 && mm->flops == 2e6);
        CHECK(near(mm->traffic_ratio, 2e6 / 3e6));
    }
    CHECK(table->bytes_ns[FS_SOURCE_COUNTED] == 1000 && table->bytes_ns[FS_SOURCE_STATED] == 1000);
    CHECK(table->work_count == 2 && near(table->works[0].memory_ns, 500) && near(table->works[1].memory_ns, 750));
    fs_table_destroy(table);
}

static void test_every_failed_allocation_is_reported_and_leaks_nothing(void)
{
    for (int i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        kernel(name, i % 2 ? stated(name, i, i, FS_NONE, i) : limited(name, i, FS_NONE, i), 1000 + i, 1);
    }
    build_with_failing_memory(&(fs_table_options){.works = true}, 80);
}

int main(void)
{
    static void (*const tests[])(void) = {
        test_a_name_tells_the_work_of_a_launch,
        test_other_names_stay_whole,
        test_the_largest_work_has_a_name,
        test_the_work_of_a_launch_is_in_its_row_and_in_that_of_its_kernel,
        test_the_limit_of_a_launch_is_an_estimate,
        test_a_launch_gives_way_to_the_rule_of_an_op_around_it,
        test_a_kernel_shows_no_work_unless_all_of_its_launches_are_known,
        test_only_the_first_kernel_of_a_launch_shows_its_work,
        test_a_captured_launch_works_in_its_replays,
        test_counted_bytes_take_the_place_of_a_limit_and_not_of_what_is_stated,
        test_every_failed_allocation_is_reported_and_leaks_nothing,
    };
    return run_tests(tests, sizeof tests / sizeof *tests);
}
