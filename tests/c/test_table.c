/* Tables of stores built by hand, beside what Python's tests compare with torch's own rows: what counts as the work of
 * a row, hostile names of launches, and failing allocations. Expected numbers are derived here from the events. */
#include "store/extend.h"
#include "store/launch_name.h"
#include "store/samples.h"
#include "table/group_sums.h"
#include "tests/c/events.h"

/* Add a range with declared work; NaN: not declared. */
static uint32_t stated(const char *name, double flops, double bytes, uint32_t parent, int64_t start, int64_t duration)
{
    fs_event event = event_of(FS_EVENT_RANGE, name, start, duration);
    event.signature = given_work_id((fs_given_work){.flops = flops, .bytes = bytes});
    event.parent = parent;
    return put(event);
}

/* Add an op that is one launch, whose work is told by the launch. */
static uint32_t launch(const char *name, double flops, double bytes, fs_launch_basis basis, uint32_t parent,
                       int64_t start)
{
    fs_given_work work = {flops, bytes, "", basis};
    if (basis == FS_LAUNCH_STATED) strcpy(work.unit, "fp16_tensor");
    return op(name, given_work_id(work), parent, start, 10);
}

static bool is_nan(double a, double b)
{
    return isnan(a) && isnan(b);
}

/* Work of ops ------------------------------------------------------------------------------------------------------ */

TEST(time_between_events_is_compared_with_the_launch_time)
{
    uint32_t add = op("flopscope::add", signature_id(FS_CUDA, 256, 1024), FS_NONE, 0, 20);
    work(FS_EVENT_INTERVAL, "flopscope::add", 0, 0, FS_NONE, add, 1000, 4000);
    fs_peaks gpu = peaks(1e13, 4e12, 400);
    gpu.launch_ns = 2000;
    fs_table *table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
    CHECK(row_of(table, "flopscope::add", false)->bound == FS_BOUND_LAUNCH);
    fs_table_destroy(table);
    gpu.launch_ns = 400;
    gpu.kernel_ns = 2000;
    table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
    CHECK(row_of(table, "flopscope::add", false)->bound == FS_BOUND_MEMORY);
    fs_table_destroy(table);
}

TEST(rates_on_the_host_and_without_device_times)
{
    uint32_t on_host = signature_id(FS_CPU, 10, 10);
    op("flopscope::add", on_host, FS_NONE, 0, 600);
    op("flopscope::add", on_host, FS_NONE, 700, 200);
    op("flopscope::sin", signature_id(FS_CUDA, 10, 10), FS_NONE, 1000, 50); /* without a recorded kernel */
    fs_peaks cpu = peaks(1e12, 1e10, 100);
    fs_table *table = build(&(fs_table_options){.cpu_peaks = &cpu});
    const fs_row *add = row_of(table, "flopscope::add", false), *sin_row = row_of(table, "flopscope::sin", false);
    CHECK(near(add->gbytes_per_s, 2400.0 / 800) && near(add->pct_roofline, 100 * 240.0 / 800));
    CHECK(add->device_busy_time == 0 && add->bound == FS_BOUND_MEMORY && near(add->time_median, 400));
    CHECK(sin_row->flops == 100 && isnan(sin_row->gbytes_per_s) && sin_row->bound == FS_BOUND_UNKNOWN);
    CHECK(table->modelled_base_ns == 850 && table->bytes_known_ns == 850 && table->unmodelled_count == 0);
    fs_table_destroy(table);
}

TEST(work_counts_once_and_one_unknown_call_makes_the_row_unknown)
{
    uint32_t signature = signature_id(FS_CUDA, 4, 4);
    uint32_t outer = op("flopscope::sin", signature, FS_NONE, 0, 100);
    uint32_t inner = op("flopscope::add", signature, outer, 10, 50);
    kernel("k", op("x::helper", FS_NONE, inner, 20, 20), 30, 530);
    op("flopscope::add", FS_NONE, FS_NONE, 200, 10);
    fs_table *table = build(NULL);
    /* The kernel counts as add's work, though a helper launched it; sin has none of its own. */
    const fs_row *sin_row = row_of(table, "flopscope::sin", false), *add = row_of(table, "flopscope::add", false);
    CHECK(sin_row->flops == 0 && sin_row->flops_total == 16 && sin_row->bytes_total_moved == 0);
    CHECK(isnan(add->flops) && add->flops_total == 16 && add->device_busy_time == 500);
    CHECK(add->self_device_time_total == 0 && add->time_max == 500);
    CHECK(row_of(table, "x::helper", false)->self_device_time_total == 500);
    CHECK(table->bytes_known_ns == 500 && table->modelled_base_ns == 500 && table->unmodelled_count == 0);
    fs_table_destroy(table);
}

