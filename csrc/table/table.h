/* A table: rows grouped from a store, with self and total times, statistics, work and roofline joined.
 * All numbers are made here; a view formats them. Columns are listed in columns.def, one row each. */
#ifndef FS_TABLE_TABLE_H
#define FS_TABLE_TABLE_H

#include "roofline/roofline.h"
#include "store/store.h"

enum { FS_MAX_CUDA_DEVICES = 64 };

/* Units of columns. X(unit, shown as, how many of the core's numbers make one that is shown) */
#define FS_COLUMN_UNITS(X)            \
    X(ns, "µs", 1000)                 \
    X(bytes, "bytes", 1)              \
    X(flops, "FLOP", 1)               \
    X(tflops_per_s, "TFLOP/s", 1)     \
    X(gbytes_per_s, "GB/s", 1)        \
    X(flops_per_byte, "FLOP/byte", 1) \
    X(percent, "%", 1)

typedef struct {
    bool by_shape;        /* rows of different input shapes stay apart */
    uint32_t stack_depth; /* rows of different stacks stay apart, of so many innermost frames; 0: no stacks */
    bool cpu_alone;       /* the program is known to have used no device: see fs_table.device_unseen */
    /* Peaks of what the events ran on; NULL: not known. */
    const fs_peaks *cpu_peaks;
    const fs_peaks *cuda_peaks[FS_MAX_CUDA_DEVICES];
} fs_table_options;

typedef struct {
    const char *key; /* the name that the row shows, the store's text or a constant; "[memory]": outside every event */
    uint32_t signature; /* of the first event, for input shapes and dtypes; FS_NONE: none */
    uint32_t stack;     /* for fs_table_stack; FS_NONE: rows are not grouped by stack */
    bool on_device, is_user_annotation;
    bool top_level; /* some event of the row lies in no other; always of a device row */
    fs_bound bound;
    fs_timing timing;
    fs_roof roof; /* of all calls together */
    int64_t count;
    /* In µs, of a recorded trace: what the total times are above those of the columns in the arithmetic of torch, which
     * adds up differences of doubles, µs since its profile began. An average that lies between two last digits is then
     * printed as torch prints it. */
    double cpu_rounding, device_rounding;
#define FS_COLUMN(type, name, unit, prose) type name;
#include "table/columns.def"
#undef FS_COLUMN
} fs_row;

/* Time whose bytes no rule knows: own time of an op, or of device work that no op launched, by name. */
typedef struct {
    const char *key; /* as a row's */
    int64_t ns;
} fs_unmodelled;

typedef struct {
    fs_row *rows; /* in order of the start of each group's first event */
    uint32_t row_count;
    int64_t self_cpu_ns;    /* of all rows: the base of "Self CPU %" */
    int64_t self_device_ns; /* of all device work: the base of "Self CUDA %" */
    bool has_memory, has_device;
    /* A recorded trace of a program that used a GPU has no activity of that GPU: the host times of its ops are the time
     * it took to dispatch them, and no row has rates. */
    bool device_unseen;
    /* What all ops did, as one roof: of those whose FLOPs and bytes are known, or of the ranges whose work is stated
     * where no op's is. */
    fs_roof whole;
    /* Coverage: all time of device work but communication (own host time of ops where there is no device), and the
     * parts of it in ops whose bytes, and whose FLOPs, are known. */
    double modelled_base_ns, bytes_known_ns, flops_known_ns;
    fs_unmodelled *unmodelled; /* what the rest of the bytes' part is, longest first */
    uint32_t unmodelled_count;
    fs_unmodelled *estimated; /* what of it is an upper limit that kernels' launches tell, longest first */
    uint32_t estimated_count;
    uint32_t open_events; /* events without an end: counted, their time unknown */
    fs_intern stacks;     /* of rows: ids of names in the store, the innermost frame's first */
} fs_table;

/* Group a store that nobody appends to; the table lives no longer than the store. A RANGE or STEP with a device is an
 * annotation of that device's own time line: a device row. A FRAME makes no row and takes no time from what is around
 * it: what it encloses lies in the next event outward that is none. FS_OUT_OF_MEMORY. */
fs_status fs_table_build(const fs_store *store, const fs_table_options *options, fs_table **table, fs_error *err);
void fs_table_destroy(fs_table *table);

/* The names (ids in the store) of the frames that the row's events lie in, innermost first; *depth of them. None for
 * rows of devices. */
const uint32_t *fs_table_stack(const fs_table *table, const fs_row *row, uint32_t *depth);

#endif
