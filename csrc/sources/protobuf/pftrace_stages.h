/* Work of a GPU in Perfetto's traces. Private to their reader. */
#ifndef FS_SOURCES_PROTOBUF_PFTRACE_STAGES_H
#define FS_SOURCES_PROTOBUF_PFTRACE_STAGES_H

#include "sources/protobuf/pftrace_values.h"

/* Put a GpuRenderStageEvent that began at `start` ns as an event. FS_VALUE_ERROR; FS_OUT_OF_MEMORY. */
fs_status fs_pftrace_put_stage(fs_pftrace_text *text, const fs_pftrace_names *names, uint32_t epoch, uint64_t start,
                               fs_wire stage, fs_error *err);

#endif
