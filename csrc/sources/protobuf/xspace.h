/* XSpace: the recordings of XLA's profiler (jax.profiler, TensorFlow), *.xplane.pb.
 *
 *   XSpace ─ planes: a device, the host, facts ─ lines: a stream, a thread ─ events ─ stats: name, value
 *                └── names of events and stats, by id ──────────────────────┴────────────┘
 *
 * The events become rows of a profiler's database (sources/sqlite/rows.h), which places them by its rules: kernels and
 * copies of streams, API calls with their correlations, ranges and Python's frames of threads, and steps. Lines that
 * repeat the time of others ("XLA Modules", "Framework Ops", …) are left out. On a TPU, an op bears the name of its
 * instruction; its program is what the description of its name says, else what "XLA Modules" has at its start.
 *
 * Field numbers: tsl/profiler/protobuf/xplane.proto. Names: xla/tsl/profiler/utils/xplane_schema.cc. */
#ifndef FS_SOURCES_PROTOBUF_XSPACE_H
#define FS_SOURCES_PROTOBUF_XSPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "base/wire.h"
#include "sources/sqlite/rows.h"

typedef enum { FS_XNOTHING, FS_XINTEGER, FS_XUNSIGNED, FS_XREAL, FS_XTEXT, FS_XBYTES } fs_xvalue_type;

typedef struct {
    fs_xvalue_type type;
    int64_t integer; /* also the bits of FS_XUNSIGNED */
    double real;
    fs_text text;
} fs_xvalue;

typedef struct {
    fs_text name;
    fs_xvalue value;
} fs_xstat;

typedef enum { FS_XPLANE_OTHER, FS_XPLANE_DEVICE, FS_XPLANE_HOST, FS_XPLANE_METADATA } fs_xplane_role;

/* What the events of a line are. */
typedef enum {
    FS_XLINE_LEFT_OUT, /* what other lines have too */
    FS_XLINE_STREAM,   /* kernels, copies and fills */
    FS_XLINE_OPS,      /* of a TPU: nested ops, of which the innermost are kernels */
    FS_XLINE_STEPS,    /* of a TPU */
    FS_XLINE_THREAD,
    FS_XLINE_CALLS, /* of a thread: the API calls and the overhead that CUPTI recorded */
} fs_xline_role;

typedef struct {
    fs_xline_role role;
    fs_text name;
    int64_t id, start; /* start: ns; the events' starts count from it */
    int64_t events;
} fs_xline;

typedef struct fs_xnames fs_xnames;

typedef struct {
    fs_xplane_role role;
    fs_text name;
    int64_t device; /* of FS_XPLANE_DEVICE */
    int64_t core;   /* of a TPU: 1 + the number of a SparseCore; 0: the TensorCore */
    fs_xstat *stats;
    fs_xline *lines;
    uint32_t stat_count, stat_capacity, line_count, line_capacity;
    fs_xnames *names; /* of events and stats: private to xspace.c */
    fs_wire runs;     /* of a TPU: the line of the programs that ran, whose start is run_start */
    int64_t run_start;
} fs_xplane;

/* A module of HLO: its bytes are an HloProto. */
typedef struct {
    fs_text name, proto; /* name: "jit_step(12)" */
} fs_xmodule;

/* What the profiler says of the recording. */
typedef enum { FS_XREMARK_ERROR = 2, FS_XREMARK_WARNING = 3, FS_XREMARK_HOST = 4 } fs_xremark_kind;

typedef struct {
    fs_xremark_kind kind;
    fs_text text; /* of a host: its name */
} fs_xremark;

typedef struct {
    fs_xplane *planes;
    fs_xmodule *modules;
    fs_xremark *remarks;
    uint32_t plane_count, plane_capacity, module_count, module_capacity, remark_count, remark_capacity;
    int64_t process; /* that was recorded; 0: unknown */
    bool stepped;    /* a thread has steps */
    fs_rows *rows;
} fs_xspace;

/* Add the events of an XSpace to the rows, by several threads, and fill in what else it holds, which refers to the
 * bytes. On failure (FS_VALUE_ERROR with the byte, FS_OUT_OF_MEMORY, FS_INTERRUPTED) the space is empty, and the rows
 * are to be destroyed. */
fs_status fs_xspace_read(fs_xspace *space, const void *bytes, size_t size, fs_rows *rows, fs_error *err);
void fs_xspace_clear(fs_xspace *space);

#endif
