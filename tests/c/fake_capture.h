/* Helpers of the CUPTI source's tests: captures with the fake in place of CUPTI. */
#ifndef FS_TESTS_FAKE_CAPTURE_H
#define FS_TESTS_FAKE_CAPTURE_H

#include "base/clock.h"
#include "sources/cupti/cupti.h"
#include "sources/cupti/library.h"
#include "tests/c/events.h"
#include "tests/c/fake_cupti.c"

static fs_cupti_functions functions;
static fs_driver_functions driver_functions;
static const fs_cupti_options with_calls = {.api_calls = true};

static int64_t begin;   /* start of the capture, by the store's clock */
static uint64_t origin; /* the same by the clock of records */

enum { LENGTH = 1000000 }; /* ns of the store's window, which holds the records */

/* Install the fake, in its initial state, in place of libcupti and libcuda. */
static void load_fake(void)
{
    fake_reset();
#define USE(field, symbol, parameters) functions.field = symbol;
    FS_CUPTI_SYMBOLS(USE)
    FS_CUPTI_OPTIONAL_SYMBOLS(USE)
#undef USE
#define USE(field, symbol, parameters) driver_functions.field = symbol;
    FS_DRIVER_SYMBOLS(USE)
#undef USE
    fs_cupti = &functions;
    fs_driver = &driver_functions;
}

static void begin_test(void)
{
    load_fake();
    make_store();
}

__attribute__((constructor)) static void use_the_fake_in_each_test(void)
{
    before_each = begin_test;
}

/* Replace the store by an empty one. */
static void renew_store(void)
{
    end_store();
    make_store();
}

/* Set the store's window to LENGTH ns from now on. */
static void open_window(void)
{
    begin = fs_clock_now();
    origin = fake_client.clock != NULL ? (uint64_t)begin : fake_now();
    fs_store_set_window(store, begin, begin + LENGTH);
}

static fs_status try_capture(const fs_cupti_options *options, fs_error *err)
{
    renew_store();
    fs_status status = fs_cupti_start(store, options, NULL, err);
    if (status == FS_OK) open_window();
    return status;
}

static inline void start_capture(const fs_cupti_options *options)
{
    fs_error err = {FS_OK, ""};
    CHECK(try_capture(options, &err) == FS_OK, "%s", err.message);
}

/* Check that the capture left nothing behind in CUPTI, except the clock if another client stays attached, and that no
 * record was lost. */
static void check_detached(void)
{
    CHECK(fake_client.callback == NULL && fake_count("enabled") == 0 && fake_count("system_threads") == 0);
    CHECK(fake_count("own_clock") == fs_cupti_last().shared && fake_count("abandoned") == 0 && !fake_client.zeroed);
    CHECK(fake_count("misaligned") == 0 && fake_count("unclean") == 0 && fake_count("overtaken") == 0);
    CHECK(fake_count("retained") == 0 && fake_count("pushed") == 0);
}

/* Stop after the end of the window, which excludes the calls made by stopping itself. */
static fs_status try_stop(fs_error *err)
{
    while (fs_clock_now() <= begin + LENGTH) {
    }
    return fs_cupti_stop(err);
}

static inline void stop_capture(void)
{
    fs_error err = {FS_OK, ""};
    CHECK(try_stop(&err) == FS_OK, "%s", err.message);
    check_detached();
}

/* Record `count` kernels, one ns apart. */
static inline void launch(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) fake_kernel("k", origin + i, origin + i + 1, 0, 7, i);
}

static inline void expect_error(fs_status status, const fs_error *err, const char *text)
{
    CHECK(status == FS_RUNTIME_ERROR && err->status == status, "%d, not: %s", status, text);
    CHECK(strstr(err->message, text) != NULL, "\"%s\" lacks \"%s\"", err->message, text);
}

/* Reading -------------------------------------------------------------------------------------------------------- */

static inline fs_lane lane_at(uint32_t index)
{
    uint32_t lane = event_at(index).lane;
    return lane == FS_NONE ? (fs_lane){.device = -2} : fs_store_lane(store, lane);
}

static inline fs_launch launch_at(uint32_t index)
{
    fs_launch launch = {.registers = 12345};
    uint32_t signature = event_at(index).signature;
    CHECK(signature != FS_NONE);
    if (signature != FS_NONE) CHECK(fs_launch_decode(fs_store_signature_bytes(store, signature).bytes, &launch));
    return launch;
}

#endif
