/* Lists that grow by doubling: how far, that items stay, and that a failure leaves the list as it was. */
#include "base/list.h"

#include <string.h>

#include "base/memory.h"
#include "check.h"

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
    FS_TRY(FS_LIST_ROOM(&list->items, list->count, &list->capacity, 3, "items", err));
    list->items[list->count++] = (item){.value = value, .more = "list"};
    return FS_OK;
}

static void test_the_capacity_doubles_and_items_stay(void)
{
    static const uint32_t expected[] = {3, 3, 3, 6, 6, 6, 12};
    item_list list = {0};
    fs_error err;
    for (uint32_t i = 0; i < 1000; i++) {
        CHECK_OK(add(&list, i * UINT64_C(0x100000001), &err));
        if (i < sizeof expected / sizeof *expected) CHECK(list.capacity == expected[i], "%u", list.capacity);
    }
    CHECK(list.capacity == 3 << 9);
    for (uint32_t i = 0; i < list.count; i++)
        CHECK(list.items[i].value == i * UINT64_C(0x100000001) && strcmp(list.items[i].more, "list") == 0);
    fs_free(list.items);
}

static void test_a_far_index_has_room(void)
{
    item_list list = {0};
    fs_error err;
    CHECK_OK(FS_LIST_ROOM(&list.items, 100, &list.capacity, 8, "items", &err));
    CHECK(list.capacity == 101);
    const item *before = list.items;
    CHECK_OK(FS_LIST_ROOM(&list.items, 100, &list.capacity, 8, "items", &err));
    CHECK(list.capacity == 101 && list.items == before);
    CHECK_OK(FS_LIST_ROOM(&list.items, 101, &list.capacity, 8, "items", &err));
    CHECK(list.capacity == 202);
    memset(list.items, 1, 202 * sizeof *list.items); /* AddressSanitizer watches the end */
    fs_free(list.items);
}

static void test_a_failure_leaves_the_list_as_it_was(void)
{
    item_list list = {0};
    fs_error err;
    for (uint64_t i = 0; i < 6; i++) CHECK_OK(add(&list, i, &err));
    item_list before = list;
    fs_memory_fail_at(1);
    CHECK(add(&list, 6, &err) == FS_OUT_OF_MEMORY && err.status == FS_OUT_OF_MEMORY);
    CHECK(add(&list, 6, NULL) == FS_OUT_OF_MEMORY);
    fs_memory_fail_at(0);
    CHECK(strcmp(err.message, "no memory for 12 items") == 0, "%s", err.message);
    CHECK(list.items == before.items && list.count == 6 && list.capacity == 6);
    for (uint64_t i = 0; i < 6; i++) CHECK(list.items[i].value == i);
    CHECK_OK(add(&list, 6, &err));
    fs_free(list.items);
}

/* Sizes that overflow fail before anything is allocated; the list is never touched. */
static void test_sizes_beyond_32_and_64_bits_fail(void)
{
    static const size_t beyond[] = {UINT32_MAX, UINT32_MAX + (size_t)1, SIZE_MAX};
    item_list list = {0};
    fs_error err;
    int64_t live = fs_memory_live();
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
        CHECK(FS_LIST_ROOM(&list.items, beyond[i], &list.capacity, 8, "items", &err) == FS_OUT_OF_MEMORY);
    CHECK(strcmp(err.message, "no memory for 18446744073709551615 items") == 0, "%s", err.message);
    CHECK(fs_list_grow(&list.items, 7, &list.capacity, SIZE_MAX / 4, 8, "items", &err) == FS_OUT_OF_MEMORY);
    CHECK(list.items == NULL && list.capacity == 0 && fs_memory_live() == live);
    /* A list of more than half of what 32 bits can number ends at UINT32_MAX items; here an item has no size. */
    list.capacity = UINT32_C(1) << 31;
    CHECK_OK(fs_list_grow(&list.items, list.capacity, &list.capacity, 0, 8, "items", &err));
    CHECK(list.capacity == UINT32_MAX);
    CHECK(fs_list_grow(&list.items, UINT32_MAX, &list.capacity, 0, 8, "items", &err) == FS_OUT_OF_MEMORY);
    fs_free(list.items);
}

int main(void)
{
    test_the_capacity_doubles_and_items_stay();
    test_a_far_index_has_room();
    test_a_failure_leaves_the_list_as_it_was();
    test_sizes_beyond_32_and_64_bits_fail();
    CHECK(fs_memory_live() == 0);
    if (failures == 0) printf("list: passed\n");
    return failures != 0;
}
