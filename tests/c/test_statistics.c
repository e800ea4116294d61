/* Order statistics against a sorted copy. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/statistics.h"
#include "tests/c/check.h"

enum { MOST = 5000 };

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static double quantile(const int64_t *sorted, size_t count, double share)
{
    double place = share * (double)(count - 1), low = floor(place);
    size_t rank = (size_t)low, next = rank + 1 < count ? rank + 1 : rank;
    return (double)sorted[rank] + (place - low) * ((double)sorted[next] - (double)sorted[rank]);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

static void check(const int64_t *samples, size_t count)
{
    int64_t sorted[MOST], used[MOST];
    double mean = 0, squares = 0;
    memcpy(sorted, samples, count * sizeof *sorted);
    memcpy(used, samples, count * sizeof *used);
    qsort(sorted, count, sizeof *sorted, compare);
    for (size_t i = 0; i < count; i++) mean += (double)samples[i] / (double)count;
    for (size_t i = 0; i < count; i++) squares += ((double)samples[i] - mean) * ((double)samples[i] - mean);
    fs_statistics found = fs_statistics_of(used, count);
    CHECK(found.min == (double)sorted[0] && found.max == (double)sorted[count - 1]);
    CHECK(near(found.median, quantile(sorted, count, 0.5)) && near(found.p95, quantile(sorted, count, 0.95)));
    CHECK(count == 1 ? isnan(found.std) : fabs(found.std - sqrt(squares / (double)(count - 1))) <= 1e-9 * found.max);
}

static void test_samples_in_any_order(void)
{
    int64_t samples[MOST];
    srand(3);
    for (size_t count = 1; count <= MOST; count = count < 300 ? count + 7 : count * 2 - 1) {
        for (size_t i = 0; i < count; i++) samples[i] = rand() % 1000003 + 1;
        check(samples, count);
        for (size_t i = 0; i < count; i++) samples[i] = rand() % 3 + 1;
        check(samples, count);
        for (size_t i = 0; i < count; i++) samples[i] = (int64_t)i + 1;
        check(samples, count);
        for (size_t i = 0; i < count; i++) samples[i] = (int64_t)(count - i);
        check(samples, count);
        for (size_t i = 0; i < count; i++)
            samples[i] = (int64_t)(i < count / 2 ? i : count - i) + 1; /* an organ pipe */
        check(samples, count);
    }
}

static void test_the_ends_of_the_range(void)
{
    int64_t samples[] = {INT64_MAX, -INT64_MAX, INT64_MAX, -INT64_MAX};
    fs_statistics found = fs_statistics_of(samples, 4);
    CHECK(found.min == -(double)INT64_MAX && found.max == (double)INT64_MAX && found.median == 0);
    CHECK(isnan(fs_statistics_of(samples, 0).median) && isnan(fs_statistics_of(samples, 0).std));
}

int main(void)
{
    test_samples_in_any_order();
    test_the_ends_of_the_range();
    if (failures == 0) printf("statistics: passed\n");
    return failures != 0;
}
