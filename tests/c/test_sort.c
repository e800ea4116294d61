/* Sorting in runs: the order of qsort(), and no lost items after an interruption. */
#include "base/sort.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "check.h"

enum { RUN = 1 << 14, MOST = 7 * RUN + 5 };

typedef struct {
    uint32_t key, place;
    char more[4];
} item;

static item items[MOST], expected[MOST];
static int64_t compared, stop_at;

static int by_key(const void *left, const void *right)
{
    const item *a = left, *b = right;
    if (++compared == stop_at) fs_interrupt_stop();
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

static void fill(uint32_t count, uint32_t keys)
{
    uint32_t state = 12345;
    for (uint32_t i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223;
        items[i] = (item){.key = (state >> 8) % keys, .place = i, .more = "odd"};
    }
    memcpy(expected, items, count * sizeof *items);
    stop_at = -1;
    qsort(expected, count, sizeof *expected, by_key);
}

static void test_the_order_is_that_of_qsort(void)
{
    static const uint32_t counts[] = {0, 1, 2, 100, RUN - 1, RUN, RUN + 1, 2 * RUN, 3 * RUN + 1, MOST};
    static const uint32_t keys[] = {1, 7, UINT32_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            fs_error err;
            fill(counts[i], keys[k]);
            CHECK(fs_sort(items, counts[i], sizeof *items, by_key, "items", &err) == FS_OK);
            CHECK(memcmp(items, expected, counts[i] * sizeof *items) == 0);
        }
    }
}

static bool never(void *context)
{
    (void)context;
    return false;
}

static void test_an_interrupted_sort_keeps_every_item(void)
{
    fill(MOST, 1000);
    compared = 0;
    fs_error err;
    CHECK(fs_sort(items, MOST, sizeof *items, by_key, "items", &err) == FS_OK);
    int64_t all = compared;
    for (int part = 1; part < 10; part++) {
        fs_interrupt section;
        fill(MOST, 1000);
        compared = 0;
        stop_at = all * part / 10;
        fs_interrupt_open(&section, never, NULL);
        CHECK(fs_sort(items, MOST, sizeof *items, by_key, "items", &err) == FS_INTERRUPTED);
        fs_interrupt_close(&section);
        CHECK(compared < stop_at + (RUN << 5)); /* it stopped soon */
        stop_at = -1;
        qsort(items, MOST, sizeof *items, by_key);
        CHECK(memcmp(items, expected, sizeof items) == 0);
    }
}

int main(void)
{
    test_the_order_is_that_of_qsort();
    test_an_interrupted_sort_keeps_every_item();
    if (failures == 0) printf("sort: passed\n");
    return failures != 0;
}
