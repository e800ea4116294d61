/* Properties of a device that a source recorded, for occupancy and a trace's header. */
#ifndef FS_STORE_DEVICE_FACTS_H
#define FS_STORE_DEVICE_FACTS_H

#include <stdint.h>

/* X(name, name in Kineto's deviceProperties, description); -1 if the source cannot know the property */
#define FS_DEVICE_FACT_LIST(X)                                                          \
    X(total_memory, totalGlobalMem, "bytes")                                            \
    X(compute_major, computeMajor, "compute capability")                                \
    X(compute_minor, computeMinor, "compute capability")                                \
    X(max_threads_per_block, maxThreadsPerBlock, "threads")                             \
    X(max_threads_per_sm, maxThreadsPerMultiprocessor, "threads")                       \
    X(registers_per_block, regsPerBlock, "32-bit registers")                            \
    X(warp_size, warpSize, "threads")                                                   \
    X(shared_memory_per_block, sharedMemPerBlock, "bytes, the default limit")           \
    X(sm_count, numSms, "streaming multiprocessors")                                    \
    X(registers_per_sm, regsPerMultiprocessor, "32-bit registers")                      \
    X(shared_memory_per_block_optin, sharedMemPerBlockOptin, "bytes, the opt-in limit") \
    X(shared_memory_per_sm, sharedMemPerMultiprocessor, "bytes")                        \
    X(max_blocks_per_sm, maxBlocksPerMultiprocessor, "blocks; absent from Kineto")      \
    X(l2_bytes, l2CacheSize, "bytes; absent from Kineto")

typedef struct {
    char name[128];      /* as the driver reports it: "NVIDIA H200"; "" if unknown */
    int64_t accelerator; /* an fs_accelerator (store/accelerator.h) */
#define FS_DEVICE_FACT(name, trace_name, prose) int64_t name;
    FS_DEVICE_FACT_LIST(FS_DEVICE_FACT)
#undef FS_DEVICE_FACT
} fs_device_facts;

/* All properties unknown. */
extern const fs_device_facts fs_device_facts_missing;

#endif
