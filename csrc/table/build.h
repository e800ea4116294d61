/* The state that the steps of fs_table_build share. Private to csrc/table.
 *
 *   events ── parts ─► table->parts           what separates rows further, if anything does
 *   events ── survey ► calls, groups, slots     each piece of the events counts its calls; pieces merge in order
 *   events ── scan ──► nodes                    forward: children come after their parents
 *   device work ── busy ─► groups               in order of start: busy times are unions
 *   device work ── devices ──► nodes, groups    those of a launcher in order of start
 *   nodes ── totals ──► groups, samples         backward: every total is complete before its parent's
 *   groups ── table ──► rows
 *
 * Events are divided into slices (slices.h), which threads work on at once. The division follows from the events alone,
 * and everything is added up in the order of slices, so that a table does not depend on the number of threads. */
#ifndef FS_TABLE_BUILD_H
#define FS_TABLE_BUILD_H

#include "base/search.h"
#include "store/event.h"
#include "table/calls.h"
#include "table/counted.h"
#include "table/resources.h"
#include "table/table.h"
#include "work/kernel_work.h"

enum { FS_HOST, FS_DEVICE, FS_MEMORY_PLACES };

/* The most nested ranges with declared work to which device work is added. This bounds the time of a build; ranges
 * nested deeper have no rates. */
enum { FS_MOST_STATED = 256 };

/* Flags of a node. */
enum {
    FS_NODE_OWNS = 1,       /* has own device work: launched by it, by children that no rule counts, or, if its work is
                               declared, by anything nested in it */
    FS_NODE_FLOPS = 2,      /* FLOPs of some nested event are known */
    FS_NODE_MEMORY = 4,     /* memory changed within it */
    FS_NODE_UNTIMED = 8,    /* some nested device work was not recorded */
    FS_NODE_TENSOR = 16,    /* one of its own kernels uses tensor cores */
    FS_NODE_LISTED = 32,    /* kernels have supplied the work of its lists of tensors */
    FS_NODE_OBSCURE = 64,   /* no rule counts the FLOPs of some nested op or of anything in it */
    FS_NODE_SAVES = 128,    /* one of its own kernels does fewer FLOPs than counted (fs_kernel_saves_flops) */
    FS_NODE_CALLS = 256,    /* nested API calls launched work that was not recorded, as during graph capture */
    FS_NODE_CAPTURED = 512, /* FS_EVENT_CAPTURED */
    FS_NODE_YIELDS = 1024,  /* a launch of known work: a rule counts the op around it */
};

/* A host event that has children or launched work. Most events need no node. */
typedef struct {
    int64_t self_cpu_ns;     /* without its children; undefined if its duration is missing */
    int64_t covered_until;   /* recorded traces: latest end of the children so far */
    int64_t self_device_ns;  /* of the device work that it launched itself */
    int64_t device_ns;       /* plus all that its children launched */
    int64_t owned_device_ns; /* of the device work to which its own FLOPs and bytes belong */
    double flops;            /* known FLOPs of its children, and of kernels if only they determine them */
    double bytes;            /* likewise */
    double device_rounding;  /* of device_ns: fs_row */
    uint32_t call;
    uint32_t owner;        /* event id: the nearest op, itself included, that a rule counts; or FS_NONE */
    uint32_t stated;       /* event id: the nearest range, itself included, with declared work; or FS_NONE */
    uint32_t op;           /* event id: the nearest op, itself included; or FS_NONE */
    uint16_t stated_depth; /* number of enclosing ranges with declared work, itself included */
    bool buried;           /* a range with declared work nested deeper than FS_MOST_STATED: gets no device work */
    uint32_t launches;     /* number of its own device events; if 0, of ops with known work that ran on the CPU */
    uint32_t supplied;     /* of them: kernels whose work is known from their names */
    int8_t device;         /* index of the device that ran its work, -1 for none */
    uint16_t flags;
} fs_node;

