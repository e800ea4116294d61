/* The life of a capture: competing clients, cleaning up, and counting lost records. */

#include "tests/c/fake_capture.h"

/* Start and stop ------------------------------------------------------------------------------------------------- */

TEST(a_capture_leaves_nothing_behind)
{
    CHECK(fs_cupti_has_device());
    for (long round = 1; round <= 3; round++) {
        start_capture(&with_calls);
        CHECK(fake_count("subscribed") == round && fake_count("system_threads") == 1 && fake_count("enabled") == 8);
        CHECK(fake_client.zeroed);
        launch(5);
        stop_capture();
        CHECK(fake_count("finalized") == round && fs_store_count(store) == 5);
        CHECK(fs_cupti_last().version == 130001 && fs_cupti_last().dropped == 0 && fs_cupti_last().taken == 0);
        CHECK(fake_count("waited") == 2 * round); /* once per device */
        CHECK(fs_cupti_stop(NULL) == FS_OK && fake_count("finalized") == round);
    }
}

/* Other clients of CUPTI ------------------------------------------------------------------------------------------- */

TEST(the_client_that_holds_cupti_is_named)
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
    for (size_t i = 0; i < COUNT_OF(clients); i++) {
        char taken_by[64] = "?";
        fs_error err = {FS_OK, ""};
        load_fake();
        fake_take(clients[i].name);
        if (!clients[i].by_name) functions.subscribe_named = NULL;
        renew_store();
        expect_error(fs_cupti_start(store, &with_calls, taken_by, &err), &err, clients[i].message);
        CHECK(strcmp(taken_by, clients[i].message) == 0, "%s", taken_by);
        CHECK(!fs_cupti_last().shared);
        check_detached();
        fake_take(NULL); /* once it has gone, a capture can start */
        start_capture(&with_calls);
        stop_capture();
    }
}

/* Failures -------------------------------------------------------------------------------------------------------- */

TEST(errors_name_the_failed_call)
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
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        fs_error err = {FS_OK, ""};
        load_fake();
        renew_store();
        int64_t live = fs_memory_live();
        functions.set_clock = NULL;
        if (refusals[i].function != NULL) fake_fail(refusals[i].function, 35);
        else fake.failing_kinds[refusals[i].kind] = 35;
        fs_status status = try_capture(&with_calls, &err);
        expect_error(status, &err, refusals[i].message);
        expect_error(status, &err, "CUPTI_ERROR_FAKE (35)");
        check_detached();
        CHECK(fs_memory_live() == live);
        fake.failing_kinds[refusals[i].kind] = 0;
        if (refusals[i].function != NULL) fake_fail(refusals[i].function, 0);
        start_capture(&with_calls); /* the failed start left nothing behind */
        launch(1);
        stop_capture();
        CHECK(fs_store_count(store) == 1);
    }
}

TEST(unsupported_optional_kinds_are_ignored)
{
    fake.failing_kinds[FS_CUPTI_MEMCPY_PEER] = 35;
    fake.failing_kinds[FS_CUPTI_SYNCHRONIZATION] = 35;
    fake.failing_kinds[FS_CUPTI_OVERHEAD] = 35;
    fake_fail("cuptiActivitySetAttribute", 35);
    start_capture(&with_calls);
    launch(3);
    stop_capture();
    CHECK(fs_store_count(store) == 3);
}

TEST(a_failed_device_is_reported_and_the_capture_ends)
{
    fs_error err = {FS_OK, ""};
    start_capture(&with_calls);
    launch(3);
    fake_fail("cuCtxSynchronize", 700);
    expect_error(try_stop(&err), &err, "700");
    check_detached();
    CHECK(fs_store_count(store) == 3 && fake_count("waited") == 2 && fake_count("finalized") == 1);
    CHECK(strcmp(fs_store_device(store, 0).name, "Fake H200") == 0);
    fake_fail("cuCtxSynchronize", 0);
    start_capture(&with_calls);
    launch(2);
    fake_fail("cuptiActivityFlushAll", 12);
    expect_error(try_stop(&err), &err, "records");
    check_detached();
    fake_fail("cuptiActivityFlushAll", 0);
    start_capture(&with_calls); /* a driver that cannot count its devices was never used */
    fake_fail("cuDeviceGetCount", 3);
    stop_capture();
}

