/* Work declared for ranges, and Python frames. Expected numbers are derived here. */
#include <math.h>
#include <string.h>

#include "tests/c/events.h"

/* Add a range with declared work; NaN: not declared. */
static uint32_t stated(fs_event_kind kind, const char *name, double flops, double bytes, uint32_t parent, int64_t start,
                       int64_t duration)
{
    _Alignas(8) char signature[FS_GIVEN_WORK_BYTES];
    fs_given_work_encode(&(fs_given_work){flops, bytes}, signature);
    fs_event event = fs_event_missing;
    CHECK(fs_store_signature(store, signature, sizeof signature, &event.signature, NULL) == FS_OK);
    event.kind = (uint8_t)kind;
    event.name = name_id(name);
    event.parent = parent;
    event.start = start;
    event.duration = duration;
    return put(event);
}

static void kernel(uint32_t launcher, int on, int64_t start, int64_t duration)
{
    device(FS_EVENT_KERNEL, "k", launcher, on, start, duration);
}

/* Declared work ---------------------------------------------------------------------------------------------------- */

/* Without API calls, the origin of kernels is unknown. They may belong to the range, so the host's time gives no rate.
 */
static void test_a_range_next_to_work_of_unknown_origin_has_no_rates(void)
{
    fs_peaks cpu = peaks(1e10, 1e10, 20);
    for (int work = 0; work < 2; work++) {
        stated(FS_EVENT_RANGE, "mine", 6e6, 3e6, FS_NONE, 10, 1000);
        if (work) kernel(FS_NONE, 0, 100, 500);
        fs_table *table = build(&(fs_table_options){.cpu_peaks = &cpu});
        const fs_row *mine = row_of(table, "mine", false);
        CHECK(mine->flops == 6e6 * (work + 1) && mine->bytes_total_moved == 3e6 * (work + 1));
        CHECK(isnan(mine->tflops_per_s) == work && isnan(mine->gbytes_per_s) == work);
        fs_table_destroy(table);
    }
}

static void test_a_range_with_declared_work_has_all_device_work_inside(void)
{
    uint32_t outer = host(FS_EVENT_RANGE, "outer", FS_NONE, 0, 2000);
    uint32_t range = stated(FS_EVENT_RANGE, "mine", 6e6, 3e6, outer, 10, 1000);
    uint32_t known = op("flopscope::add", signature_id(FS_CUDA, 256, 1024), range, 20, 30);
    uint32_t unknown = op("x::a", FS_NONE, range, 60, 30);
    uint32_t call = host(FS_EVENT_RUNTIME, "cudaLaunchKernel", unknown, 65, 5);
    kernel(known, 0, 1000, 400);
    kernel(call, 0, 1200, 500);  /* overlaps the first by 200 */
    kernel(range, 0, 3000, 100); /* launched by the range itself */
    kernel(outer, 0, 9000, 50);  /* outside */
    device(FS_EVENT_KERNEL, "other", outer, 0, 9100, 30);
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

static void test_the_roofline_of_declared_work_is_known_if_memory_bound(void)
{
    static const struct {
        double flops, bytes;
        bool known;
        fs_bound bound;
    } cases[] = {
        /* 4e6 bytes at 4e12 bytes/s take 1000 ns; the slowest unit does 1e12 FLOP/s, the fastest 1e15. */
        {0.9e6, 4e6, true, FS_BOUND_MEMORY},  {0, 4e6, true, FS_BOUND_MEMORY},   {1.1e6, 4e6, false, FS_BOUND_UNKNOWN},
        {1e12, 4e6, false, FS_BOUND_UNKNOWN}, {NAN, 4e6, true, FS_BOUND_MEMORY}, {1e6, NAN, false, FS_BOUND_UNKNOWN},
    };
    fs_peaks gpu = peaks(1e15, 4e12, 20);
    gpu.flops[FS_UNIT_FP64] = 1e12;
    gpu.flops[FS_UNIT_FP8_TENSOR] = NAN;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[2] = {(char)('a' + i), 0};
        kernel(stated(FS_EVENT_RANGE, name, cases[i].flops, cases[i].bytes, FS_NONE, 0, 10), 0, (int64_t)i * 5000,
               2000);
    }
    fs_table *table = build(&(fs_table_options){.cuda_peaks = {&gpu}});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[2] = {(char)('a' + i), 0};
        const fs_row *row = row_of(table, name, false);
        CHECK(cases[i].known ? near(row->pct_roofline, 50) : isnan(row->pct_roofline), "case %zu", i);
        CHECK(row->bound == cases[i].bound, "case %zu", i);
        CHECK(cases[i].flops == 0 ? row->pct_peak_flops == 0 : isnan(row->pct_peak_flops), "case %zu", i);
        CHECK(isnan(cases[i].bytes) ? isnan(row->pct_peak_bandwidth) : near(row->pct_peak_bandwidth, 50), "case %zu",
              i);
    }
    fs_table_destroy(table);
}

