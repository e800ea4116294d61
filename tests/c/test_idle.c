/* Causes of idle time in stores built by hand. Expected times are derived here from the events. */
#include "tests/c/accounts.h"

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

static void test_code_is_loaded_only_while_it_is_loaded(void)
{
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 5000);
    launch(1, 0, 100, 100);
    call("cuModuleLoadData", 2, FS_NONE, 1000, 1100);
    call("cudaLibraryLoadData", 3, FS_NONE, 1500, 1600);
    launch(4, 2000, 2010, 2010);
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    CHECK(idle(&of, FS_IDLE_LOADING, 0) == 100 + 100);
    clear(&of);
}

static void test_the_first_launch_of_a_kernel_that_blocks(void)
{
    enum { MS = 1000000 };
    host(FS_EVENT_STEP, "ProfilerStep#0", FS_NONE, 0, 20 * MS);
    for (int i = 0; i < 4; i++) launch((uint32_t)i, 1000 * i, 1000 * i + 100, 1000 * i + 100);
    call("cudaLaunchKernel", 10, FS_NONE, 5000, 5000 + 5 * MS);
    work(FS_EVENT_KERNEL, "new", 0, 7, 10, FS_NONE, 5000 + 5 * MS, 6 * MS);
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    CHECK(idle(&of, FS_IDLE_FIRST_LAUNCH, 0) == 5 * MS && idle(&of, FS_IDLE_BLOCKED, 0) == 0);
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
    call("cudaStreamWaitEvent", 13, FS_NONE, 7 * MS + 200, 7 * MS + 250);
    call("cudaEventDestroy", 14, FS_NONE, 7 * MS + 250, 7 * MS + 300);
    launch(15, 7 * MS + 300, 7 * MS + 500, 8 * MS + 100); /* late itself, and then held up by the event */
    account of = take_account((fs_table_options){0});
    check_sums(&of);
    CHECK(idle(&of, FS_IDLE_BLOCKED, 0) == 5 * MS, "%lld", (long long)idle(&of, FS_IDLE_BLOCKED, 0));
    CHECK(idle(&of, FS_IDLE_STREAM_WAIT, 0) == 7 * MS - (5 * MS + 5100) + MS - 400);
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

int main(void)
{
    static void (*const tests[])(void) = {
        test_causes_of_idleness,
        test_the_host_is_the_cause_until_the_launch_has_arrived,
        test_time_around_the_work_of_a_profile_without_steps_is_its_edges,
        test_edges_of_the_cpu,
        test_causes_while_the_host_is_late,
        test_code_is_loaded_only_while_it_is_loaded,
        test_the_first_launch_of_a_kernel_that_blocks,
        test_a_call_that_blocked_and_a_stream_that_waited,
        test_waits_are_cut_at_the_steps_of_the_host,
    };
    return run_tests(tests, sizeof tests / sizeof *tests);
}
