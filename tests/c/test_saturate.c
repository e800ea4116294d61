/* Saturating arithmetic, compared with 128-bit arithmetic. */
#include "base/saturate.h"
#include "tests/c/check.h"

static int64_t bounded(__int128 value)
{
    if (value > INT64_MAX) return INT64_MAX;
    return value < -INT64_MAX ? -INT64_MAX : (int64_t)value;
}

int main(void)
{
    static const int64_t values[] = {
        0,
        1,
        -1,
        2,
        -2,
        1000,
        -7,
        INT64_C(1) << 31,
        INT64_C(1) << 32,
        -(INT64_C(1) << 32),
        INT64_C(1) << 62,
        -(INT64_C(1) << 62),
        INT64_MAX - 1,
        INT64_MAX,
        -INT64_MAX,
        INT64_MIN,
    };
    enum { COUNT = sizeof values / sizeof *values };
    for (int i = 0; i < COUNT; i++) {
        for (int j = 0; j < COUNT; j++) {
            int64_t a = values[i], b = values[j], sum = a, rest = a;
            fs_add_to(&sum, b);
            fs_take_from(&rest, b);
            CHECK(sum == bounded((__int128)a + b) && fs_add_saturated(a, b) == sum, "%d, %d", i, j);
            CHECK(rest == bounded((__int128)a - b) && fs_sub_saturated(a, b) == rest, "%d, %d", i, j);
            CHECK(fs_mul_saturated(a, b) == bounded((__int128)a * b), "%d, %d", i, j);
        }
    }
    CHECK(fs_product_of_three((uint32_t[]){2, 3, 5}) == 30);
    CHECK(fs_product_of_three((uint32_t[]){UINT32_MAX, UINT32_MAX, UINT32_MAX}) == INT64_MAX);
    CHECK(fs_product_of_three((uint32_t[]){UINT32_MAX, UINT32_MAX, 0}) == 0);
    return failures > 0;
}
