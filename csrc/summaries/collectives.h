/* The kernels of communication: what each moved, how fast, and how much of it no computation hid.
 *
 *   compute   ▓▓▓▓▓▓▓▓▓▓      ▓▓▓▓
 *   NCCL           ░░░░░░░░░░░░░
 *   exposed             |----|
 */
#ifndef FS_SUMMARIES_COLLECTIVES_H
#define FS_SUMMARIES_COLLECTIVES_H

#include "store/collective.h"
#include "store/store.h"
#include "summaries/collective_kinds.h"
#include "work/names.h"

/* Whether an event is a kernel of communication: by what it was called for, or by its name. `told` may be NULL. */
bool fs_collective_at(fs_names *names, const fs_chunk *chunk, uint32_t at, fs_collective *told);

/* Whether it is a kernel, or the time of one between two CUDA events, and does not communicate. */
bool fs_computes_at(fs_names *names, const fs_chunk *chunk, uint32_t at);

/* X(name, how many of the number make one that is shown, prose). NaN where there is nothing to tell it from. */
#define FS_COLLECTIVE_COLUMN_LIST(X)                                                                            \
    X(message_bytes, 1, "the larger of what this rank gave and got: the size that nccl-tests goes by")          \
    X(duration, 1000, "ns, shown in µs; from when this rank's kernel began: with the wait for the other ranks") \
    X(exposed, 1000, "ns, shown in µs: of the duration, the time in which no kernel computed on the device")    \
    X(algorithm_gbytes_per_s, 1, "message over duration")                                                       \
    X(bus_gbytes_per_s, 1, "that times the factor of the kind, comparable with the speed of a link")

typedef struct {
    fs_collective told;
    fs_collective_kind kind; /* by what was called, as PyTorch or the ops around tell, or else by the kernel's name */
    int device;
    uint32_t name;       /* of the kernel, an id of the store's */
    uint32_t lane;       /* the stream; FS_NONE: not known */
    uint32_t occurrence; /* how many of this device before it had its group, kind and message */
    int64_t start;       /* ns */
#define FS_COLLECTIVE_NUMBER(name, divisor, prose) double name;
    FS_COLLECTIVE_COLUMN_LIST(FS_COLLECTIVE_NUMBER)
#undef FS_COLLECTIVE_NUMBER
} fs_collective_row;

/* A row per kernel of communication whose start is known, in order of it. FS_OUT_OF_MEMORY. Release the rows with
 * fs_free; their texts are the store's. */
fs_status fs_collectives_of(const fs_store *store, fs_collective_row **rows, uint32_t *count, fs_error *err);

#endif
