/* The life of a capture: competing clients, cleaning up, and counting lost records. */
#include <stdio.h>

#include "tests/c/fake_capture.h"

/* Start and stop ------------------------------------------------------------------------------------------------- */

static void test_nothing_starts_before_it_is_loaded(void)
{
    fs_error err = {FS_OK, ""};
    expect_error(try_capture(&with_calls, &err), &err, "not loaded");
    CHECK(!fs_cupti_has_device() && fs_cupti_stop(&err) == FS_OK);
    CHECK(fs_cupti_last().version == 0);
    end_store();
}

static void test_a_capture_leaves_nothing_behind(void)
{
    load_fake();
    CHECK(fs_cupti_has_device());
    for (long round = 1; round <= 3; round++) {
        start_capture(&with_calls);
        CHECK(fake_count("subscribed") == round && fake_count("system_threads") == 1 && fake_count("enabled") == 8);
        CHECK(fake.zeroed);
        launch(5);
        stop_capture();
        CHECK(fake_count("finalized") == round && fs_store_count(store) == 5);
        CHECK(fs_cupti_last().version == 130001 && fs_cupti_last().dropped == 0 && fs_cupti_last().taken == 0);
        CHECK(fake_count("waited") == 2 * round); /* once per device */
        CHECK(fs_cupti_stop(NULL) == FS_OK && fake_count("finalized") == round);
        end_store();
    }
}

static void test_one_capture_at_a_time(void)
{
    fs_store *other = NULL;
    fs_error err = {FS_OK, ""};
    load_fake();
    start_capture(&with_calls);
    CHECK(fs_store_create(&other, NULL) == FS_OK);
    expect_error(fs_cupti_start(other, &with_calls, NULL, &err), &err, "in progress");
    launch(3);
    stop_capture();
    CHECK(fs_store_count(store) == 3 && fs_store_count(other) == 0);
    fs_store_destroy(other);
    end_store();
}

static void test_kernels_alone_are_cheaper(void)
{
    static const fs_cupti_options without_calls = {.api_calls = false};
    load_fake();
    start_capture(&without_calls);
    fake_call("cudaLaunchKernel_v7000", origin, origin + 1, 1, 1);
    fake_call("cuLaunchKernel", origin, origin + 1, 1, 1);
    fake_synchronization(3, origin, origin + 1, 1);
    fake_overhead(1 << 16, origin, origin + 1, 1);
    fake_fill(3, 8, origin, origin + 1, 0, 7, 1);
    launch(2);
    CHECK(fake_count("calls") == 0 && fake_count("enabled") == 4);
    stop_capture();
    CHECK(fs_store_count(store) == 3 && count_of(FS_EVENT_KERNEL) == 2 && count_of(FS_EVENT_MEMSET) == 1);
    end_store();
}

static void test_devices_that_worked_are_described(void)
{
    load_fake();
    fake_set_active(0, 0); /* used through a context other than the primary one */
    start_capture(&with_calls);
    fake_kernel("k", origin, origin + 1, 1, 7, 1);
    stop_capture();
    CHECK(fake_count("waited") == 1);
    fs_device_facts facts = fs_store_device(store, 1), none = fs_store_device(store, 0);
    CHECK(strcmp(facts.name, "Fake L4") == 0 && facts.total_memory == (int64_t)24 << 30);
    CHECK(facts.compute_major == 8 && facts.compute_minor == 9 && facts.sm_count == 58);
    CHECK(facts.max_threads_per_block == 1024 && facts.max_threads_per_sm == 1536 && facts.warp_size == 32);
    CHECK(facts.registers_per_block == 65536 && facts.registers_per_sm == 65536);
    CHECK(facts.shared_memory_per_block == 49152 && facts.shared_memory_per_sm == 102400);
    CHECK(facts.shared_memory_per_block_optin == 101376);
    CHECK(facts.max_blocks_per_sm == -1); /* unknown to the driver */
    CHECK(none.name[0] == '\0' && none.sm_count == -1);
    end_store();
}

