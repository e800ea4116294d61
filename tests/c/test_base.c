/* What everything stands on: lists that grow, sorting, order statistics, arithmetic that saturates, and sections that
 * an interrupt ends. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/saturate.h"
#include "base/sort.h"
#include "base/statistics.h"
#include "store/event.h"
#include "summaries/intervals.h"
#include "tests/c/check.h"

/* Lists ------------------------------------------------------------------------------------------------------------ */

typedef struct {
    uint64_t value;
    char more[5];
} item;

typedef struct {
    item *items;
    uint32_t count, capacity;
} item_list;

static fs_status add(item_list *list, uint64_t value, fs_error *err)
{
    FS_TRY(FS_LIST_ROOM(&list->items, list->count, &list->capacity, 3, err));
    list->items[list->count++] = (item){.value = value, .more = "list"};
    return FS_OK;
}

TEST(the_capacity_doubles_and_items_stay)
{
    static const uint32_t expected[] = {3, 3, 3, 6, 6, 6, 12};
    item_list list = {0};
    fs_error err;
    for (uint32_t i = 0; i < 1000; i++) {
        CHECK_OK(add(&list, i * UINT64_C(0x100000001), &err));
        if (i < COUNT_OF(expected)) CHECK(list.capacity == expected[i], "%u", list.capacity);
    }
    CHECK(list.capacity == 3 << 9);
    for (uint32_t i = 0; i < list.count; i++)
        CHECK(list.items[i].value == i * UINT64_C(0x100000001) && strcmp(list.items[i].more, "list") == 0);
    fs_free(list.items);
    list = (item_list){0}; /* a far index has room */
    CHECK_OK(FS_LIST_ROOM(&list.items, 100, &list.capacity, 8, &err));
    CHECK(list.capacity == 101);
    const item *before = list.items;
    CHECK_OK(FS_LIST_ROOM(&list.items, 100, &list.capacity, 8, &err));
    CHECK(list.capacity == 101 && list.items == before);
    CHECK_OK(FS_LIST_ROOM(&list.items, 101, &list.capacity, 8, &err));
    CHECK(list.capacity == 202);
    memset(list.items, 1, 202 * sizeof *list.items); /* AddressSanitizer watches the end */
    fs_free(list.items);
}

TEST(a_failure_leaves_the_list_as_it_was)
{
    item_list list = {0};
    fs_error err;
    for (uint64_t i = 0; i < 6; i++) CHECK_OK(add(&list, i, &err));
    item_list before = list;
    fs_memory_fail_at(1);
    CHECK(add(&list, 6, &err) == FS_OUT_OF_MEMORY && err.status == FS_OUT_OF_MEMORY);
    CHECK(add(&list, 6, NULL) == FS_OUT_OF_MEMORY);
    fs_memory_fail_at(0);
    char expected[64];
    snprintf(expected, sizeof expected, "no memory for %zu bytes", 12 * sizeof *list.items);
    CHECK(strcmp(err.message, expected) == 0, "%s", err.message);
    CHECK(list.items == before.items && list.count == 6 && list.capacity == 6);
    for (uint64_t i = 0; i < 6; i++) CHECK(list.items[i].value == i);
    CHECK_OK(add(&list, 6, &err));
    fs_free(list.items);
}

TEST(a_list_of_a_given_length_is_allocated_or_null)
{
    fs_error err;
    uint64_t *list = NULL;
    CHECK_OK(FS_NEW_ZEROED(&list, 3, &err));
    CHECK(list[0] == 0 && list[2] == 0);
    fs_free(list);
    CHECK(FS_NEW(&list, SIZE_MAX / 4, &err) == FS_OUT_OF_MEMORY && list == NULL);
    fs_memory_fail_at(1);
    CHECK(FS_NEW(&list, 5, &err) == FS_OUT_OF_MEMORY && list == NULL);
    fs_memory_fail_at(0);
    CHECK(strcmp(err.message, "no memory for 40 bytes") == 0, "%s", err.message);
}

