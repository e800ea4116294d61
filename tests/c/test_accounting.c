/* Accounting of stores built by hand, beside what Python's tests compare instant by instant: rare causes of idle time,
 * limits, threads, failures. Expected numbers are derived here from the events. */
#include "accounting/accounting.h"
#include "accounting/late.h"
#include "base/interrupt.h"
#include "base/parallel.h"
#include "base/saturate.h"
#include "tests/c/events.h"

enum { MS = 1000000 };

typedef struct {
    fs_table *table;
    fs_accounting found;
} account;

static account take_account(fs_table_options options)
{
    account result = {0};
    fs_error err = {FS_OK, ""};
    options.works = true;
    result.table = build(&options);
    CHECK(fs_accounting_build(&result.found, store, result.table, &err) == FS_OK, "%s", err.message);
    return result;
}

static void clear(account *of)
{
    fs_accounting_clear(&of->found);
    fs_table_destroy(of->table);
}

static int64_t idle(const account *of, fs_idle_cause cause)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < of->found.gap_count; i++)
        if (of->found.gaps[i].cause == (int64_t)cause) fs_add_to(&sum, of->found.gaps[i].time);
    return sum;
}

/* Cells are of one op if device, row or kernel, and part are the same; parts follow from classes, bounds and causes. */
static void check_parts(const fs_accounting *found, const fs_table *table)
{
    static const char *const by_class[] = {"", "communication", "copy"};
    for (uint32_t i = 0; i < found->gap_count; i++)
        CHECK(strcmp(fs_parts[found->gaps[i].part].name, fs_idle_cause_parts[found->gaps[i].cause]) == 0);
    for (uint32_t i = 0; i < found->cell_count; i++) {
        const fs_cell *cell = &found->cells[i];
        const char *part = fs_parts[cell->part].name;
        const char *bound = cell->row >= 0 ? fs_bounds[table->rows[cell->row].bound].name : "unknown";
        if (cell->class > 0) CHECK(strcmp(part, by_class[cell->class]) == 0);
        else if (cell->ideal < 0 || strcmp(bound, "unknown") == 0) CHECK(strcmp(part, "unmodelled") == 0);
        else if (strcmp(bound, "inefficient") != 0) CHECK(strcmp(part, strcmp(bound, "cache") ? bound : "memory") == 0);
        for (uint32_t j = 0; j < found->cell_count; j++) {
            const fs_cell *other = &found->cells[j];
            bool same = cell->device == other->device && cell->row == other->row && cell->part == other->part &&
                        (cell->row >= 0 || cell->kernel == other->kernel);
            CHECK((cell->op == other->op) == same && cell->op <= i);
        }
    }
}

TEST(pairs_are_neighbours_on_a_stream)
{
    uint32_t a = op("a", FS_NONE, FS_NONE, 0, 10), b = op("b", FS_NONE, FS_NONE, 10, 10);
    for (int i = 0; i < 3; i++) {
        kernel("ka", a, 100 * i + 20, 100 * i + 30);
        kernel("kb", b, 100 * i + 40, 100 * i + 50);
        work(FS_EVENT_KERNEL, "ka", 0, 8, FS_NONE, a, 100 * i + 45, 100 * i + 60); /* on another stream */
    }
    account of = take_account((fs_table_options){0});
    int64_t counts[2][2] = {{0}};
    for (uint32_t i = 0; i < of.found.pair_count; i++) {
        const fs_pair *pair = &of.found.pairs[i];
        counts[of.table->rows[pair->before].key[0] == 'b'][of.table->rows[pair->after].key[0] == 'b'] += pair->count;
    }
    CHECK(counts[0][1] == 3 && counts[1][0] == 2 && counts[0][0] == 2 && counts[1][1] == 0);
    clear(&of);
}

/* Idle time -------------------------------------------------------------------------------------------------------- */