TEST(coverage_names_ops_without_a_rule)
{
    uint32_t range = host(FS_EVENT_RANGE, "outer", FS_NONE, 0, 1000);
    kernel("k", op("flopscope::add", signature_id(FS_CUDA, 4, 4), range, 0, 10), 100, 110);
    kernel("k", op("x::a", signature_id(FS_CUDA, 4, 4), range, 20, 10), 200, 220);
    uint32_t other = op("x::a", signature_id(FS_CUDA, 5, 5), range, 40, 10);
    kernel("k", call("cudaLaunchKernel", FS_NONE, other, 42, 44), 300, 330);
    kernel("mine", range, 400, 470);
    work(FS_EVENT_MEMCPY, "copy", 0, 7, FS_NONE, FS_NONE, 500, 505);
    kernel("ncclDevKernel_AllReduce", FS_NONE, 600, 1600);
    fs_table *table = build(&(fs_table_options){.by_shape = true});
    /* A copy records its own bytes, whatever launched it. */
    CHECK(table->modelled_base_ns == 135 && table->bytes_known_ns == 15 && table->flops_known_ns == 15);
    CHECK(table->unmodelled_count == 2);
    CHECK(strcmp(table->unmodelled[0].key, "mine") == 0 && table->unmodelled[0].ns == 70);
    CHECK(strcmp(table->unmodelled[1].key, "x::a") == 0 && table->unmodelled[1].ns == 50);
    fs_table_destroy(table);
}

TEST(open_events_count_and_have_no_time)
{
    uint32_t open = op("x::a", FS_NONE, FS_NONE, 0, FS_MISSING);
    op("x::b", FS_NONE, open, 10, 30);
    op("x::a", FS_NONE, FS_NONE, 50, 20);
    fs_event running = work_of(FS_EVENT_KERNEL, "k", 0, 7, 60, 60);
    running.duration = FS_MISSING;
    running.launcher = open;
    put(running);
    fs_table *table = build(NULL);
    const fs_row *a = row_of(table, "x::a", false), *k = row_of(table, "k", true);
    CHECK(table->open_events == 2 && a->count == 2 && a->cpu_time_total == 20 && a->self_cpu_time_total == 20);
    CHECK(k->count == 1 && k->device_busy_time == 0 && isnan(k->time_min));
    fs_table_destroy(table);
}

/* Declared work ---------------------------------------------------------------------------------------------------- */

/* Without API calls, the origin of kernels is unknown. They may belong to the range, so the host's time gives no rate.
 */
TEST(a_range_next_to_work_of_unknown_origin_has_no_rates)
{
    fs_peaks cpu = peaks(1e10, 1e10, 20);
    for (int unknown = 0; unknown < 2; unknown++) {
        stated("mine", 6e6, 3e6, FS_NONE, 10, 1000);
        if (unknown) kernel("k", FS_NONE, 100, 600);
        fs_table *table = build(&(fs_table_options){.cpu_peaks = &cpu});
        const fs_row *mine = row_of(table, "mine", false);
        CHECK(mine->flops == 6e6 * (unknown + 1) && mine->bytes_total_moved == 3e6 * (unknown + 1));
        CHECK(isnan(mine->tflops_per_s) == unknown && isnan(mine->gbytes_per_s) == unknown);
        fs_table_destroy(table);
    }
}

