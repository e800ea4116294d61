/* The calls of collectives on the host: which of them ran. */
#ifndef FS_SUMMARIES_COLLECTIVE_CALLS_H
#define FS_SUMMARIES_COLLECTIVE_CALLS_H

#include "store/collective.h"
#include "store/store.h"
#include "work/collective_sizes.h"

typedef struct {
    fs_collective recorded;
    fs_collective_kind kind;
    int64_t start; /* ns */
    bool ran;      /* whether device work that the call launched is in the store */
} fs_collective_call;

/* Compute one row per op with a recorded collective (record_param_comms), ordered as in the store. FS_OUT_OF_MEMORY.
 * Release the rows with fs_free; the store owns their texts. */
fs_status fs_collective_calls_of(const fs_store *store, fs_collective_call **rows, uint32_t *count, fs_error *err);

#endif
