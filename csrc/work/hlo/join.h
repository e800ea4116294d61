/* Gives the kernels of a recording the instructions of HLO that launched them, whatever its source.
 *
 *   works of a device, by launch ──┐
 *                                  ├─ align.h ─► events of the recording, with an op for each execution of an
 *   schedules of the modules ──────┘             instruction before its kernels, in its scopes and source lines
 *
 * An op has the name of the instruction, tensors as its operands, and FLOPs and bytes of hlo/cost.h; it is
 * FS_EVENT_REPLAYED, as the program did not call it. Around it are Python calls (frames): "scope: jvp(attention)" for
 * each part of its op_name but the last, and "train.py(12): step" for each frame of the stack of its metadata. The
 * kernel of a collective gets that (hlo/collective.h) with its launch, unless it has one. Works that already belong to
 * an op are left as they are. */
#ifndef FS_WORK_HLO_JOIN_H
#define FS_WORK_HLO_JOIN_H

#include "store/store.h"
#include "work/hlo/hlo.h"

/* A work of which the instruction is known. */
typedef struct {
    uint32_t event;
    uint32_t module, instruction; /* index of the module */
} fs_hlo_given;

typedef struct {
    int64_t works;                      /* kernels, copies and fills without an op */
    int64_t by_name, by_order, guessed; /* of them: tied, as fs_tie_proof */
    int64_t kernel_ns, tied_ns;         /* of the kernels among them, and of the tied ones */
    int64_t executions;                 /* of modules */
    int64_t instructions;               /* executions of them */
} fs_hlo_report;

/* Copy the events of a store into an empty one, with the ops. given: ascending by event. FS_OUT_OF_MEMORY;
 * FS_VALUE_ERROR of fs_hlo_schedule; FS_INTERRUPTED. */
fs_status fs_hlo_join(const fs_store *from, const fs_hlo_module *modules, uint32_t module_count,
                      const fs_hlo_given *given, uint32_t given_count, fs_store *into, fs_hlo_report *report,
                      fs_error *err);

/* The instructions that XLA names by NVTX while it runs them, in recordings of such ranges. */

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
