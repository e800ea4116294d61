/* The functions of a tool of NVTX, in the tables by which a library finds them. Private to sources/nvtx. */
#ifndef FS_SOURCES_NVTX_FUNCTIONS_H
#define FS_SOURCES_NVTX_FUNCTIONS_H

#include "sources/nvtx/abi.h"

/* Fill in the tables of a library that calls NVTX, or of one that begins to use payloads. */
void fs_nvtx_fill_core(fs_nvtx_function **table, unsigned size);
void fs_nvtx_fill_core2(fs_nvtx_function **table, unsigned size);
void fs_nvtx_fill_payload(const fs_nvtx_segment *segment);

#endif