/* A kernel of 100 whose call lasts from `launched` to `returned`. */
static void launch(uint32_t correlation, int64_t launched, int64_t returned, int64_t begin)
{
    call("cudaLaunchKernel", correlation, FS_NONE, launched, returned);
    work(FS_EVENT_KERNEL, "k", 0, 7, correlation, FS_NONE, begin, begin + 100);
}

static void overhead(const char *name, int64_t start, int64_t end)
{
    host(FS_EVENT_OVERHEAD, name, FS_NONE, start, end - start);
}

TEST(waits_are_named_and_counted_with_the_work_that_they_delay)
{
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 1000);
    uint32_t first = op("first", FS_NONE, FS_NONE, 10, 30);
    call("cudaLaunchKernel", 1, first, 20, 30);
    work(FS_EVENT_KERNEL, "k", 0, 7, 1, first, 50, 100);
    uint32_t item = op("aten::item", FS_NONE, FS_NONE, 90, 160);
    uint32_t wait = call("cudaStreamSynchronize", 3, item, 95, 240);
    uint32_t third = op("third", FS_NONE, FS_NONE, 260, 50);
    call("cudaLaunchKernel", 4, third, 270, 290);
    work(FS_EVENT_KERNEL, "k", 0, 7, 4, third, 300, 400);
    uint32_t fourth = op("fourth", FS_NONE, FS_NONE, 530, 30);
    call("cudaLaunchKernel", 5, fourth, 540, 560);
    work(FS_EVENT_KERNEL, "k", 0, 7, 5, fourth, 570, 600); /* late because of the wait too */
    account of = take_account((fs_table_options){0});
    for (uint32_t i = 0; i < of.found.gap_count; i++) {
        const fs_gap *gap = &of.found.gaps[i];
        if (gap->cause == FS_IDLE_SYNC) CHECK(gap->wait == wait && gap->count == 2);
        else CHECK(gap->wait == -1);
    }
    CHECK(idle(&of, FS_IDLE_SYNC) == 200 + 170); /* launches take 10 to arrive */
    CHECK(of.found.hosts[0].waits == 145 && of.found.hosts[0].events[FS_EVENT_RUNTIME] == 4);
    CHECK(of.found.hosts[0].events[FS_EVENT_OP] == 4 && of.found.hosts[0].events[FS_EVENT_KERNEL] == 0);
    CHECK(of.found.launch_median == 20); /* 10, 20, 20 */
    clear(&of);
}

TEST(causes_while_the_host_is_late)
{
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 10000);
    launch(1, 0, 0, 0);
    host(FS_EVENT_RANGE, "_compile.compile_inner (dynamo_timed)", FS_NONE, 200, 800);
    overhead("Activity Buffer Request", 300, 400);
    overhead("Runtime Triggered Module Loading", 500, 600);
    host(FS_EVENT_RANGE, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", FS_NONE, 900, 300);
    call("cuModuleLoadData", 4, FS_NONE, 1300, 1400);
    call("cudaLibraryLoadData", 5, FS_NONE, 1500, 1600);
    launch(2, 2000, 2000, 2000);
    overhead("Activity Buffer Request", 2500, 2600);
    launch(3, 1900, 1950, 2700); /* in time: what the profiler did delayed nothing */
    account of = take_account((fs_table_options){0});
    CHECK(idle(&of, FS_IDLE_RECORDING) == 100 && idle(&of, FS_IDLE_LOADING) == 300);
    CHECK(idle(&of, FS_IDLE_COMPILE) == 800 - 200 && idle(&of, FS_IDLE_DATA) == 200);
    CHECK(idle(&of, FS_IDLE_HOST) == 100 + 600 + (10000 - 2800) && idle(&of, FS_IDLE_OTHER) == 600);
    clear(&of);
}

TEST(the_first_launch_of_a_kernel_that_blocks)
{
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 20 * MS);
    for (int i = 0; i < 4; i++) launch((uint32_t)i, 1000 * i, 1000 * i + 100, 1000 * i + 100);
    call("cudaLaunchKernel", 10, FS_NONE, 5000, 5000 + 5 * MS);
    work(FS_EVENT_KERNEL, "new", 0, 7, 10, FS_NONE, 5000 + 5 * MS, 6 * MS);
    account of = take_account((fs_table_options){0});
    CHECK(idle(&of, FS_IDLE_FIRST_LAUNCH) == 5 * MS && idle(&of, FS_IDLE_BLOCKED) == 0);
    clear(&of);
}

