/* FLOPs and bytes of HLO instructions (conventions: docs/counting.md). */
#ifndef FS_WORK_HLO_COST_H
#define FS_WORK_HLO_COST_H

#include "work/hlo/hlo.h"
#include "work/work.h"

typedef struct {
    fs_work work;
    double product_flops; /* those of dots, also as multiplications and sums, convolutions, attention, and library calls
                             for them; 0: none */
} fs_hlo_work;

/* How an instruction of a schedule appears on the device. */
typedef enum {
    FS_HLO_NOTHING, /* parameters, constants, bitcasts, tuples: no work */
    FS_HLO_RUNS,    /* a kernel, or several */
    FS_HLO_COPIES,  /* a copy between memories, or within one: a kernel or a memcpy */
    FS_HLO_CALLS,   /* its computations run: call, while, conditional, async-start with computations */
    FS_HLO_WAITS,   /* the end of an asynchronous instruction (…-done): the start has its work */
} fs_hlo_run;

fs_hlo_run fs_hlo_run_of(const fs_hlo_module *module, uint32_t instruction);

/* An instruction of the schedule that runs, and how often in one execution of the module (loops multiplied out; NaN: a
 * loop whose trip count is unknown encloses it; a branch of a conditional counts as if taken, and `branch` says so). */
typedef struct {
    uint32_t instruction;
    double calls;
    bool branch;
    fs_hlo_work work; /* of one execution */
} fs_hlo_step;

/* List the instructions of the entry's schedule that run or copy, each once for each place from which its computation
 * is called, in order. *steps is released with fs_free. FS_OUT_OF_MEMORY; FS_VALUE_ERROR if calls of calls make it
 * longer than any program's. */
fs_status fs_hlo_schedule(const fs_hlo_module *module, fs_hlo_step **steps, uint32_t *count, fs_error *err);

#endif