/* Sizes that overflow fail before anything is allocated; the list is never touched. */
TEST(sizes_beyond_32_and_64_bits_fail)
{
    static const size_t beyond[] = {UINT32_MAX, UINT32_MAX + (size_t)1, SIZE_MAX};
    item_list list = {0};
    fs_error err;
    for (size_t i = 0; i < COUNT_OF(beyond); i++)
        CHECK(FS_LIST_ROOM(&list.items, beyond[i], &list.capacity, 8, &err) == FS_OUT_OF_MEMORY);
    CHECK(strcmp(err.message, "no memory for 18446744073709551615 items of 16 bytes") == 0, "%s", err.message);
    CHECK(fs_list_grow(&list.items, 7, &list.capacity, SIZE_MAX / 4, 8, &err) == FS_OUT_OF_MEMORY);
    CHECK(list.items == NULL && list.capacity == 0);
    /* A list of more than half of what 32 bits can number ends at UINT32_MAX items; here an item has no size. */
    list.capacity = UINT32_C(1) << 31;
    CHECK_OK(fs_list_grow(&list.items, list.capacity, &list.capacity, 0, 8, &err));
    CHECK(list.capacity == UINT32_MAX);
    CHECK(fs_list_grow(&list.items, UINT32_MAX, &list.capacity, 0, 8, &err) == FS_OUT_OF_MEMORY);
    fs_free(list.items);
}

/* Sorting, in runs ------------------------------------------------------------------------------------------------- */

enum { RUN = 1 << 14, MOST = 7 * RUN + 5 };

typedef struct {
    uint32_t key, place;
    char more[4];
} sorted_item;

static sorted_item items[MOST], expected[MOST];
static int64_t compared, stop_at;

static int by_key(const void *left, const void *right)
{
    const sorted_item *a = left, *b = right;
    if (++compared == stop_at) fs_interrupt_stop();
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

static void fill(uint32_t count, uint32_t keys)
{
    for (uint32_t i = 0; i < count; i++)
        items[i] = (sorted_item){.key = (uint32_t)random_below(keys), .place = i, .more = "odd"};
    memcpy(expected, items, count * sizeof *items);
    stop_at = -1;
    qsort(expected, count, sizeof *expected, by_key);
}

TEST(the_order_is_that_of_qsort)
{
    static const uint32_t counts[] = {0, 1, 2, 100, RUN - 1, RUN, RUN + 1, 2 * RUN, 3 * RUN + 1, MOST};
    static const uint32_t keys[] = {1, 7, UINT32_MAX};
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        for (size_t k = 0; k < COUNT_OF(keys); k++) {
            fs_error err;
            fill(counts[i], keys[k]);
            CHECK_OK(fs_sort(items, counts[i], sizeof *items, by_key, &err));
            CHECK(memcmp(items, expected, counts[i] * sizeof *items) == 0);
        }
    }
}

static bool never(void *context)
{
    (void)context;
    return false;
}

TEST(an_interrupted_sort_keeps_every_item)
{
    fs_error err;
    fill(MOST, 1000);
    compared = 0;
    CHECK_OK(fs_sort(items, MOST, sizeof *items, by_key, &err));
    int64_t all = compared;
    for (int part = 1; part < 10; part += 4) {
        fs_interrupt section;
        fill(MOST, 1000);
        compared = 0;
        stop_at = all * part / 10;
        fs_interrupt_open(&section, never, NULL);
        CHECK(fs_sort(items, MOST, sizeof *items, by_key, &err) == FS_INTERRUPTED);
        fs_interrupt_close(&section);
        CHECK(compared < stop_at + (RUN << 5)); /* it stopped soon */
        stop_at = -1;
        qsort(items, MOST, sizeof *items, by_key);
        CHECK(memcmp(items, expected, sizeof items) == 0);
    }
}

TEST(sorting_is_stable_over_the_whole_range_of_times)
{
    static const int64_t begins[] = {5, INT64_MAX - 1, -3, 5, FS_MISSING + 1, 0, 5};
    static const uint32_t expected[] = {4, 2, 5, 0, 3, 6, 1};
    fs_intervals list = {0};
    for (uint32_t i = 0; i < 7; i++) CHECK_OK(fs_intervals_add(&list, begins[i], begins[i], i, NULL));
    CHECK(fs_intervals_sort(&list, NULL) == FS_OK && list.count == 7);
    for (uint32_t i = 0; i < 7; i++) CHECK(list.items[i].tag == expected[i]);
    fs_intervals_clear(&list);
}

/* Order statistics ------------------------------------------------------------------------------------------------- */

TEST(statistics_at_the_ends_of_the_range)
{
    int64_t samples[] = {INT64_MAX, -INT64_MAX, INT64_MAX, -INT64_MAX};
    fs_statistics found = fs_statistics_of(samples, 4);
    CHECK(found.min == -(double)INT64_MAX && found.max == (double)INT64_MAX && found.median == 0);
    CHECK(isnan(fs_statistics_of(samples, 0).median) && isnan(fs_statistics_of(samples, 0).std));
}