/* The roofs of a node's own work; their sum is unknown until something was added. */
typedef struct {
    double compute_ns, memory_ns, least_ns;
    bool added;
} fs_node_roofs;

/* What rates a single node; see fs_table_rated. */
typedef struct {
    double flops, bytes_read, bytes_written, bytes_moved; /* of the node's own work */
    double launch_ns, kernel_ns, launches;                /* of all of its launches */
    int64_t busy_ns, busy_until;                          /* union of its device work so far */
    uint8_t timing;                                       /* of its device work; FS_TIMING_COUNT: none */
    bool partial, estimated, timed;
} fs_node_rate;

/* Change of memory in bytes, by place. */
typedef struct {
    int64_t self[FS_MEMORY_PLACES], total[FS_MEMORY_PLACES];
} fs_node_memory;

/* In a slice other than the first, only sums and samples are set, and device_timing. */
typedef struct {
    fs_row row;
    int64_t first_start, first_end; /* of the row's first event: earliest start, then latest end, then lowest index */
    uint32_t first;
    uint32_t sample_room; /* events of the row in the slice */
    uint64_t samples_begin, sample_count;
    fs_roof_sum roof; /* of the calls */
    /* CPU calls without known peaks, in a store with device work: excluded from the rates of a row that ran on a
     * device. */
    double unrated_flops, unrated_bytes;
    int64_t unrated_ns;
    int64_t host_ns; /* own host time of the calls whose work ran on the CPU; total time for ranges */
    int64_t unmodelled_ns, estimated_ns; /* device time whose bytes are unknown; whose work is a bound or an estimate */
    int64_t flops_estimated_ns;          /* device time of which only the FLOPs are an estimate */
    int64_t work_calls;                  /* number of op and range calls */
    uint8_t device_timing;               /* FS_TIMING_COUNT: no device work */
    bool untimed;                        /* the time of some work is unknown */
    bool owned_by_others;   /* some device work that it launched is that of a rule, or stated, for an event around it */
    bool unrecorded;        /* some calls have no recorded time: excluded from a row that ran on a device */
    bool flops_known;       /* of the row or of some nested event */
    int64_t repeated;       /* of a kernel: how many are one launch whose work is known, which the row shows too */
    fs_resources resources; /* of a kernel */
    bool stated, limited;   /* some work is that of launches: declared; an upper limit */
} fs_group;

/* What counters counted of all device work of a row: see counted_rows.h. */
typedef struct {
    double bytes_read, bytes_written, bytes_moved; /* bytes_moved: NaN unless the row is resolved */
    double active;                                 /* mean share of the cycles of the busiest unit, 0 to 1 */
    double compute_ns, memory_ns, l2_ns;           /* least times at the peaks */
    double busiest_ns;                             /* of the busiest of compute units and caches, which is: */
    fs_bound busiest;                              /* FS_BOUND_UNKNOWN: none was counted */
    double kernel_ns;                              /* of an empty kernel */
    int64_t ns;                                    /* durations of the work */
    bool whole; /* no unit that was not counted can have been busier than the memory and those that were */
} fs_counted_row;

/* An event's slot holds its call, or with this bit its node. A frame's slot holds the nearest enclosing non-frame. */
#define FS_SLOT_NODE (UINT32_C(1) << 31)

/* What a build computes for a call as its events are added. */
typedef struct {
    const fs_peaks *peaks;      /* used for `roof` */
    fs_roof roof;               /* of one call */
    bool has_roof, roof_tensor; /* roof_tensor: `roof` assumes tensor cores */
    /* Device work: whether the op of some such work has known FLOPs, known bytes, or unknown work; the time without an
     * op. */
    bool flops_linked, bytes_linked, linked_unknown;
    int64_t unlinked_ns;
    fs_launch_resources resources; /* of a kernel */
} fs_call_state;

/* The most slices of a build. */
enum { FS_MOST_SLICES = 64 };

