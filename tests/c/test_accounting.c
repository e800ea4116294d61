/* Accounting of stores built by hand. Expected numbers are derived here from the events, or counted ns by ns. */
#include <limits.h>

#include "base/interrupt.h"
#include "base/parallel.h"
#include "tests/c/accounts.h"

/* Work ------------------------------------------------------------------------------------------------------------ */

static void test_computation_precedes_communication_and_copies(void)
{
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 1000);
    work(FS_EVENT_MEMCPY, "Memcpy HtoD (Pinned -> Device)", 0, 8, FS_NONE, FS_NONE, 100, 500);
    work(FS_EVENT_KERNEL, "ncclDevKernel_AllReduce", 0, 9, FS_NONE, FS_NONE, 150, 300);
    kernel("a", 200, 250);
    work(FS_EVENT_KERNEL, "b", 0, 10, FS_NONE, FS_NONE, 220, 260); /* began after a */
    work(FS_EVENT_MEMCPY, "Memcpy DtoD (Device -> Device)", 0, 8, FS_NONE, FS_NONE, 600, 650);
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    CHECK(SUM_CELLS(of, exclusive, "a", 0) == 50 && SUM_CELLS(of, exclusive, "b", 0) == 10);
    CHECK(SUM_CELLS(of, busy, "b", 0) == 40);
    CHECK(SUM_CELLS(of, exclusive, "ncclDevKernel_AllReduce", 0) == 50 + 40);
    CHECK(SUM_CELLS(of, exclusive, "Memcpy HtoD (Pinned -> Device)", 0) == 50 + 200);
    for (uint32_t i = 0; i < of.found.cell_count; i++) {
        const fs_cell *cell = &of.found.cells[i];
        const char *key = of.table->rows[cell->kernel].key;
        fs_work_class expected = strstr(key, "nccl")   ? FS_WORK_COMMUNICATION
                                 : strstr(key, "HtoD") ? FS_WORK_COPY
                                                       : FS_WORK_COMPUTATION;
        CHECK(cell->class == (int64_t)expected && cell->row == -1 && cell->count == 1, "%s", key);
    }
    CHECK(idle(&of, FS_IDLE_OTHER, 0) == 200); /* no launch was recorded */
    CHECK(idle(&of, FS_IDLE_HOST, 0) == 350);  /* after the last work */
    clear(&of);
}

static void test_work_is_cut_at_the_steps(void)
{
    uint32_t first = host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 100);
    host(FS_EVENT_STEP, "ProfilerStep#1", FS_NONE, 100, 100);
    host(FS_EVENT_STEP, "ProfilerStep#2", FS_NONE, 200, 100);
    kernel("across", 50, 260);
    kernel("before", -70, 20);
    kernel("after", 280, 900);
    (void)first;
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    CHECK(of.found.steps.count == 3);
    CHECK(SUM_CELLS(of, exclusive, "across", 0) == 50 && SUM_CELLS(of, exclusive, "across", 1) == 100);
    CHECK(SUM_CELLS(of, exclusive, "across", 2) == 60 && SUM_CELLS(of, count, "across", 0) == 1);
    CHECK(SUM_CELLS(of, count, "across", 1) == 0 && SUM_CELLS(of, busy, "across", -1) == 210);
    CHECK(SUM_CELLS(of, exclusive, "before", -1) == 20 && SUM_CELLS(of, count, "before", -1) == 0);
    CHECK(SUM_CELLS(of, exclusive, "after", -1) == 20);
    clear(&of);
}

/* The work of an op of 4 x 1024 float32 sums is 4096 FLOPs and 49152 bytes: 4096 ns at 1e9 FLOP/s. Kernels without an
 * owner have the same share of ideal time. */
/* Cells are of one op if device, row or kernel, and part are the same; parts follow from classes, bounds and causes. */
static void check_parts(const account *of)
{
    static const char *const by_class[] = {"", "communication", "copy"};
    for (uint32_t i = 0; i < of->found.gap_count; i++) {
        const fs_gap *gap = &of->found.gaps[i];
        CHECK(strcmp(fs_parts[gap->part].name, fs_idle_cause_parts[gap->cause]) == 0);
    }
    for (uint32_t i = 0; i < of->found.cell_count; i++) {
        const fs_cell *cell = &of->found.cells[i];
        const char *part = fs_parts[cell->part].name;
        const char *bound = cell->row >= 0 ? fs_bounds[of->table->rows[cell->row].bound].name : "unknown";
        if (cell->class > 0) CHECK(strcmp(part, by_class[cell->class]) == 0);
        else if (cell->ideal < 0 || strcmp(bound, "unknown") == 0) CHECK(strcmp(part, "unmodelled") == 0);
        else if (strcmp(bound, "inefficient") != 0) CHECK(strcmp(part, strcmp(bound, "cache") ? bound : "memory") == 0);
        for (uint32_t j = 0; j < of->found.cell_count; j++) {
            const fs_cell *other = &of->found.cells[j];
            bool same = cell->device == other->device && cell->row == other->row && cell->part == other->part &&
                        (cell->row >= 0 || cell->kernel == other->kernel);
            CHECK((cell->op == other->op) == same && cell->op <= i);
        }
    }
}

