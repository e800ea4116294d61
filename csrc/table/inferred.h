/* Second step of a build: infer the work of calls whose arguments the trace records incompletely. Private to
 * csrc/table. */
#ifndef FS_TABLE_INFERRED_H
#define FS_TABLE_INFERRED_H

#include "table/build.h"

/* Infer missing dtypes from the launched kernels, and missing result shapes from calls of the gradient; recompute the
 * work of those calls. Contradicting evidence is ignored. FS_OUT_OF_MEMORY, FS_INTERRUPTED. */
fs_status fs_build_infer(fs_build *build, fs_error *err);

#endif