/* Marks of events. */
enum {
    FS_MARK_NODE = 1,  /* has children or launched work */
    FS_MARK_SPANS = 2, /* has, or contains an event that has, children in a later piece */
};

typedef struct fs_build fs_build;
struct fs_build {
    const fs_store *store;
    const fs_table_options *options;
    fs_table *table;
    fs_chunk *const *chunks; /* of the store */
    uint32_t count;          /* events */
    uint32_t *slots;         /* by event */
    bool has_frames;
    uint32_t *parts; /* by event: id in table->parts; NULL: rows are not separated by anything of a part */
    fs_calls calls;
    fs_node *nodes;              /* room for every host event, filled from the front */
    fs_node_memory *memory;      /* by node; NULL where no event has memory */
    fs_kernel_context *contexts; /* by node; NULL where no kernel's name tells its work */
    fs_node_roofs *roofs;        /* by node; NULL unless works are listed */
    fs_node_rate *rates;         /* by node; NULL unless events are rated */
    uint32_t node_room;          /* not all of it is used */
    fs_call_state *states;       /* by call */
    uint8_t *marks;              /* by event: FS_MARK_… */
    uint32_t *works;             /* device events, in order of start */
    uint8_t *places;             /* by work: the slice whose events alone it changes, or slice_count; NULL: one slice */
    uint32_t work_count, device_count; /* device events, annotations too; devices */
    bool works_sorted;                 /* the store has them in this order */
    bool has_unlinked_work;            /* some device work has no known launcher */
    bool device_memory;                /* some device's memory changed */
    bool recorded;                     /* the store holds a recorded trace */
    int64_t torch_begin;               /* recorded traces: start of the trace; else FS_MISSING */
    int64_t shortest_kernel_ns;        /* of a recorded trace; 0: none */
    fs_group *groups;
    uint32_t group_count, group_capacity;
    int64_t *samples;
    fs_counted counted;
    fs_counted_sum *counted_sums; /* by group and counted device; NULL if nothing was counted */
    fs_counted_row *counted_rows; /* by group; likewise */

    /* A slice is a build with its own groups, states, and sums of its table. The first slice is the build itself. */
    uint32_t begin, end;   /* the slice's events */
    uint32_t slice_events; /* of each slice but the last */
    uint32_t slice_count;
    fs_build *rest; /* the slices after the first, and their sums */
    fs_table *sums;
    uint32_t *foreign;                      /* events before `begin` that have children in the slice, ascending; */
    uint32_t foreign_count, stand_in;       /* nodes from `stand_in` on add up for them */
    int64_t *first_children;                /* of these: the earliest start of a child in the slice */
    uint32_t *spanning;                     /* events with FS_MARK_SPANS, ascending; */
    uint32_t spanning_count, spanning_node; /* their nodes begin there */
    uint32_t next_node;                     /* of the slice's own events */
    uint32_t first_work, end_work;          /* in `works`: those that the slice adds */
};

/* As fs_event_chunk and FS_EVENT_AT. */
static inline const fs_chunk *fs_build_chunk(const fs_build *build, uint32_t index, uint32_t *at)
{
    *at = index & (FS_CHUNK_EVENTS - 1);
    return build->chunks[index >> FS_CHUNK_BITS];
}

#define FS_BUILD_AT(build, index, field) \
    ((build)->chunks[(index) >> FS_CHUNK_BITS]->field[(index) & (FS_CHUNK_EVENTS - 1)])

static inline fs_build *fs_build_slice(fs_build *build, uint32_t index)
{
    return index == 0 ? build : &build->rest[index - 1];
}

/* Return the event itself, or the nearest enclosing one that is not a frame; FS_NONE: none. */
static inline uint32_t fs_build_past_frames(const fs_build *build, uint32_t index)
{
    if (!build->has_frames || index >= build->count) return index;
    return FS_BUILD_AT(build, index, kind) == FS_EVENT_FRAME ? build->slots[index] : index;
}