static void test_ideal_time_is_spent_once_and_within_the_exclusive_time(void)
{
    fs_peaks cuda = peaks(1e9, 1e15, 1);
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 40000);
    kernel("add", 0, 1000);
    uint32_t owner = op("flopscope::add", signature_id(FS_CUDA, 4, 1024), FS_NONE, 500, 100);
    work(FS_EVENT_KERNEL, "add", 0, 7, FS_NONE, owner, 2000, 12000);
    work(FS_EVENT_KERNEL, "unknown", 0, 8, FS_NONE, FS_NONE, 5000, 20000);
    account of = take_account((fs_table_options){.cuda_peaks[0] = &cuda});
    check_sums(&of);
    check_parts(&of);
    CHECK(SUM_CELLS(of, ideal, "add", 0) == 4096 + 409, "%lld", (long long)SUM_CELLS(of, ideal, "add", 0));
    CHECK(SUM_CELLS(of, exclusive, "add", 0) == 11000 && SUM_CELLS(of, count, "add", 0) == 2);
    CHECK(SUM_CELLS(of, ideal, "unknown", 0) == -1 && SUM_CELLS(of, exclusive, "unknown", 0) == 8000);
    for (uint32_t i = 0; i < of.found.cell_count; i++) {
        const fs_cell *cell = &of.found.cells[i];
        if (cell->ideal < 0) continue;
        CHECK(near(cell->compute, 4096), "%g", cell->compute); /* of the call; nothing is added for the other kernel */
        CHECK(strcmp(of.table->rows[cell->row].key, "flopscope::add") == 0);
    }
    clear(&of);

    cuda = peaks(1e3, 1e15, 1); /* a rule that counts too much, or wrong peaks */
    of = take_account((fs_table_options){.cuda_peaks[0] = &cuda});
    check_sums(&of);
    CHECK(SUM_CELLS(of, ideal, "add", 0) == 11000);
    clear(&of);
}

/* Works of three classes on three streams and two devices; each ns belongs to one of them or to none. */
static void test_random_works_against_moments(void)
{
    enum { SPAN = 400, WORKS = 40 };
    static const char *const names[] = {"k%d", "ncclDevKernel%d", "Memcpy HtoD%d"};
    srand(11);
    for (int round = 0; round < 60; round++) {
        struct {
            int class, device;
            int64_t begin, end;
            char name[40];
        } works[WORKS];
        fs_store_destroy(store);
        CHECK_OK(fs_store_create(&store, NULL));
        for (int step = 0; step < 3; step++) host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 100 * step + 20, 100);
        for (int i = 0; i < WORKS; i++) {
            works[i].class = rand() % 3;
            works[i].device = rand() % 2;
            works[i].begin = rand() % SPAN;
            works[i].end = works[i].begin + rand() % 30;
            snprintf(works[i].name, sizeof works[i].name, names[works[i].class], i);
            fs_event_kind kind = works[i].class == FS_WORK_COPY ? FS_EVENT_MEMCPY : FS_EVENT_KERNEL;
            work(kind, works[i].name, works[i].device, (uint64_t)(rand() % 3), FS_NONE, FS_NONE, works[i].begin,
                 works[i].end);
        }
        int64_t owned[WORKS] = {0}, idle_time = 0;
        for (int64_t t = 20; t < 320; t++) {
            for (int on = 0; on < 2; on++) {
                int first = -1;
                for (int i = 0; i < WORKS; i++) {
                    if (works[i].device != on || works[i].begin > t || works[i].end <= t) continue;
                    if (first < 0 || works[i].class < works[first].class ||
                        (works[i].class == works[first].class && works[i].begin < works[first].begin))
                        first = i;
                }
                if (first >= 0) owned[first]++;
                else idle_time++;
            }
        }
        account of = take_account((fs_table_options){0});
        check_sums(&of);
        check_parts(&of);
        for (int i = 0; i < WORKS; i++) {
            CHECK(SUM_CELLS(of, exclusive, works[i].name, -1) == owned[i], "round %d: %s has %lld, not %lld ns", round,
                  works[i].name, (long long)SUM_CELLS(of, exclusive, works[i].name, -1), (long long)owned[i]);
        }
        int64_t found = 0;
        for (int cause = 0; cause < FS_IDLE_CAUSE_COUNT; cause++) found += idle(&of, (fs_idle_cause)cause, -1);
        CHECK(found == idle_time);
        clear(&of);
    }
}