/* Saturating arithmetic, compared with 128-bit arithmetic ---------------------------------------------------------- */

static int64_t bounded(__int128 value)
{
    if (value > INT64_MAX) return INT64_MAX;
    return value < -INT64_MAX ? -INT64_MAX : (int64_t)value;
}

TEST(arithmetic_saturates)
{
    const int64_t large = INT64_C(1) << 32, huge = INT64_C(1) << 62;
    const int64_t values[] = {0,          1,        -1,     2,    -2,    1000,          -7,
                              large / 2,  large,    -large, huge, -huge, INT64_MAX - 1, INT64_MAX,
                              -INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        for (size_t j = 0; j < COUNT_OF(values); j++) {
            int64_t a = values[i], b = values[j], sum = a, rest = a;
            fs_add_to(&sum, b);
            fs_take_from(&rest, b);
            CHECK(sum == bounded((__int128)a + b) && fs_add_saturated(a, b) == sum, "%zu, %zu", i, j);
            CHECK(rest == bounded((__int128)a - b) && fs_sub_saturated(a, b) == rest, "%zu, %zu", i, j);
            CHECK(fs_mul_saturated(a, b) == bounded((__int128)a * b), "%zu, %zu", i, j);
        }
    }
    CHECK(fs_product_of_three((uint32_t[]){2, 3, 5}) == 30);
    CHECK(fs_product_of_three((uint32_t[]){UINT32_MAX, UINT32_MAX, UINT32_MAX}) == INT64_MAX);
    CHECK(fs_product_of_three((uint32_t[]){UINT32_MAX, UINT32_MAX, 0}) == 0);
}

/* Sections that an interrupt ends ---------------------------------------------------------------------------------- */

typedef struct {
    int polls, stop_at;
    pthread_t thread;
    bool elsewhere; /* polled on a thread that did not open the section */
} poller;

static bool poll_section(void *context)
{
    poller *state = context;
    if (!pthread_equal(state->thread, pthread_self())) state->elsewhere = true;
    return ++state->polls >= state->stop_at;
}

static void pause_ms(int ms)
{
    struct timespec time = {0, (long)ms * 1000000};
    nanosleep(&time, NULL);
}

static atomic_llong done;

static void slow(void *context, int64_t begin, int64_t end)
{
    (void)context;
    for (int64_t i = begin; i < end; i++) pause_ms(1);
    atomic_fetch_add(&done, end - begin);
}

TEST(a_parallel_loop_ends_early)
{
    for (int threads = 1; threads <= 4; threads += 3) {
        fs_interrupt section;
        poller state = {.stop_at = 2, .thread = pthread_self()};
        fs_error err = {0};
        CHECK_OK(fs_parallel_set_threads(threads, NULL));
        atomic_store(&done, 0);
        int64_t began = fs_clock_now();
        fs_interrupt_open(&section, poll_section, &state);
        fs_parallel_for(1000000, 1, slow, NULL); /* a quarter of an hour at 1 ms each */
        CHECK(fs_interrupt_poll(&err) == FS_INTERRUPTED && err.status == FS_INTERRUPTED);
        fs_interrupt_close(&section);
        CHECK(fs_clock_now() - began < 5000000000, "%d threads", threads);
        CHECK(state.polls == 2 && !state.elsewhere, "polled %d times", state.polls);
        CHECK(atomic_load(&done) > 0 && atomic_load(&done) < 1000000);
        CHECK(fs_interrupt_poll(&err) == FS_OK && fs_interrupt_current() == NULL);
        atomic_store(&done, 0);
        fs_parallel_for(100, 1, slow, NULL);
        CHECK(atomic_load(&done) == 100, "the next loop runs completely");
    }
}

TEST(sections_nest)
{
    fs_interrupt outer, inner;
    poller never_stops = {.stop_at = 1000000, .thread = pthread_self()};
    poller at_once = {.stop_at = 1, .thread = pthread_self()};
    fs_interrupt_open(&outer, poll_section, &never_stops);
    fs_interrupt_open(&inner, poll_section, &at_once);
    CHECK(!fs_interrupted(), "it is not polled at first");
    pause_ms(60);
    CHECK(fs_interrupted() && fs_interrupted() && at_once.polls == 1 && never_stops.polls == 0);
    fs_interrupt_close(&inner);
    CHECK(!fs_interrupted() && fs_interrupt_current() == &outer);
    CHECK(fs_interrupt_stop() && fs_interrupted());
    fs_interrupt_close(&outer);
    CHECK(!fs_interrupted() && !fs_interrupt_stop());
}