static void test_a_restart_forgets_the_last_capture(void)
{
    fs_store *second = NULL;
    load_fake();
    start_capture(&with_calls);
    launch(4);
    fake_kernel("never ended", origin, 0, 0, 7, 1); /* a loss, forgotten by the restart */
    CHECK(cuptiActivityFlushAll(FS_CUPTI_FLUSH_FORCED) == 0);
    CHECK(fs_cupti_last().dropped == 1);
    fake.dropped = 3; /* records lost by CUPTI itself, likewise */
    CHECK(fs_store_create(&second, NULL) == FS_OK);
    uint64_t before = fake_now();
    fs_cupti_restart(second);
    CHECK(fs_cupti_last().dropped == 0);
    fake_kernel("before", before - 1, fake_now() + 5, 0, 7, 1);
    fake_kernel("after", fake_now(), fake_now() + 5, 0, 7, 2);
    fake_call("cudaLaunchKernel_v7000", fake_now(), fake_now() + 1, 1, 2);
    fs_error err = {FS_OK, ""};
    CHECK(fs_cupti_stop(&err) == FS_OK, "%s", err.message);
    check_detached();
    CHECK(fs_store_count(store) == 4, "%u", fs_store_count(store));
    end_store();
    store = second;
    CHECK(fs_store_count(store) == 2, "%u", fs_store_count(store));
    CHECK(strcmp(name_at(0), "after") == 0 && event_at(1).kind == FS_EVENT_RUNTIME && fs_cupti_last().dropped == 0);
    end_store();
}

/* Other clients of CUPTI
 * ------------------------------------------------------------------------------------------------- */

static void test_the_client_that_holds_cupti_is_named(void)
{
    static const struct {
        const char *name, *message;
        bool by_name; /* CUPTI can name the client that holds it */
    } clients[] = {
        {"CUPTI for Nsight Systems", "CUPTI for Nsight Systems", true},
        {"", "a client without a name", true},
        {"CUPTI for <name not provided>", "a client without a name", true},
        {"CUPTI for Proton", "a client without a name", false},
        {"0123456789012345678901234567890123456789012345678901234567890123456789",
         "012345678901234567890123456789012345678901234567890123456789012", true},
    };
    for (size_t i = 0; i < sizeof clients / sizeof *clients; i++) {
        char taken_by[64] = "?";
        fs_error err = {FS_OK, ""};
        load_fake();
        fake_take(clients[i].name);
        if (!clients[i].by_name) functions.subscribe_named = NULL;
        CHECK(fs_store_create(&store, NULL) == FS_OK);
        expect_error(fs_cupti_start(store, &with_calls, taken_by, &err), &err, clients[i].message);
        CHECK(strcmp(taken_by, clients[i].message) == 0, "%s", taken_by);
        CHECK(!fs_cupti_last().shared);
        check_detached();
        end_store();
        fake_take(NULL); /* once it has gone, a capture can start */
        start_capture(&with_calls);
        stop_capture();
        end_store();
    }
}

static void test_cupti_can_be_shared_with_an_unnamed_client(void)
{
    static const fs_cupti_options sharing = {.api_calls = true, .may_share = true};
    fs_error err = {FS_OK, ""};
    load_fake();
    fake_take("CUPTI for Nsight Systems");
    expect_error(try_capture(&sharing, &err), &err, "Nsight Systems");
    end_store();
    fake_take("");
    fake.dropped = 12; /* lost before this capture */
    start_capture(&sharing);
    CHECK(fake_count("own_clock") == 1); /* torch.profiler sets its own clock when it starts, and never resets it */
    CHECK(fake_count("system_threads") == 1 && fake_count("subscribed") == 0);
    fake_kernel("k", origin + 1000, origin + 2000, 0, 7, 1);
    fake_call("cudaLaunchKernel_v7000", origin + 500, origin + 600, 1, 1);
    stop_capture();
    CHECK(fs_store_count(store) == 2 && event_at(0).start == begin + 1000 && event_at(0).duration == 1000);
    CHECK(fs_cupti_last().shared && fs_cupti_last().dropped == 0 && fake_count("finalized") == 0);
    end_store();
}

