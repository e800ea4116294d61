/* CUPTI's records as events, in the cases that tests/recording/test_captured_records.py cannot make. */

#include "tests/c/fake_capture.h"

TEST(names_and_numbers_that_cupti_may_give)
{
    start_capture(&with_calls);
    fake_kernel(NULL, origin, origin + 1, 0, 9, 44);
    fake_copy(99, 88, 3, 1, origin, origin + 1, 0, 3, 50); /* values of a future CUPTI */
    fake_copy_peer(123456789012, origin + 40, origin + 60, 1, 0, 4, 51);
    fake_overhead(99 << 16, origin + 90, origin + 91, 77);
    fake_overhead(1 << 16, origin + 91, origin + 92, 0); /* of no thread */
    fake_synchronization(17, origin + 94, origin + 95, 3);
    stop_capture();
    fs_event peer = event_at(2);
    CHECK(name_at(0)[0] != '\0' && strncmp(name_at(1), "Memcpy ", 7) == 0 && strstr(name_at(1), "-> Device)") != NULL);
    CHECK(strcmp(name_at(2), "Memcpy PtoP (Device -> Device)") == 0, "%s", name_at(2));
    CHECK(peer.kind == FS_EVENT_MEMCPY && peer.bytes == 123456789012 && peer.device == 1 && peer.correlation == 51);
    CHECK(lane_at(3).id == 77 && event_at(4).lane == FS_NONE && event_at(5).lane == FS_NONE);
    CHECK(fs_store_count(store) == 6 && fs_cupti_last().dropped == 0);
}

TEST(calls_that_tell_nothing_are_left_out_even_if_cupti_records_them)
{
    static const char *const calls[] = {"cudaLaunchKernel_v7000", "cudaGetDevice_v3020", "cuCtxGetCurrent"};
    functions.enable_driver = NULL;
    functions.enable_runtime = NULL;
    start_capture(&with_calls);
    for (uint32_t i = 0; i < 3; i++) fake_call(calls[i], origin + 10 * i, origin + 10 * i + 4, 1000, i + 7);
    CHECK(fake_count("calls") == 3);
    stop_capture();
    fs_event event = event_at(0);
    fs_lane lane = lane_at(0);
    CHECK(event.kind == FS_EVENT_RUNTIME && event.duration == 4 && event.correlation == 7 && event.device == -1);
    CHECK(!lane.on_device && lane.id == 1000 && fs_store_count(store) == 1);
}

TEST(functions_that_cupti_cannot_name_are_numbered)
{
    static const uint32_t numbers[] = {1234, 2047, 2048, 700000, 1234};
    start_capture(&with_calls);
    for (uint32_t i = 0; i < 5; i++) fake_unnamed_call(numbers[i], origin + 10 * i, origin + 10 * i + 1, 5, i);
    stop_capture();
    for (uint32_t i = 0; i < 5; i++) {
        char number[16];
        snprintf(number, sizeof number, "%u", numbers[i]);
        CHECK(strstr(name_at(i), number) != NULL, "%s", name_at(i));
    }
    CHECK(event_at(0).name == event_at(4).name && fs_store_count(store) == 5);
}

/* More distinct values than the caches have slots, so that they collide. */
TEST(caches_that_collide_change_nothing)
{
    enum { NAMES = 3000, LAUNCHES = 2500, STREAMS = 301, THREADS = 500, ROUNDS = 9000 };
    static char names[NAMES][24];
    for (int i = 0; i < NAMES; i++) snprintf(names[i], sizeof names[i], "kernel%d", i);
    start_capture(&with_calls);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t n = i * 7919, launch = n % LAUNCHES;
        fake_set_launch(launch + 1, launch % 7 + 1, launch % 255, launch * 16, launch * 3);
        fake_set_graph(launch % 3, launch % 11);
        fake_kernel(names[n % NAMES], origin + i, origin + i + 1, n % 2, n % STREAMS, i);
        fake_call("cudaLaunchKernel_v7000", origin + i, origin + i + 1, 100 + n % THREADS, i);
    }
    stop_capture();
    CHECK(fs_store_count(store) == 2 * ROUNDS && fs_cupti_last().dropped == 0);
    for (uint32_t i = 0; i < ROUNDS && failures == 0; i++) {
        uint32_t n = i * 7919, launch = n % LAUNCHES;
        fs_launch got = launch_at(2 * i);
        fs_lane lane = lane_at(2 * i);
        CHECK(strcmp(name_at(2 * i), names[n % NAMES]) == 0, "%s", name_at(2 * i));
        CHECK(lane.on_device && lane.device == (int)(n % 2) && lane.id == n % STREAMS);
        CHECK(got.grid[0] == launch + 1 && got.block[0] == launch % 7 + 1 && got.registers == launch % 255);
        CHECK(got.static_shared == launch * 16 && got.dynamic_shared == launch * 3 && got.graph == launch % 3);
        CHECK(got.graph_node == (launch % 3 ? launch % 11 : 0));
        CHECK(!lane_at(2 * i + 1).on_device && lane_at(2 * i + 1).id == 100 + n % THREADS);
    }
    CHECK(fs_store_lane_count(store) <= 2 * STREAMS + THREADS && fs_store_name_count(store) == NAMES + 1);
}