static void test_nested_ranges_show_their_own_declared_work(void)
{
    uint32_t step = host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 1000);
    uint32_t outer = stated(FS_EVENT_RANGE, "outer", 1000, NAN, step, 0, 900);
    uint32_t middle = host(FS_EVENT_RANGE, "middle", outer, 5, 800);
    uint32_t inner = stated(FS_EVENT_RANGE, "inner", 300, 70, middle, 10, 500);
    uint32_t call = op("x::a", FS_NONE, inner, 20, 30);
    kernel(call, 0, 100, 40);
    kernel(middle, 1, 100, 7);
    stated(FS_EVENT_RANGE, "inner", 50, 5, step, 950, 20);
    fs_table *table = build(NULL);
    const fs_row *o = row_of(table, "outer", false), *i = row_of(table, "inner", false);
    CHECK(o->flops == 1000 && o->flops_total == 1000 && isnan(o->bytes_total_moved) && o->device_busy_time == 47);
    CHECK(i->count == 2 && i->flops == 350 && i->bytes_total_moved == 75 && i->device_busy_time == 40);
    CHECK(row_of(table, "middle", false)->flops_total == 300 && isnan(row_of(table, "middle", false)->flops));
    CHECK(row_of(table, "ProfilerStep*", false)->flops_total == 1050);
    CHECK(table->modelled_base_ns == 47 && table->flops_known_ns == 47 && table->bytes_known_ns == 40);
    fs_table_destroy(table);
}

static void test_nested_ranges_of_one_name_are_busy_once(void)
{
    uint32_t outer = stated(FS_EVENT_RANGE, "part", 10, 10, FS_NONE, 0, 100);
    uint32_t inner = stated(FS_EVENT_RANGE, "part", 4, 4, outer, 10, 50);
    kernel(inner, 0, 100, 30);
    kernel(outer, 0, 110, 40);
    fs_table *table = build(NULL);
    const fs_row *row = row_of(table, "part", false);
    CHECK(row->device_busy_time == 50 && row->flops == 14 && row->self_device_time_total == 70);
    CHECK(row->time_min == 30 && row->time_max == 70);
    fs_table_destroy(table);
}

static void test_a_range_with_declared_work_uses_its_own_time_on_the_host(void)
{
    uint32_t range = stated(FS_EVENT_RANGE, "mine", 8000, 4000, FS_NONE, 0, 1000);
    op("x::a", FS_NONE, range, 100, 600);
    op("x::a", FS_NONE, FS_NONE, 2000, 200);
    fs_peaks cpu = peaks(1e12, 1e10, 100);
    fs_table *table = build(&(fs_table_options){.cpu_peaks = &cpu});
    const fs_row *mine = row_of(table, "mine", false);
    CHECK(near(mine->gbytes_per_s, 4) && near(mine->tflops_per_s, 8e-3) && near(mine->pct_roofline, 40));
    CHECK(mine->self_cpu_time_total == 400 && mine->time_max == 1000 && mine->bound == FS_BOUND_MEMORY);
    CHECK(table->modelled_base_ns == 800 && table->bytes_known_ns == 600 && table->flops_known_ns == 600);
    fs_table_destroy(table);
}

static void test_a_range_with_unrecorded_device_work_has_no_rate(void)
{
    uint32_t range = stated(FS_EVENT_RANGE, "mine", 8000, 4000, FS_NONE, 0, 1000);
    uint32_t helper = op("x::a", FS_NONE, range, 10, 100);
    op("flopscope::sin", signature_id(FS_CUDA, 10, 10), helper, 20, 50);
    fs_table *table = build(NULL);
    const fs_row *mine = row_of(table, "mine", false);
    CHECK(mine->flops == 8000 && isnan(mine->gbytes_per_s) && isnan(mine->tflops_per_s));
    fs_table_destroy(table);
}

static void test_one_call_without_declared_work_makes_the_row_unknown(void)
{
    stated(FS_EVENT_RANGE, "mine", 8000, 4000, FS_NONE, 0, 1000);
    host(FS_EVENT_RANGE, "mine", FS_NONE, 2000, 1000);
    fs_table *table = build(NULL);
    const fs_row *mine = row_of(table, "mine", false);
    CHECK(mine->count == 2 && isnan(mine->flops) && isnan(mine->bytes_total_moved) && mine->flops_total == 8000);
    fs_table_destroy(table);
}

