/* Communication kernels: how much each moved, how fast, and how much of its time no computation overlapped.
 *
 *   compute   ▓▓▓▓▓▓▓▓▓▓      ▓▓▓▓
 *   NCCL           ░░░░░░░░░░░░░
 *   exposed             |----|
 */
#ifndef FS_SUMMARIES_COLLECTIVES_H
#define FS_SUMMARIES_COLLECTIVES_H

#include "store/collective.h"
#include "store/store.h"
#include "work/collective_sizes.h"
#include "work/names.h"

/* Return whether an event is a communication kernel, by its recorded collective or by its name. `collective` (may be
 * NULL) receives the recorded collective. */
bool fs_collective_at(fs_names *names, const fs_chunk *chunk, uint32_t at, fs_collective *collective);

/* Return whether the event is a kernel, or the interval between two CUDA events, that does not communicate. */
bool fs_computes_at(fs_names *names, const fs_chunk *chunk, uint32_t at);

/* X(name, divisor from the stored number to the shown one, prose). NaN where there is no data. */
#define FS_COLLECTIVE_COLUMN_LIST(X)                                                                        \
    X(message_bytes, 1, "larger of the bytes that this rank sent and received, as defined by nccl-tests")   \
    X(duration, 1000, "ns, shown in µs; time of this rank's kernel, including the wait for other ranks")    \
    X(exposed, 1000, "ns, shown in µs; part of the duration during which no kernel computed on the device") \
    X(algorithm_gbytes_per_s, 1, "message_bytes / duration")                                                \
    X(bus_gbytes_per_s, 1, "algorithm bandwidth times the factor of the kind, comparable with a link's bandwidth")

typedef struct {
    fs_collective recorded;
    fs_collective_kind kind; /* as recorded by PyTorch, or by the enclosing ops, or by the kernel's name */
    int device;
    uint32_t name;            /* of the kernel: a name id of the store */
    uint32_t lane;            /* the stream; FS_NONE: unknown */
    uint32_t occurrence;      /* number of earlier rows of the device with the same group, kind and message */
    uint32_t step;            /* in which it was launched: a name id; FS_NONE: in none */
    uint32_t step_occurrence; /* number of earlier steps of the same name */
    int64_t start;            /* ns */
#define FS_COLLECTIVE_NUMBER(name, divisor, prose) double name;
    FS_COLLECTIVE_COLUMN_LIST(FS_COLLECTIVE_NUMBER)
#undef FS_COLLECTIVE_NUMBER
} fs_collective_row;

/* Compute one row per communication kernel with a known start, ordered by start. FS_OUT_OF_MEMORY. Release the rows
 * with fs_free; the store owns their texts. */
fs_status fs_collectives_of(const fs_store *store, fs_collective_row **rows, uint32_t *count, fs_error *err);

#endif
