/* A table: rows grouped from a store, with self and total times, statistics, work and roofline. All numbers are
 * computed here; views only format them. The columns are listed in columns.def. */
#ifndef FS_TABLE_TABLE_H
#define FS_TABLE_TABLE_H

#include "device/occupancy.h"
#include "roofline/roofline.h"
#include "store/store.h"

enum { FS_MAX_CUDA_DEVICES = 64 };

/* Units of columns. X(unit, shown as, divisor from the stored number to the shown one) */
#define FS_COLUMN_UNITS(X)            \
    X(ns, "µs", 1000)                 \
    X(bytes, "bytes", 1)              \
    X(flops, "FLOP", 1)               \
    X(tflops_per_s, "TFLOP/s", 1)     \
    X(gbytes_per_s, "GB/s", 1)        \
    X(flops_per_byte, "FLOP/byte", 1) \
    X(percent, "%", 1)                \
    X(ratio, "", 1)

/* What separates rows further than their names. X(NAME, name, prose) */
#define FS_GROUPING_LIST(X)                                                              \
    X(DTYPE, dtype, "dtypes of the inputs of ops")                                       \
    X(OVERLOAD, overload, "overload of ops, where it was recorded")                      \
    X(STEP, step, "step around the event, or around the launch of device work")          \
    X(STREAM, stream, "device and stream of device work")                                \
    X(LINE, line, "innermost Python function of the program around the event or launch") \
    X(MODULE, module, "module (torch.nn.Module) around the event, the launch or the op of the forward pass")

typedef enum {
#define FS_GROUPING_ENUM(NAME, name, prose) FS_GROUPING_##NAME,
    FS_GROUPING_LIST(FS_GROUPING_ENUM)
#undef FS_GROUPING_ENUM
        FS_GROUPING_COUNT
} fs_grouping;

/* Where a number of a row comes from: FS_SOURCE_NONE of one that is unknown, and the rows of sources.def. */
typedef enum {
    FS_SOURCE_NONE,
#define FS_SOURCE(NAME, name, meaning) FS_SOURCE_##NAME,
#include "table/sources.def"
#undef FS_SOURCE
    FS_SOURCE_COUNT
} fs_source;

extern const char *const fs_source_names[FS_SOURCE_COUNT], *const fs_source_meanings[FS_SOURCE_COUNT];

typedef struct {
    bool by_shape;        /* separate rows by input shapes */
    uint32_t groupings;   /* bits 1 << FS_GROUPING_…: separate rows by these too */
    uint32_t stack_depth; /* separate rows by this many innermost frames of the stack; 0: no stacks */
    bool works;           /* list the pieces of work: fs_table.works */
    bool ratings;         /* with works: rate single events too: fs_table.rated */
    bool calls;           /* tell the call of each event: fs_table.calls */
    bool brief;           /* leave out the statistics of single times, the coverage, and torch's rounding */
    bool cpu_alone;       /* the program used no device: see fs_table.device_unseen */
    /* Peaks of the hardware that ran the events; NULL: unknown. */
    const fs_peaks *cpu_peaks;
    const fs_peaks *cuda_peaks[FS_MAX_CUDA_DEVICES];
} fs_table_options;

typedef struct {
    const char *key; /* name of the row, owned by the store or static; "[memory]": memory changed outside every event */
    const char *overload; /* if rows are separated by it, of an op, "Tensor"; else NULL */
    uint32_t signature;   /* of the first event, for input shapes and dtypes; FS_NONE: none */
    uint32_t part;        /* for fs_table_part_of; FS_NONE: rows are not separated by anything of a part */
    uint8_t category;     /* fs_category that was recorded with the op; 0: that of its name */
    bool on_device, is_user_annotation;
    bool top_level; /* some event of the row has no parent; always true for a device row */
    fs_bound bound;
    fs_timing timing;
    fs_source bytes_source, flops_source;
    fs_roof roof; /* sum over all calls */
    fs_occupancy_limit occupancy_limit;
    int64_t count;
    /* Recorded traces only, in µs: how much the total times exceed the columns in torch's arithmetic, which sums
     * differences of doubles in µs since the profile began. With it, averages round to the digits that torch prints. */
    double cpu_rounding, device_rounding;
#define FS_COLUMN(type, name, unit, prose) type name;
#include "table/columns.def"
#undef FS_COLUMN
} fs_row;

/* Time whose bytes no rule counts, by name: own time of an op, or of device work without an op. */
typedef struct {
    const char *key; /* as fs_row.key */
    int64_t ns;
} fs_unmodelled;

/* A call of a library's op with other arguments than its rule expects. */
typedef struct {
    const char *name, *expected; /* expected: as in csrc/work/libraries */
    uint32_t signature;
} fs_misfit;

/* A piece of work: device work with a known start; in a store without any, an op on the CPU. Its row is that of the op
 * or range to which its FLOPs and bytes belong or, if no rule counts them, of the innermost op or range around its
 * launch. The roofs are its share, by duration, of the roofs of that call; NaN: unknown. */