TEST(a_range_with_declared_work_has_all_device_work_inside)
{
    uint32_t outer = host(FS_EVENT_RANGE, "outer", FS_NONE, 0, 2000);
    uint32_t range = stated("mine", 6e6, 3e6, outer, 10, 1000);
    uint32_t known = op("flopscope::add", signature_id(FS_CUDA, 256, 1024), range, 20, 30);
    uint32_t unknown = op("x::a", FS_NONE, range, 60, 30);
    kernel("k", known, 1000, 1400);
    kernel("k", call("cudaLaunchKernel", FS_NONE, unknown, 65, 70), 1200, 1700); /* overlaps the first by 200 */
    kernel("k", range, 3000, 3100);                                              /* launched by the range itself */
    kernel("k", outer, 9000, 9050);                                              /* outside */
    kernel("other", outer, 9100, 9130);
    fs_peaks gpu = peaks(1e13, 4e12, 20);
    fs_table *table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
    const fs_row *mine = row_of(table, "mine", false), *add = row_of(table, "flopscope::add", false);
    CHECK(mine->flops == 6e6 && mine->flops_total == 6e6 && mine->bytes_total_moved == 3e6);
    CHECK(isnan(mine->bytes_read) && isnan(mine->bytes_written) && mine->is_user_annotation);
    CHECK(mine->device_busy_time == 700 + 100 && mine->device_time_total == 1000);
    CHECK(mine->self_device_time_total == 100 && mine->time_max == 1000 && mine->timing == FS_TIMING_CUPTI);
    CHECK(near(mine->tflops_per_s, 6e6 / 800 / 1e3) && near(mine->gbytes_per_s, 3e6 / 800));
    CHECK(mine->arithmetic_intensity == 2 && near(mine->pct_peak_bandwidth, 100 * (3e6 / 4e12 * 1e9) / 800));
    /* The op inside keeps its own work; the enclosing rows count the declared work instead. */
    CHECK(add->flops == 262144 && add->device_busy_time == 400 && add->self_device_time_total == 400);
    const fs_row *around = row_of(table, "outer", false);
    CHECK(around->flops_total == 6e6 && isnan(around->flops) && isnan(around->bytes_total_moved));
    CHECK(around->device_busy_time == 80 && around->device_time_total == 1080);
    /* Three kernels have work from add's rule and the range, so the fourth, which is similar, has work too. */
    CHECK(table->modelled_base_ns == 1080 && table->bytes_known_ns == 1050 && table->flops_known_ns == 1050);
    CHECK(table->unmodelled_count == 1 && strcmp(table->unmodelled[0].key, "other") == 0);
    CHECK(table->unmodelled[0].ns == 30);
    fs_table_destroy(table);
}

TEST(nested_ranges_show_their_own_declared_work)
{
    uint32_t step = host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 1000);
    uint32_t outer = stated("outer", 1000, NAN, step, 0, 900);
    uint32_t middle = host(FS_EVENT_RANGE, "middle", outer, 5, 800);
    uint32_t inner = stated("inner", 300, 70, middle, 10, 500);
    kernel("k", op("x::a", FS_NONE, inner, 20, 30), 100, 140);
    work(FS_EVENT_KERNEL, "k", 1, 7, FS_NONE, middle, 100, 107);
    stated("inner", 50, 5, step, 950, 20);
    uint32_t part = stated("part", 10, 10, FS_NONE, 2000, 100);
    kernel("l", stated("part", 4, 4, part, 2010, 50), 2100, 2130);
    kernel("l", part, 2110, 2150);
    fs_table *table = build(NULL);
    const fs_row *o = row_of(table, "outer", false), *i = row_of(table, "inner", false);
    CHECK(o->flops == 1000 && o->flops_total == 1000 && isnan(o->bytes_total_moved) && o->device_busy_time == 47);
    CHECK(i->count == 2 && i->flops == 350 && i->bytes_total_moved == 75 && i->device_busy_time == 40);
    CHECK(row_of(table, "middle", false)->flops_total == 300 && isnan(row_of(table, "middle", false)->flops));
    CHECK(row_of(table, "ProfilerStep*", false)->flops_total == 1050);
    const fs_row *p = row_of(table, "part", false); /* of one name: busy once */
    CHECK(p->device_busy_time == 50 && p->flops == 14 && p->self_device_time_total == 70);
    CHECK(p->time_min == 30 && p->time_max == 70);
    CHECK(table->modelled_base_ns == 117 && table->flops_known_ns == 117 && table->bytes_known_ns == 110);
    fs_table_destroy(table);
}

