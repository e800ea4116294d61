/* The median, since most launches onto an idle device arrive undisturbed, and at most 100 µs, since a delay that long
 * has another cause than the launch. Clocks that contradict each other make delays below 0, which count as 0. */
#include "summaries/arrival.h"

#include "base/statistics.h"

enum { LONGEST_NS = 100000 };

int64_t fs_arrival_of(int64_t *delays, uint32_t count)
{
    if (count == 0) return 0;
    for (uint32_t i = 0; i < count; i++) delays[i] = delays[i] > 0 ? delays[i] : 0;
    double median = fs_median_of(delays, count);
    return median < LONGEST_NS ? (int64_t)median : LONGEST_NS;
}