/* Return the nearest enclosing event that is not a frame; FS_NONE: none. */
static inline uint32_t fs_build_parent(const fs_build *build, const fs_chunk *chunk, uint32_t at, uint32_t index)
{
    return chunk->parent[at] < index ? fs_build_past_frames(build, chunk->parent[at]) : FS_NONE;
}

/* Return the host event that launched device work; FS_NONE: unknown. */
static inline uint32_t fs_build_launcher(const fs_build *build, const fs_chunk *chunk, uint32_t at)
{
    return chunk->launcher[at] < build->count ? fs_build_past_frames(build, chunk->launcher[at]) : FS_NONE;
}

/* Return the event, or the nearest one around it, that has own host time from which to subtract its children; FS_NONE:
 * none. */
static inline uint32_t fs_build_timed(const fs_build *build, uint32_t index)
{
    uint32_t at;
    const fs_chunk *chunk = fs_build_chunk(build, index, &at);
    while (fs_event_is_asynchronous(chunk, at)) {
        index = fs_build_parent(build, chunk, at, index);
        if (index == FS_NONE) break;
        chunk = fs_build_chunk(build, index, &at);
    }
    return index;
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

/* Return the node of an event that has children or launched work. */
static inline fs_node *fs_build_node(const fs_build *build, uint32_t index)
{
    return &build->nodes[build->slots[index] & ~FS_SLOT_NODE];
}

/* Return the node that adds up what the children of an event do: of an event before the slice, its stand-in. */
static inline fs_node *fs_build_above(const fs_build *slice, uint32_t index)
{
    if (index >= slice->begin) return fs_build_node(slice, index);
    return &slice->nodes[slice->stand_in + FS_FIRST_NOT(i, 0, slice->foreign_count - 1, slice->foreign[i] < index)];
}

/* Return by how much a duration in µs, computed as the difference of two doubles since the trace began, exceeds the
 * exact one. */
static inline double fs_build_rounding(const fs_build *build, int64_t start, int64_t duration)
{
    if (build->torch_begin == FS_MISSING || start == FS_MISSING) return 0;
    int64_t begin = fs_sub_saturated(start, build->torch_begin);
    double from = (double)begin / 1000, to = (double)fs_add_saturated(begin, duration) / 1000;
    return (to - from) - (double)duration / 1000;
}

/* Return what rates a node; NULL unless events are rated, and for a leaf, which has no node of its own. */
static inline fs_node_rate *fs_build_rate(const fs_build *build, const fs_node *node)
{
    if (build->rates == NULL || node < build->nodes || node >= build->nodes + build->node_room) return NULL;
    return &build->rates[node - build->nodes];
}

/* Add work and its roof to those of a node, if works are listed. */
static inline void fs_build_add_roofs(fs_build *build, const fs_node *node, const fs_roof *roof, const fs_work *work)
{
    if (build->roofs == NULL) return;
    if (node < build->nodes || node >= build->nodes + build->node_room) return; /* a leaf launches nothing */
    fs_node_roofs *roofs = &build->roofs[node - build->nodes];
    fs_node_rate *rate = fs_build_rate(build, node);
    if (rate != NULL) {
        rate->flops += work->flops;
        rate->bytes_read += work->bytes_read;
        rate->bytes_written += work->bytes_written;
        rate->bytes_moved += work->bytes_moved;
        rate->partial = rate->partial || roof->partial;
        rate->estimated = rate->estimated || work->at_most;
    }
    roofs->compute_ns += roof->compute_ns;
    roofs->memory_ns += roof->memory_ns;
    roofs->least_ns += roof->least_ns;
    roofs->added = true;
}

/* Note of a row what the work of a launch in it rests on. */
static inline void fs_build_mark_launch(fs_group *group, const fs_work *work)
{
    group->stated = group->stated || work->stated;
    group->limited = group->limited || work->at_most;
}

static inline bool fs_build_ran_on_device(const fs_group *group)
{
    return group->device_timing != FS_TIMING_COUNT;
}

#endif
