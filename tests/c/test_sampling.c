/* Counting on a fake GPU: the thread that decodes samples, and failures. Sessions beside captures, and forks, are
 * tested in tests/counters. */
#include "sources/counters/library.h"
#include "sources/counters/ranges.h"
#include "sources/counters/sampling.h"
#include "tests/c/fake_capture.h"

static fs_counters_functions counter_functions;

static void load_all(void)
{
    load_fake();
    renew_store();
    fake.record_bytes = 16; /* the buffer does not fill up if a busy machine wakes the thread late */
    memset(&fake_range, 0, sizeof fake_range);
#define USE(call, symbol, theirs, members) counter_functions.call = symbol;
    FS_COUNTERS_CALLS(USE, FS_COUNTERS_NO_MEMBER)
#undef USE
    counter_functions.result_text = cuptiGetResultString;
    counter_functions.timestamp = cuptiGetTimestamp;
    fs_counters = &counter_functions;
}

__attribute__((constructor)) static void use_counters_in_each_test(void)
{
    before_each = load_all;
}

static void sleep_for(int64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

/* Let the GPU have work for a second. */
static void keep_busy(void)
{
    uint64_t now = fake_now();
    fake_traffic(0, "dram__bytes_read.sum", now, now + 1000000000, 1e12);
}

static void check_closed(void)
{
    CHECK(fake_count("open") == 0 && fake_count("hosts") == 0);
    CHECK(fake_count("pushed") == 0 && fake_count("retained") == 0 && fake_client.callback == NULL);
}

TEST(samples_of_windows_and_of_live_sessions_are_poured)
{
    static const int64_t intervals[] = {0, 2000, FS_SAMPLER_LIVE_NS};
    for (size_t i = 0; i < COUNT_OF(intervals); i++) {
        fs_sampler_options options = {.interval_ns = intervals[i], .window = intervals[i] == 2000 ? 2000 : 0};
        fs_sampler *sampler = NULL;
        load_all();
        keep_busy();
        CHECK_OK(fs_sampler_open(&sampler, &options, NULL));
        CHECK_OK(fs_sampler_start(sampler, NULL));
        sleep_for(30000000);
        CHECK_OK(fs_sampler_stop(sampler, NULL));
        CHECK_OK(fs_sampler_stop(sampler, NULL)); /* again */
        CHECK(fs_sampler_last(sampler).samples > 100);
        CHECK_OK(fs_sampler_pour(sampler, store, FS_MISSING, INT64_MIN, INT64_MAX, NULL));
        CHECK(fs_store_track_of(store, 0, FS_METRIC_DRAM_READ)->count == fs_sampler_last(sampler).samples);
        fs_sampler_destroy(sampler);
        check_closed();
    }
}

TEST(a_window_ends_before_its_samples_take_too_much_memory)
{
    fs_sampler_options options = {.window = 40000, .most_image_bytes = 20000 * (sizeof(fake_sample_at) * 5 / 4)};
    fs_sampler *sampler = NULL;
    keep_busy();
    CHECK_OK(fs_sampler_open(&sampler, &options, NULL));
    CHECK_OK(fs_sampler_start(sampler, NULL));
    sleep_for(60000000); /* it ends while it waits whether the program goes on */
    CHECK_OK(fs_sampler_stop(sampler, NULL));
    long samples = fs_sampler_last(sampler).samples, room = fake_count("room"); /* for two windows */
    CHECK(room < 40000 && samples > 1000 && samples <= room * fake_count("windows"), "%ld of %ld", samples, room);
    fs_sampler_destroy(sampler);
    check_closed();
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

/* Refused steps are tested in tests/counters/test_counter_order.py. */
TEST(a_failed_allocation_closes_everything)
{
    int64_t live = fs_memory_live();
    for (int64_t n = 1;; n++) {
        fs_sampler *sampler = NULL;
        load_all();
        fs_memory_fail_at(n);
        fs_status counted = count_once(NULL);
        fs_status started = fs_sampler_open(&sampler, &(fs_sampler_options){.interval_ns = FS_SAMPLER_LIVE_NS}, NULL);
        if (started == FS_OK) started = fs_sampler_start(sampler, NULL);
        fs_memory_fail_at(0);
        fs_sampler_destroy(sampler);
        check_closed();
        CHECK(fs_memory_live() == live);
        if (counted == FS_OK && started == FS_OK) break;
    }
}