TEST(declared_work_that_is_incomplete_gives_no_rates_or_sums)
{
    uint32_t range = stated("unrecorded", 8000, 4000, FS_NONE, 0, 1000);
    op("flopscope::sin", signature_id(FS_CUDA, 10, 10), op("x::a", FS_NONE, range, 10, 100), 20, 50);
    stated("twice", 8000, 4000, FS_NONE, 1000, 1000);
    host(FS_EVENT_RANGE, "twice", FS_NONE, 2000, 1000);
    range = stated("copied", 8000, 4000, FS_NONE, 3000, 1000);
    kernel("k", range, 3100, 3110);
    fs_event copy = event_at(range); /* of the range, on a device */
    copy.device = 0;
    put(copy);
    fs_table *table = build(NULL);
    const fs_row *unrecorded = row_of(table, "unrecorded", false), *twice = row_of(table, "twice", false);
    CHECK(unrecorded->flops == 8000 && isnan(unrecorded->gbytes_per_s) && isnan(unrecorded->tflops_per_s));
    CHECK(twice->count == 2 && isnan(twice->flops) && isnan(twice->bytes_total_moved) && twice->flops_total == 8000);
    const fs_row *on_device = row_of(table, "copied", true);
    CHECK(isnan(on_device->flops) && isnan(on_device->bytes_total_moved) && on_device->self_device_time_total == 1000);
    CHECK(row_of(table, "copied", false)->flops == 8000 && row_of(table, "copied", false)->device_busy_time == 10);
    fs_table_destroy(table);
}

/* Launches that tell their work ------------------------------------------------------------------------------------ */

TEST(a_name_tells_the_work_of_a_launch)
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
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const fs_given_work *work = &cases[i].work;
        fs_given_work found = {.flops = -1};
        size_t size = fs_launch_name_parse(cases[i].text, strlen(cases[i].text), &found);
        CHECK(size == cases[i].size, "case %zu: %zu", i, size);
        CHECK(found.launch == work->launch && strcmp(found.unit, work->unit) == 0, "case %zu", i);
        CHECK(found.flops == work->flops || is_nan(found.flops, work->flops), "case %zu", i);
        CHECK(found.bytes == work->bytes || is_nan(found.bytes, work->bytes), "case %zu", i);
        char text[FS_LAUNCH_NAME_BYTES];
        fs_launch_name_write(&found, text, sizeof text);
        CHECK(strcmp(text, cases[i].text + size + 1) == 0, "case %zu: %s", i, text);
    }
    fs_given_work most = {1e280, 1e280, "a_name_of_15_ch", FS_LAUNCH_AT_MOST}, found = {.flops = 0};
    char text[2 + FS_LAUNCH_NAME_BYTES] = "k ";
    fs_launch_name_write(&most, text + 2, sizeof text - 2);
    CHECK(fs_launch_name_parse(text, strlen(text), &found) == 1);
    CHECK(near(found.flops, 1e280) && near(found.bytes, 1e280) && strcmp(found.unit, most.unit) == 0);
}

TEST(other_names_stay_whole)
{
    static const char *const cases[] = {"",
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
                                        "void f<int [4]>"};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        fs_given_work untouched = {.flops = -1, .bytes = -2, .unit = "x", .launch = 9}, found = untouched;
        CHECK(fs_launch_name_parse(cases[i], strlen(cases[i]), &found) == 0, "%s", cases[i]);
        CHECK(memcmp(&found, &untouched, sizeof found) == 0, "%s", cases[i]);
    }
}