/* The subscription ends even if no exit callback of an API call arrives. */
TEST(without_a_callback_the_subscription_ends)
{
    start_capture(&with_calls);
    fake_fail("cuptiEnableCallback", 1);
    launch(1);
    CHECK(try_stop(NULL) == FS_OK);
    CHECK(fs_store_count(store) == 1 && fake_count("enabled") == 0 && fake_count("abandoned") == 0);
    CHECK(fake_client.callback == NULL);
}

/* Lost records ---------------------------------------------------------------------------------------------------- */

TEST(records_beyond_the_bound_are_dropped_and_counted)
{
    enum { BUFFER = 128 << 10, EACH = BUFFER / sizeof(fs_cupti_kernel), BUFFERS = 6, RECORDED = 10 * EACH };
    static const fs_cupti_options options = {.api_calls = true, .buffer_bytes = BUFFER, .most_bytes = BUFFERS * BUFFER};
    fake.is_late = true; /* no buffer is completed while the program runs */
    start_capture(&options);
    for (int round = 0; round < 2; round++) {
        launch(RECORDED);
        CHECK(cuptiActivityFlushAll(FS_CUPTI_FLUSH_FORCED) == 0);
    }
    stop_capture();
    CHECK(fs_store_count(store) == 2 * BUFFERS * EACH, "%u", fs_store_count(store));
    CHECK(fs_cupti_last().dropped == 2 * (RECORDED - BUFFERS * EACH), "%lld", (long long)fs_cupti_last().dropped);
    CHECK(fake_count("refused") == 0); /* CUPTI before 12.9 crashes if a request returns no buffer */
    fake.is_late = false;              /* if buffers are completed in time, two are enough */
    start_capture(&options);
    launch(RECORDED);
    stop_capture();
    CHECK(fs_store_count(store) == RECORDED && fs_cupti_last().dropped == 0);
}

TEST(every_allocation_may_fail)
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
        fake.is_late = true;
        renew_store();
        fs_memory_fail_at(n);
        fs_status status = fs_cupti_start(store, &options, NULL, &err);
        if (status != FS_OK) {
            fs_memory_fail_at(0);
            CHECK(status == FS_OUT_OF_MEMORY && strstr(err.message, "memory") != NULL);
            check_detached();
            renew_store();
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
        renew_store();
        CHECK(fs_memory_live() == live);
        if (complete) break;
    }
    CHECK(refused && dropped);
}

/* A buffer that flopscope did not allocate is neither read nor freed. */
TEST(a_buffer_of_another_client_is_left_alone)
{
    fs_cupti_kernel theirs[2] = {{.kind = FS_CUPTI_KERNEL}, {.kind = FS_CUPTI_KERNEL}};
    start_capture(&with_calls);
    theirs[0].start = theirs[1].start = origin, theirs[0].end = theirs[1].end = origin + 5;
    fs_cupti_kernel before = theirs[0];
    fake_client.complete(NULL, 0, (uint8_t *)theirs, sizeof theirs, sizeof theirs);
    fake_client.complete(NULL, 0, NULL, 0, 0);
    launch(1);
    stop_capture();
    CHECK(fs_store_count(store) == 1 && fs_cupti_last().dropped == 0);
    CHECK(memcmp(&before, &theirs[0], sizeof before) == 0);
}

TEST(a_buffer_may_come_back_after_the_end)
{
    uint8_t *buffer = NULL, *unknown = NULL;
    size_t size = 0, most = 1;
    start_capture(&with_calls);
    launch(2);
    fs_cupti_request request = fake_client.request;
    fs_cupti_complete complete = fake_client.complete;
    request(&buffer, &size, &most);
    CHECK(buffer != NULL && size == 4 << 20 && most == 0);
    fs_cupti_kernel record = {.kind = FS_CUPTI_KERNEL, .name = "k", .start = origin, .end = origin + 1};
    memcpy(buffer, &record, sizeof record);
    stop_capture();
    CHECK(fs_cupti_last().taken == 1 && fs_store_count(store) == 2);
    int64_t live = fs_memory_live();
    complete(NULL, 0, buffer, size, sizeof record);
    CHECK(fs_store_count(store) == 2 && fs_memory_live() == live - 1);
    start_capture(&with_calls); /* a buffer of this capture must not count for the next */
    request(&unknown, &size, &most);
    stop_capture();
    start_capture(&with_calls);
    complete(NULL, 0, unknown, size, 0);
    stop_capture();
    CHECK(fs_cupti_last().taken == 0);
}