TEST(a_call_that_blocked_and_a_stream_that_waited)
{
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 20 * MS);
    for (int i = 0; i < 4; i++) launch((uint32_t)i, 1000 * i, 1000 * i + 100, 1000 * i + 100);
    launch(10, 5000, 5000 + 5 * MS, 5000 + 5 * MS);
    call("cudaStreamWaitEvent", 11, FS_NONE, 5 * MS + 5000, 5 * MS + 5050);
    launch(12, 5 * MS + 5050, 5 * MS + 5080, 7 * MS);
    call("cudaStreamWaitEvent", 13, FS_NONE, 7 * MS + 200, 7 * MS + 250);
    call("cudaEventDestroy", 14, FS_NONE, 7 * MS + 250, 7 * MS + 300);
    launch(15, 7 * MS + 300, 7 * MS + 500, 8 * MS + 100); /* late itself, and then held up by the event */
    account of = take_account((fs_table_options){0});
    CHECK(idle(&of, FS_IDLE_BLOCKED) == 5 * MS, "%lld", (long long)idle(&of, FS_IDLE_BLOCKED));
    CHECK(idle(&of, FS_IDLE_STREAM_WAIT) == 7 * MS - (5 * MS + 5100) + MS - 400);
    CHECK(idle(&of, FS_IDLE_OTHER) == 0);
    clear(&of);
}

TEST(waits_are_cut_at_the_steps_of_the_host)
{
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 100);
    host(FS_EVENT_STEP, "ProfilerStep#1", FS_NONE, 50, 150); /* overlaps: it begins at 100 */
    host(FS_EVENT_STEP, "ProfilerStep#2", FS_NONE, 250, 50);
    kernel("k", FS_NONE, 0, 10);
    host(FS_EVENT_OP, "op", FS_NONE, 255, 5);
    host(FS_EVENT_SYNC, "wait", FS_NONE, 80, 190);
    host(FS_EVENT_SYNC, "wait", FS_NONE, 260, 20); /* on another thread */
    account of = take_account((fs_table_options){0});
    CHECK(of.found.steps.count == 3 && of.found.steps.steps[1].host_begin == 100);
    CHECK(of.found.hosts[0].waits == 20 && of.found.hosts[1].waits == 100 && of.found.hosts[2].waits == 30);
    CHECK(of.found.hosts[0].events[FS_EVENT_SYNC] == 1 && of.found.hosts[2].events[FS_EVENT_SYNC] == 1);
    CHECK(of.found.hosts[0].events[FS_EVENT_STEP] == 2); /* the second began in the first */
    clear(&of);
}

/* What the host did meanwhile -------------------------------------------------------------------------------------- */

static uint8_t names[64], ops[64], other[64], waits[64];

static void choose(uint8_t *flags, const char *name)
{
    memset(flags, 0, 64);
    flags[name_id(name)] = 1;
}

TEST(without_a_device_the_ops_of_the_cpu_are_the_work)
{
    fs_named_calls calls;
    fs_error err;
    op("add", FS_NONE, FS_NONE, 0, 40);
    host(FS_EVENT_RANGE, "wait", FS_NONE, 30, 70);
    host(FS_EVENT_OP, "DataLoader.next", FS_NONE, 35, 60);
    op("mul", FS_NONE, FS_NONE, 110, 40);
    host(FS_EVENT_RANGE, "wait", FS_NONE, 160, 50);
    choose(names, "wait");
    CHECK_OK(fs_idle_calls_find(&calls, store, names, false, &err));
    CHECK(calls.count == 2 && calls.items[0].start == 30 && calls.items[0].idle == 60 && !calls.items[0].unused);
    CHECK(calls.items[1].idle == 0 && calls.items[1].unused); /* after the start of the last op */
    fs_free(calls.items);
}