static uint32_t on_thread(uint64_t thread, const char *name, uint32_t parent, int64_t start, int64_t end)
{
    fs_event event = fs_event_missing;
    event.name = name_id(name);
    event.parent = parent;
    event.start = start;
    event.duration = end - start;
    CHECK_OK(fs_store_thread_lane_of(store, thread, &event.lane, NULL));
    return put(event);
}

static void test_time_on_the_cpu_belongs_to_the_innermost_op_of_the_first_thread(void)
{
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 1000);
    uint32_t outer = on_thread(1, "outer", FS_NONE, 100, 500);
    uint32_t inner = on_thread(1, "inner", outer, 200, 300);
    on_thread(1, "innermost", inner, 220, 230);
    on_thread(2, "other", FS_NONE, 450, 600);
    on_thread(1, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", FS_NONE, 700, 750);
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    CHECK(SUM_CELLS(of, exclusive, "outer", 0) == 300 && SUM_CELLS(of, exclusive, "inner", 0) == 90);
    CHECK(SUM_CELLS(of, exclusive, "innermost", 0) == 10 && SUM_CELLS(of, exclusive, "other", 0) == 100);
    CHECK(idle(&of, FS_IDLE_HOST, 0) == 1000 - 550 && of.found.pair_count == 0);
    CHECK(of.found.cells[0].device == -1);
    clear(&of);
}