static void test_the_copy_of_a_range_on_a_device_declares_no_work(void)
{
    uint32_t range = stated(FS_EVENT_RANGE, "mine", 8000, 4000, FS_NONE, 0, 1000);
    kernel(range, 0, 100, 10);
    fs_event copy;
    fs_store_get(store, range, &copy);
    copy.device = 0;
    put(copy);
    fs_table *table = build(NULL);
    const fs_row *on_device = row_of(table, "mine", true);
    CHECK(isnan(on_device->flops) && isnan(on_device->bytes_total_moved) && on_device->self_device_time_total == 1000);
    CHECK(row_of(table, "mine", false)->flops == 8000 && row_of(table, "mine", false)->device_busy_time == 10);
    fs_table_destroy(table);
}

/* Frames --------------------------------------------------------------------------------------------------------- */

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Build the same events with or without frames around and between them. */
static fs_table *nested(bool frames)
{
    uint32_t up = FS_NONE, range, call, inner;
    if (frames) up = host(FS_EVENT_FRAME, "a.py(1): main", FS_NONE, 0, 5000);
    if (frames) up = host(FS_EVENT_FRAME, "a.py(5): f", up, 1, 4000);
    up = range = host(FS_EVENT_RANGE, "outer", up, 10, 1000);
    if (frames) up = host(FS_EVENT_FRAME, "a.py(9): g", up, 12, 900);
    up = call = op("flopscope::sin", signature_id(FS_CUDA, 4, 4), up, 20, 500);
    if (frames) up = host(FS_EVENT_FRAME, "a.py(9): g", up, 25, 300);
    inner = op("x::helper", FS_NONE, up, 30, 200);
    memory(frames ? up : call, 0, 64);
    kernel(inner, 0, 100, 70);
    device(FS_EVENT_MEMSET, "fill", frames ? up : call, 0, 200,
           30); /* launched by a frame: attributed to the op around it */
    return build(NULL);
}

static void test_frames_change_no_number(void)
{
    fs_table *without = nested(false);
    fs_store *plain = store;
    CHECK(fs_store_create(&store, NULL) == FS_OK);
    fs_table *with = nested(true);
    CHECK(with->row_count == without->row_count && with->row_count == 5 && with->open_events == 0);
    for (uint32_t i = 0; i < with->row_count; i++) {
        const fs_row *a = &with->rows[i], *b = row_of(without, a->key, a->on_device);
        CHECK(a->count == b->count && a->top_level == b->top_level && a->bound == b->bound && a->part == FS_NONE);
#define FS_COLUMN(type, name, unit, prose) CHECK(same((double)a->name, (double)b->name), "%s of %s", #name, a->key);
#include "table/columns.def"
#undef FS_COLUMN
    }
    CHECK(with->self_cpu_ns == 1000 && with->self_device_ns == 100 && row_of(with, "outer", false)->top_level);
    CHECK(row_of(with, "flopscope::sin", false)->self_device_time_total == 30);
    fs_table_destroy(with);
    fs_table_destroy(without);
    fs_store_destroy(plain);
}

/* Return whether the row's stack is `expected`, whose entries are separated by '|'. */
static bool has_stack(const fs_table *table, const fs_row *row, const char *expected)
{
    char text[512] = "";
    uint32_t depth;
    const uint32_t *names = fs_table_stack(table, row, &depth);
    for (uint32_t i = 0; i < depth; i++) {
        if (i > 0) strcat(text, "|");
        strcat(text, fs_store_name_text(store, names[i]));
    }
    return strcmp(text, expected) == 0;
}

