/* The work of kernels that Inductor wrote in Triton ("triton_poi_fused_add_0"), by their tensor arguments. Private to
 * csrc/work.
 */
#ifndef FS_WORK_ATEN_TRITON_H
#define FS_WORK_ATEN_TRITON_H

#include "store/torch_signature.h"
#include "work/work.h"

bool fs_triton_is_kernel(const char *name);

/* Bytes moved: of each distinct element of each tensor that the kernel's points reach, once, and once more of a tensor
 * that is read and written, where sizes and name tell that one is; where they do not, the kernel may move more. Where a
 * point may read several elements of a tensor, all of it counts, which is the most. Which bytes are read and which are
 * written a trace does not tell, nor how many FLOPs there are: those are NaN. */
fs_work fs_triton_count(const char *name, const fs_torch_call *call);

#endif
