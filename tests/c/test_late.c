/* What the host did before late launches: an example worked out by hand, work of a CPU, failed allocations. Random
 * programs: tests/answers/test_late.py. */
#include "accounting/late.h"

#include "tests/c/accounts.h"

static uint8_t names[64], ops[64], other[64], waits[64];

static void choose(uint8_t *flags, const char *name)
{
    memset(flags, 0, 64);
    flags[name_id(name)] = 1;
}

/*   op      |add···································|
 *   range        |load·····················|
 *   op                |mul···|
 *   call    |launch|                     |launch|
 *   work      ▓▓▓▓                              ▓▓▓▓   late from 60 to 200 */
static void fill(void)
{
    uint32_t add = op("add", FS_NONE, FS_NONE, 0, 300);
    call("cudaLaunchKernel", 1, add, 10, 20);
    uint32_t load = host(FS_EVENT_RANGE, "load", add, 50, 120);
    host(FS_EVENT_OP, "mul", load, 80, 30);
    call("cudaLaunchKernel", 2, add, 200, 210);
    work(FS_EVENT_KERNEL, "k", 0, 7, 1, add, 20, 60);
    work(FS_EVENT_KERNEL, "k", 0, 7, 2, add, 215, 250);
}

static const fs_late_sum *sum_of(const fs_late_sums *sums, const char *name)
{
    for (uint32_t i = 0; i < sums->count; i++) {
        if (sums->items[i].name == (int64_t)name_id(name)) return &sums->items[i];
    }
    return NULL;
}

static void test_a_late_time_is_divided_among_what_the_host_was_in(void)
{
    fs_late_sums sums;
    fs_late_request request = {.least = 100, .ops = ops, .other = other};
    fs_error err;
    fill();
    choose(ops, "add");
    choose(other, "nothing");
    CHECK_OK(fs_late_spent(&sums, store, &request, &err));
    CHECK(sums.count == 3 && sum_of(&sums, "load")->time == 170 - 60 - 30 && sum_of(&sums, "mul")->time == 30);
    CHECK(sum_of(&sums, "add")->time == 30 && sum_of(&sums, "add")->launches && !sum_of(&sums, "mul")->launches);
    fs_free(sums.items);
    choose(other, "mul");
    request.least = 120; /* 140 less 30 of another cause */
    CHECK_OK(fs_late_spent(&sums, store, &request, &err));
    CHECK(sums.count == 0);
    fs_free(sums.items);
    choose(names, "load");
    CHECK_OK(fs_late_within(&sums, store, 0, names, &err));
    CHECK(sums.count == 1 && sum_of(&sums, "add")->time == 110);
    fs_free(sums.items);
}

static void test_without_a_device_the_ops_of_the_cpu_are_the_work(void)
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
static void test_a_call_waited_if_work_of_a_device_ended_within_it(void)
{
    static const int64_t times[][3] = {/* begin, end, waited; 10 µs later counts too */
                                       {0, 50, 1},        {60, 61, 1},       {61, 40249, 0},    {62, 40250, 1},
                                       {50251, 79999, 0}, {50252, 80000, 1}, {55000, 99000, 1}, {90001, 200000, 0}};
    fs_named_calls calls;
    fs_error err;
    uint32_t add = op("add", FS_NONE, FS_NONE, 0, 300000), next = 0;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        call("cudaStreamSynchronize", 10 + (uint32_t)i, add, times[i][0], times[i][1]);
    call("cudaMalloc", 3, add, 0, 300000);
    host(FS_EVENT_RANGE, "cudaStreamSynchronize", add, 0, 300000); /* not an API call */
    host(FS_EVENT_RUNTIME, "cudaStreamSynchronize", add, 20, FS_MISSING);
    work(FS_EVENT_KERNEL, "k", 0, 7, 1, add, 20, 60);
    work(FS_EVENT_KERNEL, "k", 0, 7, 2, add, 215, 50250);
    work(FS_EVENT_MEMCPY, "c", 1, 7, 3, add, 70000, 90000);
    choose(names, "cudaStreamSynchronize");
    CHECK_OK(fs_waiting_calls_find(&calls, store, names, &err));
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
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

static fs_status look(int which, fs_error *err)
{
    fs_late_sums sums = {0};
    fs_named_calls calls = {0};
    fs_late_request request = {.ops = ops, .other = other};
    fs_status status = which == 0   ? fs_idle_calls_find(&calls, store, names, true, err)
                       : which == 1 ? fs_late_within(&sums, store, 0, names, err)
                       : which == 2 ? fs_late_spent(&sums, store, &request, err)
                                    : fs_waiting_calls_find(&calls, store, waits, err);
    fs_free(calls.items);
    fs_free(sums.items);
    return status;
}

static void test_every_failed_allocation_is_reported_and_leaks_nothing(void)
{
    fill();
    choose(names, "load");
    choose(ops, "add");
    choose(other, "mul");
    choose(waits, "cudaLaunchKernel");
    int64_t live = fs_memory_live();
    for (int which = 0; which < 4; which++) {
        fs_status status = FS_OUT_OF_MEMORY;
        int64_t n = 0;
        while (status != FS_OK && n < 200) {
            fs_error err = {FS_OK, ""};
            fs_memory_fail_at(++n);
            status = look(which, &err);
            fs_memory_fail_at(0);
            CHECK(status == FS_OK || (status == FS_OUT_OF_MEMORY && err.message[0] != 0));
            CHECK(fs_memory_live() == live, "%d, %lld", which, (long long)n);
        }
        CHECK(status == FS_OK && n > 3, "%d: %lld", which, (long long)n);
    }
}

int main(void)
{
    static void (*const tests[])(void) = {
        test_a_late_time_is_divided_among_what_the_host_was_in,
        test_without_a_device_the_ops_of_the_cpu_are_the_work,
        test_a_call_waited_if_work_of_a_device_ended_within_it,
        test_every_failed_allocation_is_reported_and_leaks_nothing,
    };
    return run_tests(tests, sizeof tests / sizeof *tests);
}
