/* fs_distinct_count, compared with a list of all addresses. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "check.h"
#include "ops/tensor.h"

static int by_value(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* The oracle: every address, sorted. */
static int64_t count_addresses(int ndim, const int64_t *shape, const int64_t *strides)
{
    int64_t all = 1, distinct = 0;
    for (int d = 0; d < ndim; d++) all *= shape[d];
    int64_t *addresses = malloc((size_t)(all ? all : 1) * sizeof *addresses);
    for (int64_t i = 0; i < all; i++) {
        int64_t rest = i, address = 0;
        for (int d = ndim - 1; d >= 0; d--) {
            address += rest % shape[d] * strides[d];
            rest /= shape[d];
        }
        addresses[i] = address;
    }
    qsort(addresses, (size_t)all, sizeof *addresses, by_value);
    for (int64_t i = 0; i < all; i++) distinct += i == 0 || addresses[i] != addresses[i - 1];
    free(addresses);
    return distinct;
}

static uint64_t state = 88172645463325252u;

static int64_t draw(int64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int64_t)(state % (uint64_t)below);
}

static void test_random_strides(void)
{
    for (int i = 0; i < 30000; i++) {
        int64_t shape[FS_MAX_DIMS], strides[FS_MAX_DIMS], largest = i % 3 == 0 ? 8 : i % 3 == 1 ? 40 : 3000;
        int ndim = (int)draw(5);
        for (int d = 0; d < ndim; d++) {
            shape[d] = 1 + draw(7);
            strides[d] = draw(2 * largest + 1) - largest;
        }
        CHECK(fs_distinct_count(ndim, shape, strides) == count_addresses(ndim, shape, strides));
    }
}

static void test_far_apart(void)
{
    /* Two coprime steps, too large for a bit set. */
    int64_t shape[2] = {200, 200}, strides[2] = {1000000007, 998244353};
    CHECK(fs_distinct_count(2, shape, strides) == 40000);
    /* The same with more sums than the list's limit: the count is unknown. */
    int64_t many[2] = {70000, 70000};
    CHECK(fs_distinct_count(2, many, strides) == FS_COUNT_UNKNOWN);
    /* Windows of 3 x 3 over 8 x 64 images of 512 x 512, in closed form. */
    int64_t windows[6] = {8, 64, 510, 510, 3, 3}, steps[6] = {64 * 512 * 512, 512 * 512, 512, 1, 512, 1};
    CHECK(fs_distinct_count(6, windows, steps) == 8 * 64 * 512 * 512);
    /* Dilated by 2 and strided by 3 along the rows: 0 to 3 * 169 + 4, except the two that no window reaches (the second
     * and the last but one).
     */
    int64_t dilated[3] = {100000, 170, 3}, apart[3] = {4096, 3, 2};
    int64_t row_shape[2] = {170, 3}, row_strides[2] = {3, 2};
    CHECK(fs_distinct_count(3, dilated, apart) == 100000 * count_addresses(2, row_shape, row_strides));
    /* Sizes whose product overflows an integer. */
    int64_t huge[2] = {INT64_MAX / 2, INT64_MAX / 2}, one[2] = {1, 1};
    CHECK(fs_distinct_count(2, huge, one) == INT64_MAX - 2);
}

static void test_the_count_is_unknown_without_memory(void)
{
    int64_t shape[2] = {50, 50}, strides[2] = {7, 5}, far[2] = {1000000007, 998244353};
    int64_t live = fs_memory_live();
    fs_memory_fail_at(1);
    CHECK(fs_distinct_count(2, shape, strides) == FS_COUNT_UNKNOWN);
    CHECK(fs_distinct_count(2, shape, far) == FS_COUNT_UNKNOWN);
    fs_memory_fail_at(0);
    CHECK(fs_distinct_count(2, shape, strides) == count_addresses(2, shape, strides));
    CHECK(fs_memory_live() == live);
}

int main(void)
{
    test_random_strides();
    test_far_apart();
    test_the_count_is_unknown_without_memory();
    if (failures == 0) printf("distinct: passed\n");
    return failures != 0;
}
