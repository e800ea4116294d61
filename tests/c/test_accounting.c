/* Accounting of stores built by hand. Expected numbers are derived here from the events, or counted ns by ns. */
#include <limits.h>

#include "accounting/accounting.h"
#include "base/interrupt.h"
#include "base/saturate.h"
#include "tests/c/events.h"

/* Building -------------------------------------------------------------------------------------------------------- */

static uint32_t call(const char *name, uint32_t correlation, uint32_t parent, int64_t start, int64_t end)
{
    fs_event event = fs_event_missing;
    event.kind = FS_EVENT_RUNTIME;
    event.name = name_id(name);
    event.parent = parent;
    event.correlation = correlation;
    event.start = start;
    event.duration = end - start;
    return put(event);
}

static void work(fs_event_kind kind, const char *name, int on, uint64_t stream, uint32_t correlation, uint32_t launcher,
                 int64_t start, int64_t end)
{
    fs_event event = fs_event_missing;
    event.kind = (uint8_t)kind;
    event.name = name_id(name);
    event.device = (int8_t)on;
    event.correlation = correlation;
    event.launcher = launcher;
    event.start = start;
    event.duration = end - start;
    event.timing = FS_TIMING_CUPTI;
    CHECK_OK(fs_store_device_lane(store, on, stream, &event.lane, NULL));
    put(event);
}

static void kernel(const char *name, int64_t start, int64_t end)
{
    work(FS_EVENT_KERNEL, name, 0, 7, FS_NONE, FS_NONE, start, end);
}

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

/* Sum of a field of the cells of a kernel or op (NULL: any) in a step (-1: any). */
#define SUM_CELLS(of, field, name, in) sum_cells(&(of), offsetof(fs_cell, field), name, in)

static int64_t sum_cells(const account *of, size_t field, const char *name, int64_t step)
{
    int64_t sum = 0, value;
    for (uint32_t i = 0; i < of->found.cell_count; i++) {
        const fs_cell *cell = &of->found.cells[i];
        int64_t row = cell->kernel >= 0 ? cell->kernel : cell->row;
        const char *key = row >= 0 ? of->table->rows[row].key : "";
        if ((name != NULL && strcmp(key, name) != 0) || (step >= 0 && cell->step != step)) continue;
        memcpy(&value, (const char *)cell + field, sizeof value);
        fs_add_to(&sum, value);
    }
    return sum;
}

static int64_t idle(const account *of, fs_idle_cause cause, int64_t step)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < of->found.gap_count; i++) {
        const fs_gap *gap = &of->found.gaps[i];
        if (gap->cause == (int64_t)cause && (step < 0 || gap->step == step)) fs_add_to(&sum, gap->time);
    }
    return sum;
}

/* Check that the parts of each device and step are not negative, and that they add up to the step. */
static void check_sums(const account *of)
{
    for (uint32_t step = 0; step < of->found.steps.count; step++) {
        const fs_step *in = &of->found.steps.steps[step];
        for (int on = -1; on < 128; on++) {
            int64_t sum = 0;
            bool worked = false;
            for (uint32_t i = 0; i < of->found.cell_count; i++) {
                const fs_cell *cell = &of->found.cells[i];
                if (cell->device != on) continue;
                worked = true;
                if (cell->step != step) continue;
                CHECK(cell->exclusive >= 0 && cell->busy >= 0 && cell->count >= 0);
                CHECK(cell->ideal >= -1 && cell->ideal <= cell->exclusive);
                fs_add_to(&sum, cell->exclusive);
            }
            for (uint32_t i = 0; i < of->found.gap_count; i++) {
                const fs_gap *gap = &of->found.gaps[i];
                if (gap->device != on) continue;
                worked = true;
                if (gap->step != step) continue;
                CHECK(gap->time > 0 && gap->count > 0);
                fs_add_to(&sum, gap->time);
            }
            if (worked)
                CHECK(sum == fs_sub_saturated(in->end, in->begin), "device %d, step %u: %lld", on, step,
                      (long long)sum);
        }
    }
}

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

/* Idle time ------------------------------------------------------------------------------------------------------- */

