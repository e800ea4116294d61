/* The state that the steps of fs_table_build share. Private to csrc/table.
 *
 *   events ── scan ──► calls, nodes, groups     forward: children come after their parents
 *   device work ── devices ──► nodes, groups    in order of start: busy times are unions
 *   nodes ── totals ──► groups, samples         backward: every total is complete before its parent's
 *   groups ── table ──► rows
 */
#ifndef FS_TABLE_BUILD_H
#define FS_TABLE_BUILD_H

#include "store/event.h"
#include "table/calls.h"
#include "table/table.h"

enum { FS_HOST, FS_DEVICE, FS_MEMORY_PLACES };

/* Device work counts for each range around it whose work is stated. So many of them, one in the other, keep the time
 * that takes within bounds; the ranges in those have no rates. */
enum { FS_MOST_STATED = 256 };

/* What a node was seen to be. */
enum {
    FS_NODE_OWNS = 1,    /* device work counts as its own: it launched it, or what it encloses and no rule knows did, or
                            its work is stated and anything that it encloses did */
    FS_NODE_FLOPS = 2,   /* FLOPs of something that it encloses are known */
    FS_NODE_MEMORY = 4,  /* memory changed within */
    FS_NODE_UNTIMED = 8, /* device work that it encloses was not seen */
    FS_NODE_TENSOR = 16, /* a kernel of its own device work uses tensor cores */
    FS_NODE_LISTED = 32, /* kernels have told the work of its lists of tensors */
    FS_NODE_OBSCURE = 64, /* it encloses an op of which, and of all in it, no rule knows the FLOPs */
    FS_NODE_SAVES = 128, /* a kernel of its own device work does fewer FLOPs than counted (fs_kernel_saves_flops) */
    FS_NODE_CALLS = 256, /* API calls within launched something that was not seen, as while a graph is captured */
};

/* A host event that encloses or launched something; the others, most of them, go without. */
typedef struct {
    int64_t self_cpu_ns;     /* without its children; meaningless while its own duration is missing */
    int64_t covered_until;   /* of a recorded trace: when the last of its children so far ended */
    int64_t self_device_ns;  /* of the device work that it launched */
    int64_t device_ns;       /* and of all that its children launched */
    int64_t owned_device_ns; /* of the device work that its own FLOPs and bytes are the work of */
    double flops;            /* of its children, as far as known; and of kernels, where only those tell it */
    double bytes;            /* of its children, likewise */
    double device_rounding;  /* of device_ns: fs_row */
    uint32_t call;
    uint32_t owner;  /* the nearest op that a rule knows, itself included, or FS_NONE: an event */
    uint32_t stated; /* the nearest range whose work is stated, itself included, or FS_NONE: an event */
    uint32_t op;     /* the nearest op, itself included, or FS_NONE: an event */
    uint16_t stated_depth; /* such ranges around it, itself included */
    bool buried; /* a range whose work is stated, in FS_MOST_STATED of them: device work in it counts for those only */
    uint32_t launches; /* device work that counts as its own; without such, the ops of known work that the CPU did */
    int8_t device;   /* that its work ran on, -1 for none */
    uint16_t flags;
} fs_node;

/* Change of memory in bytes, by place. */
typedef struct {
    int64_t self[FS_MEMORY_PLACES], total[FS_MEMORY_PLACES];
} fs_node_memory;

typedef struct {
    fs_row row;
    int64_t first_start, first_end; /* of the row's first event: the least start, of those the largest end */
    uint64_t samples_begin, sample_count;
    fs_roof_sum roof; /* of the calls */
    /* Of calls that the CPU did, of which no peaks are known, in a store with device work: they are no part of the
     * rates of a row that ran on a device. */
    double unrated_flops, unrated_bytes;
    int64_t unrated_ns;
    int64_t host_ns; /* own host time of the calls whose work ran on the CPU; of ranges, what they enclose too */
    int64_t unmodelled_ns, estimated_ns; /* of device work whose bytes no rule knows; are told by kernels, at most */
    int64_t work_calls;                  /* of ops and ranges, which may have work */
    uint8_t device_timing;               /* FS_TIMING_COUNT: no device work */
    bool untimed;                        /* the time of some work is not known */
    bool unseen;                         /* nor is that of some calls: a row that ran on a device leaves them out */
    bool flops_known;                    /* of the rows or something that they enclose */
} fs_group;

/* An event's slot holds its call, or with this bit its node. A frame's slot holds the event around it that is none. */
#define FS_SLOT_NODE (UINT32_C(1) << 31)

typedef struct {
    const fs_store *store;
    const fs_table_options *options;
    fs_table *table;
    uint32_t count;  /* events */
    uint32_t *slots; /* by event */
    bool has_frames;
    /* Where rows are grouped by stack, by event: the innermost frame around it or FS_NONE, its id in table->stacks. */
    uint32_t *frames, *stacks;
    uint32_t *entries; /* room for one stack, of entry_capacity */
    uint32_t entry_capacity;
    fs_calls calls;
    fs_node *nodes;         /* room for every host event, filled from the front */
    fs_node_memory *memory; /* by node; NULL where no event has memory */
    uint32_t node_count;
    uint32_t work_count, device_count; /* device events, annotations too; devices */
    bool works_sorted;                 /* they come in order of start */
    bool has_unlinked_work;            /* device work that ran for nobody knows what */
    bool device_memory;                /* memory of a device changed */
    bool recorded;                     /* the store holds a recorded trace */
    int64_t torch_begin;               /* of a recorded trace: when it began, else FS_MISSING */
    int64_t least_kernel_ns;           /* the shortest kernel of a recorded trace, 0 without one */
    fs_group *groups;
    uint32_t group_count, group_capacity;
    int64_t *samples;
} fs_build;

/* The event itself, or the nearest around it that is no frame; FS_NONE: none. */
static inline uint32_t fs_build_past_frames(const fs_build *build, uint32_t index)
{
    if (!build->has_frames || index >= build->count) return index;
    return FS_EVENT_AT(build->store, index, kind) == FS_EVENT_FRAME ? build->slots[index] : index;
}

/* The event that encloses this one, frames looked through; FS_NONE: none. */
static inline uint32_t fs_build_parent(const fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    return chunk->parent[at] < index ? fs_build_past_frames(build, chunk->parent[at]) : FS_NONE;
}

static inline fs_call *fs_build_call(const fs_build *build, uint32_t index)
{
    uint32_t slot = build->slots[index];
    return &build->calls.calls[slot & FS_SLOT_NODE ? build->nodes[slot & ~FS_SLOT_NODE].call : slot];
}

static inline fs_group *fs_build_group(const fs_build *build, uint32_t index)
{
    return &build->groups[fs_build_call(build, index)->row];
}

static inline bool fs_build_is_device(const fs_chunk *chunk, uint32_t at)
{
    return fs_event_lies_on_device(chunk->kind[at], chunk->device[at]);
}

/* What a time in µs is above its true value once it is the difference of two doubles, since the trace began. */
static inline double fs_build_rounding(const fs_build *build, int64_t start, int64_t duration)
{
    if (build->torch_begin == FS_MISSING || start == FS_MISSING) return 0;
    int64_t begin = fs_sub_saturated(start, build->torch_begin);
    double from = (double)begin / 1000, to = (double)fs_add_saturated(begin, duration) / 1000;
    return (to - from) - (double)duration / 1000;
}

static inline bool fs_build_ran_on_device(const fs_group *group)
{
    return group->device_timing != FS_TIMING_COUNT;
}

#endif