/* Of work that ends at 60, 50,250 and 90,000, the last on another device. */
TEST(a_call_waited_if_work_of_a_device_ended_within_it)
{
    static const int64_t times[][3] = {/* begin, end, waited; 10 µs later counts too */
                                       {0, 50, 1},        {60, 61, 1},       {61, 40249, 0},    {62, 40250, 1},
                                       {50251, 79999, 0}, {50252, 80000, 1}, {55000, 99000, 1}, {90001, 200000, 0}};
    fs_named_calls calls;
    fs_error err;
    uint32_t add = op("add", FS_NONE, FS_NONE, 0, 300000), next = 0;
    for (size_t i = 0; i < COUNT_OF(times); i++)
        call("cudaStreamSynchronize", 10 + (uint32_t)i, add, times[i][0], times[i][1]);
    call("cudaMalloc", 3, add, 0, 300000);
    host(FS_EVENT_RANGE, "cudaStreamSynchronize", add, 0, 300000); /* not an API call */
    host(FS_EVENT_RUNTIME, "cudaStreamSynchronize", add, 20, FS_MISSING);
    work(FS_EVENT_KERNEL, "k", 0, 7, 1, add, 20, 60);
    work(FS_EVENT_KERNEL, "k", 0, 7, 2, add, 215, 50250);
    work(FS_EVENT_MEMCPY, "c", 1, 7, 3, add, 70000, 90000);
    choose(names, "cudaStreamSynchronize");
    CHECK_OK(fs_waiting_calls_find(&calls, store, names, &err));
    for (size_t i = 0; i < COUNT_OF(times); i++) {
        if (!times[i][2]) continue;
        CHECK(next < calls.count && calls.items[next].start == times[i][0], "%zu", i);
        CHECK(calls.items[next++].duration == times[i][1] - times[i][0]);
    }
    CHECK(calls.count == next, "%u", calls.count);
    fs_free(calls.items);
    choose(names, "add");
    CHECK_OK(fs_waiting_calls_find(&calls, store, names, &err));
    CHECK(calls.count == 0 && calls.items != NULL);
    fs_free(calls.items);
}

/* Limits ----------------------------------------------------------------------------------------------------------- */

TEST(an_empty_store_has_no_account)
{
    account of = take_account((fs_table_options){0});
    CHECK(of.found.steps.count == 0 && of.found.cell_count == 0 && of.found.gap_count == 0);
    fs_accounting found;
    fs_error err = {FS_OK, ""};
    CHECK(fs_accounting_of_window(&found, store, of.table, 0, 1, &err) == FS_VALUE_ERROR);
    CHECK(strstr(err.message, "no event has a time") != NULL, "%s", err.message);
    clear(&of);
    host(FS_EVENT_RANGE, "range", FS_NONE, 0, 100); /* no op, no device */
    of = take_account((fs_table_options){0});
    CHECK(of.found.steps.count == 1 && of.found.cell_count == 0 && isnan(of.found.launch_median));
    clear(&of);
}

