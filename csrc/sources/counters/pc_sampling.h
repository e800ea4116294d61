/* PC sampling: at which source lines the warps of kernels are, and what they wait for. CUPTI looks at a warp of each
 * scheduler every few thousand cycles; kernels run as always. One at a time in a process. */
#ifndef FS_SOURCES_COUNTERS_PC_SAMPLING_H
#define FS_SOURCES_COUNTERS_PC_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sources/counters/sass.h"

enum { FS_PC_REASONS = 32 };

typedef struct {
    char *kernel, *file;            /* file: NULL if the code of the kernel has no lines, or was not seen */
    uint32_t line;                  /* 0: unknown */
    uint64_t offset;                /* of the instruction in the kernel's code, if the line is unknown */
    char instruction[FS_SASS_NAME]; /* its name then; "": unknown */
    uint64_t module;                /* the CRC of the kernel's; 0: of several */
    uint64_t samples, by_reason[FS_PC_REASONS];
} fs_pc_row;

typedef struct {
    char *kernel;
    uint32_t counts[FS_SASS_KINDS];
} fs_pc_code;

typedef struct {
    fs_pc_row *rows; /* those with most samples first */
    uint32_t count, capacity;
    fs_pc_code *codes; /* of the kernels whose code was seen */
    uint32_t code_count, code_capacity;
    const char *reasons[FS_PC_REASONS]; /* the counter of these waits in chips.def, else CUPTI's name; NULL: none */
    uint64_t lost, unknown;             /* samples: for lack of memory; of kernels that CUPTI does not know */
} fs_pc_samples;

/* Begin to sample the kernels on a device whose primary context is active, every 2^period cycles, which takes 0.3 s;
 * evict: as fs_cupti_watch. FS_RUNTIME_ERROR says why that is unavailable: a profile is in progress, counters are in
 * use, … */
fs_status fs_pc_sampling_start(int device, uint32_t period, bool evict, fs_error *err);

/* End it. Wait for the device before. On failure nothing is sampled any more either, and `samples` is empty. */
fs_status fs_pc_sampling_stop(fs_pc_samples *samples, fs_error *err);

void fs_pc_samples_clear(fs_pc_samples *samples);

#endif