/* Failures -------------------------------------------------------------------------------------------------------- */

static void test_errors_name_the_failed_call(void)
{
    static const struct {
        const char *function; /* NULL: enabling the kind fails */
        int kind;
        const char *message;
    } refusals[] = {
        {"cuptiSubscribe", 0, "subscribing"},
        {"cuptiActivityRegisterCallbacks", 0, "buffers"},
        {"cuptiGetTimestamp", 0, "clock"},
        {NULL, FS_CUPTI_KERNEL, "kernels"},
        {NULL, FS_CUPTI_MEMCPY, "copies"},
        {NULL, FS_CUPTI_MEMSET, "fills"},
        {NULL, FS_CUPTI_RUNTIME, "runtime API calls"},
        {NULL, FS_CUPTI_DRIVER, "driver API calls"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        fs_error err = {FS_OK, ""};
        int64_t live = fs_memory_live();
        load_fake();
        functions.set_clock = NULL;
        if (refusals[i].function != NULL) fake_fail(refusals[i].function, 35);
        else fake_fail_kind(refusals[i].kind, 35);
        fs_status status = try_capture(&with_calls, &err);
        expect_error(status, &err, refusals[i].message);
        expect_error(status, &err, "CUPTI_ERROR_FAKE (35)");
        check_detached();
        end_store();
        CHECK(fs_memory_live() == live);
        fake_fail_kind(refusals[i].kind, 0);
        if (refusals[i].function != NULL) fake_fail(refusals[i].function, 0);
        start_capture(&with_calls); /* the failed start left nothing behind */
        launch(1);
        stop_capture();
        CHECK(fs_store_count(store) == 1);
        end_store();
    }
}

static void test_unsupported_optional_kinds_are_ignored(void)
{
    load_fake();
    fake_fail_kind(FS_CUPTI_MEMCPY_PEER, 35);
    fake_fail_kind(FS_CUPTI_SYNCHRONIZATION, 35);
    fake_fail_kind(FS_CUPTI_OVERHEAD, 35);
    fake_fail("cuptiActivitySetAttribute", 35);
    start_capture(&with_calls);
    launch(3);
    stop_capture();
    CHECK(fs_store_count(store) == 3);
    end_store();
}

static void test_a_failed_device_is_reported_and_the_capture_ends(void)
{
    fs_error err = {FS_OK, ""};
    load_fake();
    start_capture(&with_calls);
    launch(3);
    fake_fail("cuCtxSynchronize", 700);
    expect_error(try_stop(&err), &err, "700");
    check_detached();
    CHECK(fs_store_count(store) == 3 && fake_count("waited") == 2 && fake_count("finalized") == 1);
    CHECK(strcmp(fs_store_device(store, 0).name, "Fake H200") == 0);
    end_store();
    fake_fail("cuCtxSynchronize", 0);
    start_capture(&with_calls);
    launch(2);
    fake_fail("cuptiActivityFlushAll", 12);
    expect_error(try_stop(&err), &err, "records");
    check_detached();
    fake_fail("cuptiActivityFlushAll", 0);
    end_store();
    start_capture(&with_calls); /* a driver that cannot count its devices was never used */
    fake_fail("cuDeviceGetCount", 3);
    stop_capture();
    end_store();
}

/* The subscription ends even if no exit callback of an API call arrives. */
static void test_without_a_callback_the_subscription_ends(void)
{
    load_fake();
    start_capture(&with_calls);
    fake_fail("cuptiEnableCallback", 1);
    launch(1);
    CHECK(try_stop(NULL) == FS_OK);
    CHECK(fs_store_count(store) == 1 && fake_count("enabled") == 0 && fake_count("abandoned") == 0);
    CHECK(fake.callback == NULL);
    end_store();
}

/* Lost records ---------------------------------------------------------------------------------------------------- */

static void test_records_beyond_the_bound_are_dropped_and_counted(void)
{
    enum { BUFFER = 128 << 10, EACH = BUFFER / sizeof(fs_cupti_kernel), BUFFERS = 6, RECORDED = 10 * EACH };
    static const fs_cupti_options options = {.api_calls = true, .buffer_bytes = BUFFER, .most_bytes = BUFFERS * BUFFER};
    load_fake();
    fake_be_late(1); /* no buffer is completed while the program runs */
    start_capture(&options);
    for (int round = 0; round < 2; round++) {
        launch(RECORDED);
        CHECK(cuptiActivityFlushAll(FS_CUPTI_FLUSH_FORCED) == 0);
    }
    stop_capture();
    CHECK(fs_store_count(store) == 2 * BUFFERS * EACH, "%u", fs_store_count(store));
    CHECK(fs_cupti_last().dropped == 2 * (RECORDED - BUFFERS * EACH), "%lld", (long long)fs_cupti_last().dropped);
    CHECK(fake_count("refused") == 0); /* CUPTI before 12.9 crashes if a request returns no buffer */
    end_store();
    fake_be_late(0); /* if buffers are completed in time, two are enough */
    start_capture(&options);
    launch(RECORDED);
    stop_capture();
    CHECK(fs_store_count(store) == RECORDED && fs_cupti_last().dropped == 0);
    end_store();
}

static void test_every_allocation_may_fail(void)
{
    enum { BUFFER = 8 << 10, EACH = BUFFER / sizeof(fs_cupti_kernel), RECORDED = 100 };
    static const fs_cupti_options options = {.api_calls = true, .buffer_bytes = BUFFER, .most_bytes = 16 * BUFFER};
    static char names[RECORDED][16];
    for (int i = 0; i < RECORDED; i++) snprintf(names[i], sizeof names[i], "_Z2k%di", i % 10);
    bool refused = false, dropped = false;
    for (int64_t n = 1; failures == 0; n++) {
        fs_error err = {FS_OK, ""};
        int64_t live = fs_memory_live();
        load_fake();
        fake_be_late(1);
        CHECK(fs_store_create(&store, NULL) == FS_OK);
        fs_memory_fail_at(n);
        fs_status status = fs_cupti_start(store, &options, NULL, &err);
        if (status != FS_OK) {
            fs_memory_fail_at(0);
            CHECK(status == FS_OUT_OF_MEMORY && strstr(err.message, "memory") != NULL);
            check_detached();
            end_store();
            CHECK(fs_memory_live() == live);
            continue;
        }
        open_window();
        for (uint32_t i = 0; i < RECORDED; i++) {
            fake_set_launch(i + 1, 32, 8, 0, 0);
            fake_kernel(names[i], origin + i, origin + i + 1, i % 2, i % 5, i);
        }
        status = try_stop(&err);
        fs_memory_fail_at(0);
        check_detached();
        CHECK(status == FS_OK || status == FS_OUT_OF_MEMORY, "%s", err.message);
        /* Every lost record is counted. CUPTI counts records for which it has no buffer, inside the window or not, so
         * its losses include the two calls made by stopping itself, each with a wait. */
        int64_t excess = fs_store_count(store) + fs_cupti_last().dropped - RECORDED;
        CHECK(excess >= 0 && excess <= (fake_count("refused") > 0 ? 4 : 0), "%lld: %u kept, %lld dropped", (long long)n,
              fs_store_count(store), (long long)fs_cupti_last().dropped);
        CHECK(fs_cupti_last().taken == 0);
        refused |= fake_count("refused") > 0;
        dropped |= fs_cupti_last().dropped > 0;
        bool complete = status == FS_OK && fs_store_count(store) == RECORDED;
        end_store();
        CHECK(fs_memory_live() == live);
        if (complete) break;
    }
    CHECK(refused && dropped);
}

static void test_buffers_taken_by_another_client_are_counted(void)
{
    load_fake();
    start_capture(&with_calls);
    int64_t live = fs_memory_live();
    launch(3);
    fs_cupti_complete ours = fake.complete;
    fake_other_client_captures();
    stop_capture();
    CHECK(fake_count("other_buffers") == 1 && fs_store_count(store) == 0);
    CHECK(fs_cupti_last().taken == 1 && fs_cupti_last().dropped == 0);
    end_store();
    ours(NULL, 0, fake_kept[0], 8, 0); /* it completes the buffer it took, far too late */
    CHECK(fs_memory_live() < live);
}

/* Conversely, a buffer that flopscope did not allocate is neither read nor freed. */
static void test_a_buffer_of_another_client_is_left_alone(void)
{
    fs_cupti_kernel theirs[2] = {{.kind = FS_CUPTI_KERNEL}, {.kind = FS_CUPTI_KERNEL}};
    load_fake();
    start_capture(&with_calls);
    theirs[0].start = theirs[1].start = origin, theirs[0].end = theirs[1].end = origin + 5;
    fs_cupti_kernel before = theirs[0];
    fake.complete(NULL, 0, (uint8_t *)theirs, sizeof theirs, sizeof theirs);
    fake.complete(NULL, 0, NULL, 0, 0);
    launch(1);
    stop_capture();
    CHECK(fs_store_count(store) == 1 && fs_cupti_last().dropped == 0);
    CHECK(memcmp(&before, &theirs[0], sizeof before) == 0);
    end_store();
}

static void test_a_buffer_may_come_back_after_the_end(void)
{
    uint8_t *buffer = NULL, *unknown = NULL;
    size_t size = 0, most = 1;
    load_fake();
    start_capture(&with_calls);
    launch(2);
    fs_cupti_request request = fake.request;
    fs_cupti_complete complete = fake.complete;
    request(&buffer, &size, &most);
    CHECK(buffer != NULL && size == 4 << 20 && most == 0);
    fs_cupti_kernel record = {.kind = FS_CUPTI_KERNEL, .name = "k", .start = origin, .end = origin + 1};
    memcpy(buffer, &record, sizeof record);
    stop_capture();
    CHECK(fs_cupti_last().taken == 1 && fs_store_count(store) == 2);
    int64_t live = fs_memory_live();
    complete(NULL, 0, buffer, size, sizeof record);
    CHECK(fs_store_count(store) == 2 && fs_memory_live() == live - 1);
    end_store();
    start_capture(&with_calls); /* a buffer of this capture must not count for the next */
    request(&unknown, &size, &most);
    stop_capture();
    end_store();
    start_capture(&with_calls);
    complete(NULL, 0, unknown, size, 0);
    stop_capture();
    CHECK(fs_cupti_last().taken == 0);
    end_store();
}

int main(void)
{
    int64_t live = fs_memory_live();
    test_nothing_starts_before_it_is_loaded();
    test_a_capture_leaves_nothing_behind();
    test_one_capture_at_a_time();
    test_kernels_alone_are_cheaper();
    test_devices_that_worked_are_described();
    test_a_restart_forgets_the_last_capture();
    test_the_client_that_holds_cupti_is_named();
    test_cupti_can_be_shared_with_an_unnamed_client();
    test_errors_name_the_failed_call();
    test_unsupported_optional_kinds_are_ignored();
    test_a_failed_device_is_reported_and_the_capture_ends();
    test_without_a_callback_the_subscription_ends();
    test_records_beyond_the_bound_are_dropped_and_counted();
    test_every_allocation_may_fail();
    test_buffers_taken_by_another_client_are_counted();
    test_a_buffer_of_another_client_is_left_alone();
    test_a_buffer_may_come_back_after_the_end();
    CHECK(fs_memory_live() == live, "%lld blocks left", (long long)(fs_memory_live() - live));
    if (failures == 0) printf("cupti: passed\n");
    return failures != 0;
}
