/* An anchor is one instant on three clocks. Of fifty readings the one whose two host times are closest is kept, so a
 * reading that was interrupted does not count. Between two anchors time is linear; a rate within 0.1 % of 1 is taken as
 * 1, because over a short profile the jitter of the anchors is larger than any drift. */
#include "sources/counters/anchor.h"

#include <math.h>

#include "base/clock.h"
#include "sources/counters/library.h"

enum { TRIES = 50 };

fs_anchor fs_anchor_take(void)
{
    fs_anchor best = {0};
    int64_t shortest = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t theirs = 0;
        int64_t before = fs_clock_now();
        int64_t unix_time = fs_clock_unix_now();
        if (fs_counters->timestamp(&theirs) != FS_COUNTERS_SUCCESS) continue;
        int64_t after = fs_clock_now();
        if (after - before >= shortest) continue;
        shortest = after - before;
        best = (fs_anchor){theirs, before + shortest / 2, unix_time + shortest / 2};
    }
    return best;
}

int64_t fs_anchor_convert(const fs_anchor *from, const fs_anchor *to, uint64_t time, bool to_unix)
{
    double rate = to->cupti > from->cupti ? (double)(to->host - from->host) / (double)(to->cupti - from->cupti) : 1;
    if (fabs(rate - 1) < 1e-3) rate = 1; /* ns: the anchors' jitter would only disturb it */
    int64_t elapsed = llround((double)(int64_t)(time - from->cupti) * rate);
    return (to_unix ? from->unix_time : from->host) + elapsed;
}
