/* Counting on a fake GPU: the thread that decodes samples, sessions beside captures, failing allocations and a fork. */
#include <sys/wait.h>

#include "base/fork.h"
#include "sources/counters/library.h"
#include "sources/counters/ranges.h"
#include "sources/counters/sampling.h"
#include "tests/c/fake_capture.h"

static fs_counters_functions counter_functions;

static void load_all(void)
{
    load_fake();
    memset(&fake_range, 0, sizeof fake_range);
#define USE(call, symbol, theirs, members) counter_functions.call = symbol;
    FS_COUNTERS_CALLS(USE, FS_COUNTERS_NO_MEMBER)
#undef USE
    counter_functions.result_text = cuptiGetResultString;
    counter_functions.timestamp = cuptiGetTimestamp;
    fs_counters = &counter_functions;
}

static void sleep_for(int64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

static void check_closed(void)
{
    CHECK(fake_counters("open") == 0 && fake_counters("hosts") == 0);
    CHECK(fake_count("pushed") == 0 && fake_count("retained") == 0 && fake.callback == NULL);
}

static void test_samples_of_windows_and_of_live_sessions_are_poured(void)
{
    static const int64_t intervals[] = {0, 2000, 60000};
    int64_t live = fs_memory_live();
    for (size_t i = 0; i < sizeof intervals / sizeof *intervals; i++) {
        fs_sampler_options options = {.interval_ns = intervals[i], .window = intervals[i] == 2000 ? 2000 : 0};
        fs_sampler *sampler = NULL;
        load_all();
        CHECK_OK(fs_store_create(&store, NULL));
        CHECK_OK(fs_sampler_open(&sampler, &options, NULL));
        CHECK_OK(fs_sampler_start(sampler, NULL));
        sleep_for(30000000);
        CHECK_OK(fs_sampler_stop(sampler, NULL));
        CHECK_OK(fs_sampler_stop(sampler, NULL)); /* again */
        CHECK(fs_sampler_last(sampler).samples > 100);
        CHECK_OK(fs_sampler_pour(sampler, store, FS_MISSING, INT64_MIN, INT64_MAX, NULL));
        CHECK(fs_store_track_of(store, 0, FS_METRIC_DRAM_READ)->count == fs_sampler_last(sampler).samples);
        fs_sampler_destroy(sampler);
        fs_store_destroy(store);
        check_closed();
    }
    store = NULL;
    CHECK(fs_memory_live() == live);
}

static fs_status count_once(fs_error *err)
{
    double values[64];
    bool complete = false;
    fs_ranges *ranges = NULL;
    fs_status status = fs_ranges_open(&ranges, 0, FS_COUNTER_GROUP_SCALAR, 1, err);
    if (status == FS_OK) status = fs_ranges_begin(ranges, err);
    if (status == FS_OK) status = fs_ranges_push(ranges, 0, err);
    if (status == FS_OK) status = fs_ranges_pop(ranges, err);
    if (status == FS_OK) status = fs_ranges_end(ranges, &complete, err);
    if (status == FS_OK) status = fs_ranges_decode(ranges, err);
    if (status == FS_OK) status = fs_ranges_take(ranges, 0, values, err);
    CHECK(status != FS_OK || complete);
    fs_ranges_close(ranges);
    return status;
}

static void test_a_detached_cupti_comes_back_by_whatever_brings_it(void)
{
    for (int what = 0; what < 3; what++) {
        load_all();
        fake_wake_by(what);
        CHECK_OK(count_once(NULL));
        start_capture(&with_calls);
        CHECK_OK(try_stop(NULL));
        CHECK(fake_count("finalized") == 1);
        CHECK_OK(count_once(NULL));
        CHECK(!fake.kinds[FS_CUPTI_KERNEL] && !fake.kinds[FS_CUPTI_OVERHEAD]);
        check_closed();
        fs_store_destroy(store);
    }
    store = NULL;
}

static void test_a_held_cupti_is_not_detached(void)
{
    load_all();
    fs_cupti_hold();
    start_capture(&with_calls);
    CHECK_OK(try_stop(NULL));
    CHECK(fake_count("finalized") == 0 && fake.callback == NULL && fake_count("enabled") == 0);
    CHECK(fake_count("system_threads") == 0);
    fs_cupti_unhold();
    fs_store_destroy(store);
    start_capture(&with_calls);
    CHECK_OK(try_stop(NULL));
    CHECK(fake_count("finalized") == 1);
    fs_store_destroy(store);
    store = NULL;
}

/* Each step may be refused, as may its memory: nothing stays open. */
static void test_every_failure_closes_everything(void)
{
    static const char *const steps[] = {
        "cuptiProfilerInitialize",     "cuptiDeviceGetChipName",   "cuptiProfilerGetCounterAvailability",
        "cuptiProfilerHostInitialize", "cuptiRangeProfilerEnable", "cuptiRangeProfilerGetCounterDataSize",
        "cuptiRangeProfilerSetConfig", "cuptiRangeProfilerStart",  "cuptiRangeProfilerPopRange",
        "cuptiRangeProfilerStop",
    };
    static const int codes[] = {FS_COUNTERS_BUSY, FS_COUNTERS_ASLEEP, FS_COUNTERS_UNKNOWN};
    int64_t live = fs_memory_live();
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (size_t k = 0; k < sizeof codes / sizeof *codes; k++) {
            load_all();
            fake_fail(steps[i], codes[k]);
            CHECK(count_once(NULL) == FS_RUNTIME_ERROR);
            check_closed();
        }
    for (int64_t n = 1;; n++) {
        fs_sampler *sampler = NULL;
        load_all();
        fs_memory_fail_at(n);
        fs_status counted = count_once(NULL);
        fs_status started = fs_sampler_open(&sampler, &(fs_sampler_options){.interval_ns = 60000}, NULL);
        if (started == FS_OK) started = fs_sampler_start(sampler, NULL);
        fs_memory_fail_at(0);
        fs_sampler_destroy(sampler);
        check_closed();
        CHECK(fs_memory_live() == live);
        if (counted == FS_OK && started == FS_OK) break;
    }
}

static void test_a_forked_child_leaves_the_sampler_to_its_parent(void)
{
    fs_sampler *sampler = NULL;
    int status = 0;
    load_all();
    CHECK_OK(fs_sampler_open(&sampler, &(fs_sampler_options){.interval_ns = 60000}, NULL));
    CHECK_OK(fs_sampler_start(sampler, NULL));
    pid_t child = fork();
    if (child == 0) {
        fs_sampler *other = NULL;
        bool left = fs_sampler_stop(sampler, NULL) == FS_OK && fake_counters("open") == 1;
        bool refused = fs_sampler_open(&other, &(fs_sampler_options){.device = 1}, NULL) == FS_RUNTIME_ERROR;
        fs_sampler_destroy(sampler);
        _exit(left && refused ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    sleep_for(10000000);
    CHECK_OK(fs_sampler_stop(sampler, NULL));
    CHECK(fs_sampler_last(sampler).samples > 50);
    fs_sampler_destroy(sampler);
    check_closed();
}

int main(void)
{
    test_samples_of_windows_and_of_live_sessions_are_poured();
    test_a_detached_cupti_comes_back_by_whatever_brings_it();
    test_a_held_cupti_is_not_detached();
    test_every_failure_closes_everything();
    test_a_forked_child_leaves_the_sampler_to_its_parent();
    return failures > 0;
}