static void test_causes_of_idleness(void)
{
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 1000);
    uint32_t first = op("first", FS_NONE, FS_NONE, 10, 30);
    call("cudaLaunchKernel", 1, first, 20, 30);
    work(FS_EVENT_KERNEL, "k", 0, 7, 1, first, 50, 100); /* the device was idle when its launch began */
    uint32_t second = op("second", FS_NONE, FS_NONE, 60, 20);
    call("cudaLaunchKernel", 2, second, 65, 75);
    work(FS_EVENT_KERNEL, "k", 0, 7, 2, second, 120, 200); /* launched in time */
    uint32_t item = op("aten::item", FS_NONE, FS_NONE, 150, 100);
    uint32_t wait = call("cudaStreamSynchronize", 3, item, 160, 240);
    uint32_t third = op("third", FS_NONE, FS_NONE, 260, 50);
    call("cudaLaunchKernel", 4, third, 270, 290);
    work(FS_EVENT_KERNEL, "k", 0, 7, 4, third, 300, 400); /* the host had waited */
    host(FS_EVENT_RANGE, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", FS_NONE, 420, 100);
    uint32_t fourth = op("fourth", FS_NONE, FS_NONE, 530, 30);
    call("cudaLaunchKernel", 5, fourth, 540, 560);
    work(FS_EVENT_KERNEL, "k", 0, 7, 5, fourth, 570, 600);
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    /* Launches onto the idle device take 10 to arrive, by the later two; at the end the host works on without one. */
    CHECK(idle(&of, FS_IDLE_HOST, 0) == 40 + 400);
    CHECK(idle(&of, FS_IDLE_OTHER, 0) == 10 + 20);
    CHECK(idle(&of, FS_IDLE_SYNC, 0) == 100 + 70); /* the next launches are late because of the wait too */
    CHECK(idle(&of, FS_IDLE_DATA, 0) == 100);
    for (uint32_t i = 0; i < of.found.gap_count; i++) {
        const fs_gap *gap = &of.found.gaps[i];
        if (gap->cause == FS_IDLE_SYNC) CHECK(gap->wait == wait && gap->count == 2);
        else CHECK(gap->wait == -1);
    }
    CHECK(of.found.hosts[0].waits == 80 && of.found.hosts[0].events[FS_EVENT_RUNTIME] == 5);
    CHECK(of.found.hosts[0].events[FS_EVENT_OP] == 5 && of.found.hosts[0].events[FS_EVENT_KERNEL] == 0);
    CHECK(of.found.launch_median == 15); /* 10, 10, 20, 20 */
    clear(&of);
}

/* A kernel of 100 whose call lasts from `launched` to `returned`. */
static uint32_t launch(uint32_t correlation, int64_t launched, int64_t returned, int64_t begin)
{
    uint32_t from = call("cudaLaunchKernel", correlation, FS_NONE, launched, returned);
    work(FS_EVENT_KERNEL, "k", 0, 7, correlation, FS_NONE, begin, begin + 100);
    return from;
}

static void overhead(const char *name, int64_t start, int64_t end)
{
    host(FS_EVENT_OVERHEAD, name, FS_NONE, start, end - start);
}

static void test_the_host_is_the_cause_until_the_launch_has_arrived(void)
{
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 100000);
    launch(1, 100, 110, 112);
    launch(2, 1000, 1010, 1012); /* three arrive after 2 */
    launch(3, 2000, 2010, 2012);
    launch(4, 3000, 3010, 3012);
    launch(5, 4000, 4010, 94010); /* for another reason than the host */
    launch(6, 4100, 4110, 99000);
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    int64_t late = 112 + (1012 - 212) + (2012 - 1112) + (3012 - 2112) + (4012 - 3112);
    CHECK(idle(&of, FS_IDLE_OTHER, 0) == (94010 - 4012) + (99000 - 94110));
    CHECK(idle(&of, FS_IDLE_HOST, 0) == late + (100000 - 99100)); /* and after the last work */
    clear(&of);
}

static void test_time_around_the_work_of_a_profile_without_steps_is_its_edges(void)
{
    host(FS_EVENT_RANGE, "program", FS_NONE, 0, 10000);
    launch(1, 1000, 1010, 1020);
    launch(2, 2000, 2010, 2020);
    overhead("Buffer Flush", 5000, 6000);
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    CHECK(idle(&of, FS_IDLE_EDGES, 0) == 1020 + (10000 - 2120) - 1000);
    CHECK(idle(&of, FS_IDLE_RECORDING, 0) == 1000 && idle(&of, FS_IDLE_HOST, 0) == 2020 - 1120);
    clear(&of);
}

static void test_edges_of_the_cpu(void)
{
    host(FS_EVENT_RANGE, "program", FS_NONE, 0, 1000);
    op("a", FS_NONE, FS_NONE, 100, 100);
    op("b", FS_NONE, FS_NONE, 300, 100);
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    CHECK(idle(&of, FS_IDLE_EDGES, 0) == 100 + 600 && idle(&of, FS_IDLE_HOST, 0) == 100);
    clear(&of);
}