TEST(times_at_the_limits_of_their_type)
{
    static const int64_t times[] = {FS_MISSING + 1, FS_MISSING + 5, -1, 0, 1, INT64_MAX - 3, INT64_MAX, FS_MISSING};
    static const int64_t durations[] = {0, 1, INT64_MAX, INT64_MAX - 2, -5, FS_MISSING + 1, FS_MISSING};
    fs_peaks cuda = peaks(1e-300, 1e-300, 1e300);
    uint32_t parent = FS_NONE, signature = signature_id(FS_CUDA, INT32_MAX, INT32_MAX);
    for (size_t i = 0; i < COUNT_OF(times); i++) {
        for (size_t k = 0; k < COUNT_OF(durations); k++) {
            fs_event event = fs_event_missing;
            event.start = times[i];
            event.duration = durations[k];
            if (i % 2 == 0) host(FS_EVENT_STEP, "ProfilerStep#1", FS_NONE, times[i], durations[k]);
            parent = op("flopscope::add", signature, k % 3 == 0 ? FS_NONE : parent, times[i], durations[k]);
            host(FS_EVENT_SYNC, "wait", parent, times[i], durations[k]);
            host(FS_EVENT_RUNTIME, "cudaLaunchKernel", parent, times[i], durations[k]);
            host(FS_EVENT_RANGE, "enumerate(DataLoader)#", parent, times[i], durations[k]);
            for (int kind = FS_EVENT_KERNEL; kind <= FS_EVENT_INTERVAL; kind++) {
                event.kind = (uint8_t)kind;
                event.device = (int8_t)(k % 2 == 0 ? -1 : 127);
                event.name = k % 2 == 0 ? FS_NONE : name_id("k");
                event.launcher = i % 3 == 0 ? FS_NONE : parent;
                event.correlation = (uint32_t)k;
                put(event);
            }
        }
    }
    account of = take_account((fs_table_options){.cuda_peaks[0] = &cuda});
    CHECK(of.found.cell_count > 0 && of.found.gap_count + of.found.pair_count > 0);
    for (uint32_t i = 0; i < of.found.cell_count; i++) {
        const fs_cell *cell = &of.found.cells[i];
        CHECK(cell->exclusive >= 0 && cell->busy >= 0 && cell->ideal >= -1 && cell->ideal <= cell->exclusive);
    }
    for (uint32_t i = 0; i < of.found.gap_count; i++) CHECK(of.found.gaps[i].time > 0);
    clear(&of);
}

/* Each takes half a minute if its time is the product of two of its numbers. */
TEST(the_time_is_linear_in_deeply_nested_waits)
{
    enum { COUNT = 50000 };
    uint32_t parent = FS_NONE;
    for (int i = 0; i < COUNT; i++) parent = host(FS_EVENT_RANGE, "range", parent, i, 10 * COUNT);
    for (int i = 0; i < COUNT; i++) {
        int64_t at = COUNT + 10 * i;
        call("cudaStreamSynchronize", (uint32_t)i, parent, at, at + 2);
        work(FS_EVENT_KERNEL, "k", 0, 7, (uint32_t)i, FS_NONE, at + 3, at + 5);
    }
    account of = take_account((fs_table_options){0});
    clear(&of);
}

TEST(the_time_is_linear_in_steps_visited_back_and_forth)
{
    enum { COUNT = 50000 };
    for (int i = 0; i < COUNT; i++) host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 10 * i, 10);
    for (int i = 0; i < COUNT; i++) op("op", FS_NONE, FS_NONE, 10 * (i % 2 == 0 ? i : COUNT - i), 1);
    kernel("k", FS_NONE, 0, 5);
    account of = take_account((fs_table_options){0});
    int64_t events = 0;
    for (uint32_t i = 0; i < of.found.steps.count; i++) events += of.found.hosts[i].events[FS_EVENT_OP];
    CHECK(events == COUNT && of.found.steps.count == COUNT);
    clear(&of);
}

TEST(every_device_is_accounted)
{
    for (int on = 0; on < 128; on++) {
        for (int i = 0; i < 50; i++) work(FS_EVENT_KERNEL, "k", on, 7, FS_NONE, FS_NONE, 10 * i + on, 10 * i + on + 5);
    }
    account of = take_account((fs_table_options){0});
    CHECK(of.found.cell_count == 128);
    for (uint32_t i = 0; i < of.found.cell_count; i++)
        CHECK(of.found.cells[i].device == i && of.found.cells[i].exclusive == 250);
    clear(&of);
}

/* Threads and failures --------------------------------------------------------------------------------------------- */

