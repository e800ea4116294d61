/* The "args" of an event of a trace. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_ARGUMENTS_H
#define FS_SOURCES_KINETO_ARGUMENTS_H

#include "sources/kineto/records.h"

/* The members of "args" used for an event's record. */
typedef struct {
    fs_scan_span dims, types, strides, concrete; /* arrays, unparsed; text NULL: missing */
    fs_scan_span payload;                        /* of a range: its value, unparsed; text NULL: missing */
    int64_t category;                            /* of a range, if it has no name: its number; 0: none */
    int64_t numbers[32];                         /* indexed by FS_ARG_… */
    uint32_t known;                              /* one bit per number: it is known */
    uint32_t grid[3], block[3], cluster[3];      /* first element 0: missing */
    fs_scan_span texts[9]; /* texts of a collective, the unit of declared FLOPs, a kernel, an annotation, a colour */
} fs_event_arguments;

/* The integers. X(NAME, key) */
/* clang-format off */
#define FS_ARG_LIST(X)                   \
    X(EXTERNAL, "External id")           \
    X(EXTERNAL_OLD, "external id")       \
    X(CORRELATION, "correlation")        \
    X(DEVICE, "device")                  \
    X(STREAM, "stream")                  \
    X(CONTEXT, "context")                \
    X(BYTES, "bytes")                    \
    X(REGISTERS, "registers per thread") \
    X(SHARED, "shared memory")           \
    X(GRAPH, "graph id")                 \
    X(GRAPH_NODE, "graph node id")       \
    X(MEMORY_BYTES, "Bytes")             \
    X(ALLOCATED, "Total Allocated")      \
    X(RESERVED, "Total Reserved")        \
    X(ADDRESS, "Addr")                   \
    X(DEVICE_TYPE, "Device Type")        \
    X(DEVICE_ID, "Device Id")            \
    X(FLOPS, "flops")                    \
    X(BYTES_READ, "bytes read")          \
    X(BYTES_WRITTEN, "bytes written")    \
    X(IN_ELEMENTS, "In msg nelems")      \
    X(OUT_ELEMENTS, "Out msg nelems")    \
    X(GROUP_SIZE, "Group size")          \
    X(SEQUENCE, "Seq")                   \
    X(NODE, "Sequence number")           \
    X(THREAD, "on thread")               \
    X(FORWARD_THREAD, "Fwd thread id")   \
    X(REPLAYED, "graph replay")          \
    X(LAUNCH, "launch work")
/* clang-format on */

enum {
#define FS_ARG_ENUM(NAME, key) FS_ARG_##NAME,
    FS_ARG_LIST(FS_ARG_ENUM)
#undef FS_ARG_ENUM
        FS_ARG_COUNT
};

enum {
    FS_ARG_COLLECTIVE,
    FS_ARG_DTYPE,
    FS_ARG_GROUP,
    FS_ARG_RANKS,
    FS_ARG_UNIT,
    FS_ARG_CATEGORY,
    FS_ARG_KERNEL,
    FS_ARG_MARK,
    FS_ARG_COLOUR
};

/* Reset to unknown. */
void fs_arguments_begin(fs_event_arguments *arguments);
/* Read "args", at its '{'. */
fs_scan_status fs_arguments_read(fs_scan *scan, fs_event_arguments *arguments);

static inline bool fs_argument_known(const fs_event_arguments *arguments, int which)
{
    return (arguments->known >> which & 1) != 0;
}

/* Intern the signature of an op's call, of a launch, of the kernel that an API call launches, of the declared work of a
 * range or a launch, or of memory; FS_NONE: none. FS_OUT_OF_MEMORY. */
fs_status fs_arguments_call(fs_piece *piece, const fs_event_arguments *arguments, uint32_t *signature, fs_error *err);
fs_status fs_arguments_launch(fs_piece *piece, const fs_event_arguments *arguments, uint32_t *signature, fs_error *err);
fs_status fs_arguments_memory(fs_piece *piece, const fs_event_arguments *arguments, uint32_t *signature, fs_error *err);
fs_status fs_arguments_kernel(fs_piece *piece, const fs_event_arguments *arguments, uint32_t *signature, fs_error *err);
fs_status fs_arguments_stated(fs_piece *piece, const fs_event_arguments *arguments, uint32_t *signature, fs_error *err);
fs_status fs_arguments_given(fs_piece *piece, const fs_given_work *work, uint32_t *signature, fs_error *err);

#endif