TEST(a_launch_gives_way_to_the_rule_of_an_op_around_it)
{
    uint32_t known = op("flopscope::add", signature_id(FS_CUDA, 256, 1024), FS_NONE, 0, 100);
    uint32_t unknown = op("x::a", FS_NONE, FS_NONE, 200, 100);
    kernel("k", launch("inside", 5, 6, FS_LAUNCH_STATED, known, 10), 1000, 1400);
    kernel("l", launch("other", 7, 8, FS_LAUNCH_STATED, unknown, 210), 2000, 2300);
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

TEST(kernels_show_the_work_of_their_launch_once_and_only_if_all_is_known)
{
    uint32_t mm = launch("mm", 5, 6, FS_LAUNCH_STATED, FS_NONE, 10);
    kernel("first", mm, 1000, 1400);
    kernel("second", mm, 2000, 2300);
    kernel("mixed", launch("bmm", 5, 6, FS_LAUNCH_STATED, FS_NONE, 30), 3000, 3400);
    kernel("mixed", op("x::a", FS_NONE, FS_NONE, 50, 10), 4000, 4300);
    fs_event event = event_at(launch("captured", 5, 6, FS_LAUNCH_STATED, FS_NONE, 70));
    event.flags = FS_EVENT_CAPTURED;
    fs_store_set(store, fs_store_count(store) - 1, &event);
    event.flags = FS_EVENT_REPLAYED;
    event.duration = 0;
    for (int i = 0; i < 3; i++) kernel("replayed", put(event), 5000 + 500 * i, 5400 + 500 * i);
    fs_table *table = build(NULL);
    CHECK(row_of(table, "mm", false)->flops == 5 && row_of(table, "mm", false)->device_busy_time == 700);
    CHECK(row_of(table, "first", true)->flops == 5 && isnan(row_of(table, "second", true)->flops));
    CHECK(row_of(table, "bmm", false)->flops == 5 && isnan(row_of(table, "mixed", true)->flops));
    CHECK(isnan(row_of(table, "mixed", true)->bytes_total_moved));
    CHECK(row_of(table, "mixed", true)->bytes_source == FS_SOURCE_NONE);
    CHECK(row_of(table, "captured", false)->flops == 15 && row_of(table, "captured", false)->bytes_total_moved == 18);
    CHECK(row_of(table, "replayed", true)->flops == 15 && row_of(table, "replayed", true)->count == 3);
    fs_table_destroy(table);
}

/* Count `values` of a metric in samples of 100 ns from `begin` on. */
static fs_status count(const char *metric, int64_t begin, double value, int samples, fs_error *err)
{
    for (int i = 0; i < samples; i++) {
        fs_sample sample = {begin + 100 * i, begin + 100 * i + 100, value};
        FS_TRY(fs_store_add_samples(store, 0, metric, &sample, 1, NULL, err));
    }
    return FS_OK;
}

/* 2e6 FLOPs at 1e13/s take 200 ns, 4e6 bytes at 4e12/s take 1000 ns. */
TEST(counted_bytes_take_the_place_of_a_limit_and_not_of_what_is_stated)
{
    fs_peaks gpu = peaks(1e13, 4e12, 20);
    kernel("add", launch("add", NAN, 4e6, FS_LAUNCH_AT_MOST, FS_NONE, 10), 1000, 2000);
    kernel("mm", launch("mm", 2e6, 3e6, FS_LAUNCH_STATED, FS_NONE, 30), 2000, 3000);
    kernel("skip", launch("skip", NAN, 4e6, FS_LAUNCH_AT_MOST, FS_NONE, 50), 9000, 9500); /* it cannot move so much */
    CHECK_OK(count("dram_bytes_read", 1000, 1e5, 20, NULL));
    CHECK_OK(count("dram_bytes_written", 1000, 1e5, 20, NULL));
    fs_table *table = build(&(fs_table_options){.cuda_peaks = {&gpu}, .works = true});
    for (int on_device = 0; on_device < 2; on_device++) {
        const fs_row *add = row_of(table, "add", on_device), *mm = row_of(table, "mm", on_device);
        CHECK(add->bytes_source == FS_SOURCE_COUNTED && near(add->bytes_total_moved, 2e6) && isnan(add->flops));
        CHECK(near(add->pct_peak_bandwidth, 50));
        CHECK(mm->bytes_source == FS_SOURCE_STATED && mm->bytes_total_moved == 3e6 && mm->flops == 2e6);
        CHECK(near(mm->traffic_ratio, 2e6 / 3e6) && mm->roof.unit == FS_UNIT_FP16_TENSOR);
        const fs_row *skip = row_of(table, "skip", on_device);
        CHECK(skip->bytes_source == FS_SOURCE_ESTIMATED && skip->bytes_total_moved == 4e6);
        CHECK(isnan(skip->pct_roofline) && isnan(skip->gbytes_per_s) && skip->bound == FS_BOUND_UNKNOWN);
    }
    CHECK(table->bytes_ns[FS_SOURCE_COUNTED] == 1000 && table->bytes_ns[FS_SOURCE_STATED] == 1000);
    CHECK(table->bytes_ns[FS_SOURCE_ESTIMATED] == 500);
    CHECK(table->work_count == 3 && near(table->works[0].memory_ns, 500) && near(table->works[1].memory_ns, 750));
    fs_table_destroy(table);
}

/* Failures --------------------------------------------------------------------------------------------------------- */

/* Ops that launch, allocate, have a frame, a module, declared and told work. */
static void fill(int ops)
{
    uint32_t signature = signature_id(FS_CUDA, 4, 4), up = FS_NONE;
    for (int i = 0; i < ops; i++) {
        char name[16];
        snprintf(name, sizeof name, "x::%d", i);
        uint32_t step = host(FS_EVENT_STEP, i % 2 ? "ProfilerStep#1" : "ProfilerStep#0", FS_NONE, 1000 - i, 900);
        up = host(FS_EVENT_FRAME, i % 2 ? "train.py(3): train" : "nn.Module: Net_0", i % 8 ? up : step, 1000 - i, 5);
        uint32_t range = stated("mine", i, i, up, 1000 - i, 5), inside = op(name, signature, range, 1000 - i, 5);
        kernel("k", inside, 2000 - i, 2005 - i);
        kernel(name, launch(name, i, i, i % 2 ? FS_LAUNCH_STATED : FS_LAUNCH_AT_MOST, up, 1000 - i), 3000 + i,
               3001 + i);
        memory(inside, 0, 8);
        fs_store_set_forward(store, inside, step);
    }
}

TEST(every_failed_allocation_is_reported_and_leaks_nothing)
{
    const uint32_t every_grouping = (1u << FS_GROUPING_COUNT) - 1;
    fill(40);
    build_with_failing_memory(&(fs_table_options){.by_shape = true, .works = true});
    build_with_failing_memory(&(fs_table_options){.groupings = every_grouping, .stack_depth = UINT32_MAX});
}

static fs_status count_everything(fs_error *err)
{
    fs_table_options options = {0};
    fs_device_facts facts = fs_device_facts_missing;
    fs_table *table = NULL;
    fs_store *kept = store, *other = NULL;
    facts.l2_bytes = 500;
    FS_TRY(fs_store_create(&store, err));
    fs_status status = fs_store_set_device(store, 0, &facts, err);
    if (status == FS_OK) status = fs_store_extend(store, kept, 0, err); /* a kernel */
    if (status == FS_OK) status = count("dram_bytes_read", 0, 10, 4, err);
    if (status == FS_OK) status = count("dram_bytes_written", 0, 10, 4, err);
    if (status == FS_OK) status = count("another", 0, 10, 4, err);
    if (status == FS_OK) status = fs_table_build(store, &options, &table, err);
    if (status == FS_OK) status = fs_store_create(&other, err);
    if (status == FS_OK) status = fs_store_extend(other, store, 10, err);
    fs_table_destroy(table);
    fs_store_destroy(other);
    fs_store_destroy(store);
    store = kept;
    return status;
}

TEST(every_failed_allocation_of_samples_is_reported_and_leaks_nothing)
{
    kernel("a", FS_NONE, 0, 300);
    CHECK(fail_each_allocation(count_everything) > 20);
}

/* Sums of groups: their values are tested from Python. */
static fs_status sum_groups(fs_error *err)
{
    static int64_t integers[FS_SUMMED_INTEGER_COUNT][2] = {{INT64_MAX, INT64_MAX}, {INT64_MAX, INT64_MAX}};
    static double numbers[FS_SUMMED_NUMBER_COUNT][2];
    static const int64_t groups[] = {0, 0}, parents[] = {-1};
    fs_group_sum sums[2];
    bool has_left;
    fs_group_request request = {.row_count = 2,
                                .group_count = 1,
                                .integers = integers[0],
                                .numbers = numbers[0],
                                .groups = groups,
                                .parents = parents,
                                .device_time = NAN};
    FS_TRY(fs_group_sums(&request, sums, &has_left, err));
    CHECK(sums[0].count == INT64_MAX, "not saturated");
    return FS_OK;
}

TEST(sums_of_groups_saturate_and_report_failed_allocations)
{
    CHECK(fail_each_allocation(sum_groups) > 0);
}