static void fill(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) { /* newest first, so that lists grow and are sorted */
        int64_t start = 1000 * (int64_t)(count - i);
        char name[32];
        snprintf(name, sizeof name, "k%u", i);
        uint32_t step = host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, start, 900);
        uint32_t around = op(name, FS_NONE, step, start, 500);
        host(FS_EVENT_RANGE, "enumerate(DataLoader)#", step, start, 5);
        call("cudaLaunchKernel", 1000000 * i, around, start + 10, start + 20); /* far apart: a hash table */
        call("cudaDeviceSynchronize", FS_NONE, around, start + 20, start + 30);
        work(FS_EVENT_KERNEL, name, 0, 7, 1000000 * i, around, start + 30, start + 400);
        work(FS_EVENT_KERNEL, "ncclDevKernel", 0, 8, FS_NONE, around, start + 200, start + 600);
        work(FS_EVENT_MEMSET, "Memset", (int)(i % 3), 9, FS_NONE, around, start + 300, start + 700);
    }
}

#define SAME(a, b, rows)                          \
    CHECK((a).rows##_count == (b).rows##_count && \
          memcmp((a).rows##s, (b).rows##s, (a).rows##_count * sizeof *(a).rows##s) == 0)

/* Works that last into later steps are of two shares of the steps, ops of two blocks of events. */
TEST(any_number_of_threads_accounts_alike)
{
    static const int threads[] = {1, 2, 3, 16};
    fill(300);
    for (int i = 0; i < 300; i += 7) /* over several steps, and waits that later idle times are due to */
        work(FS_EVENT_KERNEL, "long", i % 2, 7, FS_NONE, FS_NONE, 1000 * i + 650, 1000 * i + 2800);
    for (int i = 0; i < 300; i += 50) host(FS_EVENT_SYNC, "wait", FS_NONE, 1000 * i, 700);
    fs_table *table = build(&(fs_table_options){.works = true});
    fs_accounting first, found;
    fs_error err;
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        fs_accounting *of = i == 0 ? &first : &found;
        CHECK_OK(fs_parallel_set_threads(threads[i], &err));
        CHECK_OK(fs_accounting_list(of, store, table, &err));
        CHECK(of->span_count > 300 && of->span_count == first.span_count, "%u", of->span_count);
        for (uint32_t j = 0; j < of->span_count; j++)
            CHECK(of->spans[j].begin == first.spans[j].begin && of->spans[j].cause == first.spans[j].cause);
        SAME(*of, first, cell);
        SAME(*of, first, gap);
        SAME(*of, first, pair);
        CHECK(of->launching_count == 3 && memcmp(of->launching, first.launching, 3 * sizeof *first.launching) == 0);
        if (of == &found) fs_accounting_clear(&found);
    }
    check_parts(&first, table);
    fs_accounting_clear(&first);
    fs_table_destroy(table);
}

static fs_table *accounted;

static fs_status account_all(fs_error *err)
{
    fs_accounting found;
    fs_status status = fs_accounting_build(&found, store, accounted, err);
    if (status == FS_OK) fs_accounting_clear(&found);
    return status;
}

static fs_status account_window(fs_error *err)
{
    fs_accounting found;
    fs_status status = fs_accounting_of_window(&found, store, accounted, 1, 100, err);
    if (status == FS_OK) fs_accounting_clear(&found);
    return status;
}

TEST(every_failed_allocation_is_reported_and_leaks_nothing)
{
    CHECK_OK(fs_parallel_set_threads(1, NULL)); /* so that the n-th allocation is the same one each time */
    fs_table_options options = {.works = true};
    fill(20);
    accounted = build(&options);
    CHECK(fail_each_allocation(account_all) > 19);
    CHECK(fail_each_allocation(account_window) > 19);
    fs_table_destroy(accounted);
    build_with_failing_memory(&options);
    options.brief = true;
    build_with_failing_memory(&options);
}

TEST(every_failed_allocation_of_an_account_of_the_cpu)
{
    char name[32];
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "op%d", i);
        uint32_t outer = on_thread((uint64_t)(i % 5), name, FS_NONE, 1000 - 3 * i, 1100 - 3 * i);
        for (int depth = 0; depth < i; depth++)
            outer = on_thread((uint64_t)(i % 5), name, outer, 1000 - 3 * i, 1050 - 3 * i);
    }
    accounted = build(&(fs_table_options){.works = true});
    CHECK(fail_each_allocation(account_all) > 19);
    fs_table_destroy(accounted);
}