typedef struct {
    int64_t start, end;                     /* ns; ops on the CPU may nest */
    uint32_t event, owner;                  /* itself; the event whose row is `row`, or FS_NONE */
    uint32_t row, own_row;                  /* indices of rows; FS_NONE: none */
    double compute_ns, memory_ns, least_ns; /* as in fs_roof */
    bool counted, active;                   /* some of the roofs is counted; compute_ns is activity, not FLOPs */
} fs_table_work;

/* A row or an event as a signed number: -1 for FS_NONE. */
static inline int64_t fs_row_number(uint32_t row)
{
    return row == FS_NONE ? -1 : (int64_t)row;
}

/* An op, or a range with declared work, to which its FLOPs and bytes belong: its work and what the device or, without
 * device work, the CPU reached in it. Of an event whose time is unknown, the rating is too. */
typedef struct {
    uint32_t event;
    double flops, bytes_read, bytes_written; /* NaN: unknown */
    double owned_ns;                         /* sum of the durations of its pieces of work; 0: it ran on the CPU */
    fs_rating rating;                        /* by the time in which any of its pieces ran */
} fs_table_rated;

/* Events of one name, kind and signature, which share a row. */
typedef struct {
    uint32_t name, signature; /* ids of the store, or FS_NONE */
    uint32_t row;
    uint8_t kind;
} fs_table_call;

/* What the events of a row have in common besides their name; FS_NONE: unknown, or rows are not separated by it. */
typedef struct {
    uint32_t stack;  /* for fs_table_stack */
    uint32_t line;   /* name of a frame */
    uint32_t step;   /* name of a step */
    uint32_t lane;   /* of device rows */
    uint32_t module; /* index in fs_table.modules */
} fs_table_part;

typedef struct {
    uint32_t name, parent; /* parent: index of a module, or FS_NONE */
    uint32_t calls;
} fs_table_module;

typedef struct {
    fs_row *rows; /* ordered by the start of each group's first event */
    uint32_t row_count;
    int64_t self_cpu_ns;    /* sum of all rows: the base of "Self CPU %" */
    int64_t self_device_ns; /* sum of all device work: the base of "Self CUDA %" */
    bool has_memory, has_device;
    /* A recorded trace of a program that may have used a GPU contains no activity of that GPU. Host times of its ops
     * may then be only dispatch times, and no row has rates. */
    bool device_unseen;
    /* Roofline of all ops whose FLOPs and bytes are known; of the ranges with declared work if no op's work is
     * known. */
    fs_roof whole;
    /* Coverage, in ns: all device time except communication (own host time of ops if there is no device), and the parts
     * in ops whose bytes and whose FLOPs are known. */
    double modelled_base_ns, bytes_known_ns, flops_known_ns;
    double bytes_ns[FS_SOURCE_COUNT], flops_ns[FS_SOURCE_COUNT]; /* by source */
    fs_unmodelled *unmodelled;                                   /* the time in ops of unknown bytes, longest first */
    uint32_t unmodelled_count;
    fs_unmodelled *estimated; /* the time in ops whose work is a bound or an estimate, longest first */
    uint32_t estimated_count;
    fs_unmodelled *flops_estimated; /* the same where only the FLOPs are */
    uint32_t flops_estimated_count;
    fs_misfit *misfits; /* distinct calls of library ops that do not fit their rules */
    uint32_t misfit_count;
    int64_t unseen_graph_ns; /* kernels of graphs whose op is unknown */
    uint32_t open_events;    /* events without an end; they are counted, but have no time */
    fs_table_work *works;    /* if fs_table_options.works; in the order of the store */
    uint32_t work_count;
    fs_table_rated *rated; /* if fs_table_options.ratings; in the order of the store */
    uint32_t rated_count;
    fs_table_call *calls;  /* if fs_table_options.calls */
    uint32_t *event_calls; /* by event: an index in `calls`; FS_NONE: it has no row */
    uint32_t call_count;
    fs_intern stacks;         /* of rows: name ids of the store, innermost frame first */
    fs_intern parts;          /* fs_table_part, by id */
    fs_intern ops;            /* names of ops without overloads */
    fs_table_module *modules; /* if rows are separated by module; parents come first */
    uint32_t module_count;
} fs_table;

/* Tell whether any event is a module, by which a table can be grouped then. FS_OUT_OF_MEMORY. */
fs_status fs_table_finds_modules(const fs_store *store, bool *found, fs_error *err);

/* Group the events of a store, which must not grow meanwhile; the table must not outlive the store. A RANGE or STEP
 * with a device is an annotation on that device's time line and becomes a device row. A FRAME makes no row and takes no
 * time from its parent: its children belong to the nearest enclosing event that is not a frame. FS_OUT_OF_MEMORY. */
fs_status fs_table_build(const fs_store *store, const fs_table_options *options, fs_table **table, fs_error *err);
void fs_table_destroy(fs_table *table);

/* Return what the row's events have in common; every field is FS_NONE if rows are not separated. */
fs_table_part fs_table_part_of(const fs_table *table, const fs_row *row);

/* Return the names (ids of the store) of the frames around the row's events, innermost first, and their number in
 * *depth. Device rows have none. */
const uint32_t *fs_table_stack(const fs_table *table, const fs_row *row, uint32_t *depth);

#endif