static void test_stacks_group_rows_by_their_innermost_frames(void)
{
    uint32_t main_frame = host(FS_EVENT_FRAME, "main", FS_NONE, 0, 1000);
    uint32_t f = host(FS_EVENT_FRAME, "f", main_frame, 10, 100), g = host(FS_EVENT_FRAME, "g", main_frame, 200, 100);
    uint32_t h1 = host(FS_EVENT_FRAME, "h", f, 20, 50), h2 = host(FS_EVENT_FRAME, "h", g, 220, 50);
    uint32_t first = op("x::a", FS_NONE, h1, 30, 1);
    op("x::a", FS_NONE, h2, 230, 2);
    op("x::a", FS_NONE, first, 30, 0); /* inside the first, with the same frames */
    op("x::a", FS_NONE, FS_NONE, 2000, 8);
    kernel(first, 0, 40, 5);
    static const struct {
        uint32_t depth, rows;
        const char *stacks[3]; /* of x::a, by first event */
    } cases[] = {
        {1, 3, {"h", ""}},
        {2, 4, {"h|f", "h|g", ""}},
        {9, 4, {"h|f|main", "h|g|main", ""}},
        {UINT32_MAX, 4, {"h|f|main", "h|g|main", ""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fs_table *table = build(&(fs_table_options){.stack_depth = cases[i].depth});
        uint32_t next_stack = 0;
        CHECK(table->row_count == cases[i].rows, "%u frames: %u rows", cases[i].depth, table->row_count);
        for (uint32_t row = 0; row < table->row_count; row++) {
            if (table->rows[row].on_device) CHECK(has_stack(table, &table->rows[row], ""));
            else CHECK(has_stack(table, &table->rows[row], cases[i].stacks[next_stack++]), "%u frames", cases[i].depth);
        }
        fs_table_destroy(table);
    }
    fs_table *table = build(&(fs_table_options){.stack_depth = 2});
    CHECK(table->rows[0].count == 2 && table->rows[0].self_cpu_time_total == 1 && table->self_cpu_ns == 11);
    fs_table_destroy(table);
}

static void test_events_after_a_yield_are_not_inside_the_generator(void)
{
    uint32_t caller = host(FS_EVENT_FRAME, "caller", FS_NONE, 0, 1000);
    uint32_t generator = host(FS_EVENT_FRAME, "generator", caller, 10, 20); /* until its yield */
    uint32_t range = host(FS_EVENT_RANGE, "held", generator, 15, 500);
    op("x::a", FS_NONE, range, 20, 1);
    op("x::b", FS_NONE, range, 100, 1);
    fs_table *table = build(&(fs_table_options){.stack_depth = 5});
    CHECK(has_stack(table, row_of(table, "held", false), "generator|caller"));
    CHECK(has_stack(table, row_of(table, "x::a", false), "generator|caller"));
    CHECK(has_stack(table, row_of(table, "x::b", false), "caller"));
    fs_table_destroy(table);
}

static void test_the_end_of_a_frame_only_ends_frames(void)
{
    uint32_t caller, generator, held, later, lane;
    CHECK(fs_store_thread_lane(store, &lane, NULL) == FS_OK);
    CHECK(fs_store_begin_on(store, lane, FS_EVENT_FRAME, name_id("caller"), 0, &caller, NULL) == FS_OK);
    CHECK(fs_store_begin_on(store, lane, FS_EVENT_FRAME, name_id("generator"), 10, &generator, NULL) == FS_OK);
    CHECK(fs_store_begin(store, FS_EVENT_RANGE, name_id("held"), FS_NONE, 20, &held, NULL) == FS_OK);
    fs_store_end(store, generator, 30);
    CHECK(fs_store_innermost(store) == held);
    CHECK(fs_store_begin_on(store, lane, FS_EVENT_FRAME, name_id("generator"), 40, &later, NULL) == FS_OK);
    fs_store_end(store, held, 50);
    CHECK(fs_store_innermost(store) == caller);
    fs_store_end(store, later, 60); /* already ended with the range */
    CHECK(fs_store_innermost(store) == caller);
    fs_store_end(store, caller, 70);
    CHECK(fs_store_innermost(store) == FS_NONE);
    static const int64_t durations[] = {70, 20, 30, 10};
    for (uint32_t i = 0; i < 4; i++) {
        fs_event event;
        fs_store_get(store, i, &event);
        CHECK(event.duration == durations[i], "event %u lasted %lld", i, (long long)event.duration);
    }
}

static void test_every_failed_allocation_is_reported_and_leaks_nothing(void)
{
    uint32_t up = FS_NONE;
    for (int i = 0; i < 300; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        up = host(FS_EVENT_FRAME, name, up, i, 2000);
        kernel(stated(FS_EVENT_RANGE, "mine", i, i, up, i, 1), 0, 1000 - i, 5);
    }
    build_with_failing_memory(&(fs_table_options){.stack_depth = UINT32_MAX}, 301);
}

int main(void)
{
    static void (*const tests[])(void) = {
        test_a_range_with_declared_work_has_all_device_work_inside,
        test_a_range_next_to_work_of_unknown_origin_has_no_rates,
        test_the_roofline_of_declared_work_is_known_if_memory_bound,
        test_nested_ranges_show_their_own_declared_work,
        test_nested_ranges_of_one_name_are_busy_once,
        test_a_range_with_declared_work_uses_its_own_time_on_the_host,
        test_a_range_with_unrecorded_device_work_has_no_rate,
        test_one_call_without_declared_work_makes_the_row_unknown,
        test_the_copy_of_a_range_on_a_device_declares_no_work,
        test_frames_change_no_number,
        test_stacks_group_rows_by_their_innermost_frames,
        test_events_after_a_yield_are_not_inside_the_generator,
        test_the_end_of_a_frame_only_ends_frames,
        test_every_failed_allocation_is_reported_and_leaks_nothing,
    };
    return run_tests(tests, sizeof tests / sizeof *tests);
}