static fs_status look_at_late_times(fs_error *err)
{
    fs_late_sums within = {0}, spent = {0};
    fs_named_calls calls = {0}, waiting = {0};
    fs_late_request request = {.ops = ops, .other = other};
    fs_status status = fs_idle_calls_find(&calls, store, names, true, err);
    if (status == FS_OK) status = fs_late_within(&within, store, 0, names, err);
    if (status == FS_OK) status = fs_late_spent(&spent, store, &request, err);
    if (status == FS_OK) status = fs_waiting_calls_find(&waiting, store, waits, err);
    fs_free(calls.items);
    fs_free(within.items);
    fs_free(spent.items);
    fs_free(waiting.items);
    return status;
}

TEST(every_failed_allocation_of_what_the_host_did)
{
    uint32_t add = op("add", FS_NONE, FS_NONE, 0, 300);
    call("cudaLaunchKernel", 1, add, 10, 20);
    uint32_t load = host(FS_EVENT_RANGE, "load", add, 50, 120);
    host(FS_EVENT_OP, "mul", load, 80, 30);
    call("cudaLaunchKernel", 2, add, 200, 210);
    work(FS_EVENT_KERNEL, "k", 0, 7, 1, add, 20, 60);
    work(FS_EVENT_KERNEL, "k", 0, 7, 2, add, 215, 250);
    choose(names, "load");
    choose(ops, "add");
    choose(other, "mul");
    choose(waits, "cudaLaunchKernel");
    CHECK(fail_each_allocation(look_at_late_times) > 12);
}

static bool ask_to_stop(void *unused)
{
    (void)unused;
    return true;
}

TEST(an_interrupt_stops_it_and_leaks_nothing)
{
    fs_interrupt section;
    fs_accounting found;
    fs_error err = {FS_OK, ""};
    fill(20);
    fs_table *table = build(&(fs_table_options){.works = true});
    int64_t live = fs_memory_live();
    fs_interrupt_open(&section, ask_to_stop, NULL);
    fs_interrupt_stop();
    CHECK(fs_accounting_build(&found, store, table, &err) == FS_INTERRUPTED);
    fs_interrupt_close(&section);
    CHECK(fs_memory_live() == live);
    fs_table_destroy(table);
}

TEST(a_brief_table_has_the_same_rows_and_works)
{
    fs_peaks cuda = peaks(1e9, 1e12, 1);
    uint32_t owner = op("flopscope::add", signature_id(FS_CUDA, 4, 1024), FS_NONE, 500, 100);
    kernel("add", owner, 2000, 12000);
    fs_table *whole = build(&(fs_table_options){.works = true, .cuda_peaks[0] = &cuda});
    fs_table *brief = build(&(fs_table_options){.works = true, .brief = true, .cuda_peaks[0] = &cuda});
    CHECK(whole->row_count == brief->row_count && whole->work_count == brief->work_count);
    for (uint32_t i = 0; i < whole->row_count; i++) {
        const fs_row *a = &whole->rows[i], *b = &brief->rows[i];
        CHECK(strcmp(a->key, b->key) == 0 && a->count == b->count && a->bound == b->bound);
        CHECK(a->device_busy_time == b->device_busy_time && a->cpu_time_total == b->cpu_time_total);
        CHECK(a->time_median > 0 && isnan(b->time_median) &&
              !(a->pct_roofline != b->pct_roofline && a->pct_roofline > 0));
    }
    CHECK(memcmp(whole->works, brief->works, sizeof *whole->works) == 0);
    CHECK(whole->modelled_base_ns > 0 && brief->modelled_base_ns == 0 && brief->unmodelled_count == 0);
    fs_table_destroy(whole);
    fs_table_destroy(brief);
}