static void test_causes_while_the_host_is_late(void)
{
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 10000);
    launch(1, 0, 0, 0);
    host(FS_EVENT_RANGE, "_compile.compile_inner (dynamo_timed)", FS_NONE, 200, 800);
    overhead("Activity Buffer Request", 300, 400);
    overhead("Runtime Triggered Module Loading", 500, 600);
    host(FS_EVENT_RANGE, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", FS_NONE, 900, 300);
    launch(2, 2000, 2000, 2000);
    overhead("Activity Buffer Request", 2500, 2600);
    launch(3, 1900, 1950, 2700); /* in time: what the profiler did delayed nothing */
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    CHECK(idle(&of, FS_IDLE_RECORDING, 0) == 100 && idle(&of, FS_IDLE_LOADING, 0) == 100);
    CHECK(idle(&of, FS_IDLE_COMPILE, 0) == 800 - 200 && idle(&of, FS_IDLE_DATA, 0) == 200);
    CHECK(idle(&of, FS_IDLE_HOST, 0) == 100 + 800 + (10000 - 2800) && idle(&of, FS_IDLE_OTHER, 0) == 600);
    clear(&of);
}

/* Between the last call of the thread and the load, a compiler makes the code. */
static void test_code_that_the_driver_loads_was_made_since_the_last_call(void)
{
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 5000);
    launch(1, 0, 100, 100);
    uint32_t outer = op("outer", FS_NONE, FS_NONE, 300, 2000);
    op("inner", FS_NONE, outer, 320, 30);
    call("cuModuleLoadData", 2, outer, 1000, 1100);
    call("cudaModuleLoad", 3, outer, 1500, 1600); /* of the runtime: nothing is made for it */
    launch(4, 2000, 2010, 2010);
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    CHECK(idle(&of, FS_IDLE_LOADING, 0) == (1100 - 350) + 100, "%lld", (long long)idle(&of, FS_IDLE_LOADING, 0));
    clear(&of);
}

static void test_a_call_that_blocked_and_a_stream_that_waited(void)
{
    enum { MS = 1000000 };
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 20 * MS);
    for (int i = 0; i < 4; i++) launch((uint32_t)i, 1000 * i, 1000 * i + 100, 1000 * i + 100);
    launch(10, 5000, 5000 + 5 * MS, 5000 + 5 * MS);
    call("cudaStreamWaitEvent", 11, FS_NONE, 5 * MS + 5000, 5 * MS + 5050);
    launch(12, 5 * MS + 5050, 5 * MS + 5080, 7 * MS);
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    CHECK(idle(&of, FS_IDLE_BLOCKED, 0) == 5 * MS, "%lld", (long long)idle(&of, FS_IDLE_BLOCKED, 0));
    CHECK(idle(&of, FS_IDLE_STREAM_WAIT, 0) == 7 * MS - (5 * MS + 5100));
    CHECK(idle(&of, FS_IDLE_OTHER, 0) == 0);
    clear(&of);
}

static void test_waits_are_cut_at_the_steps_of_the_host(void)
{
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 100);
    host(FS_EVENT_STEP, "ProfilerStep#1", FS_NONE, 50, 150); /* overlaps: it begins at 100 */
    host(FS_EVENT_STEP, "ProfilerStep#2", FS_NONE, 250, 50);
    kernel("k", 0, 10);
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

static void check_failing_memory(void)
{
    fs_table_options options = {.works = true};
    fs_table *table = build(&options);
    int64_t live = fs_memory_live(), n = 0;
    fs_status status = FS_OUT_OF_MEMORY;
    while (status != FS_OK && n < 1000) {
        fs_accounting found;
        fs_error err = {FS_OK, ""};
        fs_memory_fail_at(++n);
        status = fs_accounting_build(&found, store, table, &err);
        fs_memory_fail_at(0);
        CHECK(status == FS_OK || (status == FS_OUT_OF_MEMORY && err.status == status && err.message[0] != 0));
        if (status == FS_OK) fs_accounting_clear(&found);
        CHECK(fs_memory_live() == live);
    }
    CHECK(status == FS_OK && n > 20, "%lld", (long long)n);
    fs_table_destroy(table);
}

static void test_every_failed_allocation_is_reported_and_leaks_nothing(void)
{
    fs_table_options options = {.works = true};
    fill(200);
    check_failing_memory();
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
    check_failing_memory();
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
        test_causes_of_idleness,
        test_the_host_is_the_cause_until_the_launch_has_arrived,
        test_time_around_the_work_of_a_profile_without_steps_is_its_edges,
        test_edges_of_the_cpu,
        test_causes_while_the_host_is_late,
        test_code_that_the_driver_loads_was_made_since_the_last_call,
        test_a_call_that_blocked_and_a_stream_that_waited,
        test_waits_are_cut_at_the_steps_of_the_host,
        test_an_empty_store_has_no_account,
        test_times_at_the_limits_of_their_type,
        test_the_time_is_linear_in_deeply_nested_waits,
        test_the_time_is_linear_in_steps_visited_back_and_forth,
        test_every_device_is_accounted,
        test_every_failed_allocation_is_reported_and_leaks_nothing,
        test_every_failed_allocation_of_an_account_of_the_cpu,
        test_an_interrupt_stops_it_and_leaks_nothing,
        test_a_brief_table_has_the_same_rows_and_works,
    };
    return run_tests(tests, sizeof tests / sizeof *tests);
}
