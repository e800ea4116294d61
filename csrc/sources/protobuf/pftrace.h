/* Perfetto's traces (.pftrace), as torch's profiler and rocprofv3 write them, as the text of a Chrome trace: what reads
 * torch's traces (sources/kineto) reads it, so that both formats of a trace give the same events.
 *
 *   Trace ─ TracePackets ─┬─ descriptors of tracks: processes and threads
 *                         ├─ interned names, by sequence
 *                         └─ track events: the begin and the end of a slice, instants; annotations are its "args"
 *
 * Field numbers: protos/perfetto/trace in google/perfetto. */
#ifndef FS_SOURCES_PROTOBUF_PFTRACE_H
#define FS_SOURCES_PROTOBUF_PFTRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Takes a piece of the text. A status other than FS_OK ends the reading. */
typedef fs_status (*fs_pftrace_write)(void *context, const char *text, size_t size, fs_error *err);

/* Write a trace as text. Compressed packets must have been expanded. FS_VALUE_ERROR with the byte; FS_OUT_OF_MEMORY;
 * FS_INTERRUPTED; what `write` returns. */
fs_status fs_pftrace_read(const void *bytes, size_t size, fs_pftrace_write write, void *context, fs_error *err);

/* A packet whose content is compressed by deflate, with the header of zlib. */
typedef struct {
    size_t begin, end;           /* of the packet in the trace */
    size_t content, content_end; /* of what is compressed: packets of a trace */
} fs_pftrace_packed;

/* List the compressed packets, in a block for fs_free. FS_VALUE_ERROR; FS_OUT_OF_MEMORY. */
fs_status fs_pftrace_list_packed(const void *bytes, size_t size, fs_pftrace_packed **packed, uint32_t *count,
                                 fs_error *err);

#endif