/* The memory of an unloaded module's names may be reused for the next module's. */
TEST(a_name_may_reuse_the_address_of_another)
{
    static char text[64];
    start_capture(&with_calls);
    for (uint32_t i = 0; i < 50; i++) {
        snprintf(text, sizeof text, "_Z%dk%ui", i < 10 ? 2 : 3, i);
        fake_kernel(text, origin + i, origin + i + 1, 0, 7, i);
        CHECK(cuptiActivityFlushAll(FS_CUPTI_FLUSH_FORCED) == 0);
    }
    stop_capture();
    for (uint32_t i = 0; i < 50; i++) {
        char expected[32];
        snprintf(expected, sizeof expected, "k%u(int)", i);
        CHECK(strcmp(name_at(i), expected) == 0, "%s", name_at(i));
    }
}

TEST(only_requested_records_in_the_window_are_kept)
{
    start_capture(&with_calls);
    uint64_t hour = 3600 * UINT64_C(1000000000);
    fake_kernel("early", origin - hour, origin - hour + 5, 0, 7, 1);
    fake_copy(1, 1, 3, 5, origin - hour, origin - hour + 5, 0, 7, 2);
    fake_fill(3, 5, origin - hour, origin - hour + 5, 0, 7, 3);
    fake_call("cudaLaunchKernel_v7000", origin - hour, origin + 50, 1, 4);
    fake_overhead(1 << 16, origin - hour, origin + 50, 1);
    fake_synchronization(3, origin - hour, origin + 50, 4);
    fake_call("cudaLaunchKernel_v7000", origin + 10, origin + 20, 1, 5);
    fake_call("cudaLaunchKernel_v7000", origin + LENGTH - 1, origin + hour, 1, 6); /* began within the window */
    fake_kernel("late", origin + hour, origin + hour + 5, 0, 7, 6); /* its launch began within the window */
    fake_call("cudaMemcpyAsync_v3020", origin + LENGTH + hour, origin + LENGTH + hour + 1, 1, 7);
    fake_overhead(1 << 16, origin + LENGTH + hour, origin + LENGTH + hour + 1, 1);
    fake_synchronization(3, origin + LENGTH + hour, origin + LENGTH + hour + 1, 7);
    stop_capture();
    CHECK(fs_store_count(store) == 3 && fs_cupti_last().dropped == 0, "%u", fs_store_count(store));
    CHECK(event_at(0).correlation == 5 && event_at(1).correlation == 6 && strcmp(name_at(2), "late") == 0);
}

/* Before version 20 CUPTI only has its own clock, CLOCK_REALTIME, which is decades away from flopscope's. */
TEST(cuptis_own_clock_is_converted)
{
    for (int way = 0; way < 2; way++) {
        load_fake();
        if (way == 0) functions.set_clock = NULL;
        else fake_fail("cuptiActivityRegisterTimestampCallback", FAKE_NOT_INITIALIZED);
        start_capture(&with_calls);
        fake_kernel("k", origin + 1000, origin + 3500, 0, 7, 1);
        fake_call("cudaLaunchKernel_v7000", origin + 500, origin + 600, 1, 1);
        stop_capture();
        CHECK(fs_store_count(store) == 2, "%u", fs_store_count(store));
        int64_t off = event_at(0).start - begin - 1000, between = event_at(0).start - event_at(1).start;
        CHECK(off > -1000000 && off < 1000000, "%lld ns off", (long long)off);
        CHECK(event_at(0).duration == 2500 && between == 500);
    }
    load_fake(); /* with a timestamp callback the times are exact */
    start_capture(&with_calls);
    int64_t ours = fs_clock_now();
    fake_kernel("k", (uint64_t)ours, (uint64_t)ours + 7, 0, 7, 1);
    CHECK(fake_count("own_clock") == 1);
    stop_capture();
    CHECK(event_at(0).start == ours);
}

TEST(records_without_a_time_are_lost_and_counted)
{
    start_capture(&with_calls);
    fake_kernel("good", origin + 1, origin + 2, 0, 7, 1);
    fake_kernel("never ended", origin + 1, 0, 0, 7, 2);
    fake_kernel("never began", 0, origin + 5, 0, 7, 2);
    fake_copy(1, 1, 3, 5, origin + 1, 0, 0, 7, 3);
    fake_copy_peer(5, 0, 0, 0, 1, 7, 3);
    fake_fill(3, 5, origin + 1, 0, 0, 7, 4);
    fake_call("cudaLaunchKernel_v7000", origin + 1, 0, 1, 5);
    fake_synchronization(3, origin + 1, 0, 5);
    fake_overhead(1 << 16, origin + 1, 0, 9);
    fake_unknown();
    fake_kernel("good", origin + 3, origin + 4, 0, 7, 6);
    stop_capture();
    CHECK(fs_store_count(store) == 2, "%u", fs_store_count(store));
    CHECK(fs_cupti_last().dropped == 8, "%lld", (long long)fs_cupti_last().dropped);
}
