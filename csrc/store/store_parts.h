/* What a store consists of. Private to csrc/store. */
#ifndef FS_STORE_STORE_PARTS_H
#define FS_STORE_STORE_PARTS_H

#include "base/lock.h"
#include "store/chunks.h"
#include "store/samples.h"
#include "store/stacks.h"
#include "store/store.h"

/* Open events of a suspended task. */
typedef struct {
    uint32_t lane, open, first;
    uint64_t task;
} fs_aside;

typedef struct {
    fs_counter_tracks tracks;
    fs_stacks stacks;
} fs_store_samples;

struct fs_store {
    fs_lock lock;
    uint64_t serial; /* distinguishes stores in thread_cache, as addresses may be reused */
    uint32_t count;
    fs_chunks chunks;
    fs_intern names, signatures;
    fs_intern lane_keys; /* device and id of each lane, ids as in lanes */
    fs_lane *lanes;
    uint32_t lane_count, lane_capacity;
    fs_aside *asides;
    uint32_t aside_count, aside_capacity;
    int64_t window[2];
    fs_device_facts *devices;
    int device_count;
    fs_store_samples *samples; /* its own block, so that a const store gives access to it */
};

/* A field of an event. */
#define FS_STORE_AT(store, index, field) \
    ((store)->chunks.at[(index) >> FS_CHUNK_BITS]->field[(index) & (FS_CHUNK_EVENTS - 1)])

#endif
