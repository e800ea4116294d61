/* What a source saw of a device that its events ran on: what occupancy and a trace's header need. */
#ifndef FS_STORE_DEVICE_FACTS_H
#define FS_STORE_DEVICE_FACTS_H

#include <stdint.h>

/* X(name, name in Kineto's deviceProperties, prose); each is -1 where the source cannot know it. */
#define FS_DEVICE_FACT_LIST(X)                                                       \
    X(total_memory, totalGlobalMem, "bytes")                                         \
    X(compute_major, computeMajor, "compute capability")                             \
    X(compute_minor, computeMinor, "compute capability")                             \
    X(max_threads_per_block, maxThreadsPerBlock, "threads")                          \
    X(max_threads_per_sm, maxThreadsPerMultiprocessor, "threads")                    \
    X(registers_per_block, regsPerBlock, "32-bit registers")                         \
    X(warp_size, warpSize, "threads")                                                \
    X(shared_memory_per_block, sharedMemPerBlock, "bytes, without asking for more")  \
    X(sm_count, numSms, "streaming multiprocessors")                                 \
    X(registers_per_sm, regsPerMultiprocessor, "32-bit registers")                   \
    X(shared_memory_per_block_optin, sharedMemPerBlockOptin, "bytes, at most")       \
    X(shared_memory_per_sm, sharedMemPerMultiprocessor, "bytes")                     \
    X(max_blocks_per_sm, maxBlocksPerMultiprocessor, "blocks; Kineto has it not")

typedef struct {
    char name[128]; /* as the driver reports it: "NVIDIA H200"; "" where not known */
#define FS_DEVICE_FACT(name, trace_name, prose) int64_t name;
    FS_DEVICE_FACT_LIST(FS_DEVICE_FACT)
#undef FS_DEVICE_FACT
} fs_device_facts;

/* Nothing known. */
extern const fs_device_facts fs_device_facts_missing;

#endif
