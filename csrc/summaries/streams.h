/* How long each stream of each device was busy, how much it overlapped other streams, and how much of its communication
 * was exposed. */
#ifndef FS_SUMMARIES_STREAMS_H
#define FS_SUMMARIES_STREAMS_H

#include "store/store.h"

/* X(name, divisor from the stored number to the shown one, prose). Times are stored in ns and shown in µs. */
#define FS_STREAM_LIST(X)                                                                                 \
    X(kernels, 1, "kernels")                                                                              \
    X(copies, 1, "copies and fills")                                                                      \
    X(busy, 1000, "union of the times of its kernels, copies and fills")                                  \
    X(overlapped, 1000, "part of busy during which another stream of the device was busy")                \
    X(overlapped_pct, 1, "overlapped / busy, in percent; NaN if busy is 0")                               \
    X(communication, 1000, "time during which a communication kernel ran")                                \
    X(exposed_communication, 1000, "part of communication during which no kernel computed on the device") \
    X(exposed_pct, 1, "exposed_communication / communication, in percent; NaN if communication is 0")

typedef struct {
    int device;
    bool whole;      /* the row of the whole device */
    uint64_t stream; /* id, unless `whole` */
#define FS_STREAM_FIELD(name, divisor, prose) double name;
    FS_STREAM_LIST(FS_STREAM_FIELD)
#undef FS_STREAM_FIELD
} fs_stream_row;

/* Compute the rows of each device that has work, in ascending order: one row per stream, by id, then one for the whole
 * device, which also includes work of unknown streams. FS_OUT_OF_MEMORY. Release the rows with fs_free. */
fs_status fs_streams_of(const fs_store *store, fs_stream_row **rows, uint32_t *count, fs_error *err);

#endif
