/* How long a launch takes to arrive on an idle device. */
#ifndef FS_SUMMARIES_ARRIVAL_H
#define FS_SUMMARIES_ARRIVAL_H

#include <stdint.h>

/* Return the median of delays in ns, each from the return of a call to the start of the work that it launched on an
 * idle device: 2 us on an H200, 14 to 24 us on an MI300. At most 100 us, as no launch is on its way for longer; 0 if
 * there are none. Negative delays count as 0. Puts the delays in another order. */
int64_t fs_arrival_of(int64_t *delays, uint32_t count);

#endif
