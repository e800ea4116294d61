/* The texts with which torch marks its ops by NVTX (torch/csrc/profiler/util.cpp, getNvtxStr; roctx alike):
 *
 *   aten::mm, seq = 12, op_id = 345, sizes = [[16, 128], [128, 64]], input_op_ids = [(340,0), (0,-1)]
 *
 * Each part after the name may be absent. There are no dtypes. Private to the reader of databases. */
#ifndef FS_SOURCES_SQLITE_NVTX_H
#define FS_SOURCES_SQLITE_NVTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    size_t name_size;  /* of the text's start, which is the name */
    int64_t sequence;  /* number of the autograd node; -1: none */
    const char *sizes; /* the list of shapes, with its brackets; NULL: none */
    size_t sizes_size;
    bool op;       /* an op of torch, as opposed to a user's range */
    bool backward; /* an op of the backward pass that runs the node of that number */
} fs_nvtx_text;

fs_nvtx_text fs_nvtx_parse(const char *text, size_t size);

#endif