static void test_pairs_are_neighbours_on_a_stream(void)
{
    uint32_t a = op("a", FS_NONE, FS_NONE, 0, 10), b = op("b", FS_NONE, FS_NONE, 10, 10);
    for (int i = 0; i < 3; i++) {
        work(FS_EVENT_KERNEL, "ka", 0, 7, FS_NONE, a, 100 * i + 20, 100 * i + 30);
        work(FS_EVENT_KERNEL, "kb", 0, 7, FS_NONE, b, 100 * i + 40, 100 * i + 50);
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

/* Hostile stores -------------------------------------------------------------------------------------------------- */

static void test_an_empty_store_has_no_account(void)
{
    account of = take_account((fs_table_options){0});
    CHECK(of.found.steps.count == 0 && of.found.cell_count == 0 && of.found.gap_count == 0);
    clear(&of);
    host(FS_EVENT_RANGE, "range", FS_NONE, 0, 100); /* no op, no device */
    of = take_account((fs_table_options){0});
    CHECK(of.found.steps.count == 1 && of.found.cell_count == 0 && isnan(of.found.launch_median));
    clear(&of);
}

static void test_times_at_the_limits_of_their_type(void)
{
    static const int64_t times[] = {FS_MISSING + 1, FS_MISSING + 5, -1, 0, 1, INT64_MAX - 3, INT64_MAX, FS_MISSING};
    static const int64_t durations[] = {0, 1, INT64_MAX, INT64_MAX - 2, -5, FS_MISSING + 1, FS_MISSING};
    fs_peaks cuda = peaks(1e-300, 1e-300, 1e300);
    uint32_t parent = FS_NONE, signature = signature_id(FS_CUDA, INT32_MAX, INT32_MAX);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        for (size_t k = 0; k < sizeof durations / sizeof *durations; k++) {
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

/* Each takes far beyond a minute if its time is the product of two of its numbers. */
static void test_the_time_is_linear_in_deeply_nested_waits(void)
{
    enum { COUNT = 150000 };
    uint32_t parent = FS_NONE;
    for (int i = 0; i < COUNT; i++) parent = host(FS_EVENT_RANGE, "range", parent, i, 10 * COUNT);
    for (int i = 0; i < COUNT; i++) {
        int64_t at = COUNT + 10 * i;
        call("cudaStreamSynchronize", (uint32_t)i, parent, at, at + 2);
        work(FS_EVENT_KERNEL, "k", 0, 7, (uint32_t)i, FS_NONE, at + 3, at + 5);
    }
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    clear(&of);
}

static void test_the_time_is_linear_in_steps_visited_back_and_forth(void)
{
    enum { COUNT = 100000 };
    for (int i = 0; i < COUNT; i++) host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 10 * i, 10);
    for (int i = 0; i < COUNT; i++) {
        op("op", FS_NONE, FS_NONE, 10 * (i % 2 == 0 ? i : COUNT - i), 1);
    }
    kernel("k", 0, 5);
    account of = take_account((fs_table_options){0});
    int64_t events = 0;
    for (uint32_t i = 0; i < of.found.steps.count; i++) events += of.found.hosts[i].events[FS_EVENT_OP];
    CHECK(events == COUNT && of.found.steps.count == COUNT);
    clear(&of);
}

static void test_every_device_is_accounted(void)
{
    for (int on = 0; on < 128; on++) {
        for (int i = 0; i < 50; i++) work(FS_EVENT_KERNEL, "k", on, 7, FS_NONE, FS_NONE, 10 * i + on, 10 * i + on + 5);
    }
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    CHECK(of.found.cell_count == 128);
    for (uint32_t i = 0; i < of.found.cell_count; i++)
        CHECK(of.found.cells[i].device == i && of.found.cells[i].exclusive == 250);
    clear(&of);
}

/* Failures -------------------------------------------------------------------------------------------------------- */

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

/* However they cut the works, windows of any length have the time, and count each work once. */
static void test_windows_that_tile_a_profile_have_all_of_its_time(void)
{
    fill(24);
    fs_table *table = build(&(fs_table_options){.works = true});
    fs_accounting whole, found;
    fs_error err = {FS_OK, ""};
    int64_t times[2] = {0, 0}, counts[2] = {0, 0}, idle_times[2] = {0, 0};
    CHECK_OK(fs_accounting_build(&whole, store, table, &err));
    const fs_step *steps = whole.steps.steps;
    int64_t zero = steps[0].begin, length = steps[whole.steps.count - 1].end - zero;
    CHECK(fs_accounting_of_window(&found, store, table, 0, 5, &err) == FS_OK, "%s", err.message);
    int64_t before = zero - found.steps.steps[0].begin; /* the recording begins before its first step */
    fs_accounting_clear(&found);
    for (int i = -1; i < 24; i++) {
        int64_t begin = before + length * i / 24, end = before + length * (i + 1) / 24;
        bool is_whole = i < 0;
        fs_status status = is_whole ? fs_accounting_of_window(&found, store, table, before, before + length, &err)
                                    : fs_accounting_of_window(&found, store, table, begin, end, &err);
        CHECK(status == FS_OK, "%s", err.message);
        CHECK(found.steps.count == 1 && found.steps.steps[0].name == FS_NONE);
        for (uint32_t j = 0; j < found.cell_count; j++) {
            CHECK(found.cells[j].step == 0 && found.cells[j].ideal <= found.cells[j].exclusive);
            times[is_whole] += found.cells[j].exclusive;
            counts[is_whole] += found.cells[j].count;
        }
        for (uint32_t j = 0; j < found.gap_count; j++) idle_times[is_whole] += found.gaps[j].time;
        fs_accounting_clear(&found);
    }
    CHECK(times[0] == times[1] && counts[0] == counts[1] && idle_times[0] == idle_times[1]);
    CHECK(times[0] > 0 && counts[0] > 24 && times[0] + idle_times[0] == 3 * length); /* of three devices */
    fs_accounting_clear(&whole);
    fs_table_destroy(table);
}

static void test_a_window_without_time_or_outside_is_refused(void)
{
    fs_accounting found;
    fs_error err = {FS_OK, ""};
    fs_table *table = build(&(fs_table_options){.works = true});
    CHECK(fs_accounting_of_window(&found, store, table, 0, 1, &err) == FS_VALUE_ERROR);
    CHECK(strstr(err.message, "no event has a time") != NULL, "%s", err.message);
    fs_table_destroy(table);
    kernel("a", 200, 250);
    table = build(&(fs_table_options){.works = true});
    int64_t live = fs_memory_live(), wrong[][2] = {{5, 5}, {7, 2}, {-1, 5}, {0, INT64_MAX}, {-INT64_MAX, INT64_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(fs_accounting_of_window(&found, store, table, wrong[i][0], wrong[i][1], &err) == FS_VALUE_ERROR);
    CHECK(fs_memory_live() == live);
    fs_table_destroy(table);
}

/* Works that last into later steps are of two shares of the steps, ops of two blocks of events. */
static void test_any_number_of_threads_accounts_alike(void)
{
    static const int threads[] = {1, 2, 3, 16};
    fill(300);
    for (int i = 0; i < 300; i += 7) /* over several steps, and waits that later idle times are due to */
        work(FS_EVENT_KERNEL, "long", i % 2, 7, FS_NONE, FS_NONE, 1000 * i + 650, 1000 * i + 2800);
    for (int i = 0; i < 300; i += 50) host(FS_EVENT_SYNC, "wait", FS_NONE, 1000 * i, 700);
    fs_table *table = build(&(fs_table_options){.works = true});
    fs_accounting first, found;
    fs_error err;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
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
    fs_accounting_clear(&first);
    fs_table_destroy(table);
    CHECK_OK(fs_parallel_set_threads(3, &err));
}

static fs_status account_window(fs_accounting *found, const fs_store *of, const fs_table *table, fs_error *err)
{
    return fs_accounting_of_window(found, of, table, 1, 100, err);
}

static void check_failing_memory(fs_status (*account_for)(fs_accounting *, const fs_store *, const fs_table *,
                                                          fs_error *))
{
    fs_table_options options = {.works = true};
    fs_table *table = build(&options);
    int64_t live = fs_memory_live(), n = 0;
    fs_status status = FS_OUT_OF_MEMORY;
    CHECK_OK(fs_parallel_set_threads(1, NULL)); /* so that the n-th allocation is the same one each time */
    while (status != FS_OK && n < 10000) {
        fs_accounting found;
        fs_error err = {FS_OK, ""};
        fs_memory_fail_at(++n);
        status = account_for(&found, store, table, &err);
        fs_memory_fail_at(0);
        CHECK(status == FS_OK || (status == FS_OUT_OF_MEMORY && err.status == status && err.message[0] != 0));
        if (status == FS_OK) fs_accounting_clear(&found);
        CHECK(fs_memory_live() == live);
    }
    CHECK(status == FS_OK && n > 20, "%lld", (long long)n);
    CHECK_OK(fs_parallel_set_threads(3, NULL));
    fs_table_destroy(table);
}

static void test_every_failed_allocation_is_reported_and_leaks_nothing(void)
{
    fs_table_options options = {.works = true};
    fill(200);
    check_failing_memory(fs_accounting_build);
    check_failing_memory(account_window);
    account of = take_account(options);
    uint32_t rows = of.table->row_count;
    clear(&of);
    build_with_failing_memory(&options, rows);
    options.brief = true;
    build_with_failing_memory(&options, rows);
}

static void test_every_failed_allocation_of_an_account_of_the_cpu(void)
{
    char name[32];
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "op%d", i);
        uint32_t outer = on_thread((uint64_t)(i % 5), name, FS_NONE, 1000 - 3 * i, 1100 - 3 * i);
        for (int depth = 0; depth < i; depth++)
            outer = on_thread((uint64_t)(i % 5), name, outer, 1000 - 3 * i, 1050 - 3 * i);
    }
    check_failing_memory(fs_accounting_build);
}

static bool ask_to_stop(void *unused)
{
    (void)unused;
    return true;
}

static void test_an_interrupt_stops_it_and_leaks_nothing(void)
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

static void test_a_brief_table_has_the_same_rows_and_works(void)
{
    fs_peaks cuda = peaks(1e9, 1e12, 1);
    uint32_t owner = op("flopscope::add", signature_id(FS_CUDA, 4, 1024), FS_NONE, 500, 100);
    work(FS_EVENT_KERNEL, "add", 0, 7, FS_NONE, owner, 2000, 12000);
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

int main(void)
{
    static void (*const tests[])(void) = {
        test_computation_precedes_communication_and_copies,
        test_work_is_cut_at_the_steps,
        test_ideal_time_is_spent_once_and_within_the_exclusive_time,
        test_random_works_against_moments,
        test_time_on_the_cpu_belongs_to_the_innermost_op_of_the_first_thread,
        test_pairs_are_neighbours_on_a_stream,
        test_an_empty_store_has_no_account,
        test_times_at_the_limits_of_their_type,
        test_the_time_is_linear_in_deeply_nested_waits,
        test_the_time_is_linear_in_steps_visited_back_and_forth,
        test_every_device_is_accounted,
        test_windows_that_tile_a_profile_have_all_of_its_time,
        test_a_window_without_time_or_outside_is_refused,
        test_any_number_of_threads_accounts_alike,
        test_every_failed_allocation_is_reported_and_leaks_nothing,
        test_every_failed_allocation_of_an_account_of_the_cpu,
        test_an_interrupt_stops_it_and_leaks_nothing,
        test_a_brief_table_has_the_same_rows_and_works,
    };
    return run_tests(tests, sizeof tests / sizeof *tests);
}
