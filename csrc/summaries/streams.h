/* How long each stream of each device worked, beside which others, and how much of its communication was exposed. */
#ifndef FS_SUMMARIES_STREAMS_H
#define FS_SUMMARIES_STREAMS_H

#include "store/store.h"

/* X(name, how many of the number make one that is shown, prose). Times are in ns, shown in µs. */
#define FS_STREAM_LIST(X)                                                                       \
    X(kernels, 1, "kernels")                                                                    \
    X(copies, 1, "copies and fills")                                                            \
    X(busy, 1000, "time in which it worked: kernels, copies, fills; what overlaps counts once") \
    X(overlapped, 1000, "of that, time in which another stream of the device worked too")       \
    X(overlapped_pct, 1, "that of the busy time, in percent; NaN where there is none")          \
    X(communication, 1000, "time in which a kernel of communication ran")                       \
    X(exposed_communication, 1000, "of that, time in which no kernel computed on the device")   \
    X(exposed_pct, 1, "that of the communication, in percent; NaN where there is none")

typedef struct {
    int device;
    bool whole;      /* the device as a whole */
    uint64_t stream; /* its id, where that is not so */
#define FS_STREAM_FIELD(name, divisor, prose) double name;
    FS_STREAM_LIST(FS_STREAM_FIELD)
#undef FS_STREAM_FIELD
} fs_stream_row;

/* Of each device that worked, ascending: a row for each of its streams in the order of their ids, then one for the
 * device as a whole, which alone has work whose stream is not known. FS_OUT_OF_MEMORY. Release the rows with fs_free.
 */
fs_status fs_streams_of(const fs_store *store, fs_stream_row **rows, uint32_t *count, fs_error *err);

#endif
