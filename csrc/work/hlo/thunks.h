/* The instructions that XLA names by NVTX while it runs them, in recordings of such ranges. */
#ifndef FS_WORK_HLO_THUNKS_H
#define FS_WORK_HLO_THUNKS_H

#include "store/store.h"

enum { FS_THUNK_NAME_BYTES = 256 };

typedef struct {
    char module[FS_THUNK_NAME_BYTES]; /* "": not told */
    char instruction[FS_THUNK_NAME_BYTES];
} fs_hlo_thunk;

/* Read what the ranges around the device work's launch tell: false if they name no instruction.
 *
 *   TSL: XlaModule:#prefix=jit(step),hlo_module=jit_step,program_id=12#
 *     TSL: Thunk:#name=dot_general,hlo_op=fusion.3,unique_hlo_op_id=4294967299# ── launched the work */
bool fs_hlo_thunk_of(const fs_store *store, uint32_t work, fs_hlo_thunk *thunk);

#endif
